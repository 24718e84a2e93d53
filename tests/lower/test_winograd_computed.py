"""Winograd's convolution with weights that are computed, forwards and for gradients of images: any sizes, guarded memory, NaN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, helper

from conv_support import assert_blocked_agrees, blocked, compiled, lanes, lowered_for, model, numbers, run_guarded
from native_support import run_reference
from sardonyx.ir.tensor import Array
from sardonyx.kernel.conv.conv import ConvKernel
from sardonyx.kernel.conv.winograd import WinogradKernel
from sardonyx.lower.conv import conv, conv_choice
from sardonyx.ops.indexing.layout import DOMAIN
from sardonyx.program.steps import KernelStep, Lowered
from sardonyx.target.target import Target
from targets import convolving, library_for


@dataclass(frozen=True)
class Layer:
    """A convolution whose weights are fed, and the gradient of its image."""

    batch: int
    inputs: int
    outputs: int
    size: tuple[int, ...]
    pads: tuple[int, ...]
    named: bool  # sizes are symbols
    dilations: tuple[int, ...]
    groups: int = 1
    planes: int = 0  # of the kernels; 0: images have none

    def parts(self) -> tuple[ModelProto, dict[str, Array]]:
        """The model and what it is fed."""
        kernel = (3, 3) if not self.planes else (self.planes, 3, 3)
        attrs = {"pads": self.pads, "dilations": self.dilations, "group": self.groups}
        rank = len(kernel)
        out = [
            size + before + after - (taps - 1) * step
            for size, before, after, taps, step in zip(
                self.size, self.pads[:rank], self.pads[rank:], kernel, self.dilations, strict=True
            )
        ]
        scale = np.float32(np.sqrt(9 * self.inputs))
        feeds = {
            "x": numbers(0, self.batch, self.inputs, *self.size),
            "w": numbers(1, self.outputs, self.inputs // self.groups, *kernel) / scale,
            "g": numbers(2, self.batch, self.outputs, *out),
        }
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["c"], **attrs),
            helper.make_node("Relu", ["c"], ["y"]),
            *([helper.make_node("Shape", ["x"], ["shape"])] if self.named else []),
            helper.make_node("Tanh", ["g"], ["t"]),
            helper.make_node("ConvGradData", ["t", "w", "shape"], ["d"], domain=DOMAIN, **attrs),
            helper.make_node("Add", ["d", "x"], ["dx"]),
        ]
        spatial, results = ("D", "H", "W")[-rank:], ("d", "h", "v")[-rank:]
        shapes: dict[str, Sequence[int | str]] = {name: feed.shape for name, feed in feeds.items()}
        if self.named:
            shapes |= {"x": ("N", self.inputs, *spatial), "g": ("N", self.outputs, *results)}
        constants = {} if self.named else {"shape": np.array(feeds["x"].shape)}
        content = model(nodes, shapes, constants, ("y", "dx"))
        content.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        return content, feeds


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    planes = draw(st.sampled_from((0, 0, 0, 3, 2)))
    rank = 3 if planes else 2
    dilations = tuple(draw(st.sampled_from((1, 1, 1, 2))) for _ in range(rank))
    pads = tuple(draw(st.sampled_from((0, 1, 1, 2))) for _ in range(2 * rank))
    taps = (planes, 3, 3)[-rank:]
    size = tuple(
        max(draw(st.integers(1, 14)), (taps[axis] - 1) * dilations[axis] + 1 - pads[axis] - pads[axis + rank])
        for axis in range(rank)
    )
    groups = draw(st.sampled_from((1, 1, 1, 2)))
    inputs, outputs = (
        draw(st.sampled_from((16, 32) if groups == 2 else (8, 16, 23, 40))) * (lanes() // 16 or 1) * groups for _ in range(2)
    )
    return Layer(draw(st.sampled_from((1, 3))), inputs, outputs, size, pads, draw(st.booleans()), dilations, groups, planes)


def force(monkeypatch: pytest.MonkeyPatch, fewest: int) -> None:
    """Have convolutions computed by tiles that may be, if there are so many."""
    found = conv_choice.fewest_tiles
    monkeypatch.setattr(conv, "fewest_tiles", lambda task: None if found(task) is None else fewest)


def kinds(lowered: Lowered) -> set[type]:
    """The convolutions among the kernels of a program."""
    found = {type(step.kernel) for step in lowered.steps if isinstance(step, KernelStep)}
    return found & {WinogradKernel, ConvKernel}


@settings(max_examples=25, deadline=None)
@given(layer=layers(), fewest=st.sampled_from((1, 1, 12, 10**6)))
def test_any_layer_gives_what_it_gives_in_numpy(layer: Layer, fewest: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        force(patch, fewest)
        assert_blocked_agrees(*layer.parts(), guard=True, rtol=1e-4, atol=1e-4)


def test_a_program_for_all_sizes_has_both_ways() -> None:
    layer = Layer(2, 32, 48, (7, 9), (1, 1, 1, 1), True, (1, 1))
    content, _ = layer.parts()
    with pytest.MonkeyPatch.context() as patch:
        force(patch, 12)
        program = compiled(blocked(content)[0])
    assert kinds(program.lowered) == {WinogradKernel, ConvKernel}


@pytest.mark.parametrize("fewest", [1, 10**6])
def test_known_sizes_decide_when_the_program_is_made(fewest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, fewest)
    program = assert_blocked_agrees(*Layer(2, 32, 48, (7, 9), (1, 1, 1, 1), False, (1, 1)).parts(), guard=True)
    assert kinds(program.lowered) == {WinogradKernel if fewest == 1 else ConvKernel}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("named", [False, True])
def test_what_is_no_number_stays_in_its_windows(value: float, named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, 1)
    content, feeds = Layer(2, 20, 37, (10, 11), (1, 1, 1, 1), named, (1, 1)).parts()
    for place in ((0, 3, 1, 1), (1, 7, 0, 0), (1, 19, 2, 2)):
        feeds["x"][place] = value
    assert_blocked_agrees(content, feeds, guard=True, rtol=1e-4)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers_meet_the_zeros_around_an_image(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    content, feeds = Layer(2, 20, 37, (10, 11), (1, 1, 1, 1), False, (1, 1)).parts()
    feeds["w"][1, 7, 0, 0] = feeds["w"][30, 2, 1, 1] = value
    force(monkeypatch, 1)
    actual, _ = run_guarded(compiled(blocked(content)[0]).lowered, feeds)
    np.testing.assert_allclose(actual, run_reference(content.SerializeToString(), feeds)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", convolving(), ids=lambda target: f"{target.lanes} lanes")
def test_every_target_agrees(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, 1)
    content, feeds = Layer(2, 40, 24, (9, 14), (1, 0, 2, 1), False, (1, 1)).parts()
    lowered = lowered_for(content, target)
    assert WinogradKernel in kinds(lowered)
    for actual, wanted in zip(
        run_guarded(lowered, feeds, library_for(target)), run_reference(content.SerializeToString(), feeds), strict=True
    ):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4)
