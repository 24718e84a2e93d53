"""Products of bfloat16 with constant matrices: pairs of products where the machine has them, widened numbers elsewhere."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from guarded import guarded
from lowering_case import model
from native_support import assert_native_agrees, compile_native
from sardonyx.codegen.host import host
from sardonyx.ir.tensor import Array
from sardonyx.kernel.matmul.pairs import PairMatMulKernel, multiplies_pairs
from sardonyx.lower.matmul.pairs import pack_pairs
from targets import names_here

BF16 = np.dtype(ml_dtypes.bfloat16)
ROUNDED = 2.0**-8  # half a step of a bfloat16, of the number


def content(nodes: list[Any], x: Array, constants: dict[str, Array]) -> Any:
    return model(nodes, {"x": x}, {"y": BF16}, constants=constants, opset=21)


def whole_numbers(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """So small that all sums are exact, in float32 and as bfloat16."""
    return rng.integers(-1, 2, shape).astype(BF16)


@pytest.mark.parametrize("target", names_here())
@settings(max_examples=25, deadline=None)
@given(
    batch=st.sampled_from([(), (2,), (2, 3)]),
    rows=st.integers(1, 20),
    depth=st.integers(1, 70),
    columns=st.integers(1, 140),
    seed=st.integers(0, 99),
    follows=st.sampled_from(["", "Relu", "Add"]),
)
def test_sums_of_small_whole_numbers_are_exact(
    target: str, batch: tuple[int, ...], rows: int, depth: int, columns: int, seed: int, follows: str
) -> None:
    rng = np.random.default_rng(seed)
    x, w = whole_numbers(rng, (*batch, rows, depth)), whole_numbers(rng, (depth, columns))
    constants = {"w": w, "b": whole_numbers(rng, (columns,))}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p" if follows else "y"])]
    if follows:
        nodes.append(helper.make_node(follows, ["p", "b"] if follows == "Add" else ["p"], ["y"]))
    assert_native_agrees(content(nodes, x, constants), {"x": guarded(x)}, rtol=0, atol=0, target=target)


@pytest.mark.parametrize("attrs", [{}, {"transA": 1}, {"transB": 1, "alpha": 0.5, "beta": 2.0}])
@pytest.mark.parametrize("depth", [64, 301])
def test_results_are_rounded_once(attrs: dict[str, Any], depth: int) -> None:
    rng = np.random.default_rng(depth)
    x, w, c = (rng.standard_normal(shape).astype(BF16) for shape in ((33, depth), (depth, 50), (50,)))
    if attrs.get("transA"):
        x = np.ascontiguousarray(x.T)
    constants = {"w": np.ascontiguousarray(w.T) if attrs.get("transB") else w, "c": c}
    nodes = [helper.make_node("Gemm", ["x", "w", "c"], ["y"], **attrs)]
    assert_native_agrees(content(nodes, x, constants), {"x": guarded(x)}, rtol=ROUNDED, atol=2e-3)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
def test_what_is_no_number_stays_in_its_row(value: float) -> None:
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((7, 33)).astype(BF16), np.abs(rng.standard_normal((33, 20))).astype(BF16)
    x[2, 5] = value
    assert_native_agrees(content([helper.make_node("MatMul", ["x", "w"], ["y"])], x, {"w": w}), {"x": x}, rtol=ROUNDED, atol=5e-3)


@pytest.mark.skipif(not multiplies_pairs(host()), reason="this machine has no dot products of bfloat16")
def test_the_machines_dot_products_are_used() -> None:
    x, w = np.ones((4, 32), BF16), np.ones((32, 48), BF16)
    _, compiled = compile_native(content([helper.make_node("MatMul", ["x", "w"], ["y"])], x, {"w": w}).SerializeToString())
    assert any(isinstance(getattr(step, "kernel", None), PairMatMulKernel) for step in compiled.lowered.steps)


@pytest.mark.parametrize("shape", [(4, 16), (5, 16), (3, 2, 7, 33)])
def test_pairs_lie_side_by_side(shape: tuple[int, ...]) -> None:
    matrices = np.arange(np.prod(shape), dtype=np.float32).reshape(shape).astype(BF16)
    packed = np.ascontiguousarray(pack_pairs.function(matrices, 16)).view(BF16)
    *_, depth, columns = shape
    for k in range(depth):
        for column in range(columns):
            found = packed[..., column // 16, k // 2, 2 * (column % 16) + k % 2]
            np.testing.assert_array_equal(found, matrices[..., k, column])
    assert np.count_nonzero(packed) == np.count_nonzero(matrices)
