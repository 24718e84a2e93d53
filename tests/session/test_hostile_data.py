"""Small models and feeds that ask for absurd sizes, endless work or impossible ranks: a clear error, at once."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from sardonyx import InferenceSession, InvalidArgument, InvalidGraph, RunOptions, RuntimeException

BIG = 1 << 50  # elements: more bytes than a process can address
REFERENCE = ["SardonyxReferenceExecutionProvider"]
IMAGE = np.ones((1, 1, 2, 2), np.float32)
X = np.array([1, 2, 3], np.float32)
Feeds = dict[str, Any]


def i64(*items: int) -> Any:
    return np.array(items, np.int64)


def scalar(value: Any, dtype: Any = np.int64) -> Any:
    return np.array(value, dtype)


def run(op: str, feeds: Feeds, given: Feeds, opset: int, outputs: int = 1, **attrs: Any) -> list[Any]:
    """One node; its inputs are the feeds and the initializers `given`, in order; an input that is None is left out."""
    named = {**feeds, **given}
    feeds = {name: value for name, value in feeds.items() if value is not None}
    node = helper.make_node(op, [name if value is not None else "" for name, value in named.items()], [], name="n", **attrs)
    node.output.extend(f"y{index}" for index in range(outputs))
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in feeds.items()
    ]
    constants = [numpy_helper.from_array(value, name) for name, value in given.items() if value is not None]
    results = [helper.make_empty_tensor_value_info(name) for name in node.output]
    graph = helper.make_graph([node], "g", inputs, results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return InferenceSession(model.SerializeToString(), providers=REFERENCE).run(None, feeds)


@pytest.mark.parametrize(
    ("op", "data", "sizes", "attrs"),
    [
        ("ConstantOfShape", {}, {"shape": i64(BIG)}, {}),
        ("Range", {}, {"start": scalar(0), "limit": scalar(BIG), "delta": scalar(1)}, {}),
        ("Expand", {"x": X[:1]}, {"shape": i64(BIG, 3)}, {}),
        ("Tile", {"x": X}, {"repeats": i64(BIG)}, {}),
        ("Pad", {"x": X}, {"pads": i64(0, BIG)}, {}),
        ("Pad", {"x": X}, {"pads": i64(BIG, 0)}, {"mode": "edge"}),
        ("Resize", {"x": IMAGE}, {"roi": None, "scales": None, "sizes": i64(1, 1, BIG, 2)}, {"mode": "linear"}),
        ("OneHot", {"x": i64(1, 2)}, {"depth": scalar(BIG), "values": X[:2]}, {}),
        ("CenterCropPad", {"x": X}, {"shape": i64(BIG)}, {}),
        ("HannWindow", {}, {"size": scalar(BIG)}, {}),
        ("DFT", {"x": np.ones((1, 4, 1), np.float32)}, {"length": scalar(BIG)}, {}),
        ("Multinomial", {"x": X[None]}, {}, {"sample_size": BIG}),
        ("RandomNormal", {}, {}, {"shape": [BIG]}),
        ("Conv", {"x": IMAGE, "w": IMAGE}, {}, {"pads": [BIG, 0, 0, 0]}),
        ("ConvTranspose", {"x": IMAGE, "w": IMAGE}, {}, {"strides": [BIG, 1]}),
        ("MaxUnpool", {"x": IMAGE, "i": i64(0, 1, 2, 3).reshape(1, 1, 2, 2)}, {"s": i64(1, 1, BIG, 4)}, {"kernel_shape": [2, 2]}),
        ("RoiAlign", {"x": IMAGE, "r": np.ones((1, 4), np.float32), "b": i64(0)}, {}, {"output_height": BIG}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("constant", [False, True], ids=["fed", "constant"])
def test_more_memory_than_there_is_names_the_node(op: str, data: Feeds, sizes: Feeds, attrs: Feeds, constant: bool) -> None:
    feeds, given = (data, sizes) if constant else ({**data, **sizes}, {})
    with pytest.raises((RuntimeException, InvalidArgument), match=rf"{op} 'n': (Unable to allocate|array is too big|Maximum)"):
        run(op, feeds, given, 19, **attrs)


@pytest.mark.parametrize(
    ("op", "feeds", "given", "attrs", "text"),
    [
        ("Range", {}, {"a": scalar(0), "b": scalar(5), "c": scalar(0)}, {}, "does not end"),
        ("Range", {}, {k: scalar(v, np.float32) for k, v in {"a": 0, "b": np.inf, "c": 1}.items()}, {}, "does not end"),
        ("ConstantOfShape", {"s": np.ones(65, np.int64)}, {}, {}, "64, found 65"),
        ("Unsqueeze", {"x": X}, {"axes": np.arange(64)}, {}, "64, found 65"),
        ("OneHot", {"x": i64(1), "d": scalar(-3), "v": X[:2]}, {}, {}, "depth is -3: expected one number that is not negative"),
        ("OneHot", {"x": i64(1)}, {"d": scalar(1e30, np.float32), "v": X[:2]}, {}, "depth is .*: expected one number"),
        ("Resize", {"x": IMAGE}, {"r": None, "s": np.array([1, 1, np.inf, 1], np.float32)}, {}, "scales must be positive"),
        ("Resize", {"x": IMAGE}, {"r": None, "s": np.array([1, 1, np.nan, 1], np.float32)}, {}, "scales must be positive"),
        ("DepthToSpace", {"x": IMAGE}, {}, {"blocksize": 0}, "blocksize is 0, expected a positive number"),
        ("LpPool", {"x": IMAGE}, {}, {"kernel_shape": [1, 1], "p": 0}, "p is 0, expected a positive number"),
        ("RoiAlign", {"x": IMAGE, "r": np.array([[0, 0, 1e9, 1]], np.float32), "b": i64(0)}, {}, {}, "set sampling_ratio"),
        ("GRU", {"x": np.ones((1, 1, 1), np.float32)}, {"w": np.ones((1, 3, 1), np.float32), "r": np.ones((1, 3, 1), np.float32)},
         {"hidden_size": BIG}, "hidden_size is .* is made for 1"),
        ("Conv", {"x": IMAGE, "w": IMAGE}, {}, {"group": 0}, "cannot be divided into 0 groups"),
        ("ConstantOfShape", {}, {"s": i64(-1)}, {}, "a dimension of the output would be -1"),
        ("CumSum", {"x": X}, {"a": scalar(7)}, {}, "axis 7 is out of range for rank 1"),
        ("Gather", {"x": X, "i": i64(7)}, {}, {}, "index 7 is out of range"),
        ("Slice", {"x": X, "s": i64(0), "e": i64(2), "a": i64(0), "t": i64(0)}, {}, {}, "the step on axis 0 is 0"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_a_sentence(op: str, feeds: Feeds, given: Feeds, attrs: Feeds, text: str) -> None:
    with pytest.raises((InvalidArgument, InvalidGraph), match=rf"{op} 'n': .*{text}"):
        run(op, feeds, given, 19, **attrs)


def _loop(value: Any) -> Any:
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Identity", ["w"], ["s"])],
        "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("go", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []), helper.make_tensor_value_info("s", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, "w")],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "c"], ["y"], name="loop", body=body)],
        "g",
        [helper.make_tensor_value_info("n", TensorProto.INT64, []), helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)
    return InferenceSession(model.SerializeToString(), providers=REFERENCE)


def test_a_loop_that_does_not_end_can_be_stopped() -> None:
    session, options = _loop(X[:0]), RunOptions()
    timer = threading.Timer(0.3, lambda: setattr(options, "terminate", True))
    timer.start()
    with pytest.raises(RuntimeError, match="terminate flag"):
        session.run(None, {"n": scalar(1 << 62), "c": scalar(True, np.bool_)}, options)
    timer.join()


@pytest.mark.parametrize("trips", [0, -5])
def test_a_loop_that_never_runs_gives_nothing(trips: int) -> None:
    [result] = _loop(X).run(None, {"n": scalar(trips), "c": scalar(True, np.bool_)})
    assert result.shape == (0, 3)
