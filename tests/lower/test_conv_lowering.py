"""Convolutions in native code: every attribute, sizes known and not, epilogues, threads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from conv_support import assert_blocked_agrees, blocked, compiled, lowered_for, model, numbers, run_guarded
from native_support import assert_native_agrees, host_nodes, run_native, run_reference
from sardonyx.codegen.library import KernelLibrary
from sardonyx.compile.assemble import library
from sardonyx.ir.dims import symbol
from sardonyx.kernel.conv.conv import ConvKernel, CutTile
from sardonyx.kernel.conv.layout import SurroundKernel
from sardonyx.kernel.conv.window import LONGEST_WRITTEN, NarrowKernel, WindowKernel
from sardonyx.lower.conv import strided_pixels
from sardonyx.lower.conv.conv_geometry import Geometry
from sardonyx.lower.conv.conv_tiles import ConvTile, TileTask, choose_tile, cut_tiles, with_row_of_taps
from sardonyx.ops.conv.conv import conv_core
from sardonyx.program.steps import Kernel, KernelStep
from sardonyx.target.target import Caches, Target
from session_agreement import session
from targets import NEOVERSE, ZEN5, convolving, described, here, library_for


@dataclass(frozen=True)
class Layer:
    """A convolution and the input it is tried on."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    bias: bool
    attrs: dict[str, Any]
    named: bool  # sizes of the input are symbols

    def parts(self) -> tuple[Any, dict[str, Any]]:
        constants = {"w": numbers(1, *self.w)}
        if self.bias:
            constants["b"] = numbers(2, self.w[0])
        nodes = [helper.make_node("Conv", ["x", *constants], ["y"], **self.attrs)]
        shape: list[int | str] = list(self.x)
        if self.named:
            shape = ["N", self.x[1], *(f"S{axis}" for axis in range(len(self.x) - 2))]
        return model(nodes, {"x": shape}, constants), {"x": numbers(0, *self.x)}


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    rank = draw(st.sampled_from((1, 2, 2, 2, 3)))
    groups = draw(st.sampled_from((1, 1, 1, 2, 3, 8, 20)))
    inputs = draw(st.sampled_from((1, 2, 3, 8, 16, 17, 33) if groups < 8 else (1, 2, 4)))
    outputs = draw(st.sampled_from((1, 2, 8, 16, 20, 48) if groups < 8 else (inputs, 1, 3)))
    kernel = [draw(st.sampled_from((1, 2, 3, 5))) for _ in range(rank)]
    strides = [draw(st.sampled_from((1, 1, 2, 3))) for _ in range(rank)]
    dilations = [draw(st.sampled_from((1, 1, 2))) for _ in range(rank)]
    pads = [draw(st.integers(0, 3)) for _ in range(2 * rank)]
    spatial = [draw(st.integers(1, 18 if rank < 3 else 6)) for _ in range(rank)]
    for axis in range(rank):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        spatial[axis] = max(spatial[axis], reach - pads[axis] - pads[axis + rank])
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "group": groups}
    if draw(st.integers(0, 5)) == 0:
        attrs["auto_pad"] = draw(st.sampled_from(("SAME_UPPER", "SAME_LOWER")))
    else:
        attrs["pads"] = pads
    batch = draw(st.sampled_from((1, 1, 2)))
    named = draw(st.booleans())
    return Layer((batch, groups * inputs, *spatial), (groups * outputs, inputs, *kernel), draw(st.booleans()), attrs, named)


@settings(max_examples=25, deadline=None)
@given(layers())
def test_any_convolution_gives_in_blocks_what_it_gives_in_numpy(layer: Layer) -> None:
    content, feeds = layer.parts()
    assert_blocked_agrees(content, feeds, guard=True, atol=1e-3)


@settings(max_examples=15, deadline=None)
@given(layers())
def test_a_plain_convolution_gives_what_it_gives_in_numpy(layer: Layer) -> None:
    content, feeds = layer.parts()
    assert_native_agrees(content, feeds, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("x", "w", "attrs"),
    [
        ((1, 3, 19, 23), (20, 3, 7, 7), {"strides": [2, 2], "pads": [3, 3, 3, 3]}),
        ((1, 64, 7, 7), (48, 64, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((1, 40, 14, 14), (40, 1, 5, 5), {"group": 40, "pads": [2, 2, 2, 2]}),
        ((1, 40, 15, 15), (40, 1, 3, 3), {"group": 40, "pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ((1, 32, 9, 9), (32, 4, 3, 3), {"group": 8, "pads": [1, 1, 1, 1]}),
        ((1, 64, 6, 6), (64, 32, 1, 1), {"group": 2}),
        ((2, 16, 5, 5), (8, 16, 1, 1), {}),
        ((1, 16, 5, 5), (8, 16, 3, 3), {"pads": [-1, -1, 0, 0]}),
        ((1, 12, 40), (20, 12, 5), {"dilations": [3], "pads": [4, 2]}),
        ((1, 8, 4, 5, 6), (12, 8, 3, 3, 3), {"pads": [1, 1, 1, 1, 1, 1], "strides": [1, 2, 1]}),
    ],
)
def test_kernels_read_only_what_is_theirs(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any]) -> None:
    content, feeds = Layer(x, w, True, attrs, False).parts()
    assert_blocked_agrees(content, feeds, guard=True, atol=1e-3)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    ("x", "w", "attrs"),
    [
        ((2, 32, 12, 13), (1, 32, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((1, 20, 9, 30), (3, 20, 5, 5), {"pads": [2, 2, 2, 2], "strides": [2, 2]}),
        ((1, 70, 11, 11), (4, 70, 3, 3), {"dilations": [2, 2]}),
        ((1, 64, 40), (2, 64, 7), {"pads": [3, 3]}),
        ((1, 24, 4, 5, 6), (1, 24, 3, 3, 3), {"pads": [1, 1, 1, 1, 1, 1]}),
    ],
)
def test_few_outputs_are_sums_over_lanes(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any], named: bool) -> None:
    content, feeds = Layer(x, w, True, attrs, named).parts()
    program = assert_blocked_agrees(content, feeds, guard=True, atol=1e-3)
    # Three or four channels fill little of a vector of 16 lanes, but half of one of 8.
    few = 2 * w[0] <= library(None).target.lanes // 2
    assert any(isinstance(step.kernel, NarrowKernel) for step in program.plan.steps) is few


@st.composite
def first_layers(draw: st.DrawFn) -> Layer:
    """A few input channels, whose rows of the kernel may be written out; a few output channels, which may fill half a vector."""
    inputs, groups = draw(st.integers(1, 5)), draw(st.sampled_from((1, 1, 2)))
    outputs = draw(st.one_of(st.integers(1, 9), st.sampled_from((16, 20, 32, 50))))
    kernel, strides = [draw(st.integers(1, 7)) for _ in range(2)], [draw(st.integers(1, 4)) for _ in range(2)]
    pads = [draw(st.integers(0, 3)) for _ in range(4)]
    sizes = [max(draw(st.integers(1, most)), kernel[axis] - pads[axis] - pads[axis + 2]) for axis, most in enumerate((9, 75))]
    dilations = [draw(st.sampled_from((1, 1, 2))), 1]
    sizes[0] = max(sizes[0], (kernel[0] - 1) * dilations[0] + 1 - pads[0] - pads[2])
    attrs = {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations, "group": groups}
    batch, named = draw(st.integers(1, 2)), draw(st.booleans())
    return Layer((batch, groups * inputs, *sizes), (groups * outputs, inputs, *kernel), draw(st.booleans()), attrs, named)


def whole_vector_kernels(layer: Layer) -> list[Kernel]:
    """The kernels for a machine that computes whole vectors, which give what NumPy gives."""
    content, feeds = layer.parts()
    target = replace(here(16), has_whole_vectors=True)
    lowered = lowered_for(content, target)
    (expected,) = run_reference(content.SerializeToString(), feeds)
    (actual,) = run_guarded(lowered, feeds, KernelLibrary(target, None))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
    return [step.kernel for step in lowered.steps if isinstance(step, KernelStep)]


@settings(max_examples=60, deadline=None)
@given(first_layers())
def test_rows_of_the_kernel_that_are_written_out_give_what_numpy_gives(layer: Layer) -> None:
    kernels = [kernel for kernel in whole_vector_kernels(layer) if isinstance(kernel, ConvKernel)]
    if layer.w[1] > 1:  # else each may be a convolution of single channels
        assert all(kernel.paired is (2 * layer.w[0] // layer.attrs["group"] <= 16) for kernel in kernels if not kernel.single_tap)


def test_rows_of_the_kernel_are_written_out_where_registers_hold_their_weights() -> None:
    whole = replace(described(16), has_whole_vectors=True)
    task = TileTask(target=whole, outputs=32, inputs=3, taps=9, columns=112, plain=True)
    assert with_row_of_taps(ConvTile(2, 12), task, 3, deep=False) == ConvTile(2, 11, 3)
    assert with_row_of_taps(ConvTile(2, 12), task, 11, deep=False) == ConvTile(2, 12)
    few = replace(task, outputs=6, columns=28)
    assert with_row_of_taps(ConvTile(1, 14), few, 5, deep=False) == ConvTile(1, 28, 5, paired=True)
    assert not with_row_of_taps(ConvTile(1, 14), few, 5, deep=True).paired
    for target in (described(8), replace(whole, has_whole_vectors=False)):
        assert with_row_of_taps(ConvTile(1, 14), replace(few, target=target), 5, deep=False) == ConvTile(1, 14)


@st.composite
def lane_groups(draw: st.DrawFn) -> Layer:
    """Groups of several lanes of a block."""
    size, groups = draw(st.sampled_from((2, 4, 8))), draw(st.integers(2, 5))
    kernel, strides = [draw(st.integers(1, 5)), draw(st.integers(1, 7))], [draw(st.integers(1, 2)) for _ in range(2)]
    pads, dilations = [draw(st.integers(0, 3)) for _ in range(4)], [1, draw(st.sampled_from((1, 1, 2)))]
    reach = [(taps - 1) * dilation + 1 for taps, dilation in zip(kernel, dilations)]
    sizes = [max(draw(st.integers(1, most)), reach[axis] - pads[axis] - pads[axis + 2]) for axis, most in enumerate((6, 40))]
    attrs = {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations, "group": groups}
    batch, named, outputs = draw(st.integers(1, 2)), draw(st.booleans()), groups * size
    return Layer((batch, outputs, *sizes), (outputs, size, *kernel), draw(st.booleans()), attrs, named)


@settings(max_examples=40, deadline=None)
@given(lane_groups())
def test_groups_of_lanes_whose_weights_leave_the_registers_give_what_numpy_gives(layer: Layer) -> None:
    kernels = [kernel for kernel in whole_vector_kernels(layer) if isinstance(kernel, WindowKernel)]
    wide = layer.w[1] * layer.w[3] > 21 and layer.attrs["strides"][1] == 1 and layer.w[1] * layer.w[3] <= LONGEST_WRITTEN
    assert all(kernel.lane_by_lane is wide for kernel in kernels)


def test_tiles_that_reach_past_the_image_leave_out_what_is_outside() -> None:
    def row(width: int, columns: int, left: int, stride: int) -> Geometry:
        pads = ((0, 0, left), (0, 0, (columns - 1) * stride + 3 - left - width))
        return Geometry((1, 9, width), (1, 9, columns), (1, 3, 3), (1, 1, stride), (1, 1, 1), *pads)

    tile = ConvTile(2, 11, 3)
    assert cut_tiles(tile, row(224, 112, 1, 2)) == (CutTile(0, 11, 1, 23),)
    assert cut_tiles(tile, row(24, 24, 1, 1)) == (CutTile(0, 11, 1, 13), CutTile(22, 2, 0, 3))
    assert cut_tiles(tile, row(26, 24, 0, 1)) == ()
    assert cut_tiles(tile, row(1, 44, 21, 1)) is None
    assert cut_tiles(ConvTile(2, 11), row(224, 112, 1, 2)) is None
    assert cut_tiles(tile, replace(row(224, 112, 1, 2), size=(1, 9, symbol("w")))) is None


@pytest.mark.parametrize("named", [False, True])
def test_first_layers_of_known_width_read_the_image_itself(named: bool) -> None:
    content, _ = Layer((1, 3, 20, 40), (16, 3, 3, 3), True, {"strides": [2, 2], "pads": [1, 1, 1, 1]}, named).parts()
    steps = lowered_for(content, replace(here(16), has_whole_vectors=True)).steps
    kernels = {type(step.kernel) for step in steps if isinstance(step, KernelStep)}
    assert (SurroundKernel in kernels) is named


@st.composite
def single_pixels(draw: st.DrawFn) -> Layer:
    """Windows of one pixel, with strides and cropped borders, but nothing around the image."""
    rank = draw(st.sampled_from((1, 2, 2, 3)))
    groups = draw(st.sampled_from((1, 1, 1, 2)))
    inputs, outputs = draw(st.sampled_from((5, 8, 16, 17, 33, 48))), draw(st.sampled_from((8, 16, 20, 48, 70)))
    spatial = [draw(st.integers(2, 20 if rank < 3 else 5)) for _ in range(rank)]
    attrs: dict[str, Any] = {"kernel_shape": [1] * rank, "group": groups, "strides": [draw(st.integers(1, 3)) for _ in spatial]}
    attrs["pads"] = [*(draw(st.sampled_from((0, 0, 0, -1))) for _ in range(2 * rank))]
    spatial = [size + 2 for size in spatial]
    batch = draw(st.sampled_from((1, 2, 3)))
    return Layer((batch, groups * inputs, *spatial), (groups * outputs, inputs, *[1] * rank), True, attrs, draw(st.booleans()))


@settings(max_examples=30, deadline=None)
@given(single_pixels())
def test_windows_of_single_pixels_read_only_what_is_theirs(layer: Layer) -> None:
    content, feeds = layer.parts()
    program = assert_blocked_agrees(content, feeds, guard=True, atol=1e-3)
    kernels = [step.kernel for step in program.plan.steps if isinstance(step.kernel, ConvKernel)]
    assert all(kernel.single_tap for kernel in kernels if kernel.run > 1) or any(pad < 0 for pad in layer.attrs["pads"])


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("spatial", "strides", "pads"),
    [((13, 13), (2, 2), (0, 0, 0, 0)), ((14, 16), (2, 1), (0, 0, -1, 0)), ((3, 7, 29), (1, 2, 4), [0] * 6)],
)
def test_pixels_met_with_strides_may_be_copied_first(
    groups: int, spatial: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strided_pixels, "_saves_time", lambda task: True)
    attrs = {"strides": [*strides], "pads": [*pads], "group": groups}
    layer = Layer((2, 32 * groups, *spatial), (48 * groups, 32, *[1] * len(spatial)), True, attrs, False)
    content, feeds = layer.parts()
    program = assert_blocked_agrees(content, feeds, guard=True, atol=1e-3)
    (kernel,) = (step.kernel for step in program.plan.steps if isinstance(step.kernel, ConvKernel))
    assert (kernel.stride, kernel.single_tap) == (1, True)


@pytest.mark.parametrize(("lanes", "stride"), [(8, 1), (16, 2)])
def test_short_rows_are_joined_where_tiles_are_short_as_well(lanes: int, stride: int) -> None:
    content, _ = Layer((1, 256, 14, 14), (512, 256, 1, 1), True, {"strides": [2, 2]}, False).parts()
    steps = [step for step in lowered_for(content, described(lanes)).steps if isinstance(step, KernelStep)]
    (step,) = (step for step in steps if isinstance(step.kernel, ConvKernel))
    assert isinstance(step.kernel, ConvKernel)
    assert step.kernel.stride == stride
    assert step.arguments[step.kernel.arguments.position("columns")] == (49 if stride == 1 else 7)


@pytest.mark.parametrize(("channels", "side", "stride"), [(512, 28, 1), (256, 14, 2)])
def test_many_pixels_met_with_strides_are_brought_together_for_whole_vectors(channels: int, side: int, stride: int) -> None:
    attrs = {"strides": [2, 2]}
    content, _ = Layer((1, channels, side, side), (2 * channels, channels, 1, 1), False, attrs, False).parts()
    steps = [step for step in lowered_for(content, ZEN5).steps if isinstance(step, KernelStep)]
    (kernel,) = (step.kernel for step in steps if isinstance(step.kernel, ConvKernel))
    assert kernel.stride == stride


@pytest.mark.parametrize("x", [(1, 16, 0, 0), (1, 16, 7, 0), (1, 16, 0, 7), (2, 16, 3, 0), (0, 16, 1, 7)])
def test_known_images_without_pixels_have_kernels(x: tuple[int, ...]) -> None:
    content = model([helper.make_node("Conv", ["x", "w"], ["y"])], {"x": list(x)}, {"w": numbers(1, 32, 16, 1, 1)})
    assert not host_nodes(compiled(blocked(content)[0]))
    (result,) = session(content.SerializeToString()).run(None, {"x": np.zeros(x, np.float32)})
    assert result.shape == (x[0], 32, *x[2:])


def test_an_empty_batch_gives_an_empty_result() -> None:
    content, _ = Layer((1, 3, 8, 8), (4, 3, 3, 3), True, {}, True).parts()
    graph, _ = blocked(content)
    (result,) = run_native(graph, compiled(graph), {"x": np.zeros((0, 3, 8, 8), np.float32)})
    assert result.shape == (0, 4, 6, 6)


def test_nan_and_infinity_stay_where_they_belong() -> None:
    content, feeds = Layer((1, 20, 9, 9), (20, 1, 3, 3), True, {"group": 20, "pads": [1, 1, 1, 1]}, False).parts()
    feeds["x"][0, 3, 4, 4] = np.nan
    feeds["x"][0, 7, 0, 0] = np.inf
    assert_blocked_agrees(content, feeds)
    content, feeds = Layer((1, 20, 9, 9), (5, 20, 3, 3), True, {"pads": [1, 1, 1, 1]}, False).parts()
    feeds["x"][0, 3, 4, 4] = np.nan
    feeds["x"][0, 7, 0, 0] = -np.inf
    assert_blocked_agrees(content, feeds)


def _block_with_epilogue() -> tuple[Any, dict[str, Any]]:
    """A residual block with a squeezed gate, activations that need few and many operations, and two outputs."""
    constants = {
        "w0": numbers(1, 24, 3, 3, 3), "b0": numbers(2, 24), "w1": numbers(3, 24, 1, 3, 3) * 0.3,
        "w2": numbers(4, 24, 24, 1, 1) * 0.2,
        "s1": numbers(5, 8, 24, 1, 1) * 0.3, "s2": numbers(6, 24, 8, 1, 1) * 0.3, "scale": numbers(7, 24, 1, 1),
        "slope": numbers(8, 24, 1, 1), "w3": numbers(9, 40, 24, 3, 3) * 0.1, "low": np.array(-1.0, np.float32),
        "high": np.array(4.0, np.float32),
    }  # fmt: skip
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Tanh", ["a"], ["t"]),
        node("Sigmoid", ["t"], ["g"]),
        node("Mul", ["t", "g"], ["h"]),
        node("Conv", ["h", "w1"], ["d"], pads=[1, 1, 1, 1], group=24),
        node("Clip", ["d", "low", "high"], ["dc"]),
        node("GlobalAveragePool", ["dc"], ["p"]),
        node("Conv", ["p", "s1"], ["p1"]),
        node("Relu", ["p1"], ["p2"]),
        node("Conv", ["p2", "s2"], ["p3"]),
        node("HardSigmoid", ["p3"], ["p4"]),
        node("Mul", ["dc", "p4"], ["se"]),
        node("Conv", ["se", "w2"], ["q"]),
        node("Add", ["q", "h"], ["r"]),
        node("Mul", ["r", "scale"], ["rs"]),
        node("Conv", ["rs", "w3"], ["c"], strides=[2, 2], pads=[0, 0, 1, 1]),
        node("LeakyRelu", ["c"], ["y"], alpha=0.1),
    ]
    return model(nodes, {"x": ("N", 3, "H", "W")}, constants, ["y", "rs"]), {"x": numbers(0, 2, 3, 21, 18)}


def test_elementwise_nodes_run_in_the_kernel_of_their_convolution() -> None:
    content, feeds = _block_with_epilogue()
    program = assert_blocked_agrees(content, feeds, guard=True)
    labels = [step.label for step in program.plan.steps]
    assert "BlockedConv+Tanh+Sigmoid+Mul" in labels
    assert "BlockedConv+Add+Mul" in labels


def test_the_bits_do_not_depend_on_the_number_of_threads() -> None:
    content, feeds = _block_with_epilogue()
    results = []
    for workers in (1, 2, 3):
        graph, _ = blocked(content)
        results.append([each.tobytes() for each in run_native(graph, compiled(graph, workers), feeds)])
    assert results[0] == results[1] == results[2]


def test_one_program_serves_all_sizes() -> None:
    content, _ = _block_with_epilogue()
    graph, _ = blocked(content)
    program = compiled(graph)
    for height, width in ((21, 18), (8, 40), (33, 7), (21, 18)):
        feeds = {"x": numbers(height, 1, 3, height, width)}
        fresh, _ = blocked(content)
        for one, other in zip(run_native(graph, program, feeds), run_native(fresh, compiled(fresh), feeds)):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("columns", [1, 3, 7, 13, 14, 15, 28, 56, 100])
@pytest.mark.parametrize("target", [described(4), described(8), described(16), NEOVERSE], ids=lambda target: target.cpu)
def test_a_tile_fits_its_row_and_the_registers(columns: int, target: Target) -> None:
    for outputs in (1, 24, 64, 1000):
        for borders in (False, True):
            tile = choose_tile(TileTask(target=target, outputs=outputs, inputs=32, taps=9, columns=columns, borders=borders))
            assert 1 <= tile.pixels <= columns
            assert tile.vectors * tile.pixels + tile.vectors + 1 <= target.registers


def test_a_tile_leaves_few_lanes_and_pixels_over() -> None:
    narrow = TileTask(target=described(8), outputs=24, inputs=96, taps=1, columns=3136)
    assert choose_tile(narrow) == ConvTile(3, 4)  # not two blocks, and then one
    assert choose_tile(replace(narrow, outputs=32)) == ConvTile(2, 6)
    assert choose_tile(replace(narrow, outputs=512, columns=49)) == ConvTile(2, 6)
    short = TileTask(target=described(16), outputs=512, inputs=256, taps=9, columns=2, borders=True)
    assert choose_tile(short).vectors > 1  # two sums would wait for themselves
    assert choose_tile(replace(short, columns=14)).vectors == 1
    unknown = replace(short, columns=symbol("W"))
    assert choose_tile(unknown) == ConvTile(1, 8)


def test_tiles_of_whole_vectors_store_few_at_once_where_sums_are_short() -> None:
    task = TileTask(target=ZEN5, outputs=96, inputs=16, taps=1, columns=12544)
    assert choose_tile(task) == ConvTile(2, 6)  # after 24 sums the next tile would wait for a quarter of the time of this one
    assert choose_tile(replace(task, inputs=960)) == ConvTile(2, 8)


@pytest.mark.parametrize(
    ("x", "w", "attrs"),
    [
        ((1, 3, 8, 8), (4, 3, 3, 3), {}),
        ((2, 20, 8, 8), (40, 20, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((1, 48, 5, 5), (72, 16, 1, 1), {"group": 3}),
        ((1, 36, 9), (36, 1, 3), {"group": 36}),
        ((1, 16, 4, 4), (32, 16, 1, 1), {}),
    ],
)
def test_computed_weights_are_packed_by_the_program(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any]) -> None:
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], **attrs)]
    content = model(nodes, {"x": x, "w": w, "b": (w[0],)}, {})
    feeds = {"x": numbers(0, *x), "w": numbers(1, *w), "b": numbers(2, w[0])}
    assert_blocked_agrees(content, feeds, guard=True, atol=1e-3)


def test_a_default_that_can_be_replaced_is_no_constant() -> None:
    content, feeds = Layer((1, 3, 6, 6), (4, 3, 3, 3), False, {}, False).parts()
    content.graph.input.append(helper.make_tensor_value_info("w", 1, (4, 3, 3, 3)))
    feeds["w"] = numbers(7, 4, 3, 3, 3)
    graph, _ = blocked(content)
    (actual,) = run_native(graph, compiled(graph), feeds)
    np.testing.assert_allclose(actual, conv_core(feeds["x"], feeds["w"]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_half_precision_is_computed_in_single_and_rounded_once(kind: int) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    x, w, b = (numbers(seed, *shape).astype(dtype) for seed, shape in enumerate(((1, 20, 7, 7), (24, 20, 3, 3), (24,))))
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1])],
        "half",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [
            helper.make_tensor("w", kind, w.shape, w.tobytes(), raw=True),
            helper.make_tensor("b", kind, b.shape, b.tobytes(), raw=True),
        ],
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    assert_native_agrees(content, {"x": x}, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("named", [False, True])
def test_an_image_larger_than_the_cache_is_computed_in_bands(named: bool) -> None:
    target = library(None).target
    small = replace(target, caches=Caches(l2=1 << 16))
    layer = Layer((2, 24, 9, 60), (480, 24, 1, 3), True, {"strides": [1, 2], "pads": [0, 1, 0, 1]}, named)
    content, feeds = layer.parts()
    lowered = lowered_for(content, small)
    kernels = [step.kernel for step in lowered.steps if isinstance(step, KernelStep)]
    assert [kernel.banded for kernel in kernels if isinstance(kernel, ConvKernel)] == [True]
    (wanted,) = run_reference(content.SerializeToString(), feeds)
    (whole,) = run_guarded(lowered, feeds)
    np.testing.assert_allclose(whole, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("x", "w", "attrs"),
    [
        ((1, 40, 21, 19), (72, 40, 1, 1), {}),  # one row of 399 pixels
        ((3, 40, 14, 13), (40, 40, 1, 1), {}),
        ((2, 20, 23, 17), (40, 20, 3, 3), {"strides": [1, 2], "pads": [1, 1, 1, 1]}),
        ((1, 3, 45, 41), (40, 3, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((2, 40, 23, 17), (40, 1, 5, 5), {"group": 40, "pads": [2, 2, 2, 2]}),  # the last band is shorter
        ((1, 40, 3, 200), (40, 1, 3, 3), {"group": 40, "pads": [1, 1, 1, 1]}),  # fewer rows than bands
        ((1, 32, 35, 33), (1, 32, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
    ],
)
def test_bands_of_an_image_are_whole(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any]) -> None:
    content, feeds = Layer(x, w, True, attrs, False).parts()
    assert_blocked_agrees(content, feeds, guard=True, atol=1e-3)
    results = []
    for workers in (1, 2, 3, 7):
        graph, _ = blocked(content)
        results.append(run_native(graph, compiled(graph, workers), feeds)[0].tobytes())
    assert len(set(results)) == 1


def test_depthwise_transposed_convolutions_stay_in_their_lanes() -> None:
    for shape, window, attrs in (
        ((1, 20, 7, 9), (4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((2, 32, 12), (5,), {"strides": [3], "output_padding": [1]}),
        ((1, 16, 3, 5), (3, 2), {"strides": [2, 1]}),
    ):
        constants = {"w": numbers(1, shape[1], 1, *window), "b": numbers(2, shape[1])}
        nodes = [
            helper.make_node("ConvTranspose", ["x", "w", "b"], ["c"], group=shape[1], **attrs),
            helper.make_node("Relu", ["c"], ["y"]),
        ]
        content = model(nodes, {"x": shape}, constants)
        program = assert_blocked_agrees(content, {"x": numbers(0, *shape)}, guard=True)
        kinds = [step.kernel for step in program.lowered.steps if isinstance(step, KernelStep)]
        assert not any(isinstance(kernel, ConvKernel) for kernel in kinds)


@pytest.mark.parametrize("strides", [[1, 3], [3, 1], [3, 2]])
@pytest.mark.parametrize(("channels", "window"), [((36, 4), (3, 3)), ((9, 1), (3, 4)), ((16, 16), (3, 3)), ((16, 16), (4, 3))])
def test_phases_of_few_channels_and_of_single_columns_agree(
    channels: tuple[int, int], window: tuple[int, int], strides: list[int]
) -> None:
    shape = (2, channels[0], 6, 3)
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=strides, pads=[0, 1, 0, 1])]
    content = model(nodes, {"x": shape}, {"w": numbers(1, *channels, *window)})
    assert_blocked_agrees(content, {"x": numbers(0, *shape)}, guard=True)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_transposed_convolutions_with_strides_and_dilations_agree(data: st.DataObject) -> None:
    draw, rank = data.draw, data.draw(st.sampled_from((1, 2, 2, 3)))
    spatial, kernel, dilations = ([draw(st.integers(1, most)) for _ in range(rank)] for most in (5, 4, 4))
    strides = [draw(st.integers(1, 3)) for _ in range(rank)]
    groups, inputs, outputs = draw(st.sampled_from(((1, 5, 20), (1, 20, 18), (20, 1, 1), (2, 16, 16))))
    full = [(s - 1) * step + d * (k - 1) + 1 for s, step, d, k in zip(spatial, strides, dilations, kernel, strict=True)]
    pads = [draw(st.integers(0, (length - 1) // 2)) for length in full] * 2
    extra = [draw(st.integers(0, max(step, d) - 1)) for step, d in zip(strides, dilations, strict=True)]
    attrs = {"strides": strides, "dilations": dilations, "pads": pads, "output_padding": extra, "group": groups}
    shape: list[int | str] = [2, groups * inputs, *spatial]
    if draw(st.booleans()):
        shape[2:] = ["D", "H", "W"][:rank]
    nodes = [helper.make_node("ConvTranspose", ["x", "w", "b"], ["c"], **attrs), helper.make_node("Relu", ["c"], ["y"])]
    constants = {"w": numbers(1, groups * inputs, outputs, *kernel), "b": numbers(2, groups * outputs)}
    content = model(nodes, {"x": shape}, constants)
    program = assert_blocked_agrees(content, {"x": numbers(0, 2, groups * inputs, *spatial)}, guard=True)
    assert all(isinstance(step, KernelStep) for step in program.lowered.steps)


@pytest.mark.parametrize("target", convolving(), ids=lambda target: f"{target.lanes} lanes")
def test_sums_over_many_channels_of_one_pixel_are_near_those_in_64_bits(target: Target) -> None:
    outputs = 64
    x, w = 1 + numbers(0, 1, 4096, 1, 1), numbers(1, outputs, 4096, 1, 1)
    same = np.zeros((outputs, outputs, 3, 3), np.float32)  # a layer that changes nothing: both are computed in blocks
    same[range(outputs), range(outputs), 1, 1] = 1
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Conv", ["c", "same"], ["y"], pads=[1] * 4)]
    content = model(nodes, {"x": x.shape}, {"w": w, "same": same})
    (actual,) = run_guarded(lowered_for(content, target), {"x": x}, library_for(target))
    wanted = w[:, :, 0, 0].astype(np.float64) @ x[0, :, 0, 0].astype(np.float64)
    rounding = np.abs(actual[0, :, 0, 0] - wanted).mean() / np.abs(wanted).max() * 2**24
    assert rounding < 5, rounding  # one sum for each result: 5.6


@pytest.mark.parametrize("shape", [(1, 16, 5, 7), (1, 16, "H", "W")])
def test_phases_of_single_taps_are_pointwise_convolutions(shape: tuple[int | str, ...]) -> None:
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])]
    content = model(nodes, {"x": shape}, {"w": numbers(1, 16, 24, 2, 2)})
    program = assert_blocked_agrees(content, {"x": numbers(0, 1, 16, 5, 7)}, guard=True)
    kernels = [step.kernel for step in program.lowered.steps if isinstance(step, KernelStep)]
    assert [kernel.single_tap for kernel in kernels if isinstance(kernel, ConvKernel)] == [True] * 4
