"""Small nets of every kind give the same however they are compiled: levels, single passes left out, threads, guarded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from guarded_session import guarded_feeds, guarded_memory
from lowering_case import model
from native_support import compile_native, host_nodes
from sardonyx.enums import GraphOptimizationLevel as Level
from sardonyx.formats.onnx import load
from sardonyx.passes.pipeline import ALL
from sardonyx.runtime import native_core
from session_agreement import REFERENCE, difference, same_bits, session
from small_nets import NETS

nets = pytest.mark.parametrize("net", NETS)


def reference(net: str, names: list[str] | None = None) -> list[Any]:
    content, feeds = NETS[net]()
    results: list[Any] = session(content, providers=REFERENCE).run(names, feeds)
    return results


def assert_agree(results: list[Any], expected: list[Any]) -> None:
    assert len(results) == len(expected)
    for actual, wanted in zip(results, expected):
        assert not difference(actual, wanted)


@nets
@pytest.mark.parametrize("level", list(Level), ids=lambda level: level.name)
def test_every_level_gives_the_same(net: str, level: Level) -> None:
    content, feeds = NETS[net]()
    opened = session(content, level=level)
    for _ in range(2):
        assert_agree(opened.run(None, feeds), reference(net))


@nets
@pytest.mark.parametrize("left_out", sorted({each.name for each in ALL}))
@pytest.mark.slow
def test_without_any_one_pass_it_is_the_same(net: str, left_out: str) -> None:
    content, feeds = NETS[net]()
    assert_agree(session(content, disabled=[left_out]).run(None, feeds), reference(net))


@nets
def test_without_passes_that_fuse_it_is_the_same(net: str) -> None:
    content, feeds = NETS[net]()
    names = [each.name for each in ALL if each.name.startswith(("Fuse", "Fold", "Form", "Merge"))]
    assert names
    assert_agree(session(content, disabled=names).run(None, feeds), reference(net))


@nets
def test_values_inside_can_be_fetched(net: str) -> None:
    content, feeds = NETS[net]()
    names = [value.name for node in load(content).graph.nodes for value in node.outputs]
    opened = session(content)
    assert_agree(opened.run(names, feeds), reference(net, names))
    for name in names[:: max(len(names) // 4, 1)]:
        assert_agree(opened.run([name], feeds), reference(net, [name]))


@nets
@pytest.mark.parametrize("everything_shared", [False, True], ids=["as worth it", "everything shared"])
def test_nets_have_the_same_bits_on_any_number_of_threads(
    net: str, everything_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if everything_shared:
        monkeypatch.setattr(native_core, "PARALLEL_FROM", 1)
        monkeypatch.setattr(native_core, "SHARED_FROM", 1)
    content, feeds = NETS[net]()
    alone = session(content).run(None, feeds)
    for threads in (2, 3, 4):
        opened = session(content, threads=threads)
        for _ in range(2):
            assert same_bits(opened.run(None, feeds), alone)


@nets
@pytest.mark.parametrize("at_start", [False, True], ids=["end", "start"])
@pytest.mark.parametrize("level", [Level.ORT_DISABLE_ALL, Level.ORT_ENABLE_ALL], ids=lambda level: level.name)
def test_nets_stay_in_their_memory(net: str, at_start: bool, level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    content, feeds = NETS[net]()
    monkeypatch.setattr(native_core, "PARALLEL_FROM", 1)
    monkeypatch.setattr(native_core, "SHARED_FROM", 1)
    with guarded_memory(at_start) as guard:
        assert_agree(session(content, level=level, threads=2).run(None, guarded_feeds(guard, feeds)), reference(net))


def _large(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


PLACES = np.random.default_rng(0).integers(0, 1000, 630_000)
LARGE: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "Add": ((_large(300, 1, 400), _large(1, 50, 400)), {}),
    "Exp": ((_large(1_000_003),), {}),
    "ReduceSum": ((_large(1000, 1001), np.array([0])), {}),
    "ReduceMean": ((_large(1000, 1001), np.array([1])), {}),
    "ReduceMax": ((_large(50, 200, 101), np.array([0, 2])), {}),
    "ReduceL2": ((_large(2_000_001), np.array([0])), {}),
    "ArgMax": ((_large(3000, 301),), {"axis": 1}),
    "Softmax": ((_large(3001, 500),), {}),
    "LogSoftmax": ((_large(300, 5001),), {"axis": 0}),
    "LayerNormalization": ((_large(2001, 300), _large(300), _large(300)), {}),
    "InstanceNormalization": ((_large(4, 60, 71, 71), _large(60), _large(60)), {}),
    "MatMul": ((_large(333, 501), _large(501, 257)), {}),
    "Gemm": ((_large(3, 2000), _large(3000, 2000), _large(3000)), {"transB": 1}),
    "Conv": ((_large(2, 24, 61, 61), _large(40, 24, 3, 3)), {"pads": [1, 1, 1, 1]}),
    "ConvTranspose": ((_large(1, 32, 60, 60), _large(32, 16, 2, 2)), {"strides": [2, 2]}),
    "MaxPool": ((_large(2, 50, 111, 111),), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "AveragePool": ((_large(2, 50, 111, 111),), {"kernel_shape": [2, 2], "ceil_mode": 1, "strides": [2, 2]}),
    "GlobalAveragePool": ((_large(4, 300, 31, 31),), {}),
    "Transpose": ((_large(300, 40, 101),), {"perm": [2, 0, 1]}),
    "CumSum": ((_large(1000, 1001), np.array(1)), {}),
    "TopK": ((_large(500, 2000), np.array([7])), {}),
    "Gather": ((_large(5000, 300), np.random.default_rng(0).integers(-5000, 5000, (60, 70))), {}),
    "ScatterElements": ((_large(1000, 700), PLACES[:630_000].reshape(900, 700), _large(900, 700)), {"reduction": "add"}),
    "ScatterND": ((_large(1000, 300), PLACES[:3000, None], _large(3000, 300)), {"reduction": "add"}),
    "Pad": ((_large(301, 1000), np.array([3, 5, 7, 9])), {"mode": "reflect"}),
    "Resize": ((_large(1, 30, 70, 70), _large(0), np.array([1, 1, 2.5, 2.5], np.float32)), {"mode": "linear"}),
    "LSTM": ((_large(20, 16, 64), _large(1, 1024, 64) / 9, _large(1, 1024, 256) / 16), {"hidden_size": 256}),
    "GRU": (
        (_large(20, 16, 64), _large(2, 768, 64) / 9, _large(2, 768, 256) / 16),
        {"hidden_size": 256, "direction": "bidirectional"},
    ),
    "Attention": ((_large(2, 8, 130, 64), _large(2, 8, 130, 64), _large(2, 8, 130, 64)), {"is_causal": 1}),
}  # fmt: skip


def _bytes(*shape: int, dtype: Any = np.uint8, seed: int = 0) -> Any:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def _quantized(x: Any, w: Any) -> tuple[Any, ...]:
    """An image or matrix, kernels and a result, each with a scale and a zero point."""
    small, large = np.array(0.01, np.float32), np.array(2.0, np.float32)
    return (x, small, np.array(120, np.uint8), w, small, np.array(3, np.int8), large, np.array(128, np.uint8))


_REGIONS = np.abs(_large(300, 4)).cumsum(1) * 6
SHARED: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], tuple[Any, ...]]] = {
    "MaxPool with indices": (
        "MaxPool", (_large(2, 20, 61, 63),), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
        (np.float32, np.int64),
    ),
    "LpPool": ("LpPool", (_large(2, 20, 61, 63),), {"kernel_shape": [3, 3], "p": 3}, (np.float32,)),
    "LRN": ("LRN", (_large(2, 24, 41, 43),), {"size": 5}, (np.float32,)),
    "Einsum as a product": (
        "Einsum", (_large(2, 67, 5, 64), _large(2, 71, 5, 64, seed=1)), {"equation": "bihd,bjhd->bhij"}, (np.float32,)
    ),
    "Einsum of sums": ("Einsum", (_large(30, 41, 101),), {"equation": "ijk->ki"}, (np.float32,)),
    "Einsum of elements": ("Einsum", (_large(300, 201), _large(201, 300, seed=1)), {"equation": "ij,ji->ij"}, (np.float32,)),
    **{
        f"Resize {mode}": (
            "Resize", (_large(2, 5, 51, 53), _large(0), np.array([1, 1, 1.7, 2.3], np.float32)), {"mode": mode}, (np.float32,)
        )
        for mode in ("nearest", "linear", "cubic")
    },
    "Resize smoothed": (
        "Resize", (_large(2, 5, 91, 93), _large(0), np.array([1, 1, 0.4, 0.6], np.float32)), {"mode": "linear", "antialias": 1},
        (np.float32,),
    ),
    "RoiAlign": (
        "RoiAlign", (_large(2, 19, 40, 41), _REGIONS, np.arange(300) % 2),
        {"output_height": 5, "output_width": 7, "sampling_ratio": 2}, (np.float32,),
    ),
    "AffineGrid": ("AffineGrid", (_large(3, 2, 3), np.array([3, 1, 161, 163])), {}, (np.float32,)),
    "QLinearMatMul": ("QLinearMatMul", _quantized(_bytes(131, 257), _bytes(257, 143, dtype=np.int8)), {}, (np.uint8,)),
    "QLinearConv": (
        "QLinearConv", _quantized(_bytes(2, 12, 31, 33), _bytes(20, 12, 3, 3, dtype=np.int8)), {"pads": [1, 1, 1, 1]}, (np.uint8,)
    ),
}  # fmt: skip


@pytest.mark.parametrize("everything_shared", [False, True], ids=["as worth it", "everything shared"])
@pytest.mark.parametrize("case", SHARED)
def test_shared_operators_have_the_same_bits_on_any_number_of_threads(
    case: str, everything_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if everything_shared:
        monkeypatch.setattr(native_core, "PARALLEL_FROM", 1)
        monkeypatch.setattr(native_core, "SHARED_FROM", 1)
    op_type, arrays, attrs, types = SHARED[case]
    feeds = {f"x{number}": array for number, array in enumerate(arrays)}
    outputs = {f"y{number}": dtype for number, dtype in enumerate(types)}
    constants = {
        name: feeds.pop(name) for name in ("x1", "x2") if op_type == "Resize" or (op_type == "AffineGrid" and name == "x1")
    }
    names = [f"x{number}" for number in range(len(arrays))]
    content = model([helper.make_node(op_type, names, list(outputs), **attrs)], feeds, outputs, constants=constants)
    _, compiled = compile_native(content.SerializeToString())
    assert not host_nodes(compiled)
    alone = session(content.SerializeToString()).run(None, feeds)
    expected = session(content.SerializeToString(), providers=REFERENCE).run(None, feeds)
    assert not difference(alone, expected, "float32")
    for threads in (2, 4):
        opened = session(content.SerializeToString(), threads=threads)
        for _ in range(2):
            assert same_bits(opened.run(None, feeds), alone)


@pytest.mark.parametrize("op_type", LARGE)
@pytest.mark.parametrize("weights", ["fed", "constant"])
def test_large_operators_have_the_same_bits_on_any_number_of_threads(op_type: str, weights: str) -> None:
    arrays, attrs = LARGE[op_type]
    count = 2 if op_type == "TopK" else 1
    names = [f"x{number}" for number in range(len(arrays))]
    given = dict(zip(names, arrays))
    feeds = given if weights == "fed" else {"x0": arrays[0]}
    constants = {name: array for name, array in given.items() if name not in feeds}
    outputs = {f"y{number}": np.int64 if op_type == "ArgMax" or number else np.float32 for number in range(count)}
    node = helper.make_node(op_type, names, list(outputs), **attrs)
    content = model([node], feeds, outputs, constants=constants).SerializeToString()
    alone = session(content).run(None, feeds)
    expected = session(content, providers=REFERENCE).run(None, feeds)
    for actual, wanted in zip(alone, expected):
        assert not difference(actual, wanted, "float32")
    for threads in (2, 4):
        assert same_bits(session(content, threads=threads).run(None, feeds), alone)
