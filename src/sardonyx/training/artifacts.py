"""From an ONNX model to all that training it needs: `generate_artifacts`.

    artifacts.generate_artifacts(
        "model.onnx", requires_grad=["fc.weight", "fc.bias"],
        loss=artifacts.LossType.CrossEntropyLoss, optimizer=artifacts.OptimType.AdamW, artifact_directory="artifacts",
    )

    training_model.onnx      the model, the loss and all gradients; parameters are inputs
    eval_model.onnx          the model and the loss, without training mode
    optimizer_model.onnx     how parameters follow from gradients
    checkpoint               the parameters

`training.api` trains with them. Neither PyTorch nor the `onnx` package is needed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from sardonyx import errors
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.formats import onnx as onnx_format
from sardonyx.formats import ort as ort_format_
from sardonyx.ir.graph import Model
from sardonyx.matching.signatures import TableFacts
from sardonyx.passes.expand_functions import ExpandFunctions
from sardonyx.training import onnxblock
from sardonyx.training.onnxblock.messages import to_proto
from sardonyx.training.onnxblock.model_accessor import ModelAccessor, empty_model
from sardonyx.training.training_graph import copied

_OWN: Final = "sardonyx."


class LossType(Enum):
    """The losses that `generate_artifacts` knows by name."""

    MSELoss = 1
    CrossEntropyLoss = 2
    BCEWithLogitsLoss = 3
    L1Loss = 4


class OptimType(Enum):
    """The optimizers that `generate_artifacts` knows by name."""

    AdamW = 1
    SGD = 2


class _Training(onnxblock.TrainingBlock):
    """The loss on the outputs of a model, and other outputs behind it."""

    def __init__(self, loss: onnxblock.Block, loss_inputs: Sequence[str] | None, others: Sequence[str]) -> None:
        super().__init__()
        self._loss = loss
        self._loss_inputs = loss_inputs
        self._others = others

    def build(self, *outputs: str) -> Any:
        found = self._loss(*(self._loss_inputs or outputs))
        return (*([found] if isinstance(found, str) else found), *self._others)


def _loss_block(loss: Any) -> onnxblock.Block:
    if loss is None:
        return onnxblock.blocks.PassThrough()
    if isinstance(loss, LossType):
        made: onnxblock.Block = getattr(onnxblock.loss, loss.name)()
        return made
    if not isinstance(loss, onnxblock.Block):
        raise RuntimeError(
            f"Unknown loss provided {type(loss)}. Expected loss to be either one of "
            "onnxruntime.training.artifacts.LossType or onnxruntime.training.onnxblock.Block."
        )
    return loss


def _optimizer_block(optimizer: Any) -> Any:
    if isinstance(optimizer, OptimType):
        return getattr(onnxblock.optim, optimizer.name)()
    if not isinstance(optimizer, onnxblock.Block):
        raise TypeError(
            f"Unknown optimizer provided {type(optimizer)}. Expected optimizer to be either one of "
            "onnxruntime.training.artifacts.OptimType or onnxruntime.training.onnxblock.Block."
        )
    return optimizer


def _as_messages(block: Any) -> bool:
    """Whether a block is the caller's, who may want to change messages of the `onnx` package."""
    return not type(block).__module__.startswith(_OWN) and find_spec("onnx") is not None


def _base_of(model: Any, block: Any) -> tuple[Any, list[str], int]:
    """The model to build on, the names of its outputs, and its opset."""
    if isinstance(model, Model):
        base: Any = model
    elif isinstance(model, (str, bytes, os.PathLike)):
        base = onnx_format.load(model)
    elif hasattr(model, "SerializeToString"):
        outputs = [output.name for output in model.graph.output]
        return model, outputs, next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 0)
    else:
        raise RuntimeError(
            f"Please pass in either a string or an ONNX ModelProto for the model; a {type(model).__name__} is neither."
        )
    outputs, version = [value.name for value in base.graph.outputs], base.opset_imports.get("", 0)
    if _as_messages(block):
        base = to_proto(base)
    return base, outputs, version


def generate_artifacts(
    model: Any,
    requires_grad: list[str] | None = None,
    frozen_params: list[str] | None = None,
    loss: LossType | onnxblock.Block | None = None,
    optimizer: OptimType | onnxblock.Block | None = None,
    artifact_directory: str | bytes | os.PathLike[str] | None = None,
    prefix: str = "",
    ort_format: bool = False,
    custom_op_library: str | bytes | os.PathLike[str] | None = None,
    additional_output_names: list[str] | None = None,
    nominal_checkpoint: bool = False,
    loss_input_names: list[str] | None = None,
) -> None:
    """Write training, evaluation and optimizer model and the checkpoint into a folder, the working directory by default.

    `model` is a path, bytes, a ModelProto or a model of Sardonyx. `requires_grad` names the parameters to train, `frozen_params`
    those that are parameters all the same (they are in the checkpoint). The loss is one of LossType, a block, or None if the
    first output of the model is the loss already; it is given `loss_input_names`, by default all outputs. With `ort_format` the
    models are written in the ORT format, too; with `nominal_checkpoint` a checkpoint without data, for whoever gets the
    parameters elsewhere.
    """
    both = set(requires_grad or ()) & set(frozen_params or ())
    if both:
        raise RuntimeError(
            f"A parameter cannot be frozen and require gradient computation at the same time: {', '.join(sorted(both))}"
        )
    if additional_output_names is not None and not isinstance(additional_output_names, list):
        raise RuntimeError(
            f"Unknown type provided for additional output names {type(additional_output_names)}. "
            "Expected additional output names to be a list of strings."
        )
    loss_block = _loss_block(loss)
    optimizer_block = None if optimizer is None else _optimizer_block(optimizer)
    base, outputs, version = _base_of(model, loss_block)
    block = _Training(loss_block, loss_input_names, additional_output_names or ())
    for name in requires_grad or ():
        block.requires_grad(name)
    for name in frozen_params or ():
        block.requires_grad(name, False)
    library = (
        contextlib.nullcontext() if custom_op_library is None else onnxblock.custom_op_library(os.fsdecode(custom_op_library))
    )
    with onnxblock.base(base), library:
        block(*outputs)
    folder = Path(os.fsdecode(artifact_directory)) if artifact_directory is not None else Path.cwd()
    if not folder.is_dir():
        raise errors.NoSuchFile(f"there is no folder {str(folder)!r} to write artifacts to")
    training, evaluation = block.to_models()
    _save(training, folder / f"{prefix}training_model.onnx", ort_format)
    _save(evaluation, folder / f"{prefix}eval_model.onnx", ort_format)
    parameters = block.parameters()
    onnxblock.save_checkpoint(parameters, folder / f"{prefix}checkpoint")
    if nominal_checkpoint:
        onnxblock.save_checkpoint(parameters, folder / f"{prefix}nominal_checkpoint", nominal_checkpoint=True)
    if optimizer_block is not None:
        _save(_optimizer_model(optimizer_block, parameters, version), folder / f"{prefix}optimizer_model.onnx", ort_format)


def _optimizer_model(block: Any, parameters: Any, version: int) -> Model:
    accessor = ModelAccessor(empty_model(version or None, as_proto=_as_messages(block)))
    with onnxblock.base(accessor.model):
        block(parameters)
    if isinstance(block, onnxblock.ForwardBlock):
        return block.to_model()
    raise TypeError(f"the optimizer block {type(block).__name__} makes no model: it must be an onnxblock.ForwardBlock")


def _save(model: Model, path: Path, ort_format: bool) -> None:
    onnx_format.save(model, path)
    if ort_format:
        written = copied(model)
        ExpandFunctions().run(written)
        infer_shapes(written)
        ort_format_.save(written, path.with_suffix(".ort"), TableFacts(model.type_arguments))
