"""Weights that come later: who fetches them, which lines, and that nothing else changes."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from conv_support import assert_blocked_agrees, lowered_for, model, numbers
from sardonyx.kernel.conv.conv import COMING_LINES, ConvKernel
from sardonyx.program.steps import Buffer, KernelStep, Lowered
from targets import described

LINE = 64


def squeezed(side: int, wide: int, narrow: int, layers: int, batch: int | str = 1) -> Any:
    """Convolutions of single pixels, then two layers over the means of all pixels."""
    constants = {f"w{layer}": numbers(layer, wide, wide, 1, 1) / np.float32(wide**0.5) for layer in range(layers)}
    constants |= {"down": numbers(8, narrow, wide, 1, 1), "up": numbers(9, wide, narrow, 1, 1)}
    nodes, value = [], "x"
    for layer in range(layers):
        nodes.append(helper.make_node("Conv", [value, f"w{layer}"], [f"c{layer}"]))
        value = f"c{layer}"
    nodes += [
        helper.make_node("GlobalAveragePool", [value], ["mean"]),
        helper.make_node("Conv", ["mean", "down"], ["d"]),
        helper.make_node("Relu", ["d"], ["r"]),
        helper.make_node("Conv", ["r", "up"], ["u"]),
        helper.make_node("Sigmoid", ["u"], ["s"]),
        helper.make_node("Mul", [value, "s"], ["y"]),
    ]
    return model(nodes, {"x": [batch, wide, side, side]}, constants)


def argument(step: KernelStep, name: str) -> Any:
    assert isinstance(step.kernel, ConvKernel)
    return step.arguments[step.kernel.arguments.position(name)]


def fetched_lines(step: KernelStep) -> list[tuple[Buffer, int]]:
    """What the kernel fetches, by its own rule: for every unit, tile and iteration some lines from where they begin."""
    kernel = step.kernel
    assert isinstance(kernel, ConvKernel)
    assert kernel.single_tap
    chunk, columns, split = argument(step, "chunk"), argument(step, "columns"), argument(step, "coming_split")
    found = []
    for unit, iteration in product(range(int(str(step.units))), range(argument(step, "iterations"))):
        begin = unit % argument(step, "chunks") * chunk
        for tile in range(-(-min(chunk, columns - begin) // kernel.pixels)):
            at = unit * argument(step, "coming_unit") + tile * argument(step, "coming_tile") + iteration * COMING_LINES * LINE
            if at < argument(step, "coming_bytes"):
                base, offset = (argument(step, "coming"), at) if at < split else (argument(step, "then_coming"), at - split)
                found += [(base.buffer, base.offset + offset + line * LINE) for line in range(COMING_LINES)]
    return found


def pointwise(lowered: Lowered) -> list[KernelStep]:
    steps = [step for step in lowered.steps if isinstance(step, KernelStep)]
    return [step for step in steps if isinstance(step.kernel, ConvKernel) and step.kernel.single_tap]


def taps(content: Any) -> list[KernelStep]:
    """The steps of direct convolutions."""
    steps = [step for step in lowered_for(content, described(16)).steps if isinstance(step, KernelStep)]
    return [step for step in steps if isinstance(step.kernel, ConvKernel)]


def two_layers(wide: int, side: int, kernel: int, stride: int = 1, batch: int | str = 1, size: int | str | None = None) -> Any:
    """A convolution to many channels, so that the image is in blocks, and one from these to a few more."""
    weights = numbers(5, wide + 16, wide, kernel, kernel) / np.float32(wide**0.5 * kernel)
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["z"], pads=[1] * 4),
        helper.make_node("Conv", ["z", "w"], ["y"], pads=[kernel // 2] * 4, strides=[stride, stride]),
    ]
    sizes = [batch, 4, side if size is None else size, side]
    return model(nodes, {"x": sizes}, {"first": numbers(4, wide, 4, 3, 3), "w": weights})


def weights_of(step: KernelStep) -> Buffer:
    buffer = argument(step, "w").buffer
    assert isinstance(buffer, Buffer)
    return buffer


@settings(max_examples=20, deadline=None)
@given(st.integers(7, 30), st.sampled_from((96, 128, 200)), st.sampled_from((96, 130)), st.integers(1, 3))
def test_the_lines_of_weights_that_are_waited_for_are_fetched_once(side: int, wide: int, narrow: int, layers: int) -> None:
    *carriers, down, up = pointwise(lowered_for(squeezed(side, wide, narrow, layers), described(16)))
    fetched = [line for step in carriers for line in fetched_lines(step)]
    assert bool(fetched) == any(int(str(step.work)) >= 20_000 for step in carriers)
    assert len(set(fetched)) == len(fetched)
    past = (COMING_LINES - 1) * LINE  # the last of the lines that are fetched at once may lie behind the end
    for buffer, offset in fetched:
        assert buffer in (weights_of(down), weights_of(up))
        assert 0 <= offset < int(str(buffer.size)) * 4 + past
    if side >= 14 and layers > 1:  # there is time for all, but for what falls to tiles that the end of a row has not
        size = sum(int(str(weights_of(step).size)) * 4 for step in (down, up))
        assert len(fetched) * LINE >= size * 0.7


def test_layers_that_wait_fetch_nothing_themselves() -> None:
    *_, down, up = pointwise(lowered_for(squeezed(28, 128, 96, 2), described(16)))
    assert fetched_lines(down) == fetched_lines(up) == []


def test_an_open_batch_fetches_as_one_image_does() -> None:
    known, open_ = (pointwise(lowered_for(squeezed(28, 128, 96, 2, batch), described(16))) for batch in (1, "N"))
    for name in ("coming_bytes", "coming_split", "coming_tile"):
        assert [argument(step, name) for step in open_] == [argument(step, name) for step in known]
    assert sum(argument(step, "coming_bytes") for step in open_) > 0


def test_results_stay_the_same() -> None:
    content = squeezed(15, 200, 130, 2)
    assert_blocked_agrees(content, {"x": numbers(3, 1, 200, 15, 15)}, guard=True, atol=1e-3)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 24), st.sampled_from((128, 176, 400)), st.sampled_from((1, 3)), st.integers(1, 2), st.integers(1, 3))
def test_tiles_of_a_set_fetch_all_lines_of_the_next_one(side: int, wide: int, kernel: int, stride: int, batch: int) -> None:
    for step in taps(two_layers(wide, side, kernel, stride, batch)):
        conv = step.kernel
        assert isinstance(conv, ConvKernel)
        rows = batch * argument(step, "planes") * argument(step, "rows")
        chunk, band = argument(step, "chunk"), argument(step, "band")
        tiles = rows * -(-argument(step, "columns") // conv.pixels)
        together = min(tiles, band * -(-chunk // conv.pixels)) if conv.banded else tiles
        lines = conv.run * conv.vectors * conv.block // 16
        if conv.ahead:
            assert together * conv.ahead >= lines > (together - 1) * (conv.ahead - 1)
        else:
            assert argument(step, "sets") == 1 or together > 40 or int(str(weights_of(step).size)) * 4 < 64 << 10


def test_weights_that_stay_in_the_first_cache_are_not_fetched() -> None:
    step = taps(two_layers(32, 7, 1))[-1]
    assert isinstance(step.kernel, ConvKernel)
    assert step.kernel.ahead == 0


def test_sets_of_an_open_size_fetch_the_next_one_in_four_tiles() -> None:
    step = taps(two_layers(400, 7, 1, size="H"))[-1]
    assert isinstance(step.kernel, ConvKernel)
    assert step.kernel.ahead * 4 >= step.kernel.run * step.kernel.vectors


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 9), st.sampled_from((1, 3)), st.integers(1, 2), st.integers(1, 2), st.booleans())
def test_fetching_the_next_set_changes_no_result(side: int, kernel: int, stride: int, batch: int, is_open: bool) -> None:
    content = two_layers(140, side, kernel, stride, "N" if is_open else batch, "H" if is_open else None)
    assert_blocked_agrees(content, {"x": numbers(3, batch, 4, side, side)}, guard=True, atol=1e-3)
