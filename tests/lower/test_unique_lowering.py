"""Unique of whole numbers in native code against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import sardonyx
from guarded_session import guarded_feeds, guarded_memory
from lowering_case import model as nodes_model
from sardonyx.provider_names import REFERENCE_PROVIDER

OUTPUTS = ("y", "first", "inverse", "count")


def unique(x: np.ndarray[Any, Any], fetched: tuple[str, ...], *, symbolic: bool, **attributes: int) -> bytes:
    """A Unique, followed by a node for each result, so that sizes are read by others, too."""
    node = helper.make_node("Unique", ["x"], [name if name in fetched else "" for name in OUTPUTS], **attributes)
    readers = [helper.make_node("Neg", [name], [f"-{name}"]) for name in fetched]
    types = {f"-{name}": x.dtype if name == "y" else np.int64 for name in fetched}
    content: bytes = nodes_model([node, *readers], {"x": x}, types, symbolic=symbolic).SerializeToString()
    return content


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3), max_size=60),
    st.sampled_from((np.int32, np.int64)),
    st.sets(st.sampled_from(OUTPUTS), min_size=1),
    st.booleans(),
    st.booleans(),
    st.sampled_from((None, 0, -1)),
    st.booleans(),
)
def test_distinct_numbers(
    items: list[int], dtype: type[Any], fetched: set[str], in_order: bool, symbolic: bool, axis: int | None, folded: bool
) -> None:
    x = np.array(items, dtype)
    if folded and axis is None and x.size % 2 == 0:
        x = x.reshape(2, -1)
    attributes = {"sorted": int(in_order), **({} if axis is None else {"axis": axis})}
    content = unique(x, tuple(name for name in OUTPUTS if name in fetched), symbolic=symbolic, **attributes)
    wanted = sardonyx.InferenceSession(content, providers=[REFERENCE_PROVIDER]).run(None, {"x": x})
    for at_start in (False, True):
        with guarded_memory(at_start) as guard:
            session = sardonyx.InferenceSession(content, providers=["CPUExecutionProvider"])
            for _ in range(3):
                for found, expected in zip(session.run(None, guarded_feeds(guard, {"x": x})), wanted):
                    assert found.dtype == expected.dtype
                    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("in_order", [0, 1])
def test_nothing_of_it_needs_the_host(in_order: int) -> None:
    content = unique(np.arange(5), OUTPUTS, symbolic=True, sorted=in_order)
    assert sardonyx.explain_model(content).host_steps == 0


def test_runs_with_other_numbers_of_distinct_elements_follow_each_other() -> None:
    session = sardonyx.InferenceSession(unique(np.arange(6), ("y", "count"), symbolic=False), providers=["CPUExecutionProvider"])
    for x in ([1, 1, 1, 2, 2, 3], [3, 3, 3, 1, 1, 2], [7] * 6, [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]):
        values, counts = np.unique(np.array(x), return_counts=True)
        found = session.run(None, {"x": np.array(x)})
        np.testing.assert_array_equal(-found[0], values)
        np.testing.assert_array_equal(-found[1], counts)
