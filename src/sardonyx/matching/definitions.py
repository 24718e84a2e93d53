"""The NumPy definitions of operators as kernels."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.matching.kernels import KernelDef, KernelTable, TypeResolver
from sardonyx.ops import definition


class DefinitionTable(KernelTable):
    """The definitions of operators as kernels: each for its opset versions, and for all types."""

    def __init__(self, resolver: TypeResolver) -> None:
        super().__init__((), resolver)

    def candidates(self, domain: str, operator: str) -> Sequence[KernelDef]:
        """The definitions of an operator, read when it is first asked for."""
        found = self._kernels.get((domain, operator))
        if found is None:
            known = definition.definitions_of(domain, operator)
            ends = [*(following.since - 1 for following in known[1:]), None]
            found = [KernelDef(operator, domain, (each.since, end), kernel=each) for each, end in zip(known, ends)]
            self._kernels[domain, operator] = found
        return found
