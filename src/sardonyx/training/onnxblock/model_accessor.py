"""The model that blocks are built on at the moment: `base` takes one, `empty_base` begins anew.

with onnxblock.base(model) as accessor:
    block("output")                        blocks find the model by themselves
accessor.model
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Final

from sardonyx.formats import onnx as onnx_format
from sardonyx.ir.graph import Graph, Model
from sardonyx.training.onnxblock.editor import GraphEditor, editor_of
from sardonyx.training.onnxblock.messages import latest_opset, to_proto
from sardonyx.training.training_graph import copied

_LATEST: Final = 23  # opset of models begun here; the `onnx` package's own where it is installed


class ModelAccessor:
    """A model under construction, and the path it was read from, if it was."""

    def __init__(self, model: Any, model_path: str | None = None) -> None:
        self._model = model
        self._path = model_path

    @property
    def model(self) -> Any:
        """The model."""
        return self._model

    @cached_property
    def editor(self) -> GraphEditor:
        """By which the built-in blocks change it."""
        return editor_of(self._model)

    @property
    def path(self) -> str:
        """Where the model was read from."""
        if self._path is None:
            raise RuntimeError("The path to the onnx model was not set. Please give it to the context manager onnxblock.base.")
        return self._path

    @property
    def has_path(self) -> bool:
        """Whether the model was read from a file."""
        return self._path is not None


class _Current:
    """What the context managers have set."""

    accessor: ModelAccessor | None = None
    custom_op_library: str | None = None


def current() -> ModelAccessor:
    """The model that blocks are built on."""
    if _Current.accessor is None:
        raise RuntimeError("The onnx model was not set. Please use the context manager onnxblock.base or onnxblock.empty_base.")
    return _Current.accessor


@contextlib.contextmanager
def _set(accessor: ModelAccessor) -> Iterator[ModelAccessor]:
    if _Current.accessor is not None:
        raise RuntimeError("Base onnx model already exists. Cannot create multiple ModelAccessors.")
    _Current.accessor = accessor
    try:
        yield accessor
    finally:
        _Current.accessor = None


@contextlib.contextmanager
def base(model: Any, model_path: str | None = None) -> Iterator[ModelAccessor]:
    """Build blocks on a copy of a model: a ModelProto, a model of Sardonyx, its bytes or its path."""
    if model is None:
        raise RuntimeError(
            "Base onnx model cannot be None. Please use onnxblock.empty_base if you would like to build a model from scratch."
        )
    if isinstance(model, Model):
        clone: Any = copied(model)
    elif isinstance(model, (str, bytes, os.PathLike)):
        clone = onnx_format.load(model)
    else:
        clone = copy.deepcopy(model)
    with _set(ModelAccessor(clone, model_path)) as accessor:
        yield accessor


@contextlib.contextmanager
def empty_base(opset_version: int | None = None) -> Iterator[ModelAccessor]:
    """Build blocks on a model without anything; a ModelProto where the `onnx` package is installed."""
    with _set(ModelAccessor(empty_model(opset_version, as_proto=find_spec("onnx") is not None))) as accessor:
        yield accessor


def empty_model(opset_version: int | None = None, *, as_proto: bool = False) -> Any:
    """A model without nodes."""
    version = opset_version or (latest_opset() if as_proto else _LATEST)
    graph = Graph("graph")
    made = Model(graph, ir_version=10, opset_imports={"com.microsoft": 1, "": version}, producer_name="sardonyx")
    return to_proto(made) if as_proto else made


@contextlib.contextmanager
def custom_op_library(custom_op_library_path: str | os.PathLike[str]) -> Iterator[str]:
    """Name a library of custom operators that the model needs; the file must be there."""
    if _Current.custom_op_library is not None:
        raise RuntimeError("CustomOp library already set. Cannot set multiple custom op libraries.")
    if not os.path.exists(custom_op_library_path):
        raise RuntimeError(f"Custom op library path {custom_op_library_path} does not exist.")
    _Current.custom_op_library = os.fspath(custom_op_library_path)
    try:
        yield _Current.custom_op_library
    finally:
        _Current.custom_op_library = None
