"""Random operators: distributions, seeds, and who shares a generator."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from op_case import Array, f32, known_shape

from sardonyx import dtypes
from sardonyx.ops import registry, signature
from sardonyx.ops.creation import random as random_family
from sardonyx.ops.registry import EvalContext, Trait

LIKES = ("RandomNormalLike", "RandomUniformLike")


def draw(name: str, *inputs: Any, ctx: EvalContext | None = None, version: int = 22, **attrs: Any) -> Array:
    definition = registry.lookup("", name, version)
    form = signature.signature("", name, version)
    assert definition is not None
    assert form is not None
    assert definition.traits is Trait.RANDOM
    merged = {key: attribute.default for key, attribute in form.attributes.items()} | attrs
    given = {key: merged[key] for key in definition.attr_names}
    (result,) = registry.call(definition, inputs, given, ctx or EvalContext(version, (True,)))
    assert isinstance(result, np.ndarray)
    return result


@pytest.mark.parametrize("dtype", [dtypes.FLOAT32, dtypes.FLOAT64, dtypes.FLOAT16, dtypes.BFLOAT16])
def test_normal_numbers_have_mean_scale_and_type(dtype: dtypes.DType) -> None:
    x = draw("RandomNormal", shape=(50, 400), mean=3.0, scale=0.5, dtype=dtype.onnx, seed=1.0)
    assert (x.dtype, x.shape) == (dtype.numpy, (50, 400))
    wide = x.astype(np.float64)
    np.testing.assert_allclose([wide.mean(), wide.std()], [3, 0.5], atol=0.02)


def test_uniform_numbers_fill_their_range() -> None:
    x = draw("RandomUniform", shape=(20000,), low=-2.0, high=6.0, seed=2.0)
    assert x.dtype == np.float32
    assert x.min() >= -2
    assert x.max() <= 6
    np.testing.assert_allclose(np.histogram(x, 4, (-2, 6))[0] / x.size, 0.25, atol=0.02)


@pytest.mark.parametrize("name", LIKES)
def test_like_takes_the_shape_and_the_type_if_it_is_a_float(name: str) -> None:
    assert draw(name, np.zeros((2, 0, 3), np.float16)).dtype == np.float16
    assert draw(name, np.zeros((2, 3), np.int64), dtype=11).dtype == np.float64
    assert draw(name, np.zeros(()), seed=1.0).shape == ()
    with pytest.raises(ValueError, match="the input is i64; random numbers are f16, bf16, f32 or f64: set the attribute dtype"):
        draw(name, np.zeros(3, np.int64))


def test_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match="dtype asks for i32; random numbers are f16, bf16, f32 or f64"):
        draw("RandomNormal", shape=(1,), dtype=6)


def test_a_seed_gives_each_session_the_same_series() -> None:
    first, second, other = (EvalContext(22, (True,)) for _ in range(3))
    a = [draw("RandomNormal", ctx=first, shape=(4,), seed=7.5) for _ in range(2)]
    b = [draw("RandomNormal", ctx=second, shape=(4,), seed=7.5) for _ in range(2)]
    c = draw("RandomNormal", ctx=other, shape=(4,), seed=7.25)
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a[0], a[1])
    assert not np.array_equal(a[0], c)


def test_nodes_without_a_seed_share_a_generator_that_can_be_restarted() -> None:
    random_family.set_seed(3)
    first = [draw("RandomUniform", shape=(3,)), draw("RandomNormal", shape=(3,))]
    random_family.set_seed(3)
    second = [draw("RandomUniform", shape=(3,)), draw("RandomNormal", shape=(3,))]
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(draw("RandomUniform", shape=(3,)), first[0])


def test_dropout_without_a_seed_is_repeated_by_restarting_the_generator_too() -> None:
    definition = registry.lookup("", "Dropout", 22)
    assert definition is not None
    inputs, masks = [np.ones(100, np.float32), np.array(0.5, np.float32), np.array(True)], []
    for seed in (3, 3, 4):
        random_family.set_seed(seed)
        masks.append(registry.call(definition, inputs, {"seed": None}, EvalContext(22, (True, True)))[1])
    np.testing.assert_array_equal(masks[0], masks[1])
    assert (masks[0] != masks[2]).any()


def test_uniform_numbers_of_a_range_wider_than_any_number_of_their_type_are_finite() -> None:
    x = draw("RandomUniform", shape=(1000,), low=-3e38, high=3e38, seed=2.0)
    assert x.dtype == np.float32
    assert np.isfinite(x).all()
    assert x.min() < -2e38
    assert x.max() > 2e38


def test_threads_may_draw_from_one_generator() -> None:
    ctx = EvalContext(22, (True,))
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda _: draw("RandomUniform", ctx=ctx, shape=(500,), seed=1.0), range(8)))
    whole = draw("RandomUniform", shape=(4000,), seed=1.0)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.sort(whole))


@pytest.mark.parametrize("target", [None, dtypes.BOOL, dtypes.INT8, dtypes.FLOAT64])
@pytest.mark.parametrize("source", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_bernoulli_gives_1_with_the_given_probability(target: dtypes.DType | None, source: Any) -> None:
    p = np.repeat([0.0, 0.25, 1.0], 8000).astype(source)
    x = draw("Bernoulli", p, seed=4.0, dtype=None if target is None else target.onnx)
    assert x.dtype == (p.dtype if target is None else target.numpy)
    np.testing.assert_allclose(x.astype(np.float64).reshape(3, -1).mean(axis=1), [0, 0.25, 1], atol=0.02)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_multinomial_draws_classes_by_their_logits(dtype: Any) -> None:
    p = np.array([[0.5, 0.0, 0.25, 0.25], [0.1, 0.2, 0.3, 0.4]])
    with np.errstate(divide="ignore"):
        logits = np.log(p).astype(np.float32) + 3
    x = draw("Multinomial", logits, sample_size=20000, dtype=dtypes.from_numpy(dtype).onnx, seed=5.0)
    assert (x.dtype, x.shape) == (dtype, (2, 20000))
    np.testing.assert_allclose([np.bincount(row, minlength=4) / row.size for row in x], p, atol=0.02)


def test_multinomial_needs_classes() -> None:
    with pytest.raises(ValueError, match=r"the input has shape \(2, 0\); expected \[batch, classes\] with at least one class"):
        draw("Multinomial", np.zeros((2, 0), np.float32))
    with pytest.raises(ValueError, match="sample_size is 0; expected a positive number"):
        draw("Multinomial", np.zeros((2, 1), np.float32), sample_size=0)


def test_shape_rules_know_shapes_and_types() -> None:
    assert str(known_shape("RandomNormal", [], shape=(2, 3), dtype=10)) == "f16[2,3]"
    assert str(known_shape("RandomUniformLike", [f32("N", 2)])) == "f32[N,2]"
    assert str(known_shape("Bernoulli", [f32("N", 2)], dtype=9)) == "bool[N,2]"
    assert str(known_shape("Multinomial", [f32("N", 2)], sample_size=5, dtype=7)) == "i64[N,5]"
