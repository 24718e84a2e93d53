"""Depthwise convolutions of bytes against the NumPy meaning: all signs, zero points, windows, borders and layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guarded_session import guarded_feeds, guarded_memory
from model_text import model
from native_support import compile_native, host_nodes, run_native, run_reference
from sardonyx.ir.tensor import Array
from sardonyx.kernel.quant.windows import QuadWindowKernel, has_quad_windows
from sardonyx.lower.quant.windows import parts_of, quad_windows
from sardonyx.program.steps import KernelStep
from targets import here

TYPES = {"uint8": np.uint8, "int8": np.int8}
CHANNELS = [1, 3, 8, 16, 17, 24, 40, 64, 72, 96, 144, 200]


def integers(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Array:
    limits = np.iinfo(TYPES[kind])
    return rng.integers(limits.min, limits.max + 1, shape).astype(TYPES[kind])


def constant(name: str, kind: str, array: Array) -> str:
    return f"{kind}[{','.join(map(str, array.shape))}] {name} = {{{','.join(map(str, array.reshape(-1).tolist()))}}}"


def case(
    rng: np.random.Generator, kinds: tuple[str, str], channels: int, window: tuple[int, ...], *, last: bool, wild: bool
) -> tuple[str, dict[str, Any]]:
    """A QLinearConv with a kernel for each channel, and feeds; `wild`: strides, dilations, batches, kernels of one axis."""
    first, second = kinds
    pads = rng.integers(0, 3, 4).tolist()
    strides, dilations = (rng.integers(1, 3, 2).tolist() for _ in range(2)) if wild else ([1, 1], [1, 1])
    least = [(size - 1) * apart + 1 - begin - end for size, apart, begin, end in zip(window, dilations, pads, pads[2:])]
    size = [max(number, int(rng.integers(1, 14))) for number in least]
    images = int(rng.integers(0, 3)) if wild else 1
    if wild and rng.random() < 0.2:
        size, window = size[1:], window[1:]
        strides, dilations, pads = strides[1:], dilations[1:], pads[1::2]
    image = (images, *size, channels) if last else (images, channels, *size)
    count = channels if rng.random() < 0.5 else 1
    zeros = integers(rng, second, (count,)) if rng.random() < 0.7 else np.zeros(count, TYPES[second])
    if rng.random() < 0.2:
        zeros[:] = np.iinfo(TYPES[second]).min
    weights = integers(rng, second, (channels, 1, *window))
    if rng.random() < 0.3:
        weights[:] = np.iinfo(TYPES[second]).max
    constants = [
        constant("w", second, weights),
        constant("ws", "float", (rng.random(count) * 0.02 + 0.001).astype(np.float32)),
        constant("wz", second, zeros),
        constant("b", "int32", rng.integers(-3000, 3000, channels)),
    ]
    open_sizes = rng.random() < 0.5
    dims = ",".join(f"D{axis}" if open_sizes and number != channels else str(number) for axis, number in enumerate(image))
    operator = "com.microsoft.QLinearConv<channels_last=1, " if last else "QLinearConv<"
    attributes = f"group={channels}, strides={strides}, dilations={dilations}, pads={pads}".replace(", ", ",")
    text = f"""({first}[{dims}] x, float xs, {first} xz, float ys, {first} yz) => ({first}[z] y) <{", ".join(constants)}> {{
        y = {operator}{attributes}>(x, xs, xz, w, ws, wz, ys, yz, b)
    }}"""
    feeds = {
        "x": integers(rng, first, image),
        "xs": np.array(0.02, np.float32),
        "xz": integers(rng, first, ()),
        "ys": np.array(0.4, np.float32),
        "yz": integers(rng, first, ()),
    }
    return text, feeds


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([(first, second) for first in TYPES for second in TYPES]),
    st.sampled_from(CHANNELS),
    st.sampled_from([(3, 3), (3, 3), (5, 5), (7, 7), (1, 3), (4, 1), (2, 5)]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 1 << 30),
)
def test_results_agree_to_the_bit_and_nothing_outside_is_touched(
    kinds: tuple[str, str], channels: int, window: tuple[int, int], last: bool, wild: bool, at_start: bool, seed: int
) -> None:
    text, feeds = case(np.random.default_rng(seed), kinds, channels, window, last=last, wild=wild)
    graph, compiled = compile_native(model(text))
    assert not host_nodes(compiled)
    with guarded_memory(at_start) as guard:
        result = np.array(run_native(graph, compiled, guarded_feeds(guard, feeds))[0])
    np.testing.assert_array_equal(result, run_reference(model(text), feeds)[0])


def test_the_same_bits_on_any_number_of_workers() -> None:
    text, feeds = case(np.random.default_rng(0), ("uint8", "int8"), 144, (3, 3), last=True, wild=False)
    results = []
    for workers in (1, 2, 3):
        graph, compiled = compile_native(model(text), workers)
        results.append(run_native(graph, compiled, feeds)[0].tobytes())
    assert results[0] == results[1] == results[2]


@pytest.mark.skipif(not has_quad_windows(here()), reason="the machine has no products of quads, or no parts of vectors")
@pytest.mark.parametrize("last", [False, True])
def test_constant_kernels_take_one_step_that_reads_the_image_where_it_lies(last: bool) -> None:
    text, _ = case(np.random.default_rng(1), ("uint8", "uint8"), 40, (3, 3), last=last, wild=False)
    steps = [step for step in compile_native(model(text))[1].lowered.steps if isinstance(step, KernelStep)]
    assert sum(isinstance(step.kernel, QuadWindowKernel) for step in steps) == 1
    if last:
        assert len(steps) == 1


@pytest.mark.parametrize(
    ("zero_points", "is_signed", "parts"),
    [
        (None, True, 1),
        ([0, 0], True, 1),
        ([128], False, 1),
        ([0], False, 3),
        ([3, 128], False, 2),
        ([-128], True, 3),
        ([1], True, 2),
    ],
)
def test_distances_are_sums_of_as_few_bytes_as_hold_them(zero_points: list[int] | None, is_signed: bool, parts: int) -> None:
    kind = np.int8 if is_signed else np.uint8
    zeros = None if zero_points is None else np.array(zero_points, kind)
    assert parts_of(zeros, is_signed) == parts
    limits = np.iinfo(kind)
    kernels = np.array([limits.min, limits.max], kind).reshape(2, 1, 1, 1)
    packed = quad_windows(kernels, zeros, False, 1, 1, parts, 16)
    sums = packed[0].reshape(parts, -1, 16, 4)[:, 0, :2, 0].sum(0, dtype=np.int64)
    origin = np.broadcast_to(np.zeros(1, np.int64) if zeros is None else zeros.astype(np.int64), 2)
    np.testing.assert_array_equal(sums, kernels.reshape(-1).astype(np.int64) - origin)
