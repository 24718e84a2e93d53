"""Many short rows are reduced side by side, each in a lane of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import sardonyx as sx
from guarded_session import assert_run_agrees, guarded_memory
from lowering_case import F16, F32, F64, TOLERANCE, Array, model
from native_support import assert_native_agrees, compile_native
from sardonyx.kernel.loops import LoopKernel
from sardonyx.program.steps import KernelStep

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

REDUCTIONS = tuple(f"Reduce{name}" for name in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSumExp", "SumSquare"))
RULES = (*REDUCTIONS, "ArgMax", "ArgMin", "LogSoftmax", "Hardmax")
TYPES = [F32, F64, F16, np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.uint8)]


def _drawn(data: st.DataObject, dtype: np.dtype[Any]) -> Array:
    outer = data.draw(st.sampled_from([(64,), (65,), (1000,), (8, 9), (3, 1, 50)]))
    inner = data.draw(st.sampled_from([(2,), (3,), (10,), (16,), (4, 4), (2, 1, 5)]))
    x = np.asarray(np.random.default_rng(data.draw(st.integers(0, 99))).standard_normal((*outer, *inner)) * 2)
    found: Array = (np.abs(x) if dtype.kind == "u" else x).astype(dtype)
    if dtype.kind == "f" and data.draw(st.booleans()):
        for value in (np.nan, np.inf, -np.inf):
            found[(data.draw(st.integers(0, outer[0] - 1)), *(0 for _ in found.shape[1:]))] = value
    return found


@given(
    data=st.data(), dtype=st.sampled_from(TYPES), name=st.sampled_from((*REDUCTIONS, "ArgMax", "ArgMin", "LogSoftmax", "Hardmax"))
)
@settings(max_examples=80, deadline=None)
def test_any_rule_over_short_rows(data: st.DataObject, dtype: np.dtype[Any], name: str) -> None:
    x = _drawn(data, dtype)
    attributes: dict[str, Any] = {}
    constants = {}
    if name in REDUCTIONS:
        trailing = x.ndim - data.draw(st.integers(1, x.ndim - 1))
        constants["axes"] = np.arange(trailing, x.ndim)
        attributes["keepdims"] = data.draw(st.integers(0, 1))
        if dtype.kind in "iu" and name in ("ReduceL2", "ReduceLogSumExp"):
            name = "ReduceMax"  # roots and logarithms of integers are rounded: nothing to compare
        if dtype == np.uint8:
            name = "ReduceMin"  # ONNX has no sums of bytes
    elif name.startswith("Arg"):
        attributes = {"axis": -1, "select_last_index": data.draw(st.integers(0, 1))}
    else:
        x = x if dtype.kind == "f" else x.astype(np.float32)
    result = np.dtype(np.int64) if name.startswith("Arg") else x.dtype
    made = model([helper.make_node(name, ["x", *constants], ["y"], **attributes)], {"x": x}, {"y": result}, constants=constants)
    tolerance = TOLERANCE.get(x.dtype, 0)
    assert_native_agrees(made, {"x": x}, rtol=tolerance, atol=tolerance)
    session, reference = (
        sx.InferenceSession(made, providers=[provider])
        for provider in ("CPUExecutionProvider", "SardonyxReferenceExecutionProvider")
    )
    with guarded_memory(at_start=data.draw(st.booleans())) as guard:
        assert_run_agrees(session, reference, guard, {"x": x}, tolerance, tolerance)


def test_neighbours_are_part_of_the_kernel() -> None:
    x = np.random.default_rng(0).standard_normal((200, 10), np.float32)
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("ReduceSum", ["a", "axes"], ["s"], keepdims=0),
        helper.make_node("Sqrt", ["s"], ["y"]),
    ]
    made = model(nodes, {"x": x}, {"y": F32}, constants={"axes": np.array([1])})
    assert_native_agrees(made, {"x": x}, rtol=1e-5, atol=1e-5)
    _, compiled = compile_native(made)
    kernels = [step.kernel for step in compiled.lowered.steps if isinstance(step, KernelStep)]
    assert [kernel.reduce for kernel in kernels if isinstance(kernel, LoopKernel)] == ["middle"]


def test_rows_of_a_transposed_matrix() -> None:
    x = np.random.default_rng(0).standard_normal((7, 300), np.float32)
    nodes = [helper.make_node("Transpose", ["x"], ["t"]), helper.make_node("ArgMax", ["t"], ["y"], axis=1)]
    made = model(nodes, {"x": x}, {"y": np.dtype(np.int64)})
    assert_native_agrees(made, {"x": x}, rtol=0, atol=0)
