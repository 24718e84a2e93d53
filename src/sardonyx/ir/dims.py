"""Symbolic dimensions: integers or exact expressions over named symbols.

    n = symbol("N")
    (2 * n + 4) // 2        ->  N + 2
    n * 3 == 3 * n          ->  True
    evaluate(n // 2 + 1, {"N": 7})  ->  4

An expression is kept as a polynomial with integer coefficients over atoms; an atom is a symbol or one of floordiv, mod,
max, min, broadcast of two expressions. Equal polynomials are equal expressions; two expressions that compare unequal may still
have the same value for every binding (N // 2 * 2 and N - N % 2). Symbols stand for sizes: whole numbers, never negative.
A symbol whose name starts with "?" is anonymous: nobody named it, it is merely unknown.

Expressions nest as deep as a graph and share their parts, so written out they may be larger than memory. Nothing here writes
them out: an atom is known by a digest, what is asked of it often is found when it is made, its text is cut, and polynomials that
would grow too long become atoms, too (`add`, `mul`).
"""

from __future__ import annotations

import itertools
from _blake2 import blake2b  # hashlib's; that loads OpenSSL as well, which takes longer than opening a small program
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, Union

Dim: TypeAlias = Union[int, "DimExpr"]
# What must hold of two sizes. broadcast: the first is 1, or as large as the second; filled: it is at least as large as the second
Expectation: TypeAlias = tuple[Literal["equal", "broadcast", "filled"], Dim, Dim]
_Monomial: TypeAlias = tuple["Atom", ...]  # a product of atoms, sorted; () is the constant

_LONGEST_TEXT: Final = 400  # characters of an atom
_MOST_TERMS: Final = 64  # of a polynomial; (a + 1) * (b + 1) * ... has twice as many with every factor
_MOST_FACTORS: Final = 16  # of a monomial
_MOST_BOUNDS: Final = 2  # minima and maxima that are looked into to find out that a dimension is not negative


class Atom:
    """A symbol (function is "") or a function of two dimensions; equal if function and arguments are, which the digest tells."""

    __slots__ = ("args", "digest", "function", "is_long", "is_size", "symbols", "text")

    def __init__(self, function: str, args: tuple[Dim, ...], name: str = "") -> None:
        self.function = function
        self.args = args
        self.symbols: frozenset[str] = _all_symbols(args) if function else frozenset((name,))
        self.is_size = any(map(_is_size, args)) if function == "max" else all(map(_is_size, args))  # plainly not negative
        if function:
            self.digest = _digest(function, *map(_dim_digest, args))
            text = f"{function}({', '.join(map(str, args))})"
            self.is_long = len(text) > _LONGEST_TEXT
            self.text = f"{function}(... #{self.digest.hex()[:12]})" if self.is_long else text
        else:
            self.is_long = False
            self.digest = _digest("symbol", name.encode("utf-8", "surrogatepass"))
            self.text = name

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Atom) and self.digest == other.digest)

    def __lt__(self, other: Atom) -> bool:
        return (self.text, self.digest) < (other.text, other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)


def _digest(kind: str, *parts: bytes) -> bytes:
    """Of parts that no other parts make up."""
    return blake2b(b"".join((kind.encode(), *(b"|%d|%b" % (len(part), part) for part in parts))), digest_size=16).digest()


def _dim_digest(dim: Dim) -> bytes:
    if isinstance(dim, int):
        return b"%d" % dim
    terms = sorted((*sorted(atom.digest for atom in monomial), b"%d" % factor) for monomial, factor in dim.terms)
    return _digest("sum", *(_digest("product", *term) for term in terms))


def _all_symbols(dims: Iterable[Dim]) -> frozenset[str]:
    """The symbols in some dimensions; one of their own sets where it holds all."""
    largest: frozenset[str] = frozenset()
    for dim in dims:
        for monomial, _ in () if isinstance(dim, int) else dim.terms:
            for atom in monomial:
                if not atom.symbols <= largest:
                    largest = atom.symbols if largest <= atom.symbols else largest | atom.symbols
    return largest


class DimExpr:
    """A dimension that is not a plain integer. Immutable; use Python's operators, `floordiv`, `dim_max`, `dim_min`."""

    __slots__ = ("_hash", "terms")

    terms: tuple[tuple[_Monomial, int], ...]  # sorted, no zero coefficients

    def __init__(self, terms: tuple[tuple[_Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)

    def __reduce__(self) -> tuple[Callable[..., Dim], tuple[object, ...]]:
        """As a flat table of atoms: nested objects would need a stack as deep as they are."""
        atoms = list(atoms_of([self]))
        numbers = {atom: number for number, atom in enumerate(atoms)}

        def flat(dim: Dim) -> object:
            if isinstance(dim, int):
                return dim
            return tuple((tuple(numbers[atom] for atom in monomial), factor) for monomial, factor in dim.terms)

        rows = [(atom.function, tuple(map(flat, atom.args)), "" if atom.function else atom.text) for atom in atoms]
        return _from_table, (rows, flat(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DimExpr) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Dim) -> Dim:
        if other == 0:
            return self
        total = dict(self.terms)
        for monomial, factor in _terms(other):
            total[monomial] = total.get(monomial, 0) + factor
        if len(total) > _MOST_TERMS:
            return _function("add", self, other)
        return _make(total)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return DimExpr(tuple((monomial, -factor) for monomial, factor in self.terms))

    def __sub__(self, other: Dim) -> Dim:
        return self + (-other)

    def __rsub__(self, other: Dim) -> Dim:
        return -self + other

    def __mul__(self, other: Dim) -> Dim:
        if not isinstance(other, DimExpr):
            number = int(other)
            if number in (0, 1):
                return self if number else 0
            return DimExpr(tuple((monomial, factor * number) for monomial, factor in self.terms))
        total: dict[_Monomial, int] = {}
        theirs = other.terms
        longest = max(len(left) for left, _ in self.terms) + max(len(right) for right, _ in theirs)
        if len(self.terms) * len(theirs) > _MOST_TERMS or longest > _MOST_FACTORS:
            return _function("mul", self, other)
        for (left, a), (right, b) in itertools.product(self.terms, theirs):
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

    @property
    def atoms(self) -> Iterator[Atom]:
        """The atoms of all terms."""
        return (atom for monomial, _ in self.terms for atom in monomial)


def _from_table(rows: list[tuple[str, tuple[Any, ...], str]], root: Any) -> Dim:
    """The expression that `DimExpr.__reduce__` has made a table of."""
    atoms: list[Atom] = []

    def dim(flat: Any) -> Dim:
        if isinstance(flat, int):
            return flat
        return DimExpr(tuple((tuple(atoms[number] for number in monomial), factor) for monomial, factor in flat))

    for function, args, name in rows:
        atoms.append(Atom(function, tuple(map(dim, args)), name))
    return dim(root)


_fresh_numbers = itertools.count()


def symbol(name: str) -> DimExpr:
    """The size called `name`."""
    return DimExpr((((Atom("", (), name),), 1),))


def fresh(hint: str = "") -> DimExpr:
    """A new anonymous symbol, equal to no other."""
    return symbol(f"?{hint}{next(_fresh_numbers)}")


def _terms(dim: Dim) -> tuple[tuple[_Monomial, int], ...]:
    if isinstance(dim, DimExpr):
        return dim.terms
    return (((), int(dim)),) if dim else ()


def _make(total: dict[_Monomial, int]) -> Dim:
    terms = tuple(sorted(item for item in total.items() if item[1]))
    if not terms:
        return 0
    if len(terms) == 1 and not terms[0][0]:
        return terms[0][1]
    return DimExpr(terms)


def _function(name: str, a: Dim, b: Dim) -> DimExpr:
    if name not in ("floordiv", "mod") and _order(b) < _order(a):  # commutative: one canonical order
        a, b = b, a
    return DimExpr((((Atom(name, (a, b)),), 1),))


def _order(dim: Dim) -> tuple[str, bytes]:
    return str(dim), _dim_digest(dim)


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
    if isinstance(b, int) and b > 0 and isinstance(a, DimExpr):
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


def dim_max(a: Dim, b: Dim) -> Dim:
    """The larger of two dimensions; folds where it is known which one that is."""
    if is_nonnegative(a - b):
        return a
    return b if is_nonnegative(b - a) else _function("max", a, b)


def dim_min(a: Dim, b: Dim) -> Dim:
    """The smaller of two dimensions; folds where it is known which one that is."""
    if is_nonnegative(a - b):
        return b
    return a if is_nonnegative(b - a) else _function("min", a, b)


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
    for whole, part in ((a, b), (b, a)):
        atom = whole.terms[0][0][0] if len(whole.terms) == 1 and whole.terms[0][0] else None
        if atom is not None and whole.terms[0] == ((atom,), 1) and atom.function == "broadcast" and part in atom.args:
            return whole  # x + (x + y)
    return _function("broadcast", a, b)


def _is_size(dim: Dim) -> bool:
    """Whether it is plainly not negative: all coefficients are positive and no atom can be negative."""
    if isinstance(dim, int):
        return dim >= 0
    return all(factor > 0 and all(atom.is_size for atom in monomial) for monomial, factor in dim.terms)


def is_nonnegative(dim: Dim) -> bool:
    """True if the dimension cannot be negative; False if that is not known."""
    return _is_size(dim) or _has_bound(dim, _MOST_BOUNDS)


def _has_bound(dim: Dim, steps: int) -> bool:
    """Whether it is plainly not negative with less in the place of one part.

    That is an argument for a minimum that is subtracted or a maximum that is added, the dividend for a multiple of a quotient.
    """
    for monomial, factor in () if isinstance(dim, int) else dim.terms:
        atom = monomial[0] if len(monomial) == 1 else None
        if atom is None:
            continue
        less: list[Dim] = []
        if atom.function == ("min" if factor < 0 else "max"):
            less = [argument * factor for argument in atom.args]
        elif atom.function == "floordiv" and factor < 0:
            dividend, divisor = atom.args
            if isinstance(divisor, int) and divisor > 0 and factor % divisor == 0:
                less = [dividend * (factor // divisor)]
        for part in less:
            bound = dim - _make({monomial: factor}) + part
            if _is_size(bound) or (steps > 0 and _has_bound(bound, steps - 1)):
                return True
    return False


def product(dims: tuple[Dim, ...] | list[Dim]) -> Dim:
    """The product of all; 1 for none."""
    result: Dim = 1
    for dim in dims:
        result = result * dim
    return result


def symbols_of(dim: Dim) -> frozenset[str]:
    """The names of all symbols in a dimension."""
    return _all_symbols((dim,))


def atoms_of(dims: Iterable[Dim]) -> Iterator[Atom]:
    """Every atom in some dimensions once, those in the arguments of functions before these."""
    done: set[Atom] = set()
    stack = [atom for dim in dims if isinstance(dim, DimExpr) for atom in dim.atoms][::-1]
    while stack:
        atom = stack[-1]
        missing = []
        if atom not in done:
            missing = [each for arg in atom.args if isinstance(arg, DimExpr) for each in arg.atoms if each not in done]
        if missing:
            stack += missing
            continue
        stack.pop()
        if atom not in done:
            done.add(atom)
            yield atom


_APPLY: Final[dict[str, Callable[[Dim, Dim], Dim]]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "floordiv": floordiv,
    "mod": mod,
    "broadcast": broadcast,
    "max": dim_max,
    "min": dim_min,
}


def substitute(dim: Dim, bindings: Mapping[str, Dim]) -> Dim:
    """The dimension with symbols replaced; symbols without a binding stay."""
    made: dict[Atom, Dim] = {}

    def replaced(dim: Dim) -> Dim:
        if isinstance(dim, int):
            return dim
        total: Dim = 0
        for monomial, factor in dim.terms:
            value: Dim = factor
            for atom in monomial:
                value = value * made[atom]
            total = total + value
        return total

    for atom in atoms_of([dim]):
        if atom.function:
            made[atom] = _APPLY[atom.function](*map(replaced, atom.args))
        else:
            made[atom] = bindings.get(atom.text, symbol(atom.text))
    return replaced(dim)


def evaluate(dim: Dim, bindings: Mapping[str, int]) -> int:
    """The number a dimension has when every symbol is bound; KeyError names a missing one."""
    result = substitute(dim, bindings)
    if isinstance(result, int):
        return result
    missing = symbols_of(result)
    if missing:
        raise KeyError(f"no value for {', '.join(sorted(missing))} in {dim}")
    raise ZeroDivisionError(f"{dim} divides by zero")
