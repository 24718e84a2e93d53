"""A number that a loop counts becomes a size, where the sizes of an iteration's values depend on it.

    y = Loop(n, true, h) <body (i, c, s) => .. Slice(x: f32[N,4], 0, i + 1) ..>

    =>   y = Loop(n, true, h, <u8[0]>) <body (i, c, s, t: u8[K])
             => .. Slice(x, 0, Shape(t)[0] + 1) .., ConstantOfShape(Shape(t) + 1)>

Scripts attend over `x[:t+1]`, fill `out[t:]` or look back over a window that is shorter at the beginning. What the data say about
sizes would have to be found out in every iteration; a tensor that grows by one element in each tells the same, and loops whose
values change their sizes follow each other in native code (`runtime.growing_loop`). Runs after FormCountedGathers, to which parts
of one length are left, and before BindSizes. Refuses: sizes that depend on other data, too; they are found out all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

import numpy as np

from sardonyx.analysis.loop_body import loop_body_of
from sardonyx.analysis.shapes import ShapeReport, report_shapes
from sardonyx.analysis.values import ValueTable
from sardonyx.dtypes import INT64, UINT8
from sardonyx.ir.graph import Graph, Model, Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.ops.registry import Trait, traits
from sardonyx.passes.fold_shape_values import infer_from_inputs
from sardonyx.passes.iteration_bounds import CountedNumber, counted_numbers
from sardonyx.passes.protocol import PassResult, is_standard
from sardonyx.passes.rewriter import Rewriter, dtype_of, shape_of

# Which inputs tell the sizes of results.
_TELL_SIZES: Final[Mapping[str, tuple[int, ...]]] = {
    "ConstantOfShape": (0,), "Expand": (1,), "Pad": (1,), "Range": (0, 1), "Slice": (1, 2), "Tile": (1,), "TopK": (1,),
}  # fmt: skip
_ARITHMETIC: Final = frozenset(("Add", "Concat", "Div", "Max", "Min", "Mul", "Neg", "Sub"))
_OLDEST: Final = 11  # the version since which what tells sizes are inputs, and a Loop's values may change theirs
_DEEPEST: Final = 12  # nodes between a counted number and a size


class CountBySize:
    """Ensures: sizes that follow from the number of the iteration are known before it."""

    name: ClassVar[str] = "CountBySize"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(("Loop",))
    needs: ClassVar[frozenset[str]] = frozenset(_TELL_SIZES)

    def run(self, model: Model) -> PassResult:
        """Change all loops; what is known of sizes is found out if there is one to ask for."""
        g = Rewriter(model)
        numbers: dict[Value, CountedNumber] = {}
        for graph in g.graphs():
            for node in graph.nodes:
                if is_standard(node) and node.op_type == "Loop" and node.version >= _OLDEST:
                    numbers.update((each.value, each) for each in counted_numbers(g, node) if _can_be_size(each))
        if not numbers:
            return PassResult(False)
        report: ShapeReport | None = None
        chosen: dict[Node, dict[Value, CountedNumber]] = {}
        for graph in g.graphs():
            for node in graph.nodes:
                if not is_standard(node) or node.op_type not in _TELL_SIZES:
                    continue
                report = report or report_shapes(model)
                for value in _deciding(node):
                    counted = _counted(g, value, numbers, report.values, _DEEPEST)
                    for each in counted or ():
                        if _is_in_iteration(graph, each):
                            chosen.setdefault(each.loop, {})[each.value] = each
        for loop, found in chosen.items():
            _count(g, loop, list(found.values()))
        if chosen:
            infer_from_inputs(model)
        return PassResult(bool(chosen), (), len(chosen))


def _can_be_size(counted: CountedNumber) -> bool:
    """Whether a number is one whole number that is never negative."""
    return dtype_of(counted.value) is INT64 and shape_of(counted.value) in ((), (1,)) and counted.start >= 0


def _deciding(node: Node) -> Iterator[Value]:
    for position in _TELL_SIZES[node.op_type]:
        value = node.inputs[position] if position < len(node.inputs) else None
        if value is not None and value.constant is None:
            yield value


def _counted(
    g: Rewriter, value: Value, numbers: Mapping[Value, CountedNumber], known: ValueTable, deepest: int
) -> set[CountedNumber] | None:
    """The counted numbers that a value is computed of; None if it depends on other data, too."""
    if value in numbers:
        return {numbers[value]}
    if known.known_of(value) is not None:
        return set()
    node = value.producer
    if node is None or deepest == 0 or not is_standard(node):
        return None
    is_view = Trait.VIEW in traits(node)
    if not is_view and node.op_type not in _ARITHMETIC and not (node.op_type == "Cast" and dtype_of(value) is INT64):
        return None
    found: set[CountedNumber] = set()
    for each in node.inputs[:1] if is_view else node.inputs:
        below = None if each is None else _counted(g, each, numbers, known, deepest - 1)
        if below is None:
            return None
        found |= below
    return found


def _is_in_iteration(graph: Graph, counted: CountedNumber) -> bool:
    """Whether a graph is what the loop repeats, or a side of an If in it."""
    body = counted.loop.attr("body")
    while graph is not body:
        outer = graph.parent_node
        if outer is None or outer.op_type != "If" or outer.graph is None:
            return False
        graph = outer.graph
    return True


def _count(g: Rewriter, loop: Node, numbers: list[CountedNumber]) -> None:
    """Have a loop carry a tensor as long as the number of iterations that are over, and read counted numbers from that."""
    found = loop_body_of(loop)
    assert found is not None
    body, count = found.body, len(found.carried)
    begun, taken = g.at(loop).constant(np.zeros(0, np.uint8), "none_done"), Value(g.fresh_name("done"), TensorType(UINT8, None))
    body.inputs.append(taken)
    first = next(iter(body.nodes))
    g.at(first)
    done = g.op("Shape", taken)
    given = g.op("ConstantOfShape", g.op("Add", done, g.constant(np.ones(1, np.int64), "one")), value=np.zeros(1, np.uint8))
    for each in numbers:
        sized = done
        if each.step != 1:
            sized = g.op("Mul", sized, g.constant(np.array([each.step]), "step"))
        if each.start:
            sized = g.op("Add", sized, g.constant(np.array([each.start]), "start"))
        if shape_of(each.value) == ():
            sized = g.op("Reshape", sized, g.constant(np.zeros(0, np.int64), "scalar"))
        g.replace(each.value, sized)
    if body.stated_outputs:
        stated = list(body.stated_outputs)
        stated.insert(1 + count, given.type)
        body.stated_outputs = tuple(stated)
    body.outputs.insert(1 + count, given)
    g.outputs.add(given)
    loop.append_input(begun)
    result = Value(g.fresh_name("done"))
    loop.outputs = [*loop.outputs[:count], result, *loop.outputs[count:]]
    for index, value in enumerate(loop.outputs):
        value.producer, value.index = loop, index
