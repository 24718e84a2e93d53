"""Branches that are merged give what they gave apart, whatever their kernels, pads, groups and signs."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pass_support import evaluate, model_of
from sardonyx import dtypes
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.graph import Graph, Model, Value
from sardonyx.ir.types import TensorType
from sardonyx.passes.fold_shape_values import infer_from_inputs
from sardonyx.passes.merge_branches import MergeBranches

SIZE = 11  # of the image along each axis


@st.composite
def branches(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What branches have in common, and each of them: its kernel lies anywhere in the widest one, or is the image."""
    rank = draw(st.integers(1, 2))
    widest = [draw(st.integers(1, 4)) for _ in range(rank)]
    strides, dilations = ([draw(st.integers(1, 2)) for _ in range(rank)] for _ in range(2))
    pads = [draw(st.integers(0, 4)) for _ in range(2 * rank)]
    groups, per_group = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    common = {"strides": strides, "dilations": dilations, "group": groups, "channels": groups * per_group, "rank": rank}
    parts: list[dict[str, Any]] = [{"kind": "conv", "kernel": widest, "pads": pads}]
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["conv", "conv", "norm", "image", "other"]))
        if kind == "conv":
            kernel = [draw(st.integers(1, size)) for size in widest]
            first = [draw(st.integers(0, size - own)) for size, own in zip(widest, kernel, strict=True)]
            before = [pads[axis] - first[axis] * dilations[axis] for axis in range(rank)]
            after = [pads[rank + axis] - (widest[axis] - kernel[axis] - first[axis]) * dilations[axis] for axis in range(rank)]
            if min(before + after) < 0:
                continue
            parts.append({"kind": kind, "kernel": kernel, "pads": [*before, *after]})
        else:
            parts.append({"kind": kind})
    order = draw(st.permutations(range(len(parts))))
    return common, [{**parts[number], "sign": draw(st.sampled_from([1, -1])), "bias": draw(st.booleans())} for number in order]


def made(common: dict[str, Any], parts: list[dict[str, Any]], seed: int) -> Model | None:
    rng = np.random.default_rng(seed)
    rank, channels = common["rank"], common["channels"]
    g = GraphBuilder(Graph("branches"), 20)
    x = g.input("x", TensorType(dtypes.FLOAT64, (2, channels, *[SIZE] * rank)))
    sizes = [
        (SIZE + part["pads"][axis] + part["pads"][rank + axis] - common["dilations"][axis] * (part["kernel"][axis] - 1) - 1)
        // common["strides"][axis]
        + 1
        for part in parts
        if part["kind"] == "conv"
        for axis in range(rank)
    ]
    same = all(size == SIZE for size in sizes)
    total: Value | None = None
    for part in parts:
        if part["kind"] == "conv":
            weights = rng.normal(size=(channels, channels // common["group"], *part["kernel"]))
            inputs = [x, weights, *([rng.normal(size=channels)] if part["bias"] else [])]
            attrs = {key: common[key] for key in ("strides", "dilations", "group")}
            value = g.op("Conv", *inputs, pads=part["pads"], **attrs)
        elif not same:
            continue
        elif part["kind"] == "norm":
            value = g.op("BatchNormalization", x, *(rng.random((4, channels)) + 0.5))
        else:
            value = x if part["kind"] == "image" else g.op("Sin", x)
        if total is None:
            total = value if part["sign"] > 0 else g.op("Neg", value)
        else:
            total = g.op("Add" if part["sign"] > 0 else "Sub", total, value)
    assert total is not None
    g.output(total, "y")
    return model_of(g.graph)


@given(case=branches(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=120, deadline=None)
def test_results_stay_the_same(case: tuple[dict[str, Any], list[dict[str, Any]]], seed: int) -> None:
    before, after = made(*case, seed), made(*case, seed)
    assert before is not None
    assert after is not None
    rank, channels = case[0]["rank"], case[0]["channels"]
    feeds = {"x": np.random.default_rng(seed).normal(size=(2, channels, *[SIZE] * rank))}
    infer_from_inputs(after)
    MergeBranches().run(after)
    np.testing.assert_allclose(evaluate(after, feeds)[0], evaluate(before, feeds)[0], rtol=1e-9, atol=1e-9)


def test_all_branches_become_one() -> None:
    g = GraphBuilder(Graph("branches"), 20)
    x = g.input("x", TensorType(dtypes.FLOAT64, (1, 4, 8, 8)))
    rng = np.random.default_rng(0)
    three, row, one = (rng.normal(size=(4, 1, *kernel)) for kernel in ((3, 3), (1, 3), (1, 1)))
    parts = [
        g.op("Conv", x, row, pads=[0, 1, 0, 1], group=4),
        g.op("Conv", x, one, group=4),
        g.op("BatchNormalization", x, *(rng.random((4, 4)) + 0.5)),
        g.op("Conv", x, three, pads=[1, 1, 1, 1], group=4),
        x,
    ]
    total = parts[0]
    for part in parts[1:]:
        total = g.Add(total, part)
    g.output(total, "y")
    model = model_of(g.graph)
    feeds = {"x": rng.normal(size=(1, 4, 8, 8))}
    (expected,) = evaluate(model, feeds)
    infer_from_inputs(model)
    assert MergeBranches().run(model).changes == 1
    assert [node.op_type for node in model.graph.nodes] == ["Conv"]
    np.testing.assert_allclose(evaluate(model, feeds)[0], expected, rtol=1e-9, atol=1e-9)


def test_a_long_chain_of_sums_is_no_deep_recursion() -> None:
    g = GraphBuilder(Graph("chain"), 20)
    x = g.input("x", TensorType(dtypes.FLOAT64, (1, 1, 2)))
    total = g.op("Conv", x, np.ones((1, 1, 1)))
    for _ in range(3000):
        total = g.op("Add", total, x)
    g.output(total, "y")
    model = model_of(g.graph)
    infer_from_inputs(model)
    assert MergeBranches().run(model).changes == 1
    np.testing.assert_array_equal(evaluate(model, {"x": np.ones((1, 1, 2))})[0], np.full((1, 1, 2), 3001.0))
