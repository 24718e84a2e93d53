"""How operators act on small tensors of whole numbers whose elements may be symbolic dimensions.

    Mul((N, 4), (2, 2))  ->  (2*N, 8)

A rule takes a view of the node and returns an object array of integers and expressions, a list of these for several outputs,
or None if the result is not known exactly. Float tensors take part as long as every element is a whole number (the scales and
sizes around Resize) and none is -0.0; a rule whose result would not be so gives None.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import copysign, isfinite, prod
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sardonyx import dtypes
from sardonyx.ir import dims
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.types import TensorType, Type

Known: TypeAlias = NDArray[np.object_]  # of int and dims.DimExpr
LIMIT: Final = 64  # elements; shapes and what is computed from them are smaller
_LONGEST: Final = 1 << 56


class _NotKnown(ValueError):
    """An input, or the answer to a comparison, is not known."""


class NodeView:
    """A node as a value rule sees it."""

    def __init__(
        self,
        node: Node,
        attrs: dict[str, Any],
        type_of: Callable[[Value], Type | None],
        known_of: Callable[[Value], Known | None],
    ) -> None:
        self.node = node
        self.inputs = node.inputs
        self.attrs = attrs
        self._type_of = type_of
        self._known_of = known_of

    def has(self, index: int) -> bool:
        """Whether the input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def __getitem__(self, index: int) -> Known:
        value = self.inputs[index]
        known = None if value is None else self._known_of(value)
        if known is None:
            raise _NotKnown
        return known

    def ints(self, index: int, attribute: str) -> list[int] | None:
        """Numbers that are an input in newer versions and an attribute in older ones; None if they are not given."""
        if self.has(index):
            items = self[index].reshape(-1).tolist()
            if not all(isinstance(item, int) for item in items):
                raise _NotKnown
            return [int(item) for item in items]
        given = self.attrs.get(attribute)
        return None if given is None else list(given)

    def shape(self, index: int) -> tuple[Dim, ...]:
        """The shape of an input's type."""
        value = self.inputs[index]
        type_ = None if value is None else self._type_of(value)
        if not isinstance(type_, TensorType) or type_.shape is None:
            raise _NotKnown
        return type_.shape

    def is_float(self, index: int = 0) -> bool:
        value = self.inputs[index]
        type_ = None if value is None else self._type_of(value)
        return isinstance(type_, TensorType) and type_.dtype.is_float


def known_array(data: NDArray[Any]) -> Known | None:
    """The elements of a constant as Python integers; None if one of them is not a whole number, or -0.0, which is none."""
    if prod(max(size, 1) for size in data.shape) > _LONGEST:  # empty, but NumPy has no array of objects with such axes
        return None
    if data.dtype.kind not in "iub":
        items = [float(item) for item in data.reshape(-1)]
        if not all(isfinite(item) and item.is_integer() and (item or copysign(1, item) > 0) for item in items):
            return None
        return _objects([int(item) for item in items], data.shape)
    return _objects([int(item) for item in data.reshape(-1)], data.shape)


def may_be_negative_zero(view: NodeView, result: Known) -> bool:
    """Whether a float result that stands here as 0, or may turn out so, could be -0.0: a product or quotient of another sign."""
    if view.node.op_type not in ("Neg", "Mul", "Div", "Mod") or not view.is_float():
        return False
    sizes = all(dims.is_nonnegative(item) for index in range(len(view.inputs)) for item in view[index].reshape(-1).tolist())
    if sizes and view.node.op_type != "Neg":
        return False
    return any(not isinstance(item, int) or item == 0 for item in result.reshape(-1))


def _objects(items: list[Any], shape: tuple[int, ...]) -> Known:
    result = np.empty(len(items), dtype=object)
    result[:] = items
    return result.reshape(shape)


def _elementwise(function: Callable[..., Any], *arrays: Known) -> Known:
    broadcast = np.broadcast_arrays(*arrays)
    if broadcast[0].size > LIMIT:
        raise _NotKnown
    rows = [array.reshape(-1) for array in broadcast]
    return _objects([function(*items) for items in zip(*rows, strict=True)], broadcast[0].shape)


def _shape(view: NodeView) -> Known:
    shape = view.shape(0)
    found = shape[slice(view.attrs.get("start") or 0, view.attrs.get("end"))]
    return _objects(list(found), (len(found),))


def _size(view: NodeView) -> Known:
    return _objects([dims.product(view.shape(0))], ())


def _constant(view: NodeView) -> Known | None:
    for name in ("value", "value_int", "value_ints", "value_float", "value_floats"):
        data = view.attrs.get(name)
        if data is not None:
            array = np.asarray(data)
            return known_array(array) if array.size <= LIMIT and array.dtype != object else None
    return None


def _identity(view: NodeView) -> Known:
    return view[0]


def _cast(view: NodeView) -> Known:
    return _elementwise(lambda item: abs(_sign(item)), view[0]) if view.attrs.get("to") == dtypes.BOOL.onnx else view[0]


def _all_ints(data: Known) -> bool:
    return all(isinstance(item, int) for item in data.reshape(-1))


def _axis(view: NodeView, rank: int, default: int = 0) -> int:
    axis = int(view.attrs.get("axis", default))
    if not -rank <= axis < rank:
        raise ValueError
    return axis % rank


def _gather(view: NodeView) -> Known:
    data, indices = view[0], view[1]
    if not _all_ints(indices):
        raise _NotKnown
    taken = np.take(data, indices.astype(np.int64), axis=_axis(view, data.ndim))
    return np.asarray(taken, dtype=object).reshape(taken.shape if isinstance(taken, np.ndarray) else ())


def _concat(view: NodeView) -> Known:
    parts = [view[index] for index in range(len(view.inputs))]
    return np.concatenate(parts, axis=_axis(view, parts[0].ndim, 1))


def _slice(view: NodeView) -> Known:
    data = view[0]
    starts, ends = view.ints(1, "starts"), view.ints(2, "ends")
    if starts is None or ends is None:
        raise _NotKnown
    axes = view.ints(3, "axes") or list(range(len(starts)))
    steps = view.ints(4, "steps") or [1] * len(starts)
    cuts = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        cuts[axis] = _cut(start, end, step, data.shape[axis])
    return data[tuple(cuts)]


def _cut(start: int, end: int, step: int, size: int) -> slice:
    """Bounds that are negative count from the end; those still outside are moved to the first or last element in reach."""
    start, end = (bound + size if bound < 0 else bound for bound in (start, end))
    if step > 0:
        return slice(max(start, 0), max(end, 0), step)
    if size == 0:
        return slice(0, 0)
    return slice(min(max(start, 0), size - 1), None if end < 0 else end, step)


def _squeeze(view: NodeView) -> Known:
    axes = view.ints(1, "axes")
    return np.squeeze(view[0], axis=None if axes is None else tuple(axes))


def _unsqueeze(view: NodeView) -> Known:
    data, axes = view[0], view.ints(1, "axes") or []
    return np.expand_dims(data, tuple(axes))


def _reshape(view: NodeView) -> Known:
    data, shape = view[0], view.ints(1, "shape")
    if shape is None:
        raise _NotKnown
    if not view.attrs.get("allowzero"):
        shape = [data.shape[position] if size == 0 else size for position, size in enumerate(shape)]
    return data.reshape(shape)


def _flatten(view: NodeView) -> Known:
    data = view[0]
    axis = int(view.attrs.get("axis", 1))
    axis += data.ndim if axis < 0 else 0
    return data.reshape(prod(data.shape[:axis]), prod(data.shape[axis:]))


def _transpose(view: NodeView) -> Known:
    return np.transpose(view[0], view.attrs.get("perm"))


def _expand(view: NodeView) -> Known:
    data, shape = view[0], view.ints(1, "")
    target = np.broadcast_shapes(data.shape, tuple(shape or ()))
    _check_size(target)
    return np.broadcast_to(data, target)


def _tile(view: NodeView) -> Known:
    data, repeats = view[0], view.ints(1, "") or []
    if len(repeats) != data.ndim:  # Tile of opset 1 takes a scalar and an axis
        raise _NotKnown
    _check_size(tuple(size * repeat for size, repeat in zip(data.shape, repeats, strict=True)))
    return np.tile(data, repeats)


def _constant_of_shape(view: NodeView) -> Known | None:
    shape = tuple(view.ints(0, "") or ())
    _check_size(shape)
    value = view.attrs.get("value")
    item = known_array(np.zeros(1, np.float32) if value is None else np.asarray(value).reshape(-1)[:1])
    return None if item is None else np.broadcast_to(item, shape)


def _check_size(shape: tuple[int, ...]) -> None:
    if any(size < 0 for size in shape) or prod(shape) > LIMIT:
        raise _NotKnown


def _range(view: NodeView) -> Known:
    start, limit, step = (view[index].reshape(()).item() for index in range(3))
    if not isinstance(step, int) or step == 0:
        raise _NotKnown
    count = dims.ceildiv(limit - start, step) if step > 0 else dims.ceildiv(start - limit, -step)
    if not isinstance(count, int) or count > LIMIT:
        raise _NotKnown
    return _objects([start + step * position for position in range(max(count, 0))], (max(count, 0),))


def _split(view: NodeView) -> list[Known | None]:
    data, count = view[0], len(view.node.outputs)
    axis = _axis(view, data.ndim)
    sizes = view.ints(1, "split")
    if sizes is None:
        chunk = -(-data.shape[axis] // count)
        sizes = [max(0, min(chunk, data.shape[axis] - chunk * position)) for position in range(count)]
    if sum(sizes) != data.shape[axis] or len(sizes) != count:
        raise ValueError
    return list(np.split(data, np.cumsum(sizes)[:-1], axis=axis))


def _binary(function: Callable[[Dim, Dim], Dim]) -> Callable[[NodeView], Known]:
    return lambda view: _elementwise(function, view[0], view[1])


def _variadic(function: Callable[[Dim, Dim], Dim]) -> Callable[[NodeView], Known]:
    return lambda view: reduce(
        lambda left, right: _elementwise(function, left, right), (view[index] for index in range(len(view.inputs)))
    )


def _unary(function: Callable[[Any], Any]) -> Callable[[NodeView], Known]:
    return lambda view: _elementwise(function, view[0])


def _divide(view: NodeView) -> Known:
    whole = view.is_float()

    def divide(a: Dim, b: Dim) -> Dim:
        quotient = dims.floordiv(a, b)
        if b != 0 and quotient * b == a:
            return quotient
        if whole or b == 0:
            raise _NotKnown
        if isinstance(a, int) and isinstance(b, int):  # integers are divided towards zero
            return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        if not dims.is_nonnegative(b):
            raise _NotKnown
        if dims.is_nonnegative(a):
            return quotient
        return dims.floordiv(dims.dim_max(a, 0), b) - dims.floordiv(dims.dim_max(-a, 0), b)  # one of them is 0

    return _elementwise(divide, view[0], view[1])


def _modulo(view: NodeView) -> Known:
    truncating = bool(view.attrs.get("fmod")) or view.is_float()

    def modulo(a: Dim, b: Dim) -> Dim:
        if b == 0 or (truncating and not (dims.is_nonnegative(a) and dims.is_nonnegative(b))):
            raise _NotKnown
        return dims.mod(a, b)

    return _elementwise(modulo, view[0], view[1])


def _negative(a: Dim) -> bool:
    """Whether a number is below zero; _NotKnown if that depends on the symbols."""
    if dims.is_nonnegative(a):
        return False
    if dims.is_nonnegative(-a - 1):
        return True
    raise _NotKnown


def _absolute(a: Dim) -> Dim:
    if dims.is_nonnegative(-a):
        return -a
    if dims.is_nonnegative(a):
        return a
    raise _NotKnown


def _sign(a: Dim) -> int:
    if a == 0:
        return 0
    if _negative(a):
        return -1
    if dims.is_nonnegative(a - 1):
        return 1
    raise _NotKnown


def _equal(a: Dim, b: Dim) -> int:
    difference = a - b
    if isinstance(difference, int):
        return int(difference == 0)
    if dims.is_nonnegative(difference - 1) or dims.is_nonnegative(-difference - 1):
        return 0
    raise _NotKnown


def _less(a: Dim, b: Dim) -> int:
    return int(_negative(a - b))


def _where(view: NodeView) -> Known:
    return _elementwise(lambda condition, x, y: x if condition else y, view[0], view[1], view[2])


def _reduction(function: Callable[[Dim, Dim], Dim], initial: Dim | None) -> Callable[[NodeView], Known]:
    def reduce_(view: NodeView) -> Known:
        data = view[0]
        axes = view.ints(1, "axes")
        if not axes:
            if view.attrs.get("noop_with_empty_axes"):
                return data
            axes = list(range(data.ndim))
        axes = [axis % data.ndim for axis in axes] if data.ndim else []
        rest = [axis for axis in range(data.ndim) if axis not in axes]
        rows = np.transpose(data, rest + axes).reshape(prod(data.shape[axis] for axis in rest), -1)
        if rows.shape[1] == 0 and initial is None:
            raise _NotKnown
        results = [reduce(function, row) if initial is None else reduce(function, row, initial) for row in rows]
        keep = view.attrs.get("keepdims", 1)
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(data.shape) if keep or axis not in axes)
        return _objects(results, shape)

    return reduce_


Rule: TypeAlias = Callable[[NodeView], Any]

RULES: Final[dict[str, Rule]] = {
    "Shape": _shape,
    "Size": _size,
    "Constant": _constant,
    "Identity": _identity,
    "Cast": _cast,
    "CastLike": _identity,
    "Gather": _gather,
    "Concat": _concat,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Split": _split,
    "Add": _binary(lambda a, b: a + b),
    "Sub": _binary(lambda a, b: a - b),
    "Mul": _binary(lambda a, b: a * b),
    "Div": _divide,
    "Mod": _modulo,
    "Neg": _unary(lambda a: -a),
    "Abs": _unary(_absolute),
    "Sign": _unary(_sign),
    "Floor": _identity,
    "Ceil": _identity,
    "Round": _identity,
    "Min": _variadic(dims.dim_min),
    "Max": _variadic(dims.dim_max),
    "Sum": _variadic(lambda a, b: a + b),
    "Equal": _binary(_equal),
    "Less": _binary(_less),
    "Greater": _binary(lambda a, b: _less(b, a)),
    "LessOrEqual": _binary(lambda a, b: 1 - _less(b, a)),
    "GreaterOrEqual": _binary(lambda a, b: 1 - _less(a, b)),
    "Not": _unary(lambda a: 1 - a),
    "And": _binary(lambda a, b: a * b),
    "Or": _binary(dims.dim_max),
    "Where": _where,
    "ReduceProd": _reduction(lambda a, b: a * b, 1),
    "ReduceSum": _reduction(lambda a, b: a + b, 0),
    "ReduceMax": _reduction(dims.dim_max, None),
    "ReduceMin": _reduction(dims.dim_min, None),
}
