"""Kernels that bring activations into and out of the blocked layout, and that surround an image with zeros."""

from __future__ import annotations

from typing import Final, Literal

from sardonyx.kernel.arguments import Arguments, address, number
from sardonyx.records import dataclass

_CHUNKED: Final = ("batch", "blocks", "pixels", "chunk", "chunks")  # `chunk` pixels make a unit of work


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutKernel:
    """A copy from plain [batch, channels, pixels] to blocked [batch, blocks, pixels, block], or back.

    `tail` is how many channels the last block has.
    """

    direction: Literal["to", "from"]
    block: int
    tail: int

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"layout|{self.direction}|{self.block}|{self.tail}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        strides = ("plain_batch", "plain_channel", "blocked_batch", "blocked_block")
        return Arguments(address("plain"), address("blocked"), *map(number, (*_CHUNKED, *strides)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SurroundKernel:
    """A copy of float32 images into larger ones, with zeros around. A unit is a row of the result."""

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return "surround"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        around, inside = ("deep", "high", "wide"), ("depth", "height", "width")
        return Arguments(address("x"), address("y"), *map(number, (*around, *inside, "front", "top", "left")))


@dataclass(frozen=True, slots=True, kw_only=True)
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

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(address("x"), address("y"), *map(number, (*_CHUNKED, "x_batch", "x_block", "y_batch", "y_block")))
