"""Compute ahead of time what depends on constants only.

    t = Transpose(w)                     =>   const t
    c = Constant() {value = ...}         =>   const c
    s = Shape(x: f32[2,3])               =>   const s = [2, 3]
    y = If(true) {then_branch = ...}     =>   the nodes of the branch

Uses the operators' `eval`. Refuses: operators that are random or run subgraphs (an If whose condition is known is replaced by its
branch), dequantised weights (kernels want them packed), results above `limit` bytes, and results that are both large and larger
than what they are made of: they would grow the model. Those that repeat values (Expand, ConstantOfShape) are large from 1 MB on,
others, which cost time in every run (filters that a model makes of their formula), from 16 MB on.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir import tensor
from sardonyx.ir.graph import ONNX_DOMAIN, Graph, Model, Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import TensorType
from sardonyx.ops import registry
from sardonyx.ops.registry import EvalContext, OpDef, Trait
from sardonyx.passes.protocol import PassResult, Reject
from sardonyx.passes.rewriter import MICROSOFT, Rewriter
from sardonyx.records import dataclass

LIMIT: Final = 1 << 30  # bytes of one result, as in ONNX Runtime
_SMALL: Final = 1 << 20  # bytes up to which a result may be larger than what it is made of
_COMPUTED: Final = 16 << 20  # the same for results that take more than copying, as filters made of their formula
_REPEATS: Final = frozenset({"ConstantOfShape", "Expand", "Tile"})  # cost next to nothing in a run, or are views
_LARGE: Final = 1 << 12  # bytes from which on it pays to share what kernels make of a result
_GROWTH: Final = 4  # times the constants it reads: a Cast of bytes to float32
_TOTAL: Final = 256 << 20  # bytes by which a model may grow in all


@dataclass(frozen=True)
class FoldConstants:
    """Replace nodes of constants by their results. `limit` is in bytes; 0 means no limit on one result."""

    name: ClassVar[str] = "FoldConstants"
    ort_names: ClassVar[tuple[str, ...]] = ("ConstantFolding", "UnsqueezeElimination")
    limit: int = LIMIT

    def run(self, model: Model) -> PassResult:
        """Fold in all graphs, outer ones first: subgraphs see what was folded around them."""
        g = Rewriter(model)
        changes, budget = 0, _TOTAL
        reasons: list[str] = []
        for graph in g.graphs():
            for node in graph.nodes:
                if node.op_type == "If" and node.domain == ONNX_DOMAIN and inline_branch(g.at(node), node):
                    changes += 1
                    continue
                results = self._results(g, node, budget)
                if isinstance(results, Reject):
                    reasons.append(f"{node.label}: {results.reason}")
                elif results is not None:
                    budget -= _replace(g.at(node), node, results)
                    changes += 1
        return PassResult(changes > 0, tuple(reasons), changes)

    def _results(self, g: Rewriter, node: Node, budget: int) -> list[Array | None] | Reject | None:
        """The outputs of a node as arrays; None if it depends on more than constants."""
        if node.op_type == "Shape" and node.domain == ONNX_DOMAIN:
            return _static_shape(node)
        held = [g.constant_of(value) for value in node.inputs]
        if any(value is not None and found is None for value, found in zip(node.inputs, held, strict=True)):
            return None
        definition = _foldable(node)
        if definition is None:
            return None
        if isinstance(definition, Reject):
            return definition
        if node.op_type in ("Identity", "Constant") and g.is_output(node.outputs[0]):
            return None  # this is how a graph gives out a constant
        read = sum(0 if found is None else found.nbytes for found in held)
        size = _result_bytes(node, read)
        if size is None:
            return Reject("the size of the result is not known")
        if self.limit and size > self.limit:
            return Reject(f"the result has {size:,} bytes, the limit is {self.limit:,}")
        if size > max(_SMALL if node.op_type in _REPEATS else _COMPUTED, _GROWTH * read):
            return Reject(f"the result has {size:,} bytes, much more than the {read:,} it is made of")
        if size - read > budget:
            return Reject(f"the model has grown by folding already, the result would add {size - read:,} bytes")
        return _evaluate(g, node, definition)


def _is_needed(g: Rewriter, value: Value) -> bool:
    return bool(value.uses) or g.is_output(value)


def _static_shape(node: Node) -> list[Array | None] | None:
    value = node.inputs[0]
    shape = None if value is None else value.shape
    if shape is None:
        return None
    part = shape[slice(node.attr("start", 0), node.attr("end"))]
    sizes = [dim for dim in part if isinstance(dim, int)]
    return [np.array(sizes, np.int64)] if len(sizes) == len(part) else None


def _foldable(node: Node) -> OpDef | Reject | None:
    definition = registry.lookup(node.domain, node.op_type, node.version)
    if definition is None or definition.traits & (Trait.RANDOM | Trait.CONTROL_FLOW) or node.subgraphs():
        return None
    if node.domain not in (ONNX_DOMAIN, MICROSOFT) or not node.outputs:
        return None
    if Trait.WIDENS in definition.traits:
        return Reject("quantised constants stay packed")
    if node.op_type == "Dropout" and len(node.inputs) > 2:
        return None
    if node.op_type == "Constant" and node.attr("sparse_value") is not None:
        return None
    return definition


def _result_bytes(node: Node, read: int) -> int | None:
    """How large the results are, known before they are computed; None if that is not known."""
    if node.op_type == "Constant":
        return 0  # the data exists already
    total = 0
    for value in node.outputs:
        if not value.name and not value.uses:
            continue
        if Trait.DATA_SIZED in registry.traits(node):
            total += 64 * read  # at most: eight bytes of index for each element and each of eight dimensions
            continue
        if not isinstance(value.type, TensorType) or value.type.shape is None:
            return None
        count = 1
        for dim in value.type.shape:
            if not isinstance(dim, int):
                return None
            count *= dim
        total += count * max(value.type.dtype.numpy.itemsize, 1)
    return total


def _evaluate(g: Rewriter, node: Node, definition: OpDef) -> list[Array | None] | Reject | None:
    inputs = [None if value is None else g.array(value) for value in node.inputs]
    if any(value is not None and data is None for value, data in zip(node.inputs, inputs, strict=True)):
        return Reject("the data of an input cannot be read")
    context = EvalContext(node.version, tuple(bool(value.name) for value in node.outputs), node.label)
    try:
        attrs = attribute_values(node)
        taken = {name: attrs.get(name) for name in definition.attr_names}
        with np.errstate(all="ignore"):
            results = registry.call(definition, inputs, taken, context)
    except Exception as error:  # whatever is wrong with the data shows when the node runs, with its name
        return Reject(f"computing it fails: {error}")
    arrays: list[Array | None] = []
    for position, value in enumerate(node.outputs):
        result = results[position] if position < len(results) else None
        if _is_needed(g, value) and not isinstance(result, np.ndarray):
            return None  # a sequence, a map, or nothing
        arrays.append(result if isinstance(result, np.ndarray) else None)
    return arrays


def _replace(g: Rewriter, node: Node, results: list[Array | None]) -> int:
    """Constants take the place of a node's outputs; the bytes they added."""
    added = 0
    for value, data in zip(node.outputs, results, strict=True):
        if data is None or not _is_needed(g, value):
            continue
        # A result may be a view of a large constant, or of data the file owns: both are fine, it is never written to.
        held = tensor.from_numpy(data, origin=_origin(g, node, value, data))
        if held.dtype is not dtypes.STRING:
            added += held.nbytes
        g.replace(value, g.constant(held, value.name or node.op_type))
    g.discard(node)
    return added


def _origin(g: Rewriter, node: Node, value: Value, data: Array) -> str:
    """What a large result was computed from; "" if nobody is going to ask, or its attributes are more than plain numbers."""
    if data.nbytes < _LARGE:
        return ""
    attrs = sorted((name, attr.value) for name, attr in node.attrs.items())
    if not all(_is_plain(each) for _, each in attrs):
        return ""
    operator = (node.domain, node.op_type, node.version, node.outputs.index(value), attrs)
    return tensor.origin_of("fold", [g.constant_of(each) for each in node.inputs], operator)


def _is_plain(attribute: object) -> bool:
    if isinstance(attribute, (list, tuple)):
        return all(_is_plain(each) for each in attribute)
    return attribute is None or isinstance(attribute, (bool, int, float, str, bytes))


def inline_branch(g: Rewriter, node: Node) -> bool:
    """Put the nodes of the branch that is taken in the place of an If whose condition is known."""
    condition = g.number(node.inputs[0])
    if condition is None:
        return False
    branch = node.attr("then_branch" if condition else "else_branch")
    if not isinstance(branch, Graph) or len(branch.outputs) != len(node.outputs):
        return False
    graph = g.graph
    for value in list(branch.initializers.values()):
        value.name = g.fresh_name(value.name)
        graph.initializers[value.name] = value
    branch.initializers.clear()
    for inner in list(branch.nodes):
        branch.detach(inner)
        for value in inner.outputs:
            if value.name:
                value.name = g.fresh_name(value.name)
        graph.insert_before(node, inner)
    results = list(branch.outputs)
    branch.outputs.clear()
    g.refresh()
    for output, result in zip(node.outputs, results, strict=True):
        g.replace(output, result)
    g.discard(node)
    return True
