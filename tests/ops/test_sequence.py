"""Sequences and optional values against the evaluator of onnx and by example."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sardonyx import dtypes
from sardonyx.ir.dims import symbol
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.types import OptionalType, SequenceType, TensorType, Type
from sardonyx.ops import registry, signature
from sardonyx.ops.control.sequence import common_type
from sardonyx.ops.infer import InferContext
from sardonyx.ops.registry import EvalContext

Array = NDArray[Any]
quick = settings(max_examples=30, deadline=None)


def call(name: str, *inputs: Any, version: int = 24, **attrs: Any) -> Any:
    definition = registry.lookup("", name, version)
    form = signature.signature("", name, version)
    assert definition is not None
    assert form is not None
    merged = {key: attribute.default for key, attribute in form.attributes.items()} | attrs
    given = {key: merged[key] for key in definition.attr_names}
    return registry.call(definition, inputs, given, EvalContext(version, (True,)))[0]


def type_of(name: str, *types: Type | None, constants: dict[int, Array] | None = None, version: int = 24, **attrs: Any) -> Any:
    definition = registry.lookup("", name, version)
    form = signature.signature("", name, version)
    assert definition is not None
    assert definition.infer is not None
    assert form is not None
    merged = {key: attribute.default for key, attribute in form.attributes.items()} | attrs
    inputs = [None if type_ is None else Value(f"x{index}") for index, type_ in enumerate(types)]
    node = Node(name, inputs, [Value("y")], version=version)
    known = constants or {}
    return definition.infer(InferContext(node, types, merged, lambda index: None, known.get, lambda graph, given: []))


def tensor(*dims: Any) -> TensorType:
    return TensorType(dtypes.FLOAT32, tuple(symbol(dim) if isinstance(dim, str) else dim for dim in dims))


THREE = [np.array([1.0]), np.array([2.0, 3.0]), np.array([])]


@pytest.mark.parametrize("position", range(-3, 3))
def test_positions_count_from_either_end(position: int) -> None:
    at = np.array(position)
    assert call("SequenceAt", THREE, at) is THREE[position]
    rest = call("SequenceErase", THREE, at)
    assert [id(item) for item in rest] == [id(item) for index, item in enumerate(THREE) if index != position % 3]
    more = call("SequenceInsert", THREE, np.array([9.0]), at)
    assert more[position % 3].tolist() == [9.0]
    assert (len(THREE), len(more)) == (3, 4)


def test_without_a_position_the_end_is_meant() -> None:
    assert call("SequenceInsert", THREE, np.array([9.0]))[-1].tolist() == [9.0]
    assert call("SequenceInsert", THREE, np.array([9.0]), np.array([3]))[-1].tolist() == [9.0]
    assert len(call("SequenceErase", THREE)) == 2


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("SequenceAt", (THREE, np.array(3)), "position 3 is out of range for a sequence of 3: expected -3 to 2"),
        (
            "SequenceInsert",
            (THREE, np.zeros(1), np.array(-4)),
            "position -4 is out of range for a sequence of 3: expected -3 to 3",
        ),
        ("SequenceErase", ([],), "position -1 is out of range for a sequence of 0: there is no element"),
    ],
)
def test_positions_outside_are_refused(name: str, inputs: Any, message: str) -> None:
    with pytest.raises(IndexError, match=message):
        call(name, *inputs)


def test_a_sequence_holds_one_element_type() -> None:
    with pytest.raises(ValueError, match="a sequence holds tensors of one element type, found f64 and i64"):
        call("SequenceConstruct", np.zeros(1), np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="found f64 and i32"):
        call("SequenceInsert", THREE, np.zeros(1, np.int32))


def test_lengths_are_int64_scalars() -> None:
    length = call("SequenceLength", call("SequenceConstruct", *THREE))
    assert (length.dtype, length.shape, int(length)) == (np.int64, (), 3)
    assert call("SequenceEmpty", dtype=7) == []


@quick
@given(
    shape=st.lists(st.integers(0, 5), min_size=1, max_size=3), axis=st.integers(0, 2), keepdims=st.integers(0, 1), data=st.data()
)
def test_splitting_and_joining_again_gives_the_tensor(shape: list[int], axis: int, keepdims: int, data: st.DataObject) -> None:
    axis %= len(shape)
    x = np.arange(np.prod(shape)).reshape(shape)
    size = shape[axis]
    form = data.draw(st.sampled_from(("ones", "even", "listed")))
    split: Array | None = None
    if form == "even":
        split = np.array(data.draw(st.integers(1, 4)))
    elif form == "listed":
        cuts = sorted(data.draw(st.lists(st.integers(0, size), max_size=3)))
        split = np.diff(np.array([0, *cuts, size]))
    parts = call("SplitToSequence", x, *([] if split is None else [split]), axis=axis - len(shape), keepdims=keepdims)
    found = type_of(
        "SplitToSequence", TensorType(dtypes.INT64, tuple(shape)), *([] if split is None else [TensorType(dtypes.INT64, None)]),
        constants={} if split is None else {1: split}, axis=axis, keepdims=keepdims,
    )  # fmt: skip
    for part in parts:
        assert len(found.element.shape) == part.ndim
        assert all(not isinstance(dim, int) or dim == size for dim, size in zip(found.element.shape, part.shape, strict=True))
    # A length of 1 counts as no split here: ONNX Runtime heeds `keepdims` for it, and exporters rely on that.
    dropped = not keepdims and (split is None or (form == "even" and int(split) == 1))
    if form == "even" and not dropped:
        assert split is not None
        assert all(part.shape[axis] == int(split) for part in parts[:-1])
    if parts:
        np.testing.assert_array_equal(call("ConcatFromSequence", parts, axis=axis, new_axis=int(dropped)), x)


def test_splits_must_add_up() -> None:
    with pytest.raises(ValueError, match=r"split is \[1, 1\], of sum 2; expected lengths whose sum is 3"):
        call("SplitToSequence", np.zeros(3), np.array([1, 1]))
    with pytest.raises(ValueError, match="split is 0; a length must be positive"):
        call("SplitToSequence", np.zeros(3), np.array(0))


def test_joining_checks_axis_and_sequence() -> None:
    assert call("ConcatFromSequence", [np.zeros(2), np.ones(2)], axis=-1, new_axis=1).tolist() == [[0, 1], [0, 1]]
    with pytest.raises(ValueError, match="the sequence is empty: there is nothing to concatenate"):
        call("ConcatFromSequence", [], axis=0)
    with pytest.raises(ValueError, match="axis 1 is out of range for rank 1"):
        call("ConcatFromSequence", [np.zeros(2)], axis=1)


def test_what_elements_have_in_common_is_known() -> None:
    made = type_of("SequenceConstruct", tensor("N", 3), tensor("N", 4))
    assert str(made.element.shape[0]) == "N"
    assert made.element.shape[1].is_anonymous
    first, second = (type_of("SequenceAt", made, TensorType(dtypes.INT64, ())) for _ in range(2))
    assert first.shape[0] == second.shape[0]
    assert first.shape[1] != second.shape[1]
    joined = type_of("ConcatFromSequence", SequenceType(tensor("N", 3)), axis=0)
    assert (joined.shape[0].is_anonymous, joined.shape[1]) == (True, 3)
    assert str(type_of("ConcatFromSequence", SequenceType(tensor("N", 3)), axis=-1, new_axis=1)).startswith("f32[N,3,?")
    assert str(type_of("SequenceInsert", SequenceType(tensor("N", 3)), tensor("N", 3))) == "seq(f32[N,3])"
    assert str(type_of("SequenceEmpty", dtype=9)) == "seq(bool[...])"
    assert (
        str(type_of("SplitToSequence", tensor(6, "N"), TensorType(dtypes.INT64, ()), constants={1: np.array(2)}))
        == "seq(f32[2,N])"
    )


def test_common_types_of_optionals_and_values() -> None:
    assert str(common_type(OptionalType(tensor(3)), tensor(3))) == "optional(f32[3])"
    assert common_type(tensor(3), SequenceType(tensor(3))) is None
    assert str(common_type(SequenceType(tensor(3)), SequenceType(tensor(3, 1)))) == "seq(f32[...])"


def test_optionals_hold_a_value_or_none() -> None:
    assert call("Optional", THREE) is THREE
    assert call("Optional") is None
    for value, has in ((None, False), (THREE, True), (np.zeros(0), True)):
        result = call("OptionalHasElement", value)
        assert (result.dtype, result.shape, bool(result)) == (np.bool_, (), has)
    assert not bool(call("OptionalHasElement", version=18))
    assert call("OptionalGetElement", THREE) is THREE
    with pytest.raises(ValueError, match="the optional value is empty: it has no element to get"):
        call("OptionalGetElement", None)


def test_optionals_have_types() -> None:
    assert str(type_of("Optional", tensor(2))) == "optional(f32[2])"
    assert str(type_of("Optional", type=SequenceType(tensor(2)))) == "optional(seq(f32[2]))"
    assert str(type_of("OptionalGetElement", OptionalType(tensor(2)))) == "f32[2]"
    assert str(type_of("OptionalGetElement", tensor(2))) == "f32[2]"
    with pytest.raises(ValueError, match="an Optional without input needs the attribute type"):
        type_of("Optional")
