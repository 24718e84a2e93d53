"""What a gradient rule is, and how the one of an operator is found.

    @gradient("Tanh")
    def tanh(b: Backward) -> list[Value | None]:
        slope = b.Sub(b.number(1, b.y()), b.Mul(b.y(), b.y()))
        return [b.Mul(b.dy(), slope)]

A rule gets the node with the gradients of its outputs and adds nodes that compute the gradients of its inputs: one value for
each input, None where nothing flows. Trailing inputs may be left off. Through inputs named in `stops` no gradient flows: they
select, measure or steer. Rules use operators in the form they have had since opset 13, so that a model of any opset from there
on can be written to a file with its gradients.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np

from sardonyx import errors
from sardonyx.analysis.attributes import attribute_values
from sardonyx.dtypes import DType
from sardonyx.ir.builder import GraphBuilder, Operand
from sardonyx.ir.graph import Node, Value, is_constant
from sardonyx.ir.tensor import Tensor
from sardonyx.ir.types import Shape, TensorType
from sardonyx.records import dataclass

STOP_GRADIENT: Final = "sardonyx.stop_gradient"  # metadata of a node through which no gradient flows
DOMAIN: Final = "sardonyx"  # of operators that ONNX does not have
FAMILIES: Final = (
    "attention", "contrib_attention", "conv", "elementwise", "indexing", "losses", "matmul", "norms", "pool", "rnn", "rows",
    "sampling", "signal",
)  # fmt: skip


class Backward:
    """A node as its gradient rule sees it. `b.Mul(x, y)` adds a node, as `GraphBuilder` does."""

    def __init__(self, g: GraphBuilder, node: Node, gradients: Sequence[Value | None], wanted: Sequence[bool]) -> None:
        self.g = g
        self.node = node
        self.gradients = gradients  # one for each output; None where nothing flows
        self._wanted = wanted

    def __getattr__(self, op_type: str) -> Callable[..., Value]:
        return getattr(self.g, op_type)  # type: ignore[no-any-return]

    def x(self, index: int = 0) -> Value:
        """An input, which is given."""
        value = self.node.inputs[index]
        assert value is not None, f"{self.node.label} has no input {index}"
        return value

    def has(self, index: int) -> bool:
        """Whether an input is given."""
        return index < len(self.node.inputs) and self.node.inputs[index] is not None

    def y(self, index: int = 0) -> Value:
        """An output; one the node does not have yet is added to it."""
        while len(self.node.outputs) <= index:
            extra = Value("", None)
            extra.producer, extra.index = self.node, len(self.node.outputs)
            self.node.outputs.append(extra)
        value = self.node.outputs[index]
        if not value.name:
            value.name = self.g.fresh_name(f"{self.node.outputs[0].name}_{index}")
        return value

    def dy(self, index: int = 0) -> Value:
        """The gradient of an output, which is known."""
        value = self.gradients[index]
        assert value is not None, f"{self.node.label} has no gradient of output {index}"
        return value

    def wants(self, index: int) -> bool:
        """Whether the gradient of an input is of any use."""
        return index < len(self._wanted) and self._wanted[index]

    def attr(self, name: str) -> Any:
        """An attribute, or its default, or None."""
        return attribute_values(self.node).get(name)

    def own(self, op_type: str, *inputs: Operand, **attrs: Any) -> Value:
        """A node of an operator of our own."""
        return self.g.op(op_type, *inputs, domain=DOMAIN, version=1, **attrs)

    def number(self, value: float, like: Value) -> np.ndarray[Any, Any]:
        """A constant without dimensions, of the element type of a value."""
        return np.array(value, dtype_of(like).numpy)

    def t(self, value: Value) -> Term:
        """A value of a known type, for formulas."""
        return Term(self, value, dtype_of(value))

    def d(self, index: int = 0) -> Term:
        """The gradient of an output, for formulas."""
        return Term(self, self.dy(index), dtype_of(self.node.outputs[index]))

    def ints(self, *values: int) -> np.ndarray[Any, Any]:
        """A vector of integers, as axes are given."""
        return np.array(values, np.int64)

    def sizes(self, value: Value, *axes: int) -> Value:
        """Some sizes of a value, as a vector."""
        return self.Gather(self.Shape(value), self.ints(*axes), axis=0)

    def refuse(self, reason: str, hint: str = "") -> NoReturn:
        """Say why there is no gradient."""
        raise errors.NotImplemented(f"{self.node.label}: {reason}, so there is no gradient", hint=hint)

    def zeros_like(self, value: Value) -> Value:
        """Zeros of a value's shape."""
        fill = np.zeros(1, dtype_of(value).numpy)
        return self.ConstantOfShape(self.Shape(value), value=fill)

    def shape(self, value: Value) -> Shape:
        """The shape of a value; one whose rank is not known is refused."""
        if value.shape is None:
            raise errors.InvalidGraph(
                f"{self.node.label}: the rank of {value.name!r} is not known, so there is no gradient",
                hint="declare the shapes of the inputs it is computed from",
            )
        return value.shape

    def rank(self, value: Value) -> int:
        return len(self.shape(value))

    def constant(self, index: int) -> np.ndarray[Any, Any] | None:
        """The data of an input that is the same in every run, or None."""
        value = self.node.inputs[index] if self.has(index) else None
        if value is None:
            return None
        if isinstance(value.constant, Tensor) and is_constant(value, self.g.graph):
            return value.constant.numpy()
        producer = value.producer
        if producer is not None and producer.op_type == "Constant" and not producer.domain and "value" in producer.attrs:
            data: np.ndarray[Any, Any] = producer.attrs["value"].value.numpy()
            return data
        return None

    def axes(self, rank: int, position: int = 1) -> tuple[int, ...] | None:
        """The axes of a reduction or a (un)squeeze, by attribute or input, from 0 up; None if there are none."""
        given = self.attr("axes")
        if given is None and self.has(position):
            data = self.constant(position)
            if data is None:
                self.refuse("the axes are computed", "make the axes a constant")
            given = data.reshape(-1).tolist()
        return None if given is None else tuple(sorted(int(axis) % rank for axis in given))

    def sum_to(self, gradient: Value, shape: Shape | None, target: Value) -> Value:
        """A gradient of this shape, summed over the axes along which `target` was broadcast to it."""
        wanted = target.shape
        if shape is None or wanted is None:
            return self.own("SumTo", gradient, self.Shape(target))
        if shape == wanted:
            return gradient
        lead = len(shape) - len(wanted)
        same = [(size, whole) for size, whole in zip(wanted, shape[lead:])]
        if any(size not in (whole, 1) for size, whole in same):
            return self._sum_to_undecided(gradient, shape, target, wanted)
        kept = [axis + lead for axis, (size, whole) in enumerate(same) if size == 1 and whole != 1]
        if kept:
            gradient = self.ReduceSum(gradient, self.ints(*kept), keepdims=1)
        if lead:
            gradient = self.ReduceSum(gradient, self.ints(*range(lead)), keepdims=0)
        return gradient

    def _sum_to_undecided(self, gradient: Value, shape: Shape, target: Value, wanted: Shape) -> Value:
        """An axis of which only the run tells whether it is 1 in `target` or whole, as [size, whole / size], summed over that."""
        lead = len(shape) - len(wanted)
        parts: list[Value | np.ndarray[Any, Any]] = [self.sizes(gradient, axis) for axis in range(lead)]
        gone = list(range(lead))
        for axis, (size, whole) in enumerate(zip(wanted, shape[lead:])):
            own = self.sizes(target, axis)
            parts.append(own)
            if size != whole:
                gone.append(len(parts))
                parts.append(self.Div(self.sizes(gradient, axis + lead), self.Max(own, self.ints(1))))
        summed = self.ReduceSum(self.Reshape(gradient, self.Concat(*parts, axis=0)), self.ints(*gone), keepdims=0)
        summed.type = target.type
        return summed


class Term:
    """A value in a formula: `1 - t * t` adds the nodes. Numbers take the element type of the other operand."""

    __slots__ = ("b", "dtype", "value")

    def __init__(self, b: Backward, value: Value, dtype: DType) -> None:
        self.b = b
        self.value = value
        self.dtype = dtype

    def _made(self, op_type: str, left: Any, right: Any) -> Term:
        operands = [each.value if isinstance(each, Term) else np.array(each, self.dtype.numpy) for each in (left, right)]
        return Term(self.b, self.b.g.op(op_type, *operands), self.dtype)

    def __add__(self, other: Term | float) -> Term:
        return self._made("Add", self, other)

    __radd__ = __add__

    def __sub__(self, other: Term | float) -> Term:
        return self._made("Sub", self, other)

    def __rsub__(self, other: Term | float) -> Term:
        return self._made("Sub", other, self)

    def __mul__(self, other: Term | float) -> Term:
        return self._made("Mul", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Term | float) -> Term:
        return self._made("Div", self, other)

    def __rtruediv__(self, other: Term | float) -> Term:
        return self._made("Div", other, self)

    def __neg__(self) -> Term:
        return self.apply("Neg")

    def apply(self, op_type: str, *others: Any, **attrs: Any) -> Term:
        """An operator on this value."""
        operands = [each.value if isinstance(each, Term) else each for each in others]
        return Term(self.b, self.b.g.op(op_type, self.value, *operands, **attrs), self.dtype)

    def compare(self, op_type: str, other: Term | float) -> Value:
        """A comparison: `t.compare("Greater", 0)`."""
        return self._made(op_type, self, other).value

    def select(self, condition: Value, other: Term | float = 0.0) -> Term:
        """This where a condition holds, the other elsewhere."""
        rest = other.value if isinstance(other, Term) else np.array(other, self.dtype.numpy)
        return Term(self.b, self.b.g.op("Where", condition, self.value, rest), self.dtype)


def dtype_of(value: Value) -> DType:
    """The element type of a tensor."""
    assert isinstance(value.type, TensorType), f"{value.name} is no tensor of a known type"
    return value.type.dtype


Rule: TypeAlias = "Callable[[Backward], Sequence[Value | None]]"


@dataclass(frozen=True, slots=True)
class Gradient:
    """The rule of an operator."""

    rule: Rule
    stops: frozenset[int]  # inputs through which nothing flows


_RULES: Final[dict[tuple[str, str], Gradient]] = {}
_STOPS_ALL: Final[set[tuple[str, str]]] = set()


def gradient(*names: str, domain: str = "", stops: Sequence[int] = ()) -> Callable[[Rule], Rule]:
    """Register the rule of operators."""

    def register(rule: Rule) -> Rule:
        for name in names:
            if (domain, name) in _RULES:
                raise ValueError(f"{name} has a gradient rule already")
            _RULES[domain, name] = Gradient(rule, frozenset(stops))
        return rule

    return register


def override_gradient(name: str, domain: str, rule: Rule) -> None:
    """Give an operator another rule, or its first; inputs through which nothing flows stay the same."""
    _load()
    before = _RULES.get((domain, name))
    _RULES[domain, name] = Gradient(rule, before.stops if before is not None else frozenset())


def constant_for_gradients(*names: str, domain: str = "") -> None:
    """Register operators through which nothing flows: their results are constants, or steps with slope zero."""
    _STOPS_ALL.update((domain, name) for name in names)


@cache
def _load() -> None:
    for family in FAMILIES:
        importlib.import_module(f"sardonyx.training.gradients.{family}")


def rule_of(node: Node) -> Gradient | None:
    """The gradient rule of a node's operator."""
    _load()
    return _RULES.get((node.domain, node.op_type))


def stops_all(node: Node) -> bool:
    """Whether nothing flows through a node: through its operator, or because it is marked."""
    _load()
    return (node.domain, node.op_type) in _STOPS_ALL or STOP_GRADIENT in node.metadata


def differentiable_operators() -> list[tuple[str, str]]:
    """Domain and name of all operators that have a gradient rule."""
    _load()
    return sorted(_RULES)
