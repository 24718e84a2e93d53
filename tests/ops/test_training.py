"""Optimizer steps against torch-like formulas written out, and for several tensors at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contrib_oracle import evaluate, infer
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

Array = NDArray[Any]
DOMAIN = "ai.onnx.preview.training"
quick = settings(max_examples=20, deadline=None)
KINDS = {"Adagrad": 3, "Adam": 4, "Momentum": 3}
REQUIRED: dict[str, dict[str, Any]] = {
    "Adagrad": {},
    "Adam": {},
    "Momentum": {"alpha": 0.9, "beta": 0.5, "mode": "standard", "norm_coefficient": 0.01},
}


def step(name: str, rate: float, count: int, *tensors: Array, **attrs: Any) -> list[Any]:
    inputs: list[Any] = [np.asarray(np.float32(rate)), np.asarray(np.int64(count)), *tensors]
    outputs = len(tensors) // KINDS[name] * (KINDS[name] - 1)
    results = evaluate(name, inputs, domain=DOMAIN, outputs=outputs, **REQUIRED[name] | attrs)
    shapes = infer(name, inputs, domain=DOMAIN, outputs=outputs, **REQUIRED[name] | attrs)
    assert [(type_.dtype.numpy, type_.shape) for type_ in shapes] == [(result.dtype, result.shape) for result in results]
    return results


@quick
@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from((np.float32, np.float64)),
    count=st.integers(0, 3),
    rank=st.integers(0, 2),
)
def test_adam_follows_its_formula(seed: int, dtype: Any, count: int, rank: int) -> None:
    rng = np.random.default_rng(seed)
    x, g, v, h = (np.asarray(rng.random((2, 3)[:rank])).astype(dtype) for _ in range(4))
    new = step("Adam", 0.1, count, x, g, v, h, alpha=0.8, beta=0.9, epsilon=1e-3, norm_coefficient=0.1, norm_coefficient_post=0.2)
    regular = 0.1 * x + g
    mean, squares = 0.8 * v + 0.2 * regular, 0.9 * h + 0.1 * regular**2
    rate = 0.1 * np.sqrt(1 - 0.9**count) / (1 - 0.8**count) if count else 0.1
    expected = 0.8 * (x - rate * mean / (np.sqrt(squares) + 1e-3)), mean, squares
    for result, wanted in zip(new, expected, strict=True):
        assert result.dtype == dtype
        np.testing.assert_allclose(result, wanted, rtol=1e-5)


def test_adagrad_decays_its_rate() -> None:
    x, g, h = np.array([1.0, 2.0]), np.array([0.5, -1.0]), np.array([1.0, 4.0])
    new, squares = step("Adagrad", 0.1, 2, x, g, h, decay_factor=0.5, epsilon=1e-5, norm_coefficient=0.1)
    regular = g + 0.1 * x
    np.testing.assert_allclose(squares, h + regular**2, rtol=1e-6)
    np.testing.assert_allclose(new, x - 0.05 * regular / (np.sqrt(h + regular**2) + 1e-5), rtol=1e-6)


@pytest.mark.parametrize("mode", ["standard", "nesterov"])
@pytest.mark.parametrize("count", [0, 1])
def test_momentum_takes_the_whole_first_gradient(mode: str, count: int) -> None:
    x, g, v = np.array([1.0, 2.0]), np.array([0.5, -1.0]), np.array([1.0, 4.0])
    new, momentum = step("Momentum", 0.1, count, x, g, v, mode=mode)
    regular = g + 0.01 * x
    moved = 0.9 * v + (0.5 if count else 1.0) * regular
    np.testing.assert_allclose(momentum, moved, rtol=1e-6)
    np.testing.assert_allclose(new, x - 0.1 * (moved if mode == "standard" else regular + 0.9 * moved), rtol=1e-6)


@pytest.mark.parametrize("name", KINDS)
def test_several_tensors_are_several_steps(name: str) -> None:
    rng = np.random.default_rng(1)
    kinds = KINDS[name]
    first = [rng.random(3).astype(np.float32) for _ in range(kinds)]
    second = [rng.random((2, 2)).astype(np.float32) for _ in range(kinds)]
    together = step(name, 0.1, 1, *(tensor for pair in zip(first, second, strict=True) for tensor in pair))
    apart = step(name, 0.1, 1, *first), step(name, 0.1, 1, *second)
    for position, result in enumerate(together):
        np.testing.assert_array_equal(result, apart[position % 2][position // 2])


def test_steps_refuse_what_does_not_fit() -> None:
    one = np.zeros(2, np.float32)
    with pytest.raises(ValueError, match="4 inputs follow the learning rate and the count; expected tensor, gradient, momentum"):
        evaluate("Momentum", [one[0:1], np.zeros(1, np.int64), *[one] * 4], domain=DOMAIN, **REQUIRED["Momentum"])
    with pytest.raises(ValueError, match=r"the gradient of tensor 0 has shape \(3,\) but the tensor \(2,\)"):
        step("Momentum", 0.1, 0, one, np.zeros(3, np.float32), one)
    with pytest.raises(ValueError, match="mode is 'fast'; expected standard or nesterov"):
        step("Momentum", 0.1, 0, one, one, one, mode="fast")


def test_gradient_says_that_it_is_not_computed() -> None:
    with pytest.raises(
        ValueError, match="Gradient of 'y' by 'x' needs the derivative of the graph around it, which is not computed"
    ):
        evaluate("Gradient", [np.zeros(2, np.float32)], domain=DOMAIN, xs=("x",), y="y")
