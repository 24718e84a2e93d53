"""QLinear operators that are taken apart, and com.microsoft's own QuantizeLinear: what their definitions say, within one step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sardonyx
from sardonyx.explanation import explain_model
from sardonyx.formats.onnx import to_bytes
from sardonyx.ir.graph import Model
from sardonyx.ir.text import parse_graph

OUTPUT = {"softmax": "N,6,5", "softmax_11": "N,6,5", "mean": "N,5", "pool": "N,5,5", "where": "N,6,5", "requantize": "N,6,5"}
NODES = {
    "softmax": "y = com.microsoft::QLinearSoftmax(x, sx, zx, sy, zy) {opset = 13, axis = 1} @1",
    "softmax_11": "y = com.microsoft::QLinearSoftmax(x, sx, zx, sy, zy) {opset = 11, axis = 2} @1",
    "mean": "y = com.microsoft::QLinearReduceMean(x, sx, zx, sy, zy) {axes = [1], keepdims = 0} @1",
    "pool": "y = com.microsoft::QLinearAveragePool(x, sx, zx, sy, zy) {kernel_shape = [2], channels_last = 1} @1",
    "where": "c = Greater(p, q) @17\n  y = com.microsoft::QLinearWhere(c, x, sx, zx, x, sy, zy, sy, zy) @1",
    "requantize": "d = com.microsoft::DequantizeLinear(x, ss, zs) @1\n  y = com.microsoft::QuantizeLinear(d, sy, zy) @1",
}
INPUTS = "p: f32[5], q: f32[1], sx: f32[], sy: f32[], ss: f32[6]"


def _model(name: str, kind: str, opset: int = 17) -> bytes:
    text = f"""graph main(x: {kind}[N,6,5], zx: {kind}[], zy: {kind}[], zs: {kind}[6], {INPUTS}) -> (y: {kind}[{OUTPUT[name]}]) {{
  {NODES[name]}
}}"""
    return to_bytes(Model(parse_graph(text), 8, {"": opset, "com.microsoft": 1}))


def _feeds(rng: np.random.Generator, kind: str, batch: int) -> dict[str, Any]:
    dtype = np.dtype({"u8": "u1", "i8": "i1"}[kind])
    limits = np.iinfo(dtype)

    def draw(*shape: int) -> Any:
        return np.array(rng.integers(limits.min, limits.max + 1, shape), dtype)

    return {
        "x": draw(batch, 6, 5),
        "zx": draw(),
        "zy": draw(),
        "zs": draw(6),
        "p": rng.standard_normal(5).astype(np.float32),
        "q": np.zeros(1, np.float32),
        "sx": np.float32(rng.uniform(0.001, 0.1)),
        "sy": np.float32(rng.uniform(0.001, 0.1)),
        "ss": rng.uniform(0.001, 0.1, 6).astype(np.float32),
    }


@pytest.mark.parametrize("name", NODES)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["u8", "i8"]), st.integers(0, 3))
def test_they_mean_what_their_definitions_say(name: str, seed: int, kind: str, batch: int) -> None:
    feeds = _feeds(np.random.default_rng(seed), kind, batch)
    content = _model(name, kind)
    [found] = sardonyx.InferenceSession(content).run(None, feeds)
    reference = sardonyx.InferenceSession(content, providers=["SardonyxReferenceExecutionProvider"])
    [wanted] = reference.run(None, feeds)
    assert found.dtype == wanted.dtype
    assert np.abs(found.astype(np.int32) - wanted.astype(np.int32)).max(initial=0) <= 1


@pytest.mark.parametrize("name", NODES)
def test_they_are_native(name: str) -> None:
    assert explain_model(_model(name, "u8")).host_steps == 0
