"""The nodes random models are made of: each function adds one operator, or a small pattern, to a growing graph."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod
from typing import Any, Final

import numpy as np

from random_layers import attention, convolve, gelu, norm, pool, product, recurrent, resize, rows
from random_models import (
    BOOL,
    CAST_TARGETS,
    FLOATS,
    GROWN_WITH,
    INTEGERS,
    VERSION,
    Grower,
    Item,
    RandomModel,
)
from sardonyx import dtypes
from sardonyx.formats.onnx import to_bytes
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.graph import Graph, Model
from sardonyx.ir.types import TensorType

Step = Callable[[Grower], object]
I64: Final = np.int64


def i64(*items: int) -> Any:
    return np.array(items, I64)


def one_of(*names: str, **attrs: Any) -> Step:
    """A smooth function of a float."""
    return lambda g: g.put(g.random.choice(names), g.floats(), exact=False, **attrs)


def exact_function(g: Grower) -> None:
    """A function that jumps, of a value without rounding errors."""
    name = g.random.choice(("Floor", "Ceil", "Round", "Sign", "IsNaN", "IsInf", "Neg", "Abs", "Relu", "Identity"))
    g.put(name, g.floats(lambda item: item.exact and item.dtype != FLOATS[3]))


def parameterised(g: Grower) -> None:
    name, attrs = g.random.choice(
        (
            ("LeakyRelu", {"alpha": 0.1}),
            ("Elu", {"alpha": 1.5}),
            ("Selu", {}),
            ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
            ("Gelu", {"approximate": "tanh"}),
            ("Gelu", {}),
            ("ThresholdedRelu", {"alpha": -1e9}),
        )
    )
    g.put(name, g.floats(), exact=False, **attrs)


def of_two(g: Grower) -> None:
    """An operator of two values that broadcast."""
    name = g.random.choice(("Add", "Sub", "Mul", "Max", "Min", "Mean", "Sum"))
    x = g.pick(lambda item: item.is_float or (item.dtype in INTEGERS[:2] and name not in ("Mean", "Sum")))
    y = g.pick(lambda item: item.dtype == x.dtype and _broadcasts(x, item))
    g.put(name, *((x, y) if g.chance(2) else (y, x)))


def with_constant(g: Grower) -> None:
    """An operator of a value and a constant of any shape that broadcasts to it, also beyond its rank."""
    name = g.random.choice(("Add", "Sub", "Mul", "Div", "Pow", "PRelu", "Max"))
    x = g.floats()
    shape = [x.size(axis) if x.static(axis) and g.chance(2) else 1 for axis in range(x.rank)]
    shape = shape[g.random.randrange(x.rank + 1) :] if g.chance(2) else shape
    if g.chance(8):
        shape = [g.random.choice((1, 2)), *([1] * (x.rank - len(shape))), *shape]
    constant = g.weights(x.dtype, *shape)
    if name == "Div":
        constant = np.asarray(constant + np.where(constant < 0, -1, 1).astype(x.dtype)).astype(x.dtype)
    if name == "Pow":
        (x,) = g.put("Abs", x)
        constant = np.asarray(g.random.choice((2.0, 3.0, 0.5, 1.0, 0.0))).astype(x.dtype)
    left = name in ("Add", "Sub", "Mul") and g.chance(3)
    g.put(name, *((constant, x) if left else (x, constant)), exact=False)


def compare(g: Grower) -> None:
    name = g.random.choice(("Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual"))
    x = g.pick(lambda item: item.exact and (item.is_float or item.is_integer))
    if g.chance(2):
        y: Any = g.pick(lambda item: item.exact and item.dtype == x.dtype and _broadcasts(x, item))
    else:
        y = np.asarray(g.random.choice((0, 1)), x.dtype)
    g.put(name, x, y)


def logic(g: Grower) -> None:
    x = g.pick(lambda item: item.dtype == BOOL)
    if g.chance(3):
        g.put("Not", x)
    else:
        g.put(g.random.choice(("And", "Or", "Xor")), x, g.pick(lambda item: item.dtype == BOOL and _broadcasts(x, item)))


def integers(g: Grower) -> None:
    name = g.random.choice(
        ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Abs", "BitwiseAnd", "BitwiseXor", "Neg", "ReduceSum")
    )
    x = g.pick(lambda item: item.is_integer and item.exact and (name not in ("Neg", "ReduceSum") or item.dtype in INTEGERS[:2]))
    if name in ("Abs", "Neg"):
        g.put(name, x)
    elif name == "ReduceSum":
        _reduce(g, x, name)
    elif name in ("Div", "Mod"):
        g.put(name, x, np.asarray(g.random.choice((1, 2, 3)), x.dtype))
    else:
        g.put(name, x, g.pick(lambda item: item.dtype == x.dtype and item.exact and _broadcasts(x, item)))


def where(g: Grower) -> None:
    x = g.pick(lambda item: item.is_float or item.is_integer)
    condition = g.pick(lambda item: item.dtype == BOOL and _broadcasts(x, item))
    other: Any = np.asarray(0.5 if x.is_float else 2).astype(x.dtype)
    if g.chance(2):
        other = g.pick(lambda item: item.dtype == x.dtype and _broadcasts(x, item))
    g.put("Where", condition, *((x, other) if g.chance(2) else (other, x)))


def clip(g: Grower) -> None:
    x = g.floats()
    bounds: list[Any] = [np.asarray(-0.5).astype(x.dtype), np.asarray(1.5).astype(x.dtype)]
    if g.chance(3):
        bounds[0] = None
    g.put("Clip", x, *bounds)


def cast(g: Grower) -> None:
    to = g.random.choice(CAST_TARGETS)
    x = g.pick(lambda item: item.exact or to in FLOATS)
    if to in INTEGERS and to.kind == "u":
        (x,) = g.put("Abs", x) if x.dtype != BOOL and x.dtype.kind != "u" else (x,)
    narrowing = to in FLOATS[2:] and x.dtype != to
    g.put("Cast", x, to=dtypes.from_numpy(to).onnx, exact=x.exact and not narrowing)


def _reduce(g: Grower, x: Item, name: str) -> None:
    axes = sorted(g.random.sample(range(x.rank), g.random.randrange(x.rank + 1)))
    axes = [axis - x.rank if g.chance(3) else axis for axis in axes]
    keep = g.random.randrange(2)
    given = [i64(*axes)] if axes or g.chance(2) else []
    g.put(name, x, *given, keepdims=keep, noop_with_empty_axes=g.random.randrange(2), exact=x.exact and x.is_integer)


def reduce(g: Grower) -> None:
    names = (
        "ReduceMean",
        "ReduceSum",
        "ReduceMax",
        "ReduceMin",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
        "ReduceLogSumExp",
        "ReduceProd",
    )
    _reduce(g, g.floats(), g.random.choice(names))


def arg_extreme(g: Grower) -> None:
    x = g.pick(lambda item: item.exact and (item.is_float or item.is_integer) and item.rank > 0)
    attrs: dict[str, Any] = {"axis": g.axis(x), "keepdims": g.random.randrange(2), "select_last_index": g.random.randrange(2)}
    g.put(g.random.choice(("ArgMax", "ArgMin")), x, **attrs)


def top_k(g: Grower) -> None:
    x = g.pick(lambda item: item.exact and item.is_float and item.rank > 0)
    axis = g.axis(x)
    k = g.random.randint(0, x.size(axis))
    g.put("TopK", x, i64(k), count=2, axis=axis, largest=g.random.randrange(2), sorted=1)


def transpose(g: Grower) -> None:
    x = g.pick(lambda item: item.rank > 0)
    perm = list(range(x.rank))
    g.random.shuffle(perm)
    g.put("Transpose", x, perm=perm)


def reshape(g: Grower) -> None:
    """A constant target with 0 for copied and -1 for inferred sizes."""
    x = g.pick(lambda item: item.rank > 0)
    kind = g.random.randrange(5)
    if kind == 0:
        target = [-1]
    elif kind == 1:
        target = [0, -1] if x.rank > 1 else [1, -1]
    elif kind == 2:
        target = [0] * x.rank + [1]
    elif kind == 3 and x.rank > 2:
        target = [0] * (x.rank - 2) + [-1]
    else:
        axis = next((axis for axis in range(x.rank) if x.static(axis) and x.size(axis) % 2 == 0 and x.size(axis)), None)
        if axis is None:
            raise StopIteration
        target = [*([0] * axis), 2, x.size(axis) // 2, *([0] * 0)]
        target += [-1] if axis < x.rank - 1 else []
    g.put("Reshape", x, i64(*target))


def shape_chain(g: Grower) -> None:
    """A target computed from the shape of a value."""
    x = g.pick(lambda item: item.rank >= 2)
    (shape,) = g.put("Shape", x)
    axis = g.random.randrange(x.rank)
    (size,) = g.put("Gather", shape, i64(axis))
    if g.chance(2):
        (size,) = g.put("Mul", size, i64(1))
    kind = g.random.randrange(4)
    if kind < 2 and axis != kind and not x.static(axis):
        raise StopIteration  # a computed size of 0 copies the one at its place: what that gives is nobody's intention
    if kind == 0:
        (target,) = g.put("Concat", size, i64(-1), axis=0)
        g.put("Reshape", x, target)
    elif kind == 1:
        (target,) = g.put("Concat", i64(-1), size, axis=0)
        g.put("Reshape", x, target)
    elif kind == 2:
        (target,) = g.put("Concat", i64(2), shape, axis=0)
        g.put("Expand", x, target)
    else:
        (half,) = g.put("Div", size, i64(2))
        g.put("Slice", x, i64(0), half, i64(axis))


def range_chain(g: Grower) -> None:
    """A range as long as a dimension, as positions or an index."""
    x = g.pick(lambda item: item.rank >= 1)
    (shape,) = g.put("Shape", x)
    (size,) = g.put("Gather", shape, np.asarray(0, I64))
    (made,) = g.put("Range", np.asarray(0, I64), size, np.asarray(1, I64))
    if g.chance(2):
        g.put("Gather", x, made, axis=0)


def filled(g: Grower) -> None:
    x = g.pick(lambda item: item.is_small)
    (shape,) = g.put("Shape", x)
    value = np.asarray([1.5]).astype(g.random.choice(FLOATS[:2]))
    g.put("ConstantOfShape", shape, value=value)


def squeeze(g: Grower) -> None:
    x = g.pick(lambda item: item.rank < 5)
    axis = g.random.randrange(x.rank + 1)
    (wide,) = g.put("Unsqueeze", x, i64(axis))
    if g.chance(2):
        ones = [n for n in range(wide.rank) if all(array.shape[n] == 1 for array in wide.arrays)]
        g.put("Squeeze", wide, i64(g.random.choice(ones)))


def flatten(g: Grower) -> None:
    x = g.pick(lambda item: item.rank > 0)
    g.put("Flatten", x, axis=g.random.randrange(x.rank + 1))


def slice_(g: Grower) -> None:
    x = g.pick(lambda item: item.rank > 0)
    axes = g.random.sample(range(x.rank), g.random.randint(1, min(2, x.rank)))
    starts, ends, steps = [], [], []
    for _ in axes:
        step = g.random.choice((1, 1, 2, -1, -2, 3))
        low, high = sorted((g.random.randint(-3, 6), g.random.choice((2, 4, 1 << 40, -1))))
        starts.append(high if step < 0 else low)
        ends.append(low if step < 0 else high)
        steps.append(step)
        if step < 0 and g.chance(2):
            starts[-1], ends[-1] = -1, -(1 << 40)
    given = [axis - x.rank if g.chance(3) else axis for axis in axes]
    g.put("Slice", x, i64(*starts), i64(*ends), i64(*given), i64(*steps))


def concat(g: Grower) -> None:
    x = g.pick(lambda item: item.rank > 0 and item.is_small)
    axis = g.random.randrange(x.rank)

    def fits(item: Item) -> bool:
        return (
            item.dtype == x.dtype
            and item.rank == x.rank
            and all(
                mine.shape[:axis] + mine.shape[axis + 1 :] == theirs.shape[:axis] + theirs.shape[axis + 1 :]
                for mine, theirs in zip(x.arrays, item.arrays)
            )
        )

    parts = [x, *(g.pick(fits) for _ in range(g.random.randint(0, 2)))]
    g.random.shuffle(parts)
    g.put("Concat", *parts, axis=axis - x.rank if g.chance(3) else axis)


def split(g: Grower) -> None:
    x = g.pick(lambda item: item.rank > 0)
    axis = g.random.randrange(x.rank)
    if x.static(axis) and x.size(axis) > 1 and g.chance(2):
        first = g.random.randint(0, x.size(axis))
        g.put("Split", x, i64(first, x.size(axis) - first), count=2, axis=axis)
    elif x.size(axis) >= 2:
        g.put("Split", x, count=2, axis=axis, num_outputs=2)


def gather(g: Grower) -> None:
    x = g.pick(lambda item: item.rank > 0 and item.is_small)
    axis = g.random.randrange(x.rank)
    size = x.size(axis)
    if not size:
        raise StopIteration
    shape = g.random.choice(((), (1,), (3,), (2, 2), (0,)))
    generator = np.random.default_rng(g.random.randrange(1 << 30))
    indices = generator.integers(-size, size, shape).astype(g.random.choice((np.int64, np.int32)))
    g.put("Gather", x, np.asarray(indices), axis=axis)


def gather_by_value(g: Grower) -> None:
    """Indices that are computed; some sizes make them wrong."""
    x = g.pick(lambda item: item.rank > 0 and item.is_small)
    index = g.pick(lambda item: item.exact and item.dtype in INTEGERS[:2] and item.is_small)
    g.put("Gather", x, index, axis=g.axis(x))


def gather_elements(g: Grower) -> None:
    x = g.pick(lambda item: item.rank > 0 and item.is_small)
    axis = g.random.randrange(x.rank)
    (order,) = g.put("Shape", x)
    (zeros,) = g.put("ConstantOfShape", order, value=np.array([g.random.choice((0, -1))], I64))
    g.put("GatherElements", x, zeros, axis=axis)


def scatter(g: Grower) -> None:
    x = g.pick(lambda item: item.rank > 0 and item.is_float and item.static(0) and item.size(0) > 1)
    generator = np.random.default_rng(g.random.randrange(1 << 30))
    rows_ = generator.permutation(x.size(0))[:2].astype(I64)
    (updates,) = g.put("Gather", x, rows_[::-1].copy(), axis=0)
    reduction = g.random.choice(("none", "add", "max"))
    g.put("ScatterND", x, rows_[:, None].copy(), updates, reduction=reduction)


def pad(g: Grower) -> None:
    x = g.floats(lambda item: item.rank > 0)
    mode = g.random.choice(("constant", "constant", "edge", "reflect", "wrap"))
    amounts = [g.random.choice((0, 0, 1, 2)) for _ in range(2 * x.rank)]
    if mode == "constant" and g.chance(2):
        amounts[0] = -1
    value = [np.asarray(g.random.choice((0.0, 1.5))).astype(x.dtype)] if mode == "constant" else []
    g.put("Pad", x, i64(*amounts), *value, mode=mode)


def tile(g: Grower) -> None:
    x = g.pick(lambda item: item.is_small and item.rank > 0)
    g.put("Tile", x, i64(*(g.random.choice((1, 1, 2)) for _ in range(x.rank))))


def expand(g: Grower) -> None:
    x = g.pick(lambda item: item.is_small)
    g.put("Expand", x, i64(*g.random.choice(([3], [2, 1], [1], [4, 1, 1], [1] * (x.rank + 1)))))


def blocks(g: Grower) -> None:
    x = g.floats(lambda item: item.rank == 4)
    name = g.random.choice(("DepthToSpace", "SpaceToDepth"))
    mode = g.random.choice(("DCR", "CRD")) if name == "DepthToSpace" else None
    g.put(name, x, blocksize=2, mode=mode)


def triangle(g: Grower) -> None:
    x = g.pick(lambda item: item.rank >= 2 and (item.is_float or item.is_integer))
    g.put("Trilu", x, np.asarray(g.random.choice((-1, 0, 1, 5)), I64), upper=g.random.randrange(2))


def one_hot(g: Grower) -> None:
    x = g.pick(lambda item: item.exact and item.dtype in INTEGERS[:2] and item.is_small and item.rank < 4)
    g.put("OneHot", x, i64(5), np.array([0.5, 2.0], np.float32), axis=g.random.choice((-1, 0)))


def non_zero(g: Grower) -> None:
    """A value whose size only its data tells."""
    x = g.pick(lambda item: item.exact and item.rank > 0 and item.is_small and (item.is_float or item.dtype == BOOL))
    (places,) = g.put("NonZero", x)
    if g.chance(2):
        (transposed,) = g.put("Transpose", places, perm=[1, 0])
        g.put("GatherND", x, transposed)


def branch(g: Grower) -> None:
    """An If whose bodies read outer values; the condition is computed."""
    x = g.floats()
    condition = g.pick(lambda item: item.dtype == BOOL and item.rank > 0 and item.exact)
    (flag,) = g.put("ReduceMax", _as_int(g, condition), keepdims=0)
    (decided,) = g.put("Greater", flag, np.asarray(0, np.int32))
    branches = []
    for names in (("Neg", "Tanh"), ("Abs", "Sigmoid")):
        inner = GraphBuilder(Graph(names[0]), VERSION, prefix=f"b{len(g.pool)}{names[0]}_")
        made = x.value
        for name in names:
            made = inner.op(name, made)
        inner.output(made)
        branches.append(inner.graph)
    g.put("If", decided, then_branch=branches[0], else_branch=branches[1], exact=False)


def _as_int(g: Grower, item: Item) -> Item:
    return g.put("Cast", item, to=dtypes.INT32.onnx)[0]


def loop(g: Grower) -> None:
    """A Loop that carries one value, reads another and collects what it makes.

    It runs at least once: what it would have collected has no shape otherwise.
    """
    x = g.floats()
    y = g.pick(lambda item: item.dtype == x.dtype and all(b.shape in (a.shape, ()) for a, b in zip(x.arrays, item.arrays)))
    inner = GraphBuilder(Graph("body"), VERSION, prefix=f"l{len(g.pool)}_")
    kind = TensorType(dtypes.from_numpy(x.dtype), None)
    inner.input(f"i{len(g.pool)}", TensorType(dtypes.INT64, ()))
    going = inner.input(f"c{len(g.pool)}", TensorType(dtypes.BOOL, ()))
    carried = inner.input(f"v{len(g.pool)}", kind)
    added = inner.op("Tanh", inner.op("Add", carried, y.value))
    inner.output(inner.op("Identity", going))
    inner.output(added)
    inner.output(inner.op("Mul", added, np.asarray(0.5).astype(x.dtype)))
    g.put("Loop", np.asarray(g.random.choice((1, 3)), I64), np.asarray(True), x, count=2, body=inner.graph, exact=False)


def scan(g: Grower) -> None:
    """A Scan over rows with a running state."""
    x = g.floats(lambda item: item.rank >= 2 and item.size(0) > 0 and item.static(0))
    (first,) = g.put("Gather", x, np.asarray(0, I64), axis=0)
    inner = GraphBuilder(Graph("scan"), VERSION, prefix=f"s{len(g.pool)}_")
    kind = TensorType(dtypes.from_numpy(x.dtype), None)
    state = inner.input(f"st{len(g.pool)}", kind)
    row = inner.input(f"row{len(g.pool)}", kind)
    total = inner.op("Tanh", inner.op("Add", state, row))
    inner.output(total)
    inner.output(inner.op("Neg", total))
    g.put("Scan", first, x, count=2, body=inner.graph, num_scan_inputs=1, exact=False)


def squash(g: Grower) -> None:
    g.put("Tanh", g.floats(), exact=False)


def _broadcasts(x: Item, y: Item) -> bool:
    try:
        return all(prod(np.broadcast_shapes(a.shape, b.shape)) <= 40_000 for a, b in zip(x.arrays, y.arrays))
    except ValueError:
        return False


STEPS: Final[tuple[Step, ...]] = (
    one_of("Sigmoid", "Tanh", "Erf", "Softplus", "Softsign", "Sin", "Cos", "Atan", "Mish", "HardSwish", "Exp"),
    exact_function, parameterised, of_two, of_two, with_constant, with_constant, compare, logic, integers, where, clip, cast,
    cast, reduce, reduce, arg_extreme, top_k, rows, norm, product, product, convolve, convolve, pool, resize, transpose,
    transpose, reshape, reshape, shape_chain, range_chain, filled, squeeze, flatten, slice_, slice_, concat, concat, split,
    gather, gather_by_value, gather_elements, scatter, pad, tile, expand, blocks, triangle, one_hot, non_zero, branch, loop,
    scan, recurrent, attention, gelu, squash,
)  # fmt: skip

INPUTS: Final[tuple[tuple[int | str, ...], ...]] = (
    ("N", 4, 6, 6), ("N", "S"), (3, 4), ("S", 8), ("N", "S", 4), (), (1, "T"), ("N", 3, "S", 8), (2, 16, 5, 5), ("T",), (1, 1),
    ("N", 6, 7),
)  # fmt: skip


def random_model(seed: int, steps: int = 18, *, symbolic: bool = True) -> RandomModel:
    """The model of a seed. The same seed with fewer steps gives the same nodes, as far as they go."""
    g = Grower(random.Random(seed), symbolic)
    main = g.random.choice(FLOATS) if g.chance(4) else FLOATS[0]
    for shape in g.random.sample(INPUTS, 4):
        g.add_input(shape, main)
    g.add_input(g.random.choice(INPUTS), g.random.choice((*INTEGERS, BOOL)))
    g.add_input(g.random.choice(INPUTS), BOOL)
    for _ in range(steps):
        try:
            g.random.choice(STEPS)(g)
        except StopIteration:
            continue
    return ended(g, random.Random(f"outputs {seed}"))


def ended(g: Grower, endings: random.Random) -> RandomModel:
    """The model of a graph that has grown: what nobody reads is an output, and so are some values that are read, or given."""
    made = [item.value for item in g.pool if item.value.producer is not None]
    chosen = {value for value in made if not value.uses or endings.random() < 0.15}
    for value in sorted(chosen, key=made.index):
        g.builder.output(value)
    if endings.random() < 0.3:
        g.builder.output(g.builder.graph.inputs[endings.randrange(len(g.inputs))])
    if endings.random() < 0.3 or not g.builder.graph.outputs:
        g.builder.output(g.builder.constant(np.arange(3, dtype=np.float32), "constant_output"))
    return RandomModel(g.builder.graph, g.inputs, to_bytes(Model(g.builder.graph, opset_imports={"": 24})))


__all__ = ["GROWN_WITH", "ended", "random_model"]
