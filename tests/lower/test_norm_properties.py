"""Normalisations of any shape, of hard numbers, natively against their NumPy meaning while all memory is guarded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import NodeProto, helper

from guarded_session import guarded_feeds, guarded_memory
from lowering_case import BF16, F16, F32, F64, TOLERANCE, Array, model
from native_support import compile_native, run_native
from property_support import SEEDS, assert_guarded_agrees, shapes

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

DTYPES = st.sampled_from((F32, F64, F16, BF16))
KINDS = st.sampled_from(("plain", "plain", "far", "equal", "special", "tiny"))
MICROSOFT = "com.microsoft"


def numbers(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int, kind: str = "plain") -> Array:
    """Numbers around 1; far from 0 for their spread; all equal; with NaN and infinities among them; or denormal."""
    random = np.random.default_rng(seed)
    found = np.asarray(random.standard_normal(shape) * 2 + 1)
    if kind == "far":  # integers and halves: the mean of large numbers has no rounding that tells ways of summing apart
        found = np.asarray(random.integers(0, 2, shape) * 2.0 + 64)
    elif kind == "equal":
        found = np.full(shape, 3.0)
    elif kind == "special" and found.size:
        places = random.integers(0, found.size, 3)
        found.reshape(-1)[places] = random.choice([np.nan, np.inf, -np.inf, 0.0], 3)
    elif kind == "tiny":
        found = np.asarray(found * (1e-310 if dtype == F64 else 1e-40 if dtype != F16 else 1e-7))
    return found.astype(dtype)


def check(
    nodes: list[NodeProto], feeds: dict[str, Array], outputs: dict[str, Any], opset: int = 23, symbolic: bool = False
) -> None:
    tolerance = 4 * TOLERANCE[feeds["x"].dtype]
    content = model(nodes, feeds, outputs, opset=opset, symbolic=symbolic)
    assert_guarded_agrees(content, feeds, rtol=tolerance, atol=tolerance)


@given(shapes(1), DTYPES, KINDS, SEEDS, st.data())
@settings(max_examples=60, deadline=None)
def test_layer_and_rms_normalization_from_any_axis(
    shape: tuple[int, ...], dtype: np.dtype[Any], kind: str, seed: int, data: st.DataObject
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    own = data.draw(st.sampled_from((shape[axis:], shape[-1:], (1,), ())))
    feeds = {"x": numbers(dtype, shape, seed, kind), "s": numbers(dtype, own, seed + 1)}
    symbolic = data.draw(st.booleans())
    form = data.draw(st.sampled_from(("layer", "layer with bias", "layer with statistics", "rms")))
    epsilon = data.draw(st.sampled_from((1e-5, 0.1)))
    if form == "rms":
        nodes = [helper.make_node("RMSNormalization", ["x", "s"], ["y"], axis=axis, epsilon=epsilon)]
        check(nodes, feeds, {"y": dtype}, symbolic=symbolic)
        return
    outputs = {"y": dtype, "m": F32, "i": F32} if "statistics" in form else {"y": dtype}
    if "bias" in form:
        feeds["b"] = numbers(dtype, own, seed + 2)
    nodes = [helper.make_node("LayerNormalization", list(feeds), list(outputs), axis=axis, epsilon=epsilon)]
    check(nodes, feeds, outputs, symbolic=symbolic)


@given(shapes(2, 3), st.sampled_from((F32, F16)), KINDS, SEEDS, st.booleans(), st.booleans())
@settings(max_examples=30, deadline=None)
def test_a_skip_connection_and_its_normalization(
    shape: tuple[int, ...], dtype: np.dtype[Any], kind: str, seed: int, simplified: bool, symbolic: bool
) -> None:
    names = ("g", "bi") if simplified else ("g", "be", "bi")
    feeds = {"x": numbers(dtype, shape, seed, kind), "k": numbers(dtype, shape, seed + 1)}
    feeds |= {name: numbers(dtype, shape[-1:], seed + 2 + place) for place, name in enumerate(names)}
    name = "SkipSimplifiedLayerNormalization" if simplified else "SkipLayerNormalization"
    node = helper.make_node(name, list(feeds), ["y", "", "", "t"], domain=MICROSOFT)
    check([node], feeds, {"y": dtype, "t": dtype}, symbolic=symbolic)


@st.composite
def grouped(draw: st.DrawFn, least: int = 3) -> tuple[tuple[int, ...], int]:
    """A shape with channels, and into how many groups to divide these."""
    groups, each = draw(st.integers(1, 5)), draw(st.sampled_from((1, 2, 3, 7, 8, 17)))
    batch, *spatial = draw(shapes(least - 1, 4))
    return (min(batch, 3), groups * each, *spatial), groups


@example(((0, 6, 5), 2), F32, "plain", 0, False)
@given(grouped(), st.sampled_from((F32, F16)), KINDS, SEEDS, st.booleans())
@settings(max_examples=40, deadline=None)
def test_group_norm_with_and_without_its_activation(
    sizes: tuple[tuple[int, ...], int], dtype: np.dtype[Any], kind: str, seed: int, activation: bool
) -> None:
    shape, groups = sizes
    channels = (shape[1],)
    feeds = {"x": numbers(dtype, shape, seed, kind), "g": numbers(F32, channels, seed + 1), "b": numbers(F32, channels, seed + 2)}
    attrs = {"activation": int(activation), "channels_last": 0, "groups": groups}
    check([helper.make_node("GroupNorm", ["x", "g", "b"], ["y"], domain=MICROSOFT, **attrs)], feeds, {"y": dtype})


@given(grouped(), DTYPES, KINDS, SEEDS, st.sampled_from(("instance", "group", "group 18", "batch")), st.booleans())
@settings(max_examples=60, deadline=None)
def test_normalization_by_channels_of_any_shape(
    sizes: tuple[tuple[int, ...], int], dtype: np.dtype[Any], kind: str, seed: int, form: str, symbolic: bool
) -> None:
    shape, groups = sizes
    own = (groups,) if form == "group 18" else (shape[1],)
    feeds = {"x": numbers(dtype, shape, seed, kind), "s": numbers(dtype, own, seed + 1), "b": numbers(dtype, own, seed + 2)}
    if form == "batch":
        feeds |= {"m": numbers(dtype, own, seed + 3), "v": np.abs(numbers(dtype, own, seed + 4))}
        node = helper.make_node("BatchNormalization", list(feeds), ["y"])
        check([node], feeds, {"y": dtype}, symbolic=symbolic)
    elif form == "instance":
        check([helper.make_node("InstanceNormalization", list(feeds), ["y"])], feeds, {"y": dtype}, symbolic=symbolic)
    else:
        node = helper.make_node("GroupNormalization", list(feeds), ["y"], num_groups=groups)
        check([node], feeds, {"y": dtype}, opset=18 if form == "group 18" else 21)


@given(shapes(1), DTYPES, KINDS, SEEDS, st.data())
@settings(max_examples=60, deadline=None)
def test_norms_and_variances_over_any_axes(
    shape: tuple[int, ...], dtype: np.dtype[Any], kind: str, seed: int, data: st.DataObject
) -> None:
    feeds, places = {"x": numbers(dtype, shape, seed, kind)}, st.integers(-len(shape), len(shape) - 1)
    if data.draw(st.booleans()):
        node = helper.make_node("LpNormalization", ["x"], ["y"], axis=data.draw(places), p=data.draw(st.integers(1, 2)))
    else:
        axes = sorted({axis % len(shape): axis for axis in data.draw(st.lists(places, min_size=1, max_size=3))}.values())
        node = helper.make_node("MeanVarianceNormalization", ["x"], ["y"], axes=axes)
    check([node], feeds, {"y": dtype}, symbolic=data.draw(st.booleans()))


@given(st.sampled_from((7, 16, 33, 500, 2055)), st.sampled_from((1e3, 1e4, 1e5)), SEEDS, st.booleans())
@settings(max_examples=20, deadline=None)
def test_a_large_mean_costs_no_more_digits_than_its_own_rounding(length: int, mean: float, seed: int, group: bool) -> None:
    """The mean of a row is off by about its last place, and with it each distance."""
    x = (np.random.default_rng(seed).standard_normal((3, 2, length)) + mean).astype(np.float32)
    attrs = {"num_groups": 2} if group else {}
    own = np.ones(2 if group else length, np.float32)
    name = "GroupNormalization" if group else "LayerNormalization"
    node = helper.make_node(name, ["x", "s", "b"], ["y"], **attrs)
    feeds = {"x": x, "s": own, "b": np.zeros_like(own)}
    graph, compiled = compile_native(model([node], feeds, {"y": F32}, opset=21).SerializeToString())
    with guarded_memory() as guard:
        actual = run_native(graph, compiled, guarded_feeds(guard, feeds))[0].copy()
    exact = x.astype(np.float64)
    exact = (exact - exact.mean(2, keepdims=True)) / np.sqrt(exact.var(2, keepdims=True) + 1e-5)
    np.testing.assert_allclose(actual, exact, rtol=1e-3, atol=4 * float(np.spacing(np.float32(mean))))
