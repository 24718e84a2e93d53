"""Slices that begin at a number that a loop counts and have one length become Gathers.

    y = Loop(N, true, h) <body (i, c, s) => .. Slice(x: f32[N,4], i, i + 1, 0) ..>    =>    .. Gather(x, [i]) ..

Scripts write `x[t:t+1]` or `x[t*8:(t+1)*8]` for what an iteration takes of a sequence. Where a Slice begins is known to the data
alone, so its sizes would have to be found out in every iteration; of a Gather they are all known. Refuses: lengths that are not
constant; axes of which it cannot be seen that they are long enough for the last iteration, since a Slice past the end is shorter.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from sardonyx.analysis.shapes import ShapeReport, report_shapes
from sardonyx.dtypes import INT32, INT64
from sardonyx.ir.dims import is_nonnegative
from sardonyx.ir.graph import Model, Node, Value
from sardonyx.passes.fold_shape_values import infer_from_inputs
from sardonyx.passes.iteration_bounds import CountedNumber, counted_numbers, linear_form, upper_bounds
from sardonyx.passes.protocol import PassResult, is_standard
from sardonyx.passes.rewriter import Rewriter, dtype_of
from sardonyx.records import dataclass

_LONGEST: Final = 1 << 16  # elements: positions of a longer one would take more memory than they save time


@dataclass(frozen=True)
class _Part:
    """A Slice of one axis that begins `offset` elements behind a multiple of a number that a loop counts."""

    node: Node
    counted: CountedNumber
    axis: int
    factor: int
    offset: int
    length: int


@dataclass(frozen=True)
class FormCountedGathers:
    """Ensures: no iteration finds out the size of a Slice that is as long as the one before."""

    name: ClassVar[str] = "FormCountedGathers"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(("Loop",))
    needs: ClassVar[frozenset[str]] = frozenset(("Slice",))

    def run(self, model: Model) -> PassResult:
        """One walk over all Slices; what is known of the number of iterations is found out if there is one to ask for."""
        g = Rewriter(model)
        nodes = [node for graph in g.graphs() for node in graph.nodes if is_standard(node)]
        numbers = {each.value: each for node in nodes for each in counted_numbers(g, node)}
        parts = [part for node in nodes if node.op_type == "Slice" and (part := _part(g, node, numbers)) is not None]
        if not parts:
            return PassResult(False)
        report = report_shapes(model)
        changes = 0
        reasons: list[str] = []
        for part in parts:
            if _is_inside(g, part, report):
                _gather(g, part)
                changes += 1
            else:
                reasons.append(f"{part.node.label}: the axis may end before the last iteration's elements do")
        if changes:
            infer_from_inputs(model)
        return PassResult(changes > 0, tuple(reasons), changes)


def _part(g: Rewriter, node: Node, numbers: dict[Value, CountedNumber]) -> _Part | None:
    if node.version < 10 or len(node.inputs) < 4 or node.inputs[0] is None or node.inputs[0].shape is None:
        return None
    axes, steps = g.ints(node.inputs[3]), g.ints(node.inputs[4]) if len(node.inputs) > 4 else (1,)
    rank = len(node.inputs[0].shape)
    if axes is None or len(axes) != 1 or steps != (1,) or not -rank <= axes[0] < rank:
        return None
    (first, factor, offset), (last, *end) = (linear_form(g, value) for value in node.inputs[1:3])
    counted = None if first is None or first is not last else numbers.get(first)
    if counted is None or end[0] != factor or factor < 1 or factor * counted.start + offset < 0:
        return None
    length = end[1] - offset
    return _Part(node, counted, axes[0] % rank, factor, offset, length) if 0 < length <= _LONGEST else None


def _is_inside(g: Rewriter, part: _Part, report: ShapeReport) -> bool:
    """Whether the elements that the last iteration takes are there."""
    data = part.node.inputs[0]
    shape = None if data is None else data.shape
    if shape is None:
        return False
    most = shape[part.axis] - part.offset - part.length
    return any(is_nonnegative(most - part.factor * bound) for bound in upper_bounds(g, part.counted, report))


def _gather(g: Rewriter, part: _Part) -> None:
    node = part.node
    g.at(node)
    data, start = node.inputs[:2]
    index = start
    if part.length > 1:
        dtype = dtype_of(start)
        assert dtype in (INT32, INT64)
        index = g.op("Add", start, g.constant(np.arange(part.length, dtype=dtype.numpy), "positions"))
    g.replace(node.outputs[0], g.op("Gather", data, index, axis=part.axis))
    g.discard(node)
