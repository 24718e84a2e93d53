"""Constants derived from constants are told apart by what they are made of, not by names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

import sardonyx
from native_support import assert_native_agrees, compile_native
from sardonyx.ir.tensor import Array
from sardonyx.program.constants import Transform, exact
from sardonyx.program.steps import Storage
from session_agreement import REFERENCE, session

F32 = np.float32
LEVELS = [sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL, sardonyx.GraphOptimizationLevel.ORT_ENABLE_ALL]


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def info(name: str, array: Any) -> Any:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype), np.shape(array))


def made(nodes: Sequence[NodeProto], feeds: dict[str, Array], constants: dict[str, Array], outputs: dict[str, int]) -> bytes:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [info(name, array) for name, array in feeds.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9).SerializeToString()
    return content


def branch(name: str, node: NodeProto, constants: dict[str, Array]) -> GraphProto:
    result = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)
    return helper.make_graph(
        [node], name, [], [result], [numpy_helper.from_array(array, key) for key, array in constants.items()]
    )


# operator, its inputs, attributes, shapes of x and of the constants
OPERATORS: list[tuple[str, list[str], dict[str, Any], tuple[int, ...], dict[str, tuple[int, ...]]]] = [
    ("MatMul", ["x", "W"], {}, (5, 8), {"W": (8, 40)}),
    ("Gemm", ["x", "W", "B"], {}, (5, 8), {"W": (8, 2), "B": (2,)}),
    ("Gemm", ["x", "W"], {"transB": 1}, (5, 8), {"W": (40, 8)}),
    ("Conv", ["x", "W", "B"], {}, (1, 16, 6, 6), {"W": (16, 16, 3, 3), "B": (16,)}),
    ("Conv", ["x", "W", "B"], {"group": 16}, (1, 16, 6, 6), {"W": (16, 1, 3, 3), "B": (16,)}),
    ("Conv", ["x", "W"], {}, (1, 3, 6, 6), {"W": (16, 3, 3, 3)}),
    ("Conv", ["x", "W"], {}, (1, 32, 6, 6), {"W": (1, 32, 3, 3)}),
    ("ConvTranspose", ["x", "W", "B"], {"strides": [2, 2]}, (1, 16, 6, 6), {"W": (16, 16, 3, 3), "B": (16,)}),
    ("GRU", ["x", "W", "R", "B"], {"hidden_size": 7}, (4, 2, 5), {"W": (1, 21, 5), "R": (1, 21, 7), "B": (1, 42)}),
    ("LSTM", ["x", "W", "R"], {"hidden_size": 7}, (4, 2, 5), {"W": (1, 28, 5), "R": (1, 28, 7)}),
]
NAMES = [f"{name}-{number}" for number, (name, *_) in enumerate(OPERATORS)]


def weights(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, Array]:
    return {name: random(*shape, seed=seed + number) * F32(0.3) for number, (name, shape) in enumerate(shapes.items())}


def assert_sessions_agree(content: bytes, *all_feeds: dict[str, Any]) -> None:
    reference = session(content, providers=REFERENCE)
    for level in LEVELS:
        opened = session(content, level=level)
        for feeds in all_feeds:
            for mine, other in zip(opened.run(None, feeds), reference.run(None, feeds), strict=True):
                np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", OPERATORS, ids=NAMES)
def test_sides_of_an_if_have_weights_of_their_own(case: Any) -> None:
    name, inputs, attrs, shape, shapes = case
    sides = [
        branch(side, helper.make_node(name, inputs, ["y"], **attrs), weights(shapes, seed))
        for side, seed in (("then", 10), ("else", 20))
    ]
    nodes = [helper.make_node("If", ["c"], ["z"], then_branch=sides[0], else_branch=sides[1])]
    feeds: list[dict[str, Any]] = [{"c": np.array(side), "x": random(*shape)} for side in (True, False)]
    assert_sessions_agree(made(nodes, feeds[0], {}, {"z": TensorProto.FLOAT}), *feeds)


@pytest.mark.parametrize("case", OPERATORS, ids=NAMES)
def test_a_body_has_weights_of_its_own_beside_those_around_it(case: Any) -> None:
    name, inputs, attrs, shape, shapes = case
    body = branch("body", helper.make_node(name, inputs, ["y"], **attrs), weights(shapes, 10))
    body.node.append(helper.make_node("Identity", ["more"], ["again"]))
    del body.output[:]
    body.input.extend([info("turn", np.int64(0)), info("more", np.bool_(True))])
    body.output.extend([helper.make_tensor_value_info("again", TensorProto.BOOL, []), info("y", np.float32(0))])
    body.output[1].type.tensor_type.ClearField("shape")
    nodes = [
        helper.make_node(name, inputs, ["outer"], **attrs),
        helper.make_node("Loop", ["count", ""], ["stacked"], body=body),
    ]
    constants = {**weights(shapes, 20), "count": np.array(2, np.int64)}
    feeds = {"x": random(*shape)}
    content = made(nodes, feeds, constants, {"outer": TensorProto.FLOAT, "stacked": TensorProto.FLOAT})
    assert_sessions_agree(content, feeds)


def test_one_constant_with_zero_points_of_its_rows_and_of_its_columns() -> None:
    square, origins = np.arange(36, dtype=np.uint8).reshape(6, 6), np.arange(6, dtype=np.uint8)
    nodes = [
        helper.make_node("MatMulInteger", ["w", "x", "p"], ["first"]),
        helper.make_node("MatMulInteger", ["x", "w", "", "p"], ["second"]),
        helper.make_node("MatMulInteger", ["w", "x"], ["third"]),
    ]
    feeds = {"x": np.arange(36, dtype=np.uint8).reshape(6, 6).T.copy()}
    outputs = dict.fromkeys(("first", "second", "third"), TensorProto.INT32)
    assert_native_agrees(made(nodes, feeds, {"w": square, "p": origins}, outputs), feeds)


def test_transposed_convolutions_that_share_kernels() -> None:
    nodes = [
        helper.make_node("ConvTranspose", ["x", "w", "b"], ["first"], strides=[2, 2]),
        helper.make_node("ConvTranspose", ["x", "w", "d"], ["second"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("ConvTranspose", ["x", "w"], ["third"], strides=[2, 2], pads=[1, 0, 0, 1]),
    ]
    constants = {"w": random(16, 16, 3, 3, seed=1), "b": random(16, seed=2), "d": random(16, seed=3)}
    feeds = {"x": random(1, 16, 5, 5)}
    outputs = dict.fromkeys(("first", "second", "third"), TensorProto.FLOAT)
    assert_sessions_agree(made(nodes, feeds, constants, outputs), feeds)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crops_of_one_size_that_lie_elsewhere(mode: str) -> None:
    nodes, constants = [], {"sizes": np.array([1, 1, 6, 6], np.int64)}
    for number, low in enumerate((0.0, 0.25)):
        constants[f"roi{number}"] = np.array([0, 0, low, low, 1, 1, low + 0.5, low + 0.5], F32)
        attrs = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize"}
        nodes.append(helper.make_node("Resize", ["x", f"roi{number}", "", "sizes"], [f"y{number}"], **attrs))
    feeds = {"x": random(1, 1, 9, 9)}
    assert_sessions_agree(made(nodes, feeds, constants, dict.fromkeys(("y0", "y1"), TensorProto.FLOAT)), feeds)


def test_zeros_of_both_signs_are_different_constants() -> None:
    nodes = []
    for number, zero in enumerate((0.0, -0.0)):
        value = numpy_helper.from_array(np.array([zero], F32))
        nodes.append(helper.make_node("ConstantOfShape", ["s"], [f"z{number}"], value=value))
        nodes.append(helper.make_node("Div", ["x", f"z{number}"], [f"y{number}"]))
    feeds = {"x": np.ones(3, F32)}
    content = made(nodes, feeds, {"s": np.array([3], np.int64)}, dict.fromkeys(("y0", "y1"), TensorProto.FLOAT))
    for level in LEVELS:
        positive, negative = session(content, level=level).run(None, feeds)
        assert positive.tolist() == [np.inf] * 3
        assert negative.tolist() == [-np.inf] * 3


def test_one_constant_packed_in_one_way_is_one_constant() -> None:
    nodes = [helper.make_node("MatMul", [name, "w"], [f"y{name}"]) for name in ("a", "b")]
    feeds = {"a": random(12, 8), "b": random(24, 8)}
    content = made(nodes, feeds, {"w": random(8, 40)}, dict.fromkeys(("ya", "yb"), TensorProto.FLOAT))
    _, compiled = compile_native(content)
    assert len([buffer for buffer in compiled.plan.buffers if buffer.storage is Storage.CONSTANT]) == 1


def test_a_transform_takes_nothing_from_around_it() -> None:
    width = 3

    def padded(data: Array) -> Array:
        return np.pad(data, width)

    with pytest.raises(TypeError, match="depends on more than its arguments"):
        Transform("padded", 1, padded)
    with pytest.raises(TypeError, match="depends on more than its arguments"):
        Transform("zeros", 1, np.zeros)


def test_parameters_are_equal_only_if_they_are_identical() -> None:
    different = [0, 0.0, -0.0, False, np.float32(0), np.float64(0), "0", (0,), ((0,),), None]
    assert len({exact(each) for each in different}) == len(different)
    with pytest.raises(TypeError, match="cannot be a parameter"):
        exact([1])
