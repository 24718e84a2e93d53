"""Models written as the passes left them: as ONNX, or in the ORT format."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from sardonyx import dtypes, errors
from sardonyx.enums import GraphOptimizationLevel
from sardonyx.formats import ort
from sardonyx.formats.onnx import dense_initializers, save
from sardonyx.formats.onnx.packings import Packed
from sardonyx.ir.clone import Cloner
from sardonyx.ir.graph import Model
from sardonyx.ir.tensor import Array
from sardonyx.matching.signatures import TableFacts
from sardonyx.options import (
    DISABLE_PACKING_KEY,
    EXTERNAL_FILE_KEY,
    EXTERNAL_MIN_KEY,
    RECORDING_KEY,
    SAVE_FORMAT_KEY,
    SAVE_PACKINGS_KEY,
    SessionOptions,
)
from sardonyx.passes.expand_functions import ExpandFunctions
from sardonyx.passes.runtime_optimisations import find_optimisations, replay_optimisations
from sardonyx.passes.widen_half import WidenHalf
from sardonyx.program.constants import Derived
from sardonyx.runtime.logs import WARNING, log
from sardonyx.runtime.packed_weights import packings_of


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


def save_format(options: SessionOptions) -> str:
    """What `optimized_model_filepath` is written as: "ONNX" or "ORT"."""
    path = options.optimized_model_filepath
    chosen = options.config_entries.get(SAVE_FORMAT_KEY) or ("ORT" if path.lower().endswith(".ort") else "ONNX")
    if chosen not in ("ORT", "ONNX"):
        raise errors.InvalidArgument(f"{SAVE_FORMAT_KEY} is {chosen!r}, expected 'ORT' or 'ONNX'")
    return chosen


def saves_packings(options: SessionOptions) -> bool:
    """Whether packed weights are to be written beside the model; a warning if that is asked for and cannot be."""
    entries = options.config_entries
    if entries.get(SAVE_PACKINGS_KEY, "0") != "1":
        return False
    problem = (
        "the model is not saved (SessionOptions.optimized_model_filepath)"
        if not options.optimized_model_filepath
        else "models in the ORT format hold none"
        if save_format(options) == "ORT"
        else f"there is no file for them ({EXTERNAL_FILE_KEY})"
        if not entries.get(EXTERNAL_FILE_KEY)
        else "nothing is packed (session.disable_prepacking)"
        if entries.get(DISABLE_PACKING_KEY, "0") == "1"
        else ""
    )
    if problem:
        log(WARNING, "%s is ignored: %s", SAVE_PACKINGS_KEY, problem, threshold=options.log_severity_level, logid=options.logid)
    return not problem


class PackingSaver:
    """Writes an optimised model with the weights that were packed for it: the model is kept until those are known."""

    def __init__(self, options: SessionOptions) -> None:
        self._options = options
        self._model: Model | None = None

    def keep(self, model: Model) -> None:
        """The model as it is to be written; compiling it goes on."""
        self._model = dataclasses.replace(model, graph=Cloner().graph(model.graph), opset_imports=dict(model.opset_imports))

    def save(self, constants: Mapping[Derived, Callable[[], Array]]) -> None:
        """Write it, with those of the packed constants that are made of its external data."""
        assert self._model is not None
        threshold = external_threshold(self._options)
        large = {
            id(tensor): tensor
            for _, tensor in dense_initializers(self._model)
            if tensor.dtype is not dtypes.STRING and tensor.nbytes and tensor.nbytes >= threshold
        }
        save_optimized(self._model, self._options, packings_of(constants, large))


def external_threshold(options: SessionOptions) -> int:
    """From how many bytes on the data of an initializer is written to a file of its own."""
    return int(options.config_entries.get(EXTERNAL_MIN_KEY, "1024"))


def save_optimized(model: Model, options: SessionOptions, packings: Mapping[int, Sequence[Packed]] | None = None) -> None:
    """Write the model as the passes left it to `optimized_model_filepath`."""
    path = options.optimized_model_filepath
    if save_format(options) == "ORT":
        recording = options.config_entries.get(RECORDING_KEY, "")
        if recording not in ("", "save", "apply"):
            raise errors.InvalidArgument(f"{RECORDING_KEY} is {recording!r}, expected 'save', 'apply' or ''")
        is_extended = options.graph_optimization_level > GraphOptimizationLevel.ORT_ENABLE_BASIC
        write_ort(model, path, recording if is_extended else "")
        return
    external = options.config_entries.get(EXTERNAL_FILE_KEY) or None
    save(model, path, external_data=external, external_threshold=external_threshold(options), packings=packings)
