"""Control flow: operators that run graphs.

A graph attribute is a callable that takes the graph's inputs and returns the list of its outputs. Its `output_types`, if it has
them, give the shape of scan outputs when there was no iteration.

Shapes of values carried from one iteration to the next are found by widening: a dimension that changes in an iteration
becomes unknown, and the body is looked at again until nothing changes any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sardonyx import dtypes
from sardonyx.ir import dims
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import Graph, Value
from sardonyx.ir.types import OptionalType, SequenceType, Shape, TensorType, Type
from sardonyx.ops.control.sequence import common_type, renewed
from sardonyx.ops.definition import EvalContext, Trait, op
from sardonyx.ops.infer import InferContext, InferOne, InferResult, normalize_axis

Array = NDArray[Any]
Body = Callable[..., list[Any]]


def _truth(condition: Any) -> bool:
    array = np.asarray(condition)
    if array.size != 1:
        raise ValueError(f"the condition has shape {array.shape}; expected a single boolean")
    return bool(array.reshape(())[()])


def _if(condition: Array, *, then_branch: Body, else_branch: Body) -> tuple[Any, ...]:
    return tuple((then_branch if _truth(condition) else else_branch)())


def _infer_if(ctx: InferContext) -> InferResult:
    branches = [ctx.infer_graph(ctx.attr(name), []) for name in ("then_branch", "else_branch")]
    counts = [len(types) for types in branches]
    if counts != [ctx.outputs, ctx.outputs]:
        raise ValueError(f"the node has {ctx.outputs} outputs, its then branch {counts[0]}, its else branch {counts[1]}")
    chosen = ctx.constant(0)
    if chosen is not None and chosen.size == 1:
        return list(branches[0 if _truth(chosen) else 1])
    for position, (a, b) in enumerate(zip(*branches, strict=True)):
        if isinstance(a, TensorType) and isinstance(b, TensorType) and a.dtype is not b.dtype:
            raise ValueError(f"output {position} is {a.dtype.name} in the then branch and {b.dtype.name} in the else branch")
    return [common_type(a, b) for a, b in zip(*branches, strict=True)]


op("If", eval=_if, infer=_infer_if, traits=Trait.CONTROL_FLOW)


def _declared(body: Body, which: str, position: int) -> Type | None:
    """The type a body declares for one of its `input_types` or `output_types`."""
    types: Sequence[Type | None] = getattr(body, which, ())
    return types[position] if position < len(types) else None


def _control_shape(declared: Type | None) -> tuple[int, ...]:
    """The shape of a Loop's iteration number or condition: a scalar, or a vector of one where the body declares a vector."""
    return (1,) if isinstance(declared, TensorType) and declared.rank == 1 else ()


def _scalar_as(value: Any, declared: Type | None) -> Array:
    """A single value in the shape that the body declares."""
    return np.asarray(value).reshape(_control_shape(declared))


def _stack(items: list[Any], axis: int, declared: Type | None, which: int) -> Array:
    """The values one scan output had in all iterations, along a new axis."""
    if items:
        shapes = {np.shape(item) for item in items}
        if len(shapes) > 1:
            listed = " and ".join(map(str, sorted(shapes)[:2]))
            raise ValueError(f"scan output {which} changes its shape between iterations: {listed}")
        return np.stack(items, normalize_axis(axis, len(shapes.pop()) + 1))
    dtype = declared.dtype.numpy if isinstance(declared, TensorType) else np.dtype(np.float32)
    shape = (declared.shape if isinstance(declared, TensorType) else None) or ()
    sizes = [dim if isinstance(dim, int) else 0 for dim in shape]
    sizes.insert(normalize_axis(axis, len(sizes) + 1), 0)
    return np.empty(sizes, dtype)


def _loop(
    limit: Array | None = None, condition: Array | None = None, *carried: Any, body: Body, ctx: EvalContext
) -> tuple[Any, ...]:
    trips = None if limit is None else int(np.asarray(limit).reshape(()))
    going = condition is None or _truth(condition)
    state = list(carried)
    scans: list[list[Any]] = [[] for _ in range(len(ctx.outputs) - len(state))]
    counter, keep_going = (_declared(body, "input_types", position) for position in (0, 1))
    iteration = 0
    while going and (trips is None or iteration < trips):
        results = body(_scalar_as(np.int64(iteration), counter), _scalar_as(going, keep_going), *state)
        if len(results) < 1 + len(state) + len(scans):
            raise ValueError(
                f"the body gives {len(results)} values; expected a condition, {len(state)} carried, {len(scans)} scanned"
            )
        going = _truth(results[0])
        state = list(results[1 : 1 + len(state)])
        for scan, item in zip(scans, results[1 + len(state) :], strict=False):
            scan.append(item)
        iteration += 1
    first = 1 + len(state)
    return (
        *state,
        *(_stack(items, 0, _declared(body, "output_types", first + which), which) for which, items in enumerate(scans)),
    )


def _widen(known: Type | None, found: Type | None, wide: set[Dim]) -> tuple[Type | None, bool]:
    """A type that holds both, and whether it had to change; dimensions in `wide` are unknown already."""
    if isinstance(known, TensorType) and isinstance(found, TensorType) and known.dtype is found.dtype:
        if known.shape is None:
            return known, False
        if found.shape is None or len(known.shape) != len(found.shape):
            return TensorType(known.dtype, None), True
        shape: list[Dim] = []
        for a, b in zip(known.shape, found.shape, strict=True):
            if a == b or a in wide:
                shape.append(a)
            else:
                shape.append(dims.fresh())
                wide.add(shape[-1])
        return TensorType(known.dtype, tuple(shape)), tuple(shape) != known.shape
    if isinstance(known, SequenceType) and isinstance(found, SequenceType):
        element, changed = _widen(known.element, found.element, wide)
        return (known, False) if element is None else (SequenceType(element), changed)
    if isinstance(known, OptionalType):
        inner = found.element if isinstance(found, OptionalType) else found
        element, changed = _widen(known.element, inner, wide)
        return (known, False) if element is None else (OptionalType(element), changed)
    return known, False


def _infer_body(
    ctx: InferContext, carried: list[Type | None], before: list[Type | None], after: list[Type | None], skip: int
) -> tuple[list[Type | None], list[Type | None]]:
    """The types of carried values that hold for every iteration, and those of the body's other outputs.

    The body takes `before`, the carried values and `after`; its first `skip` outputs are neither carried nor scanned.
    """
    wide: set[Dim] = set()
    body: Graph = ctx.attr("body")
    while True:
        results = ctx.infer_graph(body, [*before, *carried, *after])
        returned = results[skip : skip + len(carried)]
        widened = [_widen(known, found, wide) for known, found in zip(carried, returned, strict=True)]
        carried = [type_ for type_, _ in widened]
        if not any(changed for _, changed in widened):
            break
    # A symbol that was widened stands for one iteration's size; the last one is another.
    final = [_rename(type_, wide) for type_ in carried]
    return final, results[skip + len(carried) :]


def _rename(type_: Type | None, wide: set[Dim]) -> Type | None:
    if isinstance(type_, TensorType) and type_.shape is not None:
        return TensorType(type_.dtype, tuple(dims.fresh() if dim in wide else dim for dim in type_.shape))
    if isinstance(type_, (SequenceType, OptionalType)):
        element = _rename(type_.element, wide)
        return type_ if element is None else type(type_)(element)
    return type_


def _always_true(ctx: InferContext, body: Graph) -> bool:
    """Whether the condition of a Loop plainly never ends it."""
    if ctx.has(1):
        start = ctx.constant(1)
        if start is None or not _truth(start):
            return False
    value: Value = body.outputs[0]
    while value.producer is not None and value.producer.op_type == "Identity" and value.producer.inputs[0] is not None:
        value = value.producer.inputs[0]
    if value is body.inputs[1]:
        return True
    if value.producer is not None and value.producer.op_type == "Constant":
        constant = value.producer.attr("value")
    else:
        constant = value.constant
    return constant is not None and bool(np.all(constant.numpy()))


def _scanned(type_: Type | None, length: Dim, axis: int) -> InferOne:
    """The type of a stacked scan output."""
    if not isinstance(type_, TensorType):
        return None
    if type_.shape is None:
        return TensorType(type_.dtype, None)
    shape = list(type_.shape)
    shape.insert(normalize_axis(axis, len(shape) + 1), length)
    return TensorType(type_.dtype, tuple(shape))


def _infer_loop(ctx: InferContext) -> InferResult:
    body: Graph = ctx.attr("body")
    carried = [ctx.type(index) for index in range(2, len(ctx.inputs))]
    control: list[Type | None] = [
        TensorType(dtype, _control_shape(value.type)) for value, dtype in zip(body.inputs, (dtypes.INT64, dtypes.BOOL))
    ]
    final, scans = _infer_body(ctx, carried, control, [], 1)
    limit = ctx.dims(0)
    trips = limit[0] if limit is not None and len(limit) == 1 and _always_true(ctx, body) else ctx.fresh("trips")
    if isinstance(trips, int):
        trips = max(trips, 0)
    return [*final, *(_scanned(type_, trips, 0) for type_ in scans)]


op("Loop", eval=_loop, infer=_infer_loop, traits=Trait.CONTROL_FLOW)


def _scan_steps(inputs: Sequence[Array], axes: Sequence[int], reverse: Sequence[int], length: int) -> Iterator[list[Array]]:
    """The slices of all scan inputs, one list for each step."""
    leading = [np.moveaxis(array, axis, 0)[:length] for array, axis in zip(inputs, axes, strict=True)]
    for step in range(length):
        yield [np.asarray(array[length - 1 - step if back else step]) for array, back in zip(leading, reverse, strict=True)]


def _scan_run(body: Body, state: list[Any], steps: Iterator[list[Array]], scan_count: int) -> tuple[list[Any], list[list[Any]]]:
    scans: list[list[Any]] = [[] for _ in range(scan_count)]
    for slices in steps:
        results = body(*state, *slices)
        if len(results) < len(state) + scan_count:
            raise ValueError(f"the body gives {len(results)} values; expected {len(state)} states and {scan_count} scan outputs")
        for scan, item in zip(scans, results[len(state) :], strict=False):
            scan.append(item)
        state = list(results[: len(state)])
    return state, scans


def _per_scan(given: Sequence[int] | None, count: int, name: str) -> tuple[int, ...]:
    """An attribute with one number for each scan input or output; all 0 where it is left out."""
    if given is not None and len(given) != count:
        raise ValueError(f"{name} has {len(given)} entries; expected {count}")
    return (0,) * count if given is None else tuple(given)


def _scan_length(lengths: Sequence[int]) -> int:
    if len(set(lengths)) != 1:
        raise ValueError(f"the scan inputs have different lengths: {', '.join(map(str, lengths))}")
    return lengths[0]


def _scan(
    *inputs: Any,
    body: Body,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None,
    scan_input_directions: Sequence[int] | None,
    scan_output_axes: Sequence[int] | None,
    scan_output_directions: Sequence[int] | None,
    ctx: EvalContext,
) -> tuple[Any, ...]:
    states = len(inputs) - num_scan_inputs
    arrays = inputs[states:]
    scan_count = len(ctx.outputs) - states
    given = _per_scan(scan_input_axes, num_scan_inputs, "scan_input_axes")
    axes = [normalize_axis(axis, array.ndim) for axis, array in zip(given, arrays, strict=True)]
    reverse = _per_scan(scan_input_directions, num_scan_inputs, "scan_input_directions")
    length = _scan_length([array.shape[axis] for array, axis in zip(arrays, axes, strict=True)])
    state, scans = _scan_run(body, list(inputs[:states]), _scan_steps(arrays, axes, reverse, length), scan_count)
    output_axes = _per_scan(scan_output_axes, scan_count, "scan_output_axes")
    backwards = _per_scan(scan_output_directions, scan_count, "scan_output_directions")
    stacked = [
        _stack(items[::-1] if back else items, axis, _declared(body, "output_types", states + which), which)
        for which, (items, axis, back) in enumerate(zip(scans, output_axes, backwards, strict=True))
    ]
    return (*state, *stacked)


def _infer_scan(ctx: InferContext) -> InferResult:
    count: int = ctx.attr("num_scan_inputs")
    states = len(ctx.inputs) - count
    axes = _per_scan(ctx.attr("scan_input_axes"), count, "scan_input_axes")
    length: Dim | None = None
    slices: list[Type | None] = []
    for index, axis in enumerate(axes, states):
        type_ = ctx.type(index)
        if not isinstance(type_, TensorType) or type_.shape is None:
            slices.append(type_)
            continue
        position = normalize_axis(axis, len(type_.shape))
        size = type_.shape[position]
        if isinstance(length, int) and isinstance(size, int) and length != size:
            raise ValueError(f"the scan inputs have different lengths: {length}, {size}")
        length = size if length is None or isinstance(size, int) else length
        slices.append(TensorType(type_.dtype, type_.shape[:position] + type_.shape[position + 1 :]))
    final, scans = _infer_body(ctx, [ctx.type(index) for index in range(states)], [], slices, 0)
    trips = ctx.fresh("trips") if length is None else length
    output_axes = _per_scan(ctx.attr("scan_output_axes"), len(scans), "scan_output_axes")
    return [*final, *(_scanned(type_, trips, axis) for type_, axis in zip(scans, output_axes, strict=True))]


def _scan_8(
    lengths: Array | None, *inputs: Any, body: Body, num_scan_inputs: int, directions: Sequence[int] | None, ctx: EvalContext
) -> tuple[Any, ...]:
    """The form of opset 8: everything has a batch axis in front, and each batch its own length; the rest is zero."""
    states = len(inputs) - num_scan_inputs
    arrays = inputs[states:]
    scan_count = len(ctx.outputs) - states
    reverse = _per_scan(directions, num_scan_inputs, "directions")
    longest = _scan_length([array.shape[1] for array in arrays])
    batch = arrays[0].shape[0]
    wanted = [longest] * batch if lengths is None else [int(length) for length in lengths]
    if len(wanted) != batch or not all(0 <= length <= longest for length in wanted):
        raise ValueError(f"sequence_lens is {wanted}; expected {batch} lengths of 0 to {longest}")
    final: list[list[Any]] = [[] for _ in range(states)]
    stacked: list[list[Array]] = [[] for _ in range(scan_count)]
    for index, length in enumerate(wanted):
        steps = _scan_steps([array[index] for array in arrays], [0] * num_scan_inputs, reverse, length)
        state, scans = _scan_run(body, [np.asarray(value[index]) for value in inputs[:states]], steps, scan_count)
        for values, value in zip(final, state, strict=True):
            values.append(value)
        for which, items in enumerate(scans):
            filled = _stack(items, 0, _declared(body, "output_types", states + which), which)
            stacked[which].append(np.pad(filled, [(0, longest - length)] + [(0, 0)] * (filled.ndim - 1)))
    if not wanted:
        empty = (_stack([], 0, _declared(body, "output_types", states + which), which) for which in range(scan_count))
        return (*inputs[:states], *(np.empty((0, longest, *slices.shape[1:]), slices.dtype) for slices in empty))
    return (*(np.stack(values) for values in final), *(np.stack(values) for values in stacked))


def _unbatched(type_: Type | None, axes: int) -> Type | None:
    """The type of one slice after the first `axes` axes are indexed."""
    if not isinstance(type_, TensorType) or type_.shape is None:
        return type_
    if len(type_.shape) < axes:
        raise ValueError(f"{type_} has rank {len(type_.shape)}; expected at least {axes}")
    return TensorType(type_.dtype, type_.shape[axes:])


def _infer_scan_8(ctx: InferContext) -> InferResult:
    count: int = ctx.attr("num_scan_inputs")
    first_scan = len(ctx.inputs) - count
    shapes: list[Shape] = [shape for index in range(first_scan, len(ctx.inputs)) if (shape := ctx.shape(index)) is not None]
    batch: Dim = shapes[0][0] if shapes else ctx.fresh("batch")
    length: Dim = shapes[0][1] if shapes and len(shapes[0]) > 1 else ctx.fresh("trips")
    carried = [_unbatched(ctx.type(index), 1) for index in range(1, first_scan)]
    slices = [_unbatched(ctx.type(index), 2) for index in range(first_scan, len(ctx.inputs))]
    final, scans = _infer_body(ctx, carried, [], slices, 0)
    results: list[InferOne] = [_scanned(type_, batch, 0) for type_ in final]
    for type_ in scans:
        stacked = _scanned(type_, length, 0)
        results.append(_scanned(stacked, batch, 0) if isinstance(stacked, TensorType) else None)
    return results


op("Scan", since=8, eval=_scan_8, infer=_infer_scan_8, traits=Trait.CONTROL_FLOW)
op("Scan", since=9, eval=_scan, infer=_infer_scan, traits=Trait.CONTROL_FLOW)


def _sequence_map(sequence: list[Any], *others: Any, body: Body, ctx: EvalContext) -> tuple[list[Any], ...]:
    for index, other in enumerate(others, 1):
        if isinstance(other, list) and len(other) != len(sequence):
            raise ValueError(f"input {index} has {len(other)} elements but input 0 has {len(sequence)}: they must agree")
    results: list[list[Any]] = [[] for _ in ctx.outputs]
    for index, item in enumerate(sequence):
        values = body(item, *(other[index] if isinstance(other, list) else other for other in others))
        for result, value in zip(results, values, strict=False):
            result.append(value)
    return tuple(results)


def _infer_sequence_map(ctx: InferContext) -> InferResult:
    inputs = [renewed(type_.element) if isinstance(type_, SequenceType) else type_ for type_ in ctx.inputs]
    return [None if type_ is None else SequenceType(type_) for type_ in ctx.infer_graph(ctx.attr("body"), inputs)]


op("SequenceMap", since=17, eval=_sequence_map, infer=_infer_sequence_map, traits=Trait.CONTROL_FLOW)
