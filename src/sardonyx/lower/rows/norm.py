"""Normalisations as rules over rows; they mean what `ops/rows/norm.py` and `ops/rows/contrib_norm.py` say.

The variance is the mean of squared deviations from the mean (`Rows.squared_deviations`): the mean of squares minus the square of
the mean would lose digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import Node, Value
from sardonyx.kernel.expr import Expr, const, fma, load, select, sqrt, unary
from sardonyx.kernel.math import rsqrt, sigmoid
from sardonyx.lower.groups import Group
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext, compute_type
from sardonyx.lower.registry import template
from sardonyx.lower.rows.rows import Made, Rows, lower_rows
from sardonyx.ops.infer import normalize_axis
from sardonyx.program.steps import View

_MICROSOFT = "com.microsoft"


def _root(group: Group) -> Node:
    assert group.root is not None
    return group.root


def _source(node: Node) -> Value:
    assert node.inputs[0] is not None
    return node.inputs[0]


def _input(node: Node, position: int) -> Value | None:
    return node.inputs[position] if len(node.inputs) > position else None


def _output(node: Node, position: int) -> Value | None:
    """An output somebody named."""
    value = node.outputs[position] if len(node.outputs) > position else None
    return value if value is not None and value.name else None


def standardized(rows: Rows, x: Expr, epsilon: float) -> tuple[Expr, Expr, Expr]:
    """x - mean, the mean, and the reciprocal of the standard deviation."""
    mean = rows.mean(x)
    variance = rows.squared_deviations(x, mean) / rows.count(x.type)
    return x - mean, mean, rsqrt(variance + epsilon)


def _with_scale(rows: Rows, distance: Expr, factor: Expr, scale: Value | None, bias: Value | None) -> Expr:
    """distance * factor * scale + bias."""
    result = distance * factor
    if scale is not None and bias is not None:
        return fma(result, rows.leaf(scale).cast(result.type), rows.leaf(bias).cast(result.type))
    if scale is not None:
        result = result * rows.leaf(scale).cast(result.type)
    return result if bias is None else result + rows.leaf(bias).cast(result.type)


def _statistics(node: Node, first: int, values: Sequence[Expr]) -> dict[Value, Expr]:
    named = ((_output(node, first + number), value) for number, value in enumerate(values))
    return {output: value for output, value in named if output is not None}


def _trailing_axes(ctx: LowerContext, node: Node) -> tuple[int, ...]:
    rank = len(ctx.shape(_source(node)))
    return tuple(range(normalize_axis(attribute_values(node)["axis"], rank), rank))


def _fits(node: Node, *positions: int) -> str:
    """Whether scale and bias broadcast to the input: of no more axes than it has, and of its sizes where they are known."""
    shape = _source(node).shape or ()
    for position in positions:
        value = _input(node, position)
        own = value.shape or () if value is not None else ()
        if len(own) > len(shape) or any(
            b != 1 and isinstance(b, int) and isinstance(a, int) and a != b for a, b in zip(shape[::-1], own[::-1])
        ):
            return f"{value.name!r} does not broadcast to the input" if value is not None else ""
    return ""


@template("LayerNormalization", accepts=lambda node: _fits(node, 1, 2), fuses=True, absorbs=True)
def layer_normalization(ctx: LowerContext, group: Group) -> None:
    node = _root(group)
    epsilon = attribute_values(node)["epsilon"]

    def rule(rows: Rows) -> Made:
        distance, mean, factor = standardized(rows, rows.x, epsilon)
        result = _with_scale(rows, distance, factor, _input(node, 1), _input(node, 2))
        return Made({rows.output: result}, _statistics(node, 1, (mean, factor)))

    lower_rows(ctx, group, rule, _trailing_axes(ctx, node))


def _by_root_mean_square(rows: Rows, x: Expr, epsilon: float) -> Expr:
    return rsqrt(rows.mean(x * x) + epsilon)


@template("RMSNormalization", "SimplifiedLayerNormalization", accepts=lambda node: _fits(node, 1), fuses=True, absorbs=True)
def rms_normalization(ctx: LowerContext, group: Group) -> None:
    node = _root(group)
    epsilon = attribute_values(node)["epsilon"]

    def rule(rows: Rows) -> Made:
        factor = _by_root_mean_square(rows, rows.x, epsilon)
        return Made({rows.output: _with_scale(rows, rows.x, factor, _input(node, 1), None)}, _statistics(node, 1, (factor,)))

    lower_rows(ctx, group, rule, _trailing_axes(ctx, node))


def _skip_fits(node: Node) -> str:
    """The sum must have the shape of the input, which has 2 or 3 axes; gamma, beta and bias are as long as a row."""
    shape, skip = _source(node).shape or (), _input(node, 1)
    if len(shape) not in (2, 3):
        return f"the input has {len(shape)} axes, expected 2 or 3"
    own = skip.shape or () if skip is not None else ()
    if own[-2:] != shape[-2:] or len(own) > len(shape):
        return "the last two axes of input and skip do not agree"
    for value in node.inputs[2:]:
        if value is not None and value.shape != shape[-1:]:
            return f"{value.name!r} is not as long as a row of the input"
    return ""


@template(
    "SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=_MICROSOFT, accepts=_skip_fits, fuses=True, absorbs=True
)
def skip_layer_normalization(ctx: LowerContext, group: Group) -> None:
    """The sum of input, skip and bias is the fourth output."""
    node = _root(group)
    simplified = node.op_type == "SkipSimplifiedLayerNormalization"
    epsilon = attribute_values(node)["epsilon"]
    skip, gamma = _input(node, 1), _input(node, 2)
    assert skip is not None
    beta, bias = (None, _input(node, 3)) if simplified else (_input(node, 3), _input(node, 4))
    total_output = _output(node, 3)

    def rule(rows: Rows) -> Made:
        total = rows.x + rows.leaf(skip)
        if bias is not None:
            total = total + rows.leaf(bias)
        rows.kept(total)
        if simplified:
            distance, factor = total, _by_root_mean_square(rows, total, epsilon)
            results = _statistics(node, 2, (factor,))
        else:
            distance, mean, factor = standardized(rows, total, epsilon)
            results = _statistics(node, 1, (mean, factor))
        full = {rows.output: _with_scale(rows, distance, factor, gamma, beta)}
        if total_output is not None:
            full[total_output] = total
        return Made(full, results)

    lower_rows(ctx, group, rule, (len(ctx.shape(_source(node))) - 1,))


def _along(view: View, rank: int, axis: int) -> View:
    """One value for each position of an axis, over a shape of some rank."""
    shape: list[Dim] = [1] * rank
    strides: list[Dim] = [0] * rank
    shape[axis], strides[axis] = view.shape[0], view.strides[0]
    return View(view.buffer, tuple(shape), tuple(strides), view.offset)


def _per_channel(rows: Rows, value: Value) -> Expr:
    return rows.leaf(value, _along(rows.ctx.view(value), len(rows.shape), 1)).cast(rows.x.type)


def _has_channels(node: Node, least: int, *positions: int) -> str:
    shape = _source(node).shape or ()
    if len(shape) < least:
        return f"the input has {len(shape)} axes, expected at least {least}"
    for position in positions:
        value = _input(node, position)
        if value is not None and value.shape != (shape[1],):
            return f"{value.name!r} does not have one value for each channel"
    return ""


@template("InstanceNormalization", accepts=lambda node: _has_channels(node, 3, 1, 2), fuses=True, absorbs=True)
def instance_normalization(ctx: LowerContext, group: Group) -> None:
    node = _root(group)
    scale, bias = _input(node, 1), _input(node, 2)
    assert scale is not None
    assert bias is not None
    epsilon = attribute_values(node)["epsilon"]

    def rule(rows: Rows) -> Made:
        distance, _, factor = standardized(rows, rows.x, epsilon)
        return Made({rows.output: fma(distance, factor * _per_channel(rows, scale), _per_channel(rows, bias))})

    lower_rows(ctx, group, rule, range(2, len(ctx.shape(_source(node)))))


def _groups_fit(node: Node) -> str:
    """Channels must be a known multiple of the groups, and scale and bias as many as channels (or, before opset 21, groups)."""
    shape, groups = _source(node).shape or (), attribute_values(node).get("num_groups")
    if len(shape) < 2 or not isinstance(shape[1], int) or not groups or shape[1] % groups:
        return "the channels are not known to be a multiple of num_groups"
    wanted = shape[1] if node.version >= 21 else groups
    for value in node.inputs[1:3]:
        if value is None or value.shape != (wanted,):
            return "scale and bias do not fit the channels"
    return ""


@template("GroupNormalization", accepts=_groups_fit, fuses=True, absorbs=True)
def group_normalization(ctx: LowerContext, group: Group) -> None:
    node = _root(group)
    scale, bias = _input(node, 1), _input(node, 2)
    assert scale is not None
    assert bias is not None
    attrs = attribute_values(node)
    _normalize_groups(ctx, group, attrs["num_groups"], attrs["epsilon"], scale, bias, by_group=node.version < 21)


def _normalize_groups(
    ctx: LowerContext,
    group: Group,
    groups: int,
    epsilon: float,
    scale: Value,
    bias: Value,
    *,
    by_group: bool = False,
    finish: Callable[[Expr], Expr] = lambda value: value,
) -> None:
    def parameter(rows: Rows, value: Value) -> Expr:
        view, rank = ctx.view(value), len(rows.shape)
        if by_group:
            return rows.leaf(value, _along(view, rank, 1)).cast(rows.x.type)
        each, step = rows.shape[2], view.strides[0]
        divided = View(
            view.buffer, (1, groups, each, *(1,) * (rank - 3)), (0, step * each, step, *(0,) * (rank - 3)), view.offset
        )
        return rows.leaf(value, divided).cast(rows.x.type)

    def rule(rows: Rows) -> Made:
        distance, _, factor = standardized(rows, rows.x, epsilon)
        return Made({rows.output: finish(fma(distance, factor * parameter(rows, scale), parameter(rows, bias)))})

    rank = len(ctx.shape(_source(_root(group))))
    lower_rows(ctx, group, rule, range(2, rank + 1), split=groups)


def _channels_first(node: Node) -> str:
    attrs = attribute_values(node)
    shape, groups = _source(node).shape or (), attrs.get("groups")
    if attrs.get("channels_last"):
        return "channels are the last axis"
    if len(shape) < 3 or not isinstance(shape[1], int) or not groups or shape[1] % groups:
        return "the channels are not known to be a multiple of groups"
    return _has_channels(node, 3, 1, 2)


@template("GroupNorm", domain=_MICROSOFT, accepts=_channels_first, fuses=True, absorbs=True)
def group_norm(ctx: LowerContext, group: Group) -> None:
    node = _root(group)
    attrs = attribute_values(node)
    gamma, beta = _input(node, 1), _input(node, 2)
    assert gamma is not None
    assert beta is not None
    finish = (lambda x: x * sigmoid(x)) if attrs["activation"] else (lambda x: x)
    _normalize_groups(ctx, group, attrs["groups"], attrs["epsilon"], gamma, beta, finish=finish)


@template("LpNormalization", fuses=True, absorbs=True)
def lp_normalization(ctx: LowerContext, group: Group) -> None:
    """Where the norm is 0, so is the result."""
    node = _root(group)
    attrs = attribute_values(node)

    def rule(rows: Rows) -> Made:
        x = rows.x
        size = rows.total("sum", unary("abs", x)) if attrs["p"] == 1 else sqrt(rows.total("sum", x * x))
        return Made({rows.output: select(size.eq(0.0), const(0, x.type), x / size)})

    lower_rows(ctx, group, rule, (normalize_axis(attrs["axis"], len(ctx.shape(_source(node)))),))


@template("MeanVarianceNormalization", fuses=True, absorbs=True)
def mean_variance_normalization(ctx: LowerContext, group: Group) -> None:
    node = _root(group)
    rank = len(ctx.shape(_source(node)))

    def rule(rows: Rows) -> Made:
        mean = rows.mean(rows.x)
        deviation = sqrt(rows.squared_deviations(rows.x, mean) / rows.count(rows.x.type))
        return Made({rows.output: (rows.x - mean) / (deviation + 1e-9)})

    lower_rows(ctx, group, rule, sorted({normalize_axis(axis, rank) for axis in attribute_values(node)["axes"]}))


def _only_applies(node: Node) -> str:
    """Why a BatchNormalization is more than a scale and a shift for each channel, or ""."""
    attrs = attribute_values(node)
    if attrs.get("training_mode") or (node.version < 14 and any(value.name for value in node.outputs[1:])):
        return "it computes statistics"
    if attrs.get("spatial", 1) == 0:
        return "every position has parameters of its own"
    return _has_channels(node, 2, 1, 2, 3, 4)


@template("BatchNormalization", accepts=_only_applies, fuses=True)
def batch_normalization(ctx: LowerContext, group: Group) -> None:
    """(x - mean) * factor + bias, with the factor computed where it is used: once for each row of a channel.

    As x * factor + shift it would lose all digits where the variance is nearly zero.
    """
    node = _root(group)
    epsilon = attribute_values(node)["epsilon"]
    views: list[View] = []
    numbers: dict[Value, int] = {}

    def operand(value: Value) -> int:
        if value not in numbers:
            numbers[value] = len(views)
            views.append(ctx.view(value))
        return numbers[value]

    source = _source(node)
    rank = len(ctx.shape(source))
    kind = ctx.dtype(source).name
    x = load(operand(source), kind).cast(compute_type(kind))
    leaves = []
    for value in node.inputs[1:5]:
        assert value is not None
        own = ctx.dtype(value).name
        leaves.append(load(len(views), own).cast(compute_type(own)))
        views.append(_along(ctx.view(value), rank, 1))
    scale, bias, mean, variance = leaves
    factor = scale.cast(variance.type) / sqrt(variance + epsilon)
    wide = mean.type if mean.type == "f64" else x.type
    centred = x.cast(wide) - mean.cast(wide)
    result = fma(centred, factor.cast(wide), bias.cast(wide)).cast(x.type)
    made = ctx.expressions(group, {node.outputs[0]: result}, operand)
    stores = []
    for value in ctx.escaping(group):
        stores.append((len(views), made[value].cast(ctx.dtype(value).name)))
        views.append(ctx.output(value))
    types = [view.buffer.dtype.name for view in views]
    names = tuple(node.label for node in group.nodes)
    ctx.step(loop_step(ctx.shape(source), views, types, stores, target=ctx.target, label=group.label, nodes=names))
