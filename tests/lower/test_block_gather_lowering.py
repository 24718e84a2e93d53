"""GatherBlockQuantized as native steps, against its NumPy meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from guarded import guarded
from native_support import assert_native_agrees
from sardonyx.errors import SardonyxError
from sardonyx.explanation import explain_model
from sardonyx.ir.tensor import Array
from session_agreement import REFERENCE, session


def model(bits: int, block: int, *, blocks: int = 2, points: bool = False, kind: Any = np.float32, shape: Any = ("n",)) -> bytes:
    rng = np.random.default_rng(bits + block)
    rows, width = 7, block * blocks * bits // 8
    constants = [
        numpy_helper.from_array(rng.integers(0, 256, (rows, width), dtype=np.uint8), "t"),
        numpy_helper.from_array(rng.uniform(0.1, 1, (rows, blocks)).astype(kind), "s"),
    ]
    if points:
        packed = rng.integers(0, 256, (rows, -(-blocks * bits // 8)), dtype=np.uint8)
        constants.append(numpy_helper.from_array(packed, "z"))
    attrs = {"bits": bits, "block_size": block, "gather_axis": 0, "quantize_axis": 1}
    inputs = ["t", "i", "s", *(["z"] if points else [])]
    node = helper.make_node("GatherBlockQuantized", inputs, ["y"], domain="com.microsoft", name="lookup", **attrs)
    code = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, shape)],
        [helper.make_tensor_value_info("y", code, None)],
        constants,
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    content: bytes = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    return content


@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize(("bits", "block", "blocks"), [(4, 32, 3), (4, 16, 1), (8, 16, 2), (2, 16, 5), (4, 128, 2)])
def test_rows_of_every_form_agree(bits: int, block: int, blocks: int, points: bool) -> None:
    indices = guarded(np.array([0, 6, -1, 3, 3]))
    assert_native_agrees(model(bits, block, blocks=blocks, points=points), {"i": indices})


@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (1, 2, 2)])
def test_indices_of_any_shape_agree(shape: tuple[int, ...]) -> None:
    indices = np.random.default_rng(0).integers(-7, 7, shape)
    assert_native_agrees(model(4, 32, shape=shape, points=True), {"i": np.asarray(indices)})


def test_halves_agree() -> None:
    assert_native_agrees(model(4, 32, kind=np.float16), {"i": np.array([1, 5])})


def test_an_index_out_of_range_is_an_error_that_names_the_node() -> None:
    with pytest.raises(SardonyxError, match=r"lookup.*index 7 is out of range for axis 0 of size 7"):
        session(model(4, 32)).run(None, {"i": np.array([0, 7])})


def typed_model(signed: bool, block: int, blocks: int, *, points: bool, kind: Any = np.float32, rows: int = 7) -> bytes:
    """A lookup in a table of a type of 4 bits."""
    rng = np.random.default_rng(block + blocks)
    code = TensorProto.INT4 if signed else TensorProto.UINT4

    def numbers(name: str, width: int) -> TensorProto:
        values = rng.integers(-8 if signed else 0, 8 if signed else 16, (rows, width))
        return helper.make_tensor(name, code, (rows, width), values.reshape(-1).tolist())

    constants = [numbers("t", block * blocks), numpy_helper.from_array(rng.uniform(0.1, 1, (rows, blocks)).astype(kind), "s")]
    if points:
        constants.append(numbers("z", blocks))
    inputs = ["t", "i", "s", *(["z"] if points else [])]
    attrs = {"block_size": block, "gather_axis": 0, "quantize_axis": 1}
    node = helper.make_node("GatherBlockQuantized", inputs, ["y"], domain="com.microsoft", name="lookup", **attrs)
    result = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(kind)), None)
    ids = helper.make_tensor_value_info("i", TensorProto.INT64, ["n"])
    graph = helper.make_graph([node], "g", [ids], [result], constants)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    content: bytes = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    return content


def check_typed(content: bytes, indices: Array) -> None:
    assert not explain_model(content).host_steps
    (found,) = session(content).run(None, {"i": indices})
    (expected,) = session(content, providers=REFERENCE).run(None, {"i": indices})
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@given(
    st.booleans(),
    st.sampled_from([16, 32, 64]),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from([np.float32, np.float16]),
    st.lists(st.integers(-7, 6), max_size=9),
)
@settings(max_examples=20, deadline=None)
def test_tables_of_a_type_of_4_bits_agree(
    signed: bool, block: int, blocks: int, points: bool, kind: Any, indices: list[int]
) -> None:
    check_typed(typed_model(signed, block, blocks, points=points, kind=kind), np.array(indices, np.int64))


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("points", [False, True])
def test_onnxruntime_agrees_on_tables_of_a_type_of_4_bits(signed: bool, points: bool) -> None:
    import onnxruntime

    content, indices = typed_model(signed, 32, 4, points=points), np.array([3, 0, 6, -1])
    theirs = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (expected,), (found,) = theirs.run(None, {"i": indices}), session(content).run(None, {"i": indices})
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_an_index_out_of_range_of_such_a_table_names_the_node() -> None:
    with pytest.raises(SardonyxError, match=r"lookup.*index -8 is out of range for axis 0 of size 7"):
        session(typed_model(True, 32, 2, points=True)).run(None, {"i": np.array([0, -8])})
