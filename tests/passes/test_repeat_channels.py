"""Groups with repeated channels give what they gave before, whatever their sizes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pass_support import evaluate, model_of
from sardonyx import dtypes
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.graph import Graph, Model
from sardonyx.ir.types import TensorType
from sardonyx.passes.fold_shape_values import infer_from_inputs
from sardonyx.passes.repeat_channels import RepeatChannels
from sardonyx.target.levels import generic


@given(groups=st.integers(1, 6), inputs=st.integers(1, 3), outputs=st.integers(1, 8), bias=st.booleans())
@settings(max_examples=60, deadline=None)
def test_results_stay_the_same(groups: int, inputs: int, outputs: int, bias: bool) -> None:
    rng = np.random.default_rng(groups * 100 + inputs * 10 + outputs)

    def number(*shape: int) -> np.ndarray:
        return rng.integers(-4, 5, shape).astype(np.float32)

    w, b = number(groups * outputs, inputs, 3), number(groups * outputs)

    def made() -> Model:
        g = GraphBuilder(Graph("groups"), 20)
        x = g.input("x", TensorType(dtypes.FLOAT32, (2, groups * inputs, 7)))
        g.output(g.op("Conv", x, w, *([b] if bias else []), group=groups, strides=[2], pads=[1, 0]), "y")
        return model_of(g.graph)

    feeds = {"x": number(2, groups * inputs, 7)}
    changed = made()
    infer_from_inputs(changed)
    target = generic("x86-64-v4")
    result = RepeatChannels(target).run(changed)
    small = outputs <= target.lanes // 2 and target.lanes % inputs == 0
    assert result.modified is (groups > 1 and outputs > inputs and outputs % inputs == 0 and small)
    np.testing.assert_array_equal(evaluate(changed, feeds)[0], evaluate(made(), feeds)[0])
