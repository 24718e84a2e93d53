"""The nodes of random models that move values or join them: views of views before templates, residuals of several branches,
values that a reduction and its result both read, the same value given twice."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from random_models import INTEGERS, Grower, Item

I64 = np.int64
FAR = 1 << 40


def _i64(*items: int) -> Any:
    return np.array(items, I64)


def _view(g: Grower, x: Item) -> Item:
    """One more view of a value."""
    kind = g.random.randrange(8)
    if kind <= 1 and x.rank > 1:
        perm = list(range(x.rank))
        g.random.shuffle(perm)
        return g.put("Transpose", x, perm=perm)[0]
    if kind <= 3 and x.rank:
        axis = g.random.randrange(x.rank)
        step = g.random.choice((1, 1, 2, -1, -1, -2, 3))
        start, end = (-1, -FAR) if step < 0 else (0, FAR)
        if g.chance(2):
            start += 1 if step > 0 else -1
        return g.put("Slice", x, _i64(start), _i64(end), _i64(axis), _i64(step))[0]
    if kind == 4 and x.rank < 5:
        return g.put("Unsqueeze", x, _i64(g.random.randrange(x.rank + 1)))[0]
    if kind == 5 and x.rank > 2:
        first = g.random.randrange(x.rank - 1)
        target = [0] * first + [-1]
        if all(x.static(axis) and x.size(axis) for axis in range(first + 2, x.rank)):
            target += [x.size(axis) for axis in range(first + 2, x.rank)]
        return g.put("Reshape", x, _i64(*target))[0]
    if kind == 6 and x.rank:
        even = [axis for axis in range(x.rank) if x.static(axis) and x.size(axis) > 2 and x.size(axis) % 2 == 0]
        if even and x.rank < 5:
            axis = g.random.choice(even)
            halves = [2, -1] if g.chance(2) else [-1, 2]
            open_ones = [other for other in range(axis + 1, x.rank) if not x.static(other) or not x.size(other)]
            if not open_ones:
                return g.put("Reshape", x, _i64(*([0] * axis), *halves, *(x.size(o) for o in range(axis + 1, x.rank))))[0]
    if kind == 7 and x.rank:
        shape = [1] * x.rank
        ones = [axis for axis in range(x.rank) if x.static(axis) and x.size(axis) == 1]
        if ones:
            shape[g.random.choice(ones)] = 3
            return g.put("Expand", x, _i64(*shape))[0]
    return x


def views(g: Grower) -> Item:
    """Two to four views of each other."""
    x = g.pick(lambda item: item.is_small and item.rank > 0)
    for _ in range(g.random.randint(2, 4)):
        x = _view(g, x)
    return x


def _float_views(g: Grower) -> Item:
    x = g.floats(lambda item: item.rank > 0)
    for _ in range(g.random.randint(1, 3)):
        x = _view(g, x)
    return x


def template_of_views(g: Grower) -> None:
    """A view of a view that a product, a convolution, a pool or a norm reads."""
    x = _float_views(g)
    kind = g.random.randrange(7)
    last_known = x.rank > 0 and x.static(x.rank - 1) and x.size(x.rank - 1) > 0
    if kind <= 1 and last_known:
        g.put("MatMul", x, g.weights(x.dtype, x.size(x.rank - 1), g.random.choice((1, 3, 16, 17))), exact=False)
    elif kind == 2 and x.rank >= 2:
        other = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        g.put("MatMul", x, g.put("Transpose", _view(g, x) if g.chance(4) else x, perm=other)[0], exact=False)
    elif kind == 3 and x.rank in (3, 4, 5) and x.static(1) and x.size(1):
        kernel = [g.random.choice((1, 3)) for _ in range(x.rank - 2)]
        weights = g.weights(x.dtype, g.random.choice((1, 8, 16)), x.size(1), *kernel)
        g.put("Conv", x, weights, auto_pad="SAME_UPPER", exact=False)
    elif kind == 4 and x.rank in (3, 4, 5):
        name = g.random.choice(("MaxPool", "AveragePool"))
        g.put(name, x, kernel_shape=[2] * (x.rank - 2), pads=[1] * 2 * (x.rank - 2), exact=x.exact and name == "MaxPool")
    elif kind == 5 and last_known:
        g.put("LayerNormalization", x, g.weights(x.dtype, x.size(x.rank - 1)), exact=False, epsilon=0.01)
    elif x.rank:
        g.put(g.random.choice(("Softmax", "LogSoftmax")), x, axis=g.axis(x), exact=False)


def concat_of_views(g: Grower) -> None:
    """Parts of one value, or views of it, put together again."""
    x = g.pick(lambda item: item.is_small and item.rank > 0)
    axis = g.random.randrange(x.rank)
    parts: list[Item] = []
    for _ in range(g.random.randint(2, 4)):
        kind = g.random.randrange(4)
        if kind == 0:
            parts.append(x)
        elif kind == 1:
            parts += g.put("Slice", x, _i64(-1), _i64(-FAR), _i64(g.random.randrange(x.rank)), _i64(-1))
        elif kind == 2:
            parts += g.put("Slice", x, _i64(g.random.choice((0, 1))), _i64(g.random.choice((-1, FAR))), _i64(axis))
        elif x.is_float:
            parts += g.put(g.random.choice(("Neg", "Abs", "Relu")), x)
    if parts:
        g.put("Concat", *parts, axis=axis)


def shuffle_channels(g: Grower) -> None:
    """Halves that go different ways and are interleaved again."""
    x = g.pick(lambda item: item.rank >= 2 and item.static(1) and item.size(1) > 0 and item.size(1) % 2 == 0)
    left, right = g.put("Split", x, count=2, axis=1, num_outputs=2)
    if x.is_float and g.chance(2):
        (left,) = g.put(g.random.choice(("Sigmoid", "Neg", "Relu")), left, exact=False)
    (pairs,) = g.put("Concat", g.put("Unsqueeze", left, _i64(2))[0], g.put("Unsqueeze", right, _i64(2))[0], axis=2)
    g.put("Reshape", pairs, _i64(0, x.size(1), *([-1] if x.rank == 3 else [0] * 0 if x.rank == 2 else [1, -1])))


def residual(g: Grower) -> None:
    """Branches of one value, some of which are read twice, that join again."""
    x = g.floats()
    branches: list[Item] = []
    for _ in range(g.random.randint(2, 4)):
        made = x
        for _ in range(g.random.randint(0, 2)):
            made = g.put(g.random.choice(("Relu", "Tanh", "Sigmoid", "Neg", "Abs", "Identity")), made, exact=False)[0]
        if g.chance(3) and x.rank:
            (made,) = g.put("Softmax", made, axis=g.axis(x), exact=False)
        if g.chance(3) and x.rank:
            (made,) = g.put("ReduceMean", made, _i64(g.axis(x)), keepdims=1, exact=False)
        branches.append(made)
    if g.chance(2):
        g.put(g.random.choice(("Sum", "Mean", "Max", "Min")), *branches, exact=False)
        return
    made = branches[0]
    for branch in branches[1:]:
        (made,) = g.put(g.random.choice(("Add", "Mul", "Sub")), made, branch, exact=False)
    if g.chance(2):
        g.put("Add", made, g.random.choice(branches), exact=False)


def reduced_with_itself(g: Grower) -> None:
    """A value and what a reduction makes of it meet again, as in a norm that an exporter spelled out."""
    x = g.floats(lambda item: item.rank > 0 and prod(item.arrays[0].shape) > 0)
    axes = _i64(*sorted(g.random.sample(range(x.rank), g.random.randint(1, min(2, x.rank)))))
    first = g.random.choice(("ReduceMean", "ReduceMax", "ReduceSum", "ReduceMin"))
    (level,) = g.put(first, x, axes, keepdims=1, exact=False)
    (centred,) = g.put("Sub", x, level)
    kind = g.random.randrange(4) if x.exact else g.random.choice((0, 2, 3))  # deviations may be nothing but rounding errors
    if kind == 0:
        (powers,) = g.put("Exp", centred)
        (total,) = g.put("ReduceSum", powers, axes, keepdims=1)
        (made,) = g.put("Div", powers, total)
        if g.chance(2):
            g.put("Mul", made, powers)
    elif kind == 1:
        (squares,) = g.put("Mul", centred, centred)
        (variance,) = g.put("ReduceMean", squares, axes, keepdims=1)
        (root,) = g.put("Sqrt", g.put("Add", variance, np.asarray(0.05).astype(x.dtype))[0])
        (made,) = g.put("Div", centred, root)
        if g.chance(2):
            g.put("Add", made, level)
        if g.chance(2):
            g.put("Add", made, variance)
    elif kind == 2:
        other = g.random.choice(("ReduceMax", "ReduceL2", "ReduceLogSumExp", "ReduceProd", "ReduceMean"))
        (second,) = g.put(other, centred, _i64(g.axis(x)), keepdims=1)
        g.put("Sub", g.put("Mul", centred, second)[0], x)
    else:
        (second,) = g.put("ReduceMean", g.put("Sigmoid", centred)[0], axes, keepdims=1)
        g.put("Mul", x, second)
        if g.chance(2):
            g.put("Add", second, level)


def broadcast_within(g: Grower) -> None:
    """A chain that grows wider on its way, and is read before and after."""
    x = g.floats(lambda item: 0 < item.rank < 4)
    (made,) = g.put(g.random.choice(("Tanh", "Neg", "Sigmoid")), x, exact=False)
    (column,) = g.put("Unsqueeze", made, _i64(g.random.randrange(x.rank + 1)))
    (row,) = g.put("Unsqueeze", made, _i64(g.random.randrange(x.rank + 1)))
    (wide,) = g.put(g.random.choice(("Add", "Sub", "Mul", "Max")), column, row)
    (made,) = g.put(g.random.choice(("Tanh", "Abs", "Relu")), wide)
    if g.chance(2):
        (made,) = g.put("ReduceMean", made, _i64(g.axis(made)), keepdims=g.random.randrange(2))
    if g.chance(2):
        g.put("Add", made, column if made.rank == column.rank else x)


def twice(g: Grower) -> None:
    """The same value as every input."""
    x = g.pick(lambda item: item.is_float or item.dtype in INTEGERS[:2])
    kind = g.random.randrange(4)
    if kind == 0:
        g.put(g.random.choice(("Add", "Sub", "Mul", "Max")), x, x)
    elif kind == 1 and x.rank:
        g.put("Concat", x, x, *([x] if g.chance(2) else []), axis=g.axis(x))
    elif kind == 2 and x.rank >= 2 and x.is_float and x.arrays[0].shape[-1] == x.arrays[0].shape[-2]:
        g.put("MatMul", x, x, exact=False)
    elif x.exact:
        (flag,) = g.put("Greater", x, np.asarray(0, x.dtype))
        g.put("Where", flag, x, x)


def strides_of_templates(g: Grower) -> None:
    """Two templates side by side on slices of one product, as in fused projections of queries, keys and values."""
    x = g.floats(lambda item: item.rank in (2, 3) and item.static(item.rank - 1) and item.size(item.rank - 1) > 0)
    heads, width = g.random.choice(((1, 4), (2, 3), (2, 8), (3, 16)))
    (joint,) = g.put("MatMul", x, g.weights(x.dtype, x.size(x.rank - 1), 3 * heads * width), exact=False)
    if g.chance(2):
        (joint,) = g.put("Add", joint, g.weights(x.dtype, 3 * heads * width))
    parts = g.put("Split", joint, count=3, axis=x.rank - 1, num_outputs=3)
    if x.rank == 3:
        shape = _i64(0, -1, heads, width)
        split = [g.put("Transpose", g.put("Reshape", part, shape)[0], perm=[0, 2, 1, 3])[0] for part in parts]
    else:
        split = [g.put("Transpose", g.put("Reshape", p, _i64(-1, heads, width))[0], perm=[1, 0, 2])[0] for p in parts]
    rank = split[0].rank
    (keys,) = g.put("Transpose", split[1], perm=[*range(rank - 2), rank - 1, rank - 2])
    (scores,) = g.put("Mul", g.put("MatMul", split[0], keys)[0], np.asarray(width**-0.5).astype(x.dtype))
    (weights,) = g.put("Softmax", scores, axis=-1)
    (made,) = g.put("MatMul", weights, split[2])
    (back,) = g.put("Transpose", made, perm=[0, 2, 1, 3] if rank == 4 else [1, 0, 2])
    g.put("Reshape", back, _i64(0, -1, heads * width) if rank == 4 else _i64(-1, heads * width))


def clip_any(g: Grower) -> None:
    """Bounds that cross, that are missing, or that are values."""
    x = g.pick(lambda item: item.is_float or item.dtype in INTEGERS[:2])
    low, high = (np.asarray(g.random.choice((-1, 0, 1, 2)), x.dtype) for _ in range(2))
    given: list[Any] = [low, high]
    given[g.random.randrange(2)] = g.random.choice((None, low, high))
    scalars = [item for item in g.pool if item.rank == 0 and item.dtype == x.dtype]
    if scalars and g.chance(2):
        given[0] = g.random.choice(scalars)
    g.put("Clip", x, *given)


VIEW_STEPS = (
    views, template_of_views, template_of_views, concat_of_views, shuffle_channels, residual, residual, reduced_with_itself,
    reduced_with_itself, broadcast_within, broadcast_within, twice, strides_of_templates, clip_any,
)  # fmt: skip
