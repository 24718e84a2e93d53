"""Products of bytes against the NumPy meaning of their operators: all signs, zero points, sizes and targets, to the bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from guarded import guarded
from lowering_case import model
from native_support import assert_native_agrees, compile_native, host_nodes, run_native
from sardonyx.ir.tensor import Array
from sardonyx.kernel.loops import LoopKernel
from sardonyx.kernel.matmul.int8 import Int8MatMulKernel, takes_pairs
from sardonyx.program.steps import KernelStep
from targets import names_here, of_sessions

BYTES = st.sampled_from([np.uint8, np.int8])
SIZES = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 70, 129])
KINDS = st.sampled_from(["none", "zero", "one", "each"])
TARGETS = st.sampled_from(names_here())


def integers(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...], extreme: bool) -> Array:
    limits = np.iinfo(dtype)
    if extreme:
        return np.asarray(rng.choice(np.array([limits.min, limits.max], dtype), shape))
    return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def zero_point(rng: np.random.Generator, dtype: Any, kind: str, count: int) -> Array | None:
    if kind == "none":
        return None
    if kind == "zero":
        return np.zeros((), dtype)
    return integers(rng, dtype, (count,) if kind == "each" else (1,), False)


def build(
    name: str, inputs: Mapping[str, Array | None], constants: set[str], out: Any, domain: str = "", **attrs: Any
) -> tuple[Any, dict[str, Array]]:
    """A model of one node; some of its inputs are constants. And the feeds, at the edge of memory."""
    present = {key: array for key, array in inputs.items() if array is not None}
    feeds = {key: guarded(array) for key, array in present.items() if key not in constants}
    names = [key if array is not None else "" for key, array in inputs.items()]
    node = helper.make_node(name, names, ["y"], domain=domain, **attrs)
    fixed = {key: array for key, array in present.items() if key in constants}
    return model([node], feeds, {"y": out}, constants=fixed, symbolic=bool(attrs.pop("symbolic", False)), opset=21), feeds


@settings(max_examples=100, deadline=None)
@given(
    st.tuples(BYTES, BYTES), st.tuples(SIZES, SIZES, SIZES), st.tuples(KINDS, KINDS), st.booleans(), st.sampled_from([0, 1, 2]),
    st.booleans(), TARGETS, st.integers(0, 99),
)  # fmt: skip
def test_sums_are_exact(
    types: tuple[Any, Any],
    sizes: tuple[int, int, int],
    kinds: tuple[str, str],
    constant: bool,
    batch: int,
    extreme: bool,
    target: str,
    seed: int,
) -> None:
    (rows, depth, columns), rng = sizes, np.random.default_rng(seed)
    front = (2, 3)[:batch]
    inputs = {
        "a": integers(rng, types[0], (*front, rows, depth), extreme),
        "b": integers(rng, types[1], (depth, columns) if constant else (*front, depth, columns), extreme),
        "az": zero_point(rng, types[0], kinds[0], rows),
        "bz": zero_point(rng, types[1], kinds[1], columns),
    }
    made, feeds = build("MatMulInteger", inputs, {"b", "bz", "az"} if constant else set(), np.int32)
    assert_native_agrees(made, feeds, target=target)


@pytest.mark.parametrize("target", names_here())
@pytest.mark.parametrize("types", [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8), (np.int8, np.uint8)])
def test_the_largest_sums_do_not_saturate(target: str, types: tuple[Any, Any]) -> None:
    rng = np.random.default_rng(0)
    for low_a in (False, True):
        for low_b in (False, True):
            a, b = (np.iinfo(kind).min if low else np.iinfo(kind).max for kind, low in zip(types, (low_a, low_b)))
            inputs = {
                "a": np.full((9, 515), a, types[0]),
                "b": np.full((515, 70), b, types[1]),
                "az": np.array(0, types[0]),
                "bz": integers(rng, types[1], (70,), False),
            }
            made, feeds = build("MatMulInteger", inputs, {"b", "bz"}, np.int32)
            assert_native_agrees(made, feeds, target=target)


@pytest.mark.parametrize("shapes", [((5,), (5, 9)), ((6, 5), (5,)), ((5,), (5,)), ((2, 6, 5), (5,)), ((5,), (2, 5, 9))])
@pytest.mark.parametrize("constant", [False, True])
def test_vectors_are_rows_and_columns(shapes: tuple[tuple[int, ...], tuple[int, ...]], constant: bool) -> None:
    rng = np.random.default_rng(0)
    inputs = {
        "a": integers(rng, np.uint8, shapes[0], False),
        "b": integers(rng, np.uint8, shapes[1], False),
        "az": np.array(7, np.uint8),
        "bz": np.array(9, np.uint8),
    }
    made, feeds = build("MatMulInteger", inputs, {"b", "bz"} if constant else set(), np.int32)
    assert_native_agrees(made, feeds)


def test_a_transposed_operand_is_packed_along_its_depth_and_read_along_its_rows() -> None:
    rng = np.random.default_rng(0)
    feeds = {"a": integers(rng, np.uint8, (2, 31, 6), False), "b": integers(rng, np.uint8, (2, 40, 31), False)}
    feeds["bz"] = np.array(3, np.uint8)
    nodes = [
        helper.make_node("Transpose", ["a"], ["u"], perm=[0, 2, 1]),
        helper.make_node("Transpose", ["b"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMulInteger", ["u", "t", "", "bz"], ["y"]),
    ]
    for symbolic in (False, True):
        assert_native_agrees(model(nodes, feeds, {"y": np.int32}, symbolic=symbolic, opset=21), feeds)


@settings(max_examples=50, deadline=None)
@given(
    st.tuples(BYTES, BYTES, BYTES), st.tuples(SIZES, SIZES, SIZES), st.booleans(), st.booleans(),
    st.sampled_from([1e-4, 0.02, 3.0]), TARGETS, st.integers(0, 99),
)  # fmt: skip
def test_requantized_products(
    types: tuple[Any, Any, Any],
    sizes: tuple[int, int, int],
    constant: bool,
    columnwise: bool,
    scale: float,
    target: str,
    seed: int,
) -> None:
    (rows, depth, columns), rng = sizes, np.random.default_rng(seed)
    each = columns if columnwise else 1
    inputs = {
        "a": integers(rng, types[0], (rows, depth), False),
        "as": np.array(0.013, np.float32),
        "az": integers(rng, types[0], (), False),
        "b": integers(rng, types[1], (depth, columns), False),
        "bs": (rng.random(each) * scale + 1e-5).astype(np.float32),
        "bz": integers(rng, types[1], (each,), False),
        "ys": np.array(0.5, np.float32),
        "yz": integers(rng, types[2], (), False),
    }
    made, feeds = build("QLinearMatMul", inputs, set(inputs) - {"a"} if constant else set(), types[2])
    assert_native_agrees(made, feeds, target=target)


@settings(max_examples=50, deadline=None)
@given(
    st.tuples(BYTES, BYTES), st.tuples(SIZES, SIZES, SIZES), st.booleans(), st.booleans(), st.booleans(),
    st.sampled_from(["none", "column", "full"]), st.sampled_from([None, np.uint8, np.int8]), TARGETS, st.integers(0, 99),
)  # fmt: skip
def test_gemm_of_bytes(
    types: tuple[Any, Any],
    sizes: tuple[int, int, int],
    constant: bool,
    columnwise: bool,
    transposed: bool,
    bias: str,
    out: Any,
    target: str,
    seed: int,
) -> None:
    (rows, depth, columns), rng = sizes, np.random.default_rng(seed)
    each = columns if columnwise else 1
    shape = (columns,) if bias == "column" else (rows, columns)
    inputs = {
        "a": integers(rng, types[0], (depth, rows) if transposed else (rows, depth), False),
        "as": np.array(0.013, np.float32),
        "az": integers(rng, types[0], (), False),
        "b": integers(rng, types[1], (columns, depth) if transposed else (depth, columns), False),
        "bs": (rng.random(each) * 0.1 + 1e-5).astype(np.float32),
        "bz": integers(rng, types[1], (each,), False),
        "c": None if bias == "none" else rng.integers(-9999, 9999, shape).astype(np.int32),
        "ys": None if out is None else np.array(0.5, np.float32),
        "yz": None if out is None else integers(rng, out, (), False),
    }
    attrs = {"transA": int(transposed), "transB": int(transposed), "alpha": 0.75 if transposed else 1.0}
    fixed = set(inputs) - {"a"} if constant else set()
    made, feeds = build("QGemm", inputs, fixed, out or np.float32, "com.microsoft", **attrs)
    assert_native_agrees(made, feeds, target=target, rtol=1e-6)


@settings(max_examples=50, deadline=None)
@given(
    st.tuples(BYTES, BYTES), st.tuples(SIZES, SIZES, SIZES), st.tuples(KINDS, KINDS), st.booleans(), st.booleans(), st.booleans(),
    st.sampled_from([np.float32, np.float16]), TARGETS, st.integers(0, 99),
)  # fmt: skip
def test_products_in_floats(
    types: tuple[Any, Any],
    sizes: tuple[int, int, int],
    kinds: tuple[str, str],
    constant: bool,
    columnwise: bool,
    bias: bool,
    out: Any,
    target: str,
    seed: int,
) -> None:
    (rows, depth, columns), rng = sizes, np.random.default_rng(seed)
    inputs = {
        "a": integers(rng, types[0], (2, rows, depth), False),
        "b": integers(rng, types[1], (depth, columns), False),
        "as": np.array(0.013, out),
        "bs": (rng.random(columns if columnwise else 1) * 0.01 + 1e-3).astype(out),
        "az": zero_point(rng, types[0], kinds[0], rows),
        "bz": zero_point(rng, types[1], kinds[1], columns),
        "bias": rng.standard_normal(columns).astype(out) if bias else None,
    }
    made, feeds = build("MatMulIntegerToFloat", inputs, {"b", "bs", "bz"} if constant else set(), out, "com.microsoft")
    tolerance = 1e-3 if out is np.float16 else 2e-6
    if out is np.float16:
        target = ""  # x86-64-v2 has no conversion of float16
    assert_native_agrees(made, feeds, target=target, rtol=tolerance, atol=tolerance)


def test_what_follows_is_computed_in_the_same_kernel() -> None:
    rng = np.random.default_rng(0)
    constants = {
        "b": integers(rng, np.int8, (40, 24), False),
        "bs": rng.random(24).astype(np.float32) * np.float32(0.01),
        "bz": np.zeros(24, np.int8),
        "s": np.array(0.02, np.float32),
        "z": np.array(3, np.uint8),
        "bias": rng.random(24).astype(np.float32),
    }
    feeds = {"a": integers(rng, np.uint8, (7, 40), False)}
    nodes = [
        helper.make_node("MatMulIntegerToFloat", ["a", "b", "s", "bs", "z", "bz", "bias"], ["m"], domain="com.microsoft"),
        helper.make_node("Relu", ["m"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["y"]),
    ]
    made = model(nodes, feeds, {"y": np.uint8}, constants=constants, opset=21)
    assert_native_agrees(made, feeds)
    _, compiled = compile_native(made.SerializeToString())
    kernels = [step.kernel for step in compiled.lowered.steps if isinstance(step, KernelStep)]
    widened = [kernel for kernel in kernels if isinstance(kernel, LoopKernel)]
    assert [type(kernel) for kernel in kernels if kernel not in widened] == [Int8MatMulKernel]
    assert len(widened) == takes_pairs(of_sessions())


@pytest.mark.parametrize("name", names_here())
def test_bits_do_not_depend_on_the_number_of_workers(name: str) -> None:
    rng = np.random.default_rng(0)
    feeds = {"a": integers(rng, np.int8, (2, 150, 203), False), "b": integers(rng, np.uint8, (2, 203, 190), False)}
    feeds |= {"az": np.array(3, np.int8), "bz": integers(rng, np.uint8, (190,), False)}
    made = model([helper.make_node("MatMulInteger", list(feeds), ["y"])], feeds, {"y": np.int32}, opset=21)
    results = []
    for workers in (1, 2, 3):
        graph, compiled = compile_native(made.SerializeToString(), workers, name)
        assert not host_nodes(compiled)
        results.append(run_native(graph, compiled, feeds)[0].tobytes())
    assert results[0] == results[1] == results[2]


@settings(max_examples=40, deadline=None)
@given(
    BYTES, st.tuples(SIZES, SIZES, SIZES), KINDS, st.booleans(), st.booleans(), st.booleans(), TARGETS, st.integers(0, 99)
)  # fmt: skip
def test_products_of_what_is_quantized_by_its_range(
    kind: Any, sizes: tuple[int, int, int], zero: str, constant: bool, columnwise: bool, bias: bool, target: str, seed: int
) -> None:
    (rows, depth, columns), rng = sizes, np.random.default_rng(seed)
    inputs = {
        "a": (rng.standard_normal((2, rows, depth)) * 3 + seed % 5).astype(np.float32),
        "b": integers(rng, kind, (depth, columns), False),
        "bs": (rng.random(columns if columnwise else 1) * 0.01 + 1e-3).astype(np.float32),
        "bz": zero_point(rng, kind, zero, columns),
        "bias": rng.standard_normal(columns).astype(np.float32) if bias else None,
    }
    made, feeds = build("DynamicQuantizeMatMul", inputs, {"b", "bs", "bz"} if constant else set(), np.float32, "com.microsoft")
    assert_native_agrees(made, feeds, target=target, rtol=1e-5, atol=1e-5)
