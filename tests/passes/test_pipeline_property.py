"""Random graphs mean the same before and after the passes, at every level."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import pi, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pass_support import assert_same, copy_of, evaluate, model_of
from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.compile_options import CompileOptions
from sardonyx.enums import GraphOptimizationLevel
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.dims import symbol
from sardonyx.ir.graph import Graph, Model, Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.ir.text import format_graph
from sardonyx.ir.types import TensorType
from sardonyx.ops import registry
from sardonyx.ops.registry import EvalContext
from sardonyx.passes.pipeline import run_passes

VERSION = 22
BATCH = 2


@dataclass
class Maker:
    """Builds a graph from a list of numbers, computing every value on the way, so that operators always fit."""

    numbers: Iterator[int]
    builder: GraphBuilder = field(default_factory=lambda: GraphBuilder(Graph("main"), VERSION))
    pool: list[tuple[Value, Array]] = field(default_factory=list)
    feeds: dict[str, Array] = field(default_factory=dict)

    def draw(self, count: int) -> int:
        return next(self.numbers) % count

    def pick(self, accept: Callable[[Array], bool] = lambda array: True) -> tuple[Value, Array] | None:
        """One of the latest values that fit."""
        fitting = [item for item in self.pool[-6:] if accept(item[1])]
        return fitting[self.draw(len(fitting))] if fitting else None

    def random(self, *shape: int) -> Array:
        return np.round(np.random.default_rng(self.draw(1000)).standard_normal(shape), 2)

    def scalar(self) -> Array:
        return np.asarray([0.0, 1.0, 0.5, 2.0, 3.0, -1.0][self.draw(6)])

    def put(self, op_type: str, *inputs: Any, count: int = 1, **attrs: Any) -> list[tuple[Value, Array]]:
        """Add a node and compute it; arrays become constants."""
        values = [self.builder.constant(each) if isinstance(each, np.ndarray) else each for each in inputs]
        outputs = self.builder.node(op_type, values, count, attrs=attrs)
        node = outputs[0].producer
        assert node is not None
        results = compute(node, [self.array(value) for value in values])
        made = list(zip(outputs, results, strict=False))
        self.pool.extend(made)
        return made

    def array(self, value: Value | None) -> Array | None:
        if value is None:
            return None
        if value.constant is not None:
            return value.constant.numpy()
        return next(array for known, array in self.pool if known is value)


def compute(node: Node, inputs: list[Array | None]) -> tuple[Any, ...]:
    definition = registry.lookup(node.domain, node.op_type, node.version)
    assert definition is not None
    attrs = attribute_values(node)
    with np.errstate(all="ignore"):
        return registry.call(
            definition,
            inputs,
            {name: attrs.get(name) for name in definition.attr_names},
            EvalContext(node.version, tuple(True for _ in node.outputs)),
        )


def is_float(array: Array) -> bool:
    return array.dtype == np.float64 and array.size > 0


def is_image(array: Array) -> bool:
    return is_float(array) and array.ndim == 4 and min(array.shape) > 0


Step = Callable[[Maker, Value, Array], object]


def unary(op_type: str, **attrs: Any) -> Step:
    return lambda m, x, a: m.put(op_type, x, **attrs)


def with_number(op_type: str, first: bool = False) -> Step:
    def step(m: Maker, x: Value, a: Array) -> None:
        number = m.scalar()
        if op_type == "Div" and number == 0:
            number = np.asarray(4.0)
        m.put(op_type, *((number, x) if first else (x, number)))

    return step


def with_channels(op_type: str) -> Step:
    def step(m: Maker, x: Value, a: Array) -> None:
        shape = [1] * a.ndim
        axis = m.draw(max(a.ndim, 1))
        if shape:
            shape[axis] = a.shape[axis]
        m.put(op_type, x, m.random(*shape))

    return step


def with_other(op_type: str) -> Step:
    def step(m: Maker, x: Value, a: Array) -> None:
        other = m.pick(lambda b: is_float(b) and b.shape == a.shape)
        assert other is not None
        m.put(op_type, x, other[0])

    return step


def transpose(m: Maker, x: Value, a: Array) -> None:
    perms = [tuple(range(a.ndim))[::-1], (0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1), (1, 0)]
    fitting = [perm for perm in perms if len(perm) == a.ndim]
    m.put("Transpose", x, perm=fitting[m.draw(len(fitting))] if fitting else tuple(range(a.ndim)))


def reshape(m: Maker, x: Value, a: Array) -> None:
    shapes = [[-1], [1, -1], [a.shape[0] if a.ndim else 1, -1], [*a.shape], [0, -1] if a.ndim else [-1]]
    m.put("Reshape", x, np.array(shapes[m.draw(len(shapes))], np.int64))


def dynamic_reshape(m: Maker, x: Value, a: Array) -> None:
    if a.ndim < 2:
        return
    ((shape, _),) = m.put("Shape", x)
    ((batch, _),) = m.put("Gather", shape, np.array([0], np.int64))
    ((target, _),) = m.put("Concat", batch, np.array([-1], np.int64), axis=0)
    m.put("Reshape", x, target)


def squeeze(m: Maker, x: Value, a: Array) -> None:
    ((wide, _),) = m.put("Unsqueeze", x, np.array([m.draw(a.ndim + 1)], np.int64))
    if m.draw(2):
        found = m.array(wide)
        assert found is not None
        m.put("Squeeze", wide, np.array([found.shape.index(1)], np.int64))


def reduce(m: Maker, x: Value, a: Array) -> None:
    if a.ndim:
        op_type = ("ReduceMean", "ReduceSum", "ReduceMax")[m.draw(3)]
        m.put(op_type, x, np.array([m.draw(a.ndim)], np.int64), keepdims=m.draw(2))


def concat(m: Maker, x: Value, a: Array) -> None:
    if a.ndim:
        other = m.pick(lambda b: is_float(b) and b.shape == a.shape)
        m.put("Concat", *([x] if other is None or not m.draw(4) else [x, other[0]]), axis=m.draw(a.ndim))


def split(m: Maker, x: Value, a: Array) -> None:
    axis = next((i for i, n in enumerate(a.shape) if n % 2 == 0 and i > 0), None)
    if axis is not None:
        m.put("Split", x, count=2, axis=axis, num_outputs=2)


def slice_(m: Maker, x: Value, a: Array) -> None:
    if a.ndim:
        axis = m.draw(a.ndim)
        m.put("Slice", x, np.array([m.draw(2)], np.int64), np.array([1 << 40]), np.array([axis]))


def pad(m: Maker, x: Value, a: Array) -> None:
    amounts = [0, 0, *[m.draw(2) for _ in range(2)]]
    m.put("Pad", x, np.array(amounts * 2, np.int64), np.asarray([0.0, 1.0][m.draw(2)]))


def convolve(m: Maker, x: Value, a: Array) -> None:
    channels = a.shape[1]
    if min(a.shape[2:]) < 2:
        return
    bias = [m.random(4)] if m.draw(2) else []
    if m.draw(3) == 0:
        m.put("ConvTranspose", x, m.random(channels, 4, 2, 2), *bias)
    elif m.draw(3) == 0:
        m.put("Conv", x, m.random(channels, 1, 2, 2), group=channels)
    else:
        m.put("Conv", x, m.random(4, channels, 2, 2), *bias, pads=[1, 0, 0, 1])


def pool(m: Maker, x: Value, a: Array) -> None:
    if min(a.shape[2:]) >= 2:
        m.put("AveragePool", x, kernel_shape=[2, 2], count_include_pad=m.draw(2))


def batch_norm(m: Maker, x: Value, a: Array) -> None:
    if a.ndim >= 2:
        c = a.shape[1]
        m.put("BatchNormalization", x, m.random(c), m.random(c), m.random(c), np.abs(m.random(c)) + 0.5)


def product(m: Maker, x: Value, a: Array) -> None:
    if a.ndim < 1 or a.shape[-1] > 64:
        return
    weights = m.random(a.shape[-1], 3)
    if a.ndim == 2 and m.draw(2):
        m.put("Gemm", x, weights.T.copy(), *([m.random(3)] if m.draw(2) else []), transB=1, alpha=2.0)
    else:
        m.put("MatMul", x, weights)


def attention(m: Maker, x: Value, a: Array) -> None:
    if a.ndim >= 2:
        perm = [*range(a.ndim - 2), a.ndim - 1, a.ndim - 2]
        ((transposed, _),) = m.put("Transpose", x, perm=perm)
        ((scaled, _),) = m.put("Mul", transposed, np.asarray(m.scalar() + 0.25))
        m.put("MatMul", x, scaled)


def where(m: Maker, x: Value, a: Array) -> None:
    ((condition, _),) = m.put("Greater", x, np.asarray(0.1))
    ((negated, _),) = m.put("Not", condition)
    m.put("Where", negated, x, np.asarray(0.5))


def cast_and_back(m: Maker, x: Value, a: Array) -> None:
    ((narrow, _),) = m.put("Cast", x, to=dtypes.FLOAT32.onnx)
    ((wide, _),) = m.put("Cast", narrow, to=dtypes.FLOAT64.onnx)
    if m.draw(2):
        ((narrow, _),) = m.put("Cast", wide, to=dtypes.FLOAT32.onnx)
        m.put("Cast", narrow, to=dtypes.FLOAT64.onnx)


def gelu(m: Maker, x: Value, a: Array) -> None:
    if m.draw(2):
        ((u, _),) = m.put("Div", x, np.asarray(sqrt(2)))
        ((e, _),) = m.put("Erf", u)
    else:
        ((cube, _),) = m.put("Pow", x, np.asarray(3.0))
        ((cube, _),) = m.put("Mul", cube, np.asarray(0.044715))
        ((u, _),) = m.put("Add", x, cube)
        ((u, _),) = m.put("Mul", u, np.asarray(sqrt(2 / pi)))
        ((e, _),) = m.put("Tanh", u)
    ((p, _),) = m.put("Add", e, np.asarray(1.0))
    if m.draw(2):
        ((h, _),) = m.put("Mul", x, p)
        m.put("Mul", h, np.asarray(0.5))
    else:
        ((h, _),) = m.put("Mul", np.asarray(0.5), x)
        m.put("Mul", h, p)


def gated(m: Maker, x: Value, a: Array) -> None:
    which = m.draw(4)
    if which == 0:
        ((gate, _),) = m.put("Sigmoid", x)
    elif which == 1:
        ((gate, _),) = m.put("HardSigmoid", x, alpha=1 / 6, beta=0.5)
    elif which == 2:
        ((soft, _),) = m.put("Softplus", x)
        ((gate, _),) = m.put("Tanh", soft)
    else:
        ((shifted, _),) = m.put("Add", x, np.asarray(3.0))
        ((clipped, _),) = m.put("Clip", shifted, np.asarray(0.0), np.asarray(6.0))
        ((gate, _),) = m.put("Div", clipped, np.asarray(6.0))
    m.put("Mul", gate, x)


def normalise(m: Maker, x: Value, a: Array) -> None:
    if not a.ndim:
        return
    axes = np.array([-1], np.int64)
    centred = x
    if m.draw(3):
        ((mean, _),) = m.put("ReduceMean", x, axes)
        ((centred, _),) = m.put("Sub", x, mean)
    ((square, _),) = m.put("Pow", centred, np.asarray(2.0))
    ((variance, _),) = m.put("ReduceMean", square, axes)
    ((shifted, _),) = m.put("Add", variance, np.asarray(0.125))
    ((root, _),) = m.put("Sqrt", shifted)
    ((result, _),) = m.put("Div", centred, root)
    if m.draw(2):
        ((result, _),) = m.put("Mul", result, m.random(a.shape[-1]))
        if m.draw(2):
            m.put("Add", result, m.random(a.shape[-1]))


def constant_branch(m: Maker, x: Value, a: Array) -> None:
    branches = []
    for op_type in ("Neg", "Abs"):
        inner = GraphBuilder(Graph(op_type), VERSION)
        inner.output(inner.op(op_type, x), f"{op_type}_result_{len(m.pool)}")
        branches.append(inner.graph)
    chosen = m.draw(2)
    output = m.builder.op("If", np.asarray(bool(chosen)), then_branch=branches[0], else_branch=branches[1])
    m.pool.append((output, -a if chosen else np.abs(a)))


STEPS: list[tuple[Step, Callable[[Array], bool]]] = [
    *((unary(name), is_float) for name in ("Relu", "Sigmoid", "Tanh", "Neg", "Identity", "Dropout", "Softsign", "Erf")),
    *((with_number(name), is_float) for name in ("Add", "Sub", "Mul", "Div")),
    *((with_number(name, first=True), is_float) for name in ("Add", "Sub", "Mul")),
    *((with_channels(name), is_float) for name in ("Add", "Mul", "Sub")),
    *((with_other(name), is_float) for name in ("Add", "Mul", "Max")),
    *((step, is_float) for step in (transpose, transpose, reshape, dynamic_reshape, squeeze, reduce, concat, split, slice_)),
    *((step, is_float) for step in (product, attention, where, cast_and_back, gelu, gated, normalise, batch_norm)),
    (constant_branch, is_float),
    *((step, is_image) for step in (convolve, convolve, pad, pool, transpose)),
    (lambda m, x, a: m.put("Softmax", x, axis=-1), lambda a: is_float(a) and a.ndim > 0),
]  # fmt: skip


def random_graph(numbers: list[int]) -> tuple[Graph, dict[str, Array]]:
    def endless() -> Iterator[int]:
        yield from numbers
        while True:
            yield 0

    m = Maker(endless())
    batch = symbol("N")
    generator = np.random.default_rng(1)
    for name, shape in (("image", (3, 4, 4)), ("rows", (6,)), ("tokens", (2, 4))):
        m.feeds[name] = np.round(generator.standard_normal((BATCH, *shape)), 2)
        m.pool.append((m.builder.input(name, TensorType(dtypes.FLOAT64, (batch, *shape))), m.feeds[name]))
    for _ in range(len(numbers) // 3):
        step, accept = STEPS[m.draw(len(STEPS))]
        chosen = m.pick(accept)
        if chosen is not None:
            step(m, *chosen)
    made = [value for value, _ in m.pool if value.producer is not None] or [m.builder.Relu(m.pool[0][0])]
    for value in {made[-1], made[len(made) // 2], *(value for value in made if not value.uses)}:
        m.builder.output(value)
    m.builder.graph.outputs.sort(key=lambda value: value.name)
    return m.builder.graph, m.feeds


def optimised(model: Model, level: GraphOptimizationLevel) -> Model:
    changed = copy_of(model)
    run_passes(changed, CompileOptions(optimization_level=level, verify=True))
    return changed


@pytest.mark.parametrize(
    "level",
    [
        GraphOptimizationLevel.ORT_ENABLE_BASIC,
        GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
        GraphOptimizationLevel.ORT_ENABLE_ALL,
    ],
    ids=lambda level: level.name,
)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(st.integers(0, 1 << 16), min_size=6, max_size=90))
def test_a_random_graph_gives_the_same_results_after_the_passes(level: GraphOptimizationLevel, numbers: list[int]) -> None:
    graph, feeds = random_graph(numbers)
    model = model_of(graph)
    expected = evaluate(model, feeds)
    changed = optimised(model, level)
    assert [value.name for value in changed.graph.outputs] == [value.name for value in graph.outputs]
    try:
        assert_same(evaluate(changed, feeds), expected, rtol=1e-5, atol=1e-6)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{format_graph(graph)}\n=>\n{format_graph(changed.graph)}") from None
