"""Groups that are written in another way give what they gave before, whatever their sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pass_support import evaluate, model_of
from sardonyx import dtypes
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.graph import Graph, Model
from sardonyx.ir.types import TensorType
from sardonyx.ops.indexing.layout import fits_blocks
from sardonyx.passes.fit_groups import FitGroups
from sardonyx.passes.fold_shape_values import infer_from_inputs
from sardonyx.target.levels import generic


@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
@given(
    groups=st.integers(1, 6),
    inputs=st.integers(1, 5),
    outputs=st.integers(1, 12),
    bias=st.booleans(),
    version=st.sampled_from((11, 20)),
)
@settings(max_examples=60, deadline=None)
def test_results_stay_the_same(operator: str, groups: int, inputs: int, outputs: int, bias: bool, version: int) -> None:
    rng = np.random.default_rng(groups * 100 + inputs * 10 + outputs)

    def number(*shape: int) -> np.ndarray:
        return rng.integers(-4, 5, shape).astype(np.float32)

    shape = (groups * outputs, inputs, 3) if operator == "Conv" else (groups * inputs, outputs, 3)
    w, b = number(*shape), number(groups * outputs)

    def made() -> Model:
        g = GraphBuilder(Graph("groups"), version)
        x = g.input("x", TensorType(dtypes.FLOAT32, (2, groups * inputs, 7)))
        g.output(g.op(operator, x, w, *([b] if bias else []), group=groups, strides=[2], pads=[1, 0]), "y")
        return model_of(g.graph)

    feeds = {"x": number(2, groups * inputs, 7)}
    changed = made()
    infer_from_inputs(changed)
    lanes = (target := generic("x86-64-v4")).lanes
    result = FitGroups(target).run(changed)
    repeats = outputs > inputs and outputs % inputs == 0 and outputs <= lanes // 2 and lanes % inputs == 0
    fits = fits_blocks(groups, inputs, outputs, lanes)
    assert result.modified is (not fits and (operator == "ConvTranspose" or repeats))
    np.testing.assert_array_equal(evaluate(changed, feeds)[0], evaluate(made(), feeds)[0])
