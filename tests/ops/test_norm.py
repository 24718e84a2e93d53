"""Normalisations against their formulas in float64 and onnxruntime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from op_case import FLOATS, Array, by_onnxruntime, f32, known_shape, random_array, run, seeds

from sardonyx.ir.dims import symbol
from sardonyx.ops import registry

EPSILON = float(np.float32(1e-5))  # the default of the attribute, as a model stores it
quick = settings(max_examples=20, deadline=None)
image_shapes = st.tuples(st.integers(1, 3), st.sampled_from([2, 4]), st.integers(1, 4), st.integers(1, 3))


def near(actual: Array, expected: Any, dtype: Any) -> None:
    assert actual.dtype == dtype
    tolerance = {np.float64: 1e-9, np.float32: 2e-4, np.float16: 5e-3}.get(dtype, 4e-2)
    np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


def standardized(x: Array, axes: Any, epsilon: float) -> Any:
    wide = x.astype(np.float64)
    return (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + epsilon)


def parameters(seed: int, count: int, size: int, dtype: Any) -> list[Array]:
    return [random_array(seed + index, (size,), dtype, special=False) for index in range(count)]


def per_channel(values: Array, rank: int) -> Any:
    return values.astype(np.float64).reshape(-1, *(1,) * (rank - 2))


@quick
@given(shape=image_shapes, seed=seeds, dtype=st.sampled_from(FLOATS), version=st.sampled_from([7, 9, 14, 15]))
def test_batch_normalization_uses_the_given_statistics(shape: Any, seed: int, dtype: Any, version: int) -> None:
    x = random_array(seed, shape, dtype, special=False)
    scale, bias, mean, var = parameters(seed, 4, shape[1], dtype)
    var = np.abs(var) + np.ones((), dtype)
    if dtype == ml_dtypes.bfloat16 and version < 14:
        return
    wide = [per_channel(value, 4) for value in (scale, bias, mean, var)]
    expected = (x.astype(np.float64) - wide[2]) / np.sqrt(wide[3] + EPSILON) * wide[0] + wide[1]
    near(run("BatchNormalization", x, scale, bias, mean, var, version=version), expected, dtype)


@quick
@given(shape=image_shapes, seed=seeds)
@example(shape=(1, 2, 1, 1), seed=18486197)  # the variance is zero: every digit that x * factor + shift loses shows
def test_batch_normalization_in_training_moves_the_statistics(shape: Any, seed: int) -> None:
    x = random_array(seed, shape, np.float32, special=False)
    scale, bias, mean, var = parameters(seed, 4, shape[1], np.float32)
    var = np.abs(var)
    y, running_mean, running_var = run("BatchNormalization", x, scale, bias, mean, var, outputs=3, training_mode=1, momentum=0.75)
    near(y, standardized(x, (0, 2, 3), EPSILON) * per_channel(scale, 4) + per_channel(bias, 4), np.float32)
    near(running_mean, 0.75 * mean + 0.25 * x.astype(np.float64).mean((0, 2, 3)), np.float32)
    near(running_var, 0.75 * var + 0.25 * x.astype(np.float64).var((0, 2, 3)), np.float32)
    old = run("BatchNormalization", x, scale, bias, mean, var, outputs=5, version=9, momentum=0.75)
    near(old[1], running_mean, np.float32)
    near(old[3], x.astype(np.float64).mean((0, 2, 3)), np.float32)


def test_statistics_may_have_another_type_than_the_data() -> None:
    x = random_array(1, (2, 3, 4), np.float16, special=False)
    one, zero = np.ones(3, np.float32), np.zeros(3, np.float32)
    y, mean, var = run("BatchNormalization", x, one, zero, zero, one, outputs=3, training_mode=1)
    assert (y.dtype, mean.dtype, var.dtype) == (np.float16, np.float32, np.float32)


def test_without_spatial_every_place_has_statistics_of_its_own() -> None:
    x = random_array(1, (4, 2, 3), np.float32, special=False)
    scale, bias, mean = (random_array(seed, (2, 3), np.float32, special=False) for seed in (2, 3, 4))
    var = np.ones((2, 3), np.float32)
    result = run("BatchNormalization", x, scale, bias, mean, var, version=7, spatial=0)
    near(result, (x - mean) / np.sqrt(1 + EPSILON) * scale + bias, np.float32)


def test_a_wrong_number_of_channels_is_named() -> None:
    x, ok = np.zeros((1, 3, 2), np.float32), np.ones(3, np.float32)
    with pytest.raises(ValueError, match=r"var has shape \(2,\), expected \(3,\): one value for each channel"):
        run("BatchNormalization", x, ok, ok, ok, np.ones(2, np.float32))


@quick
@given(shape=image_shapes, seed=seeds, dtype=st.sampled_from(FLOATS))
def test_instance_normalization_standardizes_every_channel(shape: Any, seed: int, dtype: Any) -> None:
    x = random_array(seed, shape, dtype, special=False)
    scale, bias = parameters(seed, 2, shape[1], dtype)
    expected = standardized(x, (2, 3), 1e-3) * per_channel(scale, 4) + per_channel(bias, 4)
    near(run("InstanceNormalization", x, scale, bias, epsilon=1e-3), expected, dtype)


@quick
@given(shape=image_shapes, groups=st.sampled_from([1, 2]), seed=seeds, dtype=st.sampled_from(FLOATS))
def test_group_normalization_scales_by_channel_and_before_opset_21_by_group(
    shape: Any, groups: int, seed: int, dtype: Any
) -> None:
    x = random_array(seed, shape, dtype, special=False)
    normal = standardized(x.reshape(shape[0], groups, shape[1] // groups, *shape[2:]), (2, 3, 4), EPSILON).reshape(shape)
    scale, bias = parameters(seed, 2, shape[1], dtype)
    near(
        run("GroupNormalization", x, scale, bias, num_groups=groups), normal * per_channel(scale, 4) + per_channel(bias, 4), dtype
    )
    old_scale, old_bias = parameters(seed, 2, groups, dtype)
    wide = [np.repeat(per_channel(value, 4), shape[1] // groups, axis=0) for value in (old_scale, old_bias)]
    near(run("GroupNormalization", x, old_scale, old_bias, num_groups=groups, version=18), normal * wide[0] + wide[1], dtype)


def test_channels_that_do_not_divide_into_groups_are_named() -> None:
    with pytest.raises(ValueError, match="cannot be divided into 2 groups of channels"):
        run("GroupNormalization", np.zeros((1, 3, 2), np.float32), np.ones(3, np.float32), np.ones(3, np.float32), num_groups=2)


@quick
@given(shape=image_shapes, axis=st.integers(-4, 3), seed=seeds, dtype=st.sampled_from(FLOATS), biased=st.booleans())
def test_layer_normalization_returns_its_statistics(shape: Any, axis: int, seed: int, dtype: Any, biased: bool) -> None:
    x = random_array(seed, shape, dtype, special=False)
    axes = tuple(range(axis % 4, 4))
    scale = random_array(seed + 1, shape[axis % 4 :], dtype, special=False)
    bias = random_array(seed + 2, shape[axis % 4 :], dtype, special=False) if biased else None
    y, mean, inverse = run("LayerNormalization", x, scale, bias, outputs=3, axis=axis)
    expected = standardized(x, axes, EPSILON) * scale.astype(np.float64) + (0 if bias is None else bias.astype(np.float64))
    near(y, expected, dtype)
    near(mean, x.astype(np.float64).mean(axes, keepdims=True), np.float32)
    assert inverse.dtype == np.float32
    assert run("LayerNormalization", x, scale, outputs=2, axis=axis, stash_type=16)[1].dtype == ml_dtypes.bfloat16


def test_layer_normalization_is_onnxruntimes() -> None:
    x = random_array(5, (3, 4, 6), np.float32, special=False)
    scale, bias = parameters(6, 2, 6, np.float32)
    expected = by_onnxruntime("LayerNormalization", x, scale, bias, like=[x, x, x])
    for ours, theirs in zip(run("LayerNormalization", x, scale, bias, outputs=3), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@quick
@given(shape=image_shapes, axis=st.integers(-4, 3), seed=seeds, dtype=st.sampled_from(FLOATS))
def test_rms_normalization_divides_by_the_root_of_the_mean_square(shape: Any, axis: int, seed: int, dtype: Any) -> None:
    x = random_array(seed, shape, dtype, special=False)
    scale = random_array(seed + 1, shape[axis % 4 :], dtype, special=False)
    wide, axes = x.astype(np.float64), tuple(range(axis % 4, 4))
    expected = wide / np.sqrt((wide * wide).mean(axes, keepdims=True) + EPSILON) * scale.astype(np.float64)
    near(run("RMSNormalization", x, scale, axis=axis), expected, dtype)


def test_a_scale_that_does_not_broadcast_is_named() -> None:
    with pytest.raises(ValueError, match=r"Scale of shape \(2,\) does not broadcast to X of shape \(2, 3\)"):
        run("LayerNormalization", np.zeros((2, 3), np.float32), np.zeros(2, np.float32))


@quick
@given(seed=seeds, size=st.integers(1, 5), channels=st.integers(1, 5), dtype=st.sampled_from([np.float32, np.float16]))
def test_lrn_looks_at_neighbouring_channels(seed: int, size: int, channels: int, dtype: Any) -> None:
    x = random_array(seed, (2, channels, 3, 2), dtype, special=False)
    wide = x.astype(np.float64)
    regions = [wide[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1] for c in range(channels)]
    total = np.stack([(region**2).sum(axis=1) for region in regions], axis=1)
    expected = wide / (1.5 + 0.5 / size * total) ** 0.6
    near(run("LRN", x, size=size, alpha=0.5, beta=0.6, bias=1.5), expected, dtype)


@quick
@given(shape=image_shapes, axis=st.integers(-4, 3), p=st.integers(1, 2), seed=seeds, dtype=st.sampled_from(FLOATS))
def test_lp_normalization_gives_unit_vectors_and_zero_for_zero(shape: Any, axis: int, p: int, seed: int, dtype: Any) -> None:
    x = random_array(seed, shape, dtype, special=False)
    x[0] = 0
    wide = x.astype(np.float64)
    norm = (np.abs(wide) ** p).sum(axis, keepdims=True) ** (1 / p)
    near(run("LpNormalization", x, axis=axis, p=p), np.where(norm == 0, 0, wide / np.where(norm == 0, 1, norm)), dtype)


@quick
@given(shape=image_shapes, seed=seeds, axes=st.sampled_from([(0, 2, 3), (1,), (-1, 0)]))
@example(shape=(2, 2, 3, 1), seed=597344251, axes=(1,))
def test_mean_variance_normalization_has_mean_0_and_variance_1(shape: Any, seed: int, axes: Any) -> None:
    x = random_array(seed, shape, np.float64, special=False)
    result = run("MeanVarianceNormalization", x, axes=axes)
    np.testing.assert_allclose(result.mean(axes), 0, atol=1e-9)
    deviation = x.std(axes)
    varied = deviation > 1e-6
    # The operator divides by the deviation and a little more.
    np.testing.assert_allclose(result.var(axes)[varied], ((deviation / (deviation + 1e-9)) ** 2)[varied], rtol=1e-6)


def test_empty_batches_stay_empty_without_a_warning() -> None:
    empty, one = np.zeros((0, 2, 3), np.float32), np.ones(2, np.float32)
    assert run("InstanceNormalization", empty, one, one).shape == (0, 2, 3)
    assert run("LayerNormalization", empty, np.ones(3, np.float32)).shape == (0, 2, 3)
    assert run("MeanVarianceNormalization", empty, axes=(0,)).shape == (0, 2, 3)
    assert np.isnan(run("BatchNormalization", empty, one, one, one, one, outputs=2, training_mode=1)[1]).all()


@pytest.mark.parametrize(("version", "mask"), [(7, np.float32), (10, np.bool_), (12, np.bool_), (22, np.bool_)])
def test_dropout_changes_nothing_in_inference(version: int, mask: Any) -> None:
    x = random_array(1, (3, 4), np.float32)
    y, kept = run("Dropout", x, version=version, outputs=2)
    np.testing.assert_array_equal(y, x)
    assert kept.dtype == mask
    assert kept.all() if version >= 12 else not kept.any()  # as ONNX Runtime has it


def test_dropout_in_training_scales_what_it_keeps_and_repeats_with_its_seed() -> None:
    x = np.ones((50, 40), np.float32)
    given_ = (np.array(0.75, np.float32), np.array(True))
    y, kept = run("Dropout", x, *given_, outputs=2, seed=3)
    np.testing.assert_array_equal(y, np.where(kept, np.float32(4), np.float32(0)))
    assert 0.15 < kept.mean() < 0.35
    np.testing.assert_array_equal(run("Dropout", x, *given_, outputs=2, seed=3)[1], kept)


def test_dropout_goes_on_in_its_random_sequence_within_a_session() -> None:
    definition = registry.lookup("", "Dropout", 22)
    assert definition is not None
    ctx = registry.EvalContext(22, (True, True))
    inputs = [np.ones(100, np.float32), np.array(0.5, np.float32), np.array(True)]
    first, second = (registry.call(definition, inputs, {"seed": 1}, ctx)[1] for _ in range(2))
    assert (first != second).any()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dropout_without_a_seed_goes_on_in_the_sequence_of_all_nodes(dtype: Any) -> None:
    definition = registry.lookup("", "Dropout", 22)
    assert definition is not None
    ctx, x = registry.EvalContext(22, (True, True)), np.linspace(-3, 3, 40000, dtype=dtype).reshape(200, 200)
    inputs = [x, np.array(0.25, np.float32), np.array(True)]
    (y, kept), (_, later) = (registry.call(definition, inputs, {"seed": None}, ctx) for _ in range(2))
    assert y.dtype == dtype
    assert kept.dtype == np.bool_
    assert 0.73 < kept.mean() < 0.77
    assert (kept != later).any()
    np.testing.assert_allclose(y, np.where(kept, x / dtype(0.75), 0), rtol=2e-3 if dtype is np.float16 else 1e-6)
    np.testing.assert_array_equal(np.signbit(y), np.signbit(x))


def test_dropout_refuses_to_drop_all() -> None:
    with pytest.raises(ValueError, match=r"ratio is 1\.0, expected 0 <= ratio < 1"):
        run("Dropout", np.ones(2, np.float32), np.array(1, np.float32), np.array(True))


def test_norms_keep_symbols() -> None:
    shapes = known_shape("LayerNormalization", [f32("N", "T", 8), f32(8)], outputs=3, axis=1)
    assert shapes[0] == [symbol("N"), symbol("T"), 8]
    assert shapes[1].shape == (symbol("N"), 1, 1)
