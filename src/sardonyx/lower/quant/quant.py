"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear as expressions; they mean what `ops/quant/quant.py` says.

With one scale they are elementwise nodes like others. With a scale for every slice of an axis they are loops of their own, in
which elementwise nodes may follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.kernel.expr import BITS, INTEGERS, Expr, binary, const, load, quotient, reduced, select, unary
from sardonyx.kernel.intervals import limits
from sardonyx.lower.groups import Group
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext, compute_type
from sardonyx.lower.registry import elementwise, template
from sardonyx.lower.views import with_axes
from sardonyx.ops.infer import normalize_axis
from sardonyx.program.steps import View, element_count

MICROSOFT: Final = "com.microsoft"


def quantized(x: Expr, scale: Expr, zero_point: Expr | None, out: str, *, ordinary: bool = False) -> Expr:
    """x / scale, rounded, from the zero point on, within the bounds of the type; NaN becomes the least number.

    `ordinary`: the scale is known, and as `LowerContext.expressions` says. Then nothing is divided.
    """
    wide = "f64" if "f64" in (x.type, scale.type) or scale.type in INTEGERS else "f32"
    if ordinary and wide == "f32" and BITS[out] <= 16:
        return _counted(quotient(x.cast(wide), scale.cast(wide), *_bounds(zero_point, out, wide)), zero_point, out)
    return saturated(x.cast(wide) / scale.cast(wide), zero_point, out)


def saturated(value: Expr, zero_point: Expr | None, out: str) -> Expr:
    """A quotient, rounded, from the zero point on, within the bounds of the type; NaN becomes the least number."""
    if BITS[out] <= 16:
        return _counted(_within(value, *_bounds(zero_point, out, value.type)), zero_point, out)
    value = unary("round", value)
    if zero_point is not None:
        value = value + zero_point.cast(value.type)
    low, high = limits(out)
    return _within(value.cast("f64"), const(low, "f64"), const(high, "f64")).cast(out)  # f32 has no 2**31 - 1


def _within(value: Expr, least: Expr, most: Expr) -> Expr:
    return binary("minr", binary("maxr", value, least), most)


def _bounds(zero_point: Expr | None, out: str, wide: str) -> tuple[Expr, Expr]:
    """The bounds of a type, seen from a zero point: a quotient within them is rounded and converted in one instruction."""
    low, high = (const(limit, wide) for limit in limits(out))
    origin = _unless_zero(zero_point)
    return (low, high) if origin is None else (low - origin.cast(wide), high - origin.cast(wide))


def _unless_zero(zero_point: Expr | None) -> Expr | None:
    return None if zero_point is None or (zero_point.op == "const" and zero_point.param == 0) else zero_point


def _counted(steps: Expr, zero_point: Expr | None, out: str) -> Expr:
    """So many steps, a number within `_bounds`, from a zero point on."""
    whole, origin = unary("round", steps).cast("i32"), _unless_zero(zero_point)
    return (whole if origin is None else whole + origin.cast("i32")).cast(out)


def distance(x: Expr, zero_point: Expr | None, wide: str = "f32") -> Expr:
    """How far a short integer is from a zero point, as a float; one that was just quantized is known to be a float already."""
    origin = _unless_zero(zero_point)
    found = _steps(x, origin)
    if found is not None:
        return found.cast(wide)
    whole = x.cast("i32")
    return (whole if origin is None else whole - origin.cast("i32")).cast(wide)


def _steps(x: Expr, zero_point: Expr | None) -> Expr | None:
    """The rounded quotient of an integer that was counted from a zero point on."""
    whole = x.args[0] if x.op == "cast" else x
    if zero_point is not None and whole.op == "add":
        whole = whole.args[0]
    steps = whole.args[0] if whole.op == "cast" else whole
    if steps.op != "round" or _counted(steps.args[0], zero_point, x.type) is not x:
        return None
    bounded = steps.args[0]
    least, most = _bounds(zero_point, x.type, steps.type)
    if bounded.op == "quotient":
        return steps if bounded.args[2:] == (least, most) else None
    is_within = bounded.op == "minr" and bounded.args[1] is most and bounded.args[0].op == "maxr"
    return steps if is_within and bounded.args[0].args[1] is least else None


def dequantized(x: Expr, scale: Expr, zero_point: Expr | None, out: str) -> Expr:
    """The distance to the zero point times the scale."""
    wide = "f64" if scale.type == "f64" else "f32"
    if BITS[x.type] <= 16:
        centred = distance(x, zero_point, wide)
    elif zero_point is None:
        centred = x.cast(wide)
    else:  # f32 does not hold every i32
        centred = (x.cast("i64") - zero_point.cast("i64")).cast(wide)
    return (centred * scale.cast(wide)).cast(compute_type(out))


def _parameters(node: Node) -> list[Value]:
    return [value for value in node.inputs[1:3] if value is not None]


def _is_plain(node: Node) -> bool:
    """Whether the attributes ask for nothing that has no expression."""
    attrs = attribute_values(node)
    precision = attrs.get("precision")
    result = node.outputs[0].type
    quantizes = node.op_type == "QuantizeLinear"
    return (
        not attrs.get("block_size")
        and (not precision or dtypes.from_onnx(precision).name == "f32")
        and isinstance(result, TensorType)
        and (not quantizes or result.dtype.name in ("i8", "u8", "i16", "u16", "i32"))
    )


def _has_one_scale(node: Node) -> bool:
    rank = len((node.inputs[0].shape if node.inputs[0] is not None else None) or ())
    shapes = [value.shape for value in _parameters(node)]
    return _is_plain(node) and all(shape is not None and len(shape) <= rank and set(shape) <= {1} for shape in shapes)


@elementwise("QuantizeLinear", domain=MICROSOFT, where=_has_one_scale)
@elementwise("QuantizeLinear", since=10, where=_has_one_scale)
def quantize_linear(x: Expr, scale: Expr, zero_point: Expr | None = None, *, out: str, ordinary: tuple[bool, ...]) -> Expr:
    return quantized(x, scale, zero_point, out, ordinary=ordinary[1])


@elementwise("DequantizeLinear", domain=MICROSOFT, where=_has_one_scale)
@elementwise("DequantizeLinear", since=10, where=_has_one_scale)
def dequantize_linear(x: Expr, scale: Expr, zero_point: Expr | None = None, *, out: str) -> Expr:
    return dequantized(x, scale, zero_point, out)


def _accepts_slices(node: Node) -> str:
    if not _is_plain(node):
        return "blocks, another precision, or a type without a kernel"
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    if not shape or any(len(value.shape or ()) != 1 for value in _parameters(node)):
        return "a scale that is neither one number nor has one axis"
    return ""


@template("QuantizeLinear", "DequantizeLinear", domain=MICROSOFT, accepts=_accepts_slices, fuses=True)
@template("QuantizeLinear", "DequantizeLinear", since=13, accepts=_accepts_slices, fuses=True)
def of_slices(ctx: LowerContext, group: Group) -> None:
    """A scale, and perhaps a zero point, for every slice of an axis."""
    node = group.root
    assert node is not None
    assert node.inputs[0] is not None
    shape = ctx.shape(node.inputs[0])
    axis = 0 if len(shape) == 1 else normalize_axis(attribute_values(node).get("axis", 1), len(shape))
    others = tuple(number for number in range(len(shape)) if number != axis)
    views: list[View] = [ctx.view(node.inputs[0])]
    for value in _parameters(node):
        ctx.check_broadcast(ctx.shape(value), (shape[axis],))
        views.append(with_axes(ctx.view(value), others))
    leaves = [_leaf(number, view) for number, view in enumerate(views)]
    rule = quantized if node.op_type == "QuantizeLinear" else dequantized
    result = rule(leaves[0], leaves[1], leaves[2] if len(leaves) > 2 else None, ctx.dtype(node.outputs[0]).name)
    numbers: dict[Value, int] = {}

    def operand(value: Value) -> int:
        if value not in numbers:
            numbers[value] = len(views)
            views.append(ctx.view(value))
        return numbers[value]

    made = ctx.expressions(group, {node.outputs[0]: result}, operand)
    stores = []
    for value in ctx.escaping(group):
        stores.append((len(views), made[value].cast(ctx.dtype(value).name)))
        views.append(ctx.output(value))
    if stores:
        types = [view.buffer.dtype.name for view in views]
        nodes = tuple(one.label for one in group.nodes)
        ctx.step(loop_step(shape, views, types, stores, target=ctx.target, label=group.label, nodes=nodes))


def _leaf(number: int, view: View) -> Expr:
    name = view.buffer.dtype.name
    return load(number, name).cast(compute_type(name))


def _accepts_dynamic(node: Node) -> str:
    return "" if node.outputs[0].shape else "a tensor without axes"


@template("DynamicQuantizeLinear", accepts=_accepts_dynamic, writes_anywhere=True)
def dynamic_quantize_linear(ctx: LowerContext, group: Group) -> None:
    """A scale and a zero point that fit the range of the tensor, widened to hold 0; and the tensor quantized by them."""
    node = group.root
    assert node is not None
    assert node.inputs[0] is not None
    values, scale, zero_point = (ctx.output(value) for value in node.outputs)
    dynamic_steps(ctx, group, ctx.untransposed(node.inputs[0]), values, scale, zero_point)


def dynamic_steps(ctx: LowerContext, group: Group, x: View, values: View, scale: View, zero_point: View) -> None:
    """The steps of a quantization by the range of a tensor: of its rows, of all of them, and then every element."""
    nodes = tuple(one.label for one in group.nodes)

    def step(shape: Sequence[Dim], views: list[View], label: str, **what: Any) -> None:
        types = [view.buffer.dtype.name for view in views]
        stores = what.pop("stores", ())
        ctx.step(loop_step(shape, views, types, stores, target=ctx.target, label=label, nodes=nodes, **what))

    rows = x.shape[:-1]
    count = element_count(rows)
    low, high = (ctx.scratch(dtypes.FLOAT32, rows, f"{which} of rows") for which in ("least", "largest"))
    along = [View(view.buffer, x.shape, (*view.strides, 0)) for view in (low, high)]
    limits = [(1 + number, reduced(kind, load(0, "f32"), number)) for number, kind in enumerate(("minnum", "maxnum"))]
    step(x.shape, [x, *along], f"range of rows for {group.label}", results=limits, reduce="inner")

    least, largest = (reduced(kind, load(number, "f32"), number) for number, kind in enumerate(("minnum", "maxnum")))
    lowest, highest = binary("minr", least, const(0.0, "f32")), binary("maxr", largest, const(0.0, "f32"))
    span = highest - lowest
    factor = select(span > 0.0, span / const(255.0, "f32"), const(1.0, "f32"))
    origin = quantized(-lowest, factor, None, "u8")
    flat = [View(view.buffer, (count,), (1,)) for view in (low, high)]
    once = [View(view.buffer, (count,), (0,), view.offset) for view in (scale, zero_point)]
    step((count,), [*flat, *once], f"range for {group.label}", results=[(2, factor), (3, origin)], reduce="inner")

    single = [View(view.buffer, (), (), view.offset) for view in (scale, zero_point)]
    result = quantized(load(0, "f32"), load(1, "f32"), load(2, "u8"), "u8")
    step(x.shape, [x, *single, values], group.label, stores=[(3, result)])
