"""Weights that come later are fetched while others are multiplied.

A step that uses every weight for a pixel or two (the last layers of a net, squeeze-and-excite) takes as long as its weights take
to come from memory. Convolutions of single pixels before it leave the way to memory idle: they fetch those weights into the
cache, a few lines beside each stretch of products (`kernel.conv.conv`). Sizes that are open (of batches, mostly) count as 1.

    conv 1 x 1 (140 us)     conv 1 x 1 (150 us)     depthwise    pool    product, 922 kB     product, 922 kB
    fetches the second's    fetches the first's                          finds its weights   finds its weights
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Final

from sardonyx.ir.dims import Dim, evaluate, symbols_of
from sardonyx.kernel.conv.conv import COMING_LINES, ConvKernel
from sardonyx.program.steps import Address, Buffer, KernelStep, Lowered, Storage
from sardonyx.records import dataclass
from sardonyx.target.target import CACHE_LINE, Target

_LEAST_BYTES: Final = 32 << 10  # fewer come quickly
_MOST_USES: Final = 4  # of each weight: more take longer than the weights do to come
_PARTS: Final = 2  # that a step fetches
_LEAST_WORK: Final = 20_000  # nanoseconds of a step that fetches


@dataclass
class _Carrier:
    """A step with time to spare: how much it fetches beside a tile, beside a unit and beside all, in bytes."""

    step: KernelStep
    tile: int
    unit: int
    whole: int
    fetched: list[tuple[Buffer, int, int]] = field(default_factory=list)  # parts of weights, at most two

    @property
    def left(self) -> int:
        """The bytes that it can fetch besides."""
        return self.whole - sum(_whole_stretches(end - begin) for _, begin, end in self.fetched)

    def tell(self) -> None:
        """Change the arguments of the step, so that it fetches all it shall."""
        assert isinstance(self.step.kernel, ConvKernel)
        (weights, begin, end), *more = self.fetched
        split = _whole_stretches(end - begin)
        then, then_begin, then_end = more[0] if more else (weights, 0, 0)
        changed: dict[str, Address | Dim] = {
            "coming": Address(weights, begin),
            "then_coming": Address(then, then_begin),
            "coming_split": split,
            "coming_bytes": split + then_end - then_begin,
            "coming_tile": self.tile,
            "coming_unit": self.unit,
        }
        record, arguments = self.step.kernel.arguments, list(self.step.arguments)
        for name, value in changed.items():
            arguments[record.position(name)] = value
        self.step.arguments = tuple(arguments)


def _whole_stretches(size: int) -> int:
    """Bytes, rounded up to what is fetched at once."""
    return -(-size // (COMING_LINES * CACHE_LINE)) * COMING_LINES * CACHE_LINE


def fetch_ahead(lowered: Lowered, target: Target) -> None:
    """Give steps with time to spare what a step behind them waits for, those nearest to it first."""
    carriers: list[_Carrier] = []
    for step in lowered.steps:
        if not isinstance(step, KernelStep):
            continue
        weights = _awaited(step)
        if weights is not None:
            _share_out(weights, carriers, target.caches.l3 // 4)
            continue
        carrier = _carrier(step)
        if carrier is not None:
            carriers.append(carrier)
    for carrier in carriers:
        if carrier.fetched:
            carrier.tell()


def _awaited(step: KernelStep) -> Buffer | None:
    """The weights that a step takes longer to get than to use."""
    flops = _least(step.flops)
    if not flops:
        return None
    found = (buffer for buffer in _constants(step) if _bytes(buffer) >= _LEAST_BYTES)
    return next((buffer for buffer in found if 2 * flops <= _MOST_USES * _bytes(buffer)), None)


def _least(size: Dim) -> int:
    """A size, if all that is open is 1; 0 if it cannot be that small, as of images that are smaller than their kernels."""
    try:
        return max(evaluate(size, dict.fromkeys(symbols_of(size), 1)), 0)
    except (ValueError, ZeroDivisionError):
        return 0


def _constants(step: KernelStep) -> Iterator[Buffer]:
    return (buffer for buffer in step.reads if buffer.storage is Storage.CONSTANT)


def _bytes(buffer: Buffer) -> int:
    return buffer.size * buffer.dtype.bits // 8 if isinstance(buffer.size, int) else 0


def _carrier(step: KernelStep) -> _Carrier | None:
    """A step that multiplies for long, over rows of known length."""
    kernel = step.kernel
    if not isinstance(kernel, ConvKernel) or not kernel.single_tap or _least(step.work) < _LEAST_WORK:
        return None
    names = ("chunk", "columns", "iterations")
    chunk, columns, iterations = (step.arguments[kernel.arguments.position(name)] for name in names)
    if not isinstance(chunk, int) or not isinstance(columns, int) or not isinstance(iterations, int):
        return None
    tile = iterations * COMING_LINES * CACHE_LINE
    unit = -(-min(chunk, columns) // kernel.pixels) * tile
    return _Carrier(step, tile, unit, _least(step.units) * unit)


def _share_out(weights: Buffer, carriers: list[_Carrier], most: int) -> None:
    """Divide weights between steps, the last ones first; of weights that no cache holds only the first bytes are fetched."""
    begin, size = 0, min(_bytes(weights), most)
    for carrier in reversed(carriers):
        if begin < size and len(carrier.fetched) < _PARTS and carrier.left >= _LEAST_BYTES:
            end = min(begin + carrier.left, size)
            carrier.fetched.append((weights, begin, end))
            begin = end
