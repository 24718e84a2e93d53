"""Operators of ATen in ONNX's operators, where torch's exporter has none: registered while an export runs.

aten::detach    StopGradient of ours, which `finish.py` makes a marked Identity
aten::diff      differences of neighbours, once or several times
aten::cumsum    of bool, which torch counts as integers and CumSum does not take
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch


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


def _is_bool(x: Any) -> bool:
    return bool(x.type().scalarType() == "Bool")


SYMBOLICS: Final[dict[str, tuple[int, Callable[..., Any]]]] = {  # by name: the opset from which it holds
    "aten::detach": (9, detach),
    "aten::diff": (9, diff),
    "aten::cumsum": (11, cumsum),
}


@contextlib.contextmanager
def symbolics_registered() -> Iterator[None]:
    """The table above, for the time of an export."""
    from torch.onnx._internal.torchscript_exporter import registration  # lazy: with the exporter

    registry = registration.registry
    for name, (opset, function) in SYMBOLICS.items():
        registry.register(name, opset, function, custom=True)
    try:
        yield
    finally:
        for name, (opset, _) in SYMBOLICS.items():
            registry.unregister(name, opset)
