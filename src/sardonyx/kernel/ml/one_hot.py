"""One-hot encoding of elements that must be categories (see `ops.ml.known_one_hot`). The parallel range counts elements."""

from __future__ import annotations

from sardonyx.kernel.arguments import Arguments, address, number
from sardonyx.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OneHotKernel:
    """Nothing but the target decides its code."""

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return "one-hot"

    @property
    def arguments(self) -> Arguments:
        """What it is called with; an element that is no category is reported."""
        addresses = address("source"), address("categories"), address("target")
        return Arguments(number("count"), *addresses, address("record"), number("code"))
