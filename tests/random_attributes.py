"""Operators of random models with all of their attributes: windows, transposed convolutions, pools, Resize, recurrent cells,
norms, quantized chains, integers that overflow, casts."""

from __future__ import annotations

from typing import Any

import numpy as np

from random_models import BOOL, FLOATS, Grower, Item
from sardonyx import dtypes

I64 = np.int64
WIDE_INTEGERS = tuple(np.dtype(name) for name in ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64"))


def _i64(*items: int) -> Any:
    return np.array(items, I64)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _image(g: Grower) -> Item:
    return g.floats(lambda item: item.rank in (3, 4, 5) and item.static(1) and item.size(1) > 0)


def conv_any(g: Grower) -> None:
    x = _image(g)
    spatial, channels = x.rank - 2, x.size(1)
    group = g.random.choice(_divisors(channels))
    outputs = group * g.random.choice((1, 2, 3, 4, 8, 16))
    kernel = [g.random.choice((1, 2, 3, 3, 4, 5, 7)) for _ in range(spatial)]
    if g.chance(3):
        kernel = [kernel[0]] * spatial
    attrs: dict[str, Any] = {"group": group}
    if g.chance(2):
        attrs["strides"] = [g.random.choice((1, 2, 3, 4)) for _ in range(spatial)]
    if g.chance(2):
        attrs["dilations"] = [g.random.choice((1, 1, 2, 3)) for _ in range(spatial)]
    if g.chance(3):
        attrs["kernel_shape"] = kernel
    if g.chance(3):
        attrs["auto_pad"] = g.random.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif g.chance(2):
        attrs["pads"] = [g.random.choice((0, 1, 2, 3, 5)) for _ in range(2 * spatial)]
    else:
        attrs["pads"] = [(size - 1) // 2 for size in kernel] * 2
    bias = [g.weights(x.dtype, outputs)] if g.chance(2) else []
    weights = np.asarray(g.weights(x.dtype, outputs, channels // group, *kernel) * np.asarray(0.5).astype(x.dtype))
    (made,) = g.put("Conv", x, weights, *bias, exact=False, **attrs)
    if g.chance(2):
        (made,) = g.put(g.random.choice(("Relu", "Sigmoid", "HardSwish", "Tanh")), made)
    if g.chance(3):
        other = g.pick(lambda item: item.dtype == made.dtype and [a.shape for a in item.arrays] == [b.shape for b in made.arrays])
        g.put("Add", made, other, exact=False)


def conv_transpose_any(g: Grower) -> None:
    x = _image(g)
    spatial, channels = x.rank - 2, x.size(1)
    group = g.random.choice(_divisors(channels))
    kernel = [g.random.choice((1, 2, 3, 4, 5)) for _ in range(spatial)]
    strides = [g.random.choice((1, 2, 3)) for _ in range(spatial)]
    dilations = [g.random.choice((1, 1, 1, 2)) for _ in range(spatial)]
    if g.chance(2):
        kernel, strides = [kernel[0]] * spatial, [strides[0]] * spatial
    attrs: dict[str, Any] = {"group": group, "strides": strides, "dilations": dilations}
    if g.chance(2):
        attrs["output_padding"] = [g.random.randrange(max(a, b)) for a, b in zip(strides, dilations)]
    kind = g.random.randrange(4)
    if kind == 0 and all(x.static(axis) for axis in range(2, x.rank)):
        full = [(x.size(n + 2) - 1) * strides[n] + (kernel[n] - 1) * dilations[n] + 1 for n in range(spatial)]
        attrs["output_shape"] = [max(1, size - g.random.randrange(3)) for size in full]
    elif kind == 1:
        attrs["auto_pad"] = g.random.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    else:
        attrs["pads"] = [g.random.choice((0, 0, 1, 2)) for _ in range(2 * spatial)]
    outputs = g.random.choice((1, 2, 3, 8, 16))
    bias = [g.weights(x.dtype, outputs * group)] if g.chance(2) else []
    weights = np.asarray(g.weights(x.dtype, channels, outputs, *kernel) * np.asarray(0.5).astype(x.dtype))
    g.put("ConvTranspose", x, weights, *bias, exact=False, **attrs)


def pool_any(g: Grower) -> None:
    x = g.floats(lambda item: item.rank in (3, 4, 5))
    spatial = x.rank - 2
    name = g.random.choice(("MaxPool", "AveragePool", "LpPool", "GlobalLpPool"))
    if name == "GlobalLpPool":
        g.put(name, x, p=g.random.choice((1, 2, 3)), exact=False)
        return
    kernel = [g.random.choice((1, 2, 3, 4)) for _ in range(spatial)]
    attrs: dict[str, Any] = {"kernel_shape": kernel, "ceil_mode": g.random.randrange(2)}
    if g.chance(2):
        attrs["strides"] = [g.random.choice((1, 2, 3)) for _ in range(spatial)]
    if g.chance(2):
        attrs["dilations"] = [g.random.choice((1, 2)) for _ in range(spatial)]
    if g.chance(3):
        attrs["auto_pad"] = g.random.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif g.chance(3):
        attrs["pads"] = [g.random.randrange(kernel[n % spatial]) for n in range(2 * spatial)]
    if name == "AveragePool":
        attrs["count_include_pad"] = g.random.randrange(2)
    if name == "LpPool":
        attrs["p"] = g.random.choice((1, 2, 3))
    count = 2 if name == "MaxPool" and x.exact and g.chance(3) else 1
    if count == 2 and g.chance(2):
        attrs["storage_order"] = 1
    g.put(name, x, count=count, exact=x.exact and name == "MaxPool", **attrs)


def resize_any(g: Grower) -> None:
    x = g.floats(lambda item: 0 < item.rank <= 5)
    mode = g.random.choice(("nearest", "linear", "cubic"))
    rules = ("half_pixel", "half_pixel_symmetric", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_crop_and_resize")
    rule = g.random.choice(rules)
    axes = sorted(g.random.sample(range(x.rank), g.random.randint(1, min(2, x.rank))))
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": rule, "axes": axes}
    if mode == "nearest":
        attrs["nearest_mode"] = g.random.choice(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    elif g.chance(3):
        attrs["antialias"] = 1
    if mode == "cubic":
        attrs["cubic_coeff_a"] = g.random.choice((-0.75, -0.5))
        attrs["exclude_outside"] = g.random.randrange(2)
    roi: Any = None
    if rule == "tf_crop_and_resize":
        roi = np.array([*(0.1 for _ in axes), *(g.random.choice((0.8, 1.2)) for _ in axes)], np.float32)
        attrs["extrapolation_value"] = 2.5
    if g.chance(2):
        attrs["keep_aspect_ratio_policy"] = g.random.choice(("stretch", "not_larger", "not_smaller"))
        g.put("Resize", x, roi, None, _i64(*(g.random.randint(1, 9) for _ in axes)), exact=False, **attrs)
    else:
        scales = np.array([g.random.choice((0.4, 0.5, 0.7, 1, 1.5, 2, 3, 3.3)) for _ in axes], np.float32)
        g.put("Resize", x, roi, scales, exact=False, **attrs)


ACTIVATIONS = ("Sigmoid", "Tanh", "Relu", "HardSigmoid", "Softsign", "Softplus", "Elu", "LeakyRelu", "Affine", "ScaledTanh")


def recurrent_any(g: Grower) -> None:
    x = g.floats(lambda item: item.rank == 3 and item.static(2) and item.size(2) > 0 and item.dtype == FLOATS[0])
    name, gates, functions = g.random.choice((("LSTM", 4, 3), ("GRU", 3, 2), ("RNN", 1, 1)))
    hidden, both = g.random.choice((1, 3, 8, 17)), g.random.randrange(2)
    attrs: dict[str, Any] = {"hidden_size": hidden}
    attrs["direction"] = "bidirectional" if both else g.random.choice(("forward", "reverse"))
    if g.chance(3):
        attrs["layout"] = 1
    if g.chance(3):
        attrs["clip"] = 0.7
    if name == "LSTM" and g.chance(3):
        attrs["input_forget"] = 1
    if name == "GRU" and g.chance(2):
        attrs["linear_before_reset"] = 1
    if g.chance(3):
        attrs["activations"] = [g.random.choice(ACTIVATIONS) for _ in range(functions * (1 + both))]
    batched = attrs.get("layout", 0)
    batch_axis, time_axis = (0, 1) if batched else (1, 0)
    batch_known = x.static(batch_axis) and x.size(batch_axis) > 0
    half = np.asarray(0.5).astype(x.dtype)
    weights = np.asarray(g.weights(x.dtype, 1 + both, gates * hidden, x.size(2)) * half)
    back = np.asarray(g.weights(x.dtype, 1 + both, gates * hidden, hidden) * half)
    inputs: list[Any] = [x, weights, back, g.weights(x.dtype, 1 + both, 2 * gates * hidden) if g.chance(2) else None]
    lengths: Any = None
    if batch_known and g.chance(3) and x.size(time_axis) > 0:
        lengths = np.array([g.random.randint(0, x.size(time_axis)) for _ in range(x.size(batch_axis))], np.int32)
    inputs.append(lengths)
    if batch_known and g.chance(2):
        shape = (x.size(0), 1 + both, hidden) if batched else (1 + both, x.size(1), hidden)
        inputs.append(g.weights(x.dtype, *shape))
        if name == "LSTM":
            inputs.append(g.weights(x.dtype, *shape))
    if name == "LSTM" and g.chance(3):
        inputs += [None] * (7 - len(inputs))
        inputs.append(g.weights(x.dtype, 1 + both, 3 * hidden))
    while inputs[-1] is None:
        inputs.pop()
    g.put(name, *inputs, count=3 if name == "LSTM" else 2, exact=False, **attrs)


def norm_any(g: Grower) -> None:
    """Norms over any axes, with all their outputs."""
    x = g.floats(lambda item: item.rank > 0 and item.is_float)
    kind = g.random.randrange(5)
    if kind == 0:
        axis = g.random.randrange(x.rank)
        if not all(x.static(n) and x.size(n) for n in range(axis, x.rank)):
            raise StopIteration
        shape = [x.size(n) for n in range(axis, x.rank)]
        if g.chance(3):
            shape = [g.random.choice((size, 1)) for size in shape]
        bias = [g.weights(x.dtype, *shape)] if g.chance(2) else []
        count = g.random.choice((1, 1, 2, 3)) if x.dtype == FLOATS[0] else 1
        axis_given = axis - x.rank if g.chance(2) else axis
        g.put("LayerNormalization", x, g.weights(x.dtype, *shape), *bias, count=count, axis=axis_given, epsilon=0.01, exact=False)
    elif kind == 1:
        name = g.random.choice(("Softmax", "LogSoftmax", "Hardmax"))
        if name == "Hardmax" and not x.exact:
            raise StopIteration
        g.put(name, x, axis=g.axis(x), exact=False)
    elif kind == 2:
        if not x.exact:  # what is nothing but rounding errors is no longer small afterwards
            raise StopIteration
        g.put("LpNormalization", x, axis=g.axis(x), p=g.random.choice((1, 2)), exact=False)
    elif kind == 3:
        if x.rank < 3 or not x.exact:
            raise StopIteration
        axes = sorted(g.random.sample(range(x.rank), g.random.randint(1, x.rank)))
        (wide,) = g.put("Sin", x, exact=False)
        g.put("LRN", wide, size=g.random.choice((1, 3, 5)), alpha=0.1, exact=False) if x.rank == 4 else None
        g.put("ReduceMean", wide, _i64(*axes), keepdims=g.random.randrange(2), exact=False)
    else:
        if x.rank < 3 or not x.static(1) or not x.size(1):
            raise StopIteration
        channels = x.size(1)
        scale, bias_ = g.weights(x.dtype, channels), g.weights(x.dtype, channels)
        if g.chance(2):
            g.put("InstanceNormalization", x, scale, bias_, exact=False, epsilon=0.01)
        else:
            groups = g.random.choice(_divisors(channels))
            g.put("GroupNormalization", x, scale, bias_, num_groups=groups, exact=False, epsilon=0.01)


def quantized(g: Grower) -> None:
    """A value in eight bits and back: by one scale, one for each of an axis, or blocks."""
    x = g.floats(lambda item: item.exact and item.dtype == FLOATS[0] and item.rank > 0)
    kind = g.random.choice((np.int8, np.uint8, np.int16, np.uint16))
    axis = g.random.randrange(x.rank)
    shape: tuple[int, ...] = (x.size(axis),) if x.static(axis) and x.size(axis) and g.chance(2) else ()
    scale = np.asarray(2.0 ** np.random.default_rng(g.random.randrange(1 << 30)).integers(-6, -1, shape), np.float32)
    zero = np.asarray(np.random.default_rng(g.random.randrange(1 << 30)).integers(0, 9, shape), kind)
    given = g.axis(x, negative=False) if not shape else axis
    (small,) = g.put("QuantizeLinear", x, scale, zero, axis=given)
    (back,) = g.put("DequantizeLinear", small, scale, zero, axis=given)
    if g.chance(2) and x.rank >= 3 and x.static(1) and x.size(1) and kind in (np.int8, np.uint8):
        weights = (
            np.random.default_rng(g.random.randrange(1 << 30))
            .integers(-9, 9, (8, x.size(1), *[3] * (x.rank - 2)))
            .astype(np.int8)
        )
        own = np.full((8,), 0.0625, np.float32) if g.chance(2) else np.asarray(0.0625, np.float32)
        zeros = np.zeros(own.shape, np.int8)
        (kernel,) = g.put("DequantizeLinear", weights, own, zeros, axis=0, exact=True)
        (made,) = g.put("Conv", back, kernel, auto_pad="SAME_UPPER", exact=False)
        if g.chance(2):
            (made,) = g.put("Relu", made)
    elif g.chance(2) and x.static(x.rank - 1) and x.size(x.rank - 1) and kind in (np.int8, np.uint8):
        weights = np.random.default_rng(g.random.randrange(1 << 30)).integers(-9, 9, (x.size(x.rank - 1), 16)).astype(np.int8)
        (kernel,) = g.put("DequantizeLinear", weights, np.asarray(0.0625, np.float32), np.asarray(0, np.int8), exact=True)
        g.put("MatMul", back, kernel, exact=False)


def integer_product(g: Grower) -> None:
    x = g.pick(lambda item: item.dtype.name in ("int8", "uint8") and item.rank >= 2 and item.static(item.rank - 1))
    inner = x.size(x.rank - 1)
    kind = g.random.choice((np.int8, np.uint8))
    generator = np.random.default_rng(g.random.randrange(1 << 30))
    weights = generator.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, (inner, g.random.choice((1, 5, 16, 33)))).astype(
        kind
    )
    zeros: list[Any] = []
    if g.chance(2):
        zeros = [np.asarray(3, x.dtype)] if g.chance(2) else [np.asarray(3, x.dtype), np.asarray(2, kind)]
    g.put("MatMulInteger", x, weights, *zeros, exact=True)


def integers_any(g: Grower) -> None:
    """Arithmetic at the ends of the range of a type."""
    kind = g.random.choice(WIDE_INTEGERS)
    x = g.pick(lambda item: (item.is_integer or item.dtype in WIDE_INTEGERS) and item.exact)
    if x.dtype != kind and g.chance(2):
        (x,) = g.put("Cast", x, to=dtypes.from_numpy(kind).onnx)
    limits = np.iinfo(x.dtype)
    name = g.random.choice(
        ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "BitwiseAnd", "BitwiseOr", "BitwiseNot", "BitShift", "Abs", "Neg",
         "Sign", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "Pow", "CumSum", "Clip", "Relu")
    )  # fmt: skip
    ends = (int(limits.min), int(limits.max), 1, 2, 3, int(limits.max) - 1, 7)
    other: Any = np.asarray(g.random.choice(ends), x.dtype)
    if name in ("Abs", "Sign", "BitwiseNot", "Neg", "Relu"):
        if name in ("Neg", "Relu") and x.dtype.kind == "u":
            raise StopIteration
        g.put(name, x)
    elif name == "BitShift":
        if x.dtype.kind != "u":
            raise StopIteration
        g.put(
            name, x, np.asarray(g.random.randrange(8 * x.dtype.itemsize), x.dtype), direction=g.random.choice(("LEFT", "RIGHT"))
        )
    elif name.startswith("Reduce"):
        axes = [_i64(g.axis(x))] if x.rank and g.chance(2) else []
        if x.dtype.name not in ("int32", "int64") and not (name in ("ReduceMax", "ReduceMin") and x.dtype.itemsize == 1):
            raise StopIteration
        g.put(name, x, *axes, keepdims=g.random.randrange(2))
    elif name == "CumSum":
        if not x.rank or x.dtype.name not in ("int32", "int64"):
            raise StopIteration
        g.put(name, x, np.asarray(g.axis(x), I64), exclusive=g.random.randrange(2), reverse=g.random.randrange(2))
    elif name == "Clip":
        g.put(name, x, *(np.asarray(g.random.choice(ends), x.dtype) for _ in range(2)))
    elif name in ("Div", "Mod"):
        divisor = np.asarray(g.random.choice((1, 2, 3, int(limits.max))), x.dtype)
        if limits.min < 0 and g.chance(2):
            divisor = np.asarray(g.random.choice((-2, -3, int(limits.min))), x.dtype)
        truncated: dict[str, Any] = {"fmod": 1} if name == "Mod" and g.chance(3) else {}
        g.put(name, x, divisor, **truncated)
    elif name == "Pow":
        if x.dtype.name not in ("int32", "int64"):
            raise StopIteration
        g.put(name, x, np.asarray(g.random.choice((0, 1, 2, 3, 5)), x.dtype))
    else:
        g.put(name, *((x, other) if g.chance(2) else (other, x)))


def cast_chain(g: Grower) -> None:
    """Casts of casts, narrow ones in between."""
    x = g.pick(lambda item: item.exact)
    for _ in range(g.random.randint(2, 3)):
        to = g.random.choice((*FLOATS, *WIDE_INTEGERS, BOOL))
        if to.kind == "u" and x.is_float:
            (x,) = g.put("Abs", x)
        if (
            x.is_float
            and to in WIDE_INTEGERS
            and any(np.abs(array.astype(np.float64)).max(initial=0) > 100 for array in x.arrays)
        ):
            raise StopIteration
        (x,) = g.put("Cast", x, to=dtypes.from_numpy(to).onnx)


def special_where(g: Grower) -> None:
    """NaN and infinities that a condition leaves out again."""
    x = g.floats(lambda item: item.exact and item.dtype != FLOATS[3])
    (flag,) = g.put("Greater", x, np.asarray(0).astype(x.dtype))
    (one,) = g.put("Where", flag, x, np.asarray(1).astype(x.dtype))
    (root,) = g.put(g.random.choice(("Log", "Sqrt", "Reciprocal")), one, exact=False)
    g.put("Where", flag, root, g.put("Neg", x)[0], exact=False)


EQUATIONS = (
    "ij->ji", "ij,jk->ik", "ij,ij->i", "bij,bjk->bik", "bij,bkj->bik", "ij,kj->ik", "bhqd,bhkd->bhqk", "bqhd,bkhd->bhqk",
    "bhqk,bkhd->bqhd", "ii->i", "ij->", "i,j->ij", "bij,bij->b", "...ij,...jk->...ik", "abc->cab", "bcij,bcij->bij",
)  # fmt: skip


def einsum(g: Grower) -> None:
    equation = g.random.choice(EQUATIONS)
    letters = [len(term) if "." not in term else None for term in equation.split("->")[0].split(",")]
    x = g.floats(lambda item: letters[0] in (None, item.rank) and item.rank >= 2 and item.dtype != FLOATS[3])
    if len(letters) == 1:
        g.put("Einsum", x, equation=equation, exact=False)
        return
    y = g.floats(lambda item: item.dtype == x.dtype and letters[1] in (None, item.rank) and item.rank >= 1)
    g.put("Einsum", x, y, equation=equation, exact=False)


def sampled(g: Grower) -> None:
    """GridSample, with a grid that reaches beyond the image."""
    x = g.floats(lambda item: item.rank == 4 and item.dtype == FLOATS[0] and item.static(0) and item.size(0) > 0)
    grid = np.asarray(g.weights(x.dtype, x.size(0), 3, 4, 2))
    mode = g.random.choice(("linear", "nearest", "cubic"))
    padding = g.random.choice(("zeros", "border", "reflection"))
    g.put("GridSample", x, grid, mode=mode, padding_mode=padding, align_corners=g.random.randrange(2), exact=False)


ATTRIBUTE_STEPS = (
    conv_any, conv_any, conv_any, conv_transpose_any, conv_transpose_any, pool_any, pool_any, resize_any, recurrent_any, norm_any,
    norm_any, quantized, integer_product, integers_any, integers_any, cast_chain, special_where, einsum, sampled,
)  # fmt: skip
