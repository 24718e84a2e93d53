"""Means of what a depthwise convolution makes, of sums of rows it leaves: the same numbers, from any number of workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, helper

from conv_support import assert_blocked_agrees, blocked, compiled, model, numbers
from native_support import run_native
from sardonyx.kernel.conv.window import GlobalPoolKernel, WindowKernel
from sardonyx.program.steps import KernelStep


def squeezed(
    channels: int,
    group: int,
    kernel: list[int],
    shape: list[int | str],
    activation: list[Any],
    outputs: tuple[str, ...] = ("y",),
    pool: str = "GlobalAveragePool",
    **attrs: Any,
) -> ModelProto:
    """Depthwise convolution (or lane-grouped), activation, mean, and their product."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], group=channels // group, **attrs),
        *activation,
        helper.make_node(pool, ["a"], ["m"]),
        helper.make_node("Mul", ["a", "m"], ["y"]),
    ]
    return model(nodes, {"x": shape}, {"w": numbers(1, channels, group, *kernel), "b": numbers(2, channels)}, outputs)


SILU = [helper.make_node("Sigmoid", ["c"], ["s"]), helper.make_node("Mul", ["c", "s"], ["a"])]
RELU = [helper.make_node("Relu", ["c"], ["a"])]
LONG = [
    helper.make_node("Sin", ["c"], ["s"]),
    helper.make_node("Cos", ["s"], ["t"]),
    helper.make_node("Sin", ["t"], ["u"]),
    helper.make_node("Mul", ["u", "c"], ["a"]),
]  # so many operations that a tile is stored in a loop


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_means_are_those_of_numpy(data: st.DataObject) -> None:
    draw = data.draw
    rank = draw(st.sampled_from((1, 2, 2, 2, 3)))
    kernel = [draw(st.sampled_from((1, 2, 3, 5))) for _ in range(rank)]
    pads = [draw(st.integers(0, kernel[axis % rank] // 2)) for axis in range(2 * rank)]
    spatial = [max(draw(st.integers(1, 35 if rank < 3 else 7)), kernel[axis]) for axis in range(rank)]
    group = draw(st.sampled_from((1, 1, 2, 4)))
    channels = group * draw(st.integers(2, 12))
    x = [draw(st.sampled_from((1, 2))), channels, *spatial]
    shape: list[int | str] = ["N", channels, *(f"S{axis}" for axis in range(rank))] if draw(st.booleans()) else list(x)
    attrs: dict[str, Any] = {"pads": pads, "strides": [draw(st.sampled_from((1, 1, 2, 3))) for _ in range(rank)]}
    activation = draw(st.sampled_from((SILU, RELU, LONG)))
    outputs = draw(st.sampled_from((("y",), ("y", "m"), ("m", "a"))))
    content = squeezed(channels, group, kernel, shape, activation, outputs, **attrs)
    values = numbers(0, *x)
    if draw(st.booleans()):
        values[0, 0, ..., draw(st.integers(0, spatial[-1] - 1))] = draw(st.sampled_from((np.nan, np.inf)))
    assert_blocked_agrees(content, {"x": values}, guard=True)


@pytest.mark.parametrize(("pool", "has_sums"), [("GlobalAveragePool", True), ("GlobalMaxPool", False)])
def test_the_convolution_adds_up_what_a_mean_reads(pool: str, has_sums: bool) -> None:
    content = squeezed(32, 1, [3, 3], [1, 32, 20, 30], RELU, pool=pool, pads=[1, 1, 1, 1])
    program = assert_blocked_agrees(content, {"x": numbers(0, 1, 32, 20, 30)})
    kernels = [step.kernel for step in program.lowered.steps if isinstance(step, KernelStep)]
    assert [kernel.row_sums for kernel in kernels if isinstance(kernel, WindowKernel)] == [has_sums]
    assert any(isinstance(kernel, GlobalPoolKernel) for kernel in kernels)


def test_workers_do_not_change_the_bits() -> None:
    content = squeezed(40, 1, [5, 5], ["N", 40, "H", "W"], SILU, pads=[2, 2, 2, 2])
    feeds = {"x": numbers(0, 2, 40, 33, 47)}
    results = []
    for workers in (1, 2, 3):
        graph, _ = blocked(content)
        results.append(run_native(graph, compiled(graph, workers), feeds)[0])
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_results_that_are_stored_twice_are_added_up_by_the_mean() -> None:
    content = squeezed(32, 1, [3, 3], [1, 32, 9, 9], RELU, ("y", "c"), pads=[1, 1, 1, 1])
    program = assert_blocked_agrees(content, {"x": numbers(0, 1, 32, 9, 9)}, guard=True)
    kernels = [step.kernel for step in program.lowered.steps if isinstance(step, KernelStep)]
    assert not any(kernel.row_sums for kernel in kernels if isinstance(kernel, WindowKernel))
