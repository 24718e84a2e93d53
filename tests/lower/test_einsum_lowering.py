"""Einsum against the NumPy meaning of the operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sardonyx
from guarded import guarded
from model_text import model
from native_support import assert_native_agrees, compile_native, host_nodes, run_native
from sardonyx import errors
from sardonyx.runtime.native_core import SizeConflict

SIZES = {"b": 2, "h": 3, "i": 5, "j": 7, "d": 4, "n": 19}
EQUATIONS = [
    # products of matrices
    "bhid,bhjd->bhij", "bhij,bhjd->bhid", "ij,jd->id", "ij,dj->id", "bihd,bjhd->bhij", "bhij,bjhd->bihd", "bih,bjh->bhij",
    "bin,nhd->bihd", "bihd,hdn->bin", "bhid,jd->bhij", "bij,bjd->idb", "bhid,hdn->bihn", "bij,j->bi", "nd,d->n", "ij,jd",
    # products of elements
    "i,j->ij", "bi,bj->bij", "ij,ij->ij", "ij,i->ji",
    # sums of products
    "ij,ij->", "ij,ij->i", "i,i->", "bij,jib->",
    # one operand
    "ij->ji", "ij->i", "ij->", "ii->i", "bijd->bd", "bii->b", "bij->j", "ij",
]  # fmt: skip
TYPES: dict[str, Any] = {"float": np.float32, "double": np.float64, "float16": np.float16, "int32": np.int32, "int64": np.int64}


def check(equation: str, kind: str, shapes: list[tuple[int, ...]], declared: list[str], native: bool = True) -> None:
    rng = np.random.default_rng(0)
    feeds = {f"x{number}": guarded(rng.integers(-8, 9, shape).astype(TYPES[kind])) for number, shape in enumerate(shapes)}
    inputs = ", ".join(f"{kind}[{sizes}] {name}" for name, sizes in zip(feeds, declared))
    graph = f'({inputs}) => ({kind}[z] y) {{ y = Einsum<equation="{equation}">({", ".join(feeds)}) }}'
    assert_native_agrees(model(graph), feeds, rtol=1e-3, atol=1e-3, native=native)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(EQUATIONS), st.sampled_from(list(TYPES)), st.booleans(), st.sampled_from([*SIZES, ""]))
def test_equations(equation: str, kind: str, symbolic: bool, empty: str) -> None:
    """All letters are different sizes; one may be empty."""
    terms = equation.partition("->")[0].split(",")
    sizes = {**SIZES, empty: 0}
    declared = [",".join(letter.upper() if symbolic else str(sizes[letter]) for letter in term) for term in terms]
    check(equation, kind, [tuple(sizes[letter] for letter in term) for term in terms], declared)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...ij,...jk->...ik", [(2, 3, 4, 5), (2, 3, 5, 6)]),
        ("...ij,jk->...ik", [(2, 3, 4, 5), (5, 6)]),
        ("...ij,...jk->...ik", [(2, 3, 4, 5), (3, 5, 6)]),
        ("...ij->...ji", [(2, 3, 4, 5)]),
        ("i...->...", [(4, 2, 3)]),
    ],
)
def test_an_ellipsis(equation: str, shapes: list[tuple[int, ...]]) -> None:
    check(equation, "float", shapes, [",".join(map(str, shape)) for shape in shapes])


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]), ("ij,jk->i", [(2, 3), (3, 4)]), ("ij,jk->ik", [(2, 1), (3, 4)])],
)
def test_what_the_host_computes(equation: str, shapes: list[tuple[int, ...]]) -> None:
    check(equation, "float", shapes, [",".join(map(str, shape)) for shape in shapes], native=False)


def test_sizes_that_do_not_agree_are_left_to_numpy() -> None:
    text = '(float[A,B] x, float[C,D] y) => (float[z] w) { w = Einsum<equation="ij,jk->ik">(x, y) }'
    graph, compiled = compile_native(model(text))
    assert not host_nodes(compiled)
    with pytest.raises(SizeConflict):
        run_native(graph, compiled, {"x": np.zeros((2, 3), np.float32), "y": np.zeros((4, 5), np.float32)})


@pytest.mark.parametrize("shape", [(3, 0, 5), (3, 5, 0), (3, 1, 5), (3, 5, 1), (3, 4, 5)])
def test_a_diagonal_of_unequal_sizes_is_refused(shape: tuple[int, ...]) -> None:
    content = model('(double[a,b,c] x) => (double[a,d] y) { y = Einsum<equation="...ii->...i">(x) }')
    session = sardonyx.InferenceSession(content)
    with pytest.raises(errors.InvalidArgument, match="expected equal ones"):
        session.run(None, {"x": np.ones(shape)})  # NumPy alone reads outside of the array if the first size is 0
