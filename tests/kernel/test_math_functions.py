"""Functions of `kernel.math` and `kernel.circular` against extended precision of the machine, over all kinds of inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import erf
from typing import Any

import numpy as np
import pytest

from loop_runner import Array, evaluate
from sardonyx.kernel import circular, math
from sardonyx.target.target import Target
from targets import here, here_and_less

Wide = np.longdouble

# Extended precision is what makes the references for float64 exact enough.
needs_extended = pytest.mark.skipif(np.finfo(Wide).nmant < 63, reason="long double is no wider than float64 here")

_erf = np.vectorize(erf, otypes=[np.float64])

REFERENCES: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log1p": np.log1p, "tanh": np.tanh,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh,
    "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "softplus": lambda x: np.logaddexp(Wide(0), x),
    "erf": lambda x: _erf(x).astype(Wide),
}  # fmt: skip
FLUSHES = ("sigmoid", "softplus")  # results that are no normal numbers may be 0
TARGETS = here_and_less()
DTYPES: dict[str, np.dtype[Any]] = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}


def inputs(dtype: np.dtype[Any], seed: int = 0) -> Array:
    """Numbers of every kind: any bits, dense where functions change, and the special ones."""
    random = np.random.default_rng(seed)
    integer = np.uint32 if dtype.itemsize == 4 else np.uint64
    any_bits = random.integers(0, np.iinfo(integer).max, 40_000, dtype=integer, endpoint=True).view(dtype)
    limits = np.finfo(dtype)
    ranges = [np.linspace(-limit, limit, 15_001) for limit in (1.5, 20, 110, 750)]
    special_ones = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, float(limits.tiny), -float(limits.tiny)]
    special_ones += [float(limits.smallest_subnormal), float(limits.max), -float(limits.max), 1 + float(limits.eps)]
    return np.concatenate([any_bits, *(values.astype(dtype) for values in ranges), np.array(special_ones, dtype)])


def function_named(name: str) -> math.Function:
    """The function of either module."""
    function: math.Function = getattr(circular if hasattr(circular, name) else math, name)
    return function


def errors_in_ulp(actual: Array, exact: Array) -> Array:
    """The distance to the exact result in steps of the type; infinity where one is NaN or infinite and the other is not."""
    limits = np.finfo(actual.dtype)
    with np.errstate(all="ignore"):
        rounded = exact.astype(actual.dtype)
        step = np.spacing(np.minimum(np.abs(rounded), limits.max)).astype(Wide)
        error = np.abs(actual.astype(Wide) - exact) / np.maximum(step, Wide(limits.smallest_subnormal))
    same = (np.isnan(actual) & np.isnan(rounded)) | (np.isinf(rounded) & (actual == rounded))
    return np.where(same, 0, np.where(np.isnan(error), np.inf, error)).astype(np.float64)


@needs_extended
@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("name", REFERENCES)
def test_a_function_keeps_its_error_bound_over_the_whole_range(name: str, kind: str) -> None:
    x = inputs(DTYPES[kind])
    actual = evaluate(function_named(name), x, types=[kind], out=kind)
    with np.errstate(all="ignore"):
        exact = REFERENCES[name](x.astype(Wide))
        rounded = exact.astype(actual.dtype)
    error = errors_in_ulp(actual, exact)
    tiny = np.finfo(actual.dtype).tiny
    if name in FLUSHES:
        error = np.where((np.abs(exact) < tiny) & (np.abs(actual) <= tiny), 0, error)
    worst = int(np.argmax(error))
    bound = math.ULP[name][kind == "f64"]
    assert error[worst] <= bound, f"{name}({x[worst]!r}) = {actual[worst]!r}, off by {error[worst]:.2f} ulp"
    signs = ~np.isnan(rounded) & (np.signbit(actual) != np.signbit(rounded)) & (np.abs(rounded) > 0)
    assert not signs.any()


@needs_extended
@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_next_to_quarter_turns_and_on_both_sides_of_the_quick_range_keep_the_error_bound(name: str, kind: str) -> None:
    random = np.random.default_rng(4)
    turns = np.concatenate([np.arange(2000), random.integers(0, 1 << 25, 20_000)]).astype(Wide)
    x = (turns * (np.arctan(Wide(1)) * 2)).astype(DTYPES[kind])
    x = np.concatenate(
        [x, np.nextafter(x, DTYPES[kind].type(np.inf)), -x, random.uniform(2.0**23, 2.0**25, 5000).astype(x.dtype)]
    )
    random.shuffle(x)  # vectors in which some elements are beyond the range
    actual = evaluate(function_named(name), x, types=[kind], out=kind)
    error = errors_in_ulp(actual, REFERENCES[name](x.astype(Wide)))
    assert error.max() <= math.ULP[name][kind == "f64"]


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_the_result_of_an_angle_does_not_depend_on_the_angles_beside_it(name: str) -> None:
    x = np.linspace(-100, 100, 64)
    alone = evaluate(function_named(name), x, types=["f64"], out="f64")
    mixed = np.stack([x, np.full_like(x, 1e300)], axis=1).ravel()
    np.testing.assert_array_equal(evaluate(function_named(name), mixed, types=["f64"], out="f64")[::2], alone)


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("name", ["sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf", "expm1", "log1p"])
def test_an_odd_function_keeps_the_sign_of_a_zero(name: str, kind: str) -> None:
    x = np.array([0.0, -0.0], DTYPES[kind])
    actual = evaluate(function_named(name), x, types=[kind], out=kind)
    assert (actual == 0).all()
    assert np.signbit(actual).tolist() == [False, True]


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("name", ["erf", "tanh", "sigmoid"])
def test_a_bounded_function_stays_within_its_bounds_and_reaches_them(name: str, kind: str) -> None:
    x = inputs(DTYPES[kind])
    x = x[~np.isnan(x)]
    actual = evaluate(function_named(name), x, types=[kind], out=kind)
    low = 0.0 if name == "sigmoid" else -1.0
    assert actual.min() == low
    assert actual.max() == 1.0
    assert (actual[x > 40] == 1.0).all()


@needs_extended
@pytest.mark.parametrize("kind", DTYPES)
def test_the_quick_exponential_is_good_where_its_result_is_normal(kind: str) -> None:
    limits = np.finfo(DTYPES[kind])
    top = float(np.log(limits.max)) - 0.5
    x = np.linspace(float(np.log(limits.tiny)) + 0.01, top, 100_001).astype(DTYPES[kind])
    bound = math.ULP["exp_in_range"][kind == "f64"]
    exact = np.exp(x.astype(Wide))
    assert errors_in_ulp(evaluate(math.exp_in_range, x, types=[kind], out=kind), exact).max() <= bound
    below = x[x <= 0]
    exact = np.exp(below.astype(Wide))
    assert errors_in_ulp(evaluate(math.exp_not_positive, below, types=[kind], out=kind), exact).max() <= bound


def test_the_quick_exponential_ends_in_zero_infinity_and_nan() -> None:
    x = np.array([-np.inf, -1e30, -104, 90, 1e30, np.inf, np.nan], np.float32)
    assert evaluate(math.exp_in_range, x, types=["f32"], out="f32").tolist()[:-1] == [0, 0, 0, np.inf, np.inf, np.inf]
    assert np.isnan(evaluate(math.exp_in_range, x, types=["f32"], out="f32")[-1])
    assert evaluate(math.exp_not_positive, x[:3], types=["f32"], out="f32").tolist() == [0, 0, 0]


@needs_extended
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", DTYPES)
def test_below_normal_numbers_the_quick_exponential_is_right_or_zero(kind: str, target: Target) -> None:
    limits = np.finfo(DTYPES[kind])
    low, high = (float(np.log(Wide(value))) for value in (limits.smallest_subnormal, limits.tiny))
    x = np.linspace(low - 2, high, 10_001).astype(DTYPES[kind])
    exact = np.exp(x.astype(Wide))
    for function in (math.exp_in_range, math.exp_not_positive):
        actual = evaluate(function, x, types=[kind], out=kind, target=target)
        error = errors_in_ulp(actual, exact)
        assert error[actual != 0].max(initial=0) <= math.ULP["exp_in_range"][kind == "f64"]


@pytest.mark.parametrize("lanes", [8, 4])
@pytest.mark.parametrize("name", ["exp", "exp2", "sinh", "cosh"])
@pytest.mark.parametrize("kind", DTYPES)
def test_every_way_of_scaling_gives_the_same_bits(kind: str, name: str, lanes: int) -> None:
    target = replace(here(8), vector_bits=32 * lanes)  # without the instruction, with fused multiplications as here
    x = inputs(DTYPES[kind], seed=1)
    usual = evaluate(function_named(name), x, types=[kind], out=kind)
    other = evaluate(function_named(name), x, types=[kind], out=kind, target=target)
    np.testing.assert_array_equal(usual, other)


@pytest.mark.parametrize("kind", DTYPES)
def test_power_has_the_special_cases_of_c(kind: str) -> None:
    dtype = DTYPES[kind]
    limits = np.finfo(dtype)
    chosen = [0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, np.inf, -np.inf, np.nan, 1e-40, 1.5, 4e9, float(limits.max)]
    x, y = (grid.ravel() for grid in np.meshgrid(np.array(chosen, dtype), np.array(chosen, dtype)))
    actual = evaluate(math.power, x, y, types=[kind, kind], out=kind)
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    np.testing.assert_allclose(actual, expected, rtol=4 * float(limits.eps))
    zero = (expected == 0) & ~np.isnan(expected)
    assert (np.signbit(actual[zero]) == np.signbit(expected[zero])).all()


@needs_extended
@pytest.mark.parametrize("kind", DTYPES)
def test_power_keeps_its_error_bound(kind: str) -> None:
    random, dtype, count = np.random.default_rng(3), DTYPES[kind], 40_000
    with np.errstate(all="ignore"):
        bases = [np.exp(random.uniform(-80, 80, count)), random.uniform(-10, 10, count), 1 + random.uniform(-1e-3, 1e-3, count)]
        exponents = [random.uniform(-3, 3, count), random.integers(-30, 30, count), random.uniform(-1e5, 1e5, count)]
        x, y = (np.concatenate(parts).astype(dtype) for parts in (bases, exponents))
        exact = np.power(x.astype(Wide), y.astype(Wide))
    error = errors_in_ulp(evaluate(math.power, x, y, types=[kind, kind], out=kind), exact)
    assert error.max() <= math.ULP["power"][kind == "f64"]


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("gelu", lambda x: 0.5 * x * (1 + _erf(x / np.sqrt(2)))),
        ("gelu_tanh", lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
        ("silu", lambda x: x / (1 + np.exp(-x))),
        ("mish", lambda x: x * np.tanh(np.logaddexp(0, x))),
    ],
)
@pytest.mark.parametrize("kind", DTYPES)
def test_an_activation_is_close_to_its_formula(name: str, reference: Callable[[Array], Array], kind: str) -> None:
    x = np.concatenate([np.linspace(-30, 30, 20_001), [-1e6, 1e6, 1e30]]).astype(DTYPES[kind])
    actual = evaluate(function_named(name), x, types=[kind], out=kind)
    with np.errstate(all="ignore"):
        expected = reference(x.astype(np.float64))
    tolerance = 1e-6 if kind == "f32" else 1e-14
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)
