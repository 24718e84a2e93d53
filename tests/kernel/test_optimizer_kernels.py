"""The loops of optimizers against the same formulas in NumPy, on memory that ends at pages nobody may touch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guarded import guarded
from loop_runner import NUMPY, Array, run
from property_support import SEEDS, any_bits
from sardonyx.kernel.optimizers import PIECE, Adjustment, Update, adagrad, adam, clip_factor, sgd, squares

LENGTHS = st.one_of(st.integers(1, 70), st.sampled_from([PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 17]))
ADJUSTMENTS = st.builds(Adjustment, stored=st.booleans(), clipped=st.booleans(), maximize=st.booleans(), decayed=st.booleans())
TYPES = st.sampled_from([("f32", "f32"), ("f64", "f64"), ("bf16", "bf16"), ("f16", "f16"), ("bf16", "f32")])


def numbers(seed: int, names: tuple[str, ...]) -> dict[str, float]:
    random = np.random.default_rng(seed)
    return {name: float(np.float32(random.uniform(0.05, 1.5))) for name in names}


def adjusted(tensors: dict[str, Array], s: dict[str, Any], how: Adjustment) -> Array:
    g: Array = tensors["gradient"] * s["scale"]
    if how.stored:
        tensors["gradient"] = g
    if how.clipped:
        g = g * s["clip"]
    if how.maximize:
        g = -g
    return g + s["decay"] * tensors["parameter"] if how.decayed else g


def numpy_adam(t: dict[str, Array], s: dict[str, Any], how: Adjustment) -> None:
    g = adjusted(t, s, how)
    t["first_moment"] = t["first_moment"] + s["beta1_rest"] * (g - t["first_moment"])
    divides = t["second_moment"] = t["second_moment"] * s["beta2"] + s["beta2_rest"] * (g * g)
    if "largest" in t:
        divides = t["largest"] = np.maximum(t["largest"], divides)
    step = s["step"] * t["first_moment"] / (np.sqrt(divides) * s["root_scale"] + s["epsilon"])
    t["parameter"] = (t["parameter"] * s["before"] - step) * s["after"]


def numpy_sgd(t: dict[str, Array], s: dict[str, Any], how: Adjustment, *, nesterov: bool) -> None:
    direction = g = adjusted(t, s, how)
    if "momentum" in t:
        direction = t["momentum"] = s["kept"] * t["momentum"] + s["undamped"] * g
        direction = g + s["kept"] * direction if nesterov else direction
    t["parameter"] = t["parameter"] - s["step"] * direction


def numpy_adagrad(t: dict[str, Array], s: dict[str, Any], how: Adjustment) -> None:
    g = adjusted(t, s, how)
    t["squares"] = t["squares"] + g * g
    t["parameter"] = t["parameter"] - s["step"] * g / (np.sqrt(t["squares"]) + s["epsilon"])


def compare(
    update: Update, types: tuple[str, str], length: int, seed: int, expected: Callable[[dict[str, Array], dict[str, Any]], None]
) -> None:
    """Run the loop in two pieces, and the formula in the type that the loop computes in."""
    kinds = {name: types[1] if name not in ("parameter", "gradient") else types[0] for name in update.tensors}
    compute = NUMPY[update.compute]
    tensors = {name: any_bits(NUMPY[kind], (length,), seed + number) for number, (name, kind) in enumerate(kinds.items())}
    scalars = numbers(seed, update.scalars)
    memory = {name: guarded(array) for name, array in tensors.items()}
    values = [guarded(np.array([scalars[name]], compute)) for name in update.scalars]
    run(update.kernel, [length], [*memory.values(), *values], pieces=2)
    with np.errstate(all="ignore"):
        wide = {name: array.astype(compute) for name, array in tensors.items()}
        expected(wide, {name: compute.type(value) for name, value in scalars.items()})
        for name, array in memory.items():
            np.testing.assert_array_equal(array.astype(compute), wide[name].astype(array.dtype).astype(compute), err_msg=name)


@given(LENGTHS, TYPES, ADJUSTMENTS, st.booleans(), SEEDS)
def test_adam(length: int, types: tuple[str, str], how: Adjustment, amsgrad: bool, seed: int) -> None:
    update = adam(types[0], types[0], types[1], how, amsgrad=amsgrad)
    compare(update, types, length, seed, lambda tensors, scalars: numpy_adam(tensors, scalars, how))


@given(LENGTHS, TYPES, ADJUSTMENTS, st.sampled_from([(False, False), (True, False), (True, True)]), SEEDS)
def test_sgd(length: int, types: tuple[str, str], how: Adjustment, momentum: tuple[bool, bool], seed: int) -> None:
    update = sgd(types[0], types[0], types[1], how, momentum=momentum[0], nesterov=momentum[1])
    compare(update, types, length, seed, lambda tensors, scalars: numpy_sgd(tensors, scalars, how, nesterov=momentum[1]))


@given(LENGTHS, TYPES, ADJUSTMENTS, SEEDS)
def test_adagrad(length: int, types: tuple[str, str], how: Adjustment, seed: int) -> None:
    update = adagrad(types[0], types[0], types[1], how)
    compare(update, types, length, seed, lambda tensors, scalars: numpy_adagrad(tensors, scalars, how))


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "f16"])
def test_pieces_are_squared_in_64_bits(kind: str) -> None:
    gradient = guarded(np.random.default_rng(1).normal(size=(3, PIECE)).astype(NUMPY[kind]))
    sums = guarded(np.zeros((3, 1)))
    run(squares(kind), [3, PIECE], [gradient, sums])
    np.testing.assert_allclose(sums[:, 0], (gradient.astype(np.float64) ** 2).sum(axis=1), rtol=1e-13)


@pytest.mark.parametrize(("sums", "bound", "scale"), [([9.0, 16.0], 1.0, 1.0), ([9.0, 16.0], 100.0, 2.0), ([np.inf], 1.0, 1.0)])
def test_the_factor_brings_the_norm_down_to_its_bound(sums: list[float], bound: float, scale: float) -> None:
    found = [guarded(np.zeros(1)), guarded(np.zeros(1, np.float32)), guarded(np.zeros(1))]
    run(clip_factor(), [len(sums)], [guarded(np.array(sums)), guarded(np.array([bound])), guarded(np.array([scale])), *found])
    norm = np.sqrt(sum(sums)) * scale
    assert found[0][0] == norm
    assert found[2][0] == pytest.approx(min(1.0, bound / (norm + 1e-6)))
    assert found[1][0] == np.float32(found[2][0])
