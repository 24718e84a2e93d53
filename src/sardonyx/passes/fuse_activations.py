"""Recognise activation functions that were exported as formulas.

    e = Erf(Div(x, 1.4142135))
    y = Mul(Mul(x, Add(e, 1)), 0.5)          =>   y = Gelu(x)

Each has the usual ways of writing it; the order of factors and operands does not matter. Runs after FoldConstants (numbers must
be literal) and MergeSubexpressions (the formula reads one x). Refuses: formulas with a part that is used elsewhere, and numbers
that broadcast x to another shape.
"""

from __future__ import annotations

from math import pi, sqrt
from typing import Any, ClassVar, Final

from sardonyx.ir.graph import Node, Value
from sardonyx.passes.pattern import Match, Pattern, clip, is_close, match, number, one_of, op, product, var
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, dtype_of
from sardonyx.records import dataclass

_X: Final = var("x")
_SIXTH: Final = 1 / 6
_HARD_SWISH: Final = 14  # the opset versions since which there are these operators
_MISH: Final = 18
_GELU: Final = 20


class _Formula(Rule[Match]):
    """A rule whose pattern is a formula of one value."""

    formula: ClassVar[Pattern]

    def match(self, g: Rewriter, node: Node) -> Match | Reject | None:
        return match(self.formula, node.outputs[0], g)

    def check(self, g: Rewriter, found: Match) -> Any:
        x, end = found["x"], found.nodes[0].outputs[0]
        if x.shape is None or x.shape != end.shape or dtype_of(x) is not dtype_of(end):
            return Reject(f"x is {x.type}, the result {end.type}")
        dtype = dtype_of(x)
        if dtype is None or not dtype.is_float:
            return Reject(f"works on {x.type}, not on floats")
        return None

    def rewrite(self, g: Rewriter, found: Match, facts: Any) -> None:
        g.replace(found.nodes[0].outputs[0], self.fused(g, found["x"], found))

    def fused(self, g: Rewriter, x: Value, m: Match) -> Value:
        """The operator that stands for the formula."""
        raise NotImplementedError


@dataclass(frozen=True)
class FuseGelu(_Formula):
    """x * 0.5 * (1 + erf(x / sqrt(2))) is Gelu."""

    name: ClassVar[str] = "FuseGelu"
    ort_names: ClassVar[tuple[str, ...]] = ("GeluFusion", "GeluFusionL1", "GeluFusionL2")
    roots: ClassVar[frozenset[str]] = frozenset(("Mul", "Div"))
    needs: ClassVar[frozenset[str]] = frozenset(("Erf",))
    formula: ClassVar[Pattern] = one_of(  # the root of 2, or, as in Megatron, six digits of it
        *(product(_X, op("Add", op("Erf", product(_X, scale=s)), number(1.0)), scale=0.5) for s in (sqrt(0.5), 1 / 1.41421))
    )

    def fused(self, g: Rewriter, x: Value, m: Match) -> Value:
        return g.op("Gelu", x) if g.version >= _GELU else g.op("Gelu", x, domain=MICROSOFT)


_CUBIC: Final = one_of(
    product(
        op("Add", _X, one_of(product(op("Pow", _X, number(3.0)), scale=0.044715), product(_X, _X, _X, scale=0.044715))),
        scale=sqrt(2 / pi),
    ),
    product(
        _X,
        op("Add", number(1.0), one_of(product(op("Pow", _X, number(2.0)), scale=0.044715), product(_X, _X, scale=0.044715))),
        scale=sqrt(2 / pi),
    ),
    # both constants multiplied out: a*x + b*x^3
    op("Add", product(_X, scale=sqrt(2 / pi)), product(_X, _X, _X, scale=0.044715 * sqrt(2 / pi))),
)


@dataclass(frozen=True)
class FuseTanhGelu(_Formula):
    """x * 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) is the approximate Gelu."""

    name: ClassVar[str] = "FuseTanhGelu"
    ort_names: ClassVar[tuple[str, ...]] = ("FastGeluFusion",)
    roots: ClassVar[frozenset[str]] = frozenset(("Mul", "Div"))
    needs: ClassVar[frozenset[str]] = frozenset(("Tanh",))
    formula: ClassVar[Pattern] = product(_X, op("Add", op("Tanh", _CUBIC), number(1.0)), scale=0.5)

    def fused(self, g: Rewriter, x: Value, m: Match) -> Value:
        return g.op("Gelu", x, approximate="tanh") if g.version >= _GELU else g.op("FastGelu", x, domain=MICROSOFT)


@dataclass(frozen=True)
class FuseQuickGelu(_Formula):
    """x * sigmoid(alpha * x) is QuickGelu; with alpha 1 also known as SiLU or Swish."""

    name: ClassVar[str] = "FuseQuickGelu"
    ort_names: ClassVar[tuple[str, ...]] = ("QuickGeluFusion",)
    roots: ClassVar[frozenset[str]] = frozenset(("Mul",))
    needs: ClassVar[frozenset[str]] = frozenset(("Sigmoid",))
    formula: ClassVar[Pattern] = product(_X, op("Sigmoid", product(_X, scale=None, name="alpha")))

    def fused(self, g: Rewriter, x: Value, m: Match) -> Value:
        return g.op("QuickGelu", x, domain=MICROSOFT, alpha=m.numbers["alpha"])


@dataclass(frozen=True)
class FuseHardSigmoid(_Formula):
    """clip(a * x + b, 0, 1), and clip(x + b, 0, n) / n, are HardSigmoid."""

    name: ClassVar[str] = "FuseHardSigmoid"
    ort_names: ClassVar[tuple[str, ...]] = ("HardSigmoidFusion",)
    roots: ClassVar[frozenset[str]] = frozenset(("Clip", "Div", "Mul"))
    needs: ClassVar[frozenset[str]] = frozenset(("Clip",))
    formula: ClassVar[Pattern] = one_of(
        clip(op("Add", product(_X, scale=None, name="alpha"), number(name="beta")), number(0.0), number(1.0)),
        product(clip(op("Add", _X, number(name="shift")), number(0.0), number(name="top")), scale=None, name="scale"),
    )

    def match(self, g: Rewriter, node: Node) -> Match | Reject | None:
        found = super().match(g, node)
        # A Clip that ends elsewhere is half of the formula; whether the other half follows shows at the node after it.
        halfway = isinstance(found, Match) and node.op_type == "Clip" and found.numbers.get("top", 1.0) != 1.0
        return None if halfway else found

    def check(self, g: Rewriter, found: Match) -> Any:
        top = found.numbers.get("top")
        if top is not None and (top <= 0 or not is_close(found.numbers["scale"] * top, 1.0, found["x"])):
            return Reject(f"clips at {top:g} and scales by {found.numbers['scale']:g}: the result does not end at 1")
        return super().check(g, found)

    def fused(self, g: Rewriter, x: Value, m: Match) -> Value:
        alpha, beta = m.numbers.get("alpha"), m.numbers.get("beta")
        if alpha is None or beta is None:
            alpha, beta = 1 / m.numbers["top"], m.numbers["shift"] / m.numbers["top"]
        return g.op("HardSigmoid", x, alpha=alpha, beta=beta)


@dataclass(frozen=True)
class FuseHardSwish(_Formula):
    """x * clip(x / 6 + 0.5, 0, 1) is HardSwish, also with the gate as HardSigmoid or as clip(x + 3, 0, 6) / 6.

    Older opsets have no HardSwish; there the gate becomes a HardSigmoid.
    """

    name: ClassVar[str] = "FuseHardSwish"
    ort_names: ClassVar[tuple[str, ...]] = ("HardSwishFusion",)
    roots: ClassVar[frozenset[str]] = frozenset(("Mul", "Div"))
    needs: ClassVar[frozenset[str]] = frozenset(("Clip", "HardSigmoid"))
    formula: ClassVar[Pattern] = one_of(
        product(_X, op("HardSigmoid", _X)),
        product(_X, clip(op("Add", _X, number(3.0)), number(0.0), number(6.0)), scale=_SIXTH),
        product(_X, clip(op("Add", product(_X, scale=_SIXTH), number(0.5)), number(0.0), number(1.0))),
    )

    def match(self, g: Rewriter, node: Node) -> Match | Reject | None:
        found = super().match(g, node)
        done = isinstance(found, Match) and g.version < _HARD_SWISH and any(each.op_type == "HardSigmoid" for each in found.nodes)
        return None if done else found

    def check(self, g: Rewriter, found: Match) -> Any:
        gate = next((node for node in found.nodes if node.op_type == "HardSigmoid"), None)
        if gate is not None:
            alpha, beta = gate.attr("alpha", 0.2), gate.attr("beta", 0.5)
            if not (is_close(alpha, _SIXTH, found["x"]) and is_close(beta, 0.5, found["x"])):
                return Reject(f"the gate has slope {alpha:g} and offset {beta:g}, HardSwish 1/6 and 0.5")
        return super().check(g, found)

    def fused(self, g: Rewriter, x: Value, m: Match) -> Value:
        if g.version >= _HARD_SWISH:
            return g.op("HardSwish", x)
        return g.op("Mul", x, g.op("HardSigmoid", x, alpha=_SIXTH, beta=0.5))


@dataclass(frozen=True)
class FuseMish(_Formula):
    """x * tanh(softplus(x)) is Mish, also with softplus written as log(1 + exp(x)): tanh hides where that overflows."""

    name: ClassVar[str] = "FuseMish"
    ort_names: ClassVar[tuple[str, ...]] = ("MishFusion",)
    roots: ClassVar[frozenset[str]] = frozenset(("Mul",))
    needs: ClassVar[frozenset[str]] = frozenset(("Tanh",))
    formula: ClassVar[Pattern] = product(
        _X, op("Tanh", one_of(op("Softplus", _X), op("Log", op("Add", op("Exp", _X), number(1.0)))))
    )

    def check(self, g: Rewriter, found: Match) -> Any:
        return Reject(f"Mish exists since opset {_MISH}") if g.version < _MISH else super().check(g, found)

    def fused(self, g: Rewriter, x: Value, m: Match) -> Value:
        return g.op("Mish", x)
