"""MatMulNBits as native steps, against its NumPy meaning: all widths of weights, blocks, zero points and targets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from guarded import guarded
from native_support import host_nodes, in_order, prepared, run_native, run_reference
from sardonyx.compile.assemble import NativeSettings, compile_graph
from sardonyx.ir.tensor import Array
from sardonyx.kernel.quant.block_product import heights, strips_of_tile, tallest
from targets import ZEN5, here_and_less

TARGETS = [target.name for target in here_and_less()]
EXACT, BYTES = 1e-4, 2e-2  # of the largest result: activations of 16 bits, of 8 bits


def model(
    rows: int,
    columns: int,
    *,
    bits: int = 4,
    block: int = 32,
    points: str = "",
    level: int = 0,
    bias: bool = False,
    kind: Any = np.float32,
    shape: tuple[Any, ...] = ("m",),
    behind: str = "",
) -> bytes:
    """A product of activations [*shape, columns] with weights [rows, columns]."""
    rng = np.random.default_rng(rows * columns + bits + block)
    blocks = -(-columns // block)
    weights = rng.integers(0, 256, (rows, blocks, block * bits // 8), dtype=np.uint8)
    scales = rng.uniform(0.01, 0.03, (rows, blocks)).astype(kind)
    names, constants = ["a", "b", "s", "", "", ""], [numpy_helper.from_array(weights, "b"), numpy_helper.from_array(scales, "s")]
    if points:
        packed = rng.integers(0, 256, (rows, -(-blocks * bits // 8)), dtype=np.uint8)
        floats = rng.uniform(0, 1 << bits, (rows, blocks)).astype(kind)
        constants.append(numpy_helper.from_array(packed if points == "packed" else floats, "z"))
        names[3] = "z"
    if bias:
        constants.append(numpy_helper.from_array(rng.standard_normal(rows).astype(kind), "c"))
        names[5] = "c"
    while not names[-1]:
        names.pop()
    attrs = {"K": columns, "N": rows, "bits": bits, "block_size": block, "accuracy_level": level}
    nodes = [helper.make_node("MatMulNBits", names, ["p" if behind else "y"], domain="com.microsoft", name="product", **attrs)]
    if behind:
        nodes.append(helper.make_node(behind, ["p"], ["y"]))
    code = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    a, y = helper.make_tensor_value_info("a", code, [*shape, columns]), helper.make_tensor_value_info("y", code, None)
    graph = helper.make_graph(nodes, "blocks", [a], [y], constants)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    content: bytes = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    return content


def check(content: bytes, a: Array, limit: float, target: str = "", workers: int = 1) -> Array:
    graph = prepared(content)
    compiled = compile_graph(graph, graph.outputs, in_order(graph), in_order, NativeSettings(workers=workers, target=target))
    assert not host_nodes(compiled), list(compiled.grouping.refusals.values())
    (found,), (expected,) = run_native(graph, compiled, {"a": guarded(a)}), run_reference(content, {"a": a})
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    wanted = expected.astype(np.float64)
    if wanted.size:
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=0, atol=limit * max(np.abs(wanted).max(), 1e-30))
    return np.asarray(found)


def activations(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("points", ["", "packed", "floats"])
@pytest.mark.parametrize(("bits", "block"), [(4, 32), (4, 16), (4, 256), (8, 32), (8, 128), (2, 64)])
def test_weights_of_every_form_agree_on_every_target(bits: int, block: int, points: str, target: str) -> None:
    content = model(21, 150, bits=bits, block=block, points=points, bias=True)
    check(content, activations(3, 150), EXACT, target)
    check(model(21, 150, bits=bits, block=block, points=points, level=4), activations(5, 150), BYTES, target)


@settings(max_examples=25)
@given(
    rows=st.integers(1, 40), columns=st.integers(1, 100), count=st.integers(0, 30), bits=st.sampled_from([2, 4, 8]),
    points=st.sampled_from(["", "packed"]), level=st.sampled_from([0, 4]),
)  # fmt: skip
def test_products_of_any_size_agree(rows: int, columns: int, count: int, bits: int, points: str, level: int) -> None:
    content = model(rows, columns, bits=bits, block=16, points=points, level=level)
    check(content, activations(count, columns, seed=count), BYTES if level == 4 else EXACT)


@pytest.mark.parametrize("shape", [(), (2,), (2, 3), (2, 1, 5), (0, 3)])
def test_activations_of_any_rank_agree(shape: tuple[int, ...]) -> None:
    check(model(20, 48, shape=shape, bias=True, behind="Sigmoid"), activations(*shape, 48), EXACT)


@pytest.mark.parametrize("kind", [np.float16])
def test_half_precision_agrees(kind: Any) -> None:
    check(model(20, 64, kind=kind, bias=True), activations(4, 64).astype(kind), 2e-3)


@pytest.mark.parametrize("level", [0, 4])
def test_results_do_not_depend_on_how_rows_and_columns_are_divided(level: int) -> None:
    content, a = model(70, 96, level=level), activations(29, 96)
    limit = BYTES if level == 4 else EXACT
    whole = check(content, a, limit)
    np.testing.assert_array_equal(check(content, a, limit, workers=2), whole)
    for row in range(0, 29, 7):
        np.testing.assert_array_equal(check(content, a[row : row + 1], limit), whole[row : row + 1])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize(("bits", "block"), [(2, 256), (4, 32), (4, 256), (8, 256)])
@pytest.mark.parametrize("value", [1.0, -1.0])
def test_the_largest_sums_do_not_saturate(bits: int, block: int, level: int, value: float, target: str) -> None:
    rng = np.random.default_rng(0)
    weights = np.full((9, 2, block * bits // 8), 255, np.uint8)
    constants = [numpy_helper.from_array(weights, "b"), numpy_helper.from_array(np.ones((9, 2), np.float32), "s")]
    attrs = {"K": 2 * block, "N": 9, "bits": bits, "block_size": block, "accuracy_level": level}
    node = helper.make_node("MatMulNBits", ["a", "b", "s"], ["y"], domain="com.microsoft", **attrs)
    a_type, y_type = helper.make_tensor_value_info("a", 1, ["m", 2 * block]), helper.make_tensor_value_info("y", 1, None)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", [a_type], [y_type], constants)
    content = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    for rows in (1, 3, 11):
        a = np.full((rows, 2 * block), value, np.float32)
        a[:, block:] *= rng.choice([-1, 1], block).astype(np.float32)
        check(content, a, EXACT, target)


@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("columns", [16, 17, 40, 64])
def test_rows_whose_levels_exceed_the_second_cache_agree(columns: int, level: int) -> None:
    # Tiles of panels of rows take all strips before the next panel; the last panel is smaller.
    content = model(columns, 4096, level=level, block=128)
    a = activations(301, 4096)
    whole = check(content, a, BYTES if level == 4 else EXACT)
    np.testing.assert_array_equal(check(content, a, BYTES if level == 4 else EXACT, workers=2), whole)


@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("shape", [(2, 7), (3, 70), (2, 3, 1)])
def test_batches_of_rows_agree_with_rows_of_their_own(shape: tuple[int, ...], level: int) -> None:
    content, a = model(50, 96, level=level, shape=("b", "m", "n")[: len(shape)]), activations(*shape, 96)
    found = check(content, a, BYTES if level == 4 else EXACT)
    rows = check(model(50, 96, level=level), a.reshape(-1, 96), BYTES if level == 4 else EXACT)
    np.testing.assert_array_equal(found.reshape(-1, 50), rows)


def test_only_many_rows_and_columns_have_tiles_of_two_strips() -> None:
    whole = replace(ZEN5, has_int8_dot=True)
    assert strips_of_tile(4, 64, 64, whole) == 2
    assert strips_of_tile(4, 1, 64, whole) == strips_of_tile(4, 64, 16, whole) == 1
    assert strips_of_tile(4, 64, 64, replace(whole, has_whole_vectors=False)) == 1
    assert strips_of_tile(4, 64, 64, replace(whole, registers=16)) == 1
    assert (tallest(4, 8, whole, 1), tallest(4, 8, whole, 2), tallest(4, 16, whole, 2)) == (12, 6, 4)


@pytest.mark.parametrize("scale", [0.0, 1e-38, 1e-30, 1e30])
def test_blocks_of_tiny_and_huge_numbers_agree(scale: float) -> None:
    a = activations(2, 64)
    a[:, :32] *= np.float32(scale)
    check(model(9, 64), a, EXACT)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_none(value: float) -> None:
    a = activations(3, 64)
    a[1, 40] = value
    content = model(9, 64)
    graph = prepared(content)
    compiled = compile_graph(graph, graph.outputs, in_order(graph), in_order, NativeSettings(workers=1))
    (found,), (expected,) = run_native(graph, compiled, {"a": a}), run_reference(content, {"a": a})
    assert not np.isfinite(found[1]).any()
    np.testing.assert_allclose(found[::2], expected[::2], rtol=1e-3, atol=1e-3)


def test_products_of_the_same_activations_share_their_levels() -> None:
    rng = np.random.default_rng(0)
    constants = [numpy_helper.from_array(rng.integers(0, 256, (32, 2, 16), dtype=np.uint8), f"b{n}") for n in range(3)]
    constants += [numpy_helper.from_array(np.full((32, 2), 0.1, np.float32), "s")]
    attrs = {"K": 64, "N": 32, "bits": 4, "block_size": 32}
    nodes = [helper.make_node("MatMulNBits", ["a", f"b{n}", "s"], [f"y{n}"], domain="com.microsoft", **attrs) for n in range(3)]
    outputs = [helper.make_tensor_value_info(f"y{n}", 1, None) for n in range(3)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("a", 1, [1, 64])], outputs, constants)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    made = prepared(helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString())
    compiled = compile_graph(made, made.outputs, in_order(made), in_order, NativeSettings(workers=1))
    assert len(compiled.lowered.steps) == 4


def test_heights_cover_every_number_of_rows() -> None:
    assert heights("m", 12) == (1, 2, 4, 8, 12)  # type: ignore[arg-type]
    assert heights(1, 12) == (1,)
    assert heights(13, 12) == (6, 7)
    assert heights(0, 12) == (1,)
