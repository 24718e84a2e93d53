"""Kernels are matched to nodes by operator, domain, version and types, with type constraints by name.

    table = KernelTable([KernelDef("Cast", versions=(6, None), types={"T1": {"float"}, "T2": {"int32", "int64"}}, kernel=cast)])
    table.find(node).kernel

Which arguments of a node a type constraint is about is asked of a resolver: for an ONNX model the operator table knows
(`matching.signatures`), other formats carry it with them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, Protocol

from sardonyx import dtypes
from sardonyx.ir.graph import Node, Value
from sardonyx.records import dataclass


class FormalArgument(NamedTuple):
    """A formal input or output of an operator; one that takes several values stands for the first of them."""

    is_input: bool
    position: int


class TypeResolver(Protocol):
    """Tells which arguments of a node a type constraint is about."""

    def arguments(self, node: Node, constraint: str) -> Sequence[FormalArgument] | None:
        """The arguments, inputs first, of which any that is present has the type; None if there is no such constraint."""

    def since_version(self, node: Node) -> int:
        """The version in which the node's operator got the definition that the node follows."""


@dataclass(frozen=True, eq=False)
class KernelDef:
    """A kernel: for which operator, in which versions of it, and for which types. `kernel` is whatever a provider makes of it.

    Types are named as ONNX does, with or without `tensor()`: "float", "tensor(int8)", "seq(tensor(float))"; short names as "f32"
    are understood, too. A type constraint that is left out takes any type.
    """

    operator: str
    domain: str = ""
    versions: tuple[int, int | None] = (1, None)  # of the operator's definition: first and last; None: all later ones
    types: Mapping[str, Collection[str]] = field(default_factory=dict)  # by the name of the constraint
    kernel: Any = None

    def __post_init__(self) -> None:
        allowed = {name: frozenset(map(type_name, listed)) for name, listed in self.types.items()}
        object.__setattr__(self, "types", allowed)

    def mismatch(self, node: Node, resolver: TypeResolver) -> str:
        """Why this kernel does not serve a node of its operator, or ""."""
        first, last = self.versions
        if first > 1 or last is not None:
            since = resolver.since_version(node)
            if since < first or (last is not None and since > last):
                wanted = f"{first} and later" if last is None else f"{first} to {last}"
                return f"it is for version {wanted} of {self.operator}, the node is of version {since}"
        for constraint, allowed in self.types.items():
            reason = _type_mismatch(node, constraint, allowed, resolver)
            if reason:
                return reason
        return ""


def _type_mismatch(node: Node, constraint: str, allowed: Collection[str], resolver: TypeResolver) -> str:
    arguments = resolver.arguments(node, constraint)
    if arguments is None:
        return f"{node.op_type} has no type constraint {constraint!r} in this version"
    value = next((value for each in arguments if (value := _actual(node, each)) is not None), None)
    if value is None:  # an optional argument that is left out
        return ""
    if value.type is None:
        return f"the type of {value.name!r} ({constraint}) is not known"
    found = value.type.ort
    return "" if found in allowed else f"{value.name!r} ({constraint}) is {found}, the kernel takes {', '.join(sorted(allowed))}"


def _actual(node: Node, argument: FormalArgument) -> Value | None:
    """The value that stands for a formal argument; None if it is left out."""
    values: Sequence[Value | None] = node.inputs if argument.is_input else node.outputs
    found = values[argument.position] if argument.position < len(values) else None
    return found if found is not None and (argument.is_input or found.name) else None


def type_name(text: str) -> str:
    """A type as ONNX Runtime writes it: "float" and "f32" are tensor(float)."""
    if "(" in text:
        return text
    try:
        return f"tensor({dtypes.from_ort(text).ort})"
    except ValueError:
        return f"tensor({dtypes.from_name(text).ort})"


class KernelTable:
    """The kernels of a provider. Of several that fit a node the first one is taken."""

    def __init__(self, kernels: Iterable[KernelDef], resolver: TypeResolver | None = None) -> None:
        """Without a `resolver` nodes are those of ONNX models."""
        if resolver is None:
            from sardonyx.matching.signatures import SIGNATURES  # lazy: formats with a resolver need no operator table

            resolver = SIGNATURES
        self._resolver = resolver
        self._kernels: dict[tuple[str, str], list[KernelDef]] = {}
        for kernel in kernels:
            self.add(kernel)

    def add(self, kernel: KernelDef) -> None:
        """Add one more kernel."""
        self._kernels.setdefault((kernel.domain, kernel.operator), []).append(kernel)

    def candidates(self, domain: str, operator: str) -> Sequence[KernelDef]:
        """All kernels of an operator."""
        return self._kernels.get((domain, operator), ())

    def find(self, node: Node, resolver: TypeResolver | None = None) -> KernelDef | None:
        """The kernel that serves a node; None if there is none. `resolver` is that of the node's model, if it has one."""
        for kernel in self.candidates(node.domain, node.op_type):
            if not kernel.mismatch(node, resolver or self._resolver):
                return kernel
        return None

    def mismatches(self, node: Node, resolver: TypeResolver | None = None) -> list[str]:
        """Why no kernel serves a node, a sentence for each candidate; empty if one does."""
        candidates = self.candidates(node.domain, node.op_type)
        if not candidates:
            return [f"there is no kernel for {node.domain or 'ai.onnx'} {node.op_type}"]
        reasons = [kernel.mismatch(node, resolver or self._resolver) for kernel in candidates]
        return reasons if all(reasons) else []
