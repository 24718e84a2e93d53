"""Texts become numbers where they enter, so that native code does all the rest.

    ai.onnx.ml::OneHotEncoder(Gather(x, 0)) {cats_strings}    =>   OneHotEncoder(Gather(TextPositions(x), 0)) {cats_int64s}
    ai.onnx.ml::OneHotEncoder(x) {cats_strings, zeros = 0}    =>   KnownOneHot(TextPositions(x), 0, 1, ...)
    ai.onnx.ml::LabelEncoder(x) {keys_strings, values_floats} =>   Gather(values and default, TextPositions(x))
    ai.onnx.ml::CategoryMapper(x) {cats_strings}              =>   Gather(numbers and default, TextPositions(x))

`TextPositions` looks each text up in a list of keys: -1 where it is none of them, which is the last entry of a table. Lookups
move up through whatever only moves elements; several lookups in one value become one, in all their keys, and each takes its own
positions from a table. Runs after the portable passes, before ExpandFeatures. Refuses: categories that stand twice, keys that
do not fit the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import ONNX_DOMAIN, Graph, Model, Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.ops import registry
from sardonyx.ops.definition import Trait
from sardonyx.ops.ml.ml_preprocess import attribute_array
from sardonyx.passes.classical_rule import ML, ScoreRewriter
from sardonyx.passes.protocol import PassResult, Reject, exchange_node
from sardonyx.passes.rewriter import all_graphs, dtype_of
from sardonyx.records import dataclass

Keys: TypeAlias = tuple[str, ...]

_DOMAIN: Final = "sardonyx"
_LOOKUP: Final = "TextPositions"


@dataclass(frozen=True)
class EncodeTexts:
    """Ensures: encoders of texts read positions, which are looked up as far up as elements are only moved."""

    name: ClassVar[str] = "EncodeTexts"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(("OneHotEncoder", "LabelEncoder", "CategoryMapper"))

    def run(self, model: Model) -> PassResult:
        """Encode, move up, merge; in subgraphs too."""
        graphs = all_graphs(model)
        if not any(node.op_type in self.roots for graph in graphs for node in graph.nodes):
            return PassResult(False)
        g = ScoreRewriter(model, graphs)
        reasons: dict[str, None] = {}
        changes = 0
        for graph in g.graphs():
            changes += self._encode(g, graph, reasons)
            while self._hoist(g, graph):
                pass
            self._merge(g, graph)
        return PassResult(changes > 0, tuple(reasons), changes)

    def _encode(self, g: ScoreRewriter, graph: Graph, reasons: dict[str, None]) -> int:
        changes = 0
        for node in graph.nodes:
            x = node.inputs[0] if node.op_type in self.roots and node.domain == ML else None
            if x is None or dtype_of(x) is not dtypes.STRING or x.constant is not None:
                continue
            g.at(node)
            try:
                made = _encoded(g, node, x, attribute_values(node))
            except ValueError as error:  # the operator's definition says the same, when it is asked to compute something
                made = Reject(str(error))
            changes += exchange_node(g, node, made, reasons)
        return changes

    def _hoist(self, g: ScoreRewriter, graph: Graph) -> bool:
        """Lookups in moved elements become moved results of lookups; whether there was any."""
        found = False
        for node in _lookups(graph):
            x = node.inputs[0]
            source = None if x is None else x.producer
            if source is None or source.graph is not graph or len(source.outputs) != 1:
                continue
            g.at(source)
            keys = _keys(node)
            if source.op_type == "Concat" and source.domain == ONNX_DOMAIN:
                moved = g.clone(source, [None if each is None else _looked_up(g, each, keys) for each in source.inputs])[0]
            elif _selects(source) and source.inputs[0] is not None:
                moved = g.clone(source, [_looked_up(g, source.inputs[0], keys), *source.inputs[1:]])[0]
            else:
                continue
            g.replace(node.outputs[0], moved)
            g.discard(node)
            found = True
        return found

    def _merge(self, g: ScoreRewriter, graph: Graph) -> None:
        """One lookup for each value."""
        by_value: dict[Value, list[Node]] = {}
        for node in _lookups(graph):
            assert node.inputs[0] is not None
            by_value.setdefault(node.inputs[0], []).append(node)
        for value, nodes in by_value.items():
            if len(nodes) < 2:
                continue
            union = _unique(key for node in nodes for key in _keys(node))
            g.at(nodes[0])
            positions = _looked_up(g, value, union)
            for node in nodes:
                own = {key: number for number, key in enumerate(_keys(node))}
                g.at(node)
                table = np.array([*(own.get(key, -1) for key in union), -1], np.int64)
                same = len(own) == len(union)
                g.replace(node.outputs[0], positions if same else g.op("Gather", g.constant(table, "table"), positions, axis=0))
                g.discard(node)


def _lookups(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op_type == _LOOKUP and node.domain == _DOMAIN]


def _keys(node: Node) -> Keys:
    return tuple(attribute_values(node)["keys"])


def _unique(keys: Iterable[str]) -> Keys:
    return tuple(dict.fromkeys(keys))


def _looked_up(g: ScoreRewriter, x: Value, keys: Keys) -> Value:
    return g.op(_LOOKUP, x, domain=_DOMAIN, keys=keys)


def _selects(node: Node) -> bool:
    if node.domain == ML:
        return node.op_type == "ArrayFeatureExtractor"
    selects = node.op_type in ("Gather", "Identity") or Trait.SELECTS in registry.traits(node)
    return node.domain == ONNX_DOMAIN and selects


def _encoded(g: ScoreRewriter, node: Node, x: Value, attrs: dict[str, Any]) -> Value | Reject:
    """What takes the place of an encoder's result."""
    if node.op_type == "OneHotEncoder":
        categories = attrs.get("cats_strings") or ()
        if not categories or len(set(categories)) < len(categories):
            return Reject("no categories, or some twice")
        positions = _looked_up(g, x, tuple(categories))
        if not attrs["zeros"]:
            return g.op("KnownOneHot", positions, g.int64s(*range(len(categories))), domain=_DOMAIN, texts=1)
        return g.op("OneHotEncoder", positions, domain=ML, cats_int64s=tuple(range(len(categories))), zeros=1)
    keys, values, default = _table(node, attrs)
    if not len(keys) or len(keys) != len(values):
        return Reject("no keys, or keys that do not fit the values")
    numbers: dict[str, int] = {}  # the first of equal keys counts
    for number, key in enumerate(keys):
        numbers.setdefault(key, number)
    chosen = [*(values[number] for number in numbers.values()), default]
    positions = _looked_up(g, x, tuple(numbers))
    if values.dtype == object:
        return g.op("ClassLabels", positions, domain=_DOMAIN, labels=tuple(chosen))
    return g.op("Gather", g.constant(np.array(chosen, values.dtype), "table"), positions, axis=0)


def _table(node: Node, attrs: dict[str, Any]) -> tuple[Sequence[str], Array, Any]:
    """The keys of an encoder, the value of each, and the value of all other texts."""
    if node.op_type == "CategoryMapper":
        return attrs.get("cats_strings") or (), np.array(attrs.get("cats_int64s") or (), np.int64), attrs["default_int64"]
    if node.version < 2:
        classes = attrs.get("classes_strings") or ()
        return classes, np.arange(len(classes), dtype=np.int64), attrs["default_int64"]

    def given(what: str) -> Array:
        floats, integers, strings, tensor = (attrs.get(f"{what}_{kind}") for kind in ("floats", "int64s", "strings", "tensor"))
        return attribute_array(floats, integers, strings, tensor, what)

    keys, values = given("keys"), given("values")
    if keys.dtype != object:
        raise ValueError("the input has texts, but the keys are numbers")
    default = attrs.get("default_tensor")
    if default is not None:
        return keys.tolist(), values, default.reshape(-1)[0]
    kind = "string" if values.dtype == object else "float" if values.dtype.kind == "f" else "int64"
    return keys.tolist(), values, attrs[f"default_{kind}"]
