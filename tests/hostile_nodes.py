"""Models of one node whose inputs and attributes fit its signature and nothing else, with feeds for them.

Ranks, lengths, axes, indices and sizes are drawn without regard for each other: small ones, negative ones, and ones that no
memory can hold. Sizes between, which memory might hold after a long time, are left out.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.formats.onnx import to_bytes
from sardonyx.ir import dims, tensor
from sardonyx.ir.graph import Attr, AttrKind, Graph, Model, Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.ops import registry, signature
from sardonyx.ops.registry import OpDef, Trait
from sardonyx.ops.signature import Signature

HUGE = (1 << 40, 1 << 62, -(1 << 62), -(1 << 63), (1 << 63) - 1)
SMALL = (0, 1, 2, 3, -1, -2, 5, 7)
ATTRIBUTES: dict[AttrKind, tuple[Any, ...]] = {
    AttrKind.INT: (*SMALL, 100, *HUGE),
    AttrKind.INTS: ((), (0,), (1, 1), (2, -1, 3), (1, 1, 1, 1), (3, 0), (9, -9), (1 << 62, 1), (2, 2, 2, 2, 2, 2)),
    AttrKind.FLOAT: (0.0, 1.0, -1.0, float("nan"), float("inf"), 1e30),
    AttrKind.FLOATS: ((), (1.0,), (1.0, 2.0, 0.5, 1.0), (float("nan"), float("inf"))),
    AttrKind.STRING: ("", "other", "SAME_UPPER", "constant", "linear", "ab,bc->ac", "\udcff"),
    AttrKind.STRINGS: ((), ("a",), ("a", "b", "a")),
    AttrKind.TENSOR: tuple(
        tensor.from_numpy(array) for array in (np.zeros((), np.float32), np.zeros(0, np.int64), np.array(["a"], object))
    ),
}
SIZES = (0, 1, 1, 2, 3, 4)


@dataclass(frozen=True)
class HostileCase:
    """A model and what it is fed."""

    label: str
    content: bytes
    feeds: dict[str, Any]


def signatures() -> list[tuple[OpDef, Signature]]:
    """Every version of every operator that takes tensors alone, with the definition that holds for it."""
    found = []
    for definition in registry.definitions():
        if definition.traits & Trait.CONTROL_FLOW or definition.domain == "sardonyx":
            continue
        for version in signature.versions(definition.domain, definition.name):
            sig = signature.signature(definition.domain, definition.name, version)
            if sig is not None and registry.lookup(definition.domain, definition.name, version) is definition:
                found.append((definition, sig))
    return found


def numbers(dtype: DType, shape: tuple[int, ...], choose: random.Random) -> Any:
    """Elements of any type: small ones, or some that mean nothing good as an index, a length or a size."""
    count = int(np.prod(shape))
    if dtype is dtypes.STRING:
        array = np.empty(count, object)
        array[:] = [choose.choice(("", "a", "1", "x y")) for _ in range(count)]
    elif dtype in (dtypes.INT64, dtypes.UINT64, dtypes.INT32, dtypes.UINT32) and choose.random() < 0.5:
        array = np.array([choose.choice((*SMALL, *HUGE)) for _ in range(count)], object)
        info = np.iinfo(dtype.numpy)
        array = np.array([min(max(int(item), int(info.min)), int(info.max)) for item in array], dtype.numpy)
    else:
        special = (np.nan, np.inf, -1.0, 0.0, 1.0, 2.0) if dtype.is_float else (0, 1)
        array = np.array([choose.choice(special) for _ in range(count)]).astype(dtype.numpy)
    return array.reshape(shape)


def drawn_attributes(
    sig: Signature, choose: random.Random, choices: Mapping[AttrKind, Sequence[Any]] = ATTRIBUTES
) -> list[Attr] | None:
    """All required attributes of an operator and some of the others; None if one is required that there is no choice for."""
    attrs = []
    for name, formal in sig.attributes.items():
        if formal.kind not in choices:
            if formal.required:
                return None
        elif formal.required or choose.random() < 0.4:
            attrs.append(Attr(name, formal.kind, choose.choice(choices[formal.kind])))
    return attrs


def hostile_case(definition: OpDef, sig: Signature, choose: random.Random) -> HostileCase | None:
    """One node of this operator; None if it needs values that are no tensors."""
    attrs = drawn_attributes(sig, choose)
    if attrs is None:
        return None
    graph = Graph("hostile")
    bound: dict[str, str] = {}
    feeds: dict[str, Any] = {}
    inputs: list[Value | None] = []
    for index in range(choose.randint(sig.fewest_inputs, max(sig.fewest_inputs, len(sig.inputs)))):
        parameter = sig.input_at(index)
        assert parameter is not None
        if parameter.optional and choose.random() < 0.3:
            inputs.append(None)
            continue
        kinds = [kind for kind in sig.allowed(parameter) if "(" not in kind]
        if not kinds:
            return None
        dtype = dtypes.from_name(bound.setdefault(parameter.type, choose.choice(kinds)))
        shape = tuple(choose.choice(SIZES) for _ in range(choose.choice((0, 1, 1, 2, 3, 4, 5))))
        array, value = numbers(dtype, shape, choose), Value(f"i{index}")
        if choose.random() < 0.3:
            value.constant = tensor.from_numpy(array, value.name)
            value.type = TensorType(dtype, shape)
            graph.initializers[value.name] = value
        else:
            declared = [dims.symbol(f"s{index}_{axis}") if choose.random() < 0.5 else size for axis, size in enumerate(shape)]
            value.type = TensorType(dtype, None if choose.random() < 0.2 else tuple(declared))
            feeds[value.name] = array
            graph.inputs.append(value)
        inputs.append(value)
    outputs = [Value(f"o{index}") for index in range(choose.randint(1, max(1, len(sig.outputs))))]
    graph.append(Node(definition.name, inputs, outputs, attrs, domain=definition.domain, version=sig.since, name="hostile"))
    graph.outputs.extend(outputs)
    model = Model(graph, ir_version=12, opset_imports={definition.domain: sig.since})
    return HostileCase(f"{definition.label}-{sig.since}", to_bytes(model), feeds)
