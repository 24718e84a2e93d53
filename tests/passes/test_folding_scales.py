"""Folding with numbers that would show a forgotten factor: every channel has its own scale, and one of 1.01 would be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pass_support import evaluate, model_of
from sardonyx import dtypes
from sardonyx.compile_options import CompileOptions
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.graph import Graph, Model, Value
from sardonyx.ir.types import TensorType
from sardonyx.passes.pipeline import run_passes

CHANNELS = 5
TOLERANCE = 1e-9  # of float64; a factor of 1.01 anywhere is ten million times as much
SCALE = np.array([0.3, -1.7, 2.9, 0.11, -5.3])
SHIFT = np.array([0.7, 1.3, -2.1, 0.05, 3.3])
WEIGHTS = np.random.default_rng(0).normal(size=(CHANNELS, 4, 3, 3)) * np.array([1.0, 3.0, 0.2, 7.0, 0.5]).reshape(-1, 1, 1, 1)
MATRIX = np.random.default_rng(1).normal(size=(4, CHANNELS)) * np.array([1.0, 3.0, 0.2, 7.0, 0.5])


def _conv(g: GraphBuilder, x: Value) -> Value:
    return g.op("Conv", x, WEIGHTS, SHIFT * 2.3, pads=[1, 1, 1, 1])


def _columns(data: Any) -> Any:
    return data.reshape(1, -1, 1, 1)


Build = Callable[[GraphBuilder, Value], Value]
CASES: dict[str, tuple[tuple[int, ...], Build]] = {
    "batch norm": (
        (2, 4, 6, 5),
        lambda g, x: g.op(
            "BatchNormalization", _conv(g, x), SCALE, SHIFT, SHIFT * 0.4, np.abs(SCALE) * 1.9 + 0.3, epsilon=0.037
        ),
    ),
    "scale": ((2, 4, 6, 5), lambda g, x: g.Mul(_conv(g, x), _columns(SCALE))),
    "inverse scale": ((2, 4, 6, 5), lambda g, x: g.op("Div", _conv(g, x), _columns(SCALE))),
    "shift": ((2, 4, 6, 5), lambda g, x: g.Add(_conv(g, x), _columns(SHIFT))),
    "shift and scale": ((2, 4, 6, 5), lambda g, x: g.Mul(g.Add(_conv(g, x), _columns(SHIFT)), _columns(SCALE))),
    "scale, shift, scale": (
        (2, 4, 6, 5),
        lambda g, x: g.Mul(g.Add(g.Mul(_conv(g, x), _columns(SCALE)), _columns(SHIFT)), _columns(SCALE[::-1].copy())),
    ),
    "matrix product": ((3, 4), lambda g, x: g.Add(g.Mul(g.MatMul(x, MATRIX), SCALE), SHIFT)),
    "Gemm": (
        (3, 4),
        lambda g, x: g.Mul(g.op("Gemm", x, MATRIX, SHIFT, alpha=1.7, beta=0.6), SCALE),
    ),
    "input scale": ((3, 4), lambda g, x: g.MatMul(g.Mul(x, SCALE[:4].copy()), MATRIX)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_no_factor_is_forgotten(name: str) -> None:
    shape, build = CASES[name]

    def made() -> Model:
        g = GraphBuilder(Graph("folded"), 20)
        g.output(build(g, g.input("x", TensorType(dtypes.FLOAT64, shape))), "y")
        return model_of(g.graph)

    feeds = {"x": np.random.default_rng(2).normal(size=shape)}
    (expected,) = evaluate(made(), feeds)
    folded = made()
    report = run_passes(folded, CompileOptions(verify=True))
    assert any(pass_.startswith("Fold") for pass_ in report.changes()), name  # else the test would show nothing
    (result,) = evaluate(folded, feeds)
    np.testing.assert_allclose(result, expected, rtol=TOLERANCE, atol=TOLERANCE)
