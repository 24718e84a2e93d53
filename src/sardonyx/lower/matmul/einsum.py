"""Einsum of one or two operands: a view, a sum, a product of elements, or matrix products.

    bhid,bhjd->bhij      batch b h, rows i, columns j, depth d

Letters in both operands and the result count batches, those of one operand and the result rows or columns, those of both operands
alone the depth. Several letters of one kind are seen as one axis; what does not lie so is copied first.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import Node
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import load, reduced
from sardonyx.lower.epilogue import GroupEpilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext, compute_type
from sardonyx.lower.matmul.matmul import SUMMED, product_into
from sardonyx.lower.registry import template
from sardonyx.lower.views import expanded, reshaped
from sardonyx.ops.matmul.matmul import axis_names
from sardonyx.program.steps import View, element_count
from sardonyx.records import dataclass


@dataclass(frozen=True)
class _Term:
    """A tensor whose axes have names; no name comes twice."""

    view: View
    names: tuple[str, ...]

    def size(self, name: str) -> Dim:
        return self.view.shape[self.names.index(name)]

    def ordered(self, names: Sequence[str]) -> View:
        """The axes with these names, in this order; those it does not have are of size 1."""
        shape = tuple(self.size(name) if name in self.names else 1 for name in names)
        strides = tuple(self.view.strides[self.names.index(name)] if name in self.names else 0 for name in names)
        return View(self.view.buffer, shape, strides, self.view.offset)


def _names(node: Node) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    ranks = [0 if value is None or value.shape is None else len(value.shape) for value in node.inputs]
    return axis_names(attribute_values(node)["equation"], ranks)


def _accepts(node: Node) -> str:
    if not 1 <= len(node.inputs) <= 2:
        return f"{len(node.inputs)} operands: there are kernels for 1 and 2"
    terms, result = _names(node)
    sizes: dict[str, Dim] = {}
    for value, term in zip(node.inputs, terms):
        for name, size in zip(term, value.shape or () if value is not None else ()):
            if name in sizes and sizes[name] != size and 1 in (sizes[name], size):
                return f"axis {name!r} is broadcast"
            sizes[name] = size
    own = [set(term) - set(result) for term in terms]
    if len(terms) == 2 and own[0] != own[1]:
        return "an axis of one operand alone is added up"
    return ""


@template("Einsum", types={"T": SUMMED}, accepts=_accepts)
def einsum(ctx: LowerContext, group: Group) -> None:
    node = root_of(group)
    names, result = _names(node)
    terms = [_Term(*_diagonal(ctx, ctx.view(value), term)) for value, term in zip(node.inputs, names) if value is not None]
    for name in dict.fromkeys(name for term in terms for name in term.names):
        sizes = [term.size(name) for term in terms if name in term.names]
        ctx.check_equal(sizes[0], sizes[-1])
    target = ctx.output(node.outputs[0]) if len(terms) == 2 or set(terms[0].names) != set(result) else None
    if target is None:
        ctx.set_view(node.outputs[0], terms[0].ordered(result))
    elif len(terms) == 1:
        _sum(ctx, group, terms[0], _Term(target, result))
    elif set(terms[0].names) | set(terms[1].names) == set(result):
        _elements(ctx, group, terms, _Term(target, result))
    else:
        _matrices(ctx, group, terms[0], terms[1], _Term(target, result))


def _diagonal(ctx: LowerContext, view: View, names: tuple[str, ...]) -> tuple[View, tuple[str, ...]]:
    """Axes with the same name are walked together."""
    kept = tuple(dict.fromkeys(names))
    shape, strides = [], []
    for name in kept:
        axes = [axis for axis, other in enumerate(names) if other == name]
        for axis in axes[1:]:
            ctx.check_equal(view.shape[axis], view.shape[axes[0]])
        shape.append(view.shape[axes[0]])
        strides.append(sum((view.strides[axis] for axis in axes[1:]), view.strides[axes[0]]))
    return View(view.buffer, tuple(shape), tuple(strides), view.offset), kept


def _merged(ctx: LowerContext, view: View, groups: Sequence[int]) -> View:
    """Axes seen as fewer: `groups` tells how many go into each. Copies if they do not lie so."""
    shape: list[Dim] = []
    first = 0
    for count in groups:
        shape.append(element_count(view.shape[first : first + count]))
        first += count
    found = reshaped(view, shape)
    if found is None:
        found = reshaped(ctx.copy(view, ctx.scratch(view.buffer.dtype, view.shape, "merged"), "copy"), shape)
    assert found is not None
    return found


def _sum(ctx: LowerContext, group: Group, term: _Term, target: _Term) -> None:
    """The sum over the axes the result does not have."""
    added = [name for name in term.names if name not in target.names]
    kept = len(target.names)
    x = _merged(ctx, term.ordered([*target.names, *added]), [*(1,) * kept, len(added)])
    result = View(target.view.buffer, (*target.view.shape, 1), (*target.view.strides, 0), target.view.offset)
    kind = x.buffer.dtype.name
    total = reduced("sum", load(0, kind).cast(compute_type(kind)), 0).cast(kind)
    step = loop_step(
        x.shape,
        [x, expanded(result, x.shape)],
        [kind, kind],
        [],
        results=[(1, total)],
        reduce="inner",
        target=ctx.target,
        label=group.label,
        nodes=(group.label,),
    )
    ctx.step(step)


def _elements(ctx: LowerContext, group: Group, terms: Sequence[_Term], target: _Term) -> None:
    """Products of single elements: nothing is added up."""
    shape = target.view.shape
    views = [*(expanded(term.ordered(target.names), shape) for term in terms), target.view]
    kind = target.view.buffer.dtype.name
    a, b = (load(number, kind).cast(compute_type(kind)) for number in (0, 1))
    stores = [(2, (a * b).cast(kind))]
    ctx.step(loop_step(shape, views, [kind] * 3, stores, target=ctx.target, label=group.label, nodes=(group.label,)))


def _matrices(ctx: LowerContext, group: Group, a: _Term, b: _Term, target: _Term) -> None:
    batch = [name for name in target.names if name in a.names and name in b.names]
    rows = [name for name in target.names if name not in b.names]
    columns = [name for name in target.names if name not in a.names]
    depth = [name for name in a.names if name not in target.names]
    single = (1,) * len(batch)
    left = _merged(ctx, a.ordered([*batch, *rows, *depth]), [*single, len(rows), len(depth)])
    right = _merged(ctx, b.ordered([*batch, *depth, *columns]), [*single, len(depth), len(columns)])
    shape = (*left.shape[:-1], right.shape[-1])
    kind = target.view.buffer.dtype.name
    wanted = target.ordered([*batch, *rows, *columns])
    result = reshaped(wanted, shape)
    direct = result is not None
    if result is None:
        scratch = ctx.scratch(target.view.buffer.dtype, wanted.shape, "product")
        result = reshaped(scratch, shape)
        assert result is not None
    epilogue = GroupEpilogue((result,), ((0, accumulator(compute_type(kind)).cast(kind)),))
    product_into(ctx, group, left, right, epilogue, shape)
    if not direct:
        ctx.copy(scratch, wanted, group.label)
