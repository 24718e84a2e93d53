"""Kernels are matched to nodes by operator, domain, version and the types of named constraints."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from model_text import model
from sardonyx import dtypes
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.formats.onnx import load
from sardonyx.ir.graph import Node
from sardonyx.ir.types import TensorType
from sardonyx.lower import registry
from sardonyx.matching.kernels import FormalArgument, KernelDef, KernelTable
from sardonyx.matching.signatures import SIGNATURES
from sardonyx.ops import signature
from sardonyx.ops.index import load_all, read_index
from sardonyx.providers.reference import DEFINITIONS, definition_of


def node_of(text: str, opset: int = 21) -> Node:
    loaded = load(model(text, opset))
    infer_shapes(loaded)
    return list(loaded.graph.nodes)[-1]


def test_the_first_kernel_that_fits_is_found() -> None:
    floats = KernelDef("Add", versions=(7, None), types={"T": {"float"}}, kernel="floats")
    others = KernelDef("Add", versions=(7, None), types={"T": {"float", "double", "int64"}}, kernel="others")
    table = KernelTable([floats, others])
    assert table.find(node_of("(float[2] x) => (float[2] y) { y = Add(x, x) }")) is floats
    assert table.find(node_of("(int64[2] x) => (int64[2] y) { y = Add(x, x) }")) is others
    assert table.find(node_of("(int32[2] x) => (int32[2] y) { y = Add(x, x) }")) is None
    assert table.find(node_of("(float[2] x) => (float[2] y) { y = Sub(x, x) }")) is None


def test_versions_are_those_of_the_operators_definition() -> None:
    kernel = KernelDef("Relu", versions=(6, 13))
    table = KernelTable([kernel])
    text = "(float[2] x) => (float[2] y) { y = Relu(x) }"
    assert table.find(node_of(text, 6)) is kernel
    assert table.find(node_of(text, 12)) is kernel  # opset 12 has the Relu of version 6
    assert table.find(node_of(text, 13)) is kernel
    assert table.find(node_of(text, 14)) is None
    assert table.mismatches(node_of(text, 14)) == ["it is for version 6 to 13 of Relu, the node is of version 14"]
    assert KernelTable([KernelDef("Relu", versions=(14, None))]).mismatches(node_of(text, 13)) == [
        "it is for version 14 and later of Relu, the node is of version 13"
    ]


def test_a_constraint_is_checked_on_the_first_argument_that_is_there() -> None:
    cast = KernelDef("Cast", types={"T1": {"float"}, "T2": {"int32"}})
    table = KernelTable([cast])
    assert table.find(node_of("(float[2] x) => (int32[2] y) { y = Cast <to = 6> (x) }")) is cast
    assert table.mismatches(node_of("(float[2] x) => (int64[2] y) { y = Cast <to = 7> (x) }")) == [
        "'y' (T2) is tensor(int64), the kernel takes tensor(int32)"
    ]
    resize = KernelDef("Resize", versions=(13, None), types={"T1": {"f32"}, "T2": {"double"}})
    without = "(float[1,1,2,2] x, float[4] s) => (float[1,1,4,4] y) { y = Resize(x, , s) }"
    assert KernelTable([resize]).find(node_of(without)) is resize  # `roi`, of type T2, is left out


def test_several_values_of_one_argument_count_as_its_first() -> None:
    concat = KernelDef("Concat", types={"T": {"tensor(float)"}})
    assert KernelTable([concat]).find(node_of("(float[2] x) => (float[4] y) { y = Concat <axis = 0> (x, x) }")) is concat


def test_arguments_stand_for_their_types_too() -> None:
    reshape = KernelDef("Reshape", types={"shape": {"int64"}, "data": {"float"}})
    assert KernelTable([reshape]).find(node_of("(float[2] x, int64[1] s) => (float[2] y) { y = Reshape(x, s) }")) is reshape


def test_what_the_operator_does_not_have_is_said() -> None:
    table = KernelTable([KernelDef("Add", types={"Q": {"float"}})])
    node = node_of("(float[2] x) => (float[2] y) { y = Add(x, x) }")
    assert table.mismatches(node) == ["Add has no type constraint 'Q' in this version"]
    assert KernelTable([]).mismatches(node) == ["there is no kernel for ai.onnx Add"]
    node.inputs[0].type = None  # type: ignore[union-attr]
    assert KernelTable([KernelDef("Add", types={"T": {"float"}})]).mismatches(node) == ["the type of 'x' (T) is not known"]


def test_types_may_be_written_in_several_ways() -> None:
    kernel = KernelDef("X", types={"T": ["float", "f64", "tensor(int8)", "seq(tensor(float))"]})
    assert kernel.types == {"T": {"tensor(float)", "tensor(double)", "tensor(int8)", "seq(tensor(float))"}}
    with pytest.raises(ValueError, match="'flaot' is not an element type"):
        KernelDef("X", types={"T": ["flaot"]})


def test_a_model_may_bring_its_own_resolver() -> None:
    class Stored:
        """As a file would hold it, for operators that no table knows."""

        def arguments(self, node: Node, constraint: str) -> Sequence[FormalArgument] | None:
            return {"T": (FormalArgument(True, 1),), "U": (FormalArgument(False, 0),)}.get(constraint)

        def since_version(self, node: Node) -> int:
            return 3

    node = node_of("(float[2] x, int64[2] i) => (float[2] y) { y = Gather(x, i) }")
    kernel = KernelDef("Gather", versions=(2, 4), types={"T": {"int64"}, "U": {"float"}})
    assert KernelTable([kernel], Stored()).find(node) is kernel
    assert KernelTable([kernel]).find(node) is None


def compiler_kernels() -> list[KernelDef]:
    load_all("sardonyx.lower")
    return registry.kernels()


def test_rules_of_the_compiler_begin_with_versions_that_exist() -> None:
    kernels = compiler_kernels()
    assert len(kernels) > 150
    for kernel in kernels:
        first, last = kernel.versions
        assert first == 1 or first in signature.versions(kernel.domain, kernel.operator), kernel
        assert last is None, kernel


def test_constraints_of_the_compilers_rules_exist() -> None:
    declared = [kernel for kernel in compiler_kernels() if kernel.types]
    assert len(declared) >= 20
    for kernel in declared:
        for version in signature.versions(kernel.domain, kernel.operator):
            node = Node(kernel.operator, [], [], domain=kernel.domain, version=version)
            if SIGNATURES.since_version(node) >= kernel.versions[0]:
                assert all(SIGNATURES.arguments(node, name) for name in kernel.types), (kernel, version)


def test_a_type_without_a_kernel_is_the_hosts_with_a_reason() -> None:
    text = "(uint8[1,2,4,4] x) => (uint8[1,2,2,2] y) { y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) }"
    assert registry.template_rule(node := node_of(text)) is not None
    assert registry.template_rule(node).refusal(node) == ""  # type: ignore[union-attr]
    node = node_of("(int64[2,2] x) => (int64[2,2] y) { y = Gemm(x, x) }")
    template = registry.template_rule(node)
    assert template is not None
    assert template.refusal(node) == ""
    node.inputs[0].type = TensorType(dtypes.INT8, (2, 2))  # type: ignore[union-attr]
    assert template.refusal(node).startswith("'x' (T) is tensor(int8), the kernel takes tensor(bfloat16), tensor(double)")


def test_definitions_are_kernels_for_their_opset_versions() -> None:
    node = Node("Clip", [], [], version=6)
    old, new = definition_of(node), definition_of(Node("Clip", [], [], version=13))
    assert old is not None
    assert new is not None
    assert (old.since, new.since) == (1, 11)
    assert definition_of(Node("Gelu", [], [], version=19)) is None
    assert DEFINITIONS.mismatches(Node("Gelu", [], [], version=19)) == [
        "it is for version 20 and later of Gelu, the node is of version 19"
    ]


def test_the_index_names_the_modules_that_rules_stand_in() -> None:
    load_all("sardonyx.lower")
    index = read_index("sardonyx.lower")
    for kernel in registry.kernels():
        module = kernel.kernel.__module__.removeprefix("sardonyx.lower.")
        assert module in index[kernel.domain, kernel.operator], kernel
