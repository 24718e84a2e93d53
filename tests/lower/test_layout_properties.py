"""Blocked tensors of any shape: into blocks, out of them and joined; and models that use these operators by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, helper

from guarded_session import guarded_feeds, guarded_memory
from lowering_case import F32, Array, model
from native_support import compile_native, host_nodes, run_native, run_reference
from property_support import SEEDS, any_bits, assert_guarded_agrees, shapes
from sardonyx.errors import SardonyxError
from sardonyx.ops.indexing.layout import DOMAIN, to_blocked

BLOCKS = st.sampled_from((4, 8, 16))
CHANNELS = st.one_of(st.integers(1, 5), st.integers(7, 33))


def node(name: str, inputs: list[str], output: str, **attrs: Any) -> NodeProto:
    return helper.make_node(name, inputs, [output], domain=DOMAIN, **attrs)


def blocked_model(nodes: list[NodeProto], feeds: dict[str, Array], constants: dict[str, Array] | None = None) -> ModelProto:
    made = model(nodes, feeds, {"y": F32}, constants=constants)
    made.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return made


def numbers(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@given(st.integers(0, 3), CHANNELS, shapes(0, 3), BLOCKS, SEEDS, st.booleans())
@settings(max_examples=60, deadline=None)
def test_there_and_back_nothing_changes(
    batch: int, channels: int, spatial: tuple[int, ...], block: int, seed: int, transposed: bool
) -> None:
    """Also of an input that lies in memory in another order."""
    x = any_bits(F32, (batch, channels, *spatial), seed)
    nodes = [node("ToBlocked", ["x"], "a", block=block), node("FromBlocked", ["a"], "y", channels=channels)]
    if transposed:
        order = (*range(2, x.ndim), 0, 1)
        nodes.insert(0, helper.make_node("Transpose", ["t"], ["x"], perm=np.argsort(order).tolist()))
        feeds = {"t": np.ascontiguousarray(x.transpose(order))}
    else:
        feeds = {"x": x}
    assert_guarded_agrees(blocked_model(nodes, feeds), feeds, at_start=bool(seed % 2))


@given(st.integers(0, 2), st.lists(CHANNELS, min_size=1, max_size=4), shapes(0, 2), BLOCKS, SEEDS)
@settings(max_examples=60, deadline=None)
def test_channels_of_any_number_are_joined(
    batch: int, channels: list[int], spatial: tuple[int, ...], block: int, seed: int
) -> None:
    feeds = {
        f"x{number}": to_blocked(any_bits(F32, (batch, count, *spatial), seed + number), block)
        for number, count in enumerate(channels)
    }
    nodes = [
        node("BlockedConcat", list(feeds), "c", channels=channels),
        node("FromBlocked", ["c"], "y", channels=sum(channels)),
    ]
    assert_guarded_agrees(blocked_model(nodes, feeds), feeds, at_start=bool(seed % 2))


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_pools_of_blocks_on_their_own(data: st.DataObject) -> None:
    kernel = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    spatial = [data.draw(st.integers(size, 9)) for size in kernel]
    kind = data.draw(st.sampled_from(("max", "average")))
    x = numbers(data.draw(st.integers(0, 2)), data.draw(st.integers(0, 3)), *spatial, data.draw(BLOCKS))
    if x.size and data.draw(st.booleans()):
        x.reshape(-1)[data.draw(st.integers(0, x.size - 1))] = data.draw(st.sampled_from((np.nan, np.inf, -np.inf)))
    if data.draw(st.booleans()):
        made = node("BlockedGlobalPool", ["x"], "y", kind=kind)
    else:
        strides = [data.draw(st.integers(1, 3)) for _ in kernel]
        pads = [data.draw(st.integers(0, size - 1)) for size in (*kernel, *kernel)]
        made = node("BlockedPool", ["x"], "y", kind=kind, kernel_shape=kernel, strides=strides, pads=pads)
    assert_guarded_agrees(blocked_model([made], {"x": x}), {"x": x}, rtol=1e-5, atol=1e-5)


def _conv(name: str, weights: tuple[int, ...], x: tuple[int, ...], **attrs: Any) -> tuple[Any, ...]:
    nodes = [node(name, ["x", "w"], "c", block=16, **attrs), node("FromBlocked", ["c"], "y", channels=20)]
    return nodes, {"x": numbers(*x)}, {"w": numbers(*weights)}


def _concat(channels: list[int], *inputs: tuple[int, ...]) -> tuple[Any, ...]:
    feeds = {f"x{number}": numbers(*shape) for number, shape in enumerate(inputs)}
    nodes = [
        node("BlockedConcat", list(feeds), "c", channels=channels),
        node("FromBlocked", ["c"], "y", channels=sum(channels)),
    ]
    return nodes, feeds, {}


def _from(channels: int, *shape: int) -> tuple[Any, ...]:
    return [node("FromBlocked", ["x"], "y", channels=channels)], {"x": numbers(*shape)}, {}


STRANGE: dict[str, tuple[Any, ...]] = {
    "blocks that hold more channels": _from(5, 1, 3, 4, 16),
    "blocks that hold fewer channels": _from(500, 1, 3, 4, 16),
    "one pixel of fewer channels": _from(50, 1, 3, 1, 16),
    "a negative number of channels": _from(-3, 1, 3, 4, 16),
    "parts with fewer channels": _concat([48, 40], (2, 3, 19, 16), (2, 1, 19, 16)),
    "parts with more channels": _concat([1, 1], (2, 3, 19, 16), (2, 3, 19, 16)),
    "parts of other sizes": _concat([48, 48], (2, 3, 5, 16), (2, 3, 1900, 16)),
    "parts in other blocks": _concat([16, 16], (2, 2, 5, 8), (2, 1, 5, 16)),
    "parts nobody counts": _concat([16], (2, 2, 5, 8), (2, 2, 5, 8)),
    "a convolution of fewer channels": _conv("BlockedConv", (20, 180, 3), (2, 1, 19, 16)),
    "a convolution of other blocks": _conv("BlockedConv", (20, 18, 3), (2, 3, 19, 8)),
    "groups across blocks": _conv("BlockedConv", (20, 9, 3), (2, 2, 19, 16), group=2),
    "groups of a plain input": _conv("BlockedConv", (20, 9, 3), (2, 18, 19), group=2, plain=1),
    "a transposed convolution of fewer channels": _conv("BlockedConvTranspose", (180, 20, 3), (2, 1, 19, 16)),
    "a transposed convolution of other blocks": _conv("BlockedConvTranspose", (18, 20, 3), (2, 3, 19, 8)),
    "transposed groups across blocks": _conv("BlockedConvTranspose", (18, 10, 3), (2, 2, 19, 16), group=2),
    "a pool of no kind": ([node("BlockedGlobalPool", ["x"], "y", kind="min")], {"x": numbers(2, 3, 19, 16)}, {}),
    "a cubic resize": ([node("BlockedResize", ["x"], "y", mode="cubic", scales=[2.0])], {"x": numbers(2, 3, 19, 16)}, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", STRANGE)
@pytest.mark.parametrize("at_start", [False, True], ids=["end", "start"])
def test_what_the_layout_pass_never_makes_is_computed_in_numpy_or_an_error(case: str, at_start: bool) -> None:
    """A model may bring operators of blocks with it; its sizes must not let a kernel out of its memory."""
    nodes, feeds, constants = STRANGE[case]
    content = blocked_model(nodes, feeds, constants).SerializeToString()
    results: list[list[Array] | None] = []
    graph, compiled = compile_native(content)
    with guarded_memory(at_start) as guard:
        for native in (True, False):
            fed = guarded_feeds(guard, feeds)
            try:
                found = run_native(graph, compiled, fed) if native else run_reference(content, fed)
                results.append([np.array(array) for array in found])
            except SardonyxError:
                results.append(None)
    actual, expected = results
    if actual is None or expected is None:
        assert actual is expected
    else:
        assert host_nodes(compiled)
        np.testing.assert_allclose(actual[0], expected[0], rtol=1e-4, atol=1e-4)
