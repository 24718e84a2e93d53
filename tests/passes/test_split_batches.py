"""Chains of layers go through a batch part by part where all of it does not fit the caches: the same bits, less memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, helper

from conv_support import blocked, compiled, model, numbers, run_guarded
from native_support import host_nodes, run_native, run_reference
from sardonyx.ir.graph import Graph, Model
from sardonyx.passes.split_batches import SplitBatches
from sardonyx.target.target import Caches
from targets import here

node = helper.make_node


def _net(batch: int | str, channels: int, kinds: list[str], side: int = 12) -> ModelProto:
    """Layers of these kinds behind each other, then a mean and a product."""
    nodes: list[Any] = []
    constants = {}
    before, shortcut = "x", ""
    for number, kind in enumerate(kinds):
        after, weights = f"v{number}", f"w{number}"
        if kind == "conv":
            constants[weights] = numbers(number, channels, channels, 3, 3) / channels
            nodes.append(node("Conv", [before, weights], [after], pads=[1] * 4))
        elif kind == "depthwise":
            constants[weights] = numbers(number, channels, 1, 3, 3)
            nodes.append(node("Conv", [before, weights], [after], pads=[1] * 4, group=channels))
        elif kind == "pool":
            nodes.append(node("MaxPool", [before], [after], kernel_shape=[3, 3], pads=[1] * 4))
        elif kind == "squeeze":
            nodes += [node("GlobalAveragePool", [before], [f"m{number}"]), node("Sigmoid", [f"m{number}"], [f"s{number}"])]
            nodes.append(node("Mul", [before, f"s{number}"], [after]))
        elif kind == "add" and shortcut:
            nodes.append(node("Add", [before, shortcut], [after]))
        else:
            nodes.append(node("Relu", [before], [after]))
        if number % 2 == 0:
            shortcut = after
        before = after
    nodes += [node("GlobalAveragePool", [before], ["g"]), node("Flatten", ["g"], ["y"])]
    return model(nodes, {"x": (batch, channels, side, side)}, constants)


def _divided(graph: Graph, room: int) -> int:
    """Divide the chains of a graph as for a machine with so small a cache; how many there were."""
    target = replace(here(), caches=Caches(1 << 10, 1 << 24, 8 * room))
    return SplitBatches(target).run(Model(graph, opset_imports={"": 19})).changes


@settings(max_examples=12, deadline=None)
@given(
    batch=st.integers(2, 5),
    channels=st.sampled_from([3, 16, 20]),
    kinds=st.lists(st.sampled_from(["conv", "depthwise", "pool", "squeeze", "add", "relu"]), min_size=3, max_size=7),
    special=st.sampled_from([None, np.nan, np.inf]),
)
def test_parts_of_a_batch_give_the_bits_of_the_whole(batch: int, channels: int, kinds: list[str], special: float | None) -> None:
    content = _net(batch, channels, ["conv", *kinds, "conv", "pool"])
    x = numbers(1, batch, channels, 12, 12)
    if special is not None:
        x[-1, 0, 3, 3] = special
    whole, _ = blocked(content)
    expected = run_native(whole, compiled(whole), {"x": x})
    parts, _ = blocked(content)
    assert _divided(parts, 1 << 12) >= 1
    program = compiled(parts)
    assert not host_nodes(program)
    np.testing.assert_array_equal(run_native(parts, program, {"x": x})[0], expected[0])
    np.testing.assert_array_equal(run_guarded(program.lowered, {"x": x})[0], expected[0])
    if special is None:
        wanted = run_reference(content.SerializeToString(), {"x": x})[0]
        np.testing.assert_allclose(expected[0], wanted, rtol=1e-3, atol=1e-3)


def test_parts_are_much_smaller_than_the_batch() -> None:
    graph, _ = blocked(_net(8, 16, ["conv", "relu", "conv", "relu", "conv", "relu"], side=32))
    assert _divided(graph, 1 << 17) == 1
    batches = {each.outputs[0].shape[0] for each in graph.nodes if each.op_type == "BlockedConv" and each.outputs[0].shape}
    assert batches == {1}


@pytest.mark.parametrize("batch", [1, "N"])
def test_single_images_and_open_batches_stay(batch: int | str) -> None:
    graph, _ = blocked(_net(batch, 16, ["conv", "relu", "conv", "conv"]))
    assert _divided(graph, 1 << 10) == 0


def test_weights_that_are_fed_are_no_images() -> None:
    """They may have as many output channels as there are images."""
    nodes = [node("Conv", ["x", "w"], ["a"], pads=[1] * 4), node("Conv", ["a", "w"], ["b"], pads=[1] * 4)]
    nodes += [node("Conv", ["b", "w"], ["y"], pads=[1] * 4)]
    graph, _ = blocked(model(nodes, {"x": (16, 16, 12, 12), "w": (16, 16, 3, 3)}, {}))
    assert _divided(graph, 1 << 10) == 0


def test_layers_with_more_weights_than_images_are_not_divided() -> None:
    """Their weights would be read once for every part."""
    graph, _ = blocked(_net(2, 128, ["conv"] * 4, side=2))
    target = replace(here(), caches=Caches(1 << 10, 1 << 12, 1 << 10))
    assert SplitBatches(target).run(Model(graph, opset_imports={"": 19})).changes == 0
