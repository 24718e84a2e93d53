"""Writing sizes into memory: the elements of small tensors such as the result of Shape."""

from __future__ import annotations

from sardonyx.kernel.arguments import Arguments, address, numbers
from sardonyx.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteKernel:
    """A kernel that writes `count` of its arguments as elements of a type."""

    type: str
    count: int

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"write|{self.type}|{self.count}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(address("target"), numbers("elements", self.count))
