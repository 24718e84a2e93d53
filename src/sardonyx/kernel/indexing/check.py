"""Looking at indices where nothing is moved by them: wrong ones are errors there, too. The parallel range counts indices."""

from __future__ import annotations

from sardonyx.kernel.arguments import Arguments, address, number
from sardonyx.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexCheckKernel:
    """Reports indices that are out of range; their type decides its code."""

    index: str

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"index-check|{self.index}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with; `limit` is the size of the axis."""
        return Arguments(number("limit"), address("indices"), address("record"), number("code"))
