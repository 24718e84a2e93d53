"""Convolutions of 8-bit integers against the NumPy meaning of the operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guarded import guarded
from guarded_session import guarded_feeds, guarded_memory
from model_text import model
from native_support import assert_native_agrees, compile_native, host_nodes, run_native, run_reference
from sardonyx.ir.tensor import Array

TYPES = {"uint8": np.uint8, "int8": np.int8}
CASES = [
    ((2, 3, 9, 10), (4, 3, 3, 3), ""),
    ((1, 4, 7, 8), (6, 2, 3, 2), "group=2, pads=[1,0,2,1], strides=[2,1]"),
    ((1, 4, 9), (4, 1, 3), "group=4, dilations=[2]"),
    ((2, 3, 5, 6), (5, 3, 1, 1), ""),
    ((1, 2, 4, 5, 6), (3, 2, 2, 2, 2), 'auto_pad="SAME_UPPER"'),
    ((0, 3, 5, 5), (2, 3, 3, 3), "pads=[1,1,1,1]"),
]


def integers(kind: str, shape: tuple[int, ...], seed: int) -> Array:
    limits = np.iinfo(TYPES[kind])
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(TYPES[kind])


def sizes(shape: tuple[int, ...], symbolic: bool) -> str:
    return ",".join(f"D{axis}" if symbolic and axis != 1 else str(size) for axis, size in enumerate(shape))


def case(
    first: str, second: str, window: tuple[tuple[int, ...], tuple[int, ...], str], origin: str, symbolic: bool, seed: int = 0
) -> tuple[str, dict[str, Any]]:
    """A ConvInteger and feeds for it."""
    image, kernels, attributes = window
    feeds = {"x": integers(first, image, seed), "w": integers(second, kernels, seed + 1)}
    declared = [f"{first}[{sizes(image, symbolic)}] x", f"{second}[{sizes(kernels, False)}] w"]
    if origin != "none":
        count = 1 if origin == "one" else kernels[0]
        feeds |= {"p": integers(first, (1,), seed).reshape(()), "q": integers(second, (count,), seed)}
        declared += [f"{first} p", f"{second}[{count}] q"]
    options = f"<{attributes}>" if attributes else ""
    return f"({', '.join(declared)}) => (int32[z] y) {{ y = ConvInteger{options}({', '.join(feeds)}) }}", feeds


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(TYPES)),
    st.sampled_from(list(TYPES)),
    st.sampled_from(CASES),
    st.sampled_from(["none", "one", "kernels"]),
    st.booleans(),
    st.integers(0, 9),
)
def test_integers_agree_to_the_bit(
    first: str, second: str, window: tuple[tuple[int, ...], tuple[int, ...], str], origin: str, symbolic: bool, seed: int
) -> None:
    graph, feeds = case(first, second, window, origin, symbolic, seed)
    assert_native_agrees(model(graph), {name: guarded(array) for name, array in feeds.items()})


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(TYPES)),
    st.sampled_from(list(TYPES)),
    st.sampled_from(CASES),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 9),
)
def test_quantized_results_agree_to_the_bit(
    first: str,
    second: str,
    window: tuple[tuple[int, ...], tuple[int, ...], str],
    each: bool,
    biased: bool,
    symbolic: bool,
    seed: int,
) -> None:
    image, kernels, attributes = window
    count = kernels[0] if each else 1
    rng = np.random.default_rng(seed)
    feeds: dict[str, Any] = {
        "x": integers(first, image, seed),
        "xs": np.array(0.02, np.float32),
        "xz": integers(first, (1,), seed).reshape(()),
        "w": integers(second, kernels, seed + 1),
        "ws": (rng.random(count) * 0.02 + 0.001).astype(np.float32),
        "wz": integers(second, (count,), seed + 2),
        "ys": np.array(0.4, np.float32),
        "yz": integers(first, (1,), seed + 3).reshape(()),
    }
    declared = [
        f"{first}[{sizes(image, symbolic)}] x", "float xs", f"{first} xz", f"{second}[{sizes(kernels, False)}] w",
        f"float[{count}] ws", f"{second}[{count}] wz", "float ys", f"{first} yz",
    ]  # fmt: skip
    if biased:
        feeds["b"] = rng.integers(-3000, 3000, kernels[0]).astype(np.int32)
        declared.append(f"int32[{kernels[0]}] b")
    options = f"<{attributes}>" if attributes else ""
    graph = f"({', '.join(declared)}) => ({first}[z] y) {{ y = QLinearConv{options}({', '.join(feeds)}) }}"
    assert_native_agrees(model(graph), {name: guarded(array) for name, array in feeds.items()})


@pytest.mark.parametrize("at_start", [False, True])
@pytest.mark.parametrize("window", CASES[:5])
def test_nothing_outside_is_touched(window: tuple[tuple[int, ...], tuple[int, ...], str], at_start: bool) -> None:
    text, feeds = case("uint8", "int8", window, "kernels", True)
    graph, compiled = compile_native(model(text))
    assert not host_nodes(compiled)
    with guarded_memory(at_start) as guard:
        result = np.array(run_native(graph, compiled, guarded_feeds(guard, feeds))[0])
    np.testing.assert_array_equal(result, run_reference(model(text), feeds)[0])


def test_the_same_bits_on_any_number_of_workers() -> None:
    text, feeds = case("uint8", "int8", ((2, 16, 20, 21), (24, 16, 3, 3), "pads=[1,1,1,1]"), "one", True)
    results = []
    for workers in (1, 2, 3):
        graph, compiled = compile_native(model(text), workers)
        results.append(run_native(graph, compiled, feeds)[0].tobytes())
    assert results[0] == results[1] == results[2]
