"""Parameters of a training block to a checkpoint file, and from one into a model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.formats.onnx import load, load_tensor
from sardonyx.formats.ort import checkpoint as format_
from sardonyx.ir.graph import Model
from sardonyx.ir.tensor import from_numpy
from sardonyx.training.onnxblock.messages import to_proto

Array = np.ndarray[Any, Any]


def _arrays(parameters: Sequence[Any]) -> dict[str, Array]:
    """Parameters by name: TensorProtos, or with `name` and `data`."""
    found: dict[str, Array] = {}
    for each in parameters:
        if each.name in found:
            raise RuntimeError(f"Duplicated tensor proto named {each.name}")
        found[each.name] = np.asarray(load_tensor(each.SerializeToString()) if hasattr(each, "SerializeToString") else each.data)
    return found


def save_checkpoint(
    parameters: tuple[Sequence[Any], Sequence[Any]],
    path_to_checkpoint: str | os.PathLike[str],
    nominal_checkpoint: bool = False,
) -> None:
    """Write trainable and frozen parameters to a checkpoint; a nominal one has their names and types only."""
    if parameters is None:
        raise RuntimeError("No checkpoint parameters provided.")
    trainable, frozen = map(_arrays, parameters)
    made = format_.Checkpoint(trainable=trainable, frozen=frozen, is_nominal=nominal_checkpoint)
    format_.save_checkpoint(made, path_to_checkpoint)


def load_checkpoint_to_model(path_to_checkpoint: str | os.PathLike[str], model: Any) -> None:
    """Give the initializers of a model the values that the checkpoint has for them."""
    found = format_.load_checkpoint(path_to_checkpoint)
    ours = model if isinstance(model, Model) else load(model)
    for name, array in (*found.trainable.items(), *found.frozen.items()):
        value = ours.graph.initializers.get(name)
        if value is not None:
            value.constant = from_numpy(array)
    if ours is not model:
        model.CopyFrom(to_proto(ours))
