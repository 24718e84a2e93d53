"""Winograd's convolution along one axis: any taps, dilations, sizes and channels, guarded memory, targets, NaN; its choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, helper

from conv_support import assert_blocked_agrees, blocked, compiled, lowered_for, model, numbers, run_guarded
from native_support import run_native, run_reference
from sardonyx.ir.tensor import Array
from sardonyx.kernel.conv.winograd import WinogradRowKernel
from sardonyx.lower.conv import conv_choice
from sardonyx.lower.conv.conv_task import Algorithm, Task
from sardonyx.lower.conv.winograd import is_winograd_row
from sardonyx.lower.conv.winograd_weights import pack_winograd_rows, relative_row_error
from sardonyx.program.steps import KernelStep, Lowered
from sardonyx.target.target import Target
from targets import convolving, described, library_for


@dataclass(frozen=True)
class Layer:
    """A convolution along the last axis (or, `upright`, the one before), over some lines."""

    batch: int
    inputs: int
    outputs: int
    lines: int  # 0: there is no such axis
    size: int
    taps: int
    dilation: int
    pads: tuple[int, int]
    residual: bool
    named: bool
    upright: bool = False

    def parts(self) -> tuple[ModelProto, dict[str, Array]]:
        """The model and what it is fed."""
        node = helper.make_node

        def axes(along: int, across: int) -> list[int]:
            return [along] if not self.lines else [along, across] if self.upright else [across, along]

        scale = np.float32(np.sqrt(self.taps * self.inputs))
        constants = {
            "w": numbers(1, self.outputs, self.inputs, *axes(self.taps, 1)) / scale,
            "b": numbers(2, self.outputs),
        }
        shape: tuple[int, ...] = (self.batch, self.inputs, *axes(self.size, self.lines))
        pads = [*axes(self.pads[0], 0), *axes(self.pads[1], 0)]
        nodes = [node("Conv", ["x", "w", "b"], ["c"], pads=pads, dilations=axes(self.dilation, 1))]
        feeds = {"x": numbers(0, *shape)}
        inputs: dict[str, Sequence[int | str]] = {"x": shape}
        if self.named:
            inputs["x"] = ["N", self.inputs, *(f"S{axis}" for axis in range(len(shape) - 2))]
        if self.residual:
            nodes += [node("Sigmoid", ["c"], ["s"]), node("Mul", ["c", "s"], ["m"]), node("Add", ["m", "c"], ["y"])]
        else:
            nodes.append(node("Relu", ["c"], ["y"]))
        return model(nodes, inputs, constants), feeds


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    taps, dilation = draw(st.sampled_from((3, 4, 5, 7, 11))), draw(st.sampled_from((1, 1, 2, 5)))
    pads = draw(st.sampled_from((0, 1, 3, 12))), draw(st.sampled_from((0, 1, 3)))
    least = (taps - 1) * dilation + 1 - sum(pads)
    lines = draw(st.sampled_from((0, 0, 1, 3)))
    return Layer(
        draw(st.sampled_from((1, 1, 3))),
        draw(st.sampled_from((16, 23, 40))),
        draw(st.sampled_from((5, 16, 24, 40))),
        lines,
        max(draw(st.integers(1, 40)), least),
        taps,
        dilation,
        pads,
        draw(st.booleans()),
        draw(st.booleans()),
        bool(lines) and draw(st.booleans()),
    )


def force(patch: pytest.MonkeyPatch) -> None:
    """Have all convolutions that may be computed so."""

    def estimates(task: Task) -> dict[Algorithm, int]:
        return {"winograd_rows": 1} if is_winograd_row(task.geometry) else {"direct": 1}

    patch.setattr(conv_choice, "estimates", estimates)


def count(lowered: Lowered) -> int:
    """How many steps are such convolutions."""
    return sum(isinstance(step, KernelStep) and isinstance(step.kernel, WinogradRowKernel) for step in lowered.steps)


@settings(max_examples=14, deadline=None)
@given(layers())
def test_any_layer_gives_what_it_gives_in_numpy(layer: Layer) -> None:
    content, feeds = layer.parts()
    with pytest.MonkeyPatch.context() as patch:
        force(patch)
        program = assert_blocked_agrees(content, feeds, guard=True, rtol=2e-4, atol=2e-4)
    assert count(program.lowered) == 1


@pytest.mark.parametrize("target", convolving(), ids=lambda target: f"{target.lanes} lanes")
@pytest.mark.parametrize("channels", [(40, 24), (16, 8)])
def test_every_target_agrees(target: Target, channels: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch)
    content, feeds = Layer(2, *channels, 2, 37, 7, 3, (9, 9), True, False).parts()
    lowered = lowered_for(content, target)
    assert count(lowered) == 1
    (wanted,) = run_reference(content.SerializeToString(), feeds)
    np.testing.assert_allclose(run_guarded(lowered, feeds, library_for(target))[0], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", [np.nan, -np.inf, 3e38])
@pytest.mark.parametrize("upright", [False, True])
def test_what_is_no_number_stays_in_its_windows(value: float, upright: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch)
    content, feeds = Layer(2, 20, 21, 2, 30, 5, 2, (4, 4), False, False, upright).parts()
    for place in ((0, 3, 4, 0), (1, 7, 0, 0), (1, 19, 29, 1)):
        feeds["x"][place if upright else (*place[:2], place[3], place[2])] = value
    assert count(assert_blocked_agrees(content, feeds, guard=True, rtol=1e-4).lowered) == 1


def test_the_bits_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch)
    content, feeds = Layer(2, 40, 72, 0, 400, 7, 3, (9, 9), True, False).parts()
    graph, _ = blocked(content)
    results = [run_native(graph, compiled(graph, workers), feeds)[0].tobytes() for workers in (1, 2, 3)]
    assert len(set(results)) == 1


def test_long_lines_are_computed_so_short_ones_and_differences_are_not() -> None:
    def chosen(layer: Layer, kernels: Array | None = None) -> int:
        content, _ = layer.parts()
        if kernels is not None:
            name, shape = "w", (layer.outputs, layer.inputs, layer.taps)
            content = model(
                [helper.make_node("Conv", ["x", name], ["y"])],
                {"x": (1, layer.inputs, layer.size)},
                {name: np.broadcast_to(kernels, shape).copy()},
            )
        return count(lowered_for(content, described(16)))

    long = Layer(1, 64, 64, 0, 1000, 3, 1, (1, 1), False, False)
    assert chosen(long) == 1
    assert chosen(Layer(1, 64, 64, 0, 1000, 11, 5, (25, 25), False, True)) == 1
    assert chosen(Layer(1, 64, 64, 28, 28, 7, 1, (3, 3), False, False, True)) == 1
    assert chosen(Layer(1, 64, 64, 0, 1, 3, 1, (1, 1), False, False)) == 0
    assert chosen(Layer(1, 64, 64, 0, 40, 3, 32, (32, 32), False, False)) == 0  # most of every tile would lie outside
    assert chosen(long, np.array([1, -2, 1], np.float32)) == 0
    assert relative_row_error(numbers(0, 32, 32, 1, 1, 7), 4) < 5e-6


@pytest.mark.parametrize("own", [3, 4])
def test_weights_are_packed_in_blocks_as_they_are_as_a_whole(own: int) -> None:
    w = numbers(0, 40, 7, 1, 1, 5)
    whole = pack_winograd_rows(w, 4, 16, 8, own)
    assert whole.shape == (3, ((own + 3) * 2 - 1) * 7 * 16)
    parts = np.zeros_like(whole)
    for index, (part,) in pack_winograd_rows.blocks((w,), (4, 16, 8, own), w.nbytes // 4):
        parts[index] = pack_winograd_rows(part, 4, 16, 8, own)
    np.testing.assert_array_equal(parts, whole)


@pytest.mark.parametrize("target", convolving(), ids=lambda target: f"{target.lanes} lanes")
@pytest.mark.parametrize("vectors", [1, 2])  # of output channels of a group
@pytest.mark.parametrize("value", [0.5, np.inf])
def test_groups_are_convolutions_of_their_own(
    target: Target, vectors: int, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    force(monkeypatch)
    inputs, outputs = 2 * target.lanes, vectors * target.lanes
    constants = {"w": numbers(1, 3 * outputs, inputs, 5) / np.float32(9), "b": numbers(2, 3 * outputs)}
    nodes = [helper.make_node("Conv", ["x", *constants], ["c"], pads=[2, 2], group=3), helper.make_node("Relu", ["c"], ["y"])]
    content = model(nodes, {"x": ("N", 3 * inputs, "S")}, constants)
    feeds = {"x": numbers(0, 2, 3 * inputs, 61)}
    feeds["x"][:, inputs + 1, 30] = value  # of the second group
    lowered = lowered_for(content, target)
    assert count(lowered) == 1
    (wanted,) = run_reference(content.SerializeToString(), feeds)
    (actual,) = run_guarded(lowered, feeds, library_for(target))
    np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4)
