"""Einsums that are split give what the equation means, in native code."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from native_support import compile_native, host_nodes, run_native, run_reference
from sardonyx.formats.onnx import load
from sardonyx.ir.graph import Model
from sardonyx.passes.fold_shape_values import infer_from_inputs
from sardonyx.passes.split_einsums import SplitEinsums

KINDS = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "int64": TensorProto.INT64,
}
SIZES = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 1}


def einsum_model(equation: str, declared: list[list[int | str]], kind: int) -> bytes:
    names = [f"x{number}" for number in range(len(declared))]
    inputs = [helper.make_tensor_value_info(name, kind, sizes) for name, sizes in zip(names, declared)]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("y")])
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return content


def split(content: bytes) -> Model:
    model = load(content)
    infer_from_inputs(model)
    SplitEinsums().run(model)
    return model


@settings(max_examples=60, deadline=None)
@given(st.data(), st.lists(st.text("abcde", max_size=4), min_size=1, max_size=4), st.sampled_from(list(KINDS)), st.booleans())
def test_any_equation_is_computed_by_kernels(data: st.DataObject, terms: list[str], kind: str, symbolic: bool) -> None:
    """Letters may come twice in a term, be of one term alone, or be of size 1 in one of several."""
    letters = sorted(set("".join(terms)))
    result = "".join(data.draw(st.permutations(letters)))[: data.draw(st.integers(0, len(letters)))]
    equation = f"{','.join(terms)}->{result}"
    narrow: list[set[str]] = [data.draw(st.sets(st.sampled_from(letters))) if letters else set() for _ in terms]
    shapes = [tuple(1 if letter in short else SIZES[letter] for letter in term) for term, short in zip(terms, narrow)]
    declared: list[list[int | str]] = [
        [letter if symbolic and size != 1 else size for letter, size in zip(term, shape)] for term, shape in zip(terms, shapes)
    ]
    rng = np.random.default_rng(0)
    feeds = {f"x{number}": rng.integers(-3, 4, shape).astype(kind) for number, shape in enumerate(shapes)}
    content = einsum_model(equation, declared, KINDS[kind])
    graph, compiled = compile_native(split(content))
    assert not host_nodes(compiled), list(compiled.grouping.refusals.values())
    (actual,), (expected,) = run_native(graph, compiled, feeds), run_reference(content, feeds)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(actual, expected)  # small whole numbers: all sums are exact
    if kind == "float32":
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(actual, session.run(None, feeds)[0].reshape(expected.shape))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...ij,...jk,...kl->...il", [(2, 1, 3, 4), (5, 4, 6), (6, 7)]),
        ("...i,...i,i->...", [(2, 3, 4), (3, 4), (4,)]),
        ("i...,i...,i...->...i", [(4, 2, 3), (4, 1, 3), (4, 3)]),
    ],
)
def test_an_ellipsis_of_many_operands_is_split(equation: str, shapes: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    feeds = {f"x{number}": rng.standard_normal(shape).astype(np.float32) for number, shape in enumerate(shapes)}
    content = einsum_model(equation, [list(shape) for shape in shapes], TensorProto.FLOAT)
    graph, compiled = compile_native(split(content))
    assert not host_nodes(compiled)
    np.testing.assert_allclose(run_native(graph, compiled, feeds)[0], run_reference(content, feeds)[0], rtol=1e-5, atol=1e-5)


def test_half_floats_are_rounded_once() -> None:
    """The product of the first two does not fit into float16; all three do."""
    feeds = {"x0": np.full(3, 300, np.float16), "x1": np.full(3, 300, np.float16), "x2": np.full(3, 2**-10, np.float16)}
    graph, compiled = compile_native(split(einsum_model("i,i,i->i", [[3]] * 3, TensorProto.FLOAT16)))
    np.testing.assert_allclose(run_native(graph, compiled, feeds)[0], np.full(3, 87.9, np.float16), rtol=1e-3)


def test_an_equation_of_all_letters_keeps_its_ellipsis() -> None:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    first, second = letters[:26], letters[26:]
    sizes: list[list[int | str]] = [[1] * 27, [1] * 27, [1] * 26]
    model = load(einsum_model(f"...{first},...{second},{first}->...", sizes, TensorProto.FLOAT))
    infer_from_inputs(model)
    result = SplitEinsums().run(model)
    assert not result.modified
    assert "no letters are left" in result.reasons[0]
