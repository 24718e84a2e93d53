"""Type constraints of operators, as the operator table has them: the resolver for ONNX models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from sardonyx.ir.graph import Attr, Node, TypeArguments
from sardonyx.matching.kernels import FormalArgument, TypeResolver
from sardonyx.matching.type_strings import KernelTypeStrResolver, join_identifier, split_identifier
from sardonyx.ops.signature import Signature, signature


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


class _StatedFirst:
    """What a model's file says of its operators; the operator table speaks for those it says nothing about."""

    def __init__(self, stated: KernelTypeStrResolver) -> None:
        self._stated = stated

    def arguments(self, node: Node, constraint: str) -> Sequence[FormalArgument] | None:
        return (self._stated if self._stated.knows(node) else SIGNATURES).arguments(node, constraint)

    def since_version(self, node: Node) -> int:
        return (self._stated if self._stated.knows(node) else SIGNATURES).since_version(node)


def resolver_of(stated: TypeArguments | None) -> TypeResolver:
    """The resolver for the nodes of a model; `stated` is what its file says of its operators' types, if it does."""
    return SIGNATURES if stated is None else _StatedFirst(KernelTypeStrResolver(stated))


class TableFacts:
    """What the operator table knows beyond a graph, for formats that write it down (`formats.ort.write.OperatorFacts`).

    `stated` is what the model's own file said of its operators: it speaks for those that are not in the table.
    """

    def __init__(self, stated: TypeArguments | None = None) -> None:
        self._stated = KernelTypeStrResolver(stated or {})

    def since_version(self, node: Node) -> int:
        """The version in which the node's operator got the definition that the node follows."""
        found = signature(node.domain, node.op_type, node.version)
        return self._stated.since_version(node) if found is None else found.since

    def defaults(self, node: Node) -> Iterator[Attr]:
        """The attributes that the node does not carry, but its operator has a default for."""
        found = signature(node.domain, node.op_type, node.version)
        for attribute in () if found is None else found.attributes.values():
            given = node.attrs.get(attribute.name)
            if attribute.default is not None and (given is None or given.value is None):
                default = attribute.default
                yield Attr(attribute.name, attribute.kind, tuple(default) if isinstance(default, list) else default)

    def argument_counts(self, node: Node) -> list[int]:
        """How many of the node's inputs belong to each formal input; all that the table does not know are one each."""
        found = signature(node.domain, node.op_type, node.version)
        given = len(node.inputs)
        if found is None:
            return [1] * given
        counts = []
        for position, parameter in enumerate(found.inputs):
            left = max(given - position, 0)
            counts.append(left if parameter.variadic else min(left, 1))
        return counts

    def type_arguments(self, nodes: Iterable[Node], operators: Iterable[str] = ()) -> TypeArguments:
        """Which arguments type constraints are about: for the operators of nodes, and for others by their identifiers."""
        wanted = {join_identifier(node.domain, node.op_type, self.since_version(node)) for node in nodes}
        entries = {}
        for identifier in sorted(wanted.union(operators)):
            domain, name, version = split_identifier(identifier)
            found = signature(domain, name, version)
            entries[identifier] = self._stated.entries.get(identifier, {}) if found is None else _type_strings(found)
        return entries


def _type_strings(found: Signature) -> dict[str, tuple[FormalArgument, ...]]:
    """By type variable; an argument whose type is no variable is known by its own name."""
    listed: dict[str, list[FormalArgument]] = {}
    for is_input, parameters in ((True, found.inputs), (False, found.outputs)):
        for index, parameter in enumerate(parameters):
            key = parameter.type if parameter.type in found.types else parameter.name
            listed.setdefault(key, []).append(FormalArgument(is_input, index))
    return {key: tuple(arguments) for key, arguments in listed.items()}
