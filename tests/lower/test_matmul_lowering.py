"""MatMul, Gemm and their fused relatives as native steps, against the NumPy meaning of the operators."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from guarded import guarded
from model_text import model as text_model
from native_support import assert_native_agrees, compile_native, host_nodes, run_native, run_reference
from sardonyx.compile import assemble
from sardonyx.compile.assemble import Compiled
from sardonyx.ir.graph import Graph
from sardonyx.ir.tensor import Array
from sardonyx.kernel.matmul.dot import DotKernel
from sardonyx.kernel.matmul.gemv import GemvKernel
from sardonyx.kernel.matmul.matmul import MatMulKernel, waits_for_strips
from sardonyx.kernel.matmul.pack import PackKernel
from sardonyx.program.steps import KernelStep, Storage
from sardonyx.runtime.native_core import SizeConflict
from targets import here, library_for

CODES = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint32": TensorProto.UINT32,
    "uint64": TensorProto.UINT64,
}
TOLERANCE = {"float32": 1e-4, "float64": 1e-11, "float16": 4e-3, "bfloat16": 3e-2}


def model(
    nodes: list[Any],
    feeds: dict[str, tuple[str, list[Any]]],
    constants: dict[str, Array],
    outputs: dict[str, str],
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info(name, CODES[kind], shape) for name, (kind, shape) in feeds.items()],
        [helper.make_tensor_value_info(name, CODES[kind], None) for name, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    return content


def numbers(seed: int, shape: tuple[int, ...], kind: str = "float32") -> Array:
    rng = np.random.default_rng(seed)
    if "int" in kind:
        return rng.integers(0, 1000, shape).astype(kind)
    dtype = ml_dtypes.bfloat16 if kind == "bfloat16" else np.dtype(kind)
    return rng.standard_normal(shape).astype(dtype)


def product_model(a: Array, b: Array, *, constant: bool, kind: str = "float32", symbolic: bool = False) -> bytes:
    a_shape: list[Any] = [f"a{axis}" for axis in range(a.ndim - 1)] + [a.shape[-1]] if symbolic else list(a.shape)
    feeds = {"a": (kind, a_shape)}
    if not constant:
        feeds["b"] = (kind, list(b.shape))
    return model([helper.make_node("MatMul", ["a", "b"], ["y"])], feeds, {"b": b} if constant else {}, {"y": kind})


def kernels(compiled: Compiled) -> list[type]:
    return [type(step.kernel) for step in compiled.lowered.steps if isinstance(step, KernelStep)]


SHAPES = [
    ((5, 7), (7, 9)),
    ((1, 64), (64, 128)),
    ((50, 300), (300, 300)),
    ((3,), (3, 4)),
    ((4, 3), (3,)),
    ((3,), (3,)),
    ((2, 3), (4, 3, 5)),
    ((3,), (4, 3, 5)),
    ((4, 2, 3), (3,)),
    ((2, 3, 17, 5), (5, 33)),
    ((2, 3, 17, 5), (2, 3, 5, 33)),
    ((2, 1, 17, 5), (3, 5, 33)),
    ((6, 1, 5), (6, 5, 33)),
    ((1, 17, 5), (3, 5, 65)),
    ((0, 5), (5, 3)),
    ((4, 0), (0, 3)),
    ((4, 5), (5, 0)),
    ((0, 4, 5), (5, 3)),
    ((3, 200), (200, 2)),
    ((100, 300), (300, 1)),
    ((2, 100, 30), (2, 30, 1)),
]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_products_of_all_ranks(shapes: tuple[tuple[int, ...], tuple[int, ...]], constant: bool, symbolic: bool) -> None:
    a, b = numbers(1, shapes[0]), numbers(2, shapes[1])
    content = product_model(a, b, constant=constant, symbolic=symbolic)
    assert_native_agrees(content, {"a": a} if constant else {"a": a, "b": b}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("kind", CODES)
def test_products_of_all_types(kind: str, constant: bool) -> None:
    tolerance = TOLERANCE.get(kind, 0.0)
    for shapes in (((9, 20), (20, 37)), ((2, 3, 20), (2, 20, 70)), ((1, 33), (33, 1)), ((40, 9), (9, 40))):
        a, b = numbers(1, shapes[0], kind), numbers(2, shapes[1], kind)
        content = product_model(a, b, constant=constant, kind=kind)
        assert_native_agrees(content, {"a": a} if constant else {"a": a, "b": b}, rtol=tolerance, atol=tolerance)


def tiled(rows: Any, depth: int, columns: int, lanes: int = 8) -> tuple[Graph, Compiled, Array, MatMulKernel, int]:
    """A product with a constant for 16 registers, its constant and kernel, and the blocks of a group."""
    b = numbers(2, (depth, columns))
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    content = model([node], {"a": ("float32", [rows, depth])}, {"b": b}, {"y": "float32"})
    graph, compiled = compile_native(content, target=here(lanes).name)
    (step,) = (step for step in compiled.lowered.steps if isinstance(step, KernelStep))
    assert isinstance(step.kernel, MatMulKernel)
    group = step.arguments[step.kernel.arguments.position("group")]
    assert isinstance(group, int)
    return graph, compiled, b, step.kernel, group


def test_strips_from_beyond_the_second_cache_pass_once_and_are_fetched() -> None:
    caches = here(8).caches
    depth, columns = 1100, caches.l2 // 2 // 4400 + 37  # in blocks of the depth, with a last strip that is not full
    graph, compiled, b, kernel, group = tiled("M", depth, columns)
    assert kernel.fetches
    assert kernel.deep
    assert group == max(caches.l3 // 8, caches.l2 // 2) // (4 * depth * kernel.rows)
    for rows in (1, 3, 4, 7, 40):
        a = numbers(rows, (rows, depth))
        (actual,) = run_native(graph, compiled, {"a": a})
        np.testing.assert_allclose(actual, a @ b, rtol=1e-4, atol=1e-3)


def test_strips_that_stay_in_the_second_cache_are_not_fetched() -> None:
    _, _, _, kernel, group = tiled(50, 200, 200)
    assert not kernel.fetches
    assert group == here(8).caches.l2 // 2 // (4 * 200 * kernel.rows)


def test_few_rows_take_no_longer_than_their_strip_does_to_come() -> None:
    _, _, _, kernel, _ = tiled(3, 1200, 600)
    assert not kernel.fetches
    _, _, _, kernel, _ = tiled(4, 1200, 600)
    assert kernel.fetches


def test_tiles_of_many_sums_wait_for_strips_only_if_they_multiply_faster_than_these_come() -> None:
    _, _, _, kernel, _ = tiled(50, 1200, 600, lanes=16)
    assert kernel.fetches == waits_for_strips(here(16), kernel.vectors)


@cache
def symbolic_program() -> tuple[bytes, Graph, Compiled]:
    """One compilation for every shape: all sizes are symbols."""
    feeds = {"a": ("float32", ["B", "M", "K"]), "b": ("float32", ["B", "K", "N"])}
    content = model([helper.make_node("MatMul", ["a", "b"], ["y"])], feeds, {}, {"y": "float32"})
    return content, *compile_native(content)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3), st.integers(0, 60), st.integers(0, 90), st.integers(0, 140))
def test_one_compilation_serves_all_shapes(batch: int, rows: int, depth: int, columns: int) -> None:
    _, graph, compiled = symbolic_program()
    a, b = numbers(rows, (batch, rows, depth)), numbers(columns, (batch, depth, columns))
    (actual,) = run_native(graph, compiled, {"a": a, "b": b})
    np.testing.assert_allclose(actual, a @ b, rtol=1e-4, atol=1e-4)


def test_sizes_that_do_not_fit_are_noticed_before_anything_is_read() -> None:
    feeds = {"a": ("float32", ["M", "K"]), "b": ("float32", ["L", "N"]), "c": ("float32", ["C"])}
    content = model([helper.make_node("Gemm", ["a", "b", "c"], ["y"])], feeds, {}, {"y": "float32"})
    graph, compiled = compile_native(content)
    for depth, addends in ((5, 7), (4, 6)):
        values = {"a": numbers(1, (3, 4)), "b": numbers(2, (depth, 7)), "c": numbers(3, (addends,))}
        with pytest.raises(SizeConflict):
            run_native(graph, compiled, values)
    values = {"a": numbers(1, (3, 4)), "b": numbers(2, (4, 7)), "c": numbers(3, (1,))}
    assert_native_agrees(content, values, rtol=1e-4, atol=1e-4)


@cache
def transposed_program() -> tuple[Graph, Compiled]:
    feeds = {"a": ("float32", ["B", "M", "K"]), "b": ("float32", ["B", "N", "K"])}
    node = helper.make_node("FusedMatMul", ["a", "b"], ["y"], domain="com.microsoft", transB=1, alpha=0.5)
    return compile_native(model([node], feeds, {}, {"y": "float32"}))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3), st.integers(0, 30), st.integers(0, 90), st.integers(0, 140))
def test_a_transposed_operand_is_read_where_it_lies(batch: int, rows: int, depth: int, columns: int) -> None:
    graph, compiled = transposed_program()
    assert kernels(compiled) == [PackKernel, MatMulKernel, DotKernel]
    a, b = numbers(rows, (batch, rows, depth)), numbers(columns, (batch, columns, depth))
    (actual,) = run_native(graph, compiled, {"a": a, "b": b})
    np.testing.assert_allclose(actual, 0.5 * (a @ np.swapaxes(b, 1, 2)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "expected"),
    [
        (1, 30, 50, True),
        (3, 30, 50, False),
        (3, 4096, 2100, True),
        (5, 4096, 2100, False),
        ("M", 256, 256, True),
        ("M", "K", 256, False),
    ],
)
def test_rows_of_a_large_computed_matrix_are_read_from_end_to_end_for_a_few_rows(
    rows: Any, depth: Any, columns: int, expected: bool
) -> None:
    feeds = {"a": ("float32", [rows, depth]), "b": ("float32", [depth, columns]), "c": ("float32", [columns])}
    nodes = [helper.make_node("MatMul", ["a", "b"], ["p"]), helper.make_node("Add", ["p", "c"], ["y"])]
    content = model(nodes, feeds, {}, {"y": "float32"})
    graph, compiled = compile_native(content)
    assert (GemvKernel in kernels(compiled)) == expected
    for count in (0, 1, 2, 3) if rows == "M" else (rows,):
        inner = 7 if depth == "K" else depth
        a, b, c = numbers(1, (count, inner)), numbers(2, (inner, columns)), numbers(3, (columns,))
        (actual,) = run_native(graph, compiled, {"a": a, "b": b, "c": c})
        np.testing.assert_allclose(actual, a @ b + c, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("addend", [None, (1,), (9,), (33, 1), (33, 9), ()], ids=str)
def test_gemm_with_every_transposition_and_addend(
    addend: tuple[int, ...] | None, trans_a: int, trans_b: int, constant: bool
) -> None:
    a = numbers(1, (20, 33) if trans_a else (33, 20))
    b = numbers(2, (9, 20) if trans_b else (20, 9))
    feeds = {"a": ("float32", list(a.shape))}
    constants: dict[str, Array] = {}
    values = {"a": a}
    names = ["a", "b"]
    others = {"b": b}
    if addend is not None:
        others["c"] = numbers(3, addend)
        names.append("c")
    for name, array in others.items():
        if constant:
            constants[name] = array
        else:
            feeds[name] = ("float32", list(array.shape))
            values[name] = array
    node = helper.make_node("Gemm", names, ["y"], alpha=0.5, beta=-2.0, transA=trans_a, transB=trans_b)
    assert_native_agrees(model([node], feeds, constants, {"y": "float32"}), values, rtol=1e-4, atol=1e-4)


def test_gemm_without_weight_for_its_addend_does_not_read_it() -> None:
    a, b = numbers(1, (3, 4)), numbers(2, (4, 5))
    c = np.full((3, 5), np.nan, np.float32)
    node = helper.make_node("Gemm", ["a", "b", "c"], ["y"], beta=0.0)
    content = model([node], {"a": ("float32", [3, 4])}, {"b": b, "c": c}, {"y": "float32"})
    assert_native_agrees(content, {"a": a})


@pytest.mark.parametrize("trans_batch", [0, 1])
@pytest.mark.parametrize("trans", [0, 1])
def test_fused_matmul_moves_axes_as_its_meaning_says(trans: int, trans_batch: int) -> None:
    a, b = numbers(1, (4, 4, 4, 4)), numbers(2, (4, 4, 4, 4))
    node = helper.make_node(
        "FusedMatMul",
        ["a", "b"],
        ["y"],
        domain="com.microsoft",
        transA=trans,
        transB=1 - trans,
        transBatchA=trans_batch,
        transBatchB=trans_batch,
        alpha=0.25,
    )
    feeds = {"a": ("float32", [4, 4, 4, 4]), "b": ("float32", [4, 4, 4, 4])}
    assert_native_agrees(model([node], feeds, {}, {"y": "float32"}), {"a": a, "b": b}, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activation", ["Relu", None])
def test_fused_gemm_has_its_activation_in_the_epilogue(activation: str | None) -> None:
    attributes = {"activation": activation} if activation else {}
    node = helper.make_node("FusedGemm", ["a", "b", "c"], ["y"], domain="com.microsoft", transB=1, **attributes)
    feeds = {"a": ("float32", [7, 20])}
    constants = {"b": numbers(2, (30, 20)), "c": numbers(3, (30,))}
    content = model([node], feeds, constants, {"y": "float32"})
    _, compiled = compile_native(content)
    assert kernels(compiled) == [MatMulKernel]
    assert_native_agrees(content, {"a": numbers(1, (7, 20))}, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, 5, 33])
@pytest.mark.parametrize("columns", [1, 3, 16, 100])
@pytest.mark.parametrize("constant", [True, False])
def test_elementwise_nodes_are_computed_with_the_product(rows: int, columns: int, constant: bool) -> None:
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["p"]),
        helper.make_node("Add", ["p", "bias"], ["q"]),
        helper.make_node("Mul", ["q", "scale"], ["r"]),
        helper.make_node("Add", ["r", "residual"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
        helper.make_node("Mul", ["y", "two"], ["z"]),
    ]
    values = {
        "a": numbers(1, (2, rows, 40)),
        "scale": numbers(4, (2, rows, 1)),
        "residual": numbers(5, (2, rows, columns)),
    }
    constants = {"bias": numbers(3, (columns,)), "two": np.full((1,), 2.0, np.float32)}
    b = numbers(2, (40, columns))
    (constants if constant else values)["b"] = b
    feeds = {name: ("float32", list(array.shape)) for name, array in values.items()}
    content = model(nodes, feeds, constants, {"q": "float32", "y": "float32", "z": "float32"})
    _, compiled = compile_native(content)
    assert len(kernels(compiled)) <= 2
    assert_native_agrees(content, values, rtol=1e-4, atol=1e-4)


def test_a_residual_that_is_also_multiplied_is_not_overwritten() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("MatMul", ["a", "b"], ["p"]),
        helper.make_node("Add", ["p", "a"], ["q"]),
        helper.make_node("MatMul", ["q", "b"], ["y"]),
    ]
    x, b = numbers(1, (70, 64)), numbers(2, (64, 64))
    content = model(nodes, {"x": ("float32", [70, 64])}, {"b": b}, {"y": "float32"})
    assert_native_agrees(content, {"x": x}, rtol=1e-3, atol=1e-2)


def test_two_products_of_one_weight_share_its_packed_form() -> None:
    nodes = [helper.make_node("MatMul", ["a", "b"], ["p"]), helper.make_node("MatMul", ["p", "b"], ["y"])]
    a, b = numbers(1, (9, 64)), numbers(2, (64, 64))
    content = model(nodes, {"a": ("float32", [9, 64])}, {"b": b}, {"y": "float32"})
    _, compiled = compile_native(content)
    constants = [buffer for buffer in compiled.plan.buffers if buffer.storage is Storage.CONSTANT]
    assert len(constants) == 1
    assert_native_agrees(content, {"a": a}, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("constant", [True, False])
def test_nan_and_infinity_stay_in_their_rows_and_columns(constant: bool) -> None:
    a, b = numbers(1, (13, 21)), numbers(2, (21, 35))
    a[3, 4], a[5, 6], b[7, 34], b[8, 0] = np.nan, np.inf, np.nan, -np.inf
    content = product_model(a, b, constant=constant)
    assert_native_agrees(content, {"a": a} if constant else {"a": a, "b": b}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shapes", [((300, 200), (200, 300)), ((1, 500), (500, 3000)), ((6, 40, 64), (6, 64, 200))], ids=str)
@pytest.mark.parametrize("constant", [True, False])
def test_any_number_of_threads_gives_the_same_bits(shapes: tuple[tuple[int, ...], tuple[int, ...]], constant: bool) -> None:
    a, b = numbers(1, shapes[0]), numbers(2, shapes[1])
    content = product_model(a, b, constant=constant)
    feeds = {"a": a} if constant else {"a": a, "b": b}
    results = []
    for workers in (1, 2, 3):
        graph, compiled = compile_native(content, workers)
        results.append(run_native(graph, compiled, feeds)[0])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_allclose(results[0], run_reference(content, feeds)[0], rtol=1e-3, atol=1e-3)


def test_integers_with_a_factor_are_left_to_the_host() -> None:
    a, b = numbers(1, (3, 4), "int32"), numbers(2, (4, 5), "int32")
    node = helper.make_node("Gemm", ["a", "b"], ["y"], alpha=0.5)
    content = model([node], {"a": ("int32", [3, 4])}, {"b": b}, {"y": "int32"})
    _, compiled = compile_native(content)
    assert host_nodes(compiled) == ["Gemm"]
    assert_native_agrees(content, {"a": a}, native=False)


@pytest.mark.parametrize("lanes", [8, 4])
def test_machines_with_narrower_vectors_pack_a_large_computed_matrix(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    library = library_for(here(lanes))
    monkeypatch.setattr(assemble, "library", lambda *_: library)
    _, graph, compiled = symbolic_program.__wrapped__()
    assert kernels(compiled) == [PackKernel, MatMulKernel, MatMulKernel]
    for rows in (0, 1, 5, 63, 64, 100):
        a, b = numbers(rows, (2, rows, 30)), numbers(1, (2, 30, 77))
        (actual,) = run_native(graph, compiled, {"a": a, "b": b})
        np.testing.assert_allclose(actual, a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("batch", [0, 1, 3, 9])
@pytest.mark.parametrize(
    ("shape", "order", "bias"),
    [
        ("N,20,11", "1,0,2", "37"),
        ("N,5,16,11", "1,2,0,3", "37"),
        ("N,20,3,11", "1,2,0,3", "20,1,1,37"),
        ("N,20,11", "1,0,2", "N,1"),
    ],
)
def test_sequences_that_were_turned_with_an_open_batch(shape: str, order: str, bias: str, batch: int) -> None:
    """Another axis than the open one may be the rows; what is added keeps its places."""
    rng = np.random.default_rng(0)
    sizes, added = ([batch if size == "N" else int(size) for size in text.split(",")] for text in (shape, bias))
    content = text_model(
        f"(float[{shape}] x, float[{bias}] c) => (float[z] y) {{ "
        f"w = Constant<value = float[11,37] {{{','.join(f'{number:.3f}' for number in rng.standard_normal(11 * 37))}}}>() "
        f"t = Transpose<perm = [{order}]>(x) p = MatMul(t, w) s = Add(p, c) y = Tanh(s) }}"
    )
    feeds = {"x": rng.standard_normal(sizes).astype(np.float32), "c": rng.standard_normal(added).astype(np.float32)}
    assert_native_agrees(content, feeds, native=batch > 0)


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.sampled_from((1, 5, 33)),
    st.sampled_from((3, 16, 40)),
    st.sampled_from(("T,B,{}", "1,B,{}", "T,1,{}", "T,B,1", "{}")),
    st.booleans(),
)
def test_sequences_that_were_turned_and_both_sizes_of_which_are_open(
    sizes: tuple[int, int], depth: int, columns: int, added: str, back: bool
) -> None:
    batch, times = sizes
    random = np.random.default_rng(0)
    weights = random.standard_normal((depth, columns)).astype(np.float32)
    text = f"""(float[B,T,{depth}] x, float[{added.format(columns)}] r, float[{depth},{columns}] w) => (float[a] y) {{
        t = Transpose<perm=[1,0,2]>(x) m = MatMul(t, w) s = Add(m, r) a = Relu(s)
        y = {"Transpose<perm=[1,0,2]>" if back else "Neg"}(a)
    }}"""
    proto = onnx.load_from_string(text_model(text))
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    del proto.graph.input[2]
    named = {"T": times, "B": batch}
    shape = [named[side] if side in named else int(side) for side in added.format(columns).split(",")]
    feeds = {
        "x": guarded(random.standard_normal((batch, times, depth)).astype(np.float32)),
        "r": guarded(random.standard_normal(shape).astype(np.float32)),
    }
    assert_native_agrees(proto.SerializeToString(), feeds, rtol=1e-4, atol=1e-4)
