"""Kernels compiled for AArch64 give the reference's answers, run by an emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

from conv_support import lowered_for, model, numbers
from emulator import Emulator
from lowering_case import model as case
from native_support import run_reference
from sardonyx.kernel.attention.attention import AttentionKernel
from sardonyx.kernel.conv.conv import ConvKernel
from sardonyx.kernel.conv.window import WindowKernel
from sardonyx.kernel.conv.winograd import WinogradKernel, WinogradRowKernel
from sardonyx.kernel.loops import LoopKernel
from sardonyx.kernel.matmul.dot import DotKernel
from sardonyx.kernel.matmul.int8 import Int8MatMulKernel, QuadPackKernel
from sardonyx.kernel.matmul.matmul import MatMulKernel
from sardonyx.kernel.rnn.rnn import RecurrentKernel
from sardonyx.program.steps import KernelStep
from sardonyx.target.target import Target
from step_runner import run_steps
from targets import CORTEX, NEOVERSE

node = helper.make_node


def check(content: ModelProto, feeds: dict[str, Any], *kernels: type[Any]) -> None:
    """The model gives the same as its reference, and has kernels of these kinds."""
    lowered = lowered_for(content, NEOVERSE)
    found = {type(step.kernel) for step in lowered.steps if isinstance(step, KernelStep)}
    assert set(kernels) <= found
    expected = run_reference(content.SerializeToString(), feeds)
    for actual, wanted in zip(run_steps(lowered, feeds, Emulator(NEOVERSE)), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=2e-6 * np.nanmax(np.abs(wanted)))


def test_elementwise_loops_with_math_functions() -> None:
    nodes = [
        node("Exp", ["x"], ["e"]),
        node("Tanh", ["e"], ["t"]),
        node("Erf", ["x"], ["f"]),
        node("Add", ["t", "f"], ["s"]),
        node("Mul", ["s", "scale"], ["y"]),
    ]
    content = model(nodes, {"x": (3, 37), "scale": (37,)}, {})
    check(content, {"x": numbers(0, 3, 37) * 4, "scale": numbers(1, 37)}, LoopKernel)


@pytest.mark.parametrize("axis", [-1, 1])
def test_softmax_and_reductions(axis: int) -> None:
    nodes = [
        node("Softmax", ["x"], ["p"], axis=axis),
        node("ReduceMax", ["x"], ["m"], axes=[axis], keepdims=1),
        node("ReduceSum", ["x"], ["s"], keepdims=1),
        node("LayerNormalization", ["x", "scale", "shift"], ["n"]),
    ]
    constants = {"scale": numbers(1, 45), "shift": numbers(2, 45)}
    content = model(nodes, {"x": (2, 9, 45)}, constants, ["p", "m", "s", "n"], opset=17)
    check(content, {"x": numbers(0, 2, 9, 45)}, LoopKernel)


@pytest.mark.parametrize(("rows", "columns"), [(13, 2), (1, 40), (13, 65), (40, 17)])
def test_matrix_products(rows: int, columns: int) -> None:
    nodes = [node("MatMul", ["a", "b"], ["c"]), node("Add", ["c", "bias"], ["d"]), node("Relu", ["d"], ["y"])]
    constants = {"b": numbers(1, 33, columns), "bias": numbers(2, columns)}
    content = model(nodes, {"a": (rows, 33)}, constants)
    check(content, {"a": numbers(0, rows, 33)}, DotKernel if columns == 2 else MatMulKernel)


@pytest.mark.parametrize("target", [NEOVERSE, CORTEX], ids=["dotprod", "plain"])
@pytest.mark.parametrize("kinds", [(np.uint8, np.int8), (np.int8, np.uint8)])
def test_products_of_bytes(target: Target, kinds: tuple[Any, Any]) -> None:
    random = np.random.default_rng(0)

    def integers(kind: Any, *shape: int) -> Any:
        return random.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape, endpoint=True).astype(kind)

    feeds = {
        "a": integers(kinds[0], 13, 35),
        "az": integers(kinds[0]),
        "b": integers(kinds[1], 35, 21),
        "bz": integers(kinds[1], 21),
    }
    content = case([node("MatMulInteger", ["a", "b", "az", "bz"], ["y"])], feeds, {"y": np.int32}, opset=21)
    lowered = lowered_for(content, target)
    found = {type(step.kernel) for step in lowered.steps if isinstance(step, KernelStep)}
    assert {Int8MatMulKernel, QuadPackKernel} <= found
    (actual,), (wanted,) = run_steps(lowered, feeds, Emulator(target)), run_reference(content.SerializeToString(), feeds)
    np.testing.assert_array_equal(actual, wanted)


def test_a_product_of_two_computed_matrices() -> None:
    nodes = [
        node("MatMul", ["a", "b"], ["c"]),
        node("Transpose", ["a"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["c", "t"], ["y"]),
    ]
    content = model(nodes, {"a": (2, 70, 12), "b": (2, 12, 12)}, {})
    check(content, {"a": numbers(0, 2, 70, 12), "b": numbers(1, 2, 12, 12)}, MatMulKernel)


def test_convolutions_by_tiles() -> None:
    constants = {"w0": numbers(1, 12, 9, 3, 3) * 0.1, "b0": numbers(2, 12), "w1": numbers(3, 9, 12, 3, 3) * 0.1}
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["a"], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["r"]),
        node("Conv", ["r", "w1"], ["b"], pads=[1, 1, 1, 1]),
        node("Add", ["b", "x"], ["y"]),
    ]
    content = model(nodes, {"x": (1, 9, 11, 13)}, constants)
    feeds = {"x": numbers(0, 1, 9, 11, 13)}
    check(content, feeds, WinogradKernel)
    feeds["x"][0, 2, 3, 3] = np.nan
    check(content, feeds, WinogradKernel)


def test_convolutions_by_tiles_of_a_line() -> None:
    constants = {"w": numbers(1, 20, 18, 6) * 0.1, "b": numbers(2, 20)}
    nodes = [node("Conv", ["x", "w", "b"], ["a"], pads=[4, 4], dilations=[2]), node("Relu", ["a"], ["y"])]
    check(model(nodes, {"x": (1, 18, 61)}, constants), {"x": numbers(0, 1, 18, 61)}, WinogradRowKernel)


def test_convolutions_and_pools() -> None:
    constants = {
        "w0": numbers(1, 20, 3, 3, 3), "w1": numbers(2, 20, 1, 3, 3), "w2": numbers(3, 22, 20, 1, 1) * 0.2, "b2": numbers(4, 22),
        "w3": numbers(5, 9, 22, 3, 3) * 0.1,
    }  # fmt: skip
    nodes = [
        node("Conv", ["x", "w0"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["a", "w1"], ["b"], group=20, pads=[1, 1, 1, 1]),
        node("Relu", ["b"], ["br"]),
        node("Conv", ["br", "w2", "b2"], ["c"]),
        node("MaxPool", ["c"], ["d"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["d", "w3"], ["e"], pads=[1, 1, 1, 1]),
        node("AveragePool", ["e"], ["f"], kernel_shape=[2, 2], pads=[1, 0, 0, 1]),
        node("Sigmoid", ["f"], ["y"]),
    ]
    check(model(nodes, {"x": (1, 3, 17, 22)}, constants), {"x": numbers(0, 1, 3, 17, 22)}, ConvKernel, WindowKernel)


def test_attention_and_recurrent_layers() -> None:
    attention = model(
        [node("Attention", ["q", "k", "v"], ["y"])], {"q": (1, 2, 7, 8), "k": (1, 2, 19, 8), "v": (1, 2, 19, 8)}, {}, opset=23
    )
    check(attention, {"q": numbers(0, 1, 2, 7, 8), "k": numbers(1, 1, 2, 19, 8), "v": numbers(2, 1, 2, 19, 8)}, AttentionKernel)
    constants = {"w": numbers(1, 1, 44, 5), "r": numbers(2, 1, 44, 11)}
    layer = model([node("LSTM", ["x", "w", "r"], ["y", "h"], hidden_size=11)], {"x": (4, 3, 5)}, constants, ["y", "h"])
    check(layer, {"x": numbers(0, 4, 3, 5)}, RecurrentKernel)


def test_an_access_behind_the_end_is_caught() -> None:
    emulator = Emulator(NEOVERSE)
    unicorn = pytest.importorskip("unicorn")
    address = emulator.put(np.zeros(3, np.float32))
    assert emulator.get(address, np.zeros(3, np.float32)).tolist() == [0, 0, 0]
    with pytest.raises(unicorn.UcError):
        emulator.get(address, np.zeros(4, np.float32))
