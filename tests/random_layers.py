"""The nodes of random models that neural networks live on: products, convolutions, pools, norms, recurrent cells, attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from random_models import FLOATS, Grower


def rows(g: Grower) -> None:
    """Softmax and what else works on rows."""
    x = g.floats(lambda item: item.rank > 0)
    name = g.random.choice(("Softmax", "LogSoftmax", "LpNormalization", "MeanVarianceNormalization", "CumSum", "Hardmax"))
    if name == "MeanVarianceNormalization":
        if x.exact:  # it divides by deviations that may be nothing but rounding errors
            g.put(name, x, axes=[g.axis(x, negative=False)], exact=False)
    elif name == "CumSum":
        attrs: dict[str, Any] = {"exclusive": g.random.randrange(2), "reverse": g.random.randrange(2)}
        g.put(name, x, np.asarray(g.axis(x), np.int64), exact=False, **attrs)
    elif name == "Hardmax":
        if x.exact:
            g.put(name, x, axis=g.axis(x))
    else:
        g.put(name, x, axis=g.axis(x), exact=False)


def norm(g: Grower) -> None:
    name = g.random.choice(
        ("LayerNormalization", "InstanceNormalization", "GroupNormalization", "BatchNormalization", "RMSNormalization")
    )
    if name in ("LayerNormalization", "RMSNormalization"):
        x = g.floats(lambda item: item.rank > 0 and item.static(item.rank - 1) and item.size(item.rank - 1) > 0)
        scale = g.weights(x.dtype, x.size(x.rank - 1))
        if name == "RMSNormalization":
            outputs = g.builder.version
            g.builder.version = 23
            try:
                g.put(name, x, scale, exact=False, epsilon=0.01)
            finally:
                g.builder.version = outputs
            return
        g.put(name, x, scale, *([g.weights(x.dtype, len(scale))] if g.chance(2) else []), exact=False, epsilon=0.01)
        return
    x = g.floats(lambda item: item.rank >= 3 and item.static(1) and item.size(1) > 0)
    channels = x.size(1)
    made = [g.weights(x.dtype, channels) for _ in range(3)]
    if name == "BatchNormalization":
        g.put(name, x, *made, np.abs(g.weights(x.dtype, channels)) + np.asarray(0.5).astype(x.dtype), exact=False)
    elif name == "InstanceNormalization":
        g.put(name, x, *made[:2], exact=False, epsilon=0.01)
    else:
        groups = g.random.choice([n for n in range(1, channels + 1) if channels % n == 0])
        g.put(name, x, *made[:2], num_groups=groups, exact=False, epsilon=0.01)


def product(g: Grower) -> None:
    """A matrix product with constants on either side, or of two values."""
    x = g.floats(lambda item: item.rank > 0)
    kind = g.random.randrange(4)
    if kind == 0 and x.rank >= 2:
        perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        (exchanged,) = g.put("Transpose", x, perm=perm)
        g.put("MatMul", x, exchanged, exact=False)
        return
    if kind == 1 and x.rank >= 2 and x.static(x.rank - 2):
        g.put("MatMul", g.weights(x.dtype, g.random.choice((1, 3, 8)), x.size(x.rank - 2)), x, exact=False)
        return
    if not x.static(x.rank - 1):
        raise StopIteration
    inner, columns = x.size(x.rank - 1), g.random.choice((1, 2, 5, 16, 33))
    if kind == 2 and x.rank == 2:
        transposed = g.random.randrange(2)
        weights = g.weights(x.dtype, *((columns, inner) if transposed else (inner, columns)))
        bias = g.random.choice(([], [g.weights(x.dtype, columns)], [g.weights(x.dtype, 1, columns)], [g.weights(x.dtype)]))
        g.put("Gemm", x, weights, *bias, transB=transposed, alpha=0.5, beta=2.0, exact=False)
        return
    shape: tuple[int, ...] = (inner,) if g.chance(6) else (inner, columns)
    if g.chance(6) and x.rank > 2 and x.static(0):
        shape = (x.size(0), *([1] * (x.rank - 3)), inner, columns)
    g.put("MatMul", x, g.weights(x.dtype, *shape), exact=False)


def convolve(g: Grower) -> None:
    x = g.floats(lambda item: item.rank in (3, 4, 5) and item.static(1) and item.size(1) > 0)
    spatial, channels = x.rank - 2, x.size(1)
    group = g.random.choice([n for n in range(1, channels + 1) if channels % n == 0])
    outputs = group * g.random.choice((1, 2, 3, 8))
    kernel = [g.random.choice((1, 1, 2, 3)) for _ in range(spatial)]
    attrs: dict[str, Any] = {"group": group, "strides": [g.random.choice((1, 1, 2, 3)) for _ in range(spatial)]}
    attrs["dilations"] = [g.random.choice((1, 1, 2)) for _ in range(spatial)]
    if g.chance(3):
        attrs["auto_pad"] = g.random.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    else:
        attrs["pads"] = [g.random.choice((0, 1, 2)) for _ in range(2 * spatial)]
    bias = [g.weights(x.dtype, outputs)] if g.chance(2) else []
    if g.chance(4):
        attrs.pop("auto_pad", None)
        attrs["pads"] = [g.random.choice((0, 0, 1)) for _ in range(2 * spatial)]
        g.put("ConvTranspose", x, g.weights(x.dtype, channels, outputs // group, *kernel), *bias, exact=False, **attrs)
    else:
        g.put("Conv", x, g.weights(x.dtype, outputs, channels // group, *kernel), *bias, exact=False, **attrs)


def pool(g: Grower) -> None:
    x = g.floats(lambda item: item.rank in (3, 4, 5))
    spatial = x.rank - 2
    name = g.random.choice(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    if name.startswith("Global"):
        g.put(name, x, exact=False)
        return
    kernel = [g.random.choice((1, 2, 3)) for _ in range(spatial)]
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": [g.random.choice((1, 2)) for _ in range(spatial)]}
    attrs["ceil_mode"] = g.random.randrange(2)
    attrs["dilations"] = [g.random.choice((1, 1, 2)) for _ in range(spatial)]
    if g.chance(3):
        attrs["auto_pad"] = g.random.choice(("SAME_UPPER", "SAME_LOWER"))
        attrs["ceil_mode"] = 0
    else:
        attrs["pads"] = [g.random.randrange(size) for size in kernel] * 2
    if name == "AveragePool":
        attrs["count_include_pad"] = g.random.randrange(2)
    count = 2 if name == "MaxPool" and g.chance(3) and x.exact else 1
    g.put(name, x, count=count, exact=x.exact and name == "MaxPool", **attrs)


def resize(g: Grower) -> None:
    x = g.floats(lambda item: item.rank == 4 and item.dtype in FLOATS[:2])
    mode = g.random.choice(("nearest", "linear", "cubic"))
    scales = np.array([1, 1, g.random.choice((1, 2, 0.5, 1.5)), g.random.choice((1, 2, 3))], np.float32)
    rule = g.random.choice(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    g.put("Resize", x, None, scales, mode=mode, coordinate_transformation_mode=rule, exact=False)


def recurrent(g: Grower) -> None:
    x = g.floats(
        lambda item: item.rank == 3 and item.static(2) and item.size(2) > 0 and item.size(0) > 0 and item.dtype == FLOATS[0]
    )
    name, gates = g.random.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    hidden, both = g.random.choice((1, 3, 8)), g.random.randrange(2)
    direction = "bidirectional" if both else g.random.choice(("forward", "reverse"))
    weights = g.weights(x.dtype, 1 + both, gates * hidden, x.size(2))
    back = g.weights(x.dtype, 1 + both, gates * hidden, hidden)
    bias = [g.weights(x.dtype, 1 + both, 2 * gates * hidden)] if g.chance(2) else []
    g.put(name, x, weights, back, *bias, count=2, hidden_size=hidden, direction=direction, exact=False)


def attention(g: Grower) -> None:
    """Scaled dot-product attention out of single nodes, with or without a mask."""
    x = g.floats(lambda item: item.rank in (2, 3, 4) and item.static(item.rank - 1) and item.size(item.rank - 1) > 0)
    width = x.size(x.rank - 1)
    q, k, v = (g.put("MatMul", x, g.weights(x.dtype, width, 4), exact=False)[0] for _ in range(3))
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    (exchanged,) = g.put("Transpose", k, perm=perm)
    (scores,) = g.put("MatMul", q, exchanged)
    (scores,) = g.put("Mul", scores, np.asarray(0.25).astype(x.dtype))
    if g.chance(2):
        (scores,) = g.put("Add", scores, g.put("Mul", scores, np.asarray(-0.5).astype(x.dtype))[0])
    (weights,) = g.put("Softmax", scores, axis=-1)
    g.put("MatMul", weights, v)


def gelu(g: Grower) -> None:
    x = g.floats()
    (u,) = g.put("Div", x, np.asarray(np.sqrt(2)).astype(x.dtype), exact=False)
    (e,) = g.put("Erf", u)
    (p,) = g.put("Add", e, np.asarray(1.0).astype(x.dtype))
    (h,) = g.put("Mul", x, p)
    g.put("Mul", h, np.asarray(0.5).astype(x.dtype))
