"""Values that are kept in memory between the walks of a reduction, while other results are computed from them as well."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import NodeProto, helper

from lowering_case import F32, Array, model
from native_support import assert_native_agrees
from sardonyx.kernel.expr import load, reduced, sqrt
from sardonyx.kernel.loops import is_overwritten

RULES = ("Softmax", "LogSoftmax", "Hardmax", "ReduceMean", "LayerNormalization")


def rule_node(name: str, axis: int) -> NodeProto:
    if name == "ReduceMean":
        return helper.make_node(name, ["m", "axis"], ["s"], keepdims=1)
    inputs = ["m", "scale"] if name == "LayerNormalization" else ["m"]
    return helper.make_node(name, inputs, ["s"], axis=axis)


@given(
    name=st.sampled_from(RULES),
    shape=st.sampled_from([(2, 5, 4), (40, 33), (3, 7), (400, 4), (2, 300), (1, 1)]),
    order=st.permutations(["y", "z", "s", "m"]),
    count=st.integers(2, 4),
)
@settings(max_examples=60, deadline=None)
def test_others_read_what_a_reduction_keeps(name: str, shape: tuple[int, ...], order: list[str], count: int) -> None:
    x: Array = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Mul", ["e", "x"], ["m"]),
        helper.make_node("Mul", ["m", "half"], ["y"]),
        helper.make_node("Sub", ["m", "e"], ["z"]),
        rule_node(name, -1),
    ]
    constants = {"half": np.array(0.5, np.float32), "scale": np.ones(shape[-1], np.float32), "axis": np.array([-1])}
    used = {name for node in nodes for name in node.input}
    made = model(
        nodes,
        {"x": x},
        dict.fromkeys(order[:count], F32),
        constants={name: value for name, value in constants.items() if name in used},
    )
    assert_native_agrees(made, {"x": x}, atol=1e-5)


def test_memory_of_one_value_is_taken_by_another_only_behind_its_last_reader() -> None:
    x = load(0, "f32")
    largest = reduced("max", x * x, 1)
    kept = sqrt(largest - x * x)
    total = reduced("sum", kept, 2)
    stash = [(1, x * x), (1, kept)]
    assert not is_overwritten([(1, kept / total)], [], stash)
    assert is_overwritten([(1, kept / total), (2, (x * x) * 0.5)], [], stash)
    assert not is_overwritten([(1, kept / total), (2, (x * x) * 0.5)], [], [(2, x * x), (1, kept)])
