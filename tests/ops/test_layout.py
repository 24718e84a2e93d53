"""The meaning of the operators on blocked activations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import sardonyx
from sardonyx.ops.indexing.layout import blocked_shape, fits_blocks, from_blocked, to_blocked
from sardonyx.ops.registry import EvalContext, call, lookup


@given(st.integers(1, 3), st.integers(1, 40), st.lists(st.integers(1, 4), max_size=3), st.sampled_from((4, 8, 16)))
def test_a_tensor_survives_the_way_into_blocks_and_back(batch: int, channels: int, spatial: list[int], block: int) -> None:
    x = np.arange(batch * channels * int(np.prod(spatial)), dtype=np.float32).reshape(batch, channels, *spatial)
    blocked = to_blocked(x, block)
    assert blocked.shape == blocked_shape(x.shape, block)
    np.testing.assert_array_equal(from_blocked(blocked, channels), x)


def test_a_block_of_channels_lies_together() -> None:
    x = np.arange(12, dtype=np.float32).reshape(1, 6, 1, 2)
    assert to_blocked(x, 4)[0, 0, 0].tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert to_blocked(x, 4)[0, 1, 0].tolist() == [[8, 10, 0, 0], [9, 11, 0, 0]]


def test_groups_fit_if_they_fill_blocks_or_stay_in_their_lanes() -> None:
    assert fits_blocks(1, 3, 5, 8)
    assert fits_blocks(2, 8, 16, 8)
    assert fits_blocks(24, 1, 1, 8)
    assert fits_blocks(4, 4, 4, 8)
    assert not fits_blocks(2, 8, 4, 8)
    assert not fits_blocks(8, 1, 2, 8)
    assert not fits_blocks(2, 3, 3, 8)


def test_from_blocked_says_that_there_are_not_so_many_channels() -> None:
    definition = lookup("sardonyx", "FromBlocked", 1)
    assert definition is not None
    with pytest.raises(ValueError, match="does not hold 20 channels"):
        call(definition, [np.zeros((1, 2, 3, 8), np.float32)], {"channels": 20}, EvalContext(1, (True,)))


def test_an_unknown_kind_of_pool_is_named() -> None:
    definition = lookup("sardonyx", "BlockedGlobalPool", 1)
    assert definition is not None
    with pytest.raises(ValueError, match="kind is 'median', expected one of max, average"):
        call(definition, [np.zeros((1, 2, 3, 8), np.float32)], {"kind": "median"}, EvalContext(1, (True,)))


BLOCKED: dict[str, dict[str, Any]] = {
    "ToBlocked": {"block": 16},
    "FromBlocked": {"channels": 3},
    "BlockedConv": {"block": 16, "plain": 0, "group": 1},
    "BlockedConvTranspose": {"block": 16, "group": 1},
    "BlockedPool": {"kind": "max", "kernel_shape": [2, 2]},
    "BlockedGlobalPool": {"kind": "max"},
    "BlockedResize": {
        "mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "floor", "scales": [2.0, 2.0],
    },
    "BlockedConcat": {"channels": [3, 4]},
}  # fmt: skip


@pytest.mark.parametrize("rank", range(7))
@pytest.mark.parametrize("name", BLOCKED)
def test_wrong_ranks_are_problems_of_the_node(name: str, rank: int) -> None:
    names = ["x", "w"] if "Conv" in name or "Concat" in name else ["x"]
    ranks = {"x": rank, "w": (rank + 1) % 5}
    graph = helper.make_graph(
        [helper.make_node(name, names, ["y"], domain="sardonyx", name="node", **BLOCKED[name])],
        "g",
        [helper.make_tensor_value_info(each, TensorProto.FLOAT, [2] * ranks[each]) for each in names],
        [helper.make_empty_tensor_value_info("y")],
    )
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("sardonyx", 1)]
    content = helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    feeds = {each: np.ones([2] * ranks[each], np.float32) for each in names}
    failure = ""
    try:
        sardonyx.InferenceSession(content).run(None, feeds)
    except sardonyx.SardonyxError as error:
        failure = str(error)
    assert not failure or f"{name} 'node'" in failure
