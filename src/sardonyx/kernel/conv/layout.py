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

# x[batch, blocks, pixels, block] to channels further on of y
SHIFT_ARGUMENTS: Final = ("x", "y", "batch", "blocks", "pixels", "chunk", "chunks", "x_batch", "x_block", "y_batch", "y_block")


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


@dataclass(frozen=True)
class ShiftKernel:
    """A copy between blocked tensors that moves channel c to lane (c + shift) % block. The last block has `tail` channels.

    The lanes of the result that belong to other channels stay as they are.
    """

    block: int
    shift: int
    tail: int

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"shift|{self.block}|{self.shift}|{self.tail}"
