"""Whatever a model says, checking it gives a list of problems and no crash."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx import dtypes
from sardonyx.analysis.check import check_model
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.ir import tensor
from sardonyx.ir.builder import make_attr
from sardonyx.ir.dims import Dim, symbol
from sardonyx.ir.graph import Graph, Model, walk
from sardonyx.ir.text import format_model, parse_graph, parse_model
from sardonyx.ir.types import OptionalType, SequenceType, TensorType, Type
from sardonyx.ir.verify import verify

GRAPHS = (
    """graph (x: f32[N,3,8,8], w: f32[4,3,3,3], c: bool[], k: i64[2]) -> (y, z) {
      a = Conv(x, w) {pads = [1, 1, 1, 1], strides = [2, 2]} @22
      b, i = MaxPool(a) {kernel_shape = [2, 2], ceil_mode = 1} @22
      s = Shape(b) {start = 1} @21
      p = ReduceProd(s) {keepdims = 1} @18
      m = Constant() {value_ints = [-1]} @21
      t = Concat(m, p) {axis = 0} @13
      y = Reshape(b, t) {allowzero = 0} @21
      q = Slice(y, k, k) @13
      z = If(c) {then_branch = graph then() -> (u) {
        u = Transpose(q) {perm = [1, 0]} @21
      }, else_branch = graph otherwise() -> (v) {
        v = Gemm(q, q) {transB = 1} @13
      }} @21
    }""",
    """graph (x: f32[2,3], n: i64[], c: bool[], e: i64[3]) -> (o, all) {
      o, all = Loop(n, c, x) {body = graph body(i: i64[], go: bool[], state) -> (next_go, next, scan) {
        next_go = Identity(go) @16
        r = ReduceSum(state) {keepdims = 1} @13
        next = Add(state, r) @14
        scan = Cast(next) {to = 10} @19
      }} @21
      g = Gather(o, e) {axis = 1} @13
      h, j = TopK(g, f) {largest = 0} @11
      l = LSTM(all, h, h) {hidden_size = 4, direction = "bidirectional"} @14
      q = QuantizeLinear(x, n) @13
      d = Resize(all, _, _, e) {mode = "linear"} @19
      s = Split(x) {axis = 0, num_outputs = 2} @18
      r1 = Range(n, n, n) @11
      w = Where(c, x, g) @16
      u = Unsqueeze(x, e) @13
      p = Pad(x, e, _) {mode = "edge"} @18
      t = Einsum(x, x) {equation = "ij,ij->i"} @12
      sq = SequenceConstruct(x, g) @11
      at = SequenceAt(sq, n) @11
    }""".replace("TopK(g, f)", "TopK(g, e)"),
)
VALUES: tuple[Any, ...] = (
    0, -1, 7, 2**62, 0.5, float("nan"), "", "SAME_UPPER", [], [0], [-1, 5], [2**40, 2**40], [0.5], ["a"],
    np.zeros(0, np.int64), np.array(3), np.array([[1.5]], np.float32),
)  # fmt: skip
ARRAYS = (
    np.array([2, 3]),
    np.array(0),
    np.zeros((2, 0), np.float32),
    np.array([2**50, 2**50]),
    np.array([True]),
    np.array(["s"]),
)
DIMS: tuple[Dim, ...] = (0, 1, 2, 3, 8, symbol("N"), symbol("?u"))


def random_type(chance: random.Random) -> Type:
    if chance.random() < 0.1:
        return chance.choice((SequenceType, OptionalType))(random_type(chance))
    shape = None if chance.random() < 0.1 else tuple(chance.choice(DIMS) for _ in range(chance.randrange(5)))
    return TensorType(chance.choice(dtypes.ALL), shape)


def damage(model: Model, chance: random.Random) -> None:
    """Change one thing at random; the graph stays consistent in itself."""
    graph = model.graph
    node = chance.choice(list(walk(graph)))
    value = chance.choice(graph.inputs) if graph.inputs else None
    match chance.randrange(6):
        case 0 if value is not None:
            value.type = random_type(chance)
        case 1 if value is not None:
            graph.inputs.remove(value)
            value.constant = tensor.from_numpy(chance.choice(ARRAYS))
            value.type = None
            graph.initializers[value.name] = value
        case 2:
            plain = [name for name, attr in node.attrs.items() if not isinstance(attr.value, Graph)]
            name = chance.choice([*plain, "axis"])
            node.attrs[name] = make_attr(name, chance.choice(VALUES))
        case 3 if node.attrs and not node.subgraphs():
            del node.attrs[chance.choice(list(node.attrs))]
        case 4 if node.inputs:
            node.set_input(chance.randrange(len(node.inputs)), chance.choice([None, value]))
        case _:
            node.version = chance.randrange(30)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(GRAPHS), st.integers(0, 2**32), st.integers(0, 5))
def test_a_damaged_model_is_judged_without_a_crash(text: str, seed: int, times: int) -> None:
    chance = random.Random(seed)
    model = Model(parse_graph(text), opset_imports={"": 21})
    for _ in range(times):
        damage(model, chance)
    assert verify(model) == []
    printed = format_model(model)
    assert format_model(parse_model(printed)) == printed
    report = infer_shapes(model)
    for problem in check_model(model, report):
        assert problem.text
    assert verify(model) == []
