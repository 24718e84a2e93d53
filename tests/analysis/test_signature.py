"""Signatures of operators, the attributes of nodes, and types put together."""

from __future__ import annotations

import numpy as np
import onnx.defs
import pytest

from sardonyx.analysis.attributes import attribute_values
from sardonyx.analysis.constraints import bind_types, output_types
from sardonyx.analysis.merge import TypeConflict, merge_types
from sardonyx.dtypes import FLOAT32, FLOAT64, INT64
from sardonyx.ir import tensor
from sardonyx.ir.builder import make_attr
from sardonyx.ir.dims import symbol
from sardonyx.ir.graph import Attr, AttrKind, Graph, Node
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type
from sardonyx.ops import signature as signatures
from sardonyx.ops.signature import Signature, parse_type, signature, type_text

N = symbol("N")


def sig(name: str, version: int, domain: str = "") -> Signature:
    found = signature(domain, name, version)
    assert found is not None
    return found


def test_the_newest_form_that_is_not_too_new_is_found() -> None:
    assert sig("Softmax", 12).since == 11
    assert sig("Softmax", 13).since == 13
    assert sig("Softmax", 99).since == 13
    assert signature("", "Gelu", 19) is None
    assert signature("", "NoSuch", 19) is None
    assert signature("no.such.domain", "Add", 1) is None


def test_parameters_and_attributes_are_read() -> None:
    conv = sig("Conv", 11)
    assert [(each.name, each.optional) for each in conv.inputs] == [("X", False), ("W", False), ("B", True)]
    assert conv.attributes["auto_pad"].default == "NOTSET"
    assert conv.attributes["group"].default == 1
    assert conv.attributes["pads"].default is None
    assert conv.fewest_inputs == 2
    concat = sig("Concat", 13)
    assert concat.inputs[0].variadic
    assert concat.input_at(7) is concat.inputs[0]
    assert concat.attributes["axis"].required
    assert conv.input_at(3) is None
    assert conv.output_at(0) is conv.outputs[0]
    assert sig("Upsample", 10).deprecated
    assert not sig("Loop", 13).inputs[2].homogeneous


@pytest.mark.parametrize("domain", ["", "ai.onnx.ml", "ai.onnx.preview.training"])
def test_every_operator_of_onnx_has_all_its_versions(domain: str) -> None:
    expected: dict[str, set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == domain:
            expected.setdefault(schema.name, set()).add(schema.since_version)
    for name, versions in expected.items():
        assert versions <= set(signatures.versions(domain, name)), name
        for version in versions:
            found, schema = sig(name, version, domain), onnx.defs.get_schema(name, version, domain)
            assert found.since == version
            assert [each.name for each in found.inputs] == [each.name for each in schema.inputs]
            assert [each.name for each in found.outputs] == [each.name for each in schema.outputs]
            assert set(found.attributes) == set(schema.attributes)
            assert found.fewest_inputs <= schema.min_input  # inputs that may be left out do not count here
            required = {attribute for attribute, formal in schema.attributes.items() if formal.required}
            assert {each.name for each in found.attributes.values() if each.required} == required


@pytest.mark.parametrize("text", ["f32", "seq(i64)", "optional(seq(f16))", "map(i64,f32)", "seq(map(str,f32))", "sparse(f64)"])
def test_types_of_the_tables_read_and_print_alike(text: str) -> None:
    assert type_text(parse_type(text)) == text


def test_type_variables_are_bound_by_the_inputs() -> None:
    add = sig("Add", 14)
    bound, problems = bind_types(add, [TensorType(FLOAT32, (N,)), None])
    assert (bound, problems) == ({"T": "f32"}, [])
    assert list(output_types(add, bound, 1)) == [TensorType(FLOAT32)]
    assert list(output_types(add, {}, 2)) == [None, None]
    assert list(output_types(sig("Shape", 13), {}, 1)) == [TensorType(INT64)]


def test_variadic_inputs_share_a_type_only_if_they_must() -> None:
    mixed = [TensorType(FLOAT32), TensorType(FLOAT64)]
    assert len(bind_types(sig("Concat", 13), mixed)[1]) == 1
    assert bind_types(sig("Loop", 13), [None, None, *mixed])[1] == []


def test_attributes_have_values_of_python_and_defaults() -> None:
    attrs = [make_attr("kernel_shape", [3, 3]), make_attr("value", np.ones(2)), make_attr("body", Graph("b"))]
    values = attribute_values(Node("Conv", [], [], attrs, version=11))
    assert values["kernel_shape"] == (3, 3)
    assert values["group"] == 1
    assert values["auto_pad"] == "NOTSET"
    assert "pads" not in values
    assert values["value"].tolist() == [1.0, 1.0]
    assert isinstance(values["body"], Graph)
    several = Attr("t", AttrKind.TENSORS, (tensor.from_numpy(np.ones(1)),))
    assert attribute_values(Node("X", [], [], [several]))["t"][0].tolist() == [1.0]


def test_references_take_the_value_of_the_call_or_count_as_absent() -> None:
    node = Node("LeakyRelu", [], [], [Attr("alpha", AttrKind.FLOAT, None, "slope")], version=16)
    assert attribute_values(node, {"slope": Attr("slope", AttrKind.FLOAT, 0.5)}) == {"alpha": 0.5}
    assert attribute_values(node, {})["alpha"] == pytest.approx(0.01)
    assert attribute_values(node)["alpha"] == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("inferred", "declared", "merged"),
    [
        (TensorType(FLOAT32, (N, 3)), TensorType(FLOAT32), TensorType(FLOAT32, (N, 3))),
        (TensorType(FLOAT32), TensorType(FLOAT32, (N, 3)), TensorType(FLOAT32, (N, 3))),
        (TensorType(FLOAT32, (symbol("?0"), 3)), TensorType(FLOAT32, (N, symbol("K"))), TensorType(FLOAT32, (N, 3))),
        (TensorType(FLOAT32, (N + 1,)), TensorType(FLOAT32, (symbol("M"),)), TensorType(FLOAT32, (N + 1,))),
        (SequenceType(TensorType(INT64)), SequenceType(TensorType(INT64, (2,))), SequenceType(TensorType(INT64, (2,)))),
        (OptionalType(TensorType(INT64)), OptionalType(TensorType(INT64, ())), OptionalType(TensorType(INT64, ()))),
        (OptionalType(TensorType(INT64)), TensorType(INT64, ()), TensorType(INT64, ())),
        (TensorType(INT64, ()), OptionalType(TensorType(INT64)), OptionalType(TensorType(INT64, ()))),
        (MapType(INT64, TensorType(FLOAT32)), MapType(INT64, TensorType(FLOAT32, ())), MapType(INT64, TensorType(FLOAT32, ()))),
        (SparseTensorType(FLOAT32), SparseTensorType(FLOAT32, (4,)), SparseTensorType(FLOAT32, (4,))),
    ],
)
def test_two_descriptions_of_a_type_say_more_together(inferred: Type, declared: Type, merged: Type) -> None:
    assert merge_types(inferred, declared) == merged


def test_types_that_contradict_do_not_merge() -> None:
    with pytest.raises(TypeConflict, match="the type is f32, but the model declares seq\\(f32\\)"):
        merge_types(TensorType(FLOAT32), SequenceType(TensorType(FLOAT32)))
    with pytest.raises(ValueError, match=r"shape \[2\] has rank 1, but \[2,2\] has rank 2"):
        merge_types(TensorType(FLOAT32, (2,)), TensorType(FLOAT32, (2, 2)))
