"""Products in parts of the depth: any sizes, addends and orders of the weights against NumPy, on a machine with a small cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from guarded import guarded
from native_support import compile_native, host_nodes, run_native
from sardonyx.compile import assemble
from sardonyx.compile.assemble import Compiled
from sardonyx.ir.graph import Graph
from sardonyx.ir.tensor import Array
from sardonyx.kernel.matmul.matmul import MatMulKernel
from sardonyx.program.steps import KernelStep
from sardonyx.target.target import Caches, Target
from targets import here, library_for

SMALL = Caches(l1d=8 << 10, l2=32 << 10, l3=1 << 20)


def machine(*, whole: bool = True) -> Target:
    """This one with small caches, which a strip of two vectors fills from a depth of 256 on."""
    return replace(here(16), has_whole_vectors=whole, caches=SMALL)


@contextmanager
def compiling_for(target: Target) -> Iterator[None]:
    with patch.object(assemble, "library", lambda *_: library_for(target)):
        yield


def numbers(seed: int, *shape: int) -> Array:
    found: Array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return found


@cache
def gemm(rows: int | str, depth: int, columns: int, *, turned: bool = False, whole: bool = True) -> tuple[Graph, Compiled]:
    """relu(0.5 a w + 2 c), compiled for `machine`."""
    weights = numbers(1, depth, columns)
    node = helper.make_node("Gemm", ["a", "w", "c"], ["g"], alpha=0.5, beta=2.0, transB=int(turned))
    graph = helper.make_graph(
        [node, helper.make_node("Relu", ["g"], ["y"])],
        "product",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, [rows, depth])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, columns])],
        [
            numpy_helper.from_array(weights.T.copy() if turned else weights, "w"),
            numpy_helper.from_array(numbers(2, columns), "c"),
        ],
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    with compiling_for(machine(whole=whole)):
        return compile_native(content)


def parts(compiled: Compiled) -> int:
    """How many products a program has."""
    return sum(isinstance(step, KernelStep) and isinstance(step.kernel, MatMulKernel) for step in compiled.lowered.steps)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from((1, 2, 13, 29, 60)),
    st.sampled_from((129, 300, 513, 1100)),
    st.sampled_from((5, 33, 96)),
    st.booleans(),
    st.booleans(),
)
def test_parts_add_up_to_the_product(rows: int, depth: int, columns: int, named: bool, turned: bool) -> None:
    graph, compiled = gemm("M" if named else rows, depth, columns, turned=turned)
    assert not host_nodes(compiled)
    a = numbers(rows, rows, depth)
    (actual,) = run_native(graph, compiled, {"a": guarded(a)})
    expected = np.maximum(a.astype(np.float64) @ numbers(1, depth, columns) / 2 + 2 * numbers(2, columns), 0)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-3)


def test_strips_that_do_not_stay_in_the_second_cache_are_cut() -> None:
    assert parts(gemm("M", 1100, 96)[1]) > parts(gemm("M", 300, 96)[1]) > 1
    assert parts(gemm(60, 300, 96)[1]) > 1


@pytest.mark.parametrize(("rows", "depth", "whole"), [(60, 60, True), (3, 1100, True), (60, 1100, False)])
def test_other_products_are_left_whole(rows: int, depth: int, whole: bool) -> None:
    """Strips that stay, a few rows, machines whose last cache gives what they multiply."""
    assert parts(gemm(rows, depth, 96, whole=whole)[1]) == 1


def test_no_rows_and_infinities_are_those_of_the_product() -> None:
    graph, compiled = gemm("M", 300, 96)
    (nothing,) = run_native(graph, compiled, {"a": np.zeros((0, 300), np.float32)})
    assert nothing.shape == (0, 96)
    a = numbers(0, 4, 300)
    a[1, 299], a[2, 0] = np.inf, np.nan
    (actual,) = run_native(graph, compiled, {"a": a})
    with np.errstate(invalid="ignore"):
        expected = np.maximum(a @ numbers(1, 300, 96) / 2 + 2 * numbers(2, 96), 0)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-3)
