"""Short Fourier transforms as products: the same numbers as the transforms give, and the same refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from sardonyx import InferenceSession, errors
from sardonyx.ir.tensor import Array

FRONT_END_LENGTHS = (1, 2, 3, 5, 8, 30, 64, 100)


def transform(op: str, x: Array, constants: dict[str, Any], version: int, open_sizes: bool, **attrs: Any) -> bytes:
    """One node whose first input is fed; constants by the names of the others, an empty one being left out."""
    shape = [f"s{axis}" if axis < x.ndim - 2 or op == "STFT" else size for axis, size in enumerate(x.shape)]
    if op == "STFT" and x.ndim == 3:
        shape[2] = 1
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    names = ["x", *("" if value is None else name for name, value in constants.items())]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attrs)],
        "transform",
        [helper.make_tensor_value_info("x", kind, shape if open_sizes else x.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items() if value is not None],
    )
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10).SerializeToString()
    return content


def agrees_with_the_definition(content: bytes, x: Array) -> None:
    session = InferenceSession(content)
    (expected,) = InferenceSession(content, providers=["SardonyxReferenceExecutionProvider"]).run(None, {"x": x})
    (actual,) = session.run(None, {"x": x})
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    largest = float(np.abs(expected).max(initial=1e-30))
    np.testing.assert_allclose(actual, expected, atol=largest * 20 * float(np.finfo(x.dtype).eps), rtol=0)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    length=st.sampled_from(FRONT_END_LENGTHS),
    parts=st.sampled_from([1, 2]),
    outer=st.lists(st.integers(0, 3), min_size=1, max_size=2),
    form=st.sampled_from(["whole", "inverse", "onesided"]),
    version=st.sampled_from([17, 20]),
    dtype=st.sampled_from([np.float32, np.float64]),
    open_sizes=st.booleans(),
)
def test_rows_are_transformed_as_the_definition_says(
    seed: int, length: int, parts: int, outer: list[int], form: str, version: int, dtype: Any, open_sizes: bool
) -> None:
    parts = 1 if form == "onesided" else parts
    x = np.random.default_rng(seed).normal(size=(*outer, length, parts)).astype(dtype)
    attrs = {} if form == "whole" else {form: 1}
    constants: dict[str, Any] = {"length": None, "axis": np.int64(len(outer))} if version == 20 else {}
    if version == 17:
        attrs["axis"] = len(outer)
    agrees_with_the_definition(transform("DFT", x, constants, version, open_sizes, **attrs), x)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    length=st.sampled_from(FRONT_END_LENGTHS),
    step=st.integers(1, 40),
    more=st.integers(0, 200),
    batch=st.integers(0, 2),
    onesided=st.booleans(),
    windowed=st.booleans(),
    flat=st.booleans(),
    open_sizes=st.booleans(),
)
def test_frames_are_transformed_as_the_definition_says(
    seed: int, length: int, step: int, more: int, batch: int, onesided: bool, windowed: bool, flat: bool, open_sizes: bool
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(batch, length + more) if flat else (batch, length + more, 1)).astype(np.float32)
    window = rng.uniform(0.1, 1, length).astype(np.float32) if windowed else None
    constants = {"step": np.int64(step), "window": window, "length": None if windowed else np.int64(length)}
    agrees_with_the_definition(transform("STFT", x, constants, 17, open_sizes, onesided=int(onesided)), x)


@pytest.mark.parametrize("length", [64, 256])
def test_frames_of_a_voice_are_those_of_onnxruntime(length: int) -> None:
    x = np.random.default_rng(0).normal(size=(1, 1600, 1)).astype(np.float32)
    content = transform("STFT", x, {"step": np.int64(length // 4), "window": np.hanning(length).astype(np.float32)}, 17, True)
    (expected,) = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    (actual,) = InferenceSession(content).run(None, {"x": x})
    np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_the_ends_of_a_real_spectrum_are_real() -> None:
    x = np.random.default_rng(0).normal(size=(3, 64, 1)).astype(np.float32)
    (actual,) = InferenceSession(transform("DFT", x, {}, 17, True, onesided=1, axis=1)).run(None, {"x": x})
    assert (actual[:, [0, 32], 1] == 0).all()


@pytest.mark.parametrize("open_sizes", [False, True])
def test_a_signal_shorter_than_a_frame_is_refused_and_the_node_named(open_sizes: bool) -> None:
    x = np.zeros((1, 10, 1), np.float32)
    content = transform("STFT", x, {"step": np.int64(4), "window": np.ones(64, np.float32)}, 17, open_sizes)
    with pytest.raises(errors.SardonyxError, match="STFT"):
        InferenceSession(content).run(None, {"x": x})
