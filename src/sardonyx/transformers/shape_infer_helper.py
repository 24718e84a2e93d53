"""Shapes of the values of a model whose dynamic axes have given sizes.

helper = SymbolicShapeInferenceHelper(onnx.load("bert.onnx"))
helper.infer({"batch_size": 4, "seq_len": 7})
helper.get_edge_shape("logits")     # [4, 7, 30522]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, Union

from sardonyx.analysis.shapes import infer_shapes
from sardonyx.errors import InvalidArgument
from sardonyx.formats.onnx import load
from sardonyx.ir.dims import Dim, evaluate, symbols_of
from sardonyx.ir.graph import Value, walk
from sardonyx.ir.types import TensorType

Size: TypeAlias = Union[int, str]  # one that is not known is its expression


class SymbolicShapeInferenceHelper:
    """Shapes of a model (a ModelProto, or the bytes of one). The other arguments are taken, and change nothing."""

    def __init__(
        self,
        model: Any,
        verbose: int = 0,
        int_max: int = 2**31 - 1,
        auto_merge: bool = True,
        guess_output_rank: bool = False,
    ) -> None:
        content = model if isinstance(model, (bytes, bytearray, memoryview)) else model.SerializeToString()
        loaded = load(bytes(content))
        infer_shapes(loaded)
        self._shapes: dict[str, tuple[Dim, ...] | None] = {}
        self._types: dict[str, int] = {}
        for value in (*loaded.graph.inputs, *loaded.graph.initializers.values()):
            self._shapes[value.name] = value.shape
            self._note_type(value)
        for node in walk(loaded.graph):
            for value in node.outputs:
                if value.name:
                    known = value.shape if isinstance(value.type, TensorType) or value.type is None else ()
                    self._shapes.setdefault(value.name, known)
                    self._note_type(value)
        self._sizes: dict[str, int] = {}
        self.is_inferred_ = False
        self.all_shapes_inferred_ = all(shape is not None for shape in self._shapes.values())

    def _note_type(self, value: Value) -> None:
        if isinstance(value.type, TensorType):
            self._types[value.name] = value.type.dtype.onnx

    def infer(self, dynamic_axis_mapping: Mapping[str, int], max_runs: int = 200) -> bool:
        """Give dynamic axes their sizes; whether the shapes of all values are known."""
        self._sizes = dict(dynamic_axis_mapping)
        self.is_inferred_ = True
        return self.all_shapes_inferred_

    def get_edge_shape(self, edge: str) -> list[Size] | None:
        """The shape of a value; None if it is not known."""
        shape = self._shapes.get(edge)
        return None if shape is None else [self._size(dim) for dim in shape]

    def get_edge_dtype(self, edge: str) -> int | None:
        """The element type of a value, as ONNX numbers them; None if it is not known."""
        return self._types.get(edge)

    def compare_shape(self, edge: str, edge_other: str) -> bool:
        """Whether two values have the same shape."""
        shapes = []
        for name in (edge, edge_other):
            shape = self.get_edge_shape(name)
            if shape is None:
                raise InvalidArgument(f"the shape of {name!r} is not known", hint="name another value")
            shapes.append(shape)
        return shapes[0] == shapes[1]

    def _size(self, dim: Dim) -> Size:
        if isinstance(dim, int):
            return dim
        return evaluate(dim, self._sizes) if all(name in self._sizes for name in symbols_of(dim)) else str(dim)
