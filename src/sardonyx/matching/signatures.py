"""Type constraints of operators, as the operator table has them: the resolver for ONNX models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from sardonyx.ir.graph import Node
from sardonyx.matching.kernels import FormalArgument, TypeResolver
from sardonyx.ops.signature import signature


class SignatureResolver:
    """Looks constraints up in the signatures of `ops`. The name of an argument stands for its type, too."""

    def arguments(self, node: Node, constraint: str) -> Sequence[FormalArgument] | None:
        """The arguments whose type a constraint is about; None if the node's operator has no such constraint."""
        return _arguments(node.domain, node.op_type, node.version).get(constraint)

    def since_version(self, node: Node) -> int:
        """The version of the definition that the node follows; the node's own if the operator is not in the table."""
        found = signature(node.domain, node.op_type, node.version)
        return node.version if found is None else found.since


@cache
def _arguments(domain: str, name: str, version: int) -> Mapping[str, tuple[FormalArgument, ...]]:
    found = signature(domain, name, version)
    if found is None:
        return {}
    listed: dict[str, list[FormalArgument]] = {}
    for is_input, parameters in ((True, found.inputs), (False, found.outputs)):
        for index, parameter in enumerate(parameters):
            argument = FormalArgument(is_input, index)
            listed.setdefault(parameter.type, []).append(argument)
            if parameter.name != parameter.type:
                listed.setdefault(parameter.name, []).append(argument)
    return {key: tuple(arguments) for key, arguments in listed.items()}


SIGNATURES: Final[TypeResolver] = SignatureResolver()
