"""The element types a node may have: its inputs against the type variables of the operator's signature.

Add (A: T, B: T) -> (C: T) with A f32 and B f64   ->  "input 1 (B) is f64, but input 0 (A) is f32: both are T"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from sardonyx.ir.graph import UNKNOWN_VERSION, Node
from sardonyx.ir.types import TensorType, Type
from sardonyx.ops.signature import Parameter, Signature, parse_type, signature, type_text, versions


def bind_types(sig: Signature, inputs: Sequence[Type | None]) -> tuple[dict[str, str], list[str]]:
    """The type each variable stands for, as the inputs have it, and what does not fit, a sentence each.

    Inputs whose type is not known, and more inputs than there are parameters, are passed over.
    """
    bound: dict[str, str] = {}
    first: dict[str, str] = {}
    problems: list[str] = []
    for index, type_ in enumerate(inputs):
        parameter = sig.input_at(index)
        if type_ is None or parameter is None:
            continue
        text = type_.dtype.name if isinstance(type_, TensorType) else type_text(type_)
        where = f"input {index} ({parameter.name})"
        if text not in sig.allowed(parameter):
            problems.append(f"{where} is {text}; supported: {', '.join(sig.allowed(parameter))}")
        elif parameter.type in sig.types and (parameter.homogeneous or not parameter.variadic):
            if bound.setdefault(parameter.type, text) != text:
                other = f"{first[parameter.type]} is {bound[parameter.type]}"
                problems.append(f"{where} is {text}, but {other}: both must be the same type {parameter.type}")
            first.setdefault(parameter.type, where)
    return bound, problems


def output_types(sig: Signature, bound: dict[str, str], count: int) -> Iterator[Type | None]:
    """The types of a node's outputs as far as the signature fixes them; tensors have unknown shapes."""
    for index in range(count):
        parameter = sig.output_at(index)
        yield None if parameter is None else _output_type(sig, parameter, bound)


def _output_type(sig: Signature, parameter: Parameter, bound: dict[str, str]) -> Type | None:
    if parameter.variadic and not parameter.homogeneous:
        return None
    text = bound.get(parameter.type)
    if text is None:
        allowed = sig.allowed(parameter)
        if len(allowed) != 1:
            return None
        text = allowed[0]
    return parse_type(text)


def operator_text(node: Node) -> str:
    """The operator of a node with its domain and version, for messages: `ai.onnx Conv, opset 13`."""
    opset = "" if node.version == UNKNOWN_VERSION else f", opset {node.version}"
    return f"{node.domain or 'ai.onnx'} {node.op_type}{opset}"


@cache
def supported_types(domain: str, name: str, version: int) -> str:
    """The types of each input and output of an operator, one line each; says so if there is no such operator."""
    sig = signature(domain, name, version)
    if sig is None:
        known = versions(domain, name)
        since = f"; it exists since opset {known[0]}" if known else ""
        return f"{domain or 'ai.onnx'} has no operator {name} in opset {version}{since}"
    lines = []
    for kind, parameters in (("input", sig.inputs), ("output", sig.outputs)):
        for index, parameter in enumerate(parameters):
            mark = " (optional)" if parameter.optional else " (any number)" if parameter.variadic else ""
            lines.append(f"{kind} {index} {parameter.name}{mark}: {', '.join(sig.allowed(parameter))}")
    return "\n".join(lines)
