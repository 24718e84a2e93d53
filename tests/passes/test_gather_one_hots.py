"""Products of one-hot encodings become rows of weights: the same numbers as the encodings give, for whatever is encoded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from classical_support import expanded
from native_support import run_reference
from sardonyx import InferenceSession
from sardonyx.formats.onnx import load
from sardonyx.ir.tensor import Array

ML = "ai.onnx.ml"
FAR = [*range(-4, 4), 2**62, -(2**63), 2**63 - 1]


def encoded_product(
    categories: list[list[int]], weights: Array, *, numbers: int, gemm: dict[str, Any] | None, kind: int = TensorProto.INT64
) -> ModelProto:
    """Encodings of columns beside numbers, in three dimensions and in two, times weights."""
    nodes, joined, inputs = [], [], []
    for number, each in enumerate(categories):
        is_flat = number % 2 == 1
        inputs.append(helper.make_tensor_value_info(f"x{number}", kind, ["N"] if is_flat else ["N", 1]))
        nodes.append(helper.make_node("OneHotEncoder", [f"x{number}"], [f"h{number}"], domain=ML, cats_int64s=each, zeros=1))
        if not is_flat:
            nodes.append(helper.make_node("Flatten", [f"h{number}"], [f"f{number}"], axis=1))
        joined.append(f"h{number}" if is_flat else f"f{number}")
    if numbers:
        inputs.append(helper.make_tensor_value_info("n", TensorProto.FLOAT, ["N", numbers]))
        joined.insert(1, "n")
    nodes.append(helper.make_node("Concat", joined, ["all"], axis=-1))
    constants = [numpy_helper.from_array(weights, "w")]
    if gemm is None:
        nodes.append(helper.make_node("MatMul", ["all", "w"], ["y"]))
    else:
        constants.append(numpy_helper.from_array(np.arange(3, dtype=np.float32), "c"))
        nodes.append(helper.make_node("Gemm", ["all", "w", "c"], ["y"], **gemm))
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("y")], constants)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def operators(content: ModelProto) -> list[str]:
    return [node.op_type for node in expanded(content)[0].graph.nodes]


@settings(max_examples=25, deadline=None)
@given(
    data=st.data(),
    numbers=st.integers(0, 3),
    gemm=st.sampled_from([None, {}, {"transB": 1}, {"alpha": 0.5, "beta": -2.0}]),
    kind=st.sampled_from([np.int64, np.int32]),
)
def test_products_are_those_of_the_encodings(data: Any, numbers: int, gemm: dict[str, Any] | None, kind: Any) -> None:
    runs = st.integers(-3, 3).flatmap(lambda first: st.integers(1, 20).map(lambda count: list(range(first, first + count))))
    sets = st.one_of(runs, st.lists(st.sampled_from([*range(-30, 30), 10**12]), min_size=1, max_size=60, unique=True))
    categories = data.draw(st.lists(sets, min_size=1, max_size=3))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    width = sum(map(len, categories)) + numbers
    weights = random.normal(size=(width, 3)).astype(np.float32)
    if gemm is not None and gemm.get("transB"):
        weights = np.ascontiguousarray(weights.T)
    wire = TensorProto.INT64 if kind is np.int64 else TensorProto.INT32
    content = encoded_product(categories, weights, numbers=numbers, gemm=gemm, kind=wire)
    rows = data.draw(st.integers(0, 6))
    feeds: dict[str, Any] = {}
    for number, each in enumerate(categories):
        known = [category for category in [*each, *FAR] if np.iinfo(kind).min <= category <= np.iinfo(kind).max]
        drawn = np.array([random.choice(np.array(known, object)) for _ in range(rows)], kind)
        feeds[f"x{number}"] = drawn if number % 2 else drawn[:, None]
    if numbers:
        feeds["n"] = random.normal(size=(rows, numbers)).astype(np.float32)
    serialized = content.SerializeToString()
    [found] = InferenceSession(serialized).run(None, feeds)
    [wanted] = run_reference(load(serialized), feeds)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_no_encoding_of_many_categories_is_written() -> None:
    weights = np.ones((5000 + 40 + 2, 3), np.float32)
    far_apart = [number * 7 for number in range(40)]
    made = operators(encoded_product([list(range(5000)), far_apart], weights, numbers=2, gemm={}))
    assert made.count("Gather") >= 2
    assert "OneHotEncoder" not in made
    assert "Equal" not in made
    assert made.count("Gemm") == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_multiplied(bad: float) -> None:
    weights = np.ones((10, 3), np.float32)
    weights[4, 1] = bad
    content = encoded_product([list(range(10))], weights, numbers=0, gemm=None)
    model, reasons = expanded(content)
    assert any("not finite" in reason for reason in reasons)
    assert "MatMul" in [node.op_type for node in model.graph.nodes]


def test_few_categories_and_those_that_stand_twice_stay_encoded() -> None:
    for categories in ([1, 2, 3], [1, 2, 3, 4, 5, 6, 7, 8, 8]):
        weights = np.ones((len(categories), 3), np.float32)
        assert "MatMul" in operators(encoded_product([categories], weights, numbers=0, gemm=None))
