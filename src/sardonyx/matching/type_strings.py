"""KernelTypeStrResolver: which arguments of an operator a type constraint is about, as plain data.

    {":Cast:13": {"T1": [(input, 0)], "T2": [(output, 0)]}, ...}

For an ONNX model it is made of the operator table (`matching.signatures`); an ORT model brings it in its file. Nothing here needs
the operator table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sardonyx.ir.graph import Node, TypeArguments
from sardonyx.matching.kernels import FormalArgument


class KernelTypeStrResolver:
    """Resolves the type constraints ("kernel type strings") of those operators that it was given."""

    def __init__(self, entries: TypeArguments) -> None:
        self.entries = entries
        self._versions: dict[tuple[str, str], list[tuple[int, Mapping[str, tuple[FormalArgument, ...]]]]] = {}
        for identifier, constraints in entries.items():
            domain, name, version = split_identifier(identifier)
            arguments = {key: tuple(FormalArgument(*each) for each in listed) for key, listed in constraints.items()}
            self._versions.setdefault((domain, name), []).append((version, arguments))
        for known in self._versions.values():
            known.sort(key=lambda entry: entry[0])

    def _entry(self, node: Node) -> tuple[int, Mapping[str, tuple[FormalArgument, ...]]] | None:
        """The newest definition of the node's operator that is not newer than the node."""
        found = None
        for entry in self._versions.get((node.domain, node.op_type), ()):
            if entry[0] <= node.version:
                found = entry
        return found

    def knows(self, node: Node) -> bool:
        """Whether it says anything about the node's operator."""
        return self._entry(node) is not None

    def arguments(self, node: Node, constraint: str) -> Sequence[FormalArgument] | None:
        """The arguments whose type a constraint is about; None if the node's operator has no such constraint."""
        found = self._entry(node)
        return None if found is None else found[1].get(constraint)

    def since_version(self, node: Node) -> int:
        """The version of the definition that the node follows; the node's own if nothing is said of its operator."""
        found = self._entry(node)
        return node.version if found is None else found[0]


def split_identifier(identifier: str) -> tuple[str, str, int]:
    """Domain, name and version out of `domain:name:version`."""
    head, _, version = identifier.rpartition(":")
    domain, _, name = head.rpartition(":")
    return domain, name, int(version)


def join_identifier(domain: str, name: str, version: int) -> str:
    """`domain:name:version`; the domain of ONNX itself is empty."""
    return f"{domain}:{name}:{version}"
