"""Symbolic dimensions: integers or exact expressions over named symbols.

    n = symbol("N")
    (2 * n + 4) // 2        ->  N + 2
    n * 3 == 3 * n          ->  True
    evaluate(n // 2 + 1, {"N": 7})  ->  4

An expression is kept as a polynomial with integer coefficients over atoms; an atom is a symbol or one of floordiv, mod,
max, min, broadcast of two expressions. Equal polynomials are equal expressions; two expressions that compare unequal may still
have the same value for every binding (N // 2 * 2 and N - N % 2). Symbols stand for sizes: whole numbers, never negative.
A symbol whose name starts with "?" is anonymous: nobody named it, it is merely unknown.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TypeAlias, Union

Dim: TypeAlias = Union[int, "Expr"]
_Monomial: TypeAlias = tuple["_Atom", ...]  # a product of atoms, sorted by text; () is the constant


class _Atom:
    """A symbol (function is "") or a function of two dimensions; compared by its text, which is canonical."""

    __slots__ = ("args", "function", "text")

    def __init__(self, function: str, args: tuple[Dim, ...], text: str) -> None:
        self.function = function
        self.args = args
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Atom) and self.text == other.text

    def __lt__(self, other: _Atom) -> bool:
        return self.text < other.text

    def __hash__(self) -> int:
        return hash(self.text)


class Expr:
    """A dimension that is not a plain integer. Immutable; use Python's operators, `floordiv`, `dim_max`, `dim_min`."""

    __slots__ = ("_hash", "terms")

    terms: tuple[tuple[_Monomial, int], ...]  # sorted, no zero coefficients

    def __init__(self, terms: tuple[tuple[_Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)

    def __reduce__(self) -> tuple[type[Expr], tuple[tuple[tuple[_Monomial, int], ...]]]:
        return Expr, (self.terms,)  # the hash is another in every process

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Dim) -> Dim:
        total = dict(self.terms)
        for monomial, factor in _terms(other):
            total[monomial] = total.get(monomial, 0) + factor
        return _make(total)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return Expr(tuple((monomial, -factor) for monomial, factor in self.terms))

    def __sub__(self, other: Dim) -> Dim:
        return self + (-other)

    def __rsub__(self, other: Dim) -> Dim:
        return -self + other

    def __mul__(self, other: Dim) -> Dim:
        total: dict[_Monomial, int] = {}
        for (left, a), (right, b) in itertools.product(self.terms, _terms(other)):
            monomial = tuple(sorted(left + right))
            total[monomial] = total.get(monomial, 0) + a * b
        return _make(total)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return mod(other, self)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        text = ""
        for monomial, factor in sorted(self.terms, key=lambda term: (-len(term[0]), [atom.text for atom in term[0]])):
            parts = [atom.text for atom in monomial]
            size = abs(factor)
            if size != 1 or not parts:
                parts.insert(0, str(size))
            sign = "-" if factor < 0 else "+"
            text += f" {sign} {'*'.join(parts)}" if text else ("-" if factor < 0 else "") + "*".join(parts)
        return text

    @property
    def is_symbol(self) -> bool:
        """Whether this is one symbol and nothing else."""
        return len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1 and not self.terms[0][0][0].function

    @property
    def is_anonymous(self) -> bool:
        """Whether any symbol in it is one nobody named."""
        return any(name.startswith("?") for name in symbols_of(self))


_fresh_numbers = itertools.count()


def symbol(name: str) -> Expr:
    """The size called `name`."""
    return Expr((((_Atom("", (), name),), 1),))


def fresh(hint: str = "") -> Expr:
    """A new anonymous symbol, equal to no other."""
    return symbol(f"?{hint}{next(_fresh_numbers)}")


def _terms(dim: Dim) -> tuple[tuple[_Monomial, int], ...]:
    if isinstance(dim, Expr):
        return dim.terms
    return (((), int(dim)),) if dim else ()


def _make(total: dict[_Monomial, int]) -> Dim:
    terms = tuple(sorted((item for item in total.items() if item[1]), key=lambda item: [a.text for a in item[0]]))
    if not terms:
        return 0
    if len(terms) == 1 and not terms[0][0]:
        return terms[0][1]
    return Expr(terms)


def _function(name: str, a: Dim, b: Dim) -> Expr:
    if name in ("max", "min", "broadcast") and str(b) < str(a):  # commutative: one canonical order
        a, b = b, a
    return Expr((((_Atom(name, (a, b), f"{name}({a}, {b})"),), 1),))


def _exact_division(a: Dim, b: Dim) -> Dim | None:
    """a / b where b divides every term of a, as 2*N*C / C; None if it does not."""
    divisor = _terms(b)
    if len(divisor) != 1:
        return 1 if a == b else None
    (atoms, factor), result = divisor[0], {}
    for monomial, coefficient in _terms(a):
        rest = list(monomial)
        for atom in atoms:
            if atom not in rest:
                return None
            rest.remove(atom)
        if coefficient % factor:
            return None
        result[tuple(rest)] = coefficient // factor
    return _make(result)


def floordiv(a: Dim, b: Dim) -> Dim:
    """a // b, rounding towards minus infinity. A zero divisor stays in the expression and fails in `evaluate`."""
    if isinstance(a, int) and isinstance(b, int) and b:
        return a // b
    if b == 1 or a == 0:
        return a
    if b == 0:
        return _function("floordiv", a, b)
    exact = _exact_division(a, b)
    if exact is not None:
        return exact
    if isinstance(b, int) and b > 0 and isinstance(a, Expr):
        # (4*N + x) // 4 = N + x // 4: whole multiples leave the division.
        whole = _make({m: c // b for m, c in a.terms if m and c % b == 0})
        if whole != 0:
            return whole + floordiv(a - whole * b, b)
        constant = dict(a.terms).get((), 0)
        if constant // b:
            return floordiv(a - constant // b * b, b) + constant // b
    return _function("floordiv", a, b)


def mod(a: Dim, b: Dim) -> Dim:
    """a % b with the sign of b, as Python does it."""
    if isinstance(a, int) and isinstance(b, int) and b:
        return a % b
    if b == 1 or a == 0 or (b != 0 and _exact_division(a, b) is not None):
        return 0
    return _function("mod", a, b)


def ceildiv(a: Dim, b: Dim) -> Dim:
    """a / b rounded up, for b > 0."""
    return floordiv(a + b - 1, b)


def _constant_difference(a: Dim, b: Dim) -> int | None:
    difference = a - b
    return difference if isinstance(difference, int) else None


def dim_max(a: Dim, b: Dim) -> Dim:
    """The larger of two dimensions; folds where the difference is a known number."""
    difference = _constant_difference(a, b)
    if difference is not None:
        return a if difference >= 0 else b
    if (a == 0 and _is_size(b)) or (b == 0 and _is_size(a)):
        return b if a == 0 else a
    return _function("max", a, b)


def dim_min(a: Dim, b: Dim) -> Dim:
    """The smaller of two dimensions; folds where the difference is a known number."""
    difference = _constant_difference(a, b)
    if difference is not None:
        return b if difference >= 0 else a
    if (a == 0 and _is_size(b)) or (b == 0 and _is_size(a)):
        return 0
    return _function("min", a, b)


def broadcast(a: Dim, b: Dim) -> Dim:
    """The size two sizes broadcast to: the other one if either is 1, else what both must be."""
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int) and isinstance(b, int):
        raise ValueError(f"dimensions {a} and {b} do not broadcast")
    if isinstance(a, int) or isinstance(b, int):  # the other one is 1 or the same
        return a if isinstance(a, int) else b
    return _function("broadcast", a, b)


def _is_size(dim: Dim) -> bool:
    """Whether it is plainly not negative: all coefficients are positive and no atom can be negative."""
    if isinstance(dim, int):
        return dim >= 0
    return all(factor > 0 and all(_is_size_atom(atom) for atom in monomial) for monomial, factor in dim.terms)


def _is_size_atom(atom: _Atom) -> bool:
    if atom.function == "max":
        return any(_is_size(arg) for arg in atom.args)
    return not atom.function or all(_is_size(arg) for arg in atom.args)


def is_nonnegative(dim: Dim) -> bool:
    """True if the dimension cannot be negative; False if that is not known."""
    return _is_size(dim)


def product(dims: tuple[Dim, ...] | list[Dim]) -> Dim:
    """The product of all; 1 for none."""
    result: Dim = 1
    for dim in dims:
        result = result * dim
    return result


def symbols_of(dim: Dim) -> frozenset[str]:
    """The names of all symbols in a dimension."""
    if isinstance(dim, int):
        return frozenset()
    names: set[str] = set()
    for monomial, _ in dim.terms:
        for atom in monomial:
            if atom.function:
                names.update(*(symbols_of(arg) for arg in atom.args))
            else:
                names.add(atom.text)
    return frozenset(names)


def _apply(function: str, a: Dim, b: Dim) -> Dim:
    if function == "floordiv":
        return floordiv(a, b)
    if function == "mod":
        return mod(a, b)
    if function == "broadcast":
        return broadcast(a, b)
    return dim_max(a, b) if function == "max" else dim_min(a, b)


def substitute(dim: Dim, bindings: Mapping[str, Dim]) -> Dim:
    """The dimension with symbols replaced; symbols without a binding stay."""
    if isinstance(dim, int):
        return dim
    total: Dim = 0
    for monomial, factor in dim.terms:
        value: Dim = factor
        for atom in monomial:
            if atom.function:
                value = value * _apply(atom.function, *(substitute(arg, bindings) for arg in atom.args))
            else:
                value = value * bindings.get(atom.text, symbol(atom.text))
        total = total + value
    return total


def evaluate(dim: Dim, bindings: Mapping[str, int]) -> int:
    """The number a dimension has when every symbol is bound; KeyError names a missing one."""
    result = substitute(dim, bindings)
    if isinstance(result, int):
        return result
    missing = symbols_of(result)
    if missing:
        raise KeyError(f"no value for {', '.join(sorted(missing))} in {dim}")
    raise ZeroDivisionError(f"{dim} divides by zero")
