"""Models written as the passes left them: as ONNX, or in the ORT format."""

from __future__ import annotations

import dataclasses
from typing import Final

from sardonyx import errors
from sardonyx.enums import GraphOptimizationLevel
from sardonyx.formats import ort
from sardonyx.formats.onnx import save
from sardonyx.ir.clone import Cloner
from sardonyx.ir.graph import Model
from sardonyx.matching.signatures import TableFacts
from sardonyx.options import SessionOptions
from sardonyx.passes.expand_functions import ExpandFunctions
from sardonyx.passes.runtime_optimisations import find_optimisations, replay_optimisations
from sardonyx.passes.widen_half import WidenHalf

RECORDING_KEY: Final = "optimization.minimal_build_optimizations"
_EXTERNAL_FILE: Final = "session.optimized_model_external_initializers_file_name"
_EXTERNAL_MIN: Final = "session.optimized_model_external_initializers_min_size_in_bytes"
_SAVE_FORMAT: Final = "session.save_model_format"


def write_ort(model: Model, path: str, recording: str = "") -> None:
    """Write a model in the ORT format, as ONNX Runtime can run it; the model itself stays as it is.

    `recording` says what becomes of the rewritings that may also be made when the file is loaded: with "save" they are written
    down for that, with "apply" they are made.
    """
    written = dataclasses.replace(model, graph=Cloner().graph(model.graph), opset_imports=dict(model.opset_imports))
    for each in (ExpandFunctions(), WidenHalf()):
        each.run(written)
    found = find_optimisations(written) if recording else []
    if recording == "apply":
        replay_optimisations(written, found)
        found = []
    ort.save(written, path, TableFacts(model.type_arguments), found)


def save_optimized(model: Model, options: SessionOptions) -> None:
    """Write the model as the passes left it to `optimized_model_filepath`."""
    path = options.optimized_model_filepath
    chosen = options.config_entries.get(_SAVE_FORMAT) or ("ORT" if path.lower().endswith(".ort") else "ONNX")
    if chosen not in ("ORT", "ONNX"):
        raise errors.InvalidArgument(f"{_SAVE_FORMAT} is {chosen!r}, expected 'ORT' or 'ONNX'")
    if chosen == "ORT":
        recording = options.config_entries.get(RECORDING_KEY, "")
        if recording not in ("", "save", "apply"):
            raise errors.InvalidArgument(f"{RECORDING_KEY} is {recording!r}, expected 'save', 'apply' or ''")
        is_extended = options.graph_optimization_level > GraphOptimizationLevel.ORT_ENABLE_BASIC
        write_ort(model, path, recording if is_extended else "")
        return
    external = options.config_entries.get(_EXTERNAL_FILE) or None
    threshold = int(options.config_entries.get(_EXTERNAL_MIN, "1024"))
    save(model, path, external_data=external, external_threshold=threshold)
