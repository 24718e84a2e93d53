"""Gather and Scatter operators: steps that move elements to and from positions that indices name."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, dim_max, dim_min, is_nonnegative, product
from sardonyx.ir.graph import Node, Value
from sardonyx.kernel.expr import BITS, const, index, load, select
from sardonyx.kernel.indexing.check import IndexCheckKernel
from sardonyx.kernel.indexing.columns import MOST_BYTES, ColumnsKernel
from sardonyx.kernel.indexing.indexing import Combine, Direction, IndexKernel, units
from sardonyx.lower.copying import OF_WIDTH
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.index_loops import index_tensor, inner_stride
from sardonyx.lower.loop_builder import loop_step, merge_axes
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.ops.infer import normalize_axis
from sardonyx.program.steps import Address, KernelStep, View
from sardonyx.records import dataclass
from sardonyx.target import cost

_OUT_OF_RANGE: Final = "index {{found}} is out of range for axis {axis} of size {{limit}}: expected {{low}} to {{high}}"
_SHORT: Final = 16  # positions on an axis that are too few to walk along
_FEW: Final = (1, 2, 3)  # elements of a row that are gathered one by one in less time than it takes to begin a copy
FAR_AWAY: Final = 1 << 62  # an index no axis has


@dataclass(frozen=True)
class IndexOperand:
    """A tensor of indices: strides over the axes of the loop, and the axis it indexes, by its size (`limit`) and stride."""

    view: View
    strides: tuple[Dim, ...]
    limit: Dim
    stride: Dim


def index_step(
    ctx: LowerContext,
    direction: Direction,
    sizes: Sequence[Dim],
    near: tuple[View, Sequence[Dim]],
    far: tuple[View, Sequence[Dim]],
    index_operands: Sequence[IndexOperand],
    fault: tuple[Address, int],
    *,
    label: str,
    ordered: Sequence[int] = (),
    combine: Combine = "",
    trusted: bool = False,
) -> None:
    """A gather or scatter over an iteration space; near and far are views with their strides over it.

    The `ordered` axes are those on which different positions may meet in one element of `far`. Wrong indices are errors
    also where nothing is moved, unless they are known to be right (`trusted`).
    """
    has_all_axes = all(index_operand.view.shape == tuple(sizes) for index_operand in index_operands)  # none where nothing moves
    if not (has_all_axes or trusted or any(0 in index_operand.view.shape for index_operand in index_operands)):
        others = [
            size for axis, size in enumerate(sizes) if all(index_operand.strides[axis] == 0 for index_operand in index_operands)
        ]
        _look_at_indices(ctx, [size for size in others if not is_nonnegative(size - 1)], index_operands, fault, label)
    strides = [tuple(near[1]), tuple(far[1]), *(index_operand.strides for index_operand in index_operands)]
    free = [axis for axis in range(len(sizes)) if axis not in ordered]
    parallel, merged = merge_axes([sizes[axis] for axis in free], [[one[axis] for axis in free] for one in strides])
    if parallel == [1]:
        parallel, merged = [], [[] for _ in strides]
    row = _row_axis(merged)
    if row is not None and not ordered and parallel[row] in _FEW:
        row = None
    row_size: list[Dim] = []
    if row is not None:
        row_size = [parallel.pop(row)]
        for own in merged:
            own.pop(row)
    elif parallel and not ordered:
        longest = _longest_axis(parallel)
        for per_axis in (parallel, *merged):
            per_axis.append(per_axis.pop(longest))
    in_order, order_strides = merge_axes([sizes[axis] for axis in ordered], [[one[axis] for axis in ordered] for one in strides])
    if in_order == [1]:
        in_order, order_strides = [], [[] for _ in strides]
    element = near[0].buffer.dtype.name
    kind = element if combine else OF_WIDTH[BITS[element]]
    index_type = index_operands[0].view.buffer.dtype.name if index_operands else "i64"
    kernel = IndexKernel(
        direction=direction,
        type=kind,
        index=index_type,
        indices=len(index_operands),
        parallel=len(parallel),
        ordered=len(in_order),
        rows=row is not None,
        combine=combine,
        inner=tuple(inner_stride(own[-1]) for own in merged) if parallel else (),
        unit_strides=tuple(index_operand.stride == 1 for index_operand in index_operands),
    )
    width = BITS[kind] // 8
    all_sizes = [*parallel, *in_order, *row_size]
    all_strides = [[*first, *second] for first, second in zip(merged, order_strides)]
    index_width = BITS[index_type] // 8
    arguments = kernel.arguments.entries(
        sizes=[*parallel, *in_order],
        **({"row": row_size[0]} if row_size else {}),
        near=(Address(near[0].buffer, near[0].offset * width), all_strides[0]),
        far=(Address(far[0].buffer, far[0].offset * width), all_strides[1]),
        limits=[index_operand.limit for index_operand in index_operands],
        strides=[index_operand.stride for index_operand in index_operands],
        index=[
            (Address(index_operand.view.buffer, index_operand.view.offset * index_width), own)
            for index_operand, own in zip(index_operands, all_strides[2:])
        ],
        record=fault[0],
        code=fault[1],
    )
    source, target = (far[0], near[0]) if direction == "gather" else (near[0], far[0])
    ctx.step(
        KernelStep(
            kernel,
            arguments,
            units(kernel, all_sizes),
            cost.index(product(all_sizes), width, rows=row is not None),
            (
                source.buffer,
                *(index_operand.view.buffer for index_operand in index_operands),
                *((target.buffer,) if combine else ()),
            ),
            (target.buffer,),
            label,
            (label,),
        )
    )


def _look_at_indices(
    ctx: LowerContext, others: Sequence[Dim], index_operands: Sequence[IndexOperand], fault: tuple[Address, int], label: str
) -> None:
    """Have indices looked at where one of the other sizes turns out to be 0, so that nothing is moved by them."""
    if not others:
        return
    if not all(index_operand.view.is_contiguous for index_operand in index_operands):
        ctx.check_not_empty(others)  # NumPy looks at them
        return
    is_empty = dim_max(1 - product([dim_min(size, 1) for size in others]), 0)  # 1 or 0
    for index_operand in index_operands:
        view = index_operand.view
        kernel = IndexCheckKernel(index=view.buffer.dtype.name)
        arguments = kernel.arguments.entries(limit=index_operand.limit, indices=view.address, record=fault[0], code=fault[1])
        count = product(view.shape) * is_empty
        ctx.step(KernelStep(kernel, arguments, count, count, (view.buffer,), (), label, (label,)))


def _longest_axis(sizes: Sequence[Dim]) -> int:
    """The axis to walk along without rows: the last one, unless it is short. A size that is not known counts as long enough."""
    numbers = [size if isinstance(size, int) else _SHORT for size in sizes]
    last = len(sizes) - 1
    return last if numbers[last] >= _SHORT else max(range(len(sizes)), key=numbers.__getitem__)


def _row_axis(merged: Sequence[Sequence[Dim]]) -> int | None:
    """An axis along which both sides are consecutive and all indices stay."""
    for axis, (near, far) in enumerate(zip(merged[0], merged[1])):
        if near == 1 and far == 1 and all(own[axis] == 0 for own in merged[2:]):
            return axis
    return None


def take(
    ctx: LowerContext,
    source: View,
    axis: int,
    indices: View,
    target: View,
    fault: tuple[Address, int],
    label: str,
    *,
    trusted: bool = False,
) -> None:
    """target := source with the elements an index tensor names in place of an axis, as NumPy's take."""
    rank = len(indices.shape)
    sizes = (*source.shape[:axis], *indices.shape, *source.shape[axis + 1 :])
    far = (*source.strides[:axis], *((0,) * rank), *source.strides[axis + 1 :])
    index_strides = (*((0,) * axis), *indices.strides, *((0,) * (len(source.shape) - axis - 1)))
    index_operand = IndexOperand(indices, index_strides, source.shape[axis], source.strides[axis])
    index_step(
        ctx, "gather", sizes, (target, target.strides), (source, far), [index_operand], fault, label=label, trusted=trusted
    )


def given(node: Node, position: int) -> Value:
    """An input that must be there."""
    value = node.inputs[position]
    assert value is not None
    return value


def _root(group: Group) -> Node:
    assert group.root is not None
    return group.root


def out_of_range(ctx: LowerContext, node: Node, axis: int) -> tuple[Address, int]:
    """The fault of an index that is not inside an axis."""
    return ctx.fault(node, _OUT_OF_RANGE.format(axis=axis))


@template("Gather", writes_anywhere=True)
def gather(ctx: LowerContext, group: Group) -> None:
    node = _root(group)
    data, indices, output = given(node, 0), given(node, 1), node.outputs[0]
    axis = normalize_axis(attribute_values(node).get("axis") or 0, len(ctx.shape(data)))
    if not _gathered_view(ctx, data, indices, output, axis):
        numbers, size = ctx.integers(indices) or (), ctx.shape(data)[axis]
        is_inside = bool(numbers) and isinstance(size, int) and -size <= min(numbers) and max(numbers) < size
        source, target = ctx.view(data), ctx.output(output)
        if is_inside and axis == 1 and len(target.shape) == 2 and _are_short_rows(source, target):
            _select_columns(ctx, source, numbers, target, group.label)
            return
        fault = out_of_range(ctx, node, axis)
        take(ctx, source, axis, ctx.view(indices), target, fault, group.label, trusted=is_inside)


def _are_short_rows(source: View, target: View) -> bool:
    """Whether rows are consecutive in memory on both sides, and fit into registers."""
    widths = [view.shape[1] for view in (source, target) if len(view.shape) == 2 and view.strides[1] == 1]
    numbers = [width for width in widths if isinstance(width, int)]
    return len(numbers) == 2 and max(numbers) * BITS[source.buffer.dtype.name] <= 8 * MOST_BYTES


def _select_columns(ctx: LowerContext, source: View, numbers: Sequence[int], target: View, label: str) -> None:
    """target := the elements of each row of the source that the numbers say, which are inside."""
    rows, width = source.shape
    assert isinstance(width, int)
    columns = tuple(number % width for number in numbers)
    kernel = ColumnsKernel(type=OF_WIDTH[BITS[source.buffer.dtype.name]], width=width, columns=columns)
    source_rows, target_rows = (source.address, source.strides[:1]), (target.address, target.strides[:1])
    arguments = kernel.arguments.entries(rows=rows, source=source_rows, target=target_rows)
    work = cost.index(rows, BITS[source.buffer.dtype.name] // 8 * len(columns), rows=True)
    ctx.step(KernelStep(kernel, arguments, kernel.units(rows), work, (source.buffer,), (target.buffer,), label, (label,)))


def _gathered_view(ctx: LowerContext, data: Value, indices: Value, output: Value, axis: int) -> bool:
    """Indices known to be evenly spaced are a slice: nothing needs to move."""
    numbers, rank = ctx.integers(indices), len(ctx.shape(indices))
    if not numbers or rank > 1 or (numbers[0] < 0) != (numbers[-1] < 0):
        return False
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    if step == 0 or any(second - first != step for first, second in pairwise(numbers)):
        return False
    source = ctx.view(data)
    size = source.shape[axis]
    needed = max(max(numbers) + 1, -min(numbers))
    if isinstance(size, int):
        if size < needed:
            return False
    else:
        ctx.check_equal(dim_min(size, needed), needed)
    first = numbers[0] if numbers[0] >= 0 else size + numbers[0]
    found = ctx.at(source, axis, first) if rank == 0 else ctx.part(source, axis, first, len(numbers), step)
    ctx.set_view(output, found)
    return True


def _elements_fit(node: Node) -> str:
    """GatherElements and Scatter: the indices may not be larger than the data on other axes."""
    data, indices = node.inputs[0], node.inputs[1]
    if data is None or indices is None or data.shape is None or indices.shape is None:
        return "an input is missing"
    if len(data.shape) != len(indices.shape):
        return "data and indices have different ranks"
    axis = normalize_axis(attribute_values(node).get("axis") or 0, len(data.shape))
    for dimension, (size, asked) in enumerate(zip(data.shape, indices.shape)):
        if dimension != axis and isinstance(size, int) and isinstance(asked, int) and asked > size:
            return "indices are larger than the data"
    return "" if len(node.inputs) < 3 or _same_rank(indices, node.inputs[2]) else "updates and indices have different ranks"


def _same_rank(value: Value, other: Value | None) -> bool:
    return other is not None and value.shape is not None and other.shape is not None and len(value.shape) == len(other.shape)


def _check_inside(ctx: LowerContext, data: Value, indices: Value, axis: int) -> None:
    for dimension, (size, asked) in enumerate(zip(ctx.shape(data), ctx.shape(indices))):
        if dimension != axis:
            ctx.check_equal(dim_min(size, asked), asked)


def _along(strides: Sequence[Dim], axis: int) -> tuple[Dim, ...]:
    """Strides of the far side when an index counts along an axis."""
    return (*strides[:axis], 0, *strides[axis + 1 :])


@template("GatherElements", accepts=_elements_fit, writes_anywhere=True, reads_broadcasts=True)
def gather_elements(ctx: LowerContext, group: Group) -> None:
    node = _root(group)
    data, indices = given(node, 0), given(node, 1)
    axis = normalize_axis(attribute_values(node).get("axis") or 0, len(ctx.shape(data)))
    _check_inside(ctx, data, indices, axis)
    source, positions, target = ctx.view(data), ctx.view(indices), ctx.output(node.outputs[0])
    index_operand = IndexOperand(positions, positions.strides, source.shape[axis], source.strides[axis])
    far = (source, _along(source.strides, axis))
    fault = out_of_range(ctx, node, axis)
    index_step(ctx, "gather", positions.shape, (target, target.strides), far, [index_operand], fault, label=group.label)


def _depth_known(node: Node) -> str:
    indices, data = node.inputs[1], node.inputs[0]
    if data is None or indices is None or not indices.shape or data.shape is None:
        return "indices have no dimensions"
    depth, batch = indices.shape[-1], attribute_values(node).get("batch_dims") or 0
    if not isinstance(depth, int):
        return "how many indices a position has is known only at run time"
    return "" if depth + batch <= len(data.shape) and batch < len(indices.shape) else "more indices than axes"


def _nd_index_operands(far: View, indices: View, batch: int, rest: int) -> list[IndexOperand]:
    """A position for each column of an index tensor, over [batch and index dims..., rest...]."""
    depth = indices.shape[-1]
    assert isinstance(depth, int)
    strides = (*indices.strides[:-1], *((0,) * rest))
    return [
        IndexOperand(
            View(indices.buffer, indices.shape[:-1], indices.strides[:-1], indices.offset + indices.strides[-1] * column),
            strides,
            far.shape[batch + column],
            far.strides[batch + column],
        )
        for column in range(depth)
    ]


_ND_OUT_OF_RANGE: Final = "index {found} is out of range for an axis of size {limit}: expected {low} to {high}"


@template("GatherND", accepts=_depth_known, writes_anywhere=True)
def gather_nd(ctx: LowerContext, group: Group) -> None:
    node = _root(group)
    source, indices, target = ctx.view(given(node, 0)), ctx.view(given(node, 1)), ctx.output(node.outputs[0])
    batch = attribute_values(node).get("batch_dims") or 0
    for size, other in zip(source.shape[:batch], indices.shape[:batch]):
        ctx.check_equal(size, other)
    depth = indices.shape[-1]
    assert isinstance(depth, int)
    rest = len(source.shape) - batch - depth
    index_operands = _nd_index_operands(source, indices, batch, rest)
    middle = len(indices.shape) - 1 - batch
    far = (*source.strides[:batch], *((0,) * middle), *source.strides[batch + depth :])
    sizes = (*indices.shape[:-1], *source.shape[batch + depth :])
    fault = ctx.fault(node, _ND_OUT_OF_RANGE)
    index_step(ctx, "gather", sizes, (target, target.strides), (source, far), index_operands, fault, label=group.label)


_COMBINE: Final[dict[str, Combine]] = {"add": "add", "mul": "mul", "min": "min", "max": "max"}
_COMBINE_BOOL: Final[dict[str, Combine]] = {"add": "or", "mul": "and", "min": "and", "max": "or"}


def _combine_of(ctx: LowerContext, node: Node) -> Combine:
    reduction = attribute_values(node).get("reduction") or "none"
    if reduction == "none":
        return ""
    return (_COMBINE_BOOL if ctx.dtype(node.outputs[0]) is dtypes.BOOL else _COMBINE)[reduction]


def _known_reduction(node: Node) -> str:
    reduction = attribute_values(node).get("reduction") or "none"
    return "" if reduction in ("none", *_COMBINE) else f"reduction {reduction!r} is not known"


class _Scattered:
    """The result of a scatter in the making: a copy of the data, in f32 while halves are combined."""

    def __init__(self, ctx: LowerContext, group: Group, combine: Combine) -> None:
        node = _root(group)
        self._ctx, self._label = ctx, group.label
        self._result = ctx.output(node.outputs[0])
        data = ctx.view(given(node, 0))
        self._wide = bool(combine) and data.buffer.dtype in (dtypes.FLOAT16, dtypes.BFLOAT16)
        if self._wide:
            self.target = ctx.scratch(dtypes.FLOAT32, data.shape, "combined")
            self._convert(data, self.target)
        else:
            self.target = ctx.copy(data, self._result, group.label)

    def updates(self, value: Value) -> View:
        """Updates in the type they are combined in."""
        view = self._ctx.view(value)
        if not self._wide:
            return view
        target = self._ctx.scratch(dtypes.FLOAT32, view.shape, "updates")
        self._convert(view, target)
        return target

    def finish(self) -> None:
        """Round the result once, after all updates."""
        if self._wide:
            self._convert(self.target, self._result)

    def _convert(self, source: View, target: View) -> None:
        types = [view.buffer.dtype.name for view in (source, target)]
        value = load(0, types[0]).cast(types[1])
        label = self._label
        step = loop_step(
            source.shape, [source, target], types, [(1, value)], target=self._ctx.target, label=label, nodes=(label,)
        )
        self._ctx.step(step)


@template(
    "ScatterElements",
    "Scatter",
    accepts=lambda node: _elements_fit(node) or _known_reduction(node),
    writes_anywhere=True,
    reads_broadcasts=True,
)
def scatter_elements(ctx: LowerContext, group: Group) -> None:
    """Positions that differ on another axis never meet, so only the indexed axis is walked in order."""
    node = _root(group)
    data, indices, updates = given(node, 0), given(node, 1), given(node, 2)
    axis = normalize_axis(attribute_values(node).get("axis") or 0, len(ctx.shape(data)))
    _check_inside(ctx, data, indices, axis)
    for size, other in zip(ctx.shape(indices), ctx.shape(updates)):
        ctx.check_equal(size, other)
    combine = _combine_of(ctx, node)
    result = _Scattered(ctx, group, combine)
    near, positions, far = result.updates(updates), ctx.view(indices), result.target
    index_operand = IndexOperand(positions, positions.strides, far.shape[axis], far.strides[axis])
    index_step(
        ctx,
        "scatter",
        positions.shape,
        (near, near.strides),
        (far, _along(far.strides, axis)),
        [index_operand],
        out_of_range(ctx, node, axis),
        label=group.label,
        ordered=[axis],
        combine=combine,
    )
    result.finish()


@template("ScatterND", accepts=lambda node: _depth_known(node) or _known_reduction(node), writes_anywhere=True)
def scatter_nd(ctx: LowerContext, group: Group) -> None:
    """Updates of whole slices: within a slice positions never meet, from slice to slice they may."""
    node = _root(group)
    indices = ctx.view(given(node, 1))
    depth = indices.shape[-1]
    assert isinstance(depth, int)
    combine = _combine_of(ctx, node)
    result = _Scattered(ctx, group, combine)
    near, far = result.updates(given(node, 2)), result.target
    sizes = (*indices.shape[:-1], *far.shape[depth:])
    for size, other in zip(sizes, near.shape):
        ctx.check_equal(size, other)
    lead = len(indices.shape) - 1
    index_step(
        ctx,
        "scatter",
        sizes,
        (near, near.strides),
        (far, (*((0,) * lead), *far.strides[depth:])),
        _nd_index_operands(far, indices, 0, len(far.shape) - depth),
        ctx.fault(node, _ND_OUT_OF_RANGE),
        label=group.label,
        ordered=range(lead),
        combine=combine,
    )
    result.finish()


def _tensor_scatter_fits(node: Node) -> str:
    attrs = attribute_values(node)
    cache, update = node.inputs[0], node.inputs[1]
    if cache is None or update is None or cache.shape is None or update.shape is None or len(cache.shape) != len(update.shape):
        return "cache and update have different ranks"
    if len(cache.shape) < 2 or normalize_axis(attrs.get("axis", -2), len(cache.shape)) == 0:
        return "axis is the batch axis"
    return "" if attrs.get("mode") in ("linear", "circular") else "mode is not known"


@template("TensorScatter", accepts=_tensor_scatter_fits)
def tensor_scatter(ctx: LowerContext, group: Group) -> None:
    """Each batch entry's update goes to consecutive steps from its own start on."""
    node = _root(group)
    attrs = attribute_values(node)
    cache, update = ctx.view(given(node, 0)), ctx.view(given(node, 1))
    axis = normalize_axis(attrs.get("axis", -2), len(cache.shape))
    size, count, batch = cache.shape[axis], update.shape[axis], cache.shape[0]
    for number, (mine, other) in enumerate(zip(cache.shape, update.shape)):
        ctx.check_equal(dim_min(mine, other) if number == axis else mine, other)
    far = ctx.copy(cache, ctx.output(node.outputs[0]), group.label)
    starts = node.inputs[2] if len(node.inputs) > 2 else None
    operands = [ctx.sizes([size], "steps")]
    step = index(1)
    if starts is not None:
        begin = ctx.contiguous(starts)
        ctx.check_equal(product(list(begin.shape)), batch)
        operands.append(View(begin.buffer, (batch, 1), (1, 0), begin.offset))
        step = step + load(1, begin.buffer.dtype.name).cast("i64")
    limit = load(0, "i64")
    if attrs.get("mode") == "circular":
        step = step % limit
        step = select(step < 0, step + limit, step)
    else:
        step = select(step < 0, const(FAR_AWAY, "i64"), step)
    steps = index_tensor(ctx, (batch, count), operands, step, "steps")
    inner = [0] * (len(cache.shape) - axis - 1)
    index_operand = IndexOperand(steps, (steps.strides[0], *([0] * (axis - 1)), 1, *inner), size, far.strides[axis])
    text = f"write_indices plus the steps of the update leave axis {axis} of size {{limit}}"
    near, strides = (update, update.strides), _along(far.strides, axis)
    index_step(ctx, "scatter", update.shape, near, (far, strides), [index_operand], ctx.fault(node, text), label=group.label)
