"""Groups that are written in another way give what they gave before, whatever their sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import sardonyx as sx
from conv_support import model as proto
from guarded_session import guarded_feeds, guarded_memory
from native_support import run_reference
from pass_support import evaluate, model_of
from sardonyx import dtypes
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.dims import symbol
from sardonyx.ir.graph import Graph, Model
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import TensorType
from sardonyx.ops.indexing.layout import fits_blocks
from sardonyx.passes.fit_groups import FitGroups
from sardonyx.passes.fold_shape_values import infer_from_inputs
from sardonyx.target.levels import generic

LANES = generic("x86-64-v4").lanes


def grouped(operator: str, shape: tuple[int | str, ...], operands: list[Array], version: int = 20, **attrs: Any) -> Model:
    """A model of one convolution of groups, with these weights (and bias)."""
    g = GraphBuilder(Graph("groups"), version)
    x = g.input("x", TensorType(dtypes.FLOAT32, tuple(dim if isinstance(dim, int) else symbol(dim) for dim in shape)))
    g.output(g.op(operator, x, *operands, **attrs), "y")
    made = model_of(g.graph)
    infer_from_inputs(made)
    return made


@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
@given(
    groups=st.integers(1, 6),
    inputs=st.integers(1, 9),
    outputs=st.integers(1, 12),
    taps=st.sampled_from((1, 3)),
    is_known=st.booleans(),
    bias=st.booleans(),
    version=st.sampled_from((11, 20)),
)
@settings(max_examples=100, deadline=None)
def test_results_stay_the_same(
    operator: str, groups: int, inputs: int, outputs: int, taps: int, is_known: bool, bias: bool, version: int
) -> None:
    rng = np.random.default_rng(groups * 100 + inputs * 10 + outputs)

    def number(*shape: int) -> Array:
        return rng.integers(-4, 5, shape).astype(np.float32)

    first, second = (groups * outputs, inputs) if operator == "Conv" else (groups * inputs, outputs)
    operands = [number(first, second, taps), number(groups * outputs)][: 1 + bias]
    attrs = {"group": groups, **({"strides": [2], "pads": [1, 0]} if taps > 1 else {})}
    shape = (2, groups * inputs, 7) if is_known else ("N", groups * inputs, "L")
    feeds = {"x": number(2, groups * inputs, 7)}
    changed = grouped(operator, shape, operands, version, **attrs)
    result = FitGroups(generic("x86-64-v4")).run(changed)
    size = 1 << (max(inputs, outputs) - 1).bit_length()
    repeats = outputs > inputs and outputs % inputs == 0 and outputs <= LANES // 2 and LANES % inputs == 0
    fills_up = size <= LANES // 2 and (is_known or size == inputs)
    is_product = operator == "Conv" and taps == 1 and is_known
    fits = fits_blocks(groups, inputs, outputs, LANES)
    assert result.modified is (not fits and (operator == "ConvTranspose" or repeats or fills_up or is_product))
    np.testing.assert_array_equal(
        evaluate(changed, feeds)[0], evaluate(grouped(operator, shape, operands, version, **attrs), feeds)[0]
    )


@pytest.mark.parametrize(
    ("inputs", "outputs"), [(2, 1), (4, 3), (3, 3), (3, 2), (6, 5), (5, 7), (1, 3), (3, 20), (12, 12), (24, 24)]
)
@pytest.mark.parametrize(("taps", "is_known"), [(1, True), (3, True), (3, False)])
def test_infinities_stay_in_their_groups_and_windows(inputs: int, outputs: int, taps: int, is_known: bool) -> None:
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((4 * outputs, inputs, taps, taps)).astype(np.float32)
    shape = (1, 4 * inputs, 9, 8) if is_known else ("N", 4 * inputs, "H", "W")
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], group=4, pads=[taps // 2] * 4)]
    content = proto(nodes, {"x": shape}, {"w": weights})
    x = rng.standard_normal((1, 4 * inputs, 9, 8)).astype(np.float32)
    x[0, inputs, 4, 4], x[0, 2 * inputs, 0, 7], x[0, 3 * inputs, 8, 0] = np.inf, -np.inf, np.nan
    (wanted,) = run_reference(content.SerializeToString(), {"x": x})
    session = sx.InferenceSession(content.SerializeToString())
    with guarded_memory() as guard:
        (found,) = session.run(None, guarded_feeds(guard, {"x": x}))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("channels", "taps", "strides", "changes"),
    [
        (24, 3, 1, True),
        (12, 3, 1, True),
        (40, 3, 1, True),
        (18, 3, 1, False),
        (24, 3, 2, False),
        (24, 5, 1, False),
        (32, 3, 1, False),
    ],
)
def test_groups_that_nearly_fill_blocks_are_filled_up(channels: int, taps: int, strides: int, changes: bool) -> None:
    rng = np.random.default_rng(0)
    weights = rng.integers(-4, 5, (2 * channels, channels, taps, taps)).astype(np.float32)
    feeds = {"x": rng.integers(-4, 5, (1, 2 * channels, 7, 6)).astype(np.float32)}
    attrs: dict[str, Any] = {"group": 2, "strides": [strides, strides], "pads": [1, 1, 1, 1]}
    changed = grouped("Conv", (1, 2 * channels, 7, 6), [weights], **attrs)
    assert FitGroups(generic("x86-64-v4")).run(changed).modified is changes
    original = grouped("Conv", (1, 2 * channels, 7, 6), [weights], **attrs)
    np.testing.assert_array_equal(evaluate(changed, feeds)[0], evaluate(original, feeds)[0])
