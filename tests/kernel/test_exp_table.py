"""1 + e**-x in both forms: bounds on every machine, the same bits wherever an element lies, and the ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from loop_runner import Array, evaluate
from sardonyx.kernel import math
from sardonyx.kernel.expr import load, one_and_exp, operations, walk
from sardonyx.target.target import Target
from targets import here, here_and_less

TARGETS = here_and_less()
FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True, allow_subnormal=True)


def relative_error(actual: Array, exact: Array) -> float:
    return float(np.max(np.abs(actual.astype(np.float64) - exact) / np.abs(exact)))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["sigmoid", "silu"])
def test_every_machine_keeps_the_bound_of_sigmoid(name: str, target: Target) -> None:
    x = np.concatenate([np.linspace(-87, 87, 60_001), np.random.default_rng(0).standard_normal(60_000) * 8]).astype(np.float32)
    x = x[np.abs(x) > 1e-3]
    wide = x.astype(np.float64)
    exact = (wide if name == "silu" else 1) / (1 + np.exp(-wide))
    actual = evaluate(getattr(math, name), x, types=["f32"], out="f32", target=target)
    assert relative_error(actual, exact) <= math.ULP["sigmoid"][0] * 2.0**-23


@settings(max_examples=30, deadline=None)
@given(arrays(np.float32, st.integers(1, 70), elements=FLOATS))
def test_an_element_has_the_same_result_wherever_it_lies(x: Array) -> None:
    together = evaluate(math.silu, x, types=["f32"], out="f32")
    alone = np.concatenate([evaluate(math.silu, x[at : at + 1], types=["f32"], out="f32") for at in range(x.size)])
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("target", TARGETS)
def test_the_ends(target: Target) -> None:
    x = np.array([np.nan, np.inf, 1e30, 100, 0, -89.5, -1e30, -np.inf], np.float32)
    sigmoid, below = (evaluate(function, x, types=["f32"], out="f32", target=target) for function in (math.sigmoid, one_and_exp))
    np.testing.assert_array_equal(sigmoid, np.array([np.nan, 1, 1, 1, 0.5, 0, 0, 0], np.float32))
    np.testing.assert_array_equal(below, np.array([np.nan, 1, 1, 1, 2, np.inf, np.inf, np.inf], np.float32))
    silu = evaluate(math.silu, x, types=["f32"], out="f32", target=target)
    np.testing.assert_array_equal(silu, np.array([np.nan, np.inf, 1e30, 100, 0, 0, 0, np.nan], np.float32))


def test_it_counts_as_many_operations_as_it_takes() -> None:
    x = load(0, "f32")
    written_out = operations(walk([math.one_and_exp_by_polynomial(x)]))
    assert abs(operations([one_and_exp(x)]) - written_out) <= 1


def test_a_machine_with_half_the_lanes_gives_the_same_bits_as_one_element_at_a_time() -> None:
    x = np.linspace(-90, 90, 1001).astype(np.float32)
    target = here(8)
    together = evaluate(math.sigmoid, x, types=["f32"], out="f32", target=target)
    alone = np.concatenate([evaluate(math.sigmoid, part, types=["f32"], out="f32", target=target) for part in np.split(x, 143)])
    np.testing.assert_array_equal(together, alone)
