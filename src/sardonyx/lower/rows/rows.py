"""Groups around a reduction: the nodes that compute its input, the reduction, and the nodes that use its results in one kernel.

    def softmax(rows: Rows) -> Made:
        weight = rows.kept(exp(rows.x - rows.total("max", rows.x)))
        return Made(full={rows.output: weight / rows.total("sum", weight)})

A rule is written once, over single elements. Where the reduced axes are one axis for all operands (trailing axes of contiguous
tensors, or one axis anywhere), it becomes one kernel that walks each row while it is in cache; so it does where rows are made of
parts (a scale that changes from channel to channel of a group). Where they are not (batch and space at once), every `total`
becomes kernels of its own, and the rest an elementwise loop. A rule that asks where in a row an element stands cannot be divided
like that: it gets a kernel of its own over memory without gaps, with the other nodes of the group in loops before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Final, Literal, TypeAlias

from sardonyx import dtypes
from sardonyx.ir.dims import Dim, product
from sardonyx.ir.graph import Node, Value
from sardonyx.kernel.expr import FLOATS, Expr, const, load, reduced, size, walk
from sardonyx.kernel.loops import is_overwritten
from sardonyx.lower.groups import Group
from sardonyx.lower.loop_builder import broadcast_strides, loop_step
from sardonyx.lower.lowering import LowerContext, compute_type, lower_loop
from sardonyx.program.steps import View, row_major
from sardonyx.records import dataclass

_TYPES: Final = {dtype.name: dtype for dtype in dtypes.ALL}
Form: TypeAlias = Literal["line", "parts", "stages"]  # the reduced axes in one line, in lines with jumps between, or one by one
_ONE_WALK_FROM: Final = 512  # elements from which on the end of one walk for mean and deviations costs less than a second walk
_SHORT_ROW: Final = 16  # elements
_MANY_ROWS: Final = 64
_CHEAP: Final = 3  # operations that are computed again in every walk rather than kept in memory


@dataclass
class Made:
    """What a rule computes: values of the input's shape, and values with one element for each row."""

    full: dict[Value, Expr] = field(default_factory=dict)
    results: dict[Value, Expr] = field(default_factory=dict)


class _NotOneAxis(Exception):
    """The reduced axes do not lie in one line for some operand."""


class _NoStages(Exception):
    """A reduction that gives indices of a row cannot be made axis by axis."""


class Rows:
    """The input of a reduction and what can be computed from it."""

    def __init__(
        self,
        ctx: LowerContext,
        group: Group,
        source: Value,
        shape: Sequence[Dim],
        axes: Sequence[int],
        form: Form,
        side_by_side: bool = False,
    ) -> None:
        """With `side_by_side`, rows that lie one after the other have a lane each."""
        assert group.root is not None
        self.ctx, self.group, self.root = ctx, group, group.root
        self.shape = tuple(shape)  # may be finer than that of the input: see `split`
        self.axes = tuple(sorted(axes))
        self.form = form
        self._side_by_side = side_by_side
        self.views: list[View] = []  # each with a stride for every axis of `shape`
        self._numbers: dict[tuple[Value, bool], int] = {}
        self._counter = 0
        self._stash: list[Expr] = []
        self._source = source
        self._source_shape = ctx.shape(source)
        self.made: dict[Value, Expr] = {}
        again = group.before
        if group.before and self.staged:
            stored, again = self._divided()
            if stored:
                lower_loop(ctx, _part(group, stored, self._source_shape))
        if again:
            self.made = ctx.expressions(_part(group, again), {}, self.operand)
        self.x = self.made[source] if source in self.made else self.leaf(source)

    def _divided(self) -> tuple[list[Node], list[Node]]:
        """The nodes before a reduction by stages: those whose results go to memory, and a few that are cheap in every walk.

        What others read as well, and what that is computed from, goes to memory anyway.
        """
        before, read = self.group.before, set(self.ctx.escaping(self.group))
        stored: list[Node] = []
        for node in reversed(before):
            if any(value in read for value in node.outputs):
                stored.insert(0, node)
                read.update(value for value in node.inputs if value is not None)
        again = [node for node in before if node not in stored]
        return (stored, again) if len(again) <= _CHEAP else (before, [])

    @property
    def staged(self) -> bool:
        """Whether every reduction has kernels of its own."""
        return self.form == "stages"

    @property
    def output(self) -> Value:
        """The root's first output."""
        return self.root.outputs[0]

    @property
    def inner(self) -> bool:
        """Whether the reduced axis is the last one that is longer than 1, and lanes are neighbours in a row."""
        if self._side_by_side:
            return False
        behind = [size for axis, size in enumerate(self.shape) if axis > self.axes[-1]]
        return all(length == 1 for length in behind)

    # Operands

    def operand(self, value: Value, reduced_shape: bool = False) -> int:
        """The number of an operand of the input's shape (or one that broadcasts to it), or of the shape after the reduction."""
        key = (value, reduced_shape)
        if key not in self._numbers:
            is_row = self.inner and not reduced_shape  # is walked through along its last axis
            view = self.ctx.untransposed(value) if is_row else self.ctx.view(value)
            self._numbers[key] = self._add(self._widened(view) if reduced_shape else self._broadcast(view))
        return self._numbers[key]

    def leaf(self, value: Value, view: View | None = None) -> Expr:
        """An element of an input, in the type it is computed in; `view` says how it lies over `shape`, if not by broadcasting."""
        if value in self.made:
            return self.made[value]
        kind = self.ctx.dtype(value).name
        if view is None:
            self.ctx.check_broadcast(self.ctx.shape(value), self._source_shape)
            number = self.operand(value)
        else:
            number = self._add(View(view.buffer, self.shape, broadcast_strides(view, self.shape), view.offset))
        return load(number, kind).cast(compute_type(kind))

    def _add(self, view: View) -> int:
        self.views.append(view)
        return len(self.views) - 1

    def _broadcast(self, view: View) -> View:
        """A view that broadcasts to the input, over `shape`."""
        strides = broadcast_strides(view, self._source_shape) or (0,)  # a scalar is a row of one element
        if len(self.shape) > len(strides):  # axis 1 is divided into two
            strides = (strides[0], strides[1] * self.shape[2], *strides[1:])
        return View(view.buffer, self.shape, strides, view.offset)

    def _widened(self, view: View) -> View:
        """A view that broadcasts to the shape after the reduction, over the shape before it."""
        after = self.ctx.shape(self.output)
        own = broadcast_strides(view, after)
        kept = (
            range(len(self.shape)) if len(after) == len(self.shape) else [a for a in range(len(self.shape)) if a not in self.axes]
        )
        by_axis = {axis: stride for axis, stride in zip(kept, own) if axis not in self.axes}
        return View(view.buffer, self.shape, tuple(by_axis.get(axis, 0) for axis in range(len(self.shape))), view.offset)

    # What rules compute with

    def total(self, kind: str, value: Expr) -> Expr:
        """A reduction over the axes."""
        if not self.staged:
            self._counter += 1
            return reduced(kind, value, self._counter)
        return self._total_by_stages(kind, value)

    def count(self, kind: str) -> Expr:
        """How many elements are reduced to one."""
        dims = [self.shape[axis] for axis in self.axes]
        total = product(dims)
        if isinstance(total, int):
            return const(total, kind)
        if self.staged:
            return self.total("sum", const(1, kind))
        length = size(-2) * size(-1) if self.form == "parts" else size(-1 if self.inner else -2)
        return length.cast(kind)

    def mean(self, value: Expr) -> Expr:
        """The mean over the axes."""
        return self.total("sum", value) / self.count(value.type)

    def squared_deviations(self, value: Expr, mean: Expr) -> Expr:
        """The sum of squared deviations from the mean."""
        length = product([self.shape[axis] for axis in self.axes])
        short = isinstance(length, int) and length < _ONE_WALK_FROM
        if self.inner and not self.staged and not short:
            return self.total("squared_deviations", value)
        distance = value - mean
        return self.total("sum", distance * distance)

    def kept(self, value: Expr) -> Expr:
        """The same value, worth keeping between walks."""
        self._stash.append(value)
        return value

    # Kernels

    def finish(self, made: Made) -> None:
        """Write the steps."""
        ctx, group = self.ctx, self.group
        by_row = bool(made.results) and not made.full
        known = {**self.made, **made.full, **made.results}
        after = ctx.expressions(_part(group, group.after), known, lambda value: self.operand(value, by_row))
        rows = set(made.results) | ({value for node in group.after for value in node.outputs} if by_row else set())
        before = {value for node in group.before for value in node.outputs}
        stores: list[tuple[int, Expr]] = []
        results: list[tuple[int, Expr]] = []
        stash: list[tuple[int, Expr]] = []
        for value in ctx.escaping(group):
            if value in before and self.staged:
                continue  # is in memory already
            kind = ctx.dtype(value).name
            view = ctx.output(value)
            number = self._add(self._widened(view) if value in rows else self._broadcast(view))
            target = results if value in rows else stores
            if value in before and after[value].type == kind and after[value] in set(walk([self.x])):
                target = stash
            target.append((number, after[value].cast(kind)))
        if self.staged:
            self._loop(stores, self.shape)
            self._loop(results, tuple(1 if axis in self.axes else dim for axis, dim in enumerate(self.shape)))
            return
        if stores or results or stash:
            self._keep(stores, results, stash)
            self._step(stores, results, stash)

    def _keep(self, stores: list[tuple[int, Expr]], results: list[tuple[int, Expr]], stash: list[tuple[int, Expr]]) -> None:
        """Decide which values are kept in memory between walks; those a rule stores anyway are stored when they are kept."""
        operations = sum(1 for node in walk([self.x]) if node.args)
        wanted = [self.x] if operations > _CHEAP and all(value is not self.x for _, value in stash) else []
        for value in dict.fromkeys([*wanted, *self._stash]):
            own = next((item for item in stores if item[1] is value), None)
            if own is not None:
                stores.remove(own)
                stash.append(own)
                continue
            for number, _ in stores:
                fits = self._memory_type(number) == value.type
                if fits and not is_overwritten(stores, results, [*stash, (number, value)]):
                    stash.append((number, value))
                    break

    def _memory_type(self, number: int) -> str:
        return self.views[number].buffer.dtype.name

    def _step(self, stores: list[tuple[int, Expr]], results: list[tuple[int, Expr]], stash: list[tuple[int, Expr]]) -> None:
        if self.form == "parts":
            shape, strides = self._parts(stores, results)
        else:
            shape, strides = self._one_axis(self.views, self.axes)
        views = [View(view.buffer, tuple(shape), tuple(own), view.offset) for view, own in zip(self.views, strides)]
        self.ctx.step(
            loop_step(
                shape,
                views,
                [view.buffer.dtype.name for view in views],
                stores,
                target=self.ctx.target,
                label=self.group.label,
                nodes=tuple(node.label for node in self.group.nodes),
                results=results,
                reduce="parts" if self.form == "parts" else "inner" if self.inner else "middle",
                stash=stash,
            )
        )

    def _one_axis(self, views: Sequence[View], axes: Sequence[int]) -> tuple[list[Dim], list[list[Dim]]]:
        """Shape and strides with the reduced axes as one: the last, or the last but one before a kept axis."""
        groups = self._runs(views, axes)
        if len(groups) != 1:
            raise _NotOneAxis
        run = groups[0]
        last = run[-1]
        kept = [axis for axis in range(len(self.shape)) if axis not in axes]
        if self._side_by_side:
            *front, beside = self._merged(kept, views)
            order = [*front, run, beside]
            shape = [product([self.shape[axis] for axis in part]) for part in order]
            return shape, [[view.strides[part[-1]] for part in order] for view in views]
        behind = self._merged([axis for axis in kept if axis > last], views)
        front = [[axis] for axis in kept if axis < last]
        order = [*front, *behind, run] if self.inner else [*front, *behind[:-1], run, behind[-1]]
        shape = [product([self.shape[axis] for axis in part]) for part in order]
        return shape, [[view.strides[part[-1]] for part in order] for view in views]

    def _parts(self, stores: list[tuple[int, Expr]], results: list[tuple[int, Expr]]) -> tuple[list[Dim], list[list[Dim]]]:
        """Shape and strides with the reduced axes as the last two. By stages mere reductions are divided between more threads."""
        runs = self._runs(self.views, self.axes)
        by_index = any(
            node.op == "index" or (node.op == "reduced" and node.param[0].startswith("arg"))
            for node in walk(value for _, value in (*stores, *results))
        )
        if len(runs) != 2 or not self.inner or not stores or by_index:
            raise _NotOneAxis
        order = [*([axis] for axis in range(len(self.shape)) if axis not in self.axes), *runs]
        shape = [product([self.shape[axis] for axis in part]) for part in order]
        return shape, [[view.strides[part[-1]] for part in order] for view in self.views]

    def _runs(self, views: Sequence[View], axes: Sequence[int]) -> list[list[int]]:
        """The reduced axes, neighbours that every operand walks through without a jump put together; axes of size 1 dropped."""
        real = [axis for axis in axes if self.shape[axis] != 1] or [axes[-1]]
        return self._merged(real, views)

    def _merged(self, axes: Sequence[int], views: Sequence[View]) -> list[list[int]]:
        parts: list[list[int]] = []
        real = [axis for axis in axes if self.shape[axis] != 1] or list(axes[-1:])
        for axis in real:
            if parts and all(view.strides[parts[-1][-1]] == view.strides[axis] * self.shape[axis] for view in views):
                parts[-1].append(axis)
            else:
                parts.append([axis])
        return parts

    # Several kernels

    def _total_by_stages(self, kind: str, value: Expr) -> Expr:
        """Reduce one run of axes after the other, the last first; what is left is read over the whole shape."""
        if kind.startswith("arg"):
            raise _NoStages
        left = value
        done: list[int] = []
        remaining = [axis for axis in self.axes if self.shape[axis] != 1] or [self.axes[-1]]
        while remaining:
            views = [*self.views]
            # Axes that lie in one line in an operand need not do so in what a stage leaves, which has kept axes between them.
            used = sorted({node.param for node in walk([left]) if node.op == "load"})
            run = self._runs([views[number] for number in used], remaining)[-1]
            remaining = [axis for axis in remaining if axis not in run]
            done += run
            shape = tuple(1 if axis in done else dim for axis, dim in enumerate(self.shape))
            scratch = self.ctx.scratch(_TYPES[value.type], shape, f"{kind} of {self.root.op_type}")
            strides = tuple(0 if axis in done else step for axis, step in enumerate(row_major(shape)))
            result = View(scratch.buffer, self.shape, strides, 0)
            self._stage(kind, left, run, done, views, result)
            left = load(self._add(result), value.type)
        return left

    def _stage(self, kind: str, value: Expr, run: list[int], done: list[int], views: list[View], result: View) -> None:
        numbers = sorted({node.param for node in walk([value]) if node.op == "load"})
        renumbering = {number: position for position, number in enumerate(numbers)}
        chosen = [views[number] for number in numbers]
        expression = _renumbered(value, renumbering)
        kept = [axis for axis in range(len(self.shape)) if axis not in done]
        behind = [axis for axis in kept if axis > run[-1] and self.shape[axis] != 1]
        order = [[axis] for axis in kept if axis not in behind]
        order = [*order, *([axis] for axis in behind[:-1]), run, *([axis] for axis in behind[-1:])]
        shape = [product([self.shape[axis] for axis in part]) for part in order]
        arranged = [
            View(view.buffer, tuple(shape), tuple(view.strides[part[-1]] for part in order), view.offset)
            for view in (*chosen, result)
        ]
        self.ctx.step(
            loop_step(
                shape,
                arranged,
                [view.buffer.dtype.name for view in arranged],
                (),
                target=self.ctx.target,
                label=f"{self.group.label}: {kind}",
                nodes=tuple(node.label for node in self.group.nodes),
                results=[(len(chosen), reduced(kind, expression, 1))],
                reduce="middle" if behind else "inner",
            )
        )

    def _loop(self, stores: list[tuple[int, Expr]], shape: tuple[Dim, ...]) -> None:
        """An elementwise loop over the whole shape, or over that of the results."""
        if not stores:
            return
        values = [value for _, value in stores]
        numbers = sorted({node.param for node in walk(values) if node.op == "load"} | {number for number, _ in stores})
        renumbering = {number: position for position, number in enumerate(numbers)}
        views = [replace(self.views[number], shape=shape) for number in numbers]
        self.ctx.step(
            loop_step(
                shape,
                views,
                [view.buffer.dtype.name for view in views],
                [(renumbering[number], _renumbered(value, renumbering)) for number, value in stores],
                target=self.ctx.target,
                label=self.group.label,
                nodes=tuple(node.label for node in self.group.nodes),
            )
        )


def _renumbered(value: Expr, renumbering: dict[int, int]) -> Expr:
    made: dict[Expr, Expr] = {}
    for node in walk([value]):
        param = renumbering[node.param] if node.op == "load" else node.param
        made[node] = Expr(node.op, node.type, tuple(made[arg] for arg in node.args), param)
    return made[value]


def _part(group: Group, nodes: Sequence[Node], shape: tuple[Dim, ...] | None = None) -> Group:
    """Some elementwise nodes of a group, as a group."""
    return Group(group.index, "loop", group.shape if shape is None else shape, None, None, list(nodes), group.region)


RowRule: TypeAlias = Callable[[Rows], Made]


def lower_rows(
    ctx: LowerContext,
    group: Group,
    rule: RowRule,
    axes: Sequence[int],
    *,
    source: Value | None = None,
    split: int | None = None,
    side_by_side: bool = False,
) -> None:
    """Lower a group whose root reduces some axes of its first input. `split` divides axis 1 into so many parts first.

    With `side_by_side`, many short rows are walked through at once, each in a lane of its own.
    """
    assert group.root is not None
    value = source if source is not None else group.root.inputs[0]
    assert value is not None
    shape = list(ctx.shape(value))
    if split is not None:
        channels = shape[1]
        shape[1:2] = [split, channels // split]
    if not shape:
        shape = [1]
    beside = side_by_side and _are_many_short_rows(shape, axes)
    mark = ctx.mark()
    forms: tuple[Form, ...] = ("line", "parts", "stages")
    for form in forms:
        try:
            rows = Rows(ctx, group, value, shape, axes, form, beside and form == "line")
            rows.finish(rule(rows))
            return
        except _NotOneAxis:
            ctx.back_to(mark)
        except _NoStages:
            ctx.back_to(mark)
            _lower_apart(ctx, group, rule, value, shape, axes)


def _are_many_short_rows(shape: Sequence[Dim], axes: Sequence[int]) -> bool:
    """Whether rows lie one after the other and fill no vector, or hardly one: the end of a row would take most of the time."""
    length = product([shape[axis] for axis in axes])
    rows = product([size for axis, size in enumerate(shape) if axis not in axes])
    trailing = sorted(axes) == list(range(len(shape) - len(axes), len(shape)))
    return trailing and isinstance(length, int) and isinstance(rows, int) and 1 < length <= _SHORT_ROW and rows >= _MANY_ROWS


def _lower_apart(
    ctx: LowerContext, group: Group, rule: RowRule, source: Value, shape: Sequence[Dim], axes: Sequence[int]
) -> None:
    """The root in one kernel over memory without gaps, what comes before and after it in loops."""
    assert group.root is not None
    (result,) = group.root.outputs
    if group.before:
        lower_loop(ctx, _part(group, group.before, ctx.shape(source)))
    given, wanted = ctx.view(source), ctx.output(result)
    made = wanted if wanted.is_contiguous else ctx.scratch(wanted.buffer.dtype, wanted.shape)
    ctx.set_view(source, ctx.contiguous(source))
    ctx.set_view(result, made)
    alone = Group(group.index, "template", group.shape, group.root, group.template, [group.root], group.region)
    rows = Rows(ctx, alone, source, shape, axes, "line")
    rows.finish(rule(rows))
    ctx.set_view(source, given)
    ctx.set_view(result, wanted)
    if made is not wanted:
        ctx.copy(made, wanted, "copy")
    if group.after:
        lower_loop(ctx, _part(group, group.after))


def wide(x: Expr) -> Expr:
    """A number as a float: integers as f64."""
    return x if x.type in FLOATS else x.cast("f64")
