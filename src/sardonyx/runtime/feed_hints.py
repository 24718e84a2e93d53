"""What to do about a feed that was refused, in a sentence; worked out only when something is refused.

float64 where float32 is declared           x.astype(np.float32)
(1, 224, 224, 3) for [N,3,224,224]          x.transpose(0, 3, 1, 2)
(3, 224, 224) for [N,3,224,224]             x[None]
"imgae" where there is "image"              did you mean 'image'?
a: [N,3] and b: [N,3] of (2, 3) and (4, 3)  N is 2 in 'a', but 4 in 'b'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.dims import Dim
from sardonyx.ir.types import Shape, SparseTensorType, TensorType, Type, format_shape

# Orders of axes that people mix up, the likely ones first: channels last for channels first and the other way round.
_USUAL_ORDERS: Final = ((0, 3, 1, 2), (0, 2, 3, 1), (0, 4, 1, 2, 3), (0, 2, 3, 4, 1), (2, 0, 1), (1, 2, 0), (0, 2, 1), (1, 0))
_MOST_AXES: Final = 5  # of arrays whose axes are tried in any order


def dtype_hint(name: str, value: Any, expected: Type | None) -> str:
    """How to make the elements of an array those that are declared; "" if that is no mere conversion."""
    if not isinstance(value, np.ndarray) or not isinstance(expected, TensorType):
        return ""
    wanted = expected.dtype
    is_text = value.dtype.kind in "USTO"
    if wanted is dtypes.STRING:
        return "feed an array of str" if not is_text else ""
    if is_text:
        return f"convert the text to numbers of {wanted.numpy.name} first"
    name = _variable(name)
    module = "np" if wanted.numpy.isbuiltin == 1 else "ml_dtypes"
    return f"convert it: {name}.astype({module}.{wanted.numpy.name})"


def shape_hint(name: str, found: Sequence[int], shape: Shape) -> str:
    """How to make an array fit a declared shape; "" if neither another order of axes nor one axis more or less does."""
    name, added = _variable(name), (1, *found)
    if _fits(added, shape):
        return f"add the batch axis: {name}[None]"
    if len(found) == len(shape) + 1 and found[0] == 1 and _fits(found[1:], shape):
        return f"remove the first axis: {name}[0]"
    order = _order(found, shape)
    if order is not None:
        return f"transpose it from {format_shape(tuple(found))} to {format_shape(shape)}: {name}.transpose{order}"
    order = _order(found, shape[1:]) if len(found) == len(shape) - 1 and _fits((1,), shape[:1]) else None
    if order is not None:
        return f"transpose it and add the batch axis: {name}.transpose{order}[None]"
    if not found and all(dim == 1 or not isinstance(dim, int) for dim in shape):
        return f"give it its axes: np.reshape({name}, {(1,) * len(shape)})"
    return f"the model declares {format_shape(shape)}"


def _variable(name: str) -> str:
    """What an expression calls the array: the input's name, where that could be a variable's."""
    return name if name.isidentifier() else "x"


def _order(found: Sequence[int], shape: Sequence[Dim]) -> tuple[int, ...] | None:
    """An order of axes in which an array fits, if sizes that are fixed tell the axes apart."""
    if len(found) != len(shape) or len(found) > _MOST_AXES or not any(isinstance(dim, int) for dim in shape):
        return None
    usual = [order for order in _USUAL_ORDERS if len(order) == len(found)]
    for order in (*usual, *permutations(range(len(found)))):
        if _fits([found[axis] for axis in order], shape):
            return order
    return None


def _fits(found: Sequence[int], shape: Sequence[Dim]) -> bool:
    return len(found) == len(shape) and all(not isinstance(dim, int) or dim == size for size, dim in zip(found, shape))


def name_hint(name: str, known: Sequence[str]) -> str:
    """Which name was meant, and which there are."""
    from difflib import get_close_matches  # lazy: few feeds are wrong

    near = get_close_matches(name, known, n=1)
    listing = f"the inputs are: {', '.join(known)}"
    return f"did you mean {near[0]!r}? {listing}" if near else listing


def missing_hint(missing: Iterable[str], unknown: Sequence[str]) -> str:
    """Which of the unknown names of a feed were meant for missing inputs; "" if none looks like one."""
    from difflib import get_close_matches  # lazy: few feeds are wrong

    meant = {name: get_close_matches(name, unknown, n=1) for name in missing}
    return "; ".join(f"did you mean {name!r} by {near[0]!r}?" for name, near in meant.items() if near)


def disagreement(feed: Mapping[str, Any], types: Mapping[str, Type | None]) -> str:
    """Which inputs give one named dimension different sizes; "" if none do."""
    seen: dict[str, tuple[str, int]] = {}
    said = []
    for name, value in feed.items():
        type_ = types.get(name)
        if not isinstance(type_, (TensorType, SparseTensorType)) or type_.shape is None or not hasattr(value, "shape"):
            continue
        for dim, size in zip(type_.shape, value.shape):
            if isinstance(dim, int) or not dim.is_symbol or dim.is_anonymous:
                continue
            other, known = seen.setdefault(str(dim), (name, size))
            if known != size:
                said.append(f"dimension {dim} is {known} in {other!r}, but {size} in {name!r}")
    return "; ".join(said)
