"""Writing sizes into memory: the elements of small tensors such as the result of Shape.

Arguments: the address, then one number for each element.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WriteKernel:
    """A kernel that writes `count` of its arguments as elements of a type."""

    type: str
    count: int

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"write|{self.type}|{self.count}"
