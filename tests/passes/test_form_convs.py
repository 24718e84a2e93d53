"""Transposed convolutions as convolutions give the same numbers, whatever their strides, pads and sizes."""

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
from conv_support import numbers
from guarded_session import guarded_feeds, guarded_memory
from native_support import host_nodes, run_reference
from pass_support import copy_of, evaluate, operators
from sardonyx.compile.compiler import compile_model
from sardonyx.compile.native_model import NativeModel
from sardonyx.compile_options import CompileOptions
from sardonyx.formats.onnx import load
from sardonyx.ir.graph import Model
from sardonyx.ir.tensor import Array
from sardonyx.ir.verify import verify
from sardonyx.passes.fold_shape_values import infer_from_inputs
from sardonyx.passes.form_convs import FormConv
from sardonyx.target.levels import generic


def transposed(shape: Sequence[int | str], operands: Sequence[Array], attrs: Mapping[str, Any]) -> Model:
    """A model of one ConvTranspose with these weights (and bias)."""
    names = ["w", "b"][: len(operands)]
    nodes = [helper.make_node("ConvTranspose", ["x", *names], ["y"], **attrs)]
    found = load(proto(nodes, {"x": shape}, dict(zip(names, operands))).SerializeToString())
    infer_from_inputs(found)
    return found


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_results_stay_the_same(data: st.DataObject) -> None:
    rank = data.draw(st.sampled_from((1, 1, 2, 2, 3)), "rank")
    is_strided = data.draw(st.booleans(), "strided")
    steps = [data.draw(st.sampled_from((1, 2, 3, 5) if rank < 3 else (2, 3)), "stride") if is_strided else 1 for _ in range(rank)]
    kernel = [data.draw(st.integers(1, 7 if rank < 3 else 3), "kernel") for _ in range(rank)]
    dilations = [data.draw(st.sampled_from((1, 2)), "dilation") if max(steps) == 1 else 1 for _ in range(rank)]
    pads = [data.draw(st.integers(0, 3), "pad") for _ in range(2 * rank)]
    extra = [data.draw(st.integers(0, max(step, dilation) - 1), "more") for step, dilation in zip(steps, dilations)]
    spatial = [data.draw(st.integers(1, 6), "size") for _ in range(rank)]
    for axis in range(rank):
        full = (spatial[axis] - 1) * steps[axis] + dilations[axis] * (kernel[axis] - 1) + 1 + extra[axis]
        assume(full - pads[axis] - pads[axis + rank] > 0)
    inputs, outputs = data.draw(st.integers(1, 3), "inputs"), data.draw(st.integers(1, 2), "outputs")
    random = np.random.default_rng(0)
    weights = random.integers(-8, 8, (inputs, outputs, *kernel)).astype(np.float32)
    operands = [weights]
    if data.draw(st.booleans(), "bias"):
        operands.append(random.integers(-8, 8, outputs).astype(np.float32))
    batch = data.draw(st.sampled_from((1, 2)), "batch")
    shape: list[int | str] = [batch, inputs, *spatial]
    if data.draw(st.booleans(), "named"):
        shape = ["N", inputs, *(f"S{axis}" for axis in range(rank))]
    attrs: dict[str, Any] = {"strides": steps, "dilations": dilations, "output_padding": extra}
    mode = data.draw(st.sampled_from(("pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID")), "mode")
    attrs |= {"pads": pads} if mode == "pads" else {"auto_pad": mode}
    original = transposed(shape, operands, attrs)
    changed = copy_of(original)
    result = FormConv().run(changed)
    assert verify(changed) == []
    covered = all(
        dilation * (size - 1) >= max(low, high)
        for dilation, size, low, high in zip(dilations, kernel, pads[:rank], pads[rank:], strict=True)
    )
    at_least = [1 if isinstance(size, str) else size for size in shape[2:]]
    filled = all(
        size - 1 + dilation * (width - 1) + 1 + more > low + high
        for size, dilation, width, more, low, high in zip(
            at_least, dilations, kernel, extra, pads[:rank], pads[rank:], strict=True
        )
    )
    even = all(size % step == 0 for size, step in zip(kernel, steps, strict=True))
    if (max(steps) > 1 and even) or (max(steps) == 1 and covered and filled and mode == "pads"):
        assert result.changes == 1
        assert "ConvTranspose" not in operators(changed)
    assert_same(original, changed, random.integers(-8, 8, (batch, inputs, *spatial)).astype(np.float32))


def assert_same(original: Model, changed: Model, x: Array) -> None:
    """The results are the same, and an infinity reaches what its own taps do, no more."""
    np.testing.assert_array_equal(evaluate(changed, {"x": x})[0], evaluate(original, {"x": x})[0])
    x.reshape(-1)[x.size // 2] = np.inf
    (wanted,), (found,) = evaluate(original, {"x": x}), evaluate(changed, {"x": x})
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_many_phases_of_groups_stay_the_same(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3), "rank")
    steps = data.draw(
        st.sampled_from({1: ([65], [80]), 2: ([9, 8], [8, 9], [10, 10]), 3: ([5, 4, 4], [6, 6, 2])}[rank]), "strides"
    )
    kernel = [data.draw(st.integers(1, 2 * step), "kernel") for step in steps]
    spatial = [data.draw(st.integers(1, 3), "size") for _ in range(rank)]
    groups, inputs, outputs = (data.draw(st.integers(1, most), "channels") for most in (4, 2, 3))
    random = np.random.default_rng(0)
    operands = [random.integers(-8, 8, (groups * inputs, outputs, *kernel)).astype(np.float32)]
    if data.draw(st.booleans(), "bias"):
        operands.append(random.integers(-8, 8, groups * outputs).astype(np.float32))
    attrs: dict[str, Any] = {"strides": steps, "group": groups}
    full = [(size - 1) * step + width for size, step, width in zip(spatial, steps, kernel)]
    if data.draw(st.booleans(), "shape"):
        attrs["output_shape"] = [data.draw(st.integers(max(each - 3, 1), each + 5), "wanted") for each in full]
    original = transposed([2, groups * inputs, *spatial], operands, attrs)
    changed = copy_of(original)
    assert FormConv().run(changed).changes == 1
    assert verify(changed) == []
    assert "ConvTranspose" not in operators(changed)
    assert_same(original, changed, random.integers(-8, 8, (2, groups * inputs, *spatial)).astype(np.float32))


@pytest.mark.parametrize(("outputs", "stride", "changes"), [(2, 2, 1), (8, 2, 0), (8, 80, 1), (8, 1, 1)])
def test_results_are_channels_if_there_are_few_channels_or_many_phases(outputs: int, stride: int, changes: int) -> None:
    weights = np.ones((8, outputs, 4), np.float32)
    assert FormConv().run(transposed((1, 8, 4), [weights], {"strides": [stride]})).changes == changes


@pytest.mark.parametrize(
    ("channels", "kernel", "bias"), [((64, 3), (3, 3), True), ((32, 1), (3, 3), False), ((48, 2), (1, 5), True)]
)
def test_products_of_single_taps_are_added_up(channels: tuple[int, int], kernel: tuple[int, int], bias: bool) -> None:
    inputs, outputs = channels
    operands = [numbers(1, inputs, outputs, *kernel), *([numbers(2, outputs)] if bias else [])]
    for pads, extra in (([1, 1, 1, 1], [1, 1]), ([0, 1, 0, 0], [0, 0]), ([0, 0, 0, 2], [0, 1])):
        attrs = {"strides": [2, 3], "pads": pads, "output_padding": extra} if kernel[0] > 1 else {"strides": [1, 4]}
        original = transposed(("N", inputs, 5, 6), operands, attrs)
        changed = copy_of(original)
        assert FormConv(target=generic("x86-64-v4")).run(changed).changes == 1
        assert "Col2Im" in operators(changed)
        assert verify(changed) == []
        x = numbers(3, 2, inputs, 5, 6)
        x[0, 0, 2, 3] = np.inf  # reaches what its own taps do, no more
        (wanted,) = evaluate(original, {"x": x})
        (found,) = evaluate(changed, {"x": x})
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
        names = ["w", "b"][: len(operands)]
        nodes = [helper.make_node("ConvTranspose", ["x", *names], ["y"], **attrs)]
        content = proto(nodes, {"x": ("N", inputs, 5, 6)}, dict(zip(names, operands))).SerializeToString()
        (native,) = sx.InferenceSession(content).run(None, {"x": x})
        np.testing.assert_allclose(native, wanted, rtol=1e-4, atol=1e-4)


def test_an_empty_result_stays_one() -> None:
    weights = numbers(1, 3, 8, 1, 2)
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["y"], pads=[0, 1, 0, 1])]
    for shape in ((1, 3, 1, 1), (1, 3, 1, "W")):
        session = sx.InferenceSession(proto(nodes, {"x": shape}, {"w": weights}).SerializeToString())
        assert session.run(None, {"x": numbers(2, 1, 3, 1, 1)})[0].shape == (1, 8, 1, 0)


def test_it_is_native() -> None:
    weights = numbers(1, 24, 1, 16)
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[8], pads=[4, 4])]
    content = proto(nodes, {"x": ("N", 24, "T")}, {"w": weights}).SerializeToString()
    session = sx.InferenceSession(content)
    for batch, length in ((1, 50), (2, 7), (1, 1)):
        x = numbers(2, batch, 24, length)
        (wanted,) = run_reference(content, {"x": x})
        np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "weights", "attrs"),
    [
        (("N", 16, "H", "W"), (16, 8, 9, 10), {"strides": [9, 10]}),
        (("N", 16, "H", "W"), (16, 8, 12, 12), {"strides": [9, 10], "auto_pad": "SAME_UPPER"}),
        (("N", 21, "H", "W"), (21, 1, 32, 32), {"strides": [16, 16], "group": 21, "pads": [8, 8, 8, 8]}),  # as in FCN-16s
        ((1, 4, 3, 5), (4, 3, 8, 16), {"strides": [8, 16], "output_shape": [22, 79]}),
        ((1, 4, 2, 3, 2), (4, 2, 4, 4, 8), {"strides": [4, 4, 8], "group": 2}),
    ],
)
def test_many_phases_are_native(shape: tuple[int | str, ...], weights: tuple[int, ...], attrs: dict[str, Any]) -> None:
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attrs)]
    content = proto(nodes, {"x": shape}, {"w": numbers(1, *weights)}).SerializeToString()
    compiled = compile_model(load(content), CompileOptions())
    assert isinstance(compiled, NativeModel)
    assert host_nodes(compiled.main) == []
    x = numbers(2, *(size if isinstance(size, int) else number + 1 for number, size in enumerate(shape)))
    (wanted,) = run_reference(content, {"x": x})
    session = sx.InferenceSession(content)
    with guarded_memory() as guard:
        (found,) = session.run(None, guarded_feeds(guard, {"x": x}))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("channels", "kernel", "attrs"),
    [
        ((64, 1), (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((64, 3), (5, 5), {"strides": [2, 2], "pads": [2, 2, 2, 2], "output_padding": [1, 1]}),
        ((64, 2), (5, 3), {"strides": [3, 1], "pads": [4, 0, 4, 2]}),
        ((8, 1), (11,), {"strides": [5], "pads": [3, 3]}),
        ((8, 8), (100,), {"strides": [80]}),
        ((8, 2), (3, 70), {"strides": [2, 80]}),
    ],
)
def test_an_infinity_reaches_what_its_taps_do_in_images_of_any_size(
    channels: tuple[int, int], kernel: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    operands = {"w": numbers(1, *channels, *kernel), "b": numbers(2, channels[1])}
    nodes = [helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **attrs)]
    content = proto(nodes, {"x": ("N", channels[0], *"HW"[: len(kernel)])}, operands).SerializeToString()
    session = sx.InferenceSession(content)
    with guarded_memory() as guard:
        for batch, size in ((1, 6), (2, 3), (1, 2), (0, 4)):
            x = numbers(3, batch, channels[0], *(size for _ in kernel))
            x.reshape(-1)[x.size // 2 : x.size // 2 + 1] = np.inf
            (wanted,) = run_reference(content, {"x": x})
            (found,) = session.run(None, guarded_feeds(guard, {"x": x}))
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
