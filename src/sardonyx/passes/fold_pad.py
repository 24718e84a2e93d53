"""Fold a pad into the convolution or pooling that reads it.

    y = Conv(Pad(x, [0,0,1,1, 0,0,1,1]), w)      =>   y = Conv(x, w) {pads = [1, 1, 1, 1]}

Runs after FoldConstants (pads must be literal). Refuses: modes other than constant, a value the reader does not pad with (Conv
and AveragePool: zero, MaxPool: minus infinity), padded batch or channel axes, negative pads, readers that compute their own pads.
"""

from __future__ import annotations

from math import inf
from typing import Any, ClassVar

from sardonyx.ir.graph import Node
from sardonyx.passes.protocol import Reject, Rule, is_standard
from sardonyx.passes.rewriter import Rewriter, attr_ints
from sardonyx.records import dataclass


@dataclass(frozen=True)
class _Padded:
    pad: Node
    reader: Node


@dataclass(frozen=True)
class FoldPad(Rule[_Padded]):
    """Pad into Conv, AveragePool and MaxPool."""

    name: ClassVar[str] = "FoldPad"
    ort_names: ClassVar[tuple[str, ...]] = ("Pad_Fusion", "PadFusion")
    roots: ClassVar[frozenset[str]] = frozenset(("Conv", "AveragePool", "MaxPool"))

    def match(self, g: Rewriter, node: Node) -> _Padded | Reject | None:
        value = node.inputs[0]
        pad = None if value is None else value.producer
        return _Padded(pad, node) if pad is not None and pad.op_type == "Pad" and is_standard(pad) else None

    def check(self, g: Rewriter, found: _Padded) -> Any:
        pad, reader = found.pad, found.reader
        if not g.is_private(pad.outputs[0]):
            return Reject(f"the result of {pad.label} is used elsewhere too")
        if pad.attr("mode", "constant") != "constant":
            return Reject(f"pads by {pad.attr('mode')}")
        shape = pad.inputs[0].shape if pad.inputs[0] is not None else None
        if shape is None or len(shape) < 3:
            return Reject("the rank is not known")
        if reader.attr("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            return Reject(f"{reader.op_type} computes its own pads (auto_pad {reader.attr('auto_pad')})")
        if reader.op_type != "Conv" and (reader.attr("ceil_mode", 0) or len(reader.outputs) > 1):
            return Reject("its windows are rounded up, or it gives out indices")
        value = _pad_value(g, pad)
        wanted = -inf if reader.op_type == "MaxPool" else 0.0
        if value != wanted:
            return Reject(f"pad value is {value}, {reader.op_type} pads with {wanted:g}")
        pads = literal_pads(g, pad, len(shape))
        if pads is None:
            return Reject("the pads are not constants")
        before, after = pads
        if any(before[:2]) or any(after[:2]):
            return Reject(f"pads the batch or the channels: {before[:2]} before, {after[:2]} after")
        if min(*before, *after) < 0:
            return Reject("crops with negative pads")
        own = attr_ints(reader, "pads") or (0,) * (2 * (len(shape) - 2))
        if len(own) != 2 * (len(shape) - 2):
            return Reject(f"{reader.op_type} has {len(own)} pads for {len(shape) - 2} spatial axes")
        if reader.op_type == "AveragePool" and any(own) and not reader.attr("count_include_pad", 0):
            return Reject("pads of its own are not counted, those of the Pad are")
        if reader.op_type != "Conv":
            kernel = attr_ints(reader, "kernel_shape") or ()
            sums = [own[i] + before[2 + i] for i in range(len(kernel))] + [
                own[len(kernel) + i] + after[2 + i] for i in range(len(kernel))
            ]
            if any(amount >= size for amount, size in zip(sums, kernel * 2, strict=True)):
                return Reject("the pads are as large as the window")
        spatial = [*before[2:], *after[2:]]
        return tuple(a + b for a, b in zip(own, spatial, strict=True))

    def rewrite(self, g: Rewriter, found: _Padded, facts: Any) -> None:
        reader = found.reader
        changes: dict[str, Any] = {"pads": facts, "auto_pad": None}
        if reader.op_type == "AveragePool":
            changes["count_include_pad"] = 1
        inputs = [found.pad.inputs[0], *reader.inputs[1:]]
        g.replace(reader.outputs[0], g.clone(reader, inputs, **changes)[0])


def _pad_value(g: Rewriter, pad: Node) -> float | None:
    if pad.version < 11:
        return float(pad.attr("value", 0.0))
    value = pad.inputs[2] if len(pad.inputs) > 2 else None
    return 0.0 if value is None else g.number(value)


def literal_pads(g: Rewriter, pad: Node, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The pads of every axis, before and after; None if they are not known."""
    pads = attr_ints(pad, "pads") if pad.version < 11 else g.ints(pad.inputs[1])
    if pads is None:
        return None
    axes = tuple(range(rank))
    if len(pad.inputs) > 3 and pad.inputs[3] is not None:
        given = g.ints(pad.inputs[3])
        if given is None or any(not -rank <= axis < rank for axis in given):
            return None
        axes = tuple(axis % rank for axis in given)
    if len(pads) != 2 * len(axes) or len(set(axes)) != len(axes):
        return None
    before, after = [0] * rank, [0] * rank
    for index, axis in enumerate(axes):
        before[axis], after[axis] = pads[index], pads[len(axes) + index]
    return tuple(before), tuple(after)
