"""Winograd's convolution: any sizes, pads and channels, epilogues, guarded memory, targets, NaN; when it is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, helper

import sardonyx as sx
from conv_support import assert_blocked_agrees, blocked, compiled, lanes, lowered_for, model, numbers, run_guarded
from native_support import prepared, run_native, run_reference
from sardonyx import dtypes
from sardonyx.errors import InvalidArgument
from sardonyx.ir.dims import symbol
from sardonyx.ir.tensor import Array
from sardonyx.kernel.conv.winograd import TILES, WinogradKernel, tap_groups
from sardonyx.lower.conv import conv_choice
from sardonyx.lower.conv.conv_task import Algorithm, Task, Weights
from sardonyx.lower.conv.winograd import fetched_lines, is_winograd, tile_blocks
from sardonyx.lower.conv.winograd_weights import pack_winograd, relative_error
from sardonyx.passes.assign_layout import assign_layout
from sardonyx.program.steps import Buffer, KernelStep, Lowered, Storage, whole
from sardonyx.target.target import Target
from targets import NEOVERSE, convolving, described, library_for

LAPLACE = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]], np.float32)


@dataclass(frozen=True)
class Layer:
    """A convolution, its residual and activation."""

    batch: int
    inputs: int
    outputs: int
    size: tuple[int, int]
    pads: tuple[int, int, int, int]
    bias: bool
    after: str  # "", "Relu", "residual" or "Silu"
    named: bool  # sizes are symbols
    dilations: tuple[int, int] = (1, 1)
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)

    def parts(self) -> tuple[ModelProto, dict[str, Array]]:
        """The model and what it is fed."""
        node = helper.make_node
        taps = self.kernel[0] * self.kernel[1]
        constants = {"w": numbers(1, self.outputs, self.inputs, *self.kernel) / np.float32(np.sqrt(taps * self.inputs))}
        if self.bias:
            constants["b"] = numbers(2, self.outputs)
        feeds = {"x": numbers(0, self.batch, self.inputs, *self.size)}
        nodes = [node("Conv", ["x", *constants], ["c"], pads=self.pads, dilations=self.dilations, strides=self.strides)]
        if self.after == "Silu":
            nodes += [node("Sigmoid", ["c"], ["s"]), node("Mul", ["c", "s"], ["y"])]
        elif self.after == "residual":
            constants["p"] = numbers(3, self.outputs, self.inputs, 1, 1)
            nodes = [*nodes, node("Pad", ["x", "pads"], ["xp"]), node("Slice", ["xp", "from", "to", "axes"], ["xs"])]
            before = [self.pads[at] - self.dilations[at] * ((self.kernel[at] - 1) // 2) for at in (0, 1)]
            after = [self.pads[at] - self.dilations[at - 2] * (self.kernel[at - 2] // 2) for at in (2, 3)]
            constants["pads"] = np.array([0, 0, *(max(each, 0) for each in before), 0, 0, *(max(each, 0) for each in after)])
            constants["from"] = np.array([max(-each, 0) for each in before])
            constants["to"] = np.array([-max(-each, 0) or np.iinfo(np.int64).max for each in after])
            constants["axes"] = np.array([2, 3])
            nodes += [
                node("Conv", ["xs", "p"], ["r"], strides=self.strides),
                node("Add", ["c", "r"], ["a"]),
                node("Relu", ["a"], ["y"]),
            ]
        else:
            nodes.append(node(self.after or "Neg", ["c"], ["y"]))
        shape: Sequence[int | str] = ("N", self.inputs, "H", "W") if self.named else feeds["x"].shape
        return model(nodes, {"x": shape}, constants), feeds


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    pads = tuple(draw(st.sampled_from((0, 1, 1, 2, 5))) for _ in range(4))
    strides = draw(st.sampled_from(((1, 1), (1, 1), (2, 2), (3, 1))))
    down, along = (1 if stride > 1 else draw(st.sampled_from((1, 1, 1, 2, 3, 7))) for stride in strides)
    kernel = draw(st.sampled_from(((3, 3), (3, 3), (5, 5), (2, 2), (4, 4), (4, 7), (3, 2), (7, 6), (10, 3))))
    reaches = ((kernel[0] - 1) * down + 1, (kernel[1] - 1) * along + 1)
    size = tuple(max(draw(st.integers(1, 21)), reaches[axis] - pads[axis] - pads[axis + 2]) for axis in range(2))
    return Layer(
        draw(st.sampled_from((1, 1, 3))),
        draw(st.sampled_from((1, 8, 16, 23, 40))),
        draw(st.sampled_from((5, 8, 16, 24, 40))),
        (size[0], size[1]),
        (pads[0], pads[1], pads[2], pads[3]),
        draw(st.booleans()),
        draw(st.sampled_from(("", "Relu", "residual", "Silu"))),
        draw(st.booleans()),
        (down, along),
        kernel,
        strides,
    )


def force(monkeypatch: pytest.MonkeyPatch, tile: int) -> None:
    """Have all convolutions that may be computed by tiles of a size."""
    names = {side: name for name, side in conv_choice.TILES.items()}

    def estimates(task: Task) -> dict[Algorithm, int]:
        return {names[tile]: 1} if is_winograd(task.geometry) else {"direct": 1}

    monkeypatch.setattr(conv_choice, "estimates", estimates)


def tiles_of(lowered: Lowered) -> list[int]:
    """The tiles of the convolutions that are Winograd's."""
    steps = [step.kernel for step in lowered.steps if isinstance(step, KernelStep)]
    return [kernel.tile for kernel in steps if isinstance(kernel, WinogradKernel)]


@pytest.mark.parametrize("tile", TILES)
@settings(max_examples=20, deadline=None)
@given(layer=layers())
@example(
    layer=Layer(1, 1, 5, (3, 3), (0, 0, 0, 0), False, "residual", True, (1, 1), (3, 3), (1, 1))
)  # no image of one pixel fits
def test_any_layer_gives_what_it_gives_in_numpy(tile: int, layer: Layer) -> None:
    content, feeds = layer.parts()
    with pytest.MonkeyPatch.context() as patch:
        force(patch, tile)
        program = assert_blocked_agrees(content, feeds, guard=True, rtol=2e-4, atol=2e-4)
    blocked_images = layer.inputs > lanes() // 2  # images of fewer channels stay in plain order
    if blocked_images and all(taps > stride for taps, stride in zip(layer.kernel, layer.strides)):
        assert tile in tiles_of(program.lowered)


@pytest.mark.parametrize("target", convolving(), ids=lambda target: f"{target.lanes} lanes")
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("channels", [(40, 24), (16, 8)])
@pytest.mark.parametrize(("kernel", "strides"), [((3, 3), (1, 1)), ((5, 4), (2, 1)), ((3, 3), (2, 2)), ((4, 7), (1, 1))])
def test_every_target_agrees(
    target: Target,
    tile: int,
    channels: tuple[int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    force(monkeypatch, tile)
    down, along = (1 if channels[0] == 40 or stride > 1 else dilation for stride, dilation in zip(strides, (2, 3)))
    content, feeds = Layer(2, *channels, (9, 22), (1, 0, 2, 1), True, "residual", False, (down, along), kernel, strides).parts()
    lowered = lowered_for(content, target)
    assert tiles_of(lowered) == [tile]
    (wanted,) = run_reference(content.SerializeToString(), feeds)
    (actual,) = run_guarded(lowered, feeds, library_for(target))
    np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("dilations", [(1, 1), (3, 2)])
@pytest.mark.parametrize(
    ("value", "kernel"),
    [(np.nan, (3, 3)), (np.inf, (3, 3)), (-np.inf, (3, 3)), (3e38, (3, 3)), (np.nan, (4, 2)), (np.inf, (4, 2))],
)
def test_what_is_no_number_stays_in_its_windows(
    tile: int, dilations: tuple[int, int], value: float, kernel: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    force(monkeypatch, tile)
    content, feeds = Layer(2, 20, 21, (10, 11), (1, 1, 1, 1), True, "", False, dilations, kernel).parts()
    for place in ((0, 3, 4, 4), (1, 7, 0, 0), (1, 19, 9, 10)):
        feeds["x"][place] = value
    assert tile in tiles_of(assert_blocked_agrees(content, feeds, guard=True, rtol=1e-4).lowered)


@st.composite
def deep_layers(draw: st.DrawFn) -> tuple[ModelProto, dict[str, Array]]:
    """A convolution of images with planes."""
    kernel = draw(st.sampled_from(((3, 3, 3), (1, 3, 3), (2, 5, 3))))
    strides, dilations = [draw(st.sampled_from((1, 1, 2, 3))), 1, 1], [draw(st.sampled_from((1, 1, 2))) for _ in range(3)]
    pads = [draw(st.sampled_from((0, 1, 3))) for _ in range(6)]
    reaches = [(taps - 1) * step + 1 for taps, step in zip(kernel, dilations)]
    size = [max(draw(st.integers(1, 9)), reach - before - after) for reach, before, after in zip(reaches, pads[:3], pads[3:])]
    inputs, outputs = draw(st.sampled_from((16, 23))), draw(st.sampled_from((8, 24)))
    feeds = {"x": numbers(0, draw(st.sampled_from((1, 3))), inputs, *size)}
    constants = {
        "w": numbers(1, outputs, inputs, *kernel) / np.float32(np.sqrt(inputs * np.prod(kernel))),
        "b": numbers(2, outputs),
    }
    nodes = [helper.make_node("Conv", ["x", *constants], ["c"], pads=pads, dilations=dilations, strides=strides)]
    nodes.append(helper.make_node("Relu", ["c"], ["y"]))
    shape: Sequence[int | str] = ("N", inputs, "D", "H", "W") if draw(st.booleans()) else feeds["x"].shape
    if draw(st.booleans()):
        feeds["x"][0, 3, 0, 0, 0] = np.inf
    return model(nodes, {"x": shape}, constants), feeds


@pytest.mark.parametrize("tile", TILES)
@settings(max_examples=12, deadline=None)
@given(layer=deep_layers())
def test_planes_are_more_taps(tile: int, layer: tuple[ModelProto, dict[str, Array]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        force(patch, tile)
        program = assert_blocked_agrees(*layer, guard=True, rtol=2e-4, atol=2e-4)
    assert tile in tiles_of(program.lowered)


@pytest.mark.parametrize("target", convolving(), ids=lambda target: f"{target.lanes} lanes")
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("channels", [(1, 1), (1, 2), (2, 3)])  # of a group, in blocks
@pytest.mark.parametrize("value", [0.5, np.nan])
def test_groups_are_convolutions_of_their_own(
    target: Target, tile: int, channels: tuple[int, int], value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    force(monkeypatch, tile)
    inputs, outputs = (each * target.lanes for each in channels)
    constants = {"w": numbers(1, 3 * outputs, inputs, 3, 3) / np.float32(9), "b": numbers(2, 3 * outputs)}
    nodes = [helper.make_node("Conv", ["x", *constants], ["c"], pads=[1] * 4, group=3), helper.make_node("Relu", ["c"], ["y"])]
    content = model(nodes, {"x": ("N", 3 * inputs, "H", "W")}, constants)
    lowered = lowered_for(content, target)
    assert tiles_of(lowered) == [tile]
    for shape in ((2, 9, 14), (1, 30, 31), (0, 4, 4)):
        feeds = {"x": numbers(0, shape[0], 3 * inputs, *shape[1:])}
        feeds["x"][:, inputs + 1, 3, 3] = value  # of the second group
        (wanted,) = run_reference(content.SerializeToString(), feeds)
        (actual,) = run_guarded(lowered, feeds, library_for(target))
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dilation", [1, 2, 9])
def test_a_change_of_sizes_and_empty_batches_need_no_other_program(dilation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, 4)
    pads = (dilation, dilation, dilation, dilation)
    content, _ = Layer(1, 24, 24, (8, 8), pads, True, "Relu", True, (dilation, dilation)).parts()
    graph, _ = blocked(content)
    program = compiled(graph)
    for shape in ((1, 24, 8, 8), (3, 24, 5, 17), (0, 24, 4, 4), (1, 24, 1, 1), (2, 24, 40, 3)):
        feeds = {"x": numbers(5, *shape)}
        (wanted,) = run_reference(content.SerializeToString(), feeds)
        np.testing.assert_allclose(run_native(graph, program, feeds)[0], wanted, rtol=1e-4, atol=1e-4)


def test_the_bits_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, 4)
    content, feeds = Layer(2, 40, 72, (37, 29), (1, 1, 1, 1), True, "Silu", False).parts()
    graph, _ = blocked(content)
    results = [run_native(graph, compiled(graph, workers), feeds)[0].tobytes() for workers in (1, 2, 3)]
    assert len(set(results)) == 1


# Choice


def _chosen(channels: int, size: int, *, kernel: Array | None = None, target: Target | None = None, **attrs: Any) -> list[int]:
    """The tiles of a layer of as many outputs as inputs; [] if it is computed directly."""
    weights = numbers(1, channels, channels, 3, 3) if kernel is None else numbers(1, channels, channels, 1, 1) * kernel
    attrs = {"pads": [1, 1, 1, 1], **attrs}
    content = model([helper.make_node("Conv", ["x", "w"], ["y"], **attrs)], {"x": (1, channels, size, size)}, {"w": weights})
    return tiles_of(lowered_for(content, target or described(16)))


@pytest.mark.parametrize("target", [described(8), described(16)], ids=lambda target: f"{target.lanes} lanes")
def test_large_tiles_unless_the_weights_would_have_to_be_fetched_from_memory(target: Target) -> None:
    assert _chosen(64, 56, target=target) == [4]
    assert _chosen(128, 28, target=target) == [4]
    assert _chosen(512, 7, target=target) == [2]


def test_slower_machines_wait_less_for_weights() -> None:
    assert _chosen(512, 7, target=NEOVERSE) == [4]


def test_large_kernels_and_planes_are_taken_apart() -> None:
    for kernel, planes, stride in (
        ((5, 5), (), 1),
        ((7, 7), (), 1),
        ((2, 2), (), 1),
        ((3, 3, 3), (8,), 1),
        ((5, 5), (), 2),
        ((7, 7), (), 2),
    ):
        node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[stride] * len(kernel))
        content = model([node], {"x": (1, 64, *planes, 60, 60)}, {"w": numbers(1, 64, 64, *kernel)})
        assert tiles_of(lowered_for(content, described(16))) == [4], kernel


def test_kernels_that_are_taken_apart_for_a_small_gain_are_computed_directly() -> None:
    for size, stride in ((5, 4), (4, 4), (4, 3)):
        node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[stride] * 2)
        content = model([node], {"x": (1, 64, 60, 60)}, {"w": numbers(1, 64, 64, size, size)})
        assert not tiles_of(lowered_for(content, described(16))), size


def test_kernels_of_very_many_taps_are_computed_directly() -> None:
    content = model([helper.make_node("Conv", ["x", "w"], ["y"])], {"x": (1, 16, 40, 40)}, {"w": numbers(1, 16, 16, 21, 21)})
    assert not tiles_of(lowered_for(content, described(16)))


def test_one_pixel_and_strides_of_small_images_are_computed_directly() -> None:
    assert _chosen(32, 32) == [4]
    assert _chosen(32, 32, strides=[2, 2]) == [4]
    assert _chosen(128, 28, strides=[2, 2]) == [2]
    assert not _chosen(256, 14, strides=[2, 2])
    assert not _chosen(32, 1)


def test_dilations_leave_the_choice_to_the_waste_of_tiles() -> None:
    """With dilation 18 on 33 pixels two results of a tile lie inside."""
    assert _chosen(256, 33, dilations=[2, 2], pads=[2] * 4) == [4]
    assert _chosen(256, 33, dilations=[18, 18], pads=[18] * 4) == [2]
    assert not _chosen(256, 33, dilations=[500, 500], pads=[500] * 4)


@pytest.mark.parametrize(("dilation", "tiles"), [(1, [4]), (2, [4]), (18, [])])
def test_far_reaching_tiles_are_not_chosen_for_images_of_unknown_size(dilation: int, tiles: list[int]) -> None:
    node = helper.make_node
    nodes = [node("MaxPool", ["x"], ["p"], kernel_shape=[8, 8], strides=[8, 8])]
    nodes.append(node("Conv", ["p", "w"], ["y"], dilations=[dilation] * 2, pads=[dilation] * 4))
    content = model(nodes, {"x": ("N", 64, "H", "W")}, {"w": numbers(1, 64, 64, 3, 3)})
    assert tiles_of(lowered_for(content, described(16))) == tiles


def test_kernels_that_take_differences_are_computed_directly() -> None:
    """Of a slope, second differences leave nothing but rounding errors."""
    assert not _chosen(32, 32, kernel=LAPLACE)
    assert relative_error(numbers(1, 32, 32, 1, 1, 1) * LAPLACE, 2) > 1e-4
    assert relative_error(numbers(1, 32, 32, 1, 3, 3), 4) < 1e-5
    assert relative_error(numbers(1, 32, 32, 1, 3, 3), 2) < 1e-6


def test_weights_that_are_no_numbers_are_computed_directly() -> None:
    assert not _chosen(32, 32, kernel=np.full((3, 3), np.inf, np.float32))


def test_layers_share_the_error_a_model_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_choice, "relative_error", lambda w, tile, strides: 6e-5)
    node = helper.make_node
    constants = {f"w{number}": numbers(number, 32, 32, 3, 3) for number in range(4)}
    for count in (1, 2, 4):
        names = ["x", *(f"v{number}" for number in range(count - 1)), "y"]
        nodes = [node("Conv", [names[at], f"w{at}"], [names[at + 1]], pads=[1] * 4) for at in range(count)]
        content = model(nodes, {"x": (1, 32, 32, 32)}, {f"w{at}": constants[f"w{at}"] for at in range(count)})
        assert bool(tiles_of(lowered_for(content, described(16)))) == (count < 4)


def test_a_session_can_forbid_it() -> None:
    content, feeds = Layer(1, 32, 32, (24, 24), (1, 1, 1, 1), True, "Relu", False).parts()
    wanted = run_reference(content.SerializeToString(), feeds)[0].astype(np.float64)
    errors = []
    for exact in ("0", "1"):
        options = sx.SessionOptions()
        options.add_session_config_entry("session.exact_convolution", exact)
        (result,) = sx.InferenceSession(content.SerializeToString(), options).run(None, feeds)
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
        errors.append(result)
    assert errors[0].tobytes() != errors[1].tobytes()
    graph, _ = blocked(content)
    assert "exact" not in next(node for node in graph.nodes if node.op_type == "BlockedConv").attrs
    plain = prepared(content.SerializeToString())
    assign_layout(plain, described(16), exact=True)
    assert next(node for node in plain.nodes if node.op_type == "BlockedConv").attr("exact") == 1


def test_another_value_of_the_option_is_an_error() -> None:
    content, _ = Layer(1, 32, 32, (24, 24), (1, 1, 1, 1), True, "Relu", False).parts()
    options = sx.SessionOptions()
    options.add_session_config_entry("session.exact_convolution", "yes")
    with pytest.raises(InvalidArgument, match=r"session.exact_convolution is 'yes': expected 0 or 1"):
        sx.InferenceSession(content.SerializeToString(), options)


# Tiles and weights


def channels(count: int) -> Weights:
    """Weights of as many input as output channels."""
    kernels = Buffer(Storage.CONSTANT, dtypes.FLOAT32, count * count * 9)
    return Weights(whole(kernels, (count, count, 1, 3, 3)), None, 1, count, count)


def test_tiles_fill_rows_and_blocks() -> None:
    target = described(16)
    for tiles in (1, 4, 16, 49, 196, 4096):
        divided = tile_blocks(tiles, 36, channels(64), target)
        assert divided.tiles % divided.rows == 0
        assert divided.last_rows == tiles % divided.rows
        assert 36 * divided.tiles * 64 * 4 <= target.caches.l2
    assert tile_blocks(16, 36, channels(256), target).rows == 8
    assert tile_blocks(196, 36, channels(64), target).rows == 14
    unknown = tile_blocks(symbol("tiles"), 36, channels(64), target)
    assert unknown.rows == 8
    assert unknown.tiles % unknown.rows == 0


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("tiles", [1, 4, 16, 28, 196])
def test_groups_of_tiles_share_the_weights_that_they_fetch(lanes: int, tiles: int) -> None:
    target = described(lanes)
    divided = tile_blocks(tiles, 36, channels(64), target)
    block = min(tiles, divided.tiles)
    width = divided.vectors * lanes
    groups = -(-block // divided.rows)
    together = groups * fetched_lines(block, divided.rows, width, target) * 16  # floats, beside a block of input channels
    assert lanes * width <= together < lanes * width + groups * 16


@pytest.mark.parametrize(("kernel", "groups"), [((1, 3, 3), 1), ((2, 5, 3), 4)])
def test_weights_are_packed_in_blocks_as_they_are_as_a_whole(kernel: tuple[int, int, int], groups: int) -> None:
    w = numbers(0, 40, 7, *kernel)
    whole = pack_winograd(w, 4, 16, 8, (1, 1))
    elements = tap_groups(kernel, (1, 1), 4).products
    assert elements == {1: 36, 4: 2 * 11 * 6}[groups]
    assert whole.shape == (3, elements * 7 * 16)
    parts = np.zeros_like(whole)
    for index, (part,) in pack_winograd.blocks((w,), (4, 16, 8, (1, 1)), w.nbytes // 4):
        parts[index] = pack_winograd(part, 4, 16, 8, (1, 1))
    np.testing.assert_array_equal(parts, whole)
    last = whole[2].reshape(-1)
    assert not last[elements * 7 * 8 :].any()


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("kernel", [(4, 4), (5, 3)])
def test_the_phases_of_transposed_convolutions_are_tiled(
    tile: int, kernel: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    force(monkeypatch, tile)
    constants = {"w": numbers(1, 40, 24, *kernel) / np.float32(20), "b": numbers(2, 24)}
    nodes = [helper.make_node("ConvTranspose", ["r", *constants], ["c"], strides=[2, 1], pads=[1, 0, 1, 1])]
    nodes = [helper.make_node("Relu", ["x"], ["r"]), *nodes, helper.make_node("Relu", ["c"], ["y"])]
    content = model(nodes, {"x": ("N", 40, "H", "W")}, constants)
    lowered = assert_blocked_agrees(content, {"x": numbers(0, 2, 40, 7, 11)}, guard=True, rtol=2e-4, atol=2e-4).lowered
    assert tiles_of(lowered) == [tile] * 2
