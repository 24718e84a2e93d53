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
from sardonyx.kernel.expr import BITS, INTEGERS, SIGNED, Expr, binary, const, load, reduced, select, unary
from sardonyx.lower.groups import Group
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext, compute_type
from sardonyx.lower.registry import elementwise, template
from sardonyx.lower.views import with_axes
from sardonyx.ops.infer import normalize_axis
from sardonyx.program.steps import View, element_count

MICROSOFT: Final = "com.microsoft"


def quantized(x: Expr, scale: Expr, zero_point: Expr | None, out: str) -> Expr:
    """x / scale, rounded, from the zero point on, within the bounds of the type; NaN becomes the least number."""
    wide = "f64" if "f64" in (x.type, scale.type) or scale.type in INTEGERS else "f32"
    return saturated(x.cast(wide) / scale.cast(wide), None if zero_point is None else zero_point.cast(wide), out)


def saturated(value: Expr, zero_point: Expr | None, out: str) -> Expr:
    """A quotient, rounded, from the zero point on, within the bounds of the type; NaN becomes the least number."""
    value = unary("round", value)
    if zero_point is not None:
        value = value + zero_point
    if out == "i32":
        value = value.cast("f64")  # f32 has no 2**31 - 1
    low, high = (-(2 ** (BITS[out] - 1)), 2 ** (BITS[out] - 1) - 1) if out in SIGNED else (0, 2 ** BITS[out] - 1)
    bounded = binary("minr", binary("maxr", value, const(low, value.type)), const(high, value.type))
    return bounded.cast(out)


def dequantized(x: Expr, scale: Expr, zero_point: Expr | None, out: str) -> Expr:
    """The distance to the zero point times the scale."""
    wide = "f64" if scale.type == "f64" else "f32"
    if zero_point is None:
        centred = x.cast(wide)
    elif x.type == "i32":  # f32 does not hold every i32
        centred = (x.cast("i64") - zero_point.cast("i64")).cast(wide)
    else:
        centred = x.cast(wide) - zero_point.cast(wide)
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
def quantize_linear(x: Expr, scale: Expr, zero_point: Expr | None = None, *, out: str) -> Expr:
    return quantized(x, scale, zero_point, out)


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
