"""Losses and pools of ATen in ONNX's operators, where torch's exporter refuses them; `symbolics.py` has the others.

aten::cross_entropy_loss   with label smoothing, with probabilities as targets, with an ignore_index that is a size of a tensor
aten::*_norm               of an input in bfloat16 with weights in float32, as autocast leaves them
aten::grid_sampler         of volumes
aten::ctc_loss             of each sequence of a batch
aten::adaptive_avg_pool    of any size to any size: each axis by a matrix whose rows hold the shares of a window

    start of window i = floor(i * size / count)        end = ceil((i + 1) * size / count)
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

_REDUCTIONS: Final = ("none", "mean", "sum")


def cross_entropy_loss(g: Any, x: Any, target: Any, weight: Any, reduction: Any, ignore_index: Any, label_smoothing: Any) -> Any:
    """The exporter's, if it has it; else made of logarithms of shares."""
    from torch.onnx._internal.torchscript_exporter import symbolic_helper as helper  # lazy: with the exporter
    from torch.onnx._internal.torchscript_exporter import symbolic_opset12

    smoothing = float(helper._get_const(label_smoothing, "f", "label_smoothing") or 0.0)
    is_float = target.type().scalarType() not in ("Long", "Int")
    ignored = helper._maybe_get_const(ignore_index, "i")
    if not smoothing and not is_float and isinstance(ignored, int):
        return symbolic_opset12.cross_entropy_loss(g, x, target, weight, reduction, ignore_index, label_smoothing)
    rank = helper._get_tensor_rank(x)
    if rank is None or rank < 2:
        return helper._unimplemented("cross_entropy_loss", "an input without a batch axis", x)
    loss = _CrossEntropy(g, x, None if weight.node().mustBeNone() else weight, smoothing, rank)
    made, shares = loss.of_shares(target) if is_float else loss.of_labels(target, ignored)
    kind = _REDUCTIONS[helper._get_const(reduction, "i", "reduction")]
    if kind == "none":
        return made
    total = helper._reducesum_helper(g, made, keepdims_i=0)
    return total if kind == "sum" else g.op("Div", total, shares)


class _CrossEntropy:
    """A cross entropy over axis 1: the loss of each element, and what their sum is divided by for a mean."""

    def __init__(self, g: Any, x: Any, weight: Any, smoothing: float, rank: int) -> None:
        from torch.onnx._internal.torchscript_exporter import _type_utils  # lazy: with the exporter
        from torch.onnx._internal.torchscript_exporter import symbolic_helper as helper

        self.g, self.helper, self.weight, self.smoothing, self.rank = g, helper, weight, smoothing, rank
        self.dtype = _type_utils.JitScalarType.from_value(x).dtype()
        self.code = _type_utils.JitScalarType.from_value(x).onnx_type()
        self.x = x
        self.logarithms = g.op("LogSoftmax", x, axis_i=1)
        self.classes = g.op("Gather", g.op("Shape", x), self._constant(1, torch.int64))

    def _constant(self, value: Any, dtype: Any = None) -> Any:
        return self.g.op("Constant", value_t=torch.tensor(value, dtype=dtype or self.dtype))

    def _sum_of_classes(self, value: Any) -> Any:
        return self.helper._reducesum_helper(self.g, value, axes_i=[1], keepdims_i=0)

    def _weighted(self, value: Any) -> Any:
        """Times the weights of the classes."""
        if self.weight is None:
            return value
        axes = [0, *range(2, self.rank)]
        return self.g.op("Mul", value, self.helper._unsqueeze_helper(self.g, self.weight, axes))

    def of_shares(self, target: Any) -> tuple[Any, Any]:
        """Targets that are probabilities."""
        g = self.g
        count = g.op("Cast", self.classes, to_i=self.code)
        if self.smoothing:
            even = g.op("Div", self._constant(self.smoothing), count)
            target = g.op("Add", g.op("Mul", target, self._constant(1 - self.smoothing)), even)
        loss = g.op("Neg", self._sum_of_classes(self._weighted(g.op("Mul", self.logarithms, target))))
        elements = g.op("Cast", g.op("Size", self.x), to_i=self.code)
        return loss, g.op("Div", elements, count)

    def of_labels(self, target: Any, ignored: Any) -> tuple[Any, Any]:
        """Targets that are numbers of classes; one that is ignored has no loss and no weight."""
        g = self.g
        if isinstance(ignored, int):
            ignored = self._constant(ignored, torch.int64)
        zero = self._constant(0, torch.int64)
        target = g.op("Cast", target, to_i=7)
        is_ignored = g.op("Equal", target, g.op("Cast", ignored, to_i=7))
        labels = g.op("Where", is_ignored, zero, target)
        wide = self.helper._unsqueeze_helper(g, labels, [1])
        picked = self.helper._squeeze_helper(g, g.op("GatherElements", self.logarithms, wide, axis_i=1), [1])
        share = self._constant(1.0) if self.weight is None else g.op("Gather", self.weight, labels)
        share = g.op("Where", is_ignored, self._constant(0.0), share)
        loss = g.op("Where", is_ignored, self._constant(0.0), g.op("Neg", g.op("Mul", picked, share)))
        if self.smoothing:
            everywhere = g.op("Neg", self._sum_of_classes(self._weighted(self.logarithms)))
            everywhere = g.op("Where", is_ignored, self._constant(0.0), everywhere)
            even = g.op("Div", self._constant(self.smoothing), g.op("Cast", self.classes, to_i=self.code))
            loss = g.op("Add", g.op("Mul", loss, self._constant(1 - self.smoothing)), g.op("Mul", everywhere, even))
        return loss, self.helper._reducesum_helper(g, share, keepdims_i=0)


def _adaptive_average(axes: int) -> Callable[..., Any]:
    """Means of windows that cover an axis evenly, along the last `axes` axes."""

    def adaptive(g: Any, x: Any, output_size: Any) -> Any:
        from torch.onnx._internal.torchscript_exporter import symbolic_helper as helper  # lazy: with the exporter

        rank = helper._get_tensor_rank(x)
        if rank is None:
            return helper._unimplemented("adaptive_avg_pool", "unknown rank", x)
        counts = helper._unpack_list(output_size) if not helper._is_constant(output_size) else _constants(g, output_size)
        known = [helper._maybe_get_const(each, "i") for each in counts]
        if all(isinstance(each, int) and each == 1 for each in known) and rank == axes + 2:
            return g.op("GlobalAveragePool", x)
        for axis in range(rank - axes, rank):
            shares = _window_shares(g, x, axis, counts[axis - rank + axes])
            order = list(range(rank))
            order[axis], order[-1] = order[-1], order[axis]
            moved = x if axis == rank - 1 else g.op("Transpose", x, perm_i=order)
            pooled = g.op("MatMul", moved, g.op("Transpose", shares, perm_i=[1, 0]))
            x = pooled if axis == rank - 1 else g.op("Transpose", pooled, perm_i=order)
        return x

    return adaptive


def _constants(g: Any, output_size: Any) -> list[Any]:
    from torch.onnx._internal.torchscript_exporter import symbolic_helper as helper  # lazy: with the exporter

    sizes = helper._parse_arg(output_size, "is")
    return [g.op("Constant", value_t=torch.tensor(size)) for size in sizes]


def _window_shares(g: Any, x: Any, axis: int, count: Any) -> Any:
    """[count, size of the axis]: the share of each element in the mean of each window."""
    from torch.onnx._internal.torchscript_exporter import _type_utils  # lazy: with the exporter
    from torch.onnx._internal.torchscript_exporter import symbolic_helper as helper

    zero, one = (g.op("Constant", value_t=torch.tensor(each)) for each in (0, 1))
    size = g.op("Gather", g.op("Shape", x), g.op("Constant", value_t=torch.tensor(axis)))
    window = helper._unsqueeze_helper(g, g.op("Range", zero, count, one), [1])
    element = g.op("Range", zero, size, one)
    starts = g.op("Div", g.op("Mul", window, size), count)
    behind = g.op("Add", g.op("Mul", g.op("Add", window, one), size), g.op("Sub", count, one))
    ends = g.op("Div", behind, count)
    inside = g.op("And", g.op("GreaterOrEqual", element, starts), g.op("Less", element, ends))
    code = _type_utils.JitScalarType.from_value(x).onnx_type()
    return g.op("Div", g.op("Cast", inside, to_i=code), g.op("Cast", g.op("Sub", ends, starts), to_i=code))


def _norm(name: str, weights: Sequence[int], families: Sequence[int]) -> Callable[..., Any]:
    """The exporter's norm; under autocast the input has another type than the weights: it is normalised in theirs, as torch does.

    `weights` are the positions of scale and bias, `families` the opsets that the exporter has it anew for.
    """

    def norm(g: Any, x: Any, *rest: Any) -> Any:
        from torch.onnx._internal.torchscript_exporter import _type_utils  # lazy: with the exporter
        from torch.onnx._internal.torchscript_exporter import symbolic_helper as helper

        opset = max(each for each in families if each <= _opset())
        family = importlib.import_module(f"torch.onnx._internal.torchscript_exporter.symbolic_opset{opset}")
        given = next((rest[at - 1] for at in weights if not helper._is_none(rest[at - 1])), None)
        if given is None or given.type().scalarType() == x.type().scalarType():
            return getattr(family, name)(g, x, *rest)
        wide, narrow = (_type_utils.JitScalarType.from_value(each) for each in (given, x))
        cast = g.op("Cast", x, to_i=wide.onnx_type()).setType(x.type().with_dtype(wide.dtype()))
        return g.op("Cast", getattr(family, name)(g, cast, *rest), to_i=narrow.onnx_type())

    return norm


def grid_sampler(g: Any, x: Any, grid: Any, mode: Any, padding: Any, align_corners: Any) -> Any:
    """The exporter's, which takes images only: volumes have been sampled since opset 20, as which `finish.py` writes the node."""
    from torch.onnx._internal.torchscript_exporter import symbolic_helper as helper  # lazy: with the exporter
    from torch.onnx._internal.torchscript_exporter import symbolic_opset16

    if helper._get_tensor_rank(x) != 5:
        return symbolic_opset16.grid_sampler(g, x, grid, mode, padding, align_corners)
    made = g.op(
        "sardonyx::GridSample",
        x,
        grid,
        align_corners_i=int(helper._get_const(align_corners, "b", "align_corners")),
        mode_s=("linear", "nearest", "cubic")[helper._get_const(mode, "i", "mode")],
        padding_mode_s=("zeros", "border", "reflection")[helper._get_const(padding, "i", "padding_mode")],
    )
    return made.setType(x.type().with_sizes([None] * 5))


def ctc_loss(
    g: Any, x: Any, labels: Any, input_lengths: Any, label_lengths: Any, blank: Any, reduction: Any, zero_infinity: Any
) -> Any:
    """An operator of ours, which gives the loss of each sequence: `decompositions_of_sequences.py` leaves nothing else to it."""
    from torch.onnx._internal.torchscript_exporter import symbolic_helper as helper  # lazy: with the exporter

    if helper._get_tensor_rank(x) != 3 or helper._get_tensor_rank(labels) != 2 or helper._get_const(reduction, "i", "reduction"):
        return helper._unimplemented("ctc_loss", "arguments that are not those of a batch", x)
    made = g.op(
        "sardonyx::CTCLoss",
        x,
        *(g.op("Cast", each, to_i=7) for each in (labels, input_lengths, label_lengths)),
        blank_i=helper._get_const(blank, "i", "blank"),
        zero_infinity_i=int(helper._get_const(zero_infinity, "b", "zero_infinity")),
    )
    return made.setType(x.type().with_sizes([None]))


def _opset() -> int:
    from torch.onnx._internal.torchscript_exporter._globals import GLOBALS  # lazy: with the exporter

    return int(GLOBALS.export_onnx_opset_version)


_NORMS: Final = (  # name, positions of scale and bias, opsets
    ("layer_norm", (2, 3), (9, 17)),
    ("batch_norm", (1, 2), (9, 14)),
    ("group_norm", (2, 3), (9,)),
    ("instance_norm", (1, 2), (9,)),
)
LAYERS: Final[tuple[tuple[str, int, Callable[..., Any]], ...]] = (  # name, the opset from which it holds, function
    ("aten::cross_entropy_loss", 12, cross_entropy_loss),
    ("aten::grid_sampler", 16, grid_sampler),
    ("aten::ctc_loss", 9, ctc_loss),
    *((f"aten::{name}", opset, _norm(name, weights, families)) for name, weights, families in _NORMS for opset in families),
    *((f"aten::adaptive_avg_pool{axes}d", 9, _adaptive_average(axes)) for axes in (1, 2, 3)),
)
