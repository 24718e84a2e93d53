"""Every shape rule, given any ranks, sizes and attributes: a shape or a sentence, never an error of Python's own."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from hostile_nodes import drawn_attributes
from sardonyx import dtypes
from sardonyx.analysis.shapes import report_shapes
from sardonyx.ir import dims, tensor
from sardonyx.ir.builder import make_attr
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import AttrKind, Graph, Model, Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.ops import registry, signature
from sardonyx.ops.registry import OpDef
from sardonyx.ops.signature import Signature

SIZES: tuple[Dim, ...] = (0, 1, 2, 3, 4, dims.symbol("N"), dims.symbol("M"))
ATTRIBUTES: dict[AttrKind, tuple[Any, ...]] = {
    AttrKind.INT: (0, 1, 2, 3, -1, 100),
    AttrKind.INTS: ((0,), (1, 1), (2, -1, 3), (1, 1, 1, 1), (3, 0)),
    AttrKind.FLOAT: (0.0, 1.0, float("nan")),
    AttrKind.FLOATS: ((1.0,), (1.0, 2.0, 0.5, 1.0)),
    AttrKind.STRING: ("other", "SAME_UPPER", "constant", "linear", "ab,bc->ac"),
    AttrKind.STRINGS: (("a",), ("a", "b")),
}
INTEGERS = (np.array(1), np.array([], np.int64), np.array([0]), np.array([-1, 3]), np.array([2, 1, 7]), np.array([1, 1, 0, 2]))
TRIES = 8  # of every version of every operator
PYTHONS_OWN = ("shape inference failed", "unpack", "zip()", "index out of range", "has no len()", "not subscriptable")


def node_of(definition: OpDef, sig: Signature, choose: random.Random) -> Graph | None:
    """A graph with one node of this operator and what it may be given; None if it needs graphs or values that are no tensors."""
    attrs = drawn_attributes(sig, choose, ATTRIBUTES)
    if attrs is None:
        return None
    graph = Graph("rules")
    bound: dict[str, str] = {}
    inputs: list[Value | None] = []
    for index in range(choose.randint(sig.fewest_inputs, max(sig.fewest_inputs, len(sig.inputs)))):
        parameter = sig.input_at(index)
        assert parameter is not None
        if parameter.optional and choose.random() < 0.3:
            inputs.append(None)
            continue
        kinds = [kind for kind in sig.types.get(parameter.type, (parameter.type,)) if "(" not in kind]
        if not kinds:
            return None
        dtype = dtypes.from_name(bound.setdefault(parameter.type, choose.choice(kinds)))
        value = Value(f"i{index}")
        shape = tuple(choose.choice(SIZES) for _ in range(choose.randint(0, 5)))
        value.type = TensorType(dtype, None if choose.random() < 0.1 else shape)
        if dtype in (dtypes.INT64, dtypes.INT32) and choose.random() < 0.5:
            value.constant = tensor.from_numpy(choose.choice(INTEGERS).astype(dtype.numpy), value.name)
            value.type = TensorType(dtype, value.constant.shape)
            graph.initializers[value.name] = value
        else:
            graph.inputs.append(value)
        inputs.append(value)
    outputs = [Value(f"o{index}") for index in range(choose.randint(1, max(1, len(sig.outputs))))]
    graph.append(Node(definition.name, inputs, outputs, attrs, domain=definition.domain, version=sig.since))
    return graph


def signatures() -> list[tuple[OpDef, Signature]]:
    """Every version of every operator, with the definition that holds for it; those that only passes make are left out."""
    found = []
    for definition in registry.definitions():
        for version in signature.versions(definition.domain, definition.name):
            sig = signature.signature(definition.domain, definition.name, version)
            holds = registry.lookup(definition.domain, definition.name, version) is definition
            if sig is not None and not sig.deprecated and holds and definition.domain != "sardonyx":
                found.append((definition, sig))
    return found


@pytest.mark.parametrize("seed", range(TRIES))
def test_no_shape_rule_fails_with_an_error_of_its_own(seed: int) -> None:
    choose = random.Random(seed)
    failures = set()
    for definition, sig in signatures():
        graph = node_of(definition, sig, choose)
        if graph is not None:
            report = report_shapes(Model(graph, ir_version=10, opset_imports={definition.domain: sig.since}))
            texts = [finding.text for finding in report.findings]
            failures |= {(definition.label, text) for text in texts if any(mark in text for mark in PYTHONS_OWN)}
    assert failures == set()


def test_a_wrong_rank_names_the_input_and_what_is_expected() -> None:
    graph, x, y = Graph("g"), Value("x"), Value("y")
    x.type = TensorType(dtypes.FLOAT32, (2, dims.symbol("N")))
    graph.inputs.append(x)
    graph.append(Node("DepthToSpace", [x], [y], [make_attr("blocksize", 2)], version=13))
    [finding] = report_shapes(Model(graph, ir_version=10, opset_imports={"": 13})).findings
    assert (finding.severity, finding.text) == ("error", "input 0 (input) is [2,N], expected rank 4")
