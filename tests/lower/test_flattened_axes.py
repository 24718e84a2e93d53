"""Operators that see several axes as one, between elementwise nodes whose operands are repeated along some of these axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import NodeProto, helper

from lowering_case import F32, Array, model
from property_support import SEEDS, assert_guarded_agrees, shapes

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

FLATTENED = ("Softmax", "LogSoftmax", "Hardmax")
OTHERS = (
    "LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization", "MeanVarianceNormalization",
    "GlobalAveragePool", "GlobalMaxPool", "ReduceSum", "ReduceMax", "ReduceMean", "ReduceLogSumExp", "LpNormalization", "ArgMax",
)  # fmt: skip


def numbers(shape: tuple[int, ...], seed: int) -> Array:
    """Few different numbers, so that the largest of a row stands there several times."""
    return np.asarray(np.random.default_rng(seed).integers(-4, 5, shape)).astype(F32)


def repeated(shape: tuple[int, ...], along: tuple[bool, ...], leading: int) -> tuple[int, ...]:
    """A shape that broadcasts to another: 1 on some axes, the first ones left out."""
    return tuple(1 if once else size for once, size in zip(along, shape))[leading:]


def assert_agrees(
    root: NodeProto, shape: tuple[int, ...], more: dict[str, Array], opset: int, seed: int, data: st.DataObject
) -> None:
    """The node between two elementwise ones with operands that are repeated, its result alone or part of a Concat."""
    along = st.tuples(*(st.booleans() for _ in shape))
    before, after = (data.draw(st.sampled_from(("", "Add", "Mul", "Sub"))) for _ in range(2))
    feeds = {"x": numbers(shape, seed), **{name: array for name, array in more.items() if name != "axes"}}
    nodes, source = [], "x"
    if before:
        feeds["b"] = numbers(repeated(shape, data.draw(along), data.draw(st.integers(0, len(shape)))), seed + 1)
        operands = ["x", "b"] if data.draw(st.booleans()) else ["b", "x"]
        nodes.append(helper.make_node(before, operands, ["s"]))
        source = "s"
    root.input[0] = source
    nodes.append(root)
    result = root.output[0]
    if after and root.op_type != "ArgMax":
        feeds["c"] = numbers(repeated(shape, data.draw(along), data.draw(st.integers(0, len(shape)))), seed + 2)
        if root.op_type in FLATTENED or root.op_type.endswith("malization"):  # the shape stays
            nodes.append(helper.make_node(after, [result, "c"], ["t"]))
            result = "t"
    if data.draw(st.booleans()) and root.op_type in FLATTENED:
        nodes.append(helper.make_node("Concat", [result, "x"], ["j"], axis=data.draw(st.integers(0, len(shape) - 1))))
        result = "j"
    symbolic = data.draw(st.booleans()) and root.op_type != "GroupNormalization"  # whose channels must be known
    feeds = {name: array for name, array in feeds.items() if any(name in node.input for node in nodes)}
    outputs: dict[str, Any] = {result: np.int64 if root.op_type == "ArgMax" else F32}
    if data.draw(st.booleans()) and before:
        outputs["s"] = F32
    constants = {"axes": more["axes"]} if "axes" in more else None
    made = model(nodes, feeds, outputs, constants=constants, opset=opset, symbolic=symbolic)
    assert_guarded_agrees(made, feeds, rtol=2e-5, atol=2e-5)


@given(shapes(2, 4, smallest=1), st.sampled_from(FLATTENED), st.sampled_from((8, 11, 12, 13, 21)), SEEDS, st.data())
@settings(max_examples=150, deadline=None)
def test_rows_of_several_axes(shape: tuple[int, ...], name: str, opset: int, seed: int, data: st.DataObject) -> None:
    least = -len(shape) if opset >= 11 else 0
    axis = data.draw(st.integers(least, len(shape) - 1))
    assert_agrees(helper.make_node(name, ["x"], ["y"], axis=axis), shape, {}, opset, seed, data)


@pytest.mark.parametrize("name", FLATTENED)
@pytest.mark.parametrize("before", ["Add", "Mul", "Sub"])
@pytest.mark.parametrize("other", [(2, 1, 4), (1, 3, 1), (2, 3, 1), (1, 1, 4), (3, 1), (4,), ()])
def test_rows_of_two_axes(name: str, before: str, other: tuple[int, ...]) -> None:
    nodes = [helper.make_node(before, ["x", "b"], ["s"]), helper.make_node(name, ["s"], ["y"], axis=1)]
    feeds = {"x": numbers((2, 3, 4), 1), "b": numbers(other, 2)}
    assert_guarded_agrees(model(nodes, feeds, {"y": F32}, opset=11), feeds, rtol=1e-6, atol=1e-6)


@given(shapes(3, 4, smallest=1), st.sampled_from(OTHERS), SEEDS, st.data())
@settings(max_examples=150, deadline=None)
def test_other_rows(shape: tuple[int, ...], name: str, seed: int, data: st.DataObject) -> None:
    more: dict[str, Array] = {}
    axis, rank = data.draw(st.integers(0, len(shape) - 1)), len(shape)
    inputs, opset = ["x"], 21
    attrs: dict[str, Any] = {}
    if name in ("LayerNormalization", "RMSNormalization"):
        more["scale"] = numbers(shape[axis:], seed + 3)
        inputs, attrs, opset = ["x", "scale"], {"axis": axis}, 23
    elif name == "InstanceNormalization":
        more |= {"scale": numbers(shape[1:2], seed + 3), "bias": numbers(shape[1:2], seed + 4)}
        inputs = ["x", "scale", "bias"]
    elif name == "GroupNormalization":
        groups = data.draw(st.sampled_from([each for each in range(1, shape[1] + 1) if shape[1] % each == 0]))
        more |= {"scale": numbers(shape[1:2], seed + 3), "bias": numbers(shape[1:2], seed + 4)}
        inputs, attrs = ["x", "scale", "bias"], {"num_groups": groups}
    elif name == "MeanVarianceNormalization":
        attrs = {"axes": sorted(data.draw(st.sets(st.integers(0, rank - 1), min_size=1)))}
    elif name in ("LpNormalization", "ArgMax"):
        attrs = {"axis": axis}
    elif name.startswith("Reduce"):
        more["axes"] = np.array(sorted(data.draw(st.sets(st.integers(0, rank - 1), min_size=1))), np.int64)
        inputs = ["x", "axes"]
    assert_agrees(helper.make_node(name, inputs, ["y"], **attrs), shape, more, opset, seed, data)
