"""The code of blocked kernels for machines of every width, and for others than this one."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from conv_support import lowered_for, model, numbers, run_guarded
from native_support import run_reference
from sardonyx.codegen import llvm
from sardonyx.codegen.conv.conv_window import row_tiles
from sardonyx.codegen.emit import kernel_ir
from sardonyx.codegen.host import host
from sardonyx.codegen.library import KernelLibrary
from sardonyx.kernel.conv.conv import ConvKernel
from sardonyx.kernel.conv.window import Row
from sardonyx.program.steps import KernelStep
from sardonyx.target.target import Target, describe
from targets import NEOVERSE, described, here

OTHERS = (
    describe("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma,+f16c"),
    describe("x86_64-unknown-linux-gnu", "x86-64", "+sse2"),
    NEOVERSE,
)


def _network(named: bool) -> tuple[Any, dict[str, Any]]:
    """Every kind of kernel at least once, with channels that fill no blocks."""
    constants = {
        "w0": numbers(1, 36, 3, 3, 3), "w1": numbers(2, 36, 1, 3, 3), "w2": numbers(3, 36, 36, 1, 1) * 0.2, "b2": numbers(4, 36),
        "w3": numbers(5, 20, 36, 3, 3) * 0.1, "w4": numbers(6, 20, 10, 2, 2), "scales": np.array([1, 1, 2, 2], np.float32),
    }  # fmt: skip
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["a", "w1"], ["b"], group=36, pads=[1, 1, 1, 1]),
        node("Relu", ["b"], ["br"]),
        node("Conv", ["br", "w2", "b2"], ["c"]),
        node("Add", ["c", "a"], ["ca"]),
        node("MaxPool", ["ca"], ["d"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["d", "w3"], ["e"], pads=[1, 1, 1, 1], dilations=[1, 1]),
        node("Sigmoid", ["e"], ["s"]),
        node("Mul", ["e", "s"], ["es"]),
        node("AveragePool", ["es"], ["f"], kernel_shape=[2, 2], pads=[1, 0, 0, 1]),
        node("Resize", ["f", "", "scales"], ["g"], mode="nearest"),
        node("ConvTranspose", ["g", "w4"], ["h"], strides=[2, 2]),
        node("GlobalAveragePool", ["h"], ["i"]),
        node("Mul", ["h", "i"], ["y"]),
    ]
    shape = ("N", 3, "H", "W") if named else (2, 3, 19, 22)
    return model(nodes, {"x": shape}, constants), {"x": numbers(0, 2, 3, 19, 22)}


@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize("named", [False, True])
def test_every_width_gives_the_same_results(width: int, named: bool) -> None:
    content, feeds = _network(named)
    target = here(width)
    lowered = lowered_for(content, target)
    (expected,) = run_reference(content.SerializeToString(), feeds)
    (actual,) = run_guarded(lowered, feeds, KernelLibrary(target, None))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("target", OTHERS, ids=lambda target: f"{target.cpu}")
def test_kernels_compile_for_other_machines(target: Target) -> None:
    content, _ = _network(True)
    kernels = {step.kernel.key: step.kernel for step in lowered_for(content, target).steps if isinstance(step, KernelStep)}
    assert any(isinstance(kernel, ConvKernel) for kernel in kernels.values())
    for kernel in kernels.values():
        assert llvm.compile_to_object(kernel_ir(kernel, target), target)


@pytest.mark.parametrize("whole", [False, True])
def test_the_inner_loop_multiplies_straight_from_memory_and_spills_nothing(whole: bool) -> None:
    """Where loads take as long as products, an element is loaded once for several vectors; else each product reads it."""
    if not host().has_broadcast_operands:
        pytest.skip("only wide machines have such an instruction")
    target = replace(host(), has_whole_vectors=whole)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Conv", ["c", "w"], ["y"])]
    content = model(nodes, {"x": (1, 64, 14, 14)}, {"w": numbers(1, 64, 64, 1, 1)})
    (kernel,) = {
        step.kernel.key: step.kernel
        for step in lowered_for(content, target).steps
        if isinstance(step, KernelStep) and isinstance(step.kernel, ConvKernel)
    }.values()
    assert kernel.last_pixels is not None
    assert (kernel.vectors > 1) == whole
    text = llvm.assembly(kernel_ir(kernel, target), target)
    products = [line for line in text.splitlines() if "vfmadd" in line]
    assert len(products) == 2 * kernel.vectors * (kernel.pixels + kernel.last_pixels)  # two elements of a run at a time
    assert [line for line in products if "{1to16}" in line] == ([] if whole else products)
    assert not any(re.search(r"\(%\w+,", line) for line in products)  # an index would make two operations of each
    assert not any("%zmm" in line and "(%rsp)" in line for line in text.splitlines())


def test_channels_of_a_block_are_straight_code_where_blocks_are_small() -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Conv", ["c", "w"], ["y"])]
    content = model(nodes, {"x": (1, 48, 6, 6)}, {"w": numbers(1, 48, 48, 1, 1)})
    target = described(8)
    (kernel,) = {
        step.kernel.key: step.kernel
        for step in lowered_for(content, target).steps
        if isinstance(step, KernelStep) and isinstance(step.kernel, ConvKernel)
    }.values()
    products = llvm.assembly(kernel_ir(kernel, target), target).count("vfmadd")
    assert products == 8 * kernel.vectors * kernel.pixels  # rows are whole tiles: there is one


def test_tiles_of_a_row_cover_every_pixel_once_and_only_taps_inside() -> None:
    row = Row(width=9, columns=5, left=1, padded=11)
    tiles = row_tiles(row, 3, 3, 2, 1)
    assert [(tile.start, tile.pixels) for tile in tiles] == [(0, 3), (3, 2)]
    assert (0, 0) not in tiles[0].inside
    assert (0, 1) in tiles[0].inside
    assert (1, 2) not in tiles[1].inside


@given(
    st.integers(1, 60), st.integers(0, 12), st.integers(0, 12), st.integers(1, 7), st.integers(1, 5), st.integers(1, 4),
    st.integers(1, 4),
)  # fmt: skip
@settings(max_examples=300)
def test_runs_of_tiles_are_the_tiles_one_by_one(
    width: int, left: int, right: int, pixels: int, taps: int, stride: int, dilation: int
) -> None:
    reach = (taps - 1) * dilation + 1
    columns = max((left + width + right - reach) // stride + 1, 0)
    runs = row_tiles(Row(width, columns, left, left + width + right), pixels, taps, stride, dilation)
    tiles = [(run.start + number * pixels, run.pixels, run.inside) for run in runs for number in range(run.count)]
    assert [start for start, _, _ in tiles] == list(range(0, columns, pixels))
    for start, count, inside in tiles:
        assert count == min(pixels, columns - start)
        places = [(p, tap) for p in range(count) for tap in range(taps)]
        assert inside == {(p, tap) for p, tap in places if 0 <= (start + p) * stride - left + tap * dilation < width}


def test_a_row_of_any_length_has_few_different_tiles() -> None:
    row = Row(width=1 << 50, columns=1 << 50, left=1, padded=(1 << 50) + 2)
    assert len(row_tiles(row, 14, 3, 1, 1)) <= 5
