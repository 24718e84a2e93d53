"""Gradients of convolution kernels: any sizes in guarded memory, and sums of many products as exact as those of few."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from onnx import ModelProto, helper

from conv_support import assert_blocked_agrees, lowered_for, model, numbers, run_guarded
from sardonyx.ir.tensor import Array
from sardonyx.kernel.conv.weight_grad import DepthwiseGradKernel, WeightGradKernel
from sardonyx.ops.indexing.layout import DOMAIN
from sardonyx.program.steps import KernelStep
from sardonyx.target.target import Target
from targets import here_and_less, library_for


@dataclass(frozen=True)
class Layer:
    """A convolution, of whose kernels the gradient is computed."""

    batch: int
    inputs: int
    outputs: int
    size: tuple[int, int]
    kernel: tuple[int, int] = (3, 3)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    strides: tuple[int, int] = (1, 1)
    groups: int = 1

    def parts(self) -> tuple[ModelProto, dict[str, Array]]:
        """The model and what it is fed."""
        out = [
            (size + before + after - taps) // stride + 1
            for size, before, after, taps, stride in zip(
                self.size, self.pads[:2], self.pads[2:], self.kernel, self.strides, strict=True
            )
        ]
        feeds = {"x": numbers(0, self.batch, self.inputs, *self.size), "g": 1 + numbers(1, self.batch, self.outputs, *out)}
        node = helper.make_node(
            "ConvGradWeights", ["x", "g"], ["y"], domain=DOMAIN, kernel_shape=self.kernel, pads=self.pads, strides=self.strides,
            group=self.groups,
        )  # fmt: skip
        content = model([node], {name: feed.shape for name, feed in feeds.items()}, {})
        content.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        return content, feeds

    def exact(self, x: Array, g: Array) -> Array:
        """The gradient in 64 bits."""
        top, left, bottom, right = self.pads
        padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
        windows = sliding_window_view(padded, self.kernel, (2, 3))[:, :, :: self.strides[0], :: self.strides[1]]
        parts = zip(np.split(windows, self.groups, 1), np.split(g.astype(np.float64), self.groups, 1), strict=True)
        return np.concatenate([np.einsum("nchwrs,nohw->ocrs", window, own, optimize=True) for window, own in parts])


def error(actual: Array, wanted: Array) -> float:
    """The largest, as a part of the largest result."""
    return float(np.abs(actual - wanted).max() / np.abs(wanted).max())


@settings(max_examples=20, deadline=None)
@given(
    batch=st.sampled_from((1, 3)),
    channels=st.sampled_from(((3, 16, 1), (16, 24, 1), (32, 32, 32), (20, 5, 1))),
    size=st.sampled_from(((1, 2100), (40, 70), (5, 9), (1024, 3))),
    columns=st.integers(1, 4),
    before=st.integers(0, 2),
    stride=st.sampled_from((1, 1, 2)),
)
def test_any_layer_gives_what_it_gives_in_numpy(
    batch: int, channels: tuple[int, int, int], size: tuple[int, int], columns: int, before: int, stride: int
) -> None:
    columns = min(columns, size[1])
    layer = Layer(batch, *channels[:2], size, (1, columns), (0, before, 0, 1), (1, stride), channels[2])
    assert_blocked_agrees(*layer.parts(), guard=True, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("target", here_and_less(), ids=lambda target: f"{target.lanes} lanes")
@pytest.mark.parametrize(
    ("layer", "kernel"),
    [
        (Layer(4, 3, 8, (200, 250)), WeightGradKernel),
        (Layer(2, 16, 16, (1, 100_000), (1, 3), (0, 1, 0, 1)), WeightGradKernel),
        (Layer(60, 16, 8, (60, 57), strides=(2, 1)), WeightGradKernel),
        (Layer(4, 16, 16, (200, 250), groups=16), DepthwiseGradKernel),
        (Layer(2, 16, 16, (1, 100_000), (1, 3), (0, 1, 0, 1), groups=16), DepthwiseGradKernel),
    ],
    ids=str,
)
def test_sums_of_many_products_are_near_those_in_64_bits(target: Target, layer: Layer, kernel: type) -> None:
    content, feeds = layer.parts()
    lowered = lowered_for(content, target)
    assert kernel in {type(step.kernel) for step in lowered.steps if isinstance(step, KernelStep)}
    (actual,) = run_guarded(lowered, feeds, library_for(target))
    assert error(actual, layer.exact(feeds["x"], feeds["g"])) < 3e-6


def test_what_is_no_number_reaches_its_taps_alone() -> None:
    layer = Layer(1, 16, 16, (40, 40), pads=(0, 0, 0, 0))
    content, feeds = layer.parts()
    feeds["x"][0, 3, 0, 0] = np.nan
    assert_blocked_agrees(content, feeds, guard=True, rtol=1e-3, atol=1e-2)
