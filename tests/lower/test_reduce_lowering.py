"""Reductions and the softmax family, natively against their NumPy meaning, alone and with their neighbours in one kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from lowering_case import BOOL, F16, F32, F64, TOLERANCE, Array, model, samples
from native_support import assert_native_agrees, compile_native, run_native
from sardonyx.program.steps import KernelStep

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

I32, I64, U8 = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.uint8)
REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")


def numbers(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int = 0) -> Array:
    """Numbers whose sums and products say something."""
    return np.asarray(np.random.default_rng(seed).standard_normal(shape) * 2).astype(dtype)


def check_reduction(name: str, x: Array, axes: list[int] | None, keepdims: int, *, symbolic: bool = False) -> None:
    node = helper.make_node(f"Reduce{name}", ["x", "axes"] if axes else ["x"], ["y"], keepdims=keepdims)
    constants = {"axes": np.array(axes, np.int64)} if axes else {}
    made = model([node], {"x": x}, {"y": x.dtype}, constants=constants, symbolic=symbolic)
    tolerance = TOLERANCE.get(x.dtype, 0)
    assert_native_agrees(made, {"x": x}, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [F32, F64, F16, I32, I64], ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_over_every_kind_of_axes(name: str, dtype: np.dtype[Any]) -> None:
    if name.startswith("Log") and dtype.kind == "i":
        pytest.skip("the logarithm of an integer sum is rounded: nothing to compare")
    cases: list[tuple[tuple[int, ...], list[int] | None]] = [
        ((5, 7), [1]), ((5, 70), [0]), ((3, 4, 70), [0, 2]), ((3, 4, 5, 6), [1, 2]), ((2, 3, 4, 5), [0, 2, 3]),
        ((2, 3, 4, 5), [-1, 0]), ((4, 100), None), ((6,), [0]), ((), None), ((3, 0), [1]), ((0, 3), [1]), ((3, 0, 4), [1]),
        ((2, 33, 100), [1]), ((5, 1), [1]),
    ]  # fmt: skip
    for number, (shape, axes) in enumerate(cases):
        x = np.abs(numbers(dtype, shape)) if name == "LogSum" else numbers(dtype, shape)
        check_reduction(name, x, axes, number % 2, symbolic=number % 3 == 0)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_axes_of_any_shape(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=5)))
    axes = data.draw(st.lists(st.integers(-len(shape), len(shape) - 1), min_size=1, max_size=len(shape)))
    axes = list({axis % len(shape): axis for axis in axes}.values())
    name = data.draw(st.sampled_from(("Sum", "Mean", "Max", "LogSumExp")))
    check_reduction(name, numbers(F32, shape), axes, data.draw(st.integers(0, 1)), symbolic=data.draw(st.booleans()))


def check_of_transposed(x: Array, order: list[int], axes: list[int], *, symbolic: bool) -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=order),
        helper.make_node("ReduceSum", ["t", "axes"], ["y"], keepdims=0),
        helper.make_node("ReduceMax", ["t", "axes"], ["z"]),
    ]
    made = model(nodes, {"x": x}, {"y": x.dtype, "z": x.dtype}, constants={"axes": np.array(axes, np.int64)}, symbolic=symbolic)
    assert_native_agrees(made, {"x": x}, rtol=1e-5, atol=1e-5)


def test_axes_in_one_line_with_a_kept_axis_between_them() -> None:
    """In the transposed tensor batch and depth lie in one line; in the sums over pixels they do not."""
    for symbolic in (False, True):
        check_of_transposed(numbers(F32, (2, 7, 3, 40)), [0, 2, 1, 3], [0, 2, 3], symbolic=symbolic)
        check_of_transposed(numbers(F32, (2, 3, 5, 4, 6)), [0, 3, 1, 2, 4], [0, 2, 3, 4], symbolic=symbolic)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_axes_of_any_transposed_tensor(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=2, max_size=5)))
    order = data.draw(st.permutations(range(len(shape))))
    axes = sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    check_of_transposed(numbers(F32, shape), list(order), axes, symbolic=data.draw(st.booleans()))


@pytest.mark.parametrize("name", ["Max", "Min"])
@pytest.mark.parametrize("dtype", [F32, F64, F16, I32, U8, BOOL], ids=str)
def test_extremes_of_special_values(name: str, dtype: np.dtype[Any]) -> None:
    x = samples(dtype, (6, 50))
    check_reduction(name, x, [1], 1)
    check_reduction(name, x, [0], 1)


def test_the_log_of_a_sum_of_infinities() -> None:
    x = numbers(F32, (6, 20))
    x[0, 3], x[1, 4], x[2], x[3, 1], x[4] = np.inf, -np.inf, -np.inf, np.nan, np.inf
    check_reduction("LogSumExp", x, [1], 0)


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("dtype", [F32, F64, F16], ids=str)
@pytest.mark.parametrize("opset", [11, 13])
def test_softmax_along_every_axis(name: str, dtype: np.dtype[Any], opset: int) -> None:
    cases = [((5, 130), 1), ((5, 130), 0), ((2, 3, 40), 1), ((2, 3, 4, 5), 2), ((7,), 0), ((3, 1), 1), ((2, 0), 1), ((0, 4), 1)]
    for number, (shape, axis) in enumerate([*cases, ((1, 64, 3), -2)]):
        x = (numbers(dtype, shape) * 4).astype(dtype)
        if x.size > 20:
            x.reshape(-1)[:3] = (-np.inf, 1, np.nan if number % 2 else 2)
        node = helper.make_node(name, ["x"], ["y"], axis=axis)
        made = model([node], {"x": x}, {"y": dtype}, opset=opset, symbolic=number % 2 == 0)
        assert_native_agrees(made, {"x": x}, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("dtype", [F32, F64, F16, I32, U8], ids=str)
def test_places_of_extremes(name: str, last: int, dtype: np.dtype[Any]) -> None:
    for number, (shape, axis) in enumerate([((5, 130), 1), ((5, 130), 0), ((2, 3, 40), 1), ((7,), 0), ((3, 1), -1)]):
        x = np.round(np.abs(numbers(dtype, shape).astype(np.float64)) * 2).astype(dtype)
        if dtype.kind == "f" and number < 2:
            x.reshape(-1)[[7, 9, 300]] = np.nan
        node = helper.make_node(name, ["x"], ["y"], axis=axis, keepdims=number % 2, select_last_index=last)
        for symbolic in (False, True):
            assert_native_agrees(model([node], {"x": x}, {"y": I64}, symbolic=symbolic), {"x": x})


def labels(made: Any) -> list[str]:
    _, compiled = compile_native(made.SerializeToString())
    return [step.label for step in compiled.lowered.steps if isinstance(step, KernelStep)]


@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("escapes", [False, True])
@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_elementwise_neighbours_share_the_kernel_of_a_softmax(axis: int, escapes: bool, dtype: np.dtype[Any]) -> None:
    x, r = numbers(dtype, (4, 6, 50)), numbers(dtype, (4, 6, 50), 1)
    nodes = [
        helper.make_node("Add", ["x", "r"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Mul", ["b", "x"], ["c"]),
        helper.make_node("Softmax", ["c"], ["d"], axis=axis),
        helper.make_node("Mul", ["d", "r"], ["e"]),
        helper.make_node("Add", ["e", "x"], ["y"]),
    ]
    outputs = {"y": dtype, "c": dtype, "a": dtype} if escapes else {"y": dtype}
    made = model(nodes, {"x": x, "r": r}, outputs)
    tolerance = 4 * TOLERANCE[dtype]
    assert_native_agrees(made, {"x": x, "r": r}, rtol=tolerance, atol=tolerance)
    assert labels(made) == ["Add+Tanh+Mul+Softmax+Mul+Add"]


def test_elementwise_neighbours_share_the_kernel_of_a_reduction() -> None:
    x, r, s = numbers(F32, (5, 70)), numbers(F32, (5, 70), 1), numbers(F32, (5,), 2)
    nodes = [
        helper.make_node("Sub", ["x", "r"], ["a"]),
        helper.make_node("ReduceSumSquare", ["a", "axes"], ["b"], keepdims=0),
        helper.make_node("Sqrt", ["b"], ["c"]),
        helper.make_node("Mul", ["c", "s"], ["y"]),
    ]
    made = model(nodes, {"x": x, "r": r, "s": s}, {"y": F32, "a": F32}, constants={"axes": np.array([1])})
    assert_native_agrees(made, {"x": x, "r": r, "s": s}, rtol=1e-4)
    assert labels(made) == ["Sub+ReduceSumSquare+Sqrt+Mul"]


def test_a_group_that_something_in_between_needs_stays_on_its_own() -> None:
    x = numbers(F32, (4, 8))
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("ReduceMax", ["a", "axes"], ["m"], keepdims=1),
        helper.make_node("ReduceMin", ["a", "axes"], ["n"], keepdims=1),
        helper.make_node("Sub", ["m", "n"], ["y"]),
    ]
    made = model(nodes, {"x": x}, {"y": F32}, constants={"axes": np.array([1])})
    assert_native_agrees(made, {"x": x})


def test_a_scale_that_changes_inside_the_reduced_axes_takes_several_kernels() -> None:
    x, bias = numbers(F32, (3, 5, 40)), numbers(F32, (5, 1), 1)
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("ReduceMean", ["a", "axes"], ["y"])]
    made = model(nodes, {"x": x, "b": bias}, {"y": F32}, constants={"axes": np.array([1, 2])})
    assert_native_agrees(made, {"x": x, "b": bias}, rtol=1e-4)


def test_results_have_the_same_bits_on_any_number_of_threads() -> None:
    x = numbers(F32, (64, 3000))
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Softmax", ["e"], ["y"]),
        helper.make_node("ReduceSum", ["y", "axes"], ["s"]),
    ]
    content = model(nodes, {"x": x}, {"s": F32, "y": F32}, constants={"axes": np.array([0])}).SerializeToString()
    results = []
    for workers in (1, 2, 4):
        graph, compiled = compile_native(content, workers=workers)
        results.append([array.tobytes() for array in run_native(graph, compiled, {"x": x})])
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    ("shape", "axes"), [((3, 400_003), [1]), ((300_001, 20), [0]), ((2, 150_000, 17), [1]), ((40, 3, 9_001), [0, 2])], ids=str
)
def test_long_sums_lose_no_more_than_a_few_last_bits(shape: tuple[int, ...], axes: list[int]) -> None:
    x = np.random.default_rng(1).random(shape, np.float32) + np.float32(1)
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=1)
    made = model([node], {"x": x}, {"y": F32}, constants={"axes": np.array(axes, np.int64)})
    graph, compiled = compile_native(made)
    (result,) = run_native(graph, compiled, {"x": x})
    np.testing.assert_allclose(result, x.sum(tuple(axes), np.float64, keepdims=True), rtol=4e-6)
