"""Kernels that bring activations into and out of the blocked layout, and that surround an image with zeros."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

# plain[batch, channels, pixels] and blocked[batch, blocks, pixels, block]; `chunk` pixels make a unit of work.
LAYOUT_ARGUMENTS: Final = (
    "plain", "blocked", "batch", "blocks", "pixels", "chunk", "chunks",
    "plain_batch", "plain_channel", "blocked_batch", "blocked_block",
)  # fmt: skip

# x[outer, depth, height, width] in the midst of zeros[outer, deep, high, wide]
SURROUND_ARGUMENTS: Final = (
    "x", "y", "deep", "high", "wide", "depth", "height", "width", "front", "top", "left",
)  # fmt: skip


@dataclass(frozen=True)
class LayoutKernel:
    """A copy from plain to blocked, or back. `tail` is how many channels the last block has."""

    direction: Literal["to", "from"]
    block: int
    tail: int

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"layout|{self.direction}|{self.block}|{self.tail}"


@dataclass(frozen=True)
class SurroundKernel:
    """A copy of float32 images into larger ones, with zeros around. A unit is a row of the result."""

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return "surround"
