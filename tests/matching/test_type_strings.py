"""KernelTypeStrResolver: type constraints by name, resolved from a model's file or from the operator table."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import sardonyx
from ort_files import by_hand
from sardonyx.formats import ort
from sardonyx.formats.onnx import load
from sardonyx.ir.graph import Node, walk
from sardonyx.matching.kernels import KernelDef, KernelTable
from sardonyx.matching.signatures import SIGNATURES, TableFacts, resolver_of
from sardonyx.matching.type_strings import KernelTypeStrResolver, join_identifier, split_identifier
from sardonyx.providers import ClaimedRegion, ExecutionProvider, GraphView

RESOLVER = KernelTypeStrResolver(
    {
        ":Cast:9": {"T1": ((True, 0),), "T2": ((False, 0),)},
        ":Cast:13": {"T1": ((True, 0),), "T2": ((False, 0),)},
        "com.example:Blend:2": {"T": ((True, 0), (True, 1), (False, 0)), "amount": ((True, 2),)},
    }
)


def node_of(op: str, version: int, domain: str, inputs: list[tuple[str, int] | None]) -> Node:
    """A node with these inputs and one output, all typed."""
    info = [helper.make_tensor_value_info(each[0], each[1], [2]) for each in inputs if each]
    attributes = {"to": TensorProto.INT32} if op == "Cast" else {}
    made = helper.make_node(op, [each[0] if each else "" for each in inputs], ["y"], domain=domain, **attributes)
    kind = TensorProto.INT32 if op == "Cast" else TensorProto.FLOAT
    graph = helper.make_graph([made], "g", info, [helper.make_tensor_value_info("y", kind, [2])])
    imports = [helper.make_opsetid("", 13 if domain else version)] + ([helper.make_opsetid(domain, version)] if domain else [])
    model = load(helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString())
    return next(iter(model.graph.nodes))


def test_identifiers() -> None:
    for text in (":Add:14", "com.microsoft:FusedConv:1", "a:b:C:3"):
        assert join_identifier(*split_identifier(text)) == text
    assert split_identifier("a:b:C:3") == ("a:b", "C", 3)


def test_a_definition_is_the_newest_that_is_not_newer_than_the_node() -> None:
    for version, since in ((9, 9), (12, 9), (13, 13), (20, 13), (7, 7)):
        assert RESOLVER.since_version(node_of("Cast", version, "", [("x", 1)])) == since
    assert not RESOLVER.knows(node_of("Cast", 7, "", [("x", 1)]))


def test_kernels_of_operators_that_no_table_has_match_by_the_types_of_the_file() -> None:
    kernel = KernelDef("Blend", "com.example", (2, 3), {"T": {"float"}, "amount": {"double"}})
    table = KernelTable([kernel], RESOLVER)
    floats: list[tuple[str, int] | None] = [("a", 1), ("b", 1)]
    assert table.find(node_of("Blend", 3, "com.example", [*floats, ("c", TensorProto.DOUBLE)])) is kernel
    assert table.find(node_of("Blend", 3, "com.example", floats)) is kernel  # what is left out has no type
    assert table.find(node_of("Blend", 3, "com.example", [None, ("b", 1)])) is kernel
    wrong = node_of("Blend", 3, "com.example", [*floats, ("c", 1)])
    assert table.find(wrong) is None
    assert "'c' (amount) is tensor(float), the kernel takes tensor(double)" in table.mismatches(wrong)[0]
    assert table.find(node_of("Blend", 3, "com.example", [("a", TensorProto.INT64), ("b", 1)])) is None
    assert table.find(node_of("Blend", 1, "com.example", floats)) is None
    assert "no type constraint 'T'" in KernelTable([kernel]).mismatches(node_of("Blend", 2, "com.example", floats))[0]


def test_file_and_table_tell_the_same_of_every_operator_that_both_have() -> None:
    model = load(Path("src/sardonyx/data/digits.onnx"))
    stated = KernelTypeStrResolver(TableFacts().type_arguments(walk(model.graph)))
    for node in walk(model.graph):
        assert stated.since_version(node) == SIGNATURES.since_version(node)
        for constraint in stated.entries[join_identifier(node.domain, node.op_type, stated.since_version(node))]:
            assert stated.arguments(node, constraint) == SIGNATURES.arguments(node, constraint)


class _Blending(ExecutionProvider):
    name = "BlendingExecutionProvider"
    kernels = KernelTable([KernelDef("Blend", "com.example", (2, None), {"T": {"float"}})])

    def __init__(self, options: object) -> None:
        pass

    def claim(self, view: GraphView) -> Iterable[Collection[Node]]:
        return view.regions(node for node in view.nodes if self.kernels.find(node, view.resolver) is not None)

    def compile(self, region: ClaimedRegion):  # type: ignore[no-untyped-def]
        return lambda inputs: [inputs[0] / 2 + inputs[1] / 2]


def test_a_provider_finds_its_kernels_for_a_model_in_the_ort_format_by_what_the_file_says() -> None:
    info = [helper.make_tensor_value_info(name, 1, [2]) for name in "aby"]
    made = helper.make_node("Blend", ["a", "b"], ["y"], domain="com.example")
    graph = helper.make_graph([made], "g", info[:2], info[2:])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 2)]
    model = load(helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString())
    content = ort.to_bytes(model, TableFacts(RESOLVER.entries))
    assert ort.load(content).type_arguments == {"com.example:Blend:2": RESOLVER.entries["com.example:Blend:2"]}
    sardonyx.register_provider(_Blending.name, _Blending)
    try:
        session = sardonyx.InferenceSession(content, providers=[_Blending.name])
        x = np.ones(2, np.float32)
        assert session.run(None, {"a": x, "b": 3 * x})[0].tolist() == [2, 2]
    finally:
        sardonyx.unregister_provider(_Blending.name)
    node = next(iter(model.graph.nodes))
    assert resolver_of(None).arguments(node, "T") is None
    assert resolver_of(RESOLVER.entries).arguments(node, "T") is not None


def test_there_are_no_hashes(tmp_path: Path) -> None:
    """The fields that held hashes of kernels in old versions are left out."""
    with pytest.raises(sardonyx.errors.Fail):
        ort.load(by_hand(version="5", resolver=False))
    assert ort.load(by_hand(version="4", resolver=False)).type_arguments is None
