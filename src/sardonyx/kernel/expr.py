"""Expressions over single elements: what a kernel computes at one point of its iteration space.

    x = load(0, "f32")
    y = select(x > 0.0, x, exp(x) - 1.0)

An expression is an immutable node, equal to every other node of the same content (nodes are shared while they are in use:
building the same expression twice gives the same object, in whatever threads). The set of operations is closed and small;
`kernel.math` builds exp, erf and the like out of them. Types are the short names of `dtypes` (f32, i64, bool ...); both sides
of a binary operation have one type, and there is no implicit conversion except of Python numbers, which take the other side's
type.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, Union

from sardonyx.forks import ForkSafeLock

Number: TypeAlias = Union[int, float, bool]

FLOATS: Final = ("f16", "bf16", "f32", "f64")
SIGNED: Final = ("i8", "i16", "i32", "i64")
UNSIGNED: Final = ("u8", "u16", "u32", "u64")
INTEGERS: Final = SIGNED + UNSIGNED
TYPES: Final = (*FLOATS, *INTEGERS, "bool")
BITS: Final = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "bool": 8, **{t: int(t[1:]) for t in INTEGERS}}

UNARY: Final = ("neg", "abs", "sqrt", "floor", "ceil", "round", "trunc", "not", "isnan")
BINARY: Final = ("add", "sub", "mul", "div", "rem", "min", "max", "minr", "maxr", "and", "or", "xor", "shl", "shr")
COMPARE: Final = ("eq", "ne", "lt", "le", "gt", "ge")
COMMUTATIVE: Final = frozenset(("add", "mul", "min", "max", "and", "or", "xor", "eq", "ne"))
# minr and maxr are the machine's own: if either side is NaN they give the right one. min and max give NaN.
# round goes to the nearest even; shr is logical for unsigned types and arithmetic for signed ones.
# div of integers truncates towards zero; rem takes the sign of the dividend; by zero both give 0.


class Expr:
    """One node. Never make one directly: use the functions of this module, or Python's operators."""

    __slots__ = ("__weakref__", "args", "op", "param", "type")

    op: str
    type: str
    args: tuple[Expr, ...]
    param: Any

    def __new__(cls, op: str, type: str, args: tuple[Expr, ...] = (), param: Any = None) -> Expr:
        # 0.0 and -0.0, 1 and 1.0 and True are equal in Python but not here.
        identity = (repr(param), param.__class__) if isinstance(param, (float, int)) else param
        key = (op, type, args, identity)
        entry = _known.get(key)
        found = None if entry is None else entry()
        if found is not None:
            return found
        made = object.__new__(cls)
        made.op, made.type, made.args, made.param = op, type, args, param
        with _guard:
            entry = _known.get(key)
            found = None if entry is None else entry()  # another thread may have made it meanwhile
            if found is not None:
                return found
            _known[key] = weakref.ref(made, partial(_forget, key))
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Expr, (self.op, self.type, self.args, self.param)

    def __repr__(self) -> str:
        return text(self)

    def _with(self, op: str, other: Expr | Number, *, swapped: bool = False) -> Expr:
        value = lift(other, self.type)
        return binary(op, value, self) if swapped else binary(op, self, value)

    def __add__(self, other: Expr | Number) -> Expr:
        return self._with("add", other)

    def __radd__(self, other: Number) -> Expr:
        return self._with("add", other, swapped=True)

    def __sub__(self, other: Expr | Number) -> Expr:
        return self._with("sub", other)

    def __rsub__(self, other: Number) -> Expr:
        return self._with("sub", other, swapped=True)

    def __mul__(self, other: Expr | Number) -> Expr:
        return self._with("mul", other)

    def __rmul__(self, other: Number) -> Expr:
        return self._with("mul", other, swapped=True)

    def __truediv__(self, other: Expr | Number) -> Expr:
        return self._with("div", other)

    def __rtruediv__(self, other: Number) -> Expr:
        return self._with("div", other, swapped=True)

    def __mod__(self, other: Expr | Number) -> Expr:
        return self._with("rem", other)

    def __and__(self, other: Expr | Number) -> Expr:
        return self._with("and", other)

    def __or__(self, other: Expr | Number) -> Expr:
        return self._with("or", other)

    def __xor__(self, other: Expr | Number) -> Expr:
        return self._with("xor", other)

    def __lshift__(self, other: Expr | Number) -> Expr:
        return self._with("shl", other)

    def __rshift__(self, other: Expr | Number) -> Expr:
        return self._with("shr", other)

    def __neg__(self) -> Expr:
        return unary("neg", self)

    def __invert__(self) -> Expr:
        return unary("not", self)

    def __lt__(self, other: Expr | Number) -> Expr:
        return self._with("lt", other)

    def __le__(self, other: Expr | Number) -> Expr:
        return self._with("le", other)

    def __gt__(self, other: Expr | Number) -> Expr:
        return self._with("gt", other)

    def __ge__(self, other: Expr | Number) -> Expr:
        return self._with("ge", other)

    def eq(self, other: Expr | Number) -> Expr:
        """Elementwise equality; `==` compares the nodes themselves."""
        return self._with("eq", other)

    def ne(self, other: Expr | Number) -> Expr:
        """Elementwise inequality."""
        return self._with("ne", other)

    def cast(self, type: str) -> Expr:
        """The value in another type, as C converts it; float to integer saturates, NaN becomes 0."""
        if type == self.type:
            return self
        if self.op == "cast" and self.type == "f32" and self.args[0].type == type and type in ("f16", "bf16"):
            return self.args[0]  # it was widened, which loses nothing
        return Expr("cast", type, (self,))

    def bitcast(self, type: str) -> Expr:
        """The same bits as another type of the same width."""
        if BITS[type] != BITS[self.type]:
            raise ValueError(f"bitcast from {self.type} to {type} changes the width")
        return self if type == self.type else Expr("bitcast", type, (self,))


_OPERATIONS: Final = {"one_and_exp": 15, "rarely": 3, "truncated": 3}  # of nodes that are more than one
_known: Final[dict[tuple[Any, ...], weakref.ref[Expr]]] = {}  # a node leaves it when nobody uses it any longer
_guard: Final = ForkSafeLock(reentrant=True)  # a node may be forgotten while its own thread makes another


def _forget(
    key: tuple[Any, ...],
    entry: weakref.ref[Expr],
    known: dict[tuple[Any, ...], weakref.ref[Expr]] = _known,  # they are still there when Python ends
    guard: ForkSafeLock = _guard,
) -> None:
    with guard:
        if known.get(key) is entry:  # and not a new node of the same content
            del known[key]


def lift(value: Expr | Number, type: str) -> Expr:
    """A Python number as a constant of the type; an expression as it is."""
    return value if isinstance(value, Expr) else const(value, type)


def const(value: Number, type: str) -> Expr:
    """A constant. Floats are rounded to the type when code is made."""
    if type in FLOATS:
        return Expr("const", type, (), float(value))
    if type == "bool":
        return Expr("const", type, (), bool(value))
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a {type}")
    return Expr("const", type, (), int(value))


def load(operand: int, type: str) -> Expr:
    """The element of an operand at this point."""
    return Expr("load", type, (), operand)


def looked_up(byte: Expr, table: Sequence[int], type: str) -> Expr:
    """The entry of a table of 256 bytes at a byte, signed or not: `table` is in the order of unsigned ones, and has such."""
    if BITS[byte.type] != 8 or BITS[type] != 8 or len(table) != 256:
        raise ValueError(f"a table of {len(table)} entries from {byte.type} to {type}, expected one of 256 between bytes")
    return Expr("lookup", type, (byte,), bytes(table))


def index(axis: int) -> Expr:
    """Where we are on an axis of the iteration space; negative axes count from the last."""
    return Expr("index", "i64", (), axis)


def size(axis: int) -> Expr:
    """How long an axis of the iteration space is."""
    return Expr("size", "i64", (), axis)


def reduced(kind: str, value: Expr, number: int) -> Expr:
    """The result of a reduction over the reduced axis; `number` tells reductions of one kernel apart and gives their order.

    kind: sum, prod, max, min, maxnum and minnum (these two pass over NaN), squared_deviations (the sum of the squared
    deviations from the mean), or the index, as i64, of an extreme: argmax and argmin of the first, argmax_last and argmin_last of
    the last.
    """
    return Expr("reduced", "i64" if kind.startswith("arg") else value.type, (value,), (kind, number))


def unary(op: str, x: Expr) -> Expr:
    """An operation of UNARY."""
    if op not in UNARY:
        raise ValueError(f"{op!r} is not a unary operation")
    if x.op == "const" and op == "neg":
        return const(-x.param, x.type)
    return Expr(op, "bool" if op == "isnan" else x.type, (x,))


def binary(op: str, a: Expr, b: Expr) -> Expr:
    """An operation of BINARY or COMPARE; identities with 0 and 1 that hold for every value are folded."""
    if a.type != b.type:
        raise ValueError(f"{op} of {a.type} and {b.type}: convert one of them")
    if op in COMPARE:
        return Expr(op, "bool", (a, b))
    if op not in BINARY:
        raise ValueError(f"{op!r} is not a binary operation")
    if op in ("mul", "div") and b.op == "const" and b.param == 1:
        return a
    if op == "mul" and a.op == "const" and a.param == 1:
        return b
    if op in ("add", "sub") and b.op == "const" and b.param == 0 and a.type not in FLOATS:
        return a
    return Expr(op, a.type, (a, b))


def select(condition: Expr, yes: Expr | Number, no: Expr | Number) -> Expr:
    """`yes` where the condition holds, else `no`."""
    kind = yes.type if isinstance(yes, Expr) else no.type if isinstance(no, Expr) else ""
    if not kind:
        raise ValueError("select of two plain numbers: one side must be an expression")
    first, second = lift(yes, kind), lift(no, kind)
    if first.type != second.type or condition.type != "bool":
        raise ValueError(f"select({condition.type}, {first.type}, {second.type})")
    return Expr("select", kind, (condition, first, second))


def fma(a: Expr, b: Expr | Number, c: Expr | Number) -> Expr:
    """a * b + c, rounded once where the machine can."""
    return Expr("fma", a.type, (a, lift(b, a.type), lift(c, a.type)))


def quotient(x: Expr, scale: Expr, least: Expr, most: Expr) -> Expr:
    """x / scale within bounds, NaN being the lower one: for bounds that are whole numbers, and a scale from 2**-64 to 2**64.

    It is the quotient, correctly rounded, but at the bounds: there it may be a last bit away from them.
    """
    return Expr("quotient", x.type, (x, scale, least, most))


def scaled(value: Expr, exponent: Expr, bits: Expr, *, normal: bool = False) -> Expr:
    """value * 2**exponent, rounded once, for a normal value near 1 and an exponent that is a whole number.

    A machine without an instruction for it takes the exponent from the low bits of an integer: exponent + 2 * bias there; or, if
    the result is `normal` (or 0 or infinity, the exponent being one beyond the least or the largest), exponent + bias.
    """
    return Expr("scaled", value.type, (value, exponent, bits), normal)


def one_and_exp(x: Expr) -> Expr:
    """1 + e**-x for an f32, what sigmoids divide by: a form that suits the machine is chosen when code is made."""
    return Expr("one_and_exp", "f32", (x,))


def truncated(x: Expr, type: str) -> Expr:
    """A float as an integer of 32 or 64 bits, as processors convert it: `kernel.truncation` says what does not fit becomes."""
    return Expr("truncated", type, (x,))


def rarely(condition: Expr, usual: Expr, function: str, x: Expr) -> Expr:
    """`usual`, or where the condition holds a function of `kernel.circular.RARE`, computed only for vectors with such an element.

    A machine that multiplies and adds with two roundings computes that function for all of them: `usual` may rely on one.
    """
    return Expr("rarely", usual.type, (condition, usual, x), function)


def word_looked_up(word: Expr, table: Sequence[int]) -> Expr:
    """The entry of a table of 32 words, u32, at the low five bits of another. Only for machines with `has_float_permute`."""
    return Expr("word_lookup", "u32", (word,), tuple(table))


def minimum(a: Expr, b: Expr | Number) -> Expr:
    """The smaller; NaN if either is."""
    return binary("min", a, lift(b, a.type))


def maximum(a: Expr, b: Expr | Number) -> Expr:
    """The larger; NaN if either is."""
    return binary("max", a, lift(b, a.type))


def clamp(x: Expr, low: Expr | Number | None, high: Expr | Number | None) -> Expr:
    """x within bounds; NaN stays. Where low > high the result is high, as ONNX Clip has it."""
    if low is not None:
        x = binary("maxr", lift(low, x.type), x)
    if high is not None:
        x = binary("minr", lift(high, x.type), x)
    return x


def sqrt(x: Expr) -> Expr:
    """The square root."""
    return unary("sqrt", x)


def walk(roots: Iterable[Expr]) -> Iterator[Expr]:
    """Every node once, arguments before the nodes that use them."""
    done: set[Expr] = set()
    stack = list(roots)
    stack.reverse()
    while stack:
        node = stack[-1]
        missing = [arg for arg in reversed(node.args) if arg not in done] if node not in done else None
        if missing:
            stack += missing
            continue
        stack.pop()
        if missing is not None:
            done.add(node)
            yield node


def operations(nodes: Iterable[Expr]) -> int:
    """How many operations of the machine some nodes are, about."""
    return sum(_OPERATIONS.get(node.op, 1) for node in nodes if node.args)


def replace(root: Expr, new: dict[Expr, Expr]) -> Expr:
    """The expression with some nodes replaced by others."""
    made: dict[Expr, Expr] = {}
    for node in walk([root]):
        if node in new:
            made[node] = new[node]
        elif node.args:
            made[node] = Expr(node.op, node.type, tuple(made[arg] for arg in node.args), node.param)
        else:
            made[node] = node
    return made[root]


def text(root: Expr) -> str:
    """A line for people: shared nodes are written out each time."""
    if root.op == "const":
        return f"{root.param}:{root.type}"
    inside = ", ".join(text(arg) for arg in root.args)
    param = "" if root.param is None else f"<{root.param}>"
    return f"{root.op}{param}:{root.type}({inside})"


def canonical(roots: Iterable[Expr]) -> str:
    """A text equal for equal expressions and only for those: nodes numbered in order of evaluation. Used in cache keys."""
    numbers: dict[Expr, int] = {}
    lines = []
    roots = list(roots)
    for node in walk(roots):
        numbers[node] = len(numbers)
        lines.append(f"{node.op}:{node.type}({','.join([str(numbers[arg]) for arg in node.args])}){node.param!r}")
    return ";".join(lines) + "->" + ",".join(str(numbers[root]) for root in roots)
