"""Windows of many columns, whose taps are a loop: depthwise convolutions, groups within a block, pools."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from conv_support import assert_blocked_agrees, model, numbers
from sardonyx.kernel.conv.window import LONGEST_WRITTEN, WindowKernel
from sardonyx.program.steps import KernelStep


def long_windows(program: Any) -> list[WindowKernel]:
    kernels = [step.kernel for step in program.lowered.steps if isinstance(step, KernelStep)]
    return [kernel for kernel in kernels if isinstance(kernel, WindowKernel) and kernel.taps > kernel.written]


@st.composite
def rows(draw: st.DrawFn) -> tuple[int, dict[str, Any], list[int | str]]:
    """The width of an image, attributes of a window over it, and how the image is declared."""
    taps = draw(st.integers(LONGEST_WRITTEN + 1, 3 * LONGEST_WRITTEN))
    dilation, stride = draw(st.sampled_from((1, 1, 2, 3))), draw(st.sampled_from((1, 1, 2, 5)))
    reach = (taps - 1) * dilation + 1
    pads = [draw(st.sampled_from((0, 1, reach // 2, reach - 1))) for _ in range(2)]
    width = draw(st.integers(max(reach - sum(pads), 1), reach + 60))
    attrs = {"kernel_shape": [taps], "dilations": [dilation], "strides": [stride], "pads": pads}
    return width, attrs, ["N", "W"] if draw(st.booleans()) else [2, width]


@settings(max_examples=25, deadline=None)
@given(rows(), st.sampled_from(((8, 1), (20, 1), (16, 2), (32, 4))))
def test_a_long_row_of_a_kernel_stays_in_its_lanes(
    row: tuple[int, dict[str, Any], list[int | str]], form: tuple[int, int]
) -> None:
    (width, attrs, (batch, columns)), (channels, group) = row, form
    constants = {"w": numbers(1, channels, group, *attrs["kernel_shape"]), "b": numbers(2, channels)}
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], group=channels // group, **attrs)]
    content = model(nodes, {"x": [batch, channels, columns]}, constants)
    program = assert_blocked_agrees(content, {"x": numbers(0, 2, channels, width)}, guard=True, atol=1e-3)
    assert long_windows(program)


@settings(max_examples=15, deadline=None)
@given(rows(), st.sampled_from(("MaxPool", "AveragePool")), st.booleans())
def test_a_long_window_of_a_pool_is_a_loop(row: tuple[int, dict[str, Any], list[int | str]], op: str, counts: bool) -> None:
    width, attrs, (batch, columns) = row
    if op == "AveragePool":
        attrs = {**attrs, "count_include_pad": int(counts)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node(op, ["c"], ["y"], **attrs)]
    content = model(nodes, {"x": [batch, 3, columns]}, {"w": numbers(1, 16, 3, 1)})
    program = assert_blocked_agrees(content, {"x": numbers(0, 2, 3, width)}, guard=True, atol=1e-3)
    assert long_windows(program)


@pytest.mark.parametrize("named", [False, True])
def test_long_rows_of_several_kernel_rows_are_added_up(named: bool) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], group=8, pads=[1, 30, 1, 30])]
    shape: list[int | str] = [1, 8, "H", "W"] if named else [1, 8, 5, 70]
    content = model(nodes, {"x": shape}, {"w": numbers(1, 8, 1, 3, 61)})
    assert long_windows(assert_blocked_agrees(content, {"x": numbers(0, 1, 8, 5, 70)}, guard=True, atol=1e-3))


def test_nan_and_infinities_reach_the_pixels_whose_windows_hold_them() -> None:
    x = numbers(0, 1, 16, 300)
    x[0, 3, 150], x[0, 5, 10] = np.nan, np.inf
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], group=16, pads=[40, 40])]
    content = model(nodes, {"x": [1, 16, 300]}, {"w": np.ones((16, 1, 81), np.float32)})
    assert_blocked_agrees(content, {"x": x}, atol=1e-3)
