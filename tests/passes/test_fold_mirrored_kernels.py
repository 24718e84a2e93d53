"""Kernels that are their own mirror image: the same results with half of the products, and nothing else is touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from lowering_case import onnx_type
from native_support import assert_native_agrees, run_reference
from sardonyx import InferenceSession, errors
from sardonyx.formats.onnx import load
from sardonyx.formats.onnx.save import model_to_bytes
from sardonyx.ir.tensor import Array
from sardonyx.passes.fold_mirrored_kernels import FoldMirroredKernels
from sardonyx.passes.fold_shape_values import infer_from_inputs


def waves(outputs: int, taps: int, sine: bool, window: Array | None = None) -> Array:
    """One part of a Fourier transform under a window, as kernels."""
    n = np.arange(taps)
    angles = 2 * np.pi * np.outer(np.arange(outputs), n) / taps
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * n / taps) if window is None else window
    made: Array = ((np.sin if sine else np.cos)(angles) * hann).astype(np.float32)[:, None]
    return made


def model(x: tuple[int | str, ...], w: Array, b: Array | None = None, opset: int = 17, **attrs: Any) -> bytes:
    constants = {"w": w} | ({} if b is None else {"b": b})
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", *constants], ["y"], **attrs)],
        "g",
        [helper.make_tensor_value_info("x", onnx_type(np.float32), x)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    made: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()
    return made


def folded(content: bytes) -> tuple[Any, Any]:
    made = load(content)
    infer_from_inputs(made)
    return made, FoldMirroredKernels().run(made)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_results_stay_the_same(data: st.DataObject) -> None:
    draw = data.draw
    batch, outputs, taps = draw(st.integers(1, 2)), draw(st.integers(32, 40)), 2 * draw(st.integers(64, 80))
    stride, sine, biased = draw(st.integers(1, 90)), draw(st.booleans()), draw(st.booleans())
    length = taps + draw(st.integers(0, 300))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    window = None if draw(st.booleans()) else np.ones(taps)  # without a window the first tap has a weight
    w = waves(outputs, taps, sine, window)
    b = rng.standard_normal(outputs).astype(np.float32) if biased else None
    shape = ("N", 1, "L") if draw(st.booleans()) else (batch, 1, length)
    x = {"x": rng.standard_normal((batch, 1, length)).astype(np.float32)}
    content = model(shape, w, b, draw(st.sampled_from((11, 17, 22))), strides=[stride])
    made, result = folded(content)
    assert result.changes == 1
    exact = run_reference(content, x)[0]
    np.testing.assert_allclose(run_reference(model_to_bytes(made), x)[0], exact, rtol=0, atol=2e-5)
    if "L" not in shape:
        assert_native_agrees(model_to_bytes(made), x, rtol=0, atol=2e-5)
    np.testing.assert_allclose(InferenceSession(content).run(None, x)[0], exact, rtol=0, atol=2e-5)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_reaches_the_same_results(value: float) -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 700)).astype(np.float32)
    x[0, 0, 333] = value
    for sine in (False, True):
        content = model(x.shape, waves(33, 128, sine), strides=[50])
        actual, exact = InferenceSession(content).run(None, {"x": x})[0], run_reference(content, {"x": x})[0]
        np.testing.assert_array_equal(np.isfinite(actual), np.isfinite(exact))
        np.testing.assert_allclose(actual[np.isfinite(exact)], exact[np.isfinite(exact)], atol=2e-5)


def test_samples_that_are_too_few_are_refused_as_before() -> None:
    session = InferenceSession(model(("N", 1, "L"), waves(33, 128, False), strides=[50]))
    assert session.run(None, {"x": np.ones((1, 1, 128), np.float32)})[0].shape == (1, 33, 1)
    for length in (127, 100, 3):
        with pytest.raises(errors.InvalidArgument, match="Conv"):
            session.run(None, {"x": np.ones((1, 1, length), np.float32)})


@pytest.mark.parametrize(
    ("x", "w", "attrs"),
    [
        ((1, 1, 300), waves(8, 128, False), {}),  # few kernels
        ((1, 1, 300), waves(33, 64, False), {}),  # short ones
        ((1, 1, 300), waves(33, 128, False), {"pads": [3, 3]}),
        ((1, 1, 300), waves(33, 128, False), {"dilations": [2]}),
        ((1, 1, 300), waves(33, 128, False), {"auto_pad": "SAME_UPPER"}),
        ((1, 2, 300), np.repeat(waves(33, 128, False), 2, axis=1), {}),
    ],
)
def test_other_convolutions_stay(x: tuple[int, ...], w: Array, attrs: dict[str, Any]) -> None:
    _, result = folded(model(x, w, **attrs))
    assert (result.changes, result.reasons) == (0, ())


def test_kernels_that_are_not_mirrored_stay() -> None:
    w = waves(33, 128, False)
    both = np.concatenate([w, waves(33, 128, True)])
    near = w.copy()
    near[5, 0, 9] += 1e-6
    lost = w.copy()
    lost[5, 0, 9] = np.inf
    for weights in (both, near):
        assert folded(model((1, 1, 300), weights))[1].reasons == ("Conv '-> y': the weights are not their own mirror image",)
    assert folded(model((1, 1, 300), lost))[1].reasons == ("Conv '-> y': weights that are not finite",)
