"""Half-precision convolution nets compute in float32 between their ends."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import sardonyx
from sardonyx.explanation import explain_model
from sardonyx.formats.onnx import to_bytes
from sardonyx.ir.graph import Graph, Model
from sardonyx.ir.tensor import from_numpy
from sardonyx.ir.text import parse_graph

NET = """graph main(x: {kind}[N,3,12,12]) -> (y: {kind}[N,8,6,6], b: bool[N,8,12,12]) {{
  a = Conv(x, w, c) {{pads = [1, 1, 1, 1]}} @22
  s = Sigmoid(a) @22
  m = Mul(a, s) @22
  b = Greater(m, s) @22
  k = Conv(m, v) {{pads = [1, 1, 1, 1], group = 8}} @22
  r = Add(k, m) @22
  p = MaxPool(r) {{kernel_shape = [2, 2], strides = [2, 2]}} @22
  g = GlobalAveragePool(p) @22
  y = Mul(p, g) @22
}}"""
WEIGHTS = {"w": (8, 3, 3, 3), "c": (8,), "v": (8, 1, 3, 3)}
TYPES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}


def _net(kind: str, weights: dict[str, Any]) -> Graph:
    held = "\n".join(f"  const {name}: {kind}[{','.join(map(str, shape))}] = <0 bytes>" for name, shape in WEIGHTS.items())
    graph = parse_graph(NET.format(kind=kind).replace("{\n", "{\n" + held + "\n", 1))
    for name, data in weights.items():
        graph.initializers[name].constant = from_numpy(data)
    return graph


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_results_are_those_of_float32_rounded_at_the_end(kind: str) -> None:
    rng = np.random.default_rng(7)
    weights = {name: (rng.standard_normal(shape) / 2).astype(TYPES[kind]) for name, shape in WEIGHTS.items()}
    x = rng.standard_normal((2, 3, 12, 12)).astype(TYPES[kind])
    narrow = to_bytes(Model(_net(kind, weights), 10, {"": 22}))
    wide = to_bytes(Model(_net("f32", {name: data.astype(np.float32) for name, data in weights.items()}), 10, {"": 22}))
    wanted, larger = sardonyx.InferenceSession(wide, providers=["SardonyxReferenceExecutionProvider"]).run(
        None, {"x": x.astype(np.float32)}
    )
    found, is_larger = sardonyx.InferenceSession(narrow).run(None, {"x": x})
    assert found.dtype == TYPES[kind]
    step = {"f16": 2.0**-10, "bf16": 2.0**-7}[kind]
    np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=step, atol=1e-6)
    assert np.mean(is_larger != larger) < 0.01
    assert explain_model(narrow).host_steps == 0


def test_a_widened_model_can_be_saved_and_opened_again(tmp_path: Any) -> None:
    rng = np.random.default_rng(8)
    weights = {name: (rng.standard_normal(shape) / 2).astype(np.float16) for name, shape in WEIGHTS.items()}
    x = rng.standard_normal((1, 3, 12, 12)).astype(np.float16)
    options = sardonyx.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    first = sardonyx.InferenceSession(to_bytes(Model(_net("f16", weights), 10, {"": 22})), options).run(None, {"x": x})
    again = sardonyx.InferenceSession(tmp_path / "saved.onnx").run(None, {"x": x})
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
