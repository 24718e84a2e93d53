"""Recurrent layers whose workers share the hidden units of every time: when that pays, and the steps it takes.

values enter the state; inputs of the first window        (once)
a pass, another pass, the count of times                  (for every time: a stretch of steps that are done again)
values leave the state
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sardonyx import dtypes
from sardonyx.ir.dims import Dim, dim_min, product
from sardonyx.kernel.indexing.rounds import COUNTER, RoundsKernel
from sardonyx.kernel.rnn.rnn import RecurrentKernel
from sardonyx.program.steps import Buffer, KernelStep, distinct

if TYPE_CHECKING:
    from sardonyx.lower.rnn.rnn import Layer

# Multiply-adds of a pass from which on workers share them: less is over before they have met. Two directions are the work of two
# workers as it is, who need not meet; but large weights come from the second cache only if each of them reads a part.
_SHARED_FROM: Final = {1: 30_000, 2: 190_000}
_PER_NANOSECOND: Final = 25  # multiply-adds
_BYTES_AT_ONCE: Final = 4  # multiply-adds of bytes that take as long as one of floats
_AWAKE: Final = 32  # how much less it costs to share work with workers that are not asleep


def shares_units(layer: Layer, passes: Sequence[int], *, is_quantized: bool) -> bool:
    """Whether workers had better share the hidden units, time by time; `passes` has the gates of each.

    Sequences of a batch could be shared without meeting, but then every worker reads all weights, and few sequences use them
    more quickly than they come. Many take as long either way; and one who is held up keeps others waiting for one time only.
    """
    least = _SHARED_FROM[layer.directions] * (_BYTES_AT_ONCE if is_quantized else 1)
    return layer.steps != 0 and min(passes) * layer.hidden * layer.hidden >= least


def shared_steps(
    layer: Layer,
    kernel: RecurrentKernel,
    arguments: Mapping[str, Any],
    reads: list[Buffer],
    writes: list[Buffer],
    memory: Buffer,
) -> None:
    """The steps of one direction of a layer, whose state lies in some memory."""
    rows, times, hidden = layer.batch, layer.steps, layer.hidden
    counter = layer.ctx.scratch(dtypes.INT64, (COUNTER,), "counter")
    counted = {**arguments, "counter": counter.address}
    # Workers are awake between these steps: they are worth sharing from far less work on than others. A single one is
    # shared only with workers that are awake as it is.
    awake = dim_min(times, _AWAKE)
    entered = [memory, counter.buffer]
    layer.step(replace(kernel, part="enter"), counted, rows, product([rows, hidden]), reads, entered)
    changing = list(entered)
    if kernel.ahead:
        ring, _ = arguments["projected"]
        changing.append(ring.buffer)
        products = kernel.ahead * layer.gates * hidden * arguments["input_size"]
        work = products // _PER_NANOSECOND * awake
        layer.step(replace(kernel, part="window"), arguments, layer.blocks, work, reads, [ring.buffer], 2 * products)
    every = [one.gates * hidden * hidden for one in kernel.passes]
    flops: Dim = 2 * product([times, rows, sum(every)])
    units = layer.blocks * dim_min(times, 1)
    if kernel.is_quantized:
        once = dim_min(product([rows, times]), 1)
        layer.step(replace(kernel, part="bytes"), counted, once, product([rows, hidden]), [*reads, *changing], writes)
    for number, products in enumerate(every):
        each = products // (_PER_NANOSECOND * (_BYTES_AT_ONCE if kernel.is_quantized else 1))
        work = product([rows, each, awake])
        layer.step(replace(kernel, part=str(number)), counted, units, work, [*reads, *changing], writes, flops)
        flops = 0  # those of all passes are counted with the first
    rounds = RoundsKernel()
    layer.ctx.step(
        KernelStep(
            rounds,
            rounds.arguments.entries(counter=counter.address, rounds=times),
            dim_min(product([rows, times]), 1),
            1,
            distinct([*reads, *changing, *writes]),
            (counter.buffer,),
            "rounds",
            layer.labels,
            stretch=len(every) + kernel.is_quantized + 1,
        )
    )
    if any(kernel.final):
        layer.step(replace(kernel, part="leave"), arguments, rows, product([rows, hidden]), [memory], writes)
