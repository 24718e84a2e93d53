"""Weights of Winograd's convolution that are computed in the run: transformed by steps of the program."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx import dtypes
from sardonyx.kernel.conv.winograd import TAPS, matrices
from sardonyx.kernel.expr import Expr, load
from sardonyx.lower.conv.conv_weights import Sets, pack_computed
from sardonyx.lower.derived import numbers
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext
from sardonyx.program.steps import View

_LABEL = "transform weights"


def transform_computed(ctx: LowerContext, w: View, groups: int, sets: Sets, tile: int) -> View:
    """What `pack_winograd` makes of kernels of 3 x 3, or planes of such: of any strides, and in float32.

    First taps become the outermost axis of a set, then each element of the transformed kernels is a sum of taps. Lanes of output
    channels that do not exist are zero: a sum that is no number there would have its tile computed twice.
    """
    inputs, planes = numbers(w.shape[-4:-2])
    taps = pack_computed(ctx, w, groups, sets, inputs + 1, filled=True)
    size, elements = TAPS * TAPS * planes * inputs * sets.width, (tile + TAPS - 1) ** 2
    made = ctx.scratch(dtypes.FLOAT32, (groups * sets.count, elements * planes * inputs * sets.width), "transformed weights")
    for first, end, width in sets.ranges():
        run = inputs * width
        shape = (groups, end - first, planes, run)

        def part(of: View, row: int, at: int, stride: int, *, shape: tuple[int, ...] = shape, first: int = first) -> View:
            return View(of.buffer, shape, (sets.count * row, row, stride, 1), first * row + at)

        read = [part(taps, size, tap * run, TAPS * TAPS * run) for tap in range(TAPS * TAPS)]
        written = [part(made, numbers(made.shape)[1], element * planes * run, run) for element in range(elements)]
        sums = _elements([load(number, "f32") for number in range(TAPS * TAPS)], tile)
        stores = [(len(read) + number, value) for number, value in enumerate(sums)]
        kinds = ["f32"] * (len(read) + len(written))
        ctx.step(loop_step(shape, [*read, *written], kinds, stores, target=ctx.target, label=_LABEL, nodes=(_LABEL,)))
    return made


def _elements(taps: Sequence[Expr], tile: int) -> list[Expr]:
    """The elements of transformed kernels, row by row, of the taps of a kernel."""
    along = matrices(tile).weights
    columns = [[_sum(row, taps[column::TAPS]) for column in range(TAPS)] for row in along]
    return [_sum(row, line) for line in columns for row in along]


def _sum(factors: Sequence[float], values: Sequence[Expr]) -> Expr:
    """The sum of values times numbers."""
    terms = [value if factor == 1 else value * factor for factor, value in zip(factors, values) if factor]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
