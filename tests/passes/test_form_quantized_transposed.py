"""Transposed convolutions of bytes become convolutions of bytes, whatever their strides, pads, sizes and types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper

import sardonyx as sx
from conv_support import model as proto
from native_support import run_reference
from pass_support import copy_of, evaluate, operators
from sardonyx.formats.onnx import load
from sardonyx.ir.graph import Model
from sardonyx.ir.tensor import Array
from sardonyx.ir.verify import verify
from sardonyx.passes.fold_shape_values import infer_from_inputs
from sardonyx.passes.form_integer_convs import FormQLinearConv, PullQuantize
from sardonyx.passes.form_quantized_transposed import FormQuantizedTransposed

STEP = np.float32(0.25)


def content(
    shape: Sequence[int | str], constants: Mapping[str, Array], attrs: Mapping[str, Any], *, by_output: bool, relu: bool = False
) -> bytes:
    """x -> bytes -> ConvTranspose -> bytes -> y; constants: w, ws, wz, perhaps b, and the zero points of x and y."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=1 if by_output else 0),
        helper.make_node("ConvTranspose", ["xd", "wd", *(["b"] if "b" in constants else [])], ["t"], **attrs),
        *([helper.make_node("Relu", ["t"], ["r"])] if relu else []),
        helper.make_node("QuantizeLinear", ["r" if relu else "t", "ys", "yz"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["y"]),
    ]
    scales: dict[str, Array] = {"xs": np.array(2.0**-5, np.float32), "ys": np.array(STEP)}
    made: bytes = proto(nodes, {"x": shape}, {**constants, **scales}).SerializeToString()
    return made


def transposed(given: bytes) -> Model:
    found = load(given)
    infer_from_inputs(found)
    return found


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_results_stay_the_same(data: st.DataObject) -> None:
    rank = data.draw(st.sampled_from((1, 2, 2, 3)), "rank")
    steps = [data.draw(st.sampled_from((1, 2, 3) if rank < 3 else (1, 2)), "stride") for _ in range(rank)]
    kernel = [data.draw(st.integers(1, 5 if rank < 3 else 3), "kernel") for _ in range(rank)]
    pads = [data.draw(st.integers(0, 2), "pad") for _ in range(2 * rank)]
    extra = [data.draw(st.integers(0, step - 1), "more") for step in steps]
    spatial = [data.draw(st.integers(1, 5), "size") for _ in range(rank)]
    for axis in range(rank):
        full = (spatial[axis] - 1) * steps[axis] + kernel[axis] + extra[axis]
        assume(full - pads[axis] - pads[axis + rank] > 0)
    inputs, outputs = data.draw(st.integers(1, 3), "inputs"), data.draw(st.integers(1, 3), "outputs")
    kind, own = (data.draw(st.sampled_from((np.int8, np.uint8)), name) for name in ("weights", "images"))
    by_output = data.draw(st.booleans(), "scales by output")
    random = np.random.default_rng(data.draw(st.integers(0, 9), "seed"))
    count = (outputs,) if by_output else ()
    constants: dict[str, Array] = {
        "w": random.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, (inputs, outputs, *kernel)).astype(kind),
        "ws": np.asarray(2.0 ** random.integers(-8, -4, count), np.float32),  # so that all products are exact
        "wz": np.asarray(random.integers(0, 100, count), kind),
        "xz": np.array(7, own),
        "yz": np.array(100 if own is np.uint8 else -5, own),
    }
    if data.draw(st.booleans(), "bias"):
        constants["b"] = (random.integers(-800, 800, outputs) * 2.0**-13).astype(np.float32)
    batch = data.draw(st.sampled_from((1, 2)), "batch")
    shape: list[int | str] = [batch, inputs, *spatial]
    if data.draw(st.booleans(), "named"):
        shape = ["N", inputs, *(f"S{axis}" for axis in range(rank))]
    attrs = {"strides": steps, "pads": pads, "output_padding": extra}
    given_ = content(shape, constants, attrs, by_output=by_output, relu=data.draw(st.booleans(), "relu"))
    original = transposed(given_)
    changed = copy_of(original)
    PullQuantize().run(changed)
    result = FormQuantizedTransposed().run(changed)
    assert verify(changed) == []
    covered = max(steps) > 1 or all(size - 1 >= max(low, high) for size, low, high in zip(kernel, pads[:rank], pads[rank:]))
    assert result.changes == covered
    if covered:
        assert "ConvTranspose" not in operators(changed)
        assert FormQLinearConv().run(changed).changes == 1
    feeds = {"x": random.standard_normal((batch, inputs, *spatial)).astype(np.float32) * 3}
    (wanted,) = evaluate(original, feeds)
    (found,) = evaluate(changed, feeds)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= STEP
    (native,) = sx.InferenceSession(given_).run(None, feeds)
    assert native.shape == wanted.shape
    assert np.abs(native - wanted).max() <= STEP


def _constants(**changes: Array) -> dict[str, Array]:
    random = np.random.default_rng(1)
    weights = random.integers(-127, 128, (16, 8, 2, 2)).astype(np.int8)
    points = {"wz": np.array(0, np.int8), "xz": np.array(9, np.uint8), "yz": np.array(120, np.uint8)}
    return {"w": weights, "ws": np.array(0.01, np.float32), **points, **changes}


def test_a_bias_of_integers_and_an_image_of_any_size() -> None:
    random = np.random.default_rng(0)
    scales = random.random(8).astype(np.float32) * np.float32(0.01) + np.float32(0.002)
    bias = (random.integers(-900, 900, 8) * scales * np.float32(2.0**-5)).astype(np.float32)
    constants = _constants(ws=scales, wz=np.zeros(8, np.int8), b=bias)
    given_ = content(("N", 16, "H", "W"), constants, {"strides": [2, 2]}, by_output=True, relu=True)
    session = sx.InferenceSession(given_)
    for shape in ((1, 16, 5, 9), (3, 16, 1, 2)):
        feeds = {"x": random.standard_normal(shape).astype(np.float32) * 3}
        (wanted,) = run_reference(given_, feeds)
        (found,) = session.run(None, feeds)
        assert found.shape == wanted.shape
        assert np.abs(found - wanted).max() <= STEP * 1.001


@pytest.mark.parametrize(
    ("attrs", "reason"),
    [
        ({"group": 2}, "it has 2 groups"),
        ({"strides": [2, 2], "dilations": [2, 2]}, "strides and dilations"),
        ({"strides": [2, 2], "output_shape": [9, 9]}, "follows from the shape of its result"),
        ({"pads": [3, 3, 3, 3]}, "larger than its kernels reach"),
    ],
)
def test_what_is_refused(attrs: dict[str, Any], reason: str) -> None:
    found = transposed(content((1, 16, 8, 8), _constants(), attrs, by_output=False))
    result = FormQuantizedTransposed().run(found)
    assert result.changes == 0
    assert any(reason in each for each in result.reasons)


def test_scales_of_inputs_are_refused() -> None:
    constants = _constants(ws=np.full(16, 0.01, np.float32), wz=np.zeros(16, np.int8))
    result = FormQuantizedTransposed().run(transposed(content((1, 16, 8, 8), constants, {}, by_output=False)))
    assert any("do not belong to outputs" in each for each in result.reasons)
