"""Models to graphs: links, scopes, order, types, versions, and one report of all that is wrong."""

from __future__ import annotations

import io
import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper, parser

from sardonyx import dtypes
from sardonyx.errors import InvalidArgument, InvalidGraph, InvalidProtobuf, NoSuchFile
from sardonyx.formats.onnx import load, to_bytes
from sardonyx.ir.graph import AttrKind, Model, Node, SparseConstant, captured_values
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'


def model_of(text: str, header: str = HEADER) -> Model:
    return load(parser.parse_model(header + text))


def build(
    nodes: list[onnx.NodeProto], inputs: list[str] | None = None, outputs: list[str] | None = None, **more: Any
) -> ModelProto:
    """A model of float vectors."""
    values = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in names or []] for names in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "g", values[0], values[1], **more)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def problems_of(model: ModelProto) -> tuple[str, ...]:
    with pytest.raises(InvalidGraph) as caught:
        load(model)
    return caught.value.problems


def nodes_of(model: Model) -> list[Node]:
    return list(model.graph.nodes)


def test_values_are_linked_to_their_makers_and_readers() -> None:
    model = model_of("g (float[N,3] x) => (float[N,3] y) <float[3] w = {1, 2, 3}> { t = Add(x, w)  y = Mul(t, t) }")
    add, mul = nodes_of(model)
    x, w = add.inputs
    assert (model.graph.inputs, model.graph.outputs) == ([x], mul.outputs)
    assert mul.inputs == (add.outputs[0], add.outputs[0])
    assert list(add.outputs[0].uses) == [(mul, 0), (mul, 1)]
    assert w is model.graph.initializers["w"]
    assert w is not None
    assert w.constant.numpy().tolist() == [1, 2, 3]  # type: ignore[union-attr]
    assert str(w.type) == "f32[3]"
    assert str(model.graph.inputs[0].type) == "f32[N,3]"
    assert (add.version, add.domain, add.graph) == (21, "", model.graph)


def test_an_initializer_may_be_an_input_and_an_output_may_be_either() -> None:
    model = model_of(
        "g (float[N] w, float[2] x) => (float[2] w, float[2] x, float[1] c) <float[2] w = {1, 2}, float[1] c = {3}> { }"
    )
    w, x = model.graph.inputs
    c = model.graph.initializers["c"]
    assert model.graph.outputs == [w, x, c]
    assert w is model.graph.initializers["w"]
    assert str(w.type) == "f32[N]"  # what the input declares, for other values may be fed


def test_left_out_inputs_are_none_and_left_out_outputs_have_no_name() -> None:
    model = load(build([helper.make_node("Clip", ["x", "", "m"], ["y", "", "z"])], ["x", "m"], ["y"]))
    (node,) = nodes_of(model)
    assert node.inputs[1] is None
    assert [value.name for value in node.outputs] == ["y", "", "z"]


def test_every_type_is_read() -> None:
    text = """g (float[N,?,3] a, seq(int64[]) b, optional(seq(float)) c, map(string, double[2]) d, sparse_tensor(float[4]) e,
        float[] f, float g) => (float[N,?,3] y) { y = Identity(a) }"""
    types = [value.type for value in model_of(text).graph.inputs]
    first, second = types[0], types[1]
    assert isinstance(first, TensorType)
    assert first.shape is not None
    assert (first.dtype, str(first.shape[0]), first.shape[2]) == (dtypes.FLOAT32, "N", 3)
    assert getattr(first.shape[1], "is_anonymous", False)
    assert isinstance(second, SequenceType)
    assert isinstance(types[2], OptionalType)
    assert isinstance(types[2].element, SequenceType)
    assert types[3] == MapType(dtypes.STRING, TensorType(dtypes.FLOAT64, (2,)))
    assert types[4] == SparseTensorType(dtypes.FLOAT32, (4,))


def test_unknown_dimensions_differ_and_names_mean_the_same() -> None:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["y"])],
        "g",
        [info("a", 1, [None, "N", -1, "?"]), info("b", 1, [None, "N", -1, "?"])],
        [info("y", 1, None)],
    )
    model = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))
    a, b = (value.shape for value in model.graph.inputs)
    assert a is not None
    assert b is not None
    assert [left == right for left, right in zip(a, b)] == [False, True, False, False]
    assert model.graph.inputs[0].metadata == {"onnx.dim_param.3": "?"}
    assert ModelProto.FromString(to_bytes(model)).graph.input[0].type.tensor_type.shape.dim[3].dim_param == "?"
    assert model.graph.outputs[0].shape is None


def test_a_type_without_element_type_is_unknown() -> None:
    model = load(build([helper.make_node("Abs", ["x"], ["y"])], ["x"], []))
    proto = ModelProto.FromString(to_bytes(model))
    proto.graph.input[0].type.tensor_type.elem_type = 0
    proto.graph.output.append(onnx.ValueInfoProto(name="y"))
    again = load(proto)
    assert again.graph.inputs[0].type is None
    assert again.graph.outputs[0].type is None


def test_denotations_and_quantization_annotations_are_metadata() -> None:
    proto = build([helper.make_node("Abs", ["x"], ["y"])], ["x"], ["y"])
    proto.graph.input[0].type.denotation = "IMAGE"
    proto.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    annotation = proto.graph.quantization_annotation.add(tensor_name="y")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="scale")
    model = load(proto)
    assert model.graph.inputs[0].metadata == {"onnx.denotation": "IMAGE", "onnx.denotation.0": "DATA_BATCH"}
    assert model.graph.outputs[0].metadata == {"onnx.quantization.SCALE_TENSOR": "scale"}
    assert ModelProto.FromString(to_bytes(model)).graph == proto.graph


def test_every_kind_of_attribute_is_read() -> None:
    tensor = numpy_helper.from_array(np.array([4], np.int64), "t")
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([1], np.float32), "v"), numpy_helper.from_array(np.array([2], np.int64), "i"), [5]
    )
    type_proto = helper.make_tensor_type_proto(1, ["N"])
    graph = helper.make_graph([helper.make_node("Abs", ["x"], ["z"])], "inner", [], [onnx.ValueInfoProto(name="z")])
    values: dict[str, Any] = {
        "FLOAT": 0.5, "INT": -3, "STRING": "text", "TENSOR": tensor, "GRAPH": graph, "FLOATS": [1.5] * 100, "INTS": [-1] * 100,
        "STRINGS": ["a", b"\xff"], "TENSORS": [tensor, tensor], "GRAPHS": [graph], "SPARSE_TENSOR": sparse,
        "SPARSE_TENSORS": [sparse], "TYPE_PROTO": type_proto, "TYPE_PROTOS": [type_proto],
    }  # fmt: skip
    node = helper.make_node("Custom", ["x"], ["y"], **values)
    node.attribute.append(AttributeProto(name="empty", type=AttributeProto.INTS))
    model = load(build([node], ["x"], ["y"]))
    (made,) = nodes_of(model)
    found = {attr.name: attr.value for attr in made.attrs.values()}
    in_files = [kind for kind in AttrKind if kind is not AttrKind.OPAQUE]  # that one is for objects of providers alone
    assert all(made.attrs[kind.name].kind is kind for kind in in_files)
    assert (found["FLOAT"], found["INT"], found["STRING"], found["empty"]) == (0.5, -3, "text", ())
    assert (found["FLOATS"], found["INTS"], found["STRINGS"]) == ((1.5,) * 100, (-1,) * 100, ("a", "\udcff"))
    assert found["TENSOR"].numpy().tolist() == [4]
    assert [each.numpy().tolist() for each in found["TENSORS"]] == [[4], [4]]
    assert isinstance(found["SPARSE_TENSOR"], SparseConstant)
    assert str(found["TYPE_PROTO"]) == "f32[N]"
    assert [graph.name for graph in made.subgraphs()] == ["inner", "inner"]
    assert captured_values(found["GRAPH"]) == model.graph.inputs


def test_attributes_of_old_files_have_the_type_of_what_they_hold() -> None:
    node = helper.make_node("Custom", ["x"], ["y"])
    node.attribute.append(AttributeProto(name="a", i=3))
    model = load(build([node], ["x"], ["y"]))
    assert nodes_of(model)[0].attrs["a"].kind is AttrKind.INT


@pytest.mark.parametrize(
    ("attribute", "text"),
    [
        (AttributeProto(i=3), "an attribute without a name"),
        (AttributeProto(name="a"), "attribute 'a' does not say its type and has no value"),
        (AttributeProto(name="a", i=1, f=1.0), "attribute 'a' does not say its type and has FLOAT and INT"),
        (AttributeProto(name="a", type=AttributeProto.INT, f=1.0), "attribute 'a' says it is INT, but has FLOAT"),
        (AttributeProto(name="a", type=AttributeProto.TENSOR), "attribute 'a' says it is TENSOR, but has no value"),
        (AttributeProto(name="a", tp=onnx.TypeProto()), "attribute 'a' is a type without an element type"),
        (
            AttributeProto(name="a", ref_attr_name="b", type=AttributeProto.INT),
            "attribute 'a' refers to the function attribute 'b'",
        ),
    ],
)
def test_an_attribute_that_makes_no_sense_is_refused(attribute: AttributeProto, text: str) -> None:
    node = helper.make_node("Custom", ["x"], ["y"])
    node.attribute.append(attribute)
    (problem,) = problems_of(build([node], ["x"], ["y"]))
    assert text in problem


def test_a_subgraph_reads_the_values_around_it() -> None:
    model = model_of("""g (bool c, float[2] x) => (float[2] y) {
        t = Abs(x)
        y = If (c) <then_branch = a () => (float[2] p) { p = Add(t, x) }, else_branch = b () => (float[2] p) { p = Neg(x) }>
    }""")
    abs_, branch = nodes_of(model)
    then, otherwise = branch.subgraphs()
    (add,) = then.nodes
    assert add.inputs == (abs_.outputs[0], model.graph.inputs[1])
    assert then.parent_node is branch
    assert captured_values(then) == [abs_.outputs[0], model.graph.inputs[1]]
    assert then.outputs[0] is not otherwise.outputs[0]


def test_a_name_defined_inside_shadows_the_one_outside() -> None:
    model = model_of("""g (bool c, float[2] t) => (float[2] y) {
        y = If (c) <then_branch = a () => (float[2] p) { t = Constant <value = float[2] {1, 2}> ()  p = Neg(t) },
                    else_branch = b () => (float[2] p) { p = Neg(t) }>
    }""")
    (branch,) = nodes_of(model)
    then, otherwise = branch.subgraphs()
    constant, neg = then.nodes
    assert neg.inputs == (constant.outputs[0],)
    assert captured_values(then) == []
    assert captured_values(otherwise) == [model.graph.inputs[1]]


def test_nodes_out_of_order_are_sorted_and_the_rest_keeps_its_place() -> None:
    nodes = [
        helper.make_node("Add", ["b", "c"], ["y"], name="last"),
        helper.make_node("Abs", ["x"], ["a"], name="one"),
        helper.make_node("Neg", ["a"], ["b"], name="two"),
        helper.make_node("Exp", ["x"], ["c"], name="three"),
    ]
    model = load(build(nodes, ["x"], ["y"]))
    assert [node.name for node in nodes_of(model)] == ["one", "two", "three", "last"]


def test_a_node_waits_for_what_its_subgraphs_read() -> None:
    inner = helper.make_graph([helper.make_node("Neg", ["late"], ["p"])], "inner", [], [onnx.ValueInfoProto(name="p")])
    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner),
        helper.make_node("Abs", ["x"], ["late"]),
    ]
    assert [node.op_type for node in nodes_of(load(build(nodes, ["x", "c"], ["y"])))] == ["Abs", "If"]


def test_a_cycle_is_reported_with_its_nodes() -> None:
    nodes = [
        helper.make_node("Abs", ["x"], ["fine"], name="fine"),
        helper.make_node("Add", ["x", "c"], ["a"], name="first"),
        helper.make_node("Neg", ["a"], ["b"], name="second"),
        helper.make_node("Exp", ["b"], ["c"], name="third"),
        helper.make_node("Abs", ["c"], ["y"], name="behind"),
    ]
    (problem,) = problems_of(build(nodes, ["x"], ["y"]))
    assert problem.startswith("the nodes form a cycle: ")
    names = problem.split(": ")[1].split(" -> ")
    assert sorted(set(names)) == ["Add 'first'", "Exp 'third'", "Neg 'second'"]
    assert names[0] == names[-1]
    assert ("Add 'first'", "Neg 'second'") in itertools.pairwise(names)


def test_a_node_that_reads_itself_is_a_cycle_also_through_a_subgraph() -> None:
    (problem,) = problems_of(build([helper.make_node("Add", ["y", "x"], ["y"], name="n")], ["x"], ["y"]))
    assert problem == "the nodes form a cycle: Add 'n' -> Add 'n'"
    inner = helper.make_graph([helper.make_node("Neg", ["y"], ["p"])], "inner", [], [onnx.ValueInfoProto(name="p")])
    node = helper.make_node("If", ["c"], ["y"], name="n", then_branch=inner, else_branch=inner)
    assert problems_of(build([node], ["c"], ["y"])) == ("the nodes form a cycle: If 'n' -> If 'n'",)


def test_all_problems_are_reported_at_once() -> None:
    nodes = [
        helper.make_node("Add", ["x", "ghost"], ["a"], name="n1"),
        helper.make_node("Abs", ["x"], ["a"], name="n2"),
        helper.make_node("Abs", ["x"], ["x"], name="n3"),
        helper.make_node("Abs", ["x"], ["w"], name="n4"),
        helper.make_node("Foo", ["x"], ["f"], name="n5", domain="org.example"),
    ]
    weights = [numpy_helper.from_array(np.arange(length, dtype=np.float32), "w") for length in (2, 3)]
    problems = problems_of(build(nodes, ["x", "x"], ["y"], initializer=weights))
    assert problems == (
        "two constants are called 'w': f32[2] and f32[3]",
        "two graph inputs are called 'x'",
        "Abs 'n2': output 'a' is also an output of Add 'n1'",
        "Abs 'n3': output 'x' is also a graph input",
        "Abs 'n4': output 'w' is also an initializer",
        "Add 'n1': input 1 is 'ghost', which nothing produces",
        "org.example::Foo 'n5': its domain 'org.example' is not in the opset imports (ai.onnx 21)",
        "graph output 'y' is never produced",
    )


def test_the_report_names_the_subgraph_and_the_model() -> None:
    inner = helper.make_graph([helper.make_node("Neg", ["ghost"], ["p"])], "inner", [], [onnx.ValueInfoProto(name="p")])
    node = helper.make_node("If", ["c"], ["y"], name="choice", then_branch=inner, else_branch=inner)
    with pytest.raises(InvalidGraph) as caught:
        load(build([node], ["c"], ["y"]))
    assert str(caught.value) == (
        "INVALID_GRAPH : model given as ModelProto: 2 problems\n"
        "  Neg '-> p' in else_branch in If 'choice': input 0 is 'ghost', which nothing produces\n"
        "  Neg '-> p' in then_branch in If 'choice': input 0 is 'ghost', which nothing produces"
    )


def test_a_node_without_operator_or_with_two_attributes_of_one_name_is_refused() -> None:
    first, second = onnx.NodeProto(output=["y"]), helper.make_node("Abs", ["x"], ["z"], a=1)
    second.attribute.append(second.attribute[0])
    assert problems_of(build([first, second], ["x"], ["y"])) == (
        "graph.node[0], byte 5: a node without an operator (op_type)",
        "graph.node[1], byte 10: Abs '-> z' has two attributes of one name",
    )


def test_a_node_without_inputs_and_outputs_is_left_out() -> None:
    nothing = helper.make_graph([], "nothing", [], [])
    nodes = [
        onnx.NodeProto(op_type="Abs"),
        helper.make_node("If", [], [], then_branch=nothing, else_branch=nothing),
        helper.make_node("Abs", ["x"], ["y"]),
    ]
    model = load(build(nodes, ["x"], ["y"]))
    assert [node.op_type for node in model.graph.nodes] == ["Abs"]
    assert model.notes == (
        "graph.node[0], byte 5: Abs has neither inputs nor outputs, it is left out",
        "graph.node[1], byte 12: If has neither inputs nor outputs, it is left out",
    )


def test_an_empty_subgraph_of_a_node_that_does_something_is_refused() -> None:
    nothing = helper.make_graph([], "nothing", [], [])
    node = helper.make_node("If", ["x"], ["y"], name="choice", then_branch=nothing, else_branch=nothing)
    first, second = problems_of(build([node], ["x"], ["y"]))
    assert (first, second) == (
        "graph.node[0], byte 5: If 'choice': else_branch is an empty subgraph",
        "graph.node[0], byte 5: If 'choice': then_branch is an empty subgraph",
    )


def constant(number: float, *sizes: int) -> onnx.NodeProto:
    return helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.full(sizes, number, np.float32)))


def test_of_constants_with_one_name_the_last_counts() -> None:
    add = helper.make_node("Add", ["x", "c"], ["y"])
    weight = numpy_helper.from_array(np.full(2, 5, np.float32), "c")
    for nodes, weights, number in (
        ([constant(1, 2), constant(3, 2), add], [], 3),
        ([constant(1, 2), add, constant(3, 2)], [], 3),
        ([constant(1, 2), add], [weight], 1),
        ([add], [numpy_helper.from_array(np.zeros(2, np.float32), "c"), weight], 5),
    ):
        model = load(build(nodes, ["x"], ["y"], initializer=weights))
        assert [node.op_type for node in model.graph.nodes] == ["Add"]
        held = model.graph.initializers["c"].constant
        assert held is not None
        assert held.numpy().tolist() == [number, number]
        assert model.notes == ("two constants are called 'c': the last one counts",)


def test_constants_of_one_name_and_different_shapes_are_refused() -> None:
    add = helper.make_node("Add", ["x", "c"], ["y"])
    problems = problems_of(build([constant(1, 2), constant(1, 1), add], ["x"], ["y"]))
    assert problems == ("two constants are called 'c': f32[2] and f32[1]",)


def test_a_constant_with_the_name_of_an_input_is_its_default() -> None:
    model = load(build([constant(1, 2), helper.make_node("Add", ["x", "c"], ["y"])], ["x", "c"], ["y"]))
    assert [value.name for value in model.graph.inputs] == ["x", "c"]
    assert model.graph.initializers["c"] is model.graph.inputs[1]


def test_versions_come_from_the_imports() -> None:
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], domain="ai.onnx"),
        helper.make_node("Scaler", ["a"], ["b"], domain="ai.onnx.ml"),
        helper.make_node("Gelu", ["b"], ["c"], domain="com.microsoft"),
        helper.make_node("F", ["c"], ["y"], domain="local"),
    ]
    proto = build(nodes, ["x"], ["y"])
    proto.opset_import[0].domain = "ai.onnx"
    proto.opset_import.add(domain="ai.onnx.ml", version=3)
    function = helper.make_function(
        "local", "F", ["i"], ["o"], [helper.make_node("Abs", ["i"], ["o"])], [helper.make_opsetid("", 13)]
    )
    proto.functions.append(function)
    model = load(proto)
    assert [node.version for node in nodes_of(model)] == [21, 3, 1, 1]
    assert model.opset_imports == {"": 21, "ai.onnx.ml": 3}
    (body,) = model.functions["local", "F", ""].graph.nodes
    assert body.version == 13


def test_files_older_than_opset_imports_are_version_one() -> None:
    proto = build([helper.make_node("Abs", ["x"], ["y"])], ["x"], ["y"])
    proto.ir_version = 1
    del proto.opset_import[:]
    assert [node.version for node in nodes_of(load(proto))] == [1]


def test_a_model_without_imports_or_ir_version_is_refused() -> None:
    proto = build([helper.make_node("Abs", ["x"], ["y"])], ["x"], ["y"])
    del proto.opset_import[:]
    problems = problems_of(proto)
    assert problems[0] == "the model imports no operator set (opset_import is empty)"
    proto.ClearField("ir_version")
    assert problems_of(proto)[0] == "the model does not say its IR version"
    proto.opset_import.add(domain="", version=0)
    assert any("version 0 of domain '' does not exist" in text for text in problems_of(proto))


def test_operators_whose_domain_is_not_imported_are_the_newest_of_onnxruntime() -> None:
    proto = build([helper.make_node("Abs", ["x"], ["y"])], ["x"], ["y"])
    proto.opset_import[0].domain, proto.opset_import[0].version = "ai.onnx.ml", 3
    model = load(proto)
    assert [node.version for node in nodes_of(model)] == [26]
    assert model.opset_imports == {"ai.onnx.ml": 3}


def test_newer_ir_versions_and_opsets_are_read() -> None:
    proto = build([helper.make_node("Abs", ["x"], ["y"])], ["x"], ["y"])
    proto.ir_version, proto.opset_import[0].version = 99, 99
    model = load(proto)
    assert (model.ir_version, nodes_of(model)[0].version) == (99, 99)


def test_functions_are_read_whole() -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    g (float[2] x) => (float[2] y) { y = local.F <alpha = 2.0> (x) }
    <domain: "local", opset_import: ["" : 18]>
    F <alpha, beta: float = 0.5> (a) => (b) { c = Constant <value_float: float = @alpha> ()  b = Mul(a, c) }"""
    proto = parser.parse_model(text)
    proto.functions[0].overload = "o"
    proto.functions[0].doc_string = "scales"
    proto.functions[0].metadata_props.add(key="k", value="v")
    proto.functions[0].value_info.append(helper.make_tensor_value_info("c", 1, []))
    function = load(proto).functions["local", "F", "o"]
    constant, mul = function.graph.nodes
    assert function.attributes == ("alpha",)
    assert [(attr.name, attr.value) for attr in function.attribute_defaults] == [("beta", 0.5)]
    assert constant.attrs["value_float"].ref == "alpha"
    assert constant.attrs["value_float"].value is None
    assert mul.inputs == (function.graph.inputs[0], constant.outputs[0])
    assert function.graph.outputs == mul.outputs
    assert (function.opset_imports, function.doc, function.metadata) == ({"": 18}, "scales", {"k": "v"})
    assert str(constant.outputs[0].type) == "f32[]"


def function_of(name: str, *calls: str) -> onnx.FunctionProto:
    names = ["i", *(f"v{index}" for index in range(len(calls)))]
    nodes = [helper.make_node(call, [a], [b], domain="local") for call, a, b in zip(calls, names, names[1:])]
    return helper.make_function("local", name, ["i"], [names[-1]], nodes, [helper.make_opsetid("local", 1)])


def test_functions_that_call_themselves_are_refused() -> None:
    proto = build([helper.make_node("A", ["x"], ["y"], domain="local")], ["x"], ["y"])
    proto.functions.extend([function_of("A", "B", "C"), function_of("B", "C"), function_of("C")])
    load(proto)
    proto.functions[2].CopyFrom(function_of("C", "A"))
    problems = problems_of(proto)
    assert len(problems) >= 1
    assert all("calls itself: local::" in problem for problem in problems)
    proto.functions[2].CopyFrom(function_of("A"))
    assert problems_of(proto) == ("function local::A is defined twice",)


def test_metadata_and_documentation_are_kept() -> None:
    proto = build([helper.make_node("Abs", ["x"], ["y"], name="n", doc_string="node doc")], ["x"], ["y"])
    proto.producer_name, proto.producer_version, proto.domain, proto.model_version = "p", "1.2", "org.example", 7
    proto.doc_string, proto.graph.doc_string, proto.graph.input[0].doc_string = "model doc", "graph doc", "input doc"
    for holder in (proto, proto.graph, proto.graph.node[0], proto.graph.input[0]):
        holder.metadata_props.add(key="k", value="v")
    model = load(proto)
    (node,) = nodes_of(model)
    assert (model.producer_name, model.producer_version, model.domain, model.model_version) == ("p", "1.2", "org.example", 7)
    assert (model.doc, model.graph.doc, node.doc, model.graph.inputs[0].doc) == (
        "model doc",
        "graph doc",
        "node doc",
        "input doc",
    )
    assert model.metadata == model.graph.metadata == node.metadata == model.graph.inputs[0].metadata == {"k": "v"}


def test_a_file_cannot_forge_encoded_fields_through_metadata() -> None:
    node = helper.make_node("Abs", ["x"], ["y"])
    node.metadata_props.add(key="onnx.device_configurations", value="!!!")
    model = load(build([node], ["x"], ["y"]))
    assert nodes_of(model)[0].metadata == {}
    assert not ModelProto.FromString(to_bytes(model)).graph.node[0].metadata_props


def test_sparse_initializers_are_constants() -> None:
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([1], np.float32), "w"), numpy_helper.from_array(np.array([2], np.int64), "i"), [5]
    )
    model = load(build([helper.make_node("Abs", ["w"], ["y"])], [], ["y"], sparse_initializer=[sparse]))
    value = model.graph.initializers["w"]
    assert isinstance(value.constant, SparseConstant)
    assert value.type == TensorType(dtypes.FLOAT32, (5,))  # for the nodes that read it


def test_every_kind_of_source_gives_the_same_model(tmp_path: Path) -> None:
    proto = build([helper.make_node("Abs", ["x"], ["y"])], ["x"], ["y"])
    data = proto.SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    sources: list[Any] = [str(path), path, data, bytearray(data), memoryview(data), io.BytesIO(data), proto]
    assert {to_bytes(load(source)) for source in sources} == {data}
    with path.open("rb") as file:
        assert to_bytes(load(file)) == data
    assert load(path).path == str(path)
    assert load(data).path == ""


def test_what_is_no_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoSuchFile, match=r"there is no model file '.*missing\.onnx'"):
        load(tmp_path / "missing.onnx")
    with pytest.raises(InvalidArgument, match="is a folder, expected a model file"):
        load(tmp_path)
    with pytest.raises(InvalidArgument, match="a model cannot be read from int"):
        load(5)
    with pytest.raises(InvalidArgument, match="the model file gives str, expected bytes"):
        load(io.StringIO("text"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidArgument, match="is not a regular file"):
        load(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", r"it is empty \(0 bytes\)"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "this looks like a PNG image"),
        (b"<!DOCTYPE html><html></html>", "this looks like an HTML page"),
        (
            b"version https://git-lfs.github.com/spec/v1\n",
            "a Git LFS pointer, which stands for the real file\n  hint: fetch it with",
        ),
        (b"PK\x03\x04" + bytes(50), "a ZIP archive"),
        (b"just some text that is no model", r"byte \d+"),
        (b"\x08\x0a", "this is no ONNX model: it has no graph"),
    ],
)
def test_bytes_that_are_something_else_are_recognised(data: bytes, text: str) -> None:
    with pytest.raises(InvalidProtobuf, match=text):
        load(data)


def test_names_that_are_no_text_are_kept() -> None:
    data = (
        build([helper.make_node("Abs", ["NAME"], ["y"])], ["NAME"], ["y"]).SerializeToString().replace(b"NAME", b"\xff\xfe\x00a")
    )
    model = load(data)
    assert model.graph.inputs[0].name == "\udcff\udcfe\x00a"
    assert to_bytes(model) == data


def test_unknown_fields_are_skipped() -> None:
    data = build([helper.make_node("Abs", ["x"], ["y"])], ["x"], ["y"]).SerializeToString()
    assert to_bytes(load(data + b"\xa2\x06\x03new" + b"\xa8\x06\x01")) == data
