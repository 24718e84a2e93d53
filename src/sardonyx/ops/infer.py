"""Shape rules: what an operator's outputs look like, given what its inputs look like.

A rule takes an `InferContext` and returns, for one output, a shape (tuple of dimensions), a whole type, or None (unknown
rank); for several outputs a list of these. The element type of a returned shape follows from the signature. Rules never see an
unknown dimension: what nobody named is a fresh symbol, so arithmetic always works. A rule raises ValueError with a plain
sentence if the inputs contradict each other; the caller names the node.

What can be told only when all sizes are numbers, a rule states (`InferContext.expect_equal` and the like): native code relies on
nothing else about the sizes of its inputs, and checks all of it before it runs (`lower/contracts.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias, Union

import numpy as np
from numpy.typing import NDArray

from sardonyx.dtypes import DType
from sardonyx.ir import dims
from sardonyx.ir.dims import Dim, Expectation
from sardonyx.ir.graph import Graph, Node
from sardonyx.ir.types import OptionalType, SequenceType, Shape, TensorType, Type, format_shape

InferOne: TypeAlias = Union[Shape, Type, None]
InferResult: TypeAlias = Union[InferOne, list[InferOne]]
Rule: TypeAlias = Callable[["InferContext"], InferResult]
NEVER: Final[Expectation] = ("equal", 1, 0)  # what no sizes make up for: another number of axes


class InferContext:
    """A node as its shape rule sees it. `analysis.shapes` makes these."""

    def __init__(
        self,
        node: Node,
        inputs: Sequence[Type | None],
        attrs: dict[str, Any],
        value_of: Callable[[int], tuple[tuple[Dim, ...], Shape] | None],
        constant_of: Callable[[int], NDArray[Any] | None],
        infer_graph: Callable[[Graph, Sequence[Type | None]], list[Type | None]],
    ) -> None:
        self.node = node
        self.version = node.version
        self.inputs = list(inputs)
        self.outputs = len(node.outputs)  # how many outputs the node has
        self._attrs = attrs
        self._value_of = value_of
        self._constant_of = constant_of
        self._infer_graph = infer_graph
        self.expectations: list[Expectation] = []

    def expect_equal(self, size: Dim, other: Dim) -> None:
        """State that two sizes must be the same."""
        if size != other:
            self.expectations.append(("equal", size, other))

    def expect_shape(self, index: int, *sizes: Dim) -> None:
        """State the sizes of an input, if it is given; nothing is stated if its rank is unknown."""
        self.expect_one_of(index, sizes)

    def expect_one_of(self, index: int, *shapes: Sequence[Dim]) -> None:
        """State that an input, if it is given, has one of these shapes: the one with as many axes."""
        shape = self.shape(index) if self.has(index) else None
        if shape is None:
            return
        wanted = next((each for each in shapes if len(each) == len(shape)), None)
        if wanted is None:
            self.expectations.append(NEVER)
        for size, other in zip(shape, wanted or ()):
            self.expect_equal(size, other)

    def expect_at_most(self, size: Dim, limit: Dim) -> None:
        """State that a size must not be larger than another."""
        if not dims.is_nonnegative(limit - size):
            self.expect_equal(dims.dim_max(size, limit), limit)

    def expect_filled(self, size: Dim) -> None:
        """State that a size must not be 0."""
        if not dims.is_nonnegative(size - 1):
            self.expectations.append(("filled", size, 1))

    def expect_divisible(self, size: Dim, divisor: Dim) -> None:
        """State that a size must be a multiple of another, which is not zero."""
        self.expect_equal(dims.floordiv(size, divisor) * divisor, size)

    def expect_broadcast(self, shape: Sequence[Dim], target: Sequence[Dim]) -> None:
        """State that a shape must broadcast to another, which keeps its own."""
        self.expectations += [NEVER] * (len(shape) > len(target))
        for size, wanted in zip(reversed(shape), reversed(target)):
            if size not in (wanted, 1):
                self.expectations.append(("broadcast", size, wanted))

    def attr(self, name: str) -> Any:
        """An attribute's value as `eval` would get it (graphs stay ir Graphs), or its default, or None."""
        return self._attrs.get(name)

    def has(self, index: int) -> bool:
        """Whether the input is given."""
        return index < len(self.node.inputs) and self.node.inputs[index] is not None

    def type(self, index: int) -> Type | None:
        """The type of an input; None if it is omitted or unknown."""
        return self.inputs[index] if index < len(self.inputs) else None

    def dtype(self, index: int) -> DType | None:
        """The element type of a tensor input."""
        type_ = self.type(index)
        return type_.dtype if isinstance(type_, TensorType) else None

    def shape(self, index: int, rank: int | None = None, least: int = 0) -> Shape | None:
        """The shape of a tensor input; None if it is omitted or its rank is unknown.

        ValueError if it is not of the rank the operator takes: exactly `rank`, or `least` and more.
        """
        type_ = self.type(index)
        shape = type_.shape if isinstance(type_, TensorType) else None
        if shape is not None and (len(shape) != rank if rank is not None else len(shape) < least):
            from sardonyx.ops.signature import signature  # lazy: only the message needs it, and a minimal session has no tables

            sig = signature(self.node.domain, self.node.op_type, self.node.version)
            formal = None if sig is None else sig.input_at(index)
            name = f"input {index}" if formal is None else f"input {index} ({formal.name})"
            wanted = f"rank {rank}" if rank is not None else f"a rank of at least {least}"
            raise ValueError(f"{name} is {format_shape(shape)}, expected {wanted}")
        return shape

    def rank(self, index: int) -> int | None:
        shape = self.shape(index)
        return None if shape is None else len(shape)

    def element(self, index: int) -> Type | None:
        """The element type of a sequence or optional input."""
        type_ = self.type(index)
        return type_.element if isinstance(type_, (SequenceType, OptionalType)) else None

    def dims(self, index: int) -> tuple[Dim, ...] | None:
        """The elements of a small integer input, each a number or an expression; None if they are not known."""
        found = self._value_of(index) if self.has(index) else None
        return None if found is None else found[0]

    def constant(self, index: int) -> NDArray[Any] | None:
        """The data of an input that is known completely (an initializer, or computed from such); None otherwise."""
        return self._constant_of(index) if self.has(index) else None

    def ints(self, index: int) -> tuple[int, ...] | None:
        """The elements of a constant integer input, flattened."""
        data = self.constant(index)
        if data is None:
            known = self.dims(index)
            return tuple(known) if known is not None and all(isinstance(dim, int) for dim in known) else None  # type: ignore[arg-type]
        try:
            return tuple(int(item) for item in np.asarray(data).reshape(-1))
        except OverflowError as error:  # the first Split takes its sizes as floats
            raise ValueError(f"input {index} holds an infinity, expected whole numbers") from error

    def fresh(self, hint: str = "") -> Dim:
        """A size known only at run time."""
        return dims.fresh(hint)

    def unknown(self, rank: int | None) -> Shape | None:
        """A shape of this rank about which nothing else is known."""
        return None if rank is None else tuple(dims.fresh() for _ in range(rank))

    def infer_graph(self, graph: Graph, inputs: Sequence[Type | None]) -> list[Type | None]:
        """The output types of a subgraph for these input types."""
        return self._infer_graph(graph, inputs)


def not_negative(shape: Shape | None) -> Iterator[Expectation]:
    """That none of these sizes turns out negative, as that of a window larger than what it slides over."""
    for dim in shape or ():
        if not dims.is_nonnegative(dim):
            yield "equal", dims.dim_max(dim, 0), dim


def normalize_axis(axis: int, rank: int) -> int:
    """A negative axis counted from the end; ValueError if it is out of range."""
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range for rank {rank}: expected {-rank} to {rank - 1}")
    return axis + rank if axis < 0 else axis


def same_as(index: int) -> Rule:
    """The output has the shape of this input."""
    return lambda ctx: ctx.shape(index)


def scalar(ctx: InferContext) -> InferResult:
    """The output has no dimensions."""
    return ()


def broadcast_dims(a: Dim, b: Dim) -> Dim:
    """Two dimensions under NumPy's broadcasting."""
    return dims.broadcast(a, b)


def broadcast_shapes(*shapes: Shape | None) -> Shape | None:
    """Shapes under NumPy's broadcasting; None if one is unknown."""
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    rank = max((len(shape) for shape in known), default=0)
    result: list[Dim] = [1] * rank
    for shape in known:
        for position, dim in enumerate(shape, rank - len(shape)):
            try:
                result[position] = broadcast_dims(result[position], dim)
            except ValueError as error:
                raise ValueError(f"shapes {' and '.join(map(format_shape, known))}: {error}") from None
    return tuple(result)


def broadcast(ctx: InferContext) -> InferResult:
    """The output has the shape all inputs broadcast to."""
    return broadcast_inputs(ctx, *(index for index in range(len(ctx.inputs)) if ctx.has(index)))


def broadcast_inputs(ctx: InferContext, *indices: int) -> Shape | None:
    """The shape that some inputs broadcast to, each of which is expected to do so; None if one is unknown."""
    shapes = [ctx.shape(index) for index in indices]
    result = broadcast_shapes(*shapes)
    for shape in shapes:
        if result is not None and shape is not None and shape != result:
            ctx.expect_broadcast(shape, result)
    return result


def merge_shapes(a: Shape | None, b: Shape | None) -> Shape | None:
    """What two descriptions of one shape say together: numbers win over symbols, names over anonymous ones."""
    if a is None or b is None:
        return b if a is None else a
    if len(a) != len(b):
        raise ValueError(f"shape {format_shape(a)} has rank {len(a)}, but {format_shape(b)} has rank {len(b)}")
    return tuple(_merge_dims(x, y) for x, y in zip(a, b, strict=True))


def _merge_dims(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        if a != b:
            raise ValueError(f"dimension {a} contradicts dimension {b}")
        return a
    if isinstance(a, int) or isinstance(b, int):
        return a if isinstance(a, int) else b
    return b if a.is_anonymous and not b.is_anonymous else a


def common_shape(a: Shape | None, b: Shape | None) -> Shape | None:
    """What two shapes have in common, as the branches of an If: differing dimensions and ranks become unknown."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if x == y else dims.fresh() for x, y in zip(a, b, strict=True))
