"""Models in float32 become models in float16: weights and values are half as large; what must stay wide is put between Casts.

    x: f32 -> MatMul(x, w: f32) -> TopK(...)      =>   x: f32 -> Cast -> MatMul(., w: f16) -> Cast -> TopK(...)

A node stays in float32 if its operator has no float16 by its signature, if its operator or name is on a list, or where it runs
a graph. Some inputs are float32 whatever the node's type is (the scales of Resize). Small weights do not become zero and large
ones not infinite: they become the nearest number that float16 has.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import field
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.errors import InvalidArgument
from sardonyx.formats.loading import load
from sardonyx.formats.onnx import save
from sardonyx.ir import tensor
from sardonyx.ir.builder import make_attr
from sardonyx.ir.graph import AttrKind, Graph, Model, Node, Value
from sardonyx.ir.tensor import Tensor
from sardonyx.ir.types import TensorType
from sardonyx.ops.signature import signature
from sardonyx.passes.inline_functions import InlineFunctions
from sardonyx.passes.rewriter import Rewriter, all_graphs
from sardonyx.records import dataclass

Array = np.ndarray[Any, Any]

SMALLEST: Final = 5.96e-08  # what the magnitude of a weight becomes at least, if it is not 0
LARGEST: Final = 65504.0  # what it becomes at most, if it is finite
BLOCKED_OPERATORS: Final = (
    "ArrayFeatureExtractor", "Binarizer", "CastMap", "CategoryMapper", "DictVectorizer", "FeatureVectorizer", "Imputer",
    "LabelEncoder", "LinearClassifier", "LinearRegressor", "Normalizer", "OneHotEncoder", "RandomUniformLike", "SVMClassifier",
    "SVMRegressor", "Scaler", "TreeEnsembleClassifier", "TreeEnsembleRegressor", "TreeEnsemble", "ZipMap", "NonMaxSuppression",
    "TopK", "RoiAlign", "Range", "CumSum", "Min", "Max", "Upsample",
)  # fmt: skip
_ALWAYS_WIDE: Final = {"Resize": (1, 2), "GroupNorm": (1, 2), "SkipGroupNorm": (1, 2), "QuantizeLinear": (1,)}
_TYPE_ATTRIBUTES: Final = {"Cast": "to", "EyeLike": "dtype", "RandomNormal": "dtype", "RandomUniform": "dtype"}


@dataclass(frozen=True)
class Float16Settings:
    """What stays as it is. `keeps_io`: inputs and outputs are float32, all or those of these names."""

    keeps_io: bool | Collection[str] = False
    blocked_operators: Collection[str] = BLOCKED_OPERATORS
    blocked_nodes: Collection[str] = ()
    converts_all_weights: bool = False  # those that only nodes in float32 read, too
    smallest: float = SMALLEST
    largest: float = LARGEST
    narrow_inputs: dict[str, list[int]] = field(default_factory=dict)  # operator -> inputs that are float16 in any case


def narrow(array: Array, smallest: float = SMALLEST, largest: float = LARGEST) -> Array:
    """float32 as float16: no number but 0 becomes 0, and none but infinity infinite."""
    magnitude = np.abs(array)
    bounded = np.where((magnitude > 0) & (magnitude < smallest), np.copysign(np.float32(smallest), array), array)
    bounded = np.where(np.isfinite(array) & (magnitude > largest), np.copysign(np.float32(largest), array), bounded)
    with np.errstate(over="ignore"):
        return np.asarray(bounded.astype(np.float16))


def convert_to_float16(
    source: str | os.PathLike[str], target: str | os.PathLike[str], *, keep_io_types: bool | Collection[str] = False
) -> None:
    """Write a model file in float16. `keep_io_types`: inputs and outputs stay float32, all or those of these names."""
    model = load(os.fspath(source))
    convert_model(model, Float16Settings(keeps_io=keep_io_types))
    save(model, os.fspath(target))


def convert_model(model: Model, settings: Float16Settings | None = None) -> None:
    """Change a model in place."""
    _Converter(model, settings or Float16Settings()).run()


class _Converter:
    def __init__(self, model: Model, settings: Float16Settings) -> None:
        if settings.smallest <= 0 or settings.largest < settings.smallest:
            found = f"min_positive_val is {settings.smallest}, max_finite_val {settings.largest}"
            raise InvalidArgument(f"{found}: expected positive numbers in this order")
        InlineFunctions().run(model)
        infer_shapes(model)
        self.model, self.settings = model, settings
        self.graphs = all_graphs(model)
        self.wide: set[Value] = set()  # float32 values that stay so
        self.floats = {value for value in self._values() if _is_f32(value)}

    def _values(self) -> Iterable[Value]:
        for graph in self.graphs:
            yield from graph.inputs
            yield from graph.initializers.values()
            for node in graph.nodes:
                yield from node.outputs

    def run(self) -> None:
        blocked = {node for graph in self.graphs for node in graph.nodes if self._is_blocked(node)}
        top = self.model.graph
        kept = self.settings.keeps_io
        names = kept if isinstance(kept, Collection) else {value.name for value in (*top.inputs, *top.outputs)} if kept else ()
        self.wide = {value for node in blocked for value in node.outputs if value in self.floats}
        self.wide |= {value for value in top.inputs if value in self.floats and value.name in names and value.constant is None}
        for graph in self.graphs[1:]:  # what a graph that is an attribute takes and gives is its node's, which stays wide
            self.wide |= {value for value in graph.inputs if value in self.floats}
        self._convert_weights(blocked)
        g = Rewriter(self.model)
        for graph in self.graphs:
            for node in list(graph.nodes):
                self._convert_node(g, node, is_blocked=node in blocked)
            for position, value in enumerate(graph.outputs):
                is_wide = graph is not top or value.name in names
                if value in self.floats and is_wide != (value in self.wide):
                    self._convert_output(graph, position, is_wide=is_wide)
        for value in top.inputs:
            if value in self.floats and value not in self.wide and isinstance(value.type, TensorType):
                value.type = TensorType(dtypes.FLOAT16, value.type.shape)
        self._infer_again()

    def _is_blocked(self, node: Node) -> bool:
        settings = self.settings
        if node.op_type in settings.blocked_operators or node.name in settings.blocked_nodes or node.subgraphs():
            return True
        found = signature(node.domain, node.op_type, node.version)
        if found is None:
            return True
        for position, value in enumerate((*node.inputs, *node.outputs)):
            is_input = position < len(node.inputs)
            number = position if is_input else position - len(node.inputs)
            if value is None or value not in self.floats or self._is_always_wide(node, number, is_input):
                continue
            formal = found.input_at(number) if is_input else found.output_at(number)
            if formal is None or "f16" not in found.allowed(formal):
                return True
        return False

    def _is_always_wide(self, node: Node, position: int, is_input: bool = True) -> bool:
        if position in self.settings.narrow_inputs.get(node.op_type, ()):
            return False
        return is_input and position in _ALWAYS_WIDE.get(node.op_type, ())

    def _convert_weights(self, blocked: set[Node]) -> None:
        for graph in self.graphs:
            for value in graph.initializers.values():
                held = value.constant
                if value not in self.floats or not isinstance(held, Tensor):
                    continue
                readers = [(node in blocked or self._is_always_wide(node, index)) for node, index in value.uses]
                if readers and all(readers) and not self.settings.converts_all_weights:
                    self.wide.add(value)
                    continue
                value.constant = tensor.from_numpy(narrow(held.numpy(), self.settings.smallest, self.settings.largest))
                value.type = TensorType(dtypes.FLOAT16, tuple(held.shape))

    def _convert_node(self, g: Rewriter, node: Node, *, is_blocked: bool) -> None:
        for index, value in enumerate(node.inputs):
            if value is None or value not in self.floats:
                continue
            wants_wide = is_blocked or self._is_always_wide(node, index)
            if wants_wide != (value in self.wide):
                to = dtypes.FLOAT32 if wants_wide else dtypes.FLOAT16
                node.set_input(index, self._cast(g, node, value, to.onnx))
        if is_blocked:
            return
        name = _TYPE_ATTRIBUTES.get(node.op_type)
        if name is not None and node.attr(name, 1 if name == "dtype" else None) == dtypes.FLOAT32.onnx:
            node.attrs[name] = make_attr(name, dtypes.FLOAT16.onnx)
        for key, attr in list(node.attrs.items()):
            if attr.kind is AttrKind.TENSOR and isinstance(attr.value, Tensor) and attr.value.dtype is dtypes.FLOAT32:
                node.attrs[key] = make_attr(key, narrow(attr.value.numpy(), self.settings.smallest, self.settings.largest))
            elif node.op_type == "Constant" and key in ("value_float", "value_floats"):
                data = narrow(np.asarray(attr.value, np.float32), self.settings.smallest, self.settings.largest)
                del node.attrs[key]
                node.attrs["value"] = make_attr("value", data)

    def _cast(self, g: Rewriter, node: Node, value: Value, to: int) -> Value:
        made = g.at(node).op("Cast", value, to=to)
        assert made.producer is not None
        made.producer.name = ""  # the node goes on under its own
        return made

    def _convert_output(self, graph: Graph, position: int, *, is_wide: bool) -> None:
        value = graph.outputs[position]
        dtype = dtypes.FLOAT32 if is_wide else dtypes.FLOAT16
        shape = value.type.shape if isinstance(value.type, TensorType) else None
        kept = Value(value.name, TensorType(dtype, shape))
        value.name = f"{value.name}_{'f16' if is_wide else 'f32'}"
        version = self.model.opset_imports.get("", 13)
        graph.append(Node("Cast", [value], [kept], [make_attr("to", dtype.onnx)], version=version))
        graph.outputs[position] = kept

    def _infer_again(self) -> None:
        """The types of all values anew, from those of the inputs and weights."""
        for graph in all_graphs(self.model):
            for node in graph.nodes:
                for value in node.outputs:
                    if isinstance(value.type, TensorType) and value.type.dtype in (dtypes.FLOAT32, dtypes.FLOAT16):
                        value.type = None
        infer_shapes(self.model)


def _is_f32(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype is dtypes.FLOAT32
