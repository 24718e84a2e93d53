"""Write steps of optimizers as arithmetic, which loops fuse: each tensor is read once and written once.

    x2, m2 = ai.onnx.preview.training.Momentum(rate, count, x, g, m)    =>   m2 = alpha * m + weight * (norm * x + g)
                                                                             x2 = x - rate * m2
    flag, b2 = com.microsoft.InPlaceAccumulatorV2(b, g, reset)          =>   b2 = Where(reset, g, b + g)

What depends on the count of updates is computed in 64 bits: one minus a power near one loses most digits of 32.
Refuses: tensors, gradients and states whose shapes are not known to be equal (arithmetic would broadcast them), or whose types
differ; bias correction, rates and modes that have no meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import Node, Value
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, dtype_of, shape_of
from sardonyx.records import dataclass

_TRAINING: Final = "ai.onnx.preview.training"
_KINDS: Final = {"Adagrad": 3, "Adam": 4, "Momentum": 3}  # tensor, gradient and states
_WHERE_SINCE: Final = 9


class _Arithmetic:
    """Arithmetic on the tensors of one node, in their type."""

    def __init__(self, g: Rewriter, node: Node) -> None:
        dtype = dtype_of(node.inputs[2])
        assert dtype is not None
        self.g = g
        self.dtype = dtype
        self.attrs = attribute_values(node)
        scalar = g.constant(np.zeros(0, np.int64), "scalar")
        rate, count = node.inputs[:2]
        self.rate, self.count = (g.op("Cast", g.op("Reshape", value, scalar), to=dtypes.FLOAT64.onnx) for value in (rate, count))

    def wide(self, value: float) -> Value:
        """A number of 64 bits."""
        return self.g.constant(np.asarray(value, np.float64), "number")

    def narrow(self, value: Value) -> Value:
        """A number of 64 bits in the type of the tensors."""
        return value if self.dtype is dtypes.FLOAT64 else self.g.op("Cast", value, to=self.dtype.onnx)

    def number(self, value: float) -> Value:
        """A number in the type of the tensors."""
        return self.g.constant(np.asarray(value, self.dtype.numpy), "number")

    def regular(self, x: Value, gradient: Value) -> Value:
        """The gradient of the loss with its penalty on the weights."""
        norm = self.attrs["norm_coefficient"]
        return gradient if norm == 0 else self.g.op("Add", self.g.op("Mul", x, self.number(norm)), gradient)

    def updated(self) -> Value:
        """Whether there was an update before."""
        return self.g.op("Greater", self.count, self.wide(0.0))


Step = Callable[["list[Value]"], "list[Value]"]


def _adagrad(a: _Arithmetic) -> Step:
    g = a.g
    decayed = g.op("Add", g.op("Mul", a.count, a.wide(a.attrs["decay_factor"])), a.wide(1.0))
    step, epsilon = a.narrow(g.op("Div", a.rate, decayed)), a.number(a.attrs["epsilon"])

    def one(row: list[Value]) -> list[Value]:
        x, gradient, squares = row
        regular = a.regular(x, gradient)
        total = g.op("Add", squares, g.op("Mul", regular, regular))
        moved = g.op("Div", g.op("Mul", step, regular), g.op("Add", g.op("Sqrt", total), epsilon))
        return [g.op("Sub", x, moved), total]

    return one


def _adam(a: _Arithmetic) -> Step:
    g, attrs = a.g, a.attrs
    alpha, beta, one_ = attrs["alpha"], attrs["beta"], a.wide(1.0)
    root = g.op("Sqrt", g.op("Sub", one_, g.op("Pow", a.wide(beta), a.count)))
    corrected = g.op("Div", g.op("Mul", a.rate, root), g.op("Sub", one_, g.op("Pow", a.wide(alpha), a.count)))
    step, epsilon = a.narrow(g.op("Where", a.updated(), corrected, a.rate)), a.number(attrs["epsilon"])

    def one(row: list[Value]) -> list[Value]:
        x, gradient, mean, squares = row
        regular = a.regular(x, gradient)
        new_mean = g.op("Add", g.op("Mul", mean, a.number(alpha)), g.op("Mul", regular, a.number(1 - alpha)))
        squared = g.op("Mul", regular, regular)
        new_squares = g.op("Add", g.op("Mul", squares, a.number(beta)), g.op("Mul", squared, a.number(1 - beta)))
        moved = g.op("Div", g.op("Mul", step, new_mean), g.op("Add", g.op("Sqrt", new_squares), epsilon))
        result = g.op("Sub", x, moved)
        if attrs["norm_coefficient_post"] != 0:
            result = g.op("Mul", result, a.number(1 - attrs["norm_coefficient_post"]))
        return [result, new_mean, new_squares]

    return one


def _momentum(a: _Arithmetic) -> Step:
    g, attrs = a.g, a.attrs
    weight = a.narrow(g.op("Where", a.updated(), a.wide(attrs["beta"]), a.wide(1.0)))
    step, alpha = a.narrow(a.rate), a.number(attrs["alpha"])

    def one(row: list[Value]) -> list[Value]:
        x, gradient, momentum = row
        regular = a.regular(x, gradient)
        new = g.op("Add", g.op("Mul", momentum, alpha), g.op("Mul", regular, weight))
        direction = new if attrs["mode"] == "standard" else g.op("Add", regular, g.op("Mul", new, alpha))
        return [g.op("Sub", x, g.op("Mul", step, direction)), new]

    return one


_STEPS: Final[Mapping[str, Callable[[_Arithmetic], Step]]] = {"Adagrad": _adagrad, "Adam": _adam, "Momentum": _momentum}


@dataclass(frozen=True)
class ExpandUpdates(Rule[Node]):
    """Arithmetic takes the place of an optimizer's step."""

    name: ClassVar[str] = "ExpandUpdates"
    roots: ClassVar[frozenset[str]] = frozenset((*_STEPS, "InPlaceAccumulatorV2"))
    domains: ClassVar[frozenset[str]] = frozenset((_TRAINING, MICROSOFT))
    expands: ClassVar[bool] = True

    def match(self, g: Rewriter, node: Node) -> Node | Reject | None:
        if g.version < _WHERE_SINCE:
            return Reject(f"opset {g.version} has no Where")
        if node.op_type == "InPlaceAccumulatorV2":
            rows = [[value for value in node.inputs[:2] if value is not None]]
        else:
            kinds = _KINDS[node.op_type]
            values = [value for value in node.inputs[2:] if value is not None]
            if len(values) % kinds or len(values) != len(node.inputs) - 2:
                return Reject("its inputs are not equally many tensors, gradients and states")
            rows = [values[number :: len(values) // kinds] for number in range(len(values) // kinds)]
            if node.op_type == "Momentum" and node.attr("mode") not in ("standard", "nesterov"):
                return Reject("its mode is not known")
            if any(shape_of(value) not in ((), (1,)) for value in node.inputs[:2]):
                return Reject("its rate or count is not known to be one number")
        for row in rows:
            if shape_of(row[0]) is None or any(shape_of(value) != shape_of(row[0]) for value in row):
                return Reject("a tensor, its gradient and its states are not known to have one shape")
            if any(dtype_of(value) is not dtype_of(row[0]) for value in row) or dtype_of(row[0]) is None:
                return Reject("a tensor, its gradient and its states differ in type")
        return node

    def rewrite(self, g: Rewriter, found: Node, facts: Any) -> None:
        if found.op_type == "InPlaceAccumulatorV2":
            _accumulate(g, found)
            return
        values = [value for value in found.inputs[2:] if value is not None]
        count = len(values) // _KINDS[found.op_type]
        step = _STEPS[found.op_type](_Arithmetic(g, found))
        rows = [step(values[number::count]) for number in range(count)]
        for old, new in zip(list(found.outputs), [row[kind] for kind in range(len(rows[0])) for row in rows]):
            g.replace(old, new)


def _accumulate(g: Rewriter, node: Node) -> None:
    buffer, value = node.inputs[:2]
    reset = node.inputs[2] if len(node.inputs) > 2 else None
    total = g.op("Add", buffer, value)
    if reset is not None:
        scalar = g.constant(np.zeros(0, np.int64), "scalar")
        total = g.op("Where", g.op("Reshape", reset, scalar), value, total)
    done = g.constant(np.ones(1, np.bool_), "updated")
    for old, new in zip(list(node.outputs), (done, total)):
        g.replace(old, new)
