"""A small matcher for expressions in a graph: the pattern reads like the formula.

    X = var("x")
    GELU = product(X, op("Add", op("Erf", product(X, scale=sqrt(0.5))), number(1.0)), scale=0.5)
    m = match(GELU, value, g)        ->  m["x"], and m.nodes, the nodes the formula is made of

    var("x")                 any value; the same one wherever the name stands
    number(0.5)              a constant with one element, equal up to the rounding of its type; number(name="a") takes any
    constant("w")            any constant
    op("Add", a, b)          a node of this operator; operands of commutative operators in any order
    product(a, b, scale=s)   a tree of Mul (and Div by a number): these factors in any order, all numbers together make s
    clip(a, low, high)       a Clip in either of its forms; the bounds are numbers
    one_of(p, q)             the first that matches

Nodes inside a pattern, its end excepted, must serve nothing else: otherwise they would be computed twice. `match` reports such
a case as a Reject.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from itertools import permutations
from typing import Final

from sardonyx import dtypes
from sardonyx.ir.graph import Node, Value
from sardonyx.ops.registry import Trait, traits
from sardonyx.passes.protocol import Reject, is_standard
from sardonyx.passes.rewriter import Rewriter, dtype_of
from sardonyx.records import dataclass

_MOST_FACTORS: Final = 5  # of a product; longer ones are no formula anybody knows
_MOST_NODES: Final = 8
# How far a number in a model may be from the one meant: a few roundings of its type.
_TOLERANCE: Final = {dtypes.FLOAT64: 1e-6, dtypes.FLOAT32: 1e-6, dtypes.FLOAT16: 2e-3, dtypes.BFLOAT16: 1.6e-2}


@dataclass
class Match:
    """What a pattern found: values and numbers by name, and the nodes that belong to it, the end first."""

    values: dict[str, Value] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def copy(self) -> Match:
        """The state of a search, to go back to."""
        return Match(dict(self.values), dict(self.numbers), list(self.nodes))


class Pattern:
    """A part of a formula. `search` gives every way in which a value is one."""

    def search(self, value: Value, m: Match, g: Rewriter) -> Iterator[Match]:
        """All matches that extend `m`, which is not changed."""
        raise NotImplementedError


@dataclass(frozen=True)
class _Var(Pattern):
    name: str

    def search(self, value: Value, m: Match, g: Rewriter) -> Iterator[Match]:
        known = m.values.get(self.name)
        if known is None:
            m = m.copy()
            m.values[self.name] = value
            yield m
        elif known is value:
            yield m


@dataclass(frozen=True)
class _Constant(Pattern):
    name: str

    def search(self, value: Value, m: Match, g: Rewriter) -> Iterator[Match]:
        if g.constant_of(value) is not None:
            yield from _Var(self.name).search(value, m, g)


@dataclass(frozen=True)
class _Number(Pattern):
    wanted: float | None
    name: str

    def search(self, value: Value, m: Match, g: Rewriter) -> Iterator[Match]:
        found = g.number(value)
        if found is None:
            return
        if self.wanted is not None and not is_close(found, self.wanted, value):
            return
        if self.name:
            m = m.copy()
            m.numbers[self.name] = found
        yield m


@dataclass(frozen=True)
class _Op(Pattern):
    operator: str
    inputs: tuple[Pattern, ...]
    attrs: tuple[tuple[str, object], ...]

    def search(self, value: Value, m: Match, g: Rewriter) -> Iterator[Match]:
        node = value.producer
        if node is None or node.op_type != self.operator or not is_standard(node) or value.index:
            return
        given = node.inputs
        while given and given[-1] is None:
            given = given[:-1]
        if len(given) != len(self.inputs) or any(node.attr(name) != wanted for name, wanted in self.attrs):
            return
        m = m.copy()
        m.nodes.append(node)
        orders = [given, given[::-1]] if len(given) == 2 and Trait.COMMUTATIVE in traits(node) else [given]
        for order in orders:
            yield from _search_all(self.inputs, order, m, g)


def _search_all(patterns: tuple[Pattern, ...], values: tuple[Value | None, ...], m: Match, g: Rewriter) -> Iterator[Match]:
    if not patterns:
        yield m
        return
    first = values[0]
    if first is None:
        return
    for found in patterns[0].search(first, m, g):
        yield from _search_all(patterns[1:], values[1:], found, g)


@dataclass(frozen=True)
class _Product(Pattern):
    factors: tuple[Pattern, ...]
    scale: float | None
    name: str

    def search(self, value: Value, m: Match, g: Rewriter) -> Iterator[Match]:
        flat = _flatten(value, g)
        if flat is None or len(flat[1]) != len(self.factors):
            return
        scale, values, nodes = flat
        if self.scale is not None and not is_close(scale, self.scale, value):
            return
        m = m.copy()
        m.nodes.extend(nodes)
        if self.name:
            m.numbers[self.name] = scale
        seen: set[tuple[Value, ...]] = set()
        for order in permutations(values):
            if order not in seen:
                seen.add(order)
                yield from _search_all(self.factors, order, m, g)


def _flatten(value: Value, g: Rewriter) -> tuple[float, list[Value], list[Node]] | None:
    """The factors of a product, its numbers multiplied; a factor that serves others too is not taken apart."""
    scale = 1.0
    factors: list[Value] = []
    nodes: list[Node] = []
    pending = [value]
    while pending:
        current = pending.pop()
        node = current.producer
        inside = node is not None and is_standard(node) and (current is value or g.is_private(current))
        if inside and node is not None and node.op_type in ("Mul", "Div") and len(node.inputs) == 2:
            first, second = node.inputs
            assert first is not None
            assert second is not None
            number = g.number(second)
            if node.op_type == "Div":
                if number is None or number == 0:
                    factors.append(current)
                    continue
                scale /= number
                pending.append(first)
            elif number is not None:
                scale *= number
                pending.append(first)
            elif (number := g.number(first)) is not None:
                scale *= number
                pending.append(second)
            else:
                pending.extend((first, second))
            nodes.append(node)
        else:
            factors.append(current)
        if len(factors) + len(pending) > _MOST_FACTORS or len(nodes) > _MOST_NODES:
            return None
    return scale, factors, nodes


@dataclass(frozen=True)
class _Clip(Pattern):
    operand: Pattern
    low: Pattern
    high: Pattern

    def search(self, value: Value, m: Match, g: Rewriter) -> Iterator[Match]:
        node = value.producer
        if node is None or node.op_type != "Clip" or not is_standard(node):
            return
        if node.version >= 11:
            yield from _Op("Clip", (self.operand, self.low, self.high), ()).search(value, m, g)
            return
        m = m.copy()
        m.nodes.append(node)
        for pattern, bound in ((self.low, node.attr("min")), (self.high, node.attr("max"))):
            if bound is None or not isinstance(pattern, _Number):
                return
            if pattern.wanted is not None and not is_close(bound, pattern.wanted, value):
                return
            if pattern.name:
                m.numbers[pattern.name] = bound
        yield from _search_all((self.operand,), node.inputs, m, g)


@dataclass(frozen=True)
class _OneOf(Pattern):
    choices: tuple[Pattern, ...]

    def search(self, value: Value, m: Match, g: Rewriter) -> Iterator[Match]:
        for choice in self.choices:
            yield from choice.search(value, m, g)


def var(name: str) -> Pattern:
    """Any value."""
    return _Var(name)


def constant(name: str) -> Pattern:
    """Any constant."""
    return _Constant(name)


def number(value: float | None = None, name: str = "") -> Pattern:
    """A constant with one element."""
    return _Number(value, name)


def op(operator: str, *inputs: Pattern, **attrs: object) -> Pattern:
    """A node of an operator with exactly these inputs."""
    return _Op(operator, inputs, tuple(attrs.items()))


def product(*factors: Pattern, scale: float | None = 1.0, name: str = "") -> Pattern:
    """A product of these factors and of numbers that make `scale` (None: any, kept under `name`)."""
    return _Product(factors, scale, name)


def clip(operand: Pattern, low: Pattern, high: Pattern) -> Pattern:
    """A Clip with both bounds, which are inputs or, before opset 11, attributes."""
    return _Clip(operand, low, high)


def one_of(*choices: Pattern) -> Pattern:
    """Whichever matches first."""
    return _OneOf(choices)


def match(pattern: Pattern, value: Value, g: Rewriter) -> Match | Reject | None:
    """The first match whose inner nodes serve nothing else; a Reject if there are only others."""
    refused: Reject | None = None
    for found in pattern.search(value, Match(), g):
        shared = _shared(found, value, g)
        if shared is None:
            return found
        refused = Reject(f"{shared.name!r}, a part of it, is used elsewhere too")
    return refused


def _shared(m: Match, end: Value, g: Rewriter) -> Value | None:
    inside = set(m.nodes)
    for node in m.nodes:
        for value in node.outputs:
            if value is not end and (g.is_output(value) or any(reader not in inside for reader, _ in value.uses)):
                return value
    return None


def is_close(found: float, wanted: float, value: Value) -> bool:
    """Whether a number of this value's type is the one meant, up to rounding."""
    dtype = dtype_of(value)
    tolerance = 0.0 if dtype is None else _TOLERANCE.get(dtype, 0.0)
    return abs(found - wanted) <= tolerance * abs(wanted)
