"""Loops that reduce one bag of rows in every iteration become one operator that reduces all of them.

    y = Loop(n, true) <body (i, c) => (c, ReduceSum(Gather(table, Slice(x, starts[i], ends[i]))) {axes = 0, keepdims = 0})>

    =>   y = sardonyx::EmbeddingBag(table, starts, ends, x) {mode = "sum"}

PyTorch's exporter that traces writes `torch.nn.EmbeddingBag` like that; the weights of elements, if there are any, are another
slice, which the rows are multiplied with. The one built on Dynamo gathers all rows first, appends the result of a bag to a list,
and has Ifs for bags without rows and for the last one:

    s = Loop(, Less(0, n), 0, SequenceEmpty()) <body (_, _, i, q) => (Less(i + 1, n), i + 1, SequenceInsert(q, bag(i)))>
    y = ConcatFromSequence(s) {axis = 0}

A loop that slices by data goes through Python in every iteration. Refuses: loops that carry anything, may end early, or do not
have an iteration for each bag; types other than float32. A list of no bags, which cannot be joined, becomes one without rows.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import ONNX_DOMAIN, Graph, Node, Value
from sardonyx.passes.form_scan_outputs import is_always_true
from sardonyx.passes.protocol import Reject
from sardonyx.passes.rewriter import Rewriter, dtype_of, shape_of
from sardonyx.passes.shaping_rule import ShapingRule
from sardonyx.records import dataclass

_DOMAIN: Final = "sardonyx"
_MODES: Final = {"ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max"}
_INDEX_TYPES: Final = (dtypes.INT32, dtypes.INT64)
_END: Final = 1 << 62  # behind every axis


@dataclass(frozen=True)
class Bags:
    """What the iterations of a loop reduce: elements `starts[i]` to `ends[i]`."""

    mode: str
    table: Value
    starts: Value
    ends: Value
    indices: Value | None = None
    weights: Value | None = None
    equal_is_zero: bool = False  # a bag that ends where it begins is zeros


class _BagRule(ShapingRule[Bags]):
    """What both forms of loops have in common."""

    def check(self, g: Rewriter, found: Bags) -> Reject | None:
        """Whether types and ranks are those that the operator takes."""
        vectors = [value for value in (found.starts, found.ends, found.indices, found.weights) if value is not None]
        if any(dtype_of(value) is not dtypes.FLOAT32 for value in (found.table, found.weights) if value is not None):
            return Reject("bags of a type other than float32")
        if any(dtype_of(value) is not dtypes.INT64 for value in (found.starts, found.ends)):
            return Reject("bounds that are not int64")
        if found.indices is not None and dtype_of(found.indices) not in _INDEX_TYPES:
            return Reject("indices of no type of indices")
        if not shape_of(found.table) or any(len(shape_of(value) or ()) != 1 for value in vectors):
            return Reject("a table, bounds or indices of another rank")
        return None

    def rewrite(self, g: Rewriter, found: Bags, facts: None) -> None:
        starts, ends = found.starts, found.ends
        if starts is ends:  # bag i ends where the next one begins
            ends = _part(g, starts, 1, _END)
        if shape_of(starts) != shape_of(ends):
            starts = _part(g, starts, 0, -1)
        inputs = [found.table, starts, ends, found.indices, found.weights]
        while inputs[-1] is None:
            inputs.pop()
        made = g.op("EmbeddingBag", *inputs, domain=_DOMAIN, mode=found.mode, equal_is_zero=int(found.equal_is_zero))
        g.replace(g.anchor.outputs[0], made)


def _part(g: Rewriter, vector: Value, begin: int, end: int) -> Value:
    return g.op("Slice", vector, *(g.constant(np.array([number], np.int64), "bound") for number in (begin, end)))


@dataclass(frozen=True)
class FormEmbeddingBags(_BagRule):
    """Ensures: no loop with an iteration for each bag stacks nothing but reductions of slices of rows."""

    name: ClassVar[str] = "FormEmbeddingBags"
    roots: ClassVar[frozenset[str]] = frozenset(("Loop",))

    def match(self, g: Rewriter, node: Node) -> Bags | Reject | None:
        body = node.attr("body")
        if not isinstance(body, Graph) or len(node.inputs) > 2 or len(body.outputs) != 2 or len(node.outputs) != 1:
            return None
        reduce = _producer(body.outputs[1], *_MODES)
        if reduce is None or reduce.graph is not body or not _reduces_rows(g, reduce, keepdims=0):
            return None
        factors = _factors(g, reduce.inputs[0])
        gather = _producer(factors[0], "Gather")
        if gather is None or gather.attr("axis", 0) != 0:
            return None
        table, chosen = gather.inputs
        parts = [_slice(g, value) for value in (chosen, *factors[1:])]
        bounds = [_bounds(g, part, body.inputs[0]) for part in parts]
        first = bounds[0]
        if first is None or any(found != first for found in bounds) or table is None:
            return None
        (starts, ends), sources = first, [None if part is None else part.inputs[0] for part in parts]
        if any(value is None or _is_inside(value, body) for value in (table, starts, ends, *sources)):
            return Reject("a bag of what an iteration computes")
        if not is_always_true(g, (*node.inputs, None)[1]) or not is_always_true(g, body.outputs[0], body.inputs[1]):
            return Reject("the loop may end early")
        trips, lengths = shape_of(node.outputs[0]), [shape_of(value) for value in (starts, ends)]
        if not trips or any(not length for length in lengths) or lengths[1] != trips[:1]:
            return Reject("the number of iterations is not the number of bags")
        assert lengths[0] is not None
        if lengths[0] not in (trips[:1], (trips[0] + 1,)):
            return Reject("more beginnings than bags")
        indices, weights = (*sources, None)[:2]
        return Bags(_MODES[reduce.op_type], table, starts, ends, indices, weights)


@dataclass(frozen=True)
class JoinEmbeddingBags(_BagRule):
    """Ensures: no loop that counts up to the number of bags appends nothing but reductions of slices of rows to a list."""

    name: ClassVar[str] = "JoinEmbeddingBags"
    roots: ClassVar[frozenset[str]] = frozenset(("ConcatFromSequence",))

    def match(self, g: Rewriter, node: Node) -> Bags | Reject | None:
        loop = _producer(node.inputs[0], "Loop")
        body = None if loop is None else loop.attr("body")
        if loop is None or not isinstance(body, Graph) or node.attr("axis", 0) != 0 or node.attr("new_axis", 0):
            return None
        if len(loop.inputs) != 4 or loop.inputs[0] is not None or len(body.outputs) != 3:
            return None
        # The number and the list are carried in either order.
        counter, list_ = (0, 1) if _producer(loop.inputs[3], "SequenceEmpty") is not None else (1, 0)
        if _producer(loop.inputs[2 + list_], "SequenceEmpty") is None or loop.outputs[counter].uses:
            return None
        number, insert = body.inputs[2 + counter], _producer(body.outputs[1 + list_], "SequenceInsert")
        count = _counted_to(g, loop, body, counter)
        if insert is None or insert.graph is not body or insert.inputs[0] is not body.inputs[2 + list_] or count is None:
            return None
        if len(insert.inputs) > 2 and insert.inputs[2] is not None:
            return None
        if not g.is_private(loop.outputs[list_]):
            return None
        return self._bags(g, insert.inputs[1], number, count, body)

    def _bags(self, g: Rewriter, element: Value | None, number: Value, count: Value, body: Graph) -> Bags | Reject | None:
        """What iteration `number` of `count` appends to the list."""
        choice = _producer(element, "If")
        equal = None if choice is None else _producer(choice.inputs[0], "Equal")
        if choice is None or equal is None:
            return None
        zeros, rows = _result(choice, "then_branch"), _result(choice, "else_branch")
        nothing = g.array(_plain(zeros))
        if nothing is None or rows is None or nothing.any() or nothing.shape[:1] != (1,):
            return None
        start, end = equal.inputs
        first, second = (_row_of(g, bound, number) for bound in (start, end))
        if first is None or second is None or first[0] is not second[0] or (first[1], second[1]) != (0, 1):
            return None
        starts = first[0]
        reduce = _mean_of_all(g, rows, number, count, start, starts) or _producer(rows, *_MODES)
        if reduce is None or not _reduces_rows(g, reduce, keepdims=1):
            return None
        part = _slice(g, reduce.inputs[0])
        if part is None or part.inputs[1] is not start or part.inputs[2] is not end:
            return None
        table, sizes, held = part.inputs[0], shape_of(part.inputs[0]), shape_of(starts)
        if table is None or _is_inside(table, body) or _is_inside(starts, body):
            return Reject("a bag of what an iteration computes")
        if not sizes or nothing.shape[1:] != sizes[1:]:
            return Reject("bags without rows are not as wide as the others")
        bags = _size(g, count)
        if bags is None or held != (bags + 1,):
            return Reject("the number of iterations is not the number of bags")
        return Bags(_MODES[reduce.op_type], table, starts, starts, equal_is_zero=True)


def _producer(value: Value | None, *operators: str) -> Node | None:
    """The node behind a value, if it is one of these operators."""
    made = _plain(value)
    node = None if made is None else made.producer
    return node if node is not None and node.domain == ONNX_DOMAIN and node.op_type in operators else None


def _plain(value: Value | None) -> Value | None:
    """The value that Identities hand on: outputs of bodies often are such."""
    while value is not None and value.producer is not None:
        node = value.producer
        if node.domain != ONNX_DOMAIN or node.op_type != "Identity":
            break
        value = node.inputs[0]
    return value


def _is_inside(value: Value, body: Graph) -> bool:
    """Whether a value is one of the body, or of a body in it."""
    graph = None if value.producer is None else value.producer.graph
    while graph is not None and graph is not body:
        graph = None if graph.parent_node is None else graph.parent_node.graph
    return graph is body or value in body.inputs or body.initializers.get(value.name) is value


def _reduces_rows(g: Rewriter, node: Node, *, keepdims: int) -> bool:
    """Whether a reduction is along the first axis alone."""
    axes = node.attr("axes") if len(node.inputs) < 2 else g.ints(node.inputs[1])
    return axes is not None and tuple(axes) == (0,) and node.attr("keepdims", 1) == keepdims


def _factors(g: Rewriter, value: Value | None) -> list[Value | None]:
    """The rows of a bag and, if they are weighted, what weighs them: a vector, one for each row."""
    node = _producer(value, "Mul")
    if node is None:
        return [value]
    for rows, weights in (node.inputs, node.inputs[::-1]):
        column = _producer(weights, "Unsqueeze")
        if column is not None and len(shape_of(rows) or ()) == 2 and len(shape_of(column.inputs[0]) or ()) == 1:
            axes = column.attr("axes") if len(column.inputs) < 2 else g.ints(column.inputs[1])
            if axes is not None and tuple(axes) == (1,):
                return [rows, column.inputs[0]]
    return [None]


def _slice(g: Rewriter, value: Value | None) -> Node | None:
    """A Slice of consecutive elements along the first axis."""
    node = _producer(value, "Slice")
    if node is None or len(node.inputs) < 3 or node.attr("starts") is not None:
        return None
    axes, steps = (*node.inputs[3:], None, None)[:2]
    if axes is not None and g.ints(axes) != (0,):
        return None
    return node if steps is None or g.ints(steps) == (1,) else None


def _bounds(g: Rewriter, part: Node | None, number: Value) -> tuple[Value, Value] | None:
    """The vectors whose elements of this number are the bounds of a slice."""
    found = [None if part is None else _element_of(g, bound, number) for bound in (() if part is None else part.inputs[1:3])]
    return (found[0], found[1]) if len(found) == 2 and found[0] is not None and found[1] is not None else None


def _element_of(g: Rewriter, value: Value | None, number: Value) -> Value | None:
    """The vector of which a value is the element of this number."""
    node = _producer(value, "Unsqueeze", "Reshape")
    gather = _producer(value if node is None else node.inputs[0], "Gather")
    if gather is None or gather.inputs[1] is not number or gather.attr("axis", 0) != 0:
        return None
    return gather.inputs[0]


def _offset(g: Rewriter, value: Value | None, number: Value) -> int | None:
    """How much more than the iteration's number a value is, if it is made of it."""
    if value is number:
        return 0
    node = _producer(value, "Reshape", "Unsqueeze", "Add")
    if node is None:
        return None
    if node.op_type != "Add":
        return _offset(g, node.inputs[0], number)
    for counted, constant in (node.inputs, node.inputs[::-1]):
        before, more = _offset(g, counted, number), g.number(constant)
        if before is not None and more is not None:
            return before + int(more)
    return None


def _row_of(g: Rewriter, value: Value | None, number: Value) -> tuple[Value, int] | None:
    """The vector of which a value is one element, and how far that is from the iteration's number."""
    part = _slice(g, value)
    if part is None or part.inputs[0] is None:
        return None
    begin, end = (_offset(g, bound, number) for bound in part.inputs[1:3])
    return (part.inputs[0], begin) if begin is not None and end == begin + 1 else None


def _counted_to(g: Rewriter, loop: Node, body: Graph, at: int) -> Value | None:
    """The number of iterations of a loop that carries a number from 0 on, `at` this position, while it is less than that."""
    first, following = _producer(loop.inputs[1], "Less"), _producer(body.outputs[0], "Less")
    if following is None or g.number(loop.inputs[2 + at]) != 0:
        return None
    if following.inputs[0] is not body.outputs[1 + at] or _offset(g, body.outputs[1 + at], body.inputs[2 + at]) != 1:
        return None
    count = following.inputs[1]
    if first is None:  # what was compared with a number that is known is known, too
        begins = g.array(loop.inputs[1])
        return count if begins is not None and begins.all() and (g.number(count) or 0) >= 1 else None
    return count if first.inputs[1] is count and g.number(first.inputs[0]) == 0 else None


def _size(g: Rewriter, value: Value) -> Dim | None:
    """The size that a number is: of a vector, or of one axis of a tensor."""
    known = g.number(value)
    if known is not None:
        return int(known)
    counted = _producer(value, "Size")
    if counted is not None:
        total = shape_of(counted.inputs[0])
        return total[0] if total is not None and len(total) == 1 else None
    chosen = _producer(value, "Gather", "Squeeze", "Reshape")
    shape = None if chosen is None else _producer(chosen.inputs[0], "Shape")
    sizes = None if shape is None else shape_of(shape.inputs[0])
    if chosen is None or shape is None or sizes is None:
        return None
    sizes = sizes[shape.attr("start", 0) : shape.attr("end", len(sizes))]
    number = g.number(chosen.inputs[1]) if chosen.op_type == "Gather" else 0 if len(sizes) == 1 else None
    return None if number is None or not 0 <= number < len(sizes) else sizes[int(number)]


def _result(choice: Node, side: str) -> Value | None:
    graph = choice.attr(side)
    return graph.outputs[0] if isinstance(graph, Graph) and len(graph.outputs) == 1 else None


def _mean_of_all(g: Rewriter, rows: Value, number: Value, count: Value, start: Value | None, starts: Value) -> Node | None:
    """The ReduceMean of an If that computes the mean of the last bag in another way: its sum over the elements left."""
    choice = _producer(rows, "If")
    if choice is None or not _is_last(g, choice.inputs[0], number, count):
        return None
    mean = _producer(_result(choice, "else_branch"), "ReduceMean")
    last = _producer(_result(choice, "then_branch"), "If")
    if mean is None or last is None:
        return None
    quotient = _producer(_result(last, "then_branch"), "Div")
    plain = _producer(_result(last, "else_branch"), "ReduceSum")
    positive = _producer(last.inputs[0], "Greater")
    if quotient is None or plain is None or positive is None or _producer(quotient.inputs[0], "ReduceSum") is not plain:
        return None
    divisor = _producer(quotient.inputs[1], "Cast")
    left = _producer(positive.inputs[0], "Sub")
    if divisor is None or left is None or _producer(divisor.inputs[0], "Sub") is not left or g.number(positive.inputs[1]) != 0:
        return None
    if left.inputs[1] is not start or not _is_last_of(g, left.inputs[0], starts) or plain.inputs[0] is not mean.inputs[0]:
        return None
    return mean if _reduces_rows(g, plain, keepdims=1) else None


def _is_last(g: Rewriter, condition: Value | None, number: Value, count: Value) -> bool:
    """Whether a condition is that this is the last iteration."""
    equal = _producer(condition, "Equal")
    if equal is None or equal.inputs[0] is not number:
        return False
    known, last = g.number(count), g.number(equal.inputs[1])
    if known is not None and last is not None:
        return last == known - 1
    before = _producer(equal.inputs[1], "Sub")
    return before is not None and before.inputs[0] is count and g.number(before.inputs[1]) == 1


def _is_last_of(g: Rewriter, value: Value | None, vector: Value) -> bool:
    """Whether a value is the last element of a joined vector: the number of elements of one and the same vector."""
    joined, size = _producer(vector, "Concat"), _producer(value, "Shape")
    known, last = g.array(vector if joined is None else joined.inputs[-1]), g.number(value)
    if known is not None and last is not None:
        return known.size > 0 and last == known.reshape(-1)[-1]
    end = None if joined is None else _producer(joined.inputs[-1], "Shape")
    return end is not None and size is not None and end.inputs[0] is size.inputs[0] and len(shape_of(end.inputs[0]) or ()) == 1
