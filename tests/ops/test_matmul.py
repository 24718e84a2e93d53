"""MatMul, Gemm and Einsum against NumPy and onnxruntime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_case import FLOATS, by_onnxruntime, close, f32, known_shape, random_array, run, seeds

from sardonyx import dtypes
from sardonyx.ir.dims import symbol
from sardonyx.ops.matmul.matmul import exact_float, integer_matmul, parse_equation

quick = settings(max_examples=25, deadline=None)
size = st.integers(0, 4)


def near_product(actual: Any, a: Any, b: Any) -> None:
    """Terms may cancel: how far a sum in some order may be off depends on their magnitudes, not on the result's."""
    exact = np.asarray(np.matmul(a.astype(np.float64), b.astype(np.float64)))
    magnitude = np.matmul(np.abs(a.astype(np.float64)), np.abs(b.astype(np.float64)))
    computed = np.float64 if a.dtype == np.float64 else np.float32
    step = float(ml_dtypes.finfo(a.dtype).eps)  # type: ignore[no-untyped-call]
    allowed = (a.shape[-1] + 2) * float(np.finfo(computed).eps) * magnitude + step * np.abs(exact) + 1e-30
    assert (actual.dtype, actual.shape) == (a.dtype, exact.shape)
    assert (np.abs(actual.astype(np.float64) - exact) <= allowed).all()


@quick
@given(
    batch=st.sampled_from([((), ()), ((2,), ()), ((), (3,)), ((2, 1), (3,)), ((0,), (1,))]),
    m=size, k=size, n=size, seed=seeds, dtype=st.sampled_from((*FLOATS, np.int32, np.int64, np.uint32, np.uint64)),
)  # fmt: skip
def test_matmul_is_numpys_in_every_type(batch: Any, m: int, k: int, n: int, seed: int, dtype: Any) -> None:
    a = random_array(seed, (*batch[0], m, k), dtype, special=False)
    b = random_array(seed + 1, (*batch[1], k, n), dtype, special=False)
    product = run("MatMul", a, b)
    if dtypes.from_numpy(np.dtype(dtype)).is_float:
        near_product(product, a, b)
    else:
        close(product, np.matmul(a, b))


@quick
@given(shapes=st.sampled_from([((3,), (3,)), ((3,), (2, 3, 4)), ((2, 4, 3), (3,)), ((0,), (0,))]), seed=seeds)
def test_matmul_takes_vectors(shapes: Any, seed: int) -> None:
    a, b = (random_array(seed, shape, np.float32, special=False) for shape in shapes)
    near_product(run("MatMul", a, b), a, b)


def test_matmul_lets_nan_and_infinity_pass_without_a_warning() -> None:
    a = np.array([[np.inf, 1], [np.nan, 0]], np.float32)
    np.testing.assert_array_equal(run("MatMul", a, np.array([[0], [1]], np.float32)), [[np.nan], [np.nan]])


def test_matmul_says_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"shapes \(2, 3\) and \(4, 5\) do not fit"):
        run("MatMul", np.zeros((2, 3), np.float32), np.zeros((4, 5), np.float32))
    with pytest.raises(ValueError, match="3 columns against 4 rows"):
        known_shape("MatMul", [f32("N", 3), f32(4, 5)])
    with pytest.raises(ValueError, match="a scalar cannot be multiplied"):
        run("MatMul", np.zeros((), np.float32), np.zeros((4, 5), np.float32))


def test_matmul_keeps_symbols() -> None:
    n, m = symbol("N"), symbol("M")
    assert known_shape("MatMul", [f32("N", 1, "M", 3), f32(2, 3, 5)]) == (n, 2, m, 5)
    assert known_shape("MatMul", [f32("N", "K"), f32("K")]) == (n,)


def test_integer_products_wrap_around_where_floats_are_not_exact() -> None:
    a = np.array([[2**31 - 1, 1]], np.int64)
    b = np.array([[2**40], [1]], np.int64)
    assert exact_float(2, a, b) is None
    np.testing.assert_array_equal(integer_matmul(a, b, np.int64), a @ b)
    small = np.full((1, 100), -128, np.int8)
    assert exact_float(100, small, small) == np.float32
    np.testing.assert_array_equal(integer_matmul(small, small.T), [[128 * 128 * 100]])
    assert integer_matmul(small, small.T).dtype == np.int32


@quick
@given(
    m=size, k=st.integers(1, 4), n=size, trans_a=st.booleans(), trans_b=st.booleans(), seed=seeds,
    alpha=st.sampled_from([1.0, 0.5, -2.0]), beta=st.sampled_from([1.0, 0.0, 2.0]),
    bias=st.sampled_from(["none", "scalar", "one", "row", "column", "full"]), dtype=st.sampled_from(FLOATS),
)  # fmt: skip
def test_gemm_follows_its_formula(
    m: int, k: int, n: int, trans_a: bool, trans_b: bool, seed: int, alpha: float, beta: float, bias: str, dtype: Any
) -> None:
    a = random_array(seed, (k, m) if trans_a else (m, k), dtype, special=False)
    b = random_array(seed + 1, (n, k) if trans_b else (k, n), dtype, special=False)
    shape = {"scalar": (), "one": (1,), "row": (n,), "column": (m, 1), "full": (m, n)}.get(bias)
    c = None if shape is None else random_array(seed + 2, shape, dtype, special=False)
    x, y = (a.T if trans_a else a).astype(np.float64), (b.T if trans_b else b).astype(np.float64)
    expected = alpha * (x @ y) + (0 if c is None else beta * c.astype(np.float64))
    result = run("Gemm", a, b, c, alpha=alpha, beta=beta, transA=int(trans_a), transB=int(trans_b))
    tolerance = 1e-5 if dtype in (np.float32, np.float64) else 2e-2
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=tolerance, atol=10 * tolerance)


def test_gemm_of_integers_stays_integer() -> None:
    a = np.arange(6, dtype=np.int32).reshape(2, 3)
    result = run("Gemm", a, a.T.copy(), np.array([1, -1], np.int32), beta=3.0)
    np.testing.assert_array_equal(result, a @ a.T + [3, -3])
    assert result.dtype == np.int32


def test_gemm_says_what_does_not_fit() -> None:
    two, three = np.zeros((2, 2), np.float32), np.zeros((3, 2), np.float32)
    with pytest.raises(ValueError, match="A has 2 columns but B has 3 rows"):
        run("Gemm", two, three)
    with pytest.raises(ValueError, match=r"C of shape \(3,\) does not broadcast to the result's \(2, 2\)"):
        run("Gemm", two, two, np.zeros(3, np.float32))


EQUATIONS = [
    ("ij,jk->ik", [(2, 3), (3, 4)]), ("ij,jk", [(2, 3), (3, 4)]), ("ij->ji", [(2, 3)]), ("ij->i", [(2, 3)]), ("ii->i", [(3, 3)]),
    ("ii", [(3, 3)]), ("bij, bjk -> bik", [(2, 3, 4), (2, 4, 5)]), ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
    ("...ii->...i", [(2, 3, 3)]), ("i,i", [(4,), (4,)]), ("i,j->ij", [(2,), (3,)]), ("b...,b...->b...", [(2, 3), (2, 3)]),
    ("ijk,jl,kl->il", [(2, 3, 4), (3, 5), (4, 5)]), ("...->...", [(2, 3)]), ("bhqd,bhkd->bhqk", [(1, 2, 3, 4), (1, 2, 5, 4)]),
]  # fmt: skip


@pytest.mark.parametrize(("equation", "sizes"), EQUATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
def test_einsum_is_numpys(equation: str, sizes: Any, dtype: Any) -> None:
    arrays = [random_array(index, shape, dtype, special=False) for index, shape in enumerate(sizes)]
    wide = np.float64 if np.dtype(dtype).kind == "f" else np.int64
    expected = np.asarray(np.einsum(equation, *(array.astype(wide) for array in arrays)))
    np.testing.assert_allclose(
        run("Einsum", *arrays, equation=equation), expected, rtol=2e-2 if dtype == np.float16 else 1e-4, atol=2e-2
    )


def test_einsum_sums_an_ellipsis_the_result_leaves_out() -> None:
    x = random_array(0, (2, 3, 4), np.float32, special=False)
    close(run("Einsum", x, equation="...k->k"), x.sum(axis=(0, 1)), ulps=64)


def test_einsum_agrees_with_onnxruntime_on_the_implicit_result() -> None:
    x, y = (random_array(seed, (2, 3), np.float32, special=False) for seed in (1, 2))
    (expected,) = by_onnxruntime("Einsum", x, y, like=[x], equation="ca,ba")
    close(run("Einsum", x, y, equation="ca,ba"), expected)


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("ij,jk->ik", "has 2 terms for 1 inputs"),
        ("i1->i", "is not a list of letters"),
        ("ij->ik", "has 'k' only in its result"),
        ("ij->ii", "has 'i' twice in its result"),
    ],
)
def test_a_wrong_equation_is_named(equation: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_equation(equation, 1)


def test_an_input_that_does_not_fit_its_term_is_named() -> None:
    with pytest.raises(ValueError, match=r"input 0 of shape .* does not fit the term 'ij'"):
        run("Einsum", np.zeros((2, 3, 4), np.float32), equation="ij->i")
