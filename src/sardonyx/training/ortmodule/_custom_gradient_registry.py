"""ONNX Runtime's `onnxruntime.training.ortmodule._custom_gradient_registry`: gradients that a program defines as lists of nodes.

    @register_gradient("", "Cos")
    def cos_gradient():
        return [("Sin", ["I(0)"], ["s"]), ("Mul", ["s", "GO(0)"], ["m"]), ("Neg", ["m"], ["GI(0)"])]

I(n), O(n) and GO(n) are an input, an output and the gradient of an output of the node; GI(n) is the gradient of an input. Other
names join the nodes of the list. A node is (operator or (operator, domain), inputs, outputs, attributes), an attribute
{"value": ..., "dtype": ..., "is_tensor": ...}. It takes the place of a rule that the operator has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from sardonyx.errors import InvalidArgument
from sardonyx.ir.graph import Value
from sardonyx.ir.types import TensorType
from sardonyx.training.gradients.rules import Backward, override_gradient

_REFERENCE: Final = re.compile(r"(I|O|GO|GI|IElemType|OElemType)\((\d+)\)")
_TYPES: Final = {"int": np.int64, "float": np.float32, "bool": np.bool_, "double": np.float64}


def register_gradient(domain: str, name: str, *attributes: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Define the gradient of an operator; `attributes` are those of ONNX Runtime's nodes that call PyTorch, and must be empty."""
    if attributes:
        raise InvalidArgument(f"{domain}::{name} with attributes {attributes}: there are no nodes that call PyTorch here")

    def register(define: Callable[[], Any]) -> Callable[[], Any]:
        definition = define()
        override_gradient(name, domain, lambda backward: _apply(backward, definition))
        return define

    return register


def _apply(backward: Backward, definition: Sequence[Any]) -> list[Value | None]:
    named: dict[str, Value] = {}
    gradients: dict[int, Value] = {}

    def value(name: str) -> Value | None:
        found = _REFERENCE.fullmatch(name)
        if found is None:
            if name and name not in named:
                raise InvalidArgument(f"{backward.node.label}: its gradient reads {name!r}, which no node before makes")
            return named.get(name)
        index = int(found[2])
        if found[1] == "GO":
            return backward.dy(index)
        return backward.x(index) if found[1] == "I" else backward.y(index)

    for operator, inputs, outputs, *rest in definition:
        op_type, domain = (operator, "") if isinstance(operator, str) else operator
        attrs = {key: _attribute(backward, each) for key, each in (rest[0] if rest else {}).items()}
        results = backward.g.node(op_type, [value(each) for each in inputs], len(outputs), domain=domain, attrs=attrs)
        for name, result in zip(outputs, results, strict=True):
            found = _REFERENCE.fullmatch(name)
            if found is not None and found[1] == "GI":
                gradients[int(found[2])] = result
            else:
                named[name] = result
    return [gradients.get(index) for index in range(max(gradients, default=-1) + 1)]


def _attribute(backward: Backward, given: dict[str, Any]) -> Any:
    data = given["value"]
    if not given.get("is_tensor", False):
        return data
    found = _REFERENCE.fullmatch(given["dtype"])
    if found is None:
        return np.asarray(data, _TYPES[given["dtype"]])
    like = backward.x(int(found[2])) if found[1] == "IElemType" else backward.y(int(found[2]))
    if not isinstance(like.type, TensorType):
        raise InvalidArgument(f"{backward.node.label}: {like.name!r} is no tensor")
    return np.asarray(data, like.type.dtype.numpy)
