"""Elements looked up in a table of slots (see `ops.ml.key_lookup`). The parallel range counts elements."""

from __future__ import annotations

from sardonyx.kernel.arguments import Arguments, address, number
from sardonyx.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLookupKernel:
    """The types of elements and of values decide its code."""

    type: str
    values: str

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"key-lookup {self.type} {self.values}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with; there are `1 << bits` slots."""
        tables = address("slots"), address("values")
        return Arguments(number("bits"), number("empty"), address("source"), *tables, address("target"))
