"""Symbolic dimensions: every expression has the value Python's integers give it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sardonyx.ir import dims
from sardonyx.ir.dims import Dim, DimExpr, ceildiv, dim_max, dim_min, evaluate, floordiv, mod, substitute, symbol, symbols_of

N, M = symbol("N"), symbol("M")
NAMES = ("A", "B", "C")

# An expression twice: built from dimensions, and as a function of the symbols' values.
Twin = tuple[Dim, Callable[[dict[str, int]], int]]
OPERATIONS: dict[str, tuple[Callable[[Dim, Dim], Dim], Callable[[int, int], int]]] = {
    "+": (lambda a, b: a + b, lambda a, b: a + b),
    "-": (lambda a, b: a - b, lambda a, b: a - b),
    "*": (lambda a, b: a * b, lambda a, b: a * b),
    "//": (floordiv, lambda a, b: a // b),
    "%": (mod, lambda a, b: a % b),
    "max": (dim_max, max),
    "min": (dim_min, min),
}


def leaves() -> st.SearchStrategy[Twin]:
    def of_symbol(name: str) -> Twin:
        return symbol(name), lambda bindings: bindings[name]

    def of_number(number: int) -> Twin:
        return number, lambda bindings: number

    return st.one_of(st.sampled_from(NAMES).map(of_symbol), st.integers(-6, 12).map(of_number))


def combine(inner: st.SearchStrategy[Twin]) -> st.SearchStrategy[Twin]:
    def apply(operation: str, left: Twin, right: Twin) -> Twin:
        symbolic, plain = OPERATIONS[operation]
        return symbolic(left[0], right[0]), lambda bindings: plain(left[1](bindings), right[1](bindings))

    return st.builds(apply, st.sampled_from(sorted(OPERATIONS)), inner, inner)


EXPRESSIONS = st.recursive(leaves(), combine, max_leaves=7)
BINDINGS = st.fixed_dictionaries({name: st.integers(0, 40) for name in NAMES})


@given(EXPRESSIONS, BINDINGS)
def test_an_expression_has_the_value_of_the_integers(twin: Twin, bindings: dict[str, int]) -> None:
    expression, function = twin
    try:
        expected = function(bindings)
    except ZeroDivisionError:
        return
    assert evaluate(expression, bindings) == expected


@given(EXPRESSIONS, EXPRESSIONS, EXPRESSIONS)
def test_addition_and_multiplication_obey_the_laws_of_arithmetic(first: Twin, second: Twin, third: Twin) -> None:
    a, b, c = first[0], second[0], third[0]
    assert a + b == b + a
    assert a * b == b * a
    assert (a + b) + c == a + (b + c)
    assert (a * b) * c == a * (b * c)
    assert a * (b + c) == a * b + a * c
    assert a - a == 0
    assert a + 0 == a == a * 1
    assert a * 0 == 0
    assert 0 - (0 - a) == a
    assert -a + a == 0


@given(EXPRESSIONS, EXPRESSIONS, BINDINGS)
def test_substituting_a_symbol_is_evaluating_it_first(outer: Twin, inner: Twin, bindings: dict[str, int]) -> None:
    try:
        value = inner[1](bindings)
        expected = outer[1]({**bindings, "A": value})
    except ZeroDivisionError:
        return
    if value >= 0:  # symbols stand for sizes
        assert evaluate(substitute(outer[0], {"A": inner[0]}), bindings) == expected


@given(EXPRESSIONS, BINDINGS)
def test_what_is_called_nonnegative_never_is_negative(twin: Twin, bindings: dict[str, int]) -> None:
    if dims.is_nonnegative(twin[0]):
        try:
            assert twin[1](bindings) >= 0
        except ZeroDivisionError:
            return


def test_whole_chunks_are_no_longer_than_what_they_are_taken_from() -> None:
    n = dims.symbol("n")
    assert dims.is_nonnegative(n - 8 * dims.floordiv(n, 8))
    assert dims.is_nonnegative(n - 4 * dims.floordiv(n, 4) + 3)
    assert not dims.is_nonnegative(n - 8 * dims.floordiv(n, 8) - 1)
    assert not dims.is_nonnegative(n - 12 * dims.floordiv(n, 8))


@given(EXPRESSIONS)
def test_equal_expressions_have_equal_hashes_and_texts(twin: Twin) -> None:
    again = substitute(twin[0], {})
    assert again == twin[0]
    assert hash(again) == hash(twin[0])
    assert str(again) == str(twin[0])


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (N * 2 + 1, "2*N + 1"),
        (1 - N, "-N + 1"),
        (N * M - 3 * N, "M*N - 3*N"),
        ((2 * N + 4) // 2, "N + 2"),
        ((N + 1) // 2, "floordiv(N + 1, 2)"),
        (N % 8, "mod(N, 8)"),
        (ceildiv(N, 4), "floordiv(N + 3, 4)"),
        (dim_max(M, N), "max(M, N)"),
        (dim_max(N, M), "max(M, N)"),
        (dim_min(N, 7), "min(7, N)"),
    ],
)
def test_expressions_print_in_one_canonical_way(expression: Dim, text: str) -> None:
    assert str(expression) == text


def test_expressions_simplify_where_the_answer_is_certain() -> None:
    assert (4 * N + 3) // 4 == N
    assert (4 * N + 9) // 4 == N + 2
    assert 6 * N * M // (2 * M) == 3 * N
    assert (N + M) // (N + M) == 1
    assert 8 * N % 4 == 0
    assert dim_max(N + 3, N) == N + 3
    assert dim_min(N, 0) == 0
    assert dim_max(0, N) == N
    assert dim_min(N, N + M) == N
    assert dim_max(512 - dim_min(N, 512), 0) == 512 - dim_min(N, 512)
    assert dim_max(dim_max(N, M) - N, 0) == dim_max(N, M) - N
    assert dims.product((N, 3, M)) == 3 * M * N
    assert dims.product(()) == 1


def test_expressions_that_differ_are_not_equal() -> None:
    assert N != M
    assert N + 1 != N
    assert N != "N"
    assert symbol("N") == N


def test_fresh_symbols_are_anonymous_and_never_equal() -> None:
    first, second = dims.fresh(), dims.fresh("axis")
    assert first != second
    assert first.is_anonymous
    assert second.is_anonymous
    assert "axis" in str(second)
    assert isinstance(first + N, DimExpr)
    assert not N.is_anonymous


def test_only_a_lone_symbol_is_a_symbol() -> None:
    shifted = N + 1
    assert N.is_symbol
    assert isinstance(shifted, DimExpr)
    assert not shifted.is_symbol
    assert symbols_of((N + M) // 2 * N) == {"N", "M"}
    assert symbols_of(4) == frozenset()


def test_evaluating_without_a_binding_names_the_missing_symbol() -> None:
    with pytest.raises(KeyError, match="no value for M in M \\+ N"):
        evaluate(N + M, {"N": 1})


def test_a_division_by_zero_fails_when_it_is_evaluated() -> None:
    with pytest.raises(ZeroDivisionError, match="floordiv"):
        evaluate(floordiv(5, M - M), {})
    with pytest.raises(ZeroDivisionError, match="mod"):
        evaluate(mod(N, M), {"N": 3, "M": 0})
