"""The losses of classifiers against their definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_case import by_onnxruntime, f32, i64, known_shape, random_array, run, seeds

from sardonyx.ir.dims import symbol

quick = settings(max_examples=30, deadline=None)
reductions = st.sampled_from(["none", "sum", "mean"])


@quick
@given(
    seed=seeds, inner=st.sampled_from([(), (3,), (2, 3)]), weighted=st.booleans(), ignore=st.sampled_from([None, -1, 1]),
    reduction=reductions, dtype=st.sampled_from([np.float32, np.float64, np.float16]), name=st.sampled_from(["nll", "softmax"]),
)  # fmt: skip
def test_a_loss_is_the_weighted_sum_of_what_the_right_class_got(
    seed: int, inner: tuple[int, ...], weighted: bool, ignore: int | None, reduction: str, dtype: Any, name: str
) -> None:
    rng = np.random.default_rng(seed)
    x = random_array(seed, (4, 3, *inner), dtype, special=False)
    labels = rng.integers(0, 3, (4, *inner))
    if ignore is not None:
        labels[rng.random(labels.shape) < 0.3] = ignore
        labels.flat[0] = 0
    weight = np.abs(random_array(seed + 1, (3,), dtype, special=False)) + np.ones((), dtype) if weighted else None
    wide = x.astype(np.float64)
    logs = wide - np.log(np.exp(wide).sum(1, keepdims=True)) if name == "softmax" else wide
    kept = np.ones(labels.shape, bool) if ignore is None else labels != ignore
    factor = (np.ones(3) if weight is None else weight.astype(np.float64))[np.where(kept, labels, 0)] * kept
    loss = -np.take_along_axis(logs, np.where(kept, labels, 0)[:, None], 1)[:, 0] * factor
    expected = loss if reduction == "none" else loss.sum() / (factor.sum() if reduction == "mean" else 1)
    attrs: dict[str, Any] = {"reduction": reduction, "ignore_index": ignore}
    tolerance = 1e-2 if dtype == np.float16 else 1e-4
    if name == "nll":
        result = run("NegativeLogLikelihoodLoss", x, labels, weight, **attrs)
    else:
        result, logarithms = run("SoftmaxCrossEntropyLoss", x, labels, weight, outputs=2, **attrs)
        np.testing.assert_allclose(logarithms.astype(np.float64), logs, rtol=tolerance, atol=tolerance)
    assert result.dtype == dtype
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


def test_the_cross_entropy_is_onnxruntimes() -> None:
    x, labels = random_array(1, (3, 4), np.float32, special=False), i64(0, 3, 1)
    expected = by_onnxruntime("SoftmaxCrossEntropyLoss", x, labels, like=[x, x], version=13)
    for ours, theirs in zip(run("SoftmaxCrossEntropyLoss", x, labels, outputs=2), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_the_mean_of_nothing_is_nan() -> None:
    x = np.zeros((2, 3), np.float32)
    assert np.isnan(run("NegativeLogLikelihoodLoss", x, i64(-1, -1), ignore_index=-1))
    assert run("NegativeLogLikelihoodLoss", x[:0], i64(), reduction="sum") == 0


@pytest.mark.parametrize(
    ("labels", "attrs", "error", "message"),
    [
        (i64(0, 3), {}, IndexError, "class 3 is out of range: there are 3 classes"),
        (i64(0, 1, 2), {}, ValueError, r"classes of shape \(3,\) do not fit scores of shape \(2, 3\): expected \(2,\)"),
        (i64(0, 1), {"reduction": "max"}, ValueError, "reduction is 'max'"),
    ],
)
def test_labels_that_do_not_fit_are_named(labels: Any, attrs: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        run("NegativeLogLikelihoodLoss", np.zeros((2, 3), np.float32), labels, **attrs)


def test_losses_keep_symbols() -> None:
    assert known_shape("NegativeLogLikelihoodLoss", [f32("N", 3, "T"), None], reduction="none") == (symbol("N"), symbol("T"))
    assert known_shape("NegativeLogLikelihoodLoss", [f32("N", 3, "T"), None]) == ()
