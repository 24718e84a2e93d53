"""Inputs that contradict each other, one by one: native code refuses where the NumPy definitions do, and touches nothing else."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from onnx import helper

from contradictions import with_open_sizes
from guarded_session import guarded_feeds, guarded_memory
from lowering_case import Array, model
from native_support import compile_native
from sardonyx.errors import SardonyxError
from session_agreement import NATIVE, REFERENCE, session

RNG = np.random.default_rng(0)


def f(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def i32(*items: int) -> Array:
    return np.array(items, np.int32)


def u8(*shape: int) -> Array:
    return RNG.integers(0, 255, shape).astype(np.uint8)


def concatenated(*widths: int) -> list[Array | None]:
    """The inputs of QLinearConcat: scale and zero point of the result, then each part with its own."""
    scales = [np.array(factor, np.float32) for factor in (0.1, 0.2, 0.3)]
    zero = np.array(3, np.uint8)
    parts = [each for width, scale in zip(widths, scales[1:]) for each in (u8(2, 5, width), scale, zero)]
    return [scales[0], zero, *parts]


MICROSOFT = "com.microsoft"
GROUPED = {"num_heads": 4, "kv_num_heads": 2}
# What contradicts: operator, domain, attributes, inputs, how many outputs, which inputs are constants.
CASES: dict[str, tuple[str, str, dict[str, Any], list[Array | None], int, tuple[int, ...]]] = {
    "past value longer than past key": (
        "Attention", "", {}, [f(1, 2, 9, 8), f(1, 2, 7, 8), f(1, 2, 7, 8), None, f(1, 2, 4, 8), f(1, 2, 40, 8)], 3, ()),
    "past value shorter than past key": (
        "Attention", "", {}, [f(1, 2, 9, 8), f(1, 2, 7, 8), f(1, 2, 7, 8), None, f(1, 2, 40, 8), f(1, 2, 4, 8)], 3, ()),
    "V's width is not divisible by its heads": (
        "Attention", "", {"q_num_heads": 2, "kv_num_heads": 2}, [f(1, 5, 16), f(1, 7, 16), f(1, 7, 17)], 1, ()),
    "MultiHeadAttention, past value longer": (
        "MultiHeadAttention", MICROSOFT, {"num_heads": 2},
        [f(1, 9, 16), f(1, 7, 16), f(1, 7, 16), None, None, None, f(1, 2, 4, 8), f(1, 2, 40, 8)], 3, ()),
    "MultiHeadAttention, V's width": (
        "MultiHeadAttention", MICROSOFT, {"num_heads": 2}, [f(1, 5, 16), f(1, 7, 16), f(1, 7, 17)], 1, ()),
    "MultiHeadAttention, packed with other heads": ("MultiHeadAttention", MICROSOFT, {"num_heads": 4}, [f(1, 5, 2, 3, 8)], 1, ()),
    "GroupQueryAttention, past value shorter": (
        "GroupQueryAttention", MICROSOFT, GROUPED,
        [f(1, 1, 32), f(1, 1, 16), f(1, 1, 16), f(1, 2, 60, 8), f(1, 2, 6, 8), i32(5), i32(6)], 3, (6,)),
    "GroupQueryAttention, past value longer": (
        "GroupQueryAttention", MICROSOFT, GROUPED,
        [f(1, 1, 32), f(1, 1, 16), f(1, 1, 16), f(1, 2, 6, 8), f(1, 2, 60, 8), i32(5), i32(6)], 3, (6,)),
    "GroupQueryAttention, past shorter than seqlens_k": (
        "GroupQueryAttention", MICROSOFT, GROUPED,
        [f(1, 1, 32), f(1, 1, 16), f(1, 1, 16), f(1, 2, 3, 8), f(1, 2, 3, 8), i32(9), i32(10)], 3, (6,)),
    "GroupQueryAttention, a prompt longer than its room": (
        "GroupQueryAttention", MICROSOFT, GROUPED, [f(1, 5, 32), f(1, 5, 16), f(1, 5, 16), None, None, i32(9), i32(5)], 1, (6,)),
    "Conv, more channels than its kernels": ("Conv", "", {}, [f(2, 36, 9, 8), f(20, 18, 3, 3), f(20)], 1, (1, 2)),
    "Conv, fewer channels than its kernels": ("Conv", "", {}, [f(2, 2, 9, 8), f(20, 18, 3, 3), f(20)], 1, (1, 2)),
    "Conv in groups, fewer channels": ("Conv", "", {"group": 2}, [f(2, 3, 9, 8), f(6, 10, 3, 1)], 1, (1,)),
    "DequantizeLinear, one zero point beside many scales": (
        "DequantizeLinear", "", {"axis": 1}, [i32(*range(12)).astype(np.uint8).reshape(2, 6), np.full(6, 0.1, np.float32),
                                              np.zeros(1, np.uint8)], 1, ()),
    "QuantizeLinear, one scale beside many zero points": (
        "QuantizeLinear", "", {"axis": 1}, [f(2, 6), np.full(1, 0.1, np.float32), np.zeros(6, np.uint8)], 1, ()),
    "Split into fewer parts than outputs": ("Split", "", {}, [f(4), np.array([1, 3])], 3, ()),
    "Split into more parts than outputs": ("Split", "", {}, [f(4), np.array([1, 3, 0])], 2, ()),
    "ScatterND, updates with an axis too many": (
        "ScatterND", "", {}, [f(4, 4, 4), np.array([[0, 1], [2, 3]]), f(2, 4, 4)], 1, (2,)),
    "ScatterElements, updates with an axis too many": (
        "ScatterElements", "", {}, [f(4, 4), np.array([[0, 1], [2, 3]]), f(2, 2, 1)], 1, (2,)),
    "BatchNormalization by a matrix": (
        "BatchNormalization", "", {}, [f(2, 4, 5), f(4, 1), f(4, 1), f(4, 1), np.abs(f(4, 1))], 1, ()),
    "Compress of nothing, a place that is not there": (
        "Compress", "", {"axis": 1}, [f(0, 1), np.array([True, True])], 1, ()),
    "TensorScatter of nothing, a step that is not there": (
        "TensorScatter", "", {"axis": 1}, [f(2, 5, 0), f(2, 3, 0), np.array([1, 4])], 1, ()),
    "ReverseSequence of nothing, longer than the axis": (
        "ReverseSequence", "", {"time_axis": 0, "batch_axis": 1}, [f(3, 2, 0), np.array([3, 4])], 1, ()),
    "RotaryEmbedding of nothing, a position that is not there": (
        "RotaryEmbedding", "", {}, [f(2, 2, 5, 0), f(3, 0), f(3, 0), np.full((2, 5), 7)], 1, ()),
    "RoiAlign without channels, an image that is not there": (
        "RoiAlign", "", {}, [f(2, 0, 5, 5), np.abs(f(1, 4)), np.array([3])], 1, ()),
    "QLinearConcat, a part of one column": ("QLinearConcat", MICROSOFT, {"axis": 1}, concatenated(1, 300), 1, (0, 1, 3, 4, 6, 7)),
    "QLinearConcat, a narrow part": ("QLinearConcat", MICROSOFT, {"axis": 1}, concatenated(300, 1), 1, (0, 1, 3, 4, 6, 7)),
    "Expand of a size that does not fit": ("Expand", "", {}, [f(3, 2, 5), np.array([3, 4, 5])], 1, (1,)),
}  # fmt: skip


@pytest.mark.parametrize("at_start", [False, True], ids=["end", "start"])
@pytest.mark.parametrize("name", CASES)
def test_what_contradicts_is_refused_and_stays_in_its_memory(name: str, at_start: bool) -> None:
    op_type, domain, attrs, arrays, outputs, constant = CASES[name]
    names = ["" if array is None else f"x{number}" for number, array in enumerate(arrays)]
    feeds = {given: array for given, array in zip(names, arrays) if array is not None}
    results = [f"y{number}" for number in range(outputs)]
    node = helper.make_node(op_type, names, results, name="the_node", domain=domain, **attrs)
    made = model([node], feeds, dict.fromkeys(results, np.float32), opset=24)
    for result in made.graph.output:
        result.ClearField("type")  # a declaration that does not fit would be refused first
    content = made.SerializeToString()
    axes = {given: frozenset(range(array.ndim)) - kept_static(op_type, given) for given, array in feeds.items()}
    fixed = {f"x{number}" for number in constant}
    opened_up = with_open_sizes(content, feeds, axes, fixed, shared=False)
    fed = {given: array for given, array in feeds.items() if given not in fixed}
    with pytest.raises(SardonyxError, match="the_node"):
        session(opened_up, providers=REFERENCE).run(None, fed)
    with guarded_memory(at_start) as guard, pytest.raises(SardonyxError, match="the_node"):
        session(opened_up).run(None, guarded_feeds(guard, fed))


def kept_static(op_type: str, name: str) -> frozenset[int]:
    """Sizes without which an operator has no kernel: the width of the queries."""
    return frozenset((2, 3, 4)) if "Attention" in op_type and name == "x0" else frozenset()


def test_elements_that_change_while_they_are_counted_stay_in_the_memory_of_the_result() -> None:
    """NonZero counts in one kernel and writes in another: a feed that changes in between must not decide how much is written."""
    nodes = [helper.make_node("NonZero", ["x"], ["y"])]
    made = model(nodes, {"x": np.zeros(20_000, np.float32)}, {"y": np.int64})
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    opened = session(made.SerializeToString())
    feed = np.zeros(20_000, np.float32)
    stop = threading.Event()

    def flicker() -> None:
        while not stop.is_set():
            feed[:] = 1
            feed[:] = 0

    with guarded_memory():
        changing = threading.Thread(target=flicker)
        changing.start()
        try:
            for _ in range(200):
                (places,) = opened.run(None, {"x": feed})
                assert places.shape[0] == 1
                assert ((places >= 0) & (places < 20_000)).all()
        finally:
            stop.set()
            changing.join()


def test_what_a_shape_rule_states_is_checked_without_the_help_of_the_lowering_rule() -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    made = model(nodes, {"x": f(1, 18, 5, 5)}, {"y": np.float32}, constants={"w": f(4, 18, 3, 3)})
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "channels"
    _, compiled = compile_native(made.SerializeToString())
    assert {"channels", "18"} in [{str(size), str(other)} for size, other in compiled.lowered.equalities]


@pytest.mark.parametrize("count", [0, 2, 3, 5])
def test_a_size_in_the_target_of_a_reshape_that_turns_out_to_be_zero_copies_the_size_of_the_input(count: int) -> None:
    nodes = [
        helper.make_node("Shape", ["like"], ["size"]),
        helper.make_node("Concat", ["size", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"], name="the_node"),
    ]
    feeds = {"x": f(4, 6), "like": f(count)}
    made = model(nodes, feeds, {"y": np.float32}, constants={"rest": np.array([-1])}, symbolic=True)
    made.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "count"
    results: list[Any] = []
    for providers in (REFERENCE, NATIVE):
        try:
            results.append(session(made.SerializeToString(), providers=providers).run(None, feeds)[0].tolist())
        except SardonyxError as error:
            results.append("the_node" in str(error))
    assert results[0] == results[1]
    assert (results[0] is True) == (count == 5)


@pytest.mark.parametrize("last", [4, 5, 6, 7])
def test_no_new_positions_need_no_room_behind_the_past(last: int) -> None:
    arrays = {"q": f(2, 0, 64), "k": f(2, 2, 6, 8), "v": f(2, 2, 6, 8), "lengths": i32(3, last), "total": i32(7)}
    names = ["q", "", "", "k", "v", "lengths", "total"]
    node = helper.make_node("GroupQueryAttention", names, ["y", "keys", "values"], domain=MICROSOFT, name="the_node", **GROUPED)
    made = model([node], arrays, dict.fromkeys(("y", "keys", "values"), np.float32)).SerializeToString()
    feeds = {name: arrays[name] for name in ("q", "k", "v", "lengths")}
    axes = {"q": frozenset((1,)), **{name: frozenset() for name in ("k", "v", "lengths", "total")}}
    content = with_open_sizes(made, arrays, axes, {"total"}, False)
    results: list[Any] = []
    for providers in (REFERENCE, NATIVE):
        try:
            results.append([array.tolist() for array in session(content, providers=providers).run(None, feeds)])
        except SardonyxError as error:
            results.append("the_node" in str(error))
    assert results[0] == results[1]
    assert (results[0] is True) == (last == 7)


@pytest.mark.parametrize("shape", [(2, 6), (0, 6), (2, 0)])
@pytest.mark.parametrize("count", [0, 5, 6, 12])
@pytest.mark.parametrize("after", ["", "Squeeze"])
def test_no_pass_forgets_what_a_size_of_zero_means_to_a_reshape(shape: tuple[int, ...], count: int, after: str) -> None:
    """[2, c], and [c, 1] squeezed: written as [2, -1] and [-1] they would take c = 0 for no elements instead of a copied size."""
    parts = ["size", "number"] if after else ["number", "size"]
    nodes = [
        helper.make_node("Shape", ["like"], ["size"]),
        helper.make_node("Concat", parts, ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["made"], name="the_node"),
        *([helper.make_node(after, ["made", "number"], ["squeezed"])] if after else []),
        helper.make_node("Relu", ["squeezed" if after else "made"], ["y"]),
    ]
    feeds = {"x": np.ones(shape, np.float32), "like": f(count)}
    made = model(nodes, feeds, {"y": np.float32}, constants={"number": np.array([1 if after else 2])}, opset=18)
    opened_up = with_open_sizes(made.SerializeToString(), feeds, {"x": frozenset((0, 1)), "like": frozenset((0,))}, set(), False)
    results: list[Any] = []
    for providers in (REFERENCE, NATIVE):
        try:
            results.append(session(opened_up, providers=providers).run(None, feeds)[0].shape)
        except SardonyxError as error:
            results.append("the_node" in str(error))
    assert results[0] == results[1]
