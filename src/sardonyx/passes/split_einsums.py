"""An Einsum for which there is no kernel becomes several of one or two operands.

    y = Einsum(a, b, c) {bnd,bnde,bn->bne}   =>   p = Einsum(a, b) {bnd,bnde->bne}
                                                  y = Einsum(p, c) {bne,bn->bne}
    y = Einsum(a, b) {ij,jk->k}              =>   s = Einsum(a) {ij->j}
                                                  y = Einsum(s, b) {j,jk->k}

Axes of one operand alone are added up first, and those of size 1 that another operand makes longer are left off. Then the two
operands whose product takes the fewest steps are multiplied until one is left. Narrow floats are widened around all of it and
rounded once. Runs after FoldShapeValues, which tells the sizes. Refuses: operands of unknown rank, equations that have no letters
left for the axes of an ellipsis.
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, ClassVar, Final

from sardonyx import dtypes
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import Node, Value
from sardonyx.ops.matmul.matmul import axis_names
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import Rewriter, dtype_of
from sardonyx.records import dataclass

_UNKNOWN: Final = 64  # what sizes that only a run can tell are taken for when products are compared
_NARROW: Final = frozenset((dtypes.FLOAT16, dtypes.BFLOAT16))


@dataclass(frozen=True, slots=True)
class _Term:
    """An operand and the letters of its axes."""

    value: Value
    letters: str


@dataclass(frozen=True, slots=True)
class _Found:
    terms: tuple[_Term, ...]
    kept: tuple[str, ...]  # the letters of each that go into a product
    result: str
    sizes: dict[str, Dim]


@dataclass(frozen=True)
class SplitEinsums(Rule[_Found]):
    """Ensures: Einsums of known ranks have one or two operands; of two, none is broadcast or added up for itself."""

    name: ClassVar[str] = "SplitEinsums"
    roots: ClassVar[frozenset[str]] = frozenset(("Einsum",))
    expands: ClassVar[bool] = True

    def match(self, g: Rewriter, node: Node) -> _Found | Reject | None:
        operands = [value for value in node.inputs if value is not None]
        shapes = [value.shape for value in operands if value.shape is not None]
        if len(operands) < 2 or len(shapes) != len(node.inputs):
            return None
        names, result = axis_names(str(node.attr("equation")), [len(shape) for shape in shapes])
        spelling = _spelling([*names, result])
        if spelling is None:
            return Reject("no letters are left for the axes of its ellipsis")
        terms = tuple(_Term(value, "".join(map(spelling.__getitem__, term))) for value, term in zip(operands, names, strict=True))
        sizes: dict[str, Dim] = {}
        for term, shape in zip(terms, shapes, strict=True):
            for letter, size in zip(term.letters, shape, strict=True):
                if sizes.get(letter, 1) == 1:
                    sizes[letter] = size
        found = _Found(terms, _kept(terms, shapes, spelled := "".join(map(spelling.__getitem__, result)), sizes), spelled, sizes)
        changes = any(set(kept) != set(term.letters) for term, kept in zip(terms, found.kept, strict=True))
        return found if changes or len(terms) > 2 else None

    def rewrite(self, g: Rewriter, found: _Found, facts: Any) -> None:
        result = g.anchor.outputs[0]
        dtype = dtype_of(found.terms[0].value)
        narrow = dtype if dtype in _NARROW else None
        terms = []
        for term, kept in zip(found.terms, found.kept, strict=True):
            value = term.value if narrow is None else g.op("Cast", term.value, to=dtypes.FLOAT32.onnx)
            if set(kept) != set(term.letters):
                value, letters = g.op("Einsum", value, equation=f"{term.letters}->{kept}"), kept
            else:
                letters = term.letters
            terms.append(_Term(value, letters))
        while len(terms) > 1:
            terms = _with_product(g, terms, found)
        total = terms[0].value
        g.replace(result, total if narrow is None else g.op("Cast", total, to=narrow.onnx))


def _spelling(names: Iterable[Sequence[str]]) -> dict[str, str] | None:
    """A letter for each name: its own, or one that no other has for the numbers of an ellipsis. None if there are too few."""
    known = list(dict.fromkeys(name for term in names for name in term))
    spare = iter(letter for letter in string.ascii_letters if letter not in known)
    spelling = {name: name if name.isalpha() else next(spare, "") for name in known}
    return spelling if all(spelling.values()) else None


def _kept(terms: Sequence[_Term], shapes: Sequence[Sequence[Dim]], result: str, sizes: dict[str, Dim]) -> tuple[str, ...]:
    """The letters of each operand, once each, without those that others make longer and those that it alone adds up."""
    long = []
    for term, shape in zip(terms, shapes, strict=True):
        own = dict(zip(term.letters, shape, strict=True))
        long.append([letter for letter, size in own.items() if size != 1 or sizes[letter] == 1])
    return tuple(
        "".join(
            letter
            for letter in letters
            if letter in result or any(letter in other for position, other in enumerate(long) if position != number)
        )
        for number, letters in enumerate(long)
    )


def _with_product(g: Rewriter, terms: Sequence[_Term], found: _Found) -> list[_Term]:
    """Two of the operands multiplied: those whose letters together count the fewest steps."""

    def steps(pair: tuple[int, int]) -> int:
        sizes = (found.sizes[letter] for letter in set(terms[pair[0]].letters) | set(terms[pair[1]].letters))
        return math.prod(size if isinstance(size, int) else _UNKNOWN for size in sizes)

    first, second = min(combinations(range(len(terms)), 2), key=steps)
    others = [term for number, term in enumerate(terms) if number not in (first, second)]
    a, b = terms[first], terms[second]
    needed = set(found.result).union(*(term.letters for term in others))
    letters = "".join(letter for letter in dict.fromkeys(a.letters + b.letters) if letter in needed) if others else found.result
    product = g.op("Einsum", a.value, b.value, equation=f"{a.letters},{b.letters}->{letters}")
    return [_Term(product, letters), *others]
