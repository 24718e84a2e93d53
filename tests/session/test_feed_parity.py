"""Any array fed to any input: Sardonyx takes and refuses what onnxruntime takes and refuses."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnxruntime
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import helper

import sardonyx

DTYPES = ("float32", "float64", "float16", "int64", "int32", "uint8", "bool", "str")
SHAPES: tuple[Any, ...] = ([], [2], ["n"], [2, 3], ["n", 3], ["n", "m"], ["n", "n"], [None, 2], None)


@cache
def _sessions(dtype: str, number: int) -> tuple[Any, Any]:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(object if dtype == "str" else dtype))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])], "g", [info("x", kind, SHAPES[number])], [info("y", kind, SHAPES[number])]
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    return onnxruntime.InferenceSession(content), sardonyx.InferenceSession(content)


def _outcome(session: Any, feed: Any) -> Any:
    try:
        return session.run(None, feed)[0]
    except Exception as error:  # compared by name below
        return type(error).__name__, str(error).partition("INVALID_ARGUMENT : ")[2].partition(" for input: x")[0]


@settings(max_examples=300, deadline=None)
@given(
    declared=st.sampled_from(DTYPES),
    shape=st.integers(0, len(SHAPES) - 1),
    fed=st.sampled_from(DTYPES),
    sizes=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    name=st.sampled_from(["x", "x", "x", "q"]),
)
def test_both_take_and_refuse_the_same(declared: str, shape: int, fed: str, sizes: tuple[int, ...], name: str) -> None:
    theirs, ours = _sessions(declared, shape)
    array = np.arange(int(np.prod(sizes))).reshape(sizes).astype(fed)
    feed = {"x": array, name: array}
    expected, found = _outcome(theirs, feed), _outcome(ours, feed)
    if isinstance(expected, tuple):
        assert isinstance(found, tuple)
        assert found[0] == expected[0]
        assert found[1].split("\n  hint")[0] == expected[1].split("\n  hint")[0]
    else:
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
