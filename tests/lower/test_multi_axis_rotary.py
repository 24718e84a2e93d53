"""MRotaryEmbedding: rotations by positions in time, height and width, against its NumPy meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from guarded import guarded
from lowering_case import TOLERANCE, model
from native_support import assert_native_agrees, compile_native, run_native
from sardonyx import errors
from sardonyx.ir.tensor import Array


def case(x: Array, positions: Array, half: int, **attrs: Any) -> tuple[Any, dict[str, Array]]:
    rng = np.random.default_rng(half)
    feeds = {"x": x, "positions": positions}
    feeds |= {name: rng.standard_normal((9, half)).astype(x.dtype) for name in ("cos", "sin")}
    node = helper.make_node("MRotaryEmbedding", list(feeds), ["y"], domain="com.microsoft", **attrs)
    return model([node], feeds, {"y": x.dtype}), {name: guarded(array) for name, array in feeds.items()}


@settings(max_examples=25, deadline=None)
@given(
    section=st.tuples(*[st.integers(0, 4)] * 3).filter(any),
    more=st.sampled_from([0, 6]),  # elements of a head that are not rotated
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    length=st.integers(1, 5),
    four_axes=st.booleans(),
    layout=st.integers(0, 1),
    interleaved=st.integers(0, 1),
    scale=st.sampled_from([None, 0.5]),
    dtype=st.sampled_from([np.float32, np.float16]),
)
def test_every_angle_is_that_of_its_stream(
    section: tuple[int, int, int],
    more: int,
    batch: int,
    heads: int,
    length: int,
    four_axes: bool,
    layout: int,
    interleaved: int,
    scale: float | None,
    dtype: Any,
) -> None:
    half = sum(section)
    size = 2 * half + more
    shape = (batch, heads, length, size) if four_axes else (batch, length, heads * size)
    rng = np.random.default_rng(length)
    attrs: dict[str, Any] = {"mrope_section": section, "mrope_layout": layout, "interleaved": interleaved, "num_heads": heads}
    if scale is not None:
        attrs["scale"] = scale
    content, feeds = case(rng.standard_normal(shape).astype(dtype), rng.integers(0, 9, (3, batch, length)), half, **attrs)
    tolerance = TOLERANCE[np.dtype(dtype)]
    assert_native_agrees(content, feeds, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("position", [-1, 9])
def test_a_position_the_caches_do_not_hold_is_an_error(position: int) -> None:
    positions = np.array([[[0, 1]], [[0, position]], [[0, 1]]], np.int64)
    content, feeds = case(np.ones((1, 2, 8), np.float32), positions, 4, mrope_section=[2, 1, 1], num_heads=1)
    graph, compiled = compile_native(content.SerializeToString())
    with pytest.raises(errors.InvalidArgument, match="a position is not one of the 9 that the caches hold"):
        run_native(graph, compiled, feeds)
