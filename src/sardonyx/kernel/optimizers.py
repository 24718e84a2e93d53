"""What optimizers compute for one element of a parameter: loops that read a gradient and update parameter and state in place.

    all       g := scale * g [* clip] [+ decay * p]        maximize: of the negative gradient
    adam      m := m + (1 - beta1) * (g - m)
              v := beta2 * v + (1 - beta2) * g * g
              p := (p * before - step * m / (sqrt(v) * root_scale + epsilon)) * after
    sgd       b := momentum * b + undamped * g
              p := p - step * b                      nesterov: step * (g + momentum * b); without momentum: step * g
    adagrad   s := s + g * g
              p := p - step * g / (sqrt(s) + epsilon)

All that changes from step to step is in scalars that the loop reads from memory: one kernel serves every step, every learning
rate, and the variants that differ in where the bias correction and the decay stand (PyTorch, transformers, ONNX).
Parameters in 16 bits are updated in 32 and rounded once.

The global norm takes three kinds of steps: sums of squares of pieces of every gradient, in 64 bits; their sum, its root and the
factor that brings the norm down to its bound; updates that read this factor. Pieces are the same on any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sardonyx.kernel.expr import Expr, load, maximum, minimum, reduced, sqrt
from sardonyx.kernel.loops import LoopKernel, Operand
from sardonyx.records import dataclass

PIECE: Final = 4096  # elements of a gradient whose squares make one sum
_NORM_OFFSET: Final = 1e-6  # added to the norm before it divides its bound, as torch.nn.utils.clip_grad_norm_ does


@dataclass(frozen=True, slots=True)
class Update:
    """A loop and the names of its operands, in order. Scalars are of type `compute`."""

    kernel: LoopKernel
    tensors: tuple[str, ...]
    scalars: tuple[str, ...]
    compute: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjustment:
    """What happens to a gradient before the rule of the optimizer sees it."""

    stored: bool = False  # the scaled gradient is written back
    clipped: bool = False  # times the factor of the global norm
    maximize: bool = False
    decayed: bool = False  # the decay of the parameter is added: weight decay as a penalty in the loss


_AS_IT_IS: Final = Adjustment()


class _Loop:
    """Collects operands by name while an update is written down."""

    def __init__(self, parameter: str, gradient: str, state: str) -> None:
        self.compute = "f64" if "f64" in (parameter, state) else "f32"
        self._types = {"parameter": parameter, "gradient": gradient}
        self._state = state
        self._tensors: list[str] = []
        self._scalars: list[str] = []
        self._operands: list[Operand] = []
        self._stores: list[tuple[int, Expr]] = []

    def tensor(self, name: str) -> Expr:
        """The element of a tensor, in the type that is computed in."""
        assert not self._scalars, "tensors come before scalars"
        kind = self._types.get(name, self._state)
        self._tensors.append(name)
        self._operands.append(Operand(kind, "unit"))
        return load(len(self._operands) - 1, kind).cast(self.compute)

    def scalar(self, name: str) -> Expr:
        """A number that is the same for all elements."""
        self._scalars.append(name)
        self._operands.append(Operand(self.compute, "zero"))
        return load(len(self._operands) - 1, self.compute)

    def store(self, name: str, value: Expr) -> None:
        """Write a tensor's element in place."""
        number = self._tensors.index(name)
        self._stores.append((number, value.cast(self._operands[number].type)))

    def update(self) -> Update:
        kernel = LoopKernel(axes=1, operands=tuple(self._operands), stores=tuple(self._stores))
        return Update(kernel, tuple(self._tensors), tuple(self._scalars), self.compute)

    def adjusted(self, gradient: Expr, parameter: Expr, how: Adjustment) -> Expr:
        """The gradient as the rule of the optimizer sees it."""
        value = gradient * self.scalar("scale")
        if how.stored:
            self.store("gradient", value)
        if how.clipped:
            value = value * self.scalar("clip")
        if how.maximize:
            value = -value
        return value + self.scalar("decay") * parameter if how.decayed else value


def adam(
    parameter: str,
    gradient: str,
    state: str,
    adjustment: Adjustment = _AS_IT_IS,
    *,
    amsgrad: bool = False,
) -> Update:
    """Adam and its relatives. `amsgrad`: the largest second moment so far divides."""
    loop = _Loop(parameter, gradient, state)
    p, g = loop.tensor("parameter"), loop.tensor("gradient")
    m, v = loop.tensor("first_moment"), loop.tensor("second_moment")
    largest = loop.tensor("largest") if amsgrad else None
    g = loop.adjusted(g, p, adjustment)
    m = m + loop.scalar("beta1_rest") * (g - m)
    v = v * loop.scalar("beta2") + loop.scalar("beta2_rest") * (g * g)
    loop.store("first_moment", m)
    loop.store("second_moment", v)
    if largest is not None:
        v = maximum(largest, v)
        loop.store("largest", v)
    divisor = sqrt(v) * loop.scalar("root_scale") + loop.scalar("epsilon")
    moved = p * loop.scalar("before") - loop.scalar("step") * m / divisor
    loop.store("parameter", moved * loop.scalar("after"))
    return loop.update()


def sgd(
    parameter: str,
    gradient: str,
    state: str,
    adjustment: Adjustment = _AS_IT_IS,
    *,
    momentum: bool = False,
    nesterov: bool = False,
) -> Update:
    """Gradient descent, with momentum or without."""
    loop = _Loop(parameter, gradient, state)
    p, g = loop.tensor("parameter"), loop.tensor("gradient")
    buffer = loop.tensor("momentum") if momentum else None
    direction = g = loop.adjusted(g, p, adjustment)
    if buffer is not None:
        kept = loop.scalar("kept")
        direction = kept * buffer + loop.scalar("undamped") * g
        loop.store("momentum", direction)
        if nesterov:
            direction = g + kept * direction
    loop.store("parameter", p - loop.scalar("step") * direction)
    return loop.update()


def adagrad(parameter: str, gradient: str, state: str, adjustment: Adjustment = _AS_IT_IS) -> Update:
    """Adagrad: every element has a step of its own, by the sum of its squared gradients."""
    loop = _Loop(parameter, gradient, state)
    p, g, total = loop.tensor("parameter"), loop.tensor("gradient"), loop.tensor("squares")
    g = loop.adjusted(g, p, adjustment)
    total = total + g * g
    loop.store("squares", total)
    loop.store("parameter", p - loop.scalar("step") * g / (sqrt(total) + loop.scalar("epsilon")))
    return loop.update()


def squares(gradient: str) -> LoopKernel:
    """result[piece] := sum of the squares of a piece. Two axes: pieces, elements. Operands: gradient, result (f64)."""
    value = load(0, gradient).cast("f64")
    total = reduced("sum", value * value, 0)
    return LoopKernel(
        axes=2, reduce="inner", operands=(Operand(gradient, "unit"), Operand("f64", "zero")), stores=(), results=((1, total),)
    )


def clip_factor() -> LoopKernel:
    """The norm of all pieces together, and min(1, bound / norm) in both types that updates read it in.

    One axis: pieces. Operands: sums of squares, bound, scale of the gradients, norm, factor as f32, as f64.
    """
    norm = sqrt(reduced("sum", load(0, "f64"), 0)) * load(2, "f64")
    factor = minimum(load(1, "f64") / (norm + _NORM_OFFSET), 1.0)
    kinds: Sequence[tuple[str, Expr]] = (("f64", norm), ("f32", factor.cast("f32")), ("f64", factor))
    return LoopKernel(
        axes=1,
        reduce="inner",
        operands=(
            Operand("f64", "unit"),
            Operand("f64", "zero"),
            Operand("f64", "zero"),
            *(Operand(kind, "zero") for kind, _ in kinds),
        ),
        stores=(),
        results=tuple((3 + number, value) for number, (_, value) in enumerate(kinds)),
    )
