"""Operators multiply through `ops.products`, during which nobody forks."""

from __future__ import annotations

import ast
import os
import threading
from pathlib import Path

import numpy as np
import pytest

import sardonyx.ops
from sardonyx.forks import importing
from sardonyx.ops import products

SOURCES = sorted(Path(sardonyx.ops.__file__).parent.rglob("*.py"))
LIBRARY = {"matmul", "einsum", "tensordot", "dot", "inner", "vdot", "linalg"}
EXACT = {"vision.py"}  # multiplies integers, which is no business of that library


def products_of(path: Path) -> list[str]:
    """Where a file multiplies matrices by NumPy itself."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        by_sign = isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
        by_name = (
            isinstance(node, ast.Attribute)
            and node.attr in LIBRARY
            and isinstance(node.value, ast.Name)
            and node.value.id == "np"
        )
        if by_sign or by_name:
            found.append(f"{path.name}:{node.lineno}")  # type: ignore[attr-defined]
    return found


def test_no_operator_multiplies_past_the_functions_that_hold_off_forks() -> None:
    assert [
        place for path in SOURCES if path.name != "products.py" for place in products_of(path) if path.name not in EXACT
    ] == []


@pytest.mark.parametrize("name", ["matmul", "det", "inv"])
def test_what_they_compute_is_numpys(name: str) -> None:
    square = np.array([[2.0, 1.0], [1.0, 3.0]])
    operands = (square, square) if name == "matmul" else (square,)
    wanted = getattr(np if name == "matmul" else np.linalg, name)(*operands)
    np.testing.assert_array_equal(getattr(products, name)(*operands), wanted)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_no_fork_happens_during_a_product() -> None:
    inside = []

    class Watched(np.ndarray):
        def __array_ufunc__(self, *args: object, **named: object) -> object:
            inside.append(threading.get_ident() in importing._inside)
            return np.zeros(())

    products.matmul(np.zeros((1, 1)).view(Watched), np.zeros((1, 1)))
    assert inside == [True]
    assert threading.get_ident() not in importing._inside
