"""Recurrent layers whose kernel multiplies the inputs itself, a few times ahead (`codegen.rnn.inputs_ahead`): when that pays, and
what such a kernel is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from sardonyx import dtypes
from sardonyx.kernel.expr import BITS
from sardonyx.kernel.rnn.rnn import window
from sardonyx.program.steps import Address, Buffer, View

if TYPE_CHECKING:
    from sardonyx.lower.rnn.rnn import Layer

_FEWEST_WINDOWS: Final = 2  # of a sequence of known length: the inputs of the first are multiplied before the others
_FEWEST_INPUTS: Final = 0.25  # for every hidden unit: so few are a small part of the work
_MOST_INPUTS: Final = 2  # of more of them most have nothing to be multiplied beside
_FIRST_CACHES: Final = 2  # as much as recurrent weights must have that come from the second
_OTHER_VECTORS: Final = 2  # in registers beside the sums: a part of the state, and weights of the inputs


def times_ahead(layer: Layer) -> int:
    """Of how many times at least (up to a window) the inputs are multiplied ahead; 0 if they had better be one product before.

    That is so if recurrent weights come from the first cache, or serve several sequences: then multipliers are busy as it is. And
    it is so where vectors are computed as fast as they are loaded: then loads take as long as the weights come, and nothing is
    idle beside them.
    """
    target, size, steps = layer.ctx.target, layer.x.shape[2], layer.steps
    has_one_pass = layer.op == "LSTM" or layer.linear
    if not has_one_pass or layer.batch != 1 or layer.lengths is not None:
        return 0
    times = window(layer.gates, target)
    is_plain = layer.x.buffer.dtype.name == layer.type and layer.x.strides[2] == 1
    if not is_plain or not isinstance(size, int) or not _FEWEST_INPUTS * layer.hidden <= size <= _MOST_INPUTS * layer.hidden:
        return 0
    # Weights of inputs are read anew in every window: with the others they must not leave the last cache.
    column = layer.gates * layer.hidden * BITS[layer.type] // 8
    every = layer.directions * column * (layer.hidden + size)
    if column * layer.hidden <= _FIRST_CACHES * target.caches.l1d or every > target.caches.l3 // 2:
        return 0
    if 2 * times + _OTHER_VECTORS > target.registers or target.has_whole_vectors:
        return 0
    if isinstance(steps, int):
        return times if steps >= _FEWEST_WINDOWS * times else 0
    return 1


def inputs_ahead(layer: Layer, first: int) -> tuple[Mapping[str, Any], list[Buffer], list[Buffer]]:
    """Inputs, weights and memory for products as a kernel takes them, from one direction on; what it reads and writes of them."""
    ctx, x = layer.ctx, layer.x
    times, columns = window(layer.gates, ctx.target), layer.blocks * layer.gates * layer.lanes
    ring = ctx.scratch(dtypes.from_name(layer.type), (layer.directions, 2 * times, columns), "projected")
    weights = [layer.input_weights(range(gate, gate + 1)) for gate in range(layer.gates)]
    bias = layer.bias()
    biases = [] if bias is None else [bias]
    size = BITS[layer.type] // 8

    def at(view: View) -> Address:
        return Address(view.buffer, (view.offset + view.strides[0] * first) * size)

    given = {
        "projected": (at(ring), (ring.strides[0],)),
        "inputs": (Address(x.buffer, x.offset * size), (x.strides[1 if layer.layout else 0],)),
        "input_size": x.shape[2],
        "input_weights": [at(view) for view in weights],
        "bias": [at(view) for view in biases],
    }
    return given, [x.buffer, *(view.buffer for view in (*weights, *biases))], [ring.buffer]
