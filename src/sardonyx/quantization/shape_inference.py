"""`quant_pre_process`: prepare a model for quantization.

Old operators are raised to opset 11, types and shapes of all values are found, constants are folded and what is not needed is
taken away: a tensor whose type is not known cannot be quantized, and a constant that is computed is not seen as one.
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import Any

from sardonyx.analysis.shapes import infer_shapes
from sardonyx.enums import GraphOptimizationLevel
from sardonyx.errors import InvalidArgument, SardonyxError
from sardonyx.formats.onnx import load, save
from sardonyx.ir.graph import Model
from sardonyx.options import SessionOptions
from sardonyx.quantization import messages
from sardonyx.quantization.models import PREPARED, mark, opset_version, write_model
from sardonyx.quantization.opset import raise_opset
from sardonyx.session.inference_session import InferenceSession

logger = logging.getLogger(__name__)


def quant_pre_process(
    input_model: Any = None,
    output_model_path: str | Path | None = None,
    skip_optimization: bool = False,
    skip_onnx_shape: bool = False,
    skip_symbolic_shape: bool = False,
    auto_merge: bool = False,
    int_max: int = 2**31 - 1,
    guess_output_rank: bool = False,
    verbose: int = 0,
    save_as_external_data: bool = False,
    all_tensors_to_one_file: bool = False,
    external_data_location: str | None = None,
    external_data_size_threshold: int = 1024,
    **deprecated_kwargs: Any,
) -> None:
    """Prepare a model (a path or an onnx.ModelProto) for quantization, and write it.

    Shapes are found unless both of `skip_onnx_shape` and `skip_symbolic_shape` are set: there is one inference for both, and
    `auto_merge`, `int_max` and `guess_output_rank` change nothing about it. External data goes to one file.
    """
    given = deprecated_kwargs.pop("input_model_path", None) if input_model is None else input_model
    if deprecated_kwargs:
        raise TypeError(f"quant_pre_process() got an unexpected keyword argument {next(iter(deprecated_kwargs))!r}")
    if given is None:
        raise InvalidArgument("input_model is missing: a path or an onnx.ModelProto is expected")
    if output_model_path is None:
        raise InvalidArgument("output_model_path is required.")
    model = messages.from_message(given) if messages.is_message(given) else load(os.fspath(given))
    if opset_version(model) <= 10:
        infer_shapes(model)
        raise_opset(model, 11)
    if not skip_optimization:
        model = _optimized(model)
    if not (skip_onnx_shape and skip_symbolic_shape):
        report = infer_shapes(model)
        for problem in report.problems if verbose else ():
            logger.warning("%s", problem)
    mark(model, PREPARED)
    if save_as_external_data:
        location = external_data_location or f"{os.path.basename(os.fspath(output_model_path))}.data"
        save(model, output_model_path, external_data=location, external_threshold=external_data_size_threshold)
    else:
        write_model(model, output_model_path, external=False)


def _optimized(model: Model) -> Model:
    """The model as the basic passes leave it; as it was, if they cannot make anything of it."""
    with tempfile.TemporaryDirectory(prefix="sardonyx.") as folder:
        source, target = os.path.join(folder, "model.onnx"), os.path.join(folder, "optimized.onnx")
        write_model(model, source, external=True)
        options = SessionOptions()
        options.optimized_model_filepath = target
        options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "optimized.onnx.data")
        try:
            InferenceSession(source, options, providers=["CPUExecutionProvider"])
            return messages.opened(target)
        except SardonyxError as error:
            logger.error("the model cannot be optimized, and is prepared as it is: %s", error)
            return model
