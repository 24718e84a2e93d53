"""Expressions -> LLVM vector instructions: one table of operations, for any number of lanes.

Types in registers: f16 and bf16 exist only between load, cast and store (everything else computes in f32); bool is a
vector of i1 and a byte in memory; integers carry their sign in the operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sardonyx.codegen.byte_tables import look_up
from sardonyx.codegen.conversions import (
    SHORT,
    convert,
    rounded_integers,
    truncated,
    truncated_to_smallest,
)
from sardonyx.codegen.counted_steps import byte_of_steps, divided_within
from sardonyx.codegen.element_types import (
    constant,
    intrinsic_suffix,
    memory_suffix,
    memory_type,
    scalar_type,
    vector_type,
    wide_type,
)
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.kernel.circular import RARE
from sardonyx.kernel.exp_table import one_and_exp_by_table
from sardonyx.kernel.expr import BITS, FLOATS, SIGNED, Expr
from sardonyx.kernel.intervals import is_within
from sardonyx.kernel.math import one_and_exp_by_polynomial
from sardonyx.kernel.saturation import counted_steps
from sardonyx.kernel.truncation import truncated_by_range
from sardonyx.target.target import Target

_WORDS: Final = 16  # that a register holds


class VectorEmitter:
    """Writes expressions for vectors of a number of lanes into a function."""

    def __init__(self, function: FunctionBuilder, lanes: int, target: Target | None = None) -> None:
        self.f = function
        self.lanes = lanes
        self.target = target  # whose own instructions may be used, where it has better ones

    def type(self, kind: str) -> str:
        """The register type of this emitter's vectors."""
        return vector_type(kind, self.lanes)

    def emit(self, roots: Iterable[Expr], known: dict[Expr, str]) -> list[str]:
        """The values of expressions; `known` holds what exists already (loads, indices, reductions) and gets what is made."""
        return self.emit_together(roots, [known])[0]

    def emit_together(self, roots: Iterable[Expr], positions: Sequence[dict[Expr, str]]) -> list[list[str]]:
        """The values of expressions at several positions that know the same nodes, operation by operation.

        Most operations wait for the one before them at their position; position by position they would fill the machine's queues
        waiting.
        """
        roots = list(roots)
        stack = list(reversed(roots))
        first = positions[0]
        while stack:
            node = stack[-1]
            missing = [arg for arg in node.args if arg not in first] if node not in first else []
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            if node not in first:
                if node.op == "lookup":
                    found = look_up(self, node.param, [known[node.args[0]] for known in positions])
                    for known, value in zip(positions, found):
                        known[node] = value
                    continue
                for known in positions:
                    known[node] = self._node(node, known)
        return [[known[root] for root in roots] for known in positions]

    def _node(self, node: Expr, known: dict[Expr, str]) -> str:
        if node.op == "const":
            return constant(node.type, node.param, self.lanes)
        if node.op in ("load", "index", "reduced"):
            raise KeyError(f"{node} must be known before its expression is written")
        if self._narrows_to_nearest and (counted := counted_steps(node)) is not None:
            return byte_of_steps(self, counted, known)
        if self._converts_to_nearest(node):
            return rounded_integers(self, known[node.args[0].args[0]], node.args[0].type, node.type)
        return _EMIT[node.op](self, node, [known[arg] for arg in node.args])

    def _converts_to_nearest(self, node: Expr) -> bool:
        """Whether one instruction rounds a float and makes an integer of it."""
        if node.op != "cast" or node.args[0].op != "round" or node.type not in (*SHORT, "i32"):
            return False
        return self.target is not None and self.target.converts_to_nearest and is_within(node.args[0], node.type)

    @property
    def _narrows_to_nearest(self) -> bool:
        return self.target is not None and self.target.narrows_to_nearest and self.lanes == self.target.lanes

    def load(self, pointer: str, kind: str, mask: str | None = None) -> str:
        """Elements from consecutive addresses; with a mask, only from those it names (0 elsewhere)."""
        memory = wide_type(memory_type(kind), self.lanes)
        if mask is None:
            value = self.f.let(f"load {memory}, ptr {pointer}, align {max(BITS[kind] // 8, 1)}")
        else:
            value = self._masked_load(pointer, kind, memory, mask)
        return self._from_memory(value, kind)

    def _masked_load(self, pointer: str, kind: str, memory: str, mask: str) -> str:
        name = f"llvm.masked.load.v{self.lanes}{memory_suffix(kind)}.p0"
        masks = f"<{self.lanes} x i1>"
        self.f.declarations.add(f"declare {memory} @{name}(ptr, {masks}, {memory})")
        align = max(BITS[kind] // 8, 1)
        return self.f.let(f"call {memory} @{name}(ptr align {align} {pointer}, {masks} {mask}, {memory} zeroinitializer)")

    def load_scalar(self, pointer: str, kind: str) -> str:
        """One element, in every lane."""
        element = memory_type(kind)
        value = self.f.let(f"load {element}, ptr {pointer}, align {max(BITS[kind] // 8, 1)}")
        if self.lanes > 1:
            value = self.splat(value, element)
        return self._from_memory(value, kind)

    def load_strided(self, pointer: str, stride: str, kind: str, count: str | None = None) -> str:
        """Elements a stride apart. With `count`, lanes from there on repeat the last element that exists."""
        element = memory_type(kind)
        value = "poison"
        at = pointer
        for lane in range(self.lanes):
            if count is not None:
                at = self.f.element(pointer, element, self.f.mul(stride, self.f.min(lane, self.f.sub(count, 1))))
            elif lane:
                at = self.f.element(at, element, stride)
            one = self.f.let(f"load {element}, ptr {at}, align {max(BITS[kind] // 8, 1)}")
            if self.lanes == 1:
                return self._from_memory(one, kind)
            value = self.f.let(f"insertelement {wide_type(element, self.lanes)} {value}, {element} {one}, i32 {lane}")
        return self._from_memory(value, kind)

    def load_first(self, pointer: str, stride: str, kind: str, count: str) -> str:
        """Elements a stride apart of a vector that is seldom full, one by one; lanes from `count` on repeat the first."""
        if self.lanes == 1:
            return self.load_scalar(pointer, kind)
        element, f = memory_type(kind), self.f
        wide = wide_type(element, self.lanes)
        align = max(BITS[kind] // 8, 1)
        first = self.splat(f.let(f"load {element}, ptr {pointer}, align {align}"), element)
        loop = f.loop(1, count, 1, [(wide, first)])
        one = f.let(f"load {element}, ptr {f.element(pointer, element, f.mul(stride, loop.index))}, align {align}")
        (value,) = f.end(loop, [f.let(f"insertelement {wide} {loop.carry[0]}, {element} {one}, i64 {loop.index}")])
        return self._from_memory(value, kind)

    def load_any(self, pointer: str, stride: str, kind: str, mask: str | None = None, count: str | None = None) -> str:
        """Elements a stride apart that is only known when the kernel runs: mostly it is 1, or 0 where sizes broadcast.

        The branches go the same way all along a row; a vector is loaded at once unless the elements lie apart.
        """
        f = self.f
        unit, other, zero, apart, after = (f.fresh(name) for name in ("unit", "other", "zero", "apart", "after"))
        f.branch_if(f.let(f"icmp eq i64 {stride}, 1", "c"), unit, other)
        f.label(unit)
        found = [(self.load(pointer, kind, mask), f.block)]
        f.branch(after)
        f.label(other)
        f.branch_if(f.let(f"icmp eq i64 {stride}, 0", "c"), zero, apart)
        f.label(zero)
        found.append((self.load_scalar(pointer, kind), f.block))
        f.branch(after)
        f.label(apart)
        value = self.load_strided(pointer, stride, kind) if count is None else self.load_first(pointer, stride, kind, count)
        found.append((value, f.block))
        f.branch(after)
        f.label(after)
        return f.let(f"phi {self.type(kind)} " + ", ".join(f"[ {value}, %{block} ]" for value, block in found))

    def _from_memory(self, value: str, kind: str) -> str:
        if kind != "bool":
            return value
        return self.f.let(f"icmp ne {wide_type('i8', self.lanes)} {value}, {'0' if self.lanes == 1 else 'zeroinitializer'}")

    def _to_memory(self, value: str, kind: str) -> str:
        if kind != "bool":
            return value
        return self.f.let(f"zext {self.type('bool')} {value} to {wide_type('i8', self.lanes)}")

    def store(self, pointer: str, value: str, kind: str, mask: str | None = None) -> None:
        """Elements to consecutive addresses; with a mask, only to those it names."""
        memory = wide_type(memory_type(kind), self.lanes)
        value = self._to_memory(value, kind)
        align = max(BITS[kind] // 8, 1)
        if mask is None:
            self.f.line(f"store {memory} {value}, ptr {pointer}, align {align}")
            return
        name = f"llvm.masked.store.v{self.lanes}{memory_suffix(kind)}.p0"
        masks = f"<{self.lanes} x i1>"
        self.f.declarations.add(f"declare void @{name}({memory}, ptr, {masks})")
        self.f.line(f"call void @{name}({memory} {value}, ptr align {align} {pointer}, {masks} {mask})")

    def store_strided(self, pointer: str, stride: str, value: str, kind: str, count: str | None = None) -> None:
        """Elements to addresses a stride apart; with `count`, only the first ones."""
        element = memory_type(kind)
        value = self._to_memory(value, kind)
        align = max(BITS[kind] // 8, 1)
        if count is not None and self.lanes > 1:
            loop = self.f.loop(0, self.f.min(count, self.lanes))
            one = self.f.let(f"extractelement {wide_type(element, self.lanes)} {value}, i64 {loop.index}")
            at = self.f.element(pointer, element, self.f.mul(stride, loop.index))
            self.f.line(f"store {element} {one}, ptr {at}, align {align}")
            self.f.end(loop)
            return
        at = pointer
        for lane in range(self.lanes):
            one = value
            if self.lanes > 1:
                one = self.f.let(f"extractelement {wide_type(element, self.lanes)} {value}, i32 {lane}")
            at = self.f.element(at, element, stride) if lane else pointer
            self.f.line(f"store {element} {one}, ptr {at}, align {align}")

    def splat(self, value: str, element: str) -> str:
        """A scalar of an LLVM type in every lane."""
        if self.lanes == 1:
            return value
        wide = wide_type(element, self.lanes)
        first = self.f.let(f"insertelement {wide} poison, {element} {value}, i32 0")
        return self.f.let(f"shufflevector {wide} {first}, {wide} poison, <{self.lanes} x i32> zeroinitializer")

    def iota(self, start: str) -> str:
        """start, start + 1, ... as i64."""
        if self.lanes == 1:
            return start
        steps = ", ".join(f"i64 {lane}" for lane in range(self.lanes))
        return self.f.let(f"add <{self.lanes} x i64> {self.splat(start, 'i64')}, <{steps}>")

    def mask_below(self, count: str) -> str:
        """True in the first `count` lanes."""
        steps = ", ".join(f"i64 {lane}" for lane in range(self.lanes))
        return self.f.let(f"icmp sgt <{self.lanes} x i64> {self.splat(count, 'i64')}, <{steps}>", "m")

    def choose(self, mask: str, yes: str, no: str, kind: str) -> str:
        """Lane by lane, one of two vectors."""
        masks, values = self.type("bool"), self.type(kind)
        return self.f.let(f"select {masks} {mask}, {values} {yes}, {values} {no}")

    def where_any(self, mask: str, usual: str, kind: str, rare: Callable[[], str]) -> str:
        """`usual`, or in lanes of a mask what `rare` writes code for: a branch around that code is taken if there are none."""
        f, before = self.f, self.f.block
        found = mask
        if self.lanes > 1:
            bits = f.let(f"bitcast {self.type('bool')} {mask} to i{self.lanes}")
            found = f.let(f"icmp ne i{self.lanes} {bits}, 0", "c")
        seldom, after = f.fresh("seldom"), f.fresh("after")
        f.branch_if(found, seldom, after)
        f.label(seldom)
        chosen = self.choose(mask, rare(), usual, kind)
        last = f.block
        f.branch(after)
        f.label(after)
        return f.let(f"phi {self.type(kind)} [ {usual}, %{before} ], [ {chosen}, %{last} ]")


_Emit = Callable[[VectorEmitter, Expr, list[str]], str]


def _plain(floating: str, integer: str) -> _Emit:
    def emit(e: VectorEmitter, node: Expr, args: list[str]) -> str:
        kind = node.args[0].type
        return e.f.let(f"{floating if kind in FLOATS else integer} {e.type(kind)} {args[0]}, {args[1]}")

    return emit


def _intrinsic(name: str) -> _Emit:
    def emit(e: VectorEmitter, node: Expr, args: list[str]) -> str:
        if node.type not in FLOATS:
            return args[0]  # rounding an integer
        kind = e.type(node.type)
        return e.f.call(kind, f"llvm.{name}.{intrinsic_suffix(node.type, e.lanes)}", *((kind, arg) for arg in args))

    return emit


def _compare(floating: str, signed: str, unsigned: str) -> _Emit:
    def emit(e: VectorEmitter, node: Expr, args: list[str]) -> str:
        kind = node.args[0].type
        if kind in FLOATS:
            return e.f.let(f"fcmp {floating} {e.type(kind)} {args[0]}, {args[1]}")
        return e.f.let(f"icmp {signed if kind in SIGNED else unsigned} {e.type(kind)} {args[0]}, {args[1]}")

    return emit


def _is_number(node: Expr) -> bool:
    return node.op == "const" and not math.isnan(node.param)


def _extreme(comparison: str, propagates: bool) -> _Emit:
    compare = _compare(f"o{comparison}", f"s{comparison}", f"u{comparison}")

    def emit(e: VectorEmitter, node: Expr, args: list[str]) -> str:
        chosen = e.choose(compare(e, node, args), args[0], args[1], node.type)
        if not propagates or node.type not in FLOATS or _is_number(node.args[0]):
            return chosen
        # Of two operands one of which is NaN the machine's own takes the right one: what is left is NaN on the left.
        nan = e.f.let(f"fcmp uno {e.type(node.type)} {args[0]}, {args[0]}")
        return e.choose(nan, args[0], chosen, node.type)

    return emit


def _neg(e: VectorEmitter, node: Expr, args: list[str]) -> str:
    kind = e.type(node.type)
    if node.type in FLOATS:
        return e.f.let(f"fneg {kind} {args[0]}")
    return e.f.let(f"sub {kind} {constant(node.type, 0, e.lanes)}, {args[0]}")


def _abs(e: VectorEmitter, node: Expr, args: list[str]) -> str:
    kind = e.type(node.type)
    if node.type in FLOATS:
        return e.f.call(kind, f"llvm.fabs.{intrinsic_suffix(node.type, e.lanes)}", (kind, args[0]))
    if node.type not in SIGNED:
        return args[0]
    name = f"llvm.abs.{intrinsic_suffix(node.type, e.lanes)}"
    e.f.declarations.add(f"declare {kind} @{name}({kind}, i1)")
    return e.f.let(f"call {kind} @{name}({kind} {args[0]}, i1 false)")


def _not(e: VectorEmitter, node: Expr, args: list[str]) -> str:
    ones = (
        constant("bool", True, e.lanes)
        if node.type == "bool"
        else constant("i64", -1, e.lanes).replace("i64", scalar_type(node.type))
    )
    return e.f.let(f"xor {e.type(node.type)} {args[0]}, {ones}")


def _isnan(e: VectorEmitter, node: Expr, args: list[str]) -> str:
    kind = node.args[0].type
    if kind not in FLOATS:
        return constant("bool", False, e.lanes)
    return e.f.let(f"fcmp uno {e.type(kind)} {args[0]}, {args[0]}")


def _divide(operation: str) -> _Emit:
    """Integer division and remainder that never trap: by zero 0, the smallest number by -1 wraps."""

    def emit(e: VectorEmitter, node: Expr, args: list[str]) -> str:
        kind, kinds = node.type, e.type(node.type)
        if kind in FLOATS:
            exact = operation == "rem" and kind == "f64" and e.target is not None and e.target.has_fma
            return _remainder(e, *args) if exact else e.f.let(f"f{operation} {kinds} {args[0]}, {args[1]}")
        divided = _divided_as_floats if e.lanes > 1 and BITS[kind] <= 32 and node.args[1].op != "const" else _divided
        zero, one = constant(kind, 0, e.lanes), constant(kind, 1, e.lanes)
        by_zero = e.f.let(f"icmp eq {kinds} {args[1]}, {zero}")
        if kind not in SIGNED:
            return e.choose(by_zero, zero, divided(e, operation, kind, args[0], e.choose(by_zero, one, args[1], kind)), kind)
        by_minus_one = e.f.let(f"icmp eq {kinds} {args[1]}, {constant(kind, -1, e.lanes)}")
        special = e.f.let(f"or {e.type('bool')} {by_zero}, {by_minus_one}")
        result = divided(e, operation, kind, args[0], e.choose(special, one, args[1], kind))
        negated = e.f.let(f"sub {kinds} {zero}, {args[0]}") if operation == "div" else zero
        return e.choose(by_zero, zero, e.choose(by_minus_one, negated, result, kind), kind)

    return emit


def _remainder(e: VectorEmitter, a: str, b: str) -> str:
    """What is left of f64 numbers after division, exactly: as C's fmod, which is called for quotients beyond 2**53 alone.

    Below that the quotient, cut to a whole number, is right or, as division rounds, one too large: what is left is less than the
    divisor and a multiple of its last bit, and one multiplication and addition rounds nothing off it.
    """
    f, kinds, suffix = e.f, e.type("f64"), intrinsic_suffix("f64", e.lanes)
    x, y = (f.call(kinds, f"llvm.fabs.{suffix}", (kinds, value)) for value in (a, b))
    quotient = f.call(kinds, f"llvm.trunc.{suffix}", (kinds, f.let(f"fdiv {kinds} {x}, {y}")))
    left = f.call(kinds, f"llvm.fma.{suffix}", (kinds, f.let(f"fneg {kinds} {quotient}")), (kinds, y), (kinds, x))
    negative = f.let(f"fcmp olt {kinds} {left}, {constant('f64', 0.0, e.lanes)}")
    left = e.choose(negative, f.let(f"fadd {kinds} {left}, {y}"), left, "f64")
    left = f.call(kinds, f"llvm.copysign.{suffix}", (kinds, left), (kinds, a))
    # A divisor that is infinite leaves the dividend, and a divisor of 0 nothing: neither is what the above gives.
    masks = e.type("bool")
    beyond = f.let(f"fcmp oge {kinds} {quotient}, {constant('f64', 2.0**53, e.lanes)}")
    endless = f.let(f"fcmp oeq {kinds} {y}, {constant('f64', math.inf, e.lanes)}")
    rare = f.let(f"or {masks} {beyond}, {endless}")
    return e.where_any(rare, left, "f64", lambda: f.let(f"frem {kinds} {a}, {b}"))


def _divided(e: VectorEmitter, operation: str, kind: str, a: str, b: str) -> str:
    return e.f.let(f"{'s' if kind in SIGNED else 'u'}{operation} {e.type(kind)} {a}, {b}")


def _divided_as_floats(e: VectorEmitter, operation: str, kind: str, a: str, b: str) -> str:
    """Machines divide no vectors of integers. A float with more than twice the bits rounds no quotient up to a whole number."""
    f, kinds, sign = e.f, e.type(kind), "s" if kind in SIGNED else "u"
    wide = e.type("f64" if BITS[kind] > 8 else "f32")
    first, second = (f.let(f"{sign}itofp {kinds} {value} to {wide}") for value in (a, b))
    quotient = f.let(f"fpto{sign}i {wide} {f.let(f'fdiv {wide} {first}, {second}')} to {kinds}")
    return quotient if operation == "div" else f.let(f"sub {kinds} {a}, {f.let(f'mul {kinds} {quotient}, {b}')}")


def _shift(left: bool) -> _Emit:
    def emit(e: VectorEmitter, node: Expr, args: list[str]) -> str:
        kind, kinds = node.type, e.type(node.type)
        operation = "shl" if left else "ashr" if kind in SIGNED else "lshr"
        amount = node.args[1]
        if amount.op == "const":
            return e.f.let(f"{operation} {kinds} {args[0]}, {args[1]}")
        inside = e.f.let(f"icmp ult {kinds} {args[1]}, {constant(kind, BITS[kind], e.lanes)}")
        safe = e.choose(inside, args[1], constant(kind, 0, e.lanes), kind)
        return e.choose(inside, e.f.let(f"{operation} {kinds} {args[0]}, {safe}"), constant(kind, 0, e.lanes), kind)

    return emit


def _select(e: VectorEmitter, node: Expr, args: list[str]) -> str:
    return e.choose(args[0], args[1], args[2], node.type)


def _fma(e: VectorEmitter, node: Expr, args: list[str]) -> str:
    kind = e.type(node.type)
    # fmuladd, not fma: a machine without the instruction would call a function for each lane.
    return e.f.call(kind, f"llvm.fmuladd.{intrinsic_suffix(node.type, e.lanes)}", *((kind, arg) for arg in args))


def _quotient(e: VectorEmitter, node: Expr, args: list[str]) -> str:
    x, scale, least, most = args
    return divided_within(e, x, scale, (("ogt", least), ("olt", most)), node.type)


def _scaled(e: VectorEmitter, node: Expr, args: list[str]) -> str:
    """By the machine's instruction, or by one power of two, or by two whose product is too small or too large for one."""
    value, exponent, bits = args
    kind, kinds = node.type, e.type(node.type)
    if e.target is not None and e.target.has_exponent_scaling and e.lanes * BITS[kind] in (128, 256, 512):
        width = e.lanes * BITS[kind]
        name = f"llvm.x86.avx512.mask.scalef.{'ps' if kind == 'f32' else 'pd'}.{width}"
        every = (f"i{max(e.lanes, 8)}", "-1")
        rounding = [("i32", "4")] if width == 512 else []  # as everywhere
        return e.f.call(kinds, name, (kinds, value), (kinds, exponent), (kinds, value), every, *rounding)
    integers, shift = e.type(node.args[2].type), constant(node.args[2].type, 23 if kind == "f32" else 52, e.lanes)

    def power(number: str) -> str:
        return e.f.let(f"bitcast {integers} {e.f.let(f'shl {integers} {number}, {shift}')} to {kinds}")

    if node.param:
        return e.f.let(f"fmul {kinds} {value}, {power(bits)}")
    half = e.f.let(f"lshr {integers} {bits}, {constant(node.args[2].type, 1, e.lanes)}")
    first = e.f.let(f"fmul {kinds} {value}, {power(half)}")
    return e.f.let(f"fmul {kinds} {first}, {power(e.f.let(f'sub {integers} {bits}, {half}'))}")


def _one_and_exp(e: VectorEmitter, node: Expr, args: list[str]) -> str:
    (x,) = node.args
    by_table = e.target is not None and e.target.has_float_permute and e.lanes <= _WORDS
    (made,) = e.emit([one_and_exp_by_table(x) if by_table else one_and_exp_by_polynomial(x)], {x: args[0]})
    return made


def _rarely(e: VectorEmitter, node: Expr, args: list[str]) -> str:
    condition, usual, argument = args
    x = node.args[2]
    rare = RARE[node.param](x)
    if e.target is None or not e.target.has_fma:
        return e.emit([rare], {x: argument})[0]
    return e.where_any(condition, usual, node.type, lambda: e.emit([rare], {x: argument})[0])


def _word_lookup(e: VectorEmitter, node: Expr, args: list[str]) -> str:
    """By a permutation of two registers, whatever the number of lanes."""
    f, lanes, words = e.f, e.lanes, f"<{_WORDS} x i32>"
    halves = [f"<{', '.join(f'i32 {word}' for word in node.param[start : start + _WORDS])}>" for start in (0, _WORDS)]
    index = args[0]
    if lanes == 1:
        index = f.let(f"insertelement {words} poison, i32 {index}, i32 0")
    elif lanes != _WORDS:
        order = ", ".join(f"i32 {lane}" if lane < lanes else "i32 poison" for lane in range(_WORDS))
        index = f.let(f"shufflevector {e.type('u32')} {index}, {e.type('u32')} poison, <{_WORDS} x i32> <{order}>")
    found = f.call(words, "llvm.x86.avx512.vpermi2var.d.512", (words, halves[0]), (words, index), (words, halves[1]))
    if lanes == 1:
        return f.let(f"extractelement {words} {found}, i32 0")
    if lanes == _WORDS:
        return found
    lowest = ", ".join(f"i32 {lane}" for lane in range(lanes))
    return f.let(f"shufflevector {words} {found}, {words} poison, <{lanes} x i32> <{lowest}>")


def _bitcast(e: VectorEmitter, node: Expr, args: list[str]) -> str:
    source, target = e.type(node.args[0].type), e.type(node.type)
    return args[0] if source == target else e.f.let(f"bitcast {source} {args[0]} to {target}")


def _cast(e: VectorEmitter, node: Expr, args: list[str]) -> str:
    source = node.args[0]
    if source.type in ("f32", "f64") and node.type in (*SHORT, "i32") and is_within(source, node.type):
        return truncated(e, args[0], source.type, node.type)
    return convert(e, args[0], source.type, node.type)


def _truncated(e: VectorEmitter, node: Expr, args: list[str]) -> str:
    """By the machine's own instruction for 32 bits, where those can hold all lanes: others are seldom met."""
    (x,) = node.args
    rare = truncated_by_range(x, node.type)
    if e.lanes == 1 or e.target is None or not e.target.truncates_to_smallest:
        return e.emit([rare], {x: args[0]})[0]
    usual = truncated_to_smallest(e, args[0], x.type, e.target)
    if node.type == "i32":
        return usual
    smallest = e.f.let(f"icmp eq {e.type('i32')} {usual}, {constant('i32', -(2**31), e.lanes)}")
    wide = convert(e, usual, "i32", node.type)
    return e.where_any(smallest, wide, node.type, lambda: e.emit([rare], {x: args[0]})[0])


_EMIT: Final[dict[str, _Emit]] = {
    "neg": _neg,
    "abs": _abs,
    "not": _not,
    "isnan": _isnan,
    "sqrt": _intrinsic("sqrt"),
    "floor": _intrinsic("floor"),
    "ceil": _intrinsic("ceil"),
    "round": _intrinsic("roundeven"),
    "trunc": _intrinsic("trunc"),
    "add": _plain("fadd", "add"),
    "sub": _plain("fsub", "sub"),
    "mul": _plain("fmul", "mul"),
    "div": _divide("div"),
    "rem": _divide("rem"),
    "min": _extreme("lt", True),
    "max": _extreme("gt", True),
    "minr": _extreme("lt", False),
    "maxr": _extreme("gt", False),
    "and": _plain("and", "and"),
    "or": _plain("or", "or"),
    "xor": _plain("xor", "xor"),
    "shl": _shift(True),
    "shr": _shift(False),
    "eq": _compare("oeq", "eq", "eq"),
    "ne": _compare("une", "ne", "ne"),
    "lt": _compare("olt", "slt", "ult"),
    "le": _compare("ole", "sle", "ule"),
    "gt": _compare("ogt", "sgt", "ugt"),
    "ge": _compare("oge", "sge", "uge"),
    "select": _select,
    "fma": _fma,
    "quotient": _quotient,
    "scaled": _scaled,
    "one_and_exp": _one_and_exp,
    "rarely": _rarely,
    "word_lookup": _word_lookup,
    "cast": _cast,
    "truncated": _truncated,
    "bitcast": _bitcast,
}
