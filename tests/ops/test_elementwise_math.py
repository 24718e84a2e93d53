"""Mathematical functions against Python's math module, activations against their formulas and onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_case import FLOATS, by_onnxruntime, close, random_array, run, seeds, shapes

from sardonyx.ops.elementwise.special import erf

quick = settings(max_examples=15, deadline=None)
floats = st.sampled_from(FLOATS)


def _or_nan(function: Callable[[float], float]) -> Callable[[float], float]:
    """NaN outside the domain, infinity where math overflows."""

    def evaluate(x: float) -> float:
        try:
            return function(x)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return evaluate


def _log(x: float) -> float:
    return -math.inf if x == 0 else math.log(x)


def _reciprocal(x: float) -> float:
    return math.copysign(math.inf, x) if x == 0 else 1 / x


def _atanh(x: float) -> float:
    return math.copysign(math.inf, x) if abs(x) == 1 else math.atanh(x)


def _rounding(function: Callable[[float], int]) -> Callable[[float], float]:
    return lambda x: math.copysign(float(function(x)), x) if math.isfinite(x) else x


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "Abs": abs,
    "Neg": lambda x: -x,
    "Sign": lambda x: x if x != x or x == 0 else math.copysign(1, x),
    "Ceil": _rounding(math.ceil),
    "Floor": _rounding(math.floor),
    "Round": _rounding(round),
    "Reciprocal": _reciprocal,
    "Sqrt": math.sqrt,
    "Exp": math.exp,
    "Log": _log,
    "Erf": math.erf,
    "Sin": math.sin,
    "Cos": math.cos,
    "Tan": math.tan,
    "Asin": math.asin,
    "Acos": math.acos,
    "Atan": math.atan,
    "Sinh": lambda x: math.copysign(_or_nan(math.sinh)(abs(x)), x),
    "Cosh": math.cosh,
    "Tanh": math.tanh,
    "Asinh": math.asinh,
    "Acosh": math.acosh,
    "Atanh": _atanh,
    "Sigmoid": lambda x: 1 / (1 + math.exp(-x)) if x > -700 else math.exp(x),
    "Softplus": lambda x: math.log1p(math.exp(-abs(x))) + max(x, 0.0) if x == x else x,
    "Softsign": lambda x: x / (1 + abs(x)),
    "Relu": lambda x: x if x > 0 or x != x else 0.0,
    "HardSwish": lambda x: x * min(max(x / 6 + 0.5, 0), 1) if x == x else x,
    "Mish": lambda x: x * math.tanh(math.log1p(math.exp(x)) if x < 700 else x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@quick
@given(shape=shapes, seed=seeds, dtype=floats)
def test_functions_agree_with_the_math_module(name: str, shape: tuple[int, ...], seed: int, dtype: Any) -> None:
    x = random_array(seed, shape, dtype)
    expected = np.array([_or_nan(FUNCTIONS[name])(float(item)) for item in x.flat], np.float64).reshape(shape)
    with np.errstate(all="ignore"):
        close(run(name, x), expected.astype(dtype), ulps=64 if name == "HardSwish" else 4)  # x / 6 + 0.5 cancels near -3


@pytest.mark.parametrize("name", ["Abs", "Neg", "Sign", "Relu"])
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_some_functions_take_integers(name: str, dtype: Any) -> None:
    x = np.array([-3, 0, 5], dtype)
    expected = {"Abs": [3, 0, 5], "Neg": [3, 0, -5], "Sign": [-1, 0, 1], "Relu": [0, 0, 5]}[name]
    assert run(name, x).tolist() == expected


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_erf_is_within_three_units_in_the_last_place(dtype: Any) -> None:
    tiny = np.logspace(-300 if dtype is np.float64 else -37, 0, 500)
    x = np.concatenate([np.linspace(-7, 7, 20001), tiny, -tiny]).astype(dtype)
    exact = np.array([math.erf(item) for item in x.tolist()])
    error = np.abs(erf(x).astype(np.float64) - exact) / np.spacing(np.abs(exact).astype(dtype)).astype(np.float64)
    assert error.max() < 3


def test_erf_has_its_limits() -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e300])
    result = erf(x)
    np.testing.assert_array_equal(result, [np.nan, 1, -1, 0, 0, 1])
    assert np.signbit(result[3])


def test_round_goes_to_even() -> None:
    assert run("Round", np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.4], np.float32)).tolist() == [0, 2, 2, 0, -2, 0]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", ["Exp", "Tanh", "Sigmoid", "Erf", "Softplus"])
def test_every_narrow_float_is_rounded_once(name: str, dtype: Any) -> None:
    codes = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    with np.errstate(all="ignore"):
        close(run(name, codes), run(name, codes.astype(np.float32)).astype(dtype), ulps=0)


def test_sigmoid_keeps_small_results() -> None:
    result = run("Sigmoid", np.array([-80, 100, -np.inf, np.inf], np.float32))
    np.testing.assert_allclose(result, [math.exp(-80), 1, 0, 1], rtol=1e-6)


ACTIVATIONS: list[tuple[str, dict[str, Any]]] = [
    ("LeakyRelu", {}), ("LeakyRelu", {"alpha": 0.3}), ("Elu", {}), ("Elu", {"alpha": 2.0}), ("Selu", {}),
    ("Selu", {"alpha": 2.0, "gamma": 3.0}), ("Celu", {"alpha": 2.0}), ("ThresholdedRelu", {}),
    ("ThresholdedRelu", {"alpha": 2.0}), ("HardSigmoid", {}), ("HardSigmoid", {"alpha": 0.5, "beta": 0.25}), ("Shrink", {}),
    ("Shrink", {"bias": 1.5, "lambd": 1.0}),
    ("Gelu", {}), ("Gelu", {"approximate": "tanh"}), ("HardSwish", {}), ("Mish", {}), ("Softplus", {}), ("Softsign", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "attrs"), ACTIVATIONS)
@quick
@given(shape=shapes, seed=seeds)
def test_activations_agree_with_onnxruntime(name: str, attrs: dict[str, Any], shape: tuple[int, ...], seed: int) -> None:
    x = random_array(seed, shape, np.float32, special=False)
    expected = by_onnxruntime(name, x, like=[x], **attrs)[0]
    result = run(name, x, version=21, **attrs)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-6)


@quick
@given(shape=shapes, seed=seeds, dtype=floats, alpha=st.sampled_from([1.0, 1.702, -0.5]))
def test_swish_and_swiglu_follow_their_formula(shape: tuple[int, ...], seed: int, dtype: Any, alpha: float) -> None:
    x, gate = random_array(seed, shape, dtype, special=False), random_array(seed + 1, shape, dtype, special=False)
    swish = x.astype(np.float64) / (1 + np.exp(-np.float64(np.float32(alpha)) * x.astype(np.float64)))
    close(run("Swish", x, alpha=float(np.float32(alpha))), np.asarray(swish).astype(dtype), ulps=8)
    close(
        run("SwiGLU", x, gate, alpha=float(np.float32(alpha))), np.asarray(swish * gate.astype(np.float64)).astype(dtype), ulps=8
    )


def test_swiglu_does_not_broadcast() -> None:
    with pytest.raises(ValueError, match=r"A is \(2,\) but B is \(1,\): the shapes must agree"):
        run("SwiGLU", np.zeros(2, np.float32), np.zeros(1, np.float32))


def test_gelu_refuses_an_unknown_approximation() -> None:
    with pytest.raises(ValueError, match="approximate is 'erf': expected 'none' or 'tanh'"):
        run("Gelu", np.zeros(1, np.float32), approximate="erf")


def test_shrink_truncates_integers() -> None:
    assert run("Shrink", np.array([-3, 0, 1, 4], np.int32), bias=1.5, lambd=0.5).tolist() == [-1, 0, 0, 2]


def test_activations_pass_nan_on() -> None:
    x = np.array([np.nan], np.float32)
    for name in ("Relu", "LeakyRelu", "Elu", "Selu", "Sigmoid", "Softplus", "Gelu", "Mish", "HardSwish", "HardSigmoid", "Celu"):
        assert np.isnan(run(name, x)).all(), name
