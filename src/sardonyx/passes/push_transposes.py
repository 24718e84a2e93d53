"""Move Transposes down the graph until they meet their opposites.

    y = Transpose(Relu(Transpose(Conv(x, w), nhwc)), nchw)      =>   y = Relu(Conv(x, w))

Models exported from channels-last frameworks turn the layout around every convolution. The pass follows each Transpose through
operators that work along any axes: elementwise ones, Concat, Split, Slice, Pad, Resize, reductions, Softmax, Squeeze. A value
that is the Transpose of another one which could be computed instead is *transposed*. Transposed values that depend on each other
form a region; per region the elements that Transposes move are counted as the graph is, and as it would be with Transposes only
where an operator needs the transposed value itself. A region is changed if that is less. So the pass never makes a graph worse,
and one walk finds everything. Runs after FoldConstants, which literal axes come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import Graph, Model, Node, Value
from sardonyx.ops import registry
from sardonyx.ops.registry import Trait
from sardonyx.passes.fold_pad import literal_pads
from sardonyx.passes.merge_transposes import compose, inverse, permutation
from sardonyx.passes.protocol import PassResult, is_standard
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, attr_ints, dtype_of
from sardonyx.records import dataclass

Perm: TypeAlias = tuple[int, ...]
_OPEN_SIZE: Final = 32  # what a size that is not known counts as
_LARGEST_CONSTANT: Final = 1 << 22  # bytes of an operand that is transposed ahead of time


@dataclass(frozen=True)
class _Step:
    """How a node is computed on values before their Transpose."""

    perms: tuple[Perm, ...]  # of the outputs
    inputs: dict[int, Any] = field(default_factory=dict)  # by position; other inputs are the transposed ones, or as they are
    attrs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PushTransposes:
    """Ensures: no region of the graph in which moving the Transposes would save work (by elements moved)."""

    name: ClassVar[str] = "PushTransposes"
    ort_names: ClassVar[tuple[str, ...]] = ("TransposeOptimizer",)
    roots: ClassVar[frozenset[str]] = frozenset(("Transpose",))

    def run(self, model: Model) -> PassResult:
        """Graph by graph; a value that a subgraph reads counts as needed."""
        g = Rewriter(model)
        changes = sum(_push(g, graph) for graph in g.graphs())
        return PassResult(changes > 0, (), changes)


def _push(g: Rewriter, graph: Graph) -> int:
    plan = _Plan(g, graph)
    if not plan.has_transposes:
        return 0
    regions = plan.profitable()
    return _apply(g, graph, plan, regions) if regions else 0


class _Plan:
    """What could be transposed: found by one walk that changes nothing."""

    def __init__(self, g: Rewriter, graph: Graph) -> None:
        self.perms: dict[Value, Perm] = {}
        self.steps: dict[Node, _Step] = {}
        self.needed: set[Value] = set()  # transposed values that somebody reads as they are
        self._parent: dict[Value, Value] = {}
        self._before: dict[Value, float] = {}  # elements moved by the Transposes there are, by their output
        self._walk(g, graph)

    @property
    def has_transposes(self) -> bool:
        return bool(self._before)

    def _walk(self, g: Rewriter, graph: Graph) -> None:
        for node in graph.nodes:
            perm = permutation(node)
            if perm is not None:
                source, output = node.inputs[0], node.outputs[0]
                assert source is not None
                if source in self.perms:
                    self._join(source, output)
                    perm = compose(self.perms[source], perm)
                self.perms[output] = perm
                self._before[output] = _size(output)
                continue
            transposed = [value for value in node.inputs if value in self.perms]
            if not transposed:
                continue
            step = _step(g, node, self.perms)
            if step is None:
                self.needed.update(value for value in transposed if value is not None)
                continue
            self.steps[node] = step
            for value in transposed:
                if value is not None:
                    self._join(value, node.outputs[0])
            for output, moved in zip(node.outputs, step.perms, strict=True):
                self.perms[output] = moved
                self._join(node.outputs[0], output)
        for value in self.perms:
            if g.is_output(value) or any(reader.graph is not graph for reader, _ in value.uses):
                self.needed.add(value)

    def region(self, value: Value) -> Value:
        """The value that stands for the region of a transposed value."""
        root = value
        while self._parent.get(root, root) is not root:
            root = self._parent[root]
        while value is not root:  # shorten the way for the next one
            self._parent[value], value = root, self._parent.get(value, root)
        return root

    def _join(self, a: Value, b: Value) -> None:
        first, second = self.region(a), self.region(b)
        if first is not second:
            self._parent[second] = first

    def profitable(self) -> set[Value]:
        """The regions in which fewer elements would be moved."""
        before: dict[Value, float] = {}
        after: dict[Value, float] = {}
        for value, size in self._before.items():
            root = self.region(value)
            before[root] = before.get(root, 0.0) + size
        for value in self.needed:
            if self.is_permuted(value):
                root = self.region(value)
                after[root] = after.get(root, 0.0) + _size(value)
        return {root for root, size in before.items() if after.get(root, 0.0) < size}

    def is_permuted(self, value: Value) -> bool:
        """Whether a transposed value differs from the one it is transposed from."""
        perm = self.perms[value]
        return perm != tuple(range(len(perm)))


def _size(value: Value) -> float:
    result = 1.0
    for dim in value.shape or ():
        result *= dim if isinstance(dim, int) else _OPEN_SIZE
    return max(result, 1.0)


def _apply(g: Rewriter, graph: Graph, plan: _Plan, regions: set[Value]) -> int:
    base: dict[Value, Value] = {}  # transposed value -> the one it is a Transpose of
    done: list[Node] = []
    changes = 0
    for node in list(graph.nodes):
        perm = permutation(node)
        if node not in plan.steps and (perm is None or node.outputs[0] not in plan.perms):
            continue
        if plan.region(node.outputs[0]) not in regions:
            continue
        g.at(node)
        done.append(node)
        if perm is not None:
            source = node.inputs[0]
            assert source is not None
            results = [base.get(source, source)]
        else:
            results = _transposed(g, node, plan.steps[node], base)
        for output, result in zip(node.outputs, results, strict=True):
            base[output] = result
            if output not in plan.needed:
                continue
            shown = result
            if plan.is_permuted(output):
                shown = g.op("Transpose", result, perm=plan.perms[output])
            elif not g.can_replace(output, result):
                shown = g.op("Identity", result)
            g.replace(output, shown)
            base[shown] = result  # nodes further down read it now; transposed ones look here for what is behind it
        changes += 1
    for node in reversed(done):
        g.discard(node)
    return changes


def _transposed(g: Rewriter, node: Node, step: _Step, base: dict[Value, Value]) -> list[Value]:
    """The node computed on the values before their Transposes."""
    inputs: list[Value | None] = []
    for position, value in enumerate(node.inputs):
        if position in step.inputs:
            inputs.append(g.constant(step.inputs[position], "transposed" if value is None else value.name))
        else:
            inputs.append(None if value is None else base.get(value, value))
    for position in range(len(inputs), max(step.inputs, default=-1) + 1):
        inputs.append(g.constant(step.inputs[position], "transposed") if position in step.inputs else None)
    return g.clone(node, inputs, **step.attrs)


def _step(g: Rewriter, node: Node, perms: dict[Value, Perm]) -> _Step | None:
    """How to compute a node on values before their Transposes; None if it cannot be."""
    if node.subgraphs():
        return None
    known = registry.traits(node)
    handler = _reduction if Trait.REDUCES in known else _HANDLERS.get(node.op_type)
    if handler is not None and is_standard(node):
        value = node.inputs[0] if node.inputs else None
        perm = None if value is None else perms.get(value)
        if node.op_type != "Concat" and (perm is None or any(each in perms for each in node.inputs[1:])):
            return None
        return handler(g, node, perm or (), perms)
    if node.domain == MICROSOFT and node.op_type in _POOLS:
        return _pool(node, perms)
    if node.domain == MICROSOFT and node.op_type == "QLinearConcat":
        return _concat(g, node, (), perms, slice(2, None, 3))  # each with its scale and zero point
    if Trait.ELEMENTWISE not in known:
        return None
    alone = len(node.inputs) == 1 or node.op_type.startswith("QLinear")  # no biases of the last axis
    if not is_standard(node) and not (node.domain in (MICROSOFT, "sardonyx") and alone):
        return None
    return _elementwise(g, node, perms)


def _elementwise(g: Rewriter, node: Node, perms: dict[Value, Perm]) -> _Step | None:
    found = {perms[value] for value in node.inputs if value is not None and value in perms}
    if len(found) != 1 or len(node.outputs) != 1:
        return None
    perm = next(iter(found))
    shape = node.outputs[0].shape
    if shape is None or len(shape) != len(perm):
        return None
    constants: dict[int, Any] = {}
    for position, value in enumerate(node.inputs):
        if value is None or value in perms:
            if value is not None and value.shape != shape and not _broadcasts(value.shape, shape):
                return None
            continue
        transposed = _transposed_constant(g, value, perm)
        if transposed is not None:
            constants[position] = transposed
        elif value.shape is None or any(dim != 1 for dim in value.shape) or len(value.shape) > len(perm):
            return None
    return _Step((perm,), constants)


def _quantization(g: Rewriter, node: Node, perm: Perm, perms: dict[Value, Perm]) -> _Step | None:
    """QuantizeLinear or DequantizeLinear, by one scale or by one for each slice of an axis."""
    scale = node.inputs[1]
    if scale is None or scale.shape is None or node.attr("block_size", 0) or len(scale.shape) > 1:
        return None
    if set(scale.shape) <= {1}:
        return _Step((perm,))
    axis = _axis(node.attr("axis", 1), perm)
    return None if axis is None else _Step((perm,), {}, {"axis": axis})


def _pool(node: Node, perms: dict[Value, Perm]) -> _Step | None:
    """A quantized pool of images in either order."""
    value = node.inputs[0]
    perm = None if value is None else perms.get(value)
    if perm is None or node.attr("channels_last", 0) or perm != (0, len(perm) - 1, *range(1, len(perm) - 1)):
        return None
    return _Step((perm,), {}, {"channels_last": 1})


def _broadcasts(shape: Sequence[Dim] | None, target: Sequence[Dim]) -> bool:
    return shape is not None and len(shape) == len(target)


def _transposed_constant(g: Rewriter, value: Value, perm: Perm) -> Any:
    """A constant operand as it lies before the Transpose; None if it is no constant, or needs no turning."""
    held = g.constant_of(value)
    if held is None or held.size <= 1 or held.nbytes > _LARGEST_CONSTANT or len(held.shape) > len(perm):
        return None
    data = g.array(value)
    if data is None:
        return None
    return data.reshape((1,) * (len(perm) - data.ndim) + data.shape).transpose(inverse(perm))


def _axis(axis: int, perm: Perm) -> int | None:
    """Where an axis lies before the Transpose."""
    return perm[axis] if -len(perm) <= axis < len(perm) else None


def _concat(g: Rewriter, node: Node, perm: Perm, perms: dict[Value, Perm], parts: slice = slice(None)) -> _Step | None:
    """Parts that are joined, all transposed alike; `parts` tells which of the inputs they are."""
    found = {perms[value] for value in node.inputs if value is not None and value in perms}
    if len(found) != 1:
        return None
    perm = next(iter(found))
    axis = _axis(node.attr("axis", 1), perm)
    constants: dict[int, Any] = {}
    for position in range(len(node.inputs))[parts]:
        value = node.inputs[position]
        if value is None:
            return None
        if value not in perms:
            transposed = _transposed_constant(g, value, perm)
            if transposed is None or len(value.shape or ()) != len(perm):
                return None
            constants[position] = transposed
    return None if axis is None else _Step((perm,), constants, {"axis": axis})


def _along_axis(default: int, since: int = 1) -> Callable[..., _Step | None]:
    """An operator that works along one axis and keeps the shape, or (Split) cuts it."""

    def step(g: Rewriter, node: Node, perm: Perm, perms: dict[Value, Perm]) -> _Step | None:
        axis = _axis(node.attr("axis", default), perm)
        if axis is None or node.version < since:
            return None
        return _Step((perm,) * len(node.outputs), {}, {"axis": axis})

    return step


def _without(perm: Perm, axes: Sequence[int]) -> Perm:
    """The permutation of what is left when axes (counted after the Transpose) are dropped."""
    dropped = {perm[axis] for axis in axes}
    left = [axis for axis in range(len(perm)) if axis not in dropped]
    return tuple(left.index(perm[axis]) for axis in range(len(perm)) if perm[axis] not in dropped)


def _literal_axes(g: Rewriter, node: Node, rank: int) -> tuple[tuple[int, ...], bool] | None:
    """The axes of a reduction or Squeeze, counted from 0, and whether they are an input."""
    as_input = len(node.inputs) > 1 and node.inputs[1] is not None
    axes = g.ints(node.inputs[1]) if as_input else attr_ints(node, "axes")
    if not axes or any(not -rank <= axis < rank for axis in axes):
        return None
    counted = tuple(axis % rank for axis in axes)
    return (counted, as_input) if len(set(counted)) == len(counted) else None


def _reduction(g: Rewriter, node: Node, perm: Perm, perms: dict[Value, Perm]) -> _Step | None:
    found = _literal_axes(g, node, len(perm))
    if found is None:
        return None
    axes, as_input = found
    keeps = node.op_type != "Squeeze" and bool(node.attr("keepdims", 1))
    moved = [perm[axis] for axis in axes]
    result = perm if keeps else _without(perm, axes)
    if as_input:
        return _Step((result,), {1: np.array(moved, np.int64)})
    return _Step((result,), {}, {"axes": moved})


def _arg(g: Rewriter, node: Node, perm: Perm, perms: dict[Value, Perm]) -> _Step | None:
    old_axis = node.attr("axis", 0)
    axis = _axis(old_axis, perm)
    if axis is None:
        return None
    keeps = bool(node.attr("keepdims", 1))
    return _Step((perm if keeps else _without(perm, [old_axis % len(perm)]),), {}, {"axis": axis})


def _slice(g: Rewriter, node: Node, perm: Perm, perms: dict[Value, Perm]) -> _Step | None:
    if node.version < 10 or len(node.inputs) < 3:
        return None
    starts = node.inputs[1]
    given = node.inputs[3] if len(node.inputs) > 3 else None
    count = starts.shape[0] if starts is not None and starts.shape and len(starts.shape) == 1 else None
    axes = g.ints(given) if given is not None else tuple(range(count)) if isinstance(count, int) else None
    if axes is None or any(not -len(perm) <= axis < len(perm) for axis in axes):
        return None
    kind = dtype_of(starts)
    if kind is None:
        return None
    return _Step((perm,), {3: np.array([perm[axis] for axis in axes], kind.numpy)})


def _pad(g: Rewriter, node: Node, perm: Perm, perms: dict[Value, Perm]) -> _Step | None:
    if node.version < 11 or (len(node.inputs) > 3 and node.inputs[3] is not None):
        return None
    pads = literal_pads(g, node, len(perm))
    if pads is None:
        return None
    back = inverse(perm)
    return _Step((perm,), {1: np.array([side[axis] for side in pads for axis in back], np.int64)})


def _resize(g: Rewriter, node: Node, perm: Perm, perms: dict[Value, Perm]) -> _Step | None:
    if node.version < 11 or attr_ints(node, "axes") is not None:
        return None
    roi = node.inputs[1] if len(node.inputs) > 1 else None
    if roi is not None and (roi.constant is None or 0 not in (roi.shape or ())):
        return None
    back = list(inverse(perm))
    constants: dict[int, Any] = {}
    for position in (2, 3):
        value = node.inputs[position] if len(node.inputs) > position else None
        data = g.array(value)
        if value is None or (data is not None and data.size == 0):
            continue
        if data is None or data.shape != (len(perm),):
            return None
        constants[position] = data[back]
    return _Step((perm,), constants)


_HANDLERS: Final[dict[str, Callable[..., _Step | None]]] = {
    "Concat": _concat,
    "Split": _along_axis(0),
    "Softmax": _along_axis(-1, 13),
    "LogSoftmax": _along_axis(-1, 13),
    "Slice": _slice,
    "Pad": _pad,
    "Resize": _resize,
    "Squeeze": _reduction,
    "ArgMax": _arg,
    "ArgMin": _arg,
    "QuantizeLinear": _quantization,
    "DequantizeLinear": _quantization,
}
_POOLS: Final = ("QLinearGlobalAveragePool", "QLinearAveragePool")
