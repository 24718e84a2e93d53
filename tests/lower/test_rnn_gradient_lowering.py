"""LSTMs and GRUs that keep a trace, and their gradients, as native steps, against their NumPy meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from guarded import guarded
from native_support import assert_native_agrees, compile_native, host_nodes
from sardonyx.ir.tensor import Array
from sardonyx.ops import registry

DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
TOLERANCE = {"float32": 5e-5, "float64": 1e-11}
GATES = {"LSTM": 4, "GRU": 3}


def _numbers(rng: np.random.Generator, dtype: str, *shape: int, scale: float = 1.0) -> Array:
    return (rng.standard_normal(shape) * scale).astype(dtype)


def _layer(
    op: str, direction: str, steps: int, batch: int, inputs: int, hidden: int, dtype: str, has_bias: bool, has_states: bool
) -> dict[str, Array]:
    rng, count = np.random.default_rng(3), DIRECTIONS[direction]
    scale = 1.2 / max(hidden, 9) ** 0.5
    feeds = {
        "X": _numbers(rng, dtype, steps, batch, inputs),
        "W": _numbers(rng, dtype, count, GATES[op] * hidden, inputs, scale=scale),
        "R": _numbers(rng, dtype, count, GATES[op] * hidden, hidden, scale=scale),
    }
    if has_bias:
        feeds["B"] = _numbers(rng, dtype, count, 2 * GATES[op] * hidden)
    if has_states:
        for name in ("h", "c")[: GATES[op] - 2]:
            feeds[name] = _numbers(rng, dtype, count, batch, hidden)
    return feeds


def _model(op: str, names: list[str], feeds: dict[str, Array], outputs: list[str], direction: str, symbolic: bool) -> bytes:
    open_axes = {"X": ("steps", "batch"), "trace": ("steps", None, "batch"), "dY": ("steps", None, "batch")}
    states = dict.fromkeys(("h", "c", "dY_h", "dY_c"), (None, "batch"))
    infos = []
    for name, array in feeds.items():
        shape: list[Any] = list(array.shape)
        for axis, symbol in enumerate({**open_axes, **states}.get(name, ()) if symbolic else ()):
            shape[axis] = symbol or shape[axis]
        infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape))
    code = infos[0].type.tensor_type.elem_type
    while not names[-1]:
        names.pop()
    node = helper.make_node(op, names, outputs, domain="sardonyx", direction=direction)
    made = [helper.make_tensor_value_info(name, code, None) for name in outputs if name]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("sardonyx", 1)]
    content: bytes = helper.make_model(
        helper.make_graph([node], "layer", infos, made), opset_imports=opsets, ir_version=9
    ).SerializeToString()
    return content


def _check(content: bytes, feeds: dict[str, Array], dtype: str) -> None:
    assert not host_nodes(compile_native(content)[1])
    inside = {name: guarded(array) for name, array in feeds.items()}
    assert_native_agrees(content, inside, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


SIZES = (st.integers(0, 5), st.integers(0, 15), st.sampled_from([16, 32, 48]), st.booleans(), st.booleans())


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@settings(max_examples=6, deadline=None)
@given(*SIZES, st.sampled_from([("Y", "", "", "T"), ("Y", "Yh", "Yc", "T"), ("", "Yh", "", "T")]))
def test_layers_that_keep_a_trace_agree(
    op: str,
    direction: str,
    dtype: str,
    steps: int,
    batch: int,
    hidden: int,
    has_more: bool,
    symbolic: bool,
    outputs: tuple[str, ...],
) -> None:
    feeds = _layer(op, direction, steps, batch, 5, hidden, dtype, has_more, has_more)
    names = [name if name in feeds else "" for name in ("X", "W", "R", "B", "h", "c")]
    made = list(outputs) if op == "LSTM" else [*outputs[:2], outputs[3]]
    _check(_model(f"{op}Trace", names, feeds, made, direction, symbolic), feeds, dtype)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@settings(max_examples=6, deadline=None)
@given(*SIZES, st.sampled_from([("dY",), ("dY_h",), ("dY_c",), ("dY", "dY_h", "dY_c"), ("dY", "dY_c")]))
def test_gradients_agree(
    op: str,
    direction: str,
    dtype: str,
    steps: int,
    batch: int,
    hidden: int,
    symbolic: bool,
    has_cell: bool,
    given: tuple[str, ...],
) -> None:
    rng, count = np.random.default_rng(5), DIRECTIONS[direction]
    gates = rng.uniform(0.05, 0.95, (steps, count, batch, 4 * hidden)).astype(dtype)
    cells = _numbers(rng, dtype, steps, count, batch, hidden)
    every = {
        "trace": np.concatenate([gates, cells], axis=3),
        "R": _numbers(rng, dtype, count, GATES[op] * hidden, hidden, scale=1.2 / hidden**0.5),
        "dY": _numbers(rng, dtype, steps, count, batch, hidden),
        "dY_h": _numbers(rng, dtype, count, batch, hidden),
        "dY_c": _numbers(rng, dtype, count, batch, hidden),
    }
    if op == "GRU":
        del every["dY_c"]
    feeds = {name: array for name, array in every.items() if name in ("trace", "R", *given)}
    names = [name if name in feeds else "" for name in every]
    outputs = ["d", "left"] if has_cell else ["d"]
    _check(_model(f"{op}TraceGrad", names, feeds, outputs, direction, symbolic), feeds, dtype)


def test_a_trace_that_lies_in_another_order_agrees() -> None:
    rng = np.random.default_rng(5)
    turned = rng.uniform(0.05, 0.95, (5 * 16, 3, 1, 2)).astype(np.float32)
    feeds = {
        "turned": turned,
        "R": _numbers(rng, "float32", 1, 64, 16, scale=0.3),
        "dY": _numbers(rng, "float32", 3, 1, 2, 16),
    }
    nodes = [
        helper.make_node("Transpose", ["turned"], ["trace"], perm=[1, 2, 3, 0]),
        helper.make_node("LSTMTraceGrad", ["trace", "R", "dY"], ["d"], domain="sardonyx", direction="forward"),
    ]
    infos = [helper.make_tensor_value_info(name, 1, array.shape) for name, array in feeds.items()]
    graph = helper.make_graph(nodes, "turned", infos, [helper.make_tensor_value_info("d", 1, None)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("sardonyx", 1)]
    _check(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString(), feeds, "float32")


def test_a_layer_whose_units_workers_share_agrees() -> None:
    feeds = _layer("LSTM", "forward", 3, 1, 5, 256, "float32", True, True)
    names = [name if name in feeds else "" for name in ("X", "W", "R", "B", "h", "c")]
    _check(_model("LSTMTrace", names, feeds, ["Y", "Yh", "Yc", "T"], "forward", symbolic=False), feeds, "float32")


def test_the_trace_is_that_of_an_lstm() -> None:
    feeds = _layer("LSTM", "bidirectional", 3, 2, 4, 5, "float64", True, True)
    ctx = registry.EvalContext(version=1, outputs=(True,) * 4)
    definition, plain = registry.lookup("sardonyx", "LSTMTrace", 1), registry.lookup("", "LSTM", 14)
    assert definition is not None
    assert plain is not None
    values = list(feeds.values())
    y, last, cell, trace = registry.call(definition, values, {"direction": "bidirectional"}, ctx)
    attrs = {**dict.fromkeys(plain.attr_names), "direction": "bidirectional"}
    expected = registry.call(plain, [*values[:4], None, *values[4:]], attrs, ctx)
    for found, wanted in zip((y, last, cell), expected):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    enter, leave, keep, new, old = np.split(trace, 5, axis=3)
    np.testing.assert_allclose(leave * np.tanh(keep * old + enter * new), y, rtol=1e-12)
    np.testing.assert_array_equal(old[0, 0], feeds["c"][0])
    np.testing.assert_array_equal(old[-1, 1], feeds["c"][1])


def test_the_trace_is_that_of_a_gru() -> None:
    feeds = _layer("GRU", "bidirectional", 3, 2, 4, 5, "float64", True, True)
    ctx = registry.EvalContext(version=1, outputs=(True,) * 3)
    definition, plain = registry.lookup("sardonyx", "GRUTrace", 1), registry.lookup("", "GRU", 14)
    assert definition is not None
    assert plain is not None
    values = list(feeds.values())
    y, last, trace = registry.call(definition, values, {"direction": "bidirectional"}, ctx)
    attrs = {**dict.fromkeys(plain.attr_names), "direction": "bidirectional", "linear_before_reset": 1}
    expected = registry.call(plain, [*values[:4], None, *values[4:]], attrs, ctx)
    for found, wanted in zip((y, last), expected):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    update, _, new, _, old = np.split(trace, 5, axis=3)
    np.testing.assert_allclose((1 - update) * new + update * old, y, rtol=1e-12)
    np.testing.assert_array_equal(old[0, 0], feeds["h"][0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"R": (1, 64, 15)}, "R has shape"),
        ({"trace": (2, 1, 3, 64)}, "a trace of shape"),
        ({"dY": (2, 1, 4, 16)}, "dY has shape"),
        ({"dY_h": (1, 4, 16)}, "dY_h has shape"),
    ],
)
def test_shapes_that_disagree_are_refused(change: dict[str, tuple[int, ...]], message: str) -> None:
    shapes = {"trace": (2, 1, 3, 80), "R": (1, 64, 16), "dY": (2, 1, 3, 16), "dY_h": (1, 3, 16), **change}
    definition = registry.lookup("sardonyx", "LSTMTraceGrad", 1)
    assert definition is not None
    ctx = registry.EvalContext(version=1, outputs=(True, True))
    with pytest.raises(ValueError, match=message):
        registry.call(definition, [np.zeros(shape) for shape in shapes.values()], {"direction": "forward"}, ctx)
