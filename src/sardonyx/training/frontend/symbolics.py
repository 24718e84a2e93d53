"""Operators of ATen in ONNX's operators, where torch's exporter has none: registered while an export runs.

aten::detach    StopGradient of ours, which `finish.py` makes a marked Identity
aten::diff      differences of neighbours, once or several times
aten::cumsum    of bool, which torch counts as integers and CumSum does not take
aten::embedding without gradients for the row of padding
aten::bitwise_* of integers, before opset 18: operators of ours, which `finish.py` makes ONNX's
aten::max, min  along an axis: the gradient goes to the first of equal elements
Losses and adaptive pools stand in `symbolics_of_layers.py`.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from sardonyx.training.frontend.symbolics_of_layers import LAYERS


def detach(g: Any, x: Any) -> Any:
    """The value itself; gradients stop here."""
    return g.op("sardonyx::StopGradient", x).setType(x.type())


def diff(g: Any, x: Any, n: Any, dim: Any, prepend: Any, append: Any) -> Any:
    """x[1:] - x[:-1] along an axis, n times; `prepend` and `append` stand before and after x."""
    from torch.onnx._internal.torchscript_exporter import symbolic_helper as helper  # lazy: with the exporter

    times, axis = helper._get_const(n, "i", "n"), helper._get_const(dim, "i", "dim")
    parts = [each for each in (prepend, x, append) if not helper._is_none(each)]
    joined = g.op("Concat", *parts, axis_i=axis) if len(parts) > 1 else x
    for _ in range(times):
        later = helper._slice_helper(g, joined, axes=[axis], starts=[1], ends=[torch.iinfo(torch.int64).max])
        earlier = helper._slice_helper(g, joined, axes=[axis], starts=[0], ends=[-1])
        joined = g.op("Xor" if _is_bool(x) else "Sub", later, earlier)
    return joined


def cumsum(g: Any, x: Any, dim: Any, dtype: Any) -> Any:
    """Running sums along an axis, in `dtype` if it is given."""
    from torch.onnx._internal.torchscript_exporter import _type_utils  # lazy: with the exporter
    from torch.onnx._internal.torchscript_exporter import symbolic_helper as helper

    axis = g.op("Constant", value_t=torch.tensor(helper._get_const(dim, "i", "dim"), dtype=torch.int32))
    if not helper._is_none(dtype):
        wanted = _type_utils.JitScalarType(helper._get_const(dtype, "i", "dtype"))
        x = g.op("Cast", x, to_i=wanted.onnx_type())
    elif _is_bool(x):
        x = g.op("Cast", x, to_i=_type_utils.JitScalarType.INT64.onnx_type())
    return g.op("CumSum", x, axis)


def embedding(g: Any, weight: Any, indices: Any, padding_idx: Any, scale_grad_by_freq: Any, sparse: Any) -> Any:
    """Rows of a table; from those at `padding_idx` no gradient flows back."""
    from torch.onnx._internal.torchscript_exporter import symbolic_helper as helper  # lazy: with the exporter

    if helper._get_const(scale_grad_by_freq, "b", "scale_grad_by_freq"):
        return helper._unimplemented("embedding", "gradients scaled by how often a row is read", weight)
    if helper._get_const(sparse, "b", "sparse"):
        return helper._unimplemented("embedding", "sparse gradients", weight)
    rows = g.op("Gather", weight, indices)
    padding = helper._get_const(padding_idx, "i", "padding_idx")
    if padding < 0:
        return rows
    is_padding = g.op("Equal", indices, g.op("Constant", value_t=torch.tensor(padding)))
    return g.op("Where", helper._unsqueeze_helper(g, is_padding, [-1]), g.op("sardonyx::StopGradient", rows), rows)


def diagonal(g: Any, x: Any, offset: Any, dim1: Any, dim2: Any) -> Any:
    """The diagonal of two axes as a new last axis: of a row-major matrix, every element `columns + 1` from the one before."""
    from torch.onnx._internal.torchscript_exporter import symbolic_helper as helper  # lazy: with the exporter

    rank = helper._get_tensor_rank(x)
    if rank is None:
        return helper._unimplemented("diagonal", "unknown rank", x)
    shift = helper._get_const(offset, "i", "offset")
    first, second = (helper._get_const(each, "i", "dim") % rank for each in (dim1, dim2))
    kept = [axis for axis in range(rank) if axis not in (first, second)]
    matrices = g.op("Transpose", x, perm_i=[*kept, first, second])

    def constant(value: Any) -> Any:
        return g.op("Constant", value_t=torch.tensor(value))

    def size(axis: int) -> Any:
        return g.op("Gather", g.op("Shape", matrices), constant(axis))  # of rank 0

    rows, columns = size(rank - 2), size(rank - 1)
    count = g.op("Min", g.op("Sub", rows, constant(max(-shift, 0))), g.op("Sub", columns, constant(max(shift, 0))))
    count = g.op("Max", count, constant(0))
    start = constant(shift) if shift >= 0 else g.op("Mul", columns, constant(-shift))
    steps = g.op("Mul", g.op("Range", constant(0), count, constant(1)), g.op("Add", columns, constant(1)))
    flat = g.op("Reshape", matrices, constant([0] * (rank - 2) + [-1]))
    return g.op("Gather", flat, g.op("Add", steps, start), axis_i=rank - 2)


def _split(opset: int) -> Callable[..., Any]:
    """Parts of one size: the last has what is left, also of an axis whose size is not known."""

    def split(g: Any, x: Any, size: Any, dim: Any, _outputs: int | None = None) -> Any:
        from torch.onnx._internal.torchscript_exporter import symbolic_helper as helper  # lazy: with the exporter

        axis, part = helper._maybe_get_const(dim, "i"), helper._maybe_get_const(size, "i")
        if _outputs is None or not isinstance(axis, int) or not isinstance(part, int):
            family = importlib.import_module(f"torch.onnx._internal.torchscript_exporter.symbolic_opset{opset}")
            return family.split(g, x, size, dim, _outputs)
        whole = [part] * (_outputs - 1)
        length = helper._get_tensor_dim_size(x, axis)
        if length is not None:
            sizes = g.op("Constant", value_t=torch.tensor([*whole, length - sum(whole)]))
            return g.op("Split", x, sizes, axis_i=axis, outputs=_outputs)
        # Of parts whose lengths are computed the exporter knows no size at all, and takes those of the first call for constants.
        starts = [part * number for number in range(_outputs)]
        ends = [*starts[1:], torch.iinfo(torch.int64).max]
        made = [helper._slice_helper(g, x, axes=[axis], starts=[start], ends=[end]) for start, end in zip(starts, ends)]
        return made if _outputs > 1 else made[0]

    return split


def squeeze(g: Any, x: Any, dim: Any = None) -> Any:
    """Without an axis that has size 1, which `patches.py` has seen to."""
    from torch.onnx._internal.torchscript_exporter import symbolic_helper as helper  # lazy: with the exporter

    if dim is None:
        return g.op("Squeeze", x)
    return helper._squeeze_helper(g, x, [helper._get_const(dim, "i", "dim")])


def multinomial(g: Any, x: Any, samples: Any, replacement: Any, generator: Any = None) -> Any:
    """The exporter's, which takes rows only: one distribution alone is a row."""
    from torch.onnx._internal.torchscript_exporter import symbolic_helper as helper  # lazy: with the exporter
    from torch.onnx._internal.torchscript_exporter import symbolic_opset9

    if helper._get_tensor_rank(x) != 1:
        return symbolic_opset9.multinomial(g, x, samples, replacement, generator)
    rows = helper._unsqueeze_helper(g, x, [0])
    return helper._squeeze_helper(g, symbolic_opset9.multinomial(g, rows, samples, replacement, generator), [0])


def _extreme(name: str, choose: str, opset: int) -> Callable[..., Any]:
    """max or min: along an axis as said above, otherwise as the exporter has it since an opset."""

    def extreme(g: Any, x: Any, dim_or_other: Any = None, keepdim: Any = None) -> Any:
        from torch.onnx._internal.torchscript_exporter import symbolic_helper as helper  # lazy: with the exporter

        if dim_or_other is None or keepdim is None:
            family = importlib.import_module(f"torch.onnx._internal.torchscript_exporter.symbolic_opset{opset}")
            return getattr(family, name)(g, x, dim_or_other, keepdim)
        axis = helper._get_const(dim_or_other, "i", "dim")
        indices = g.op(choose, x, axis_i=axis, keepdims_i=1)
        values = g.op("GatherElements", x, indices, axis_i=axis)
        if helper._get_const(keepdim, "i", "keepdim"):
            return values, indices
        return helper._squeeze_helper(g, values, [axis]), helper._squeeze_helper(g, indices, [axis])

    return extreme


def _bitwise(name: str) -> Callable[..., Any]:
    """An operator of bits: that of truth values, or that of integers, of the type that torch promotes both to."""

    def bitwise(g: Any, x: Any, other: Any = None) -> Any:
        from torch.onnx._internal.torchscript_exporter import _type_utils  # lazy: with the exporter

        if other is None:
            return g.op("Not", x) if _is_bool(x) else g.op("sardonyx::BitwiseNot", x).setType(x.type())
        kinds = [_type_utils.JitScalarType.from_value(each).dtype() for each in (x, other)]
        ranks = [each.type().dim() if each.type().kind() == "TensorType" else 0 for each in (x, other)]
        wanted = torch.promote_types(*kinds)
        if 0 in ranks and ranks != [0, 0] and torch.bool not in kinds:  # a number takes the type of the tensor
            wanted = kinds[ranks.index(0) - 1]
        code = _type_utils.JitScalarType.from_dtype(wanted).onnx_type()
        widest = (x if ranks[0] >= ranks[1] else other).type()
        x, other = (
            each if kind == wanted else g.op("Cast", each, to_i=code) for each, kind in zip((x, other), kinds, strict=True)
        )
        if wanted is torch.bool:
            return g.op(name, x, other)
        made = g.op(f"sardonyx::Bitwise{name}", x, other)
        return made.setType(widest.with_dtype(wanted).with_sizes([None] * max(ranks)) if max(ranks) else widest)

    return bitwise


def _is_bool(x: Any) -> bool:
    return bool(x.type().scalarType() == "Bool")


SYMBOLICS: Final[tuple[tuple[str, int, Callable[..., Any]], ...]] = (  # name, the opset from which it holds, function
    ("aten::detach", 9, detach),
    ("aten::diff", 9, diff),
    ("aten::cumsum", 11, cumsum),
    ("aten::embedding", 9, embedding),
    ("aten::diagonal", 13, diagonal),
    ("aten::multinomial", 9, multinomial),
    *(("aten::squeeze", opset, squeeze) for opset in (9, 11, 13)),
    ("aten::split", 13, _split(13)),
    ("aten::split", 18, _split(18)),
    ("aten::max", 9, _extreme("max", "ArgMax", 9)),
    ("aten::max", 18, _extreme("max", "ArgMax", 18)),
    ("aten::min", 9, _extreme("min", "ArgMin", 9)),
    ("aten::min", 18, _extreme("min", "ArgMin", 18)),
    *((name, opset, _bitwise("Or")) for name in ("aten::bitwise_or", "aten::__or_") for opset in (9, 18)),
    *((name, opset, _bitwise("And")) for name in ("aten::bitwise_and", "aten::__and_") for opset in (9, 18)),
    *((name, opset, _bitwise("Xor")) for name in ("aten::bitwise_xor", "aten::__xor_") for opset in (9, 18)),
    ("aten::bitwise_not", 9, _bitwise("Not")),
    ("aten::bitwise_not", 18, _bitwise("Not")),
    *LAYERS,
)


@contextlib.contextmanager
def symbolics_registered() -> Iterator[None]:
    """The table above, for the time of an export."""
    from torch.onnx._internal.torchscript_exporter import registration  # lazy: with the exporter

    registry = registration.registry
    for name, opset, function in SYMBOLICS:
        registry.register(name, opset, function, custom=True)
    try:
        yield
    finally:
        for name, opset, _ in SYMBOLICS:
            registry.unregister(name, opset)
