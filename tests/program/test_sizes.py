"""The table of sizes: every size has its value, and nested sizes are computed once."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from native_support import compile_native, host_nodes, run_native, run_reference
from sardonyx.formats.onnx import load
from sardonyx.ir.dims import (
    Dim,
    DimExpr,
    broadcast,
    dim_max,
    dim_min,
    evaluate,
    floordiv,
    is_nonnegative,
    mod,
    substitute,
    symbol,
    symbols_of,
)
from sardonyx.ir.text import format_model
from sardonyx.program.symbolic_sizes import size_table

NAMES = ("A", "B", "C")


def expressions() -> st.SearchStrategy[Dim]:
    leaves = st.one_of(st.sampled_from(NAMES).map(symbol), st.integers(-3, 9))
    operations = (lambda a, b: a + b, lambda a, b: a * b, floordiv, mod, dim_max, dim_min)
    combined = lambda inner: st.builds(lambda f, a, b: f(a, b), st.sampled_from(operations), inner, inner)  # noqa: E731
    return st.recursive(leaves, combined, max_leaves=8)


@given(st.lists(expressions(), max_size=6), st.tuples(*(st.integers(0, 30) for _ in NAMES)))
@settings(max_examples=200)
def test_every_size_has_its_value(dims: list[Dim], numbers: tuple[int, ...]) -> None:
    bindings = dict(zip(NAMES, numbers))
    found = size_table(dims, NAMES)(*numbers)
    for dim, actual in zip(dims, found, strict=True):
        try:
            assert actual == evaluate(dim, bindings)
        except ZeroDivisionError:
            continue  # of an empty tensor


def nested(depth: int, join: Callable[[Dim, Dim], Dim] = broadcast) -> list[Dim]:
    """Sizes of which each holds the one before it several times."""
    made: list[Dim] = [symbol("A")]
    for level in range(depth):
        size = made[-1]
        half = floordiv(size + level % 7 + 2, 2)
        made.append(join(half * 2, dim_max(size, half + mod(size, 3 + level % 5)) * symbol("B")))
    return made


def test_nested_sizes_are_shared() -> None:
    shallow, deep = (len(size_table(nested(depth), ("A", "B")).rows) for depth in (100, 200))
    assert deep < 2.1 * shallow
    assert shallow < 100 * 12
    sizes = nested(3000)  # deeper than Python's stack
    table = size_table(sizes, ("A", "B"))
    assert len(table.source()) < 3000 * 400
    assert table(0, 1)[:2] == (0, 2)


def test_nothing_writes_nested_sizes_out() -> None:
    one, other = nested(300)[-1], nested(300)[-1]
    assert isinstance(one, DimExpr)
    assert one is not other
    assert one == other
    assert hash(one) == hash(other)
    assert one != nested(299)[-1]
    assert len(str(one)) < 10_000
    assert str(one) == str(other)
    assert symbols_of(one) == {"A", "B"}
    assert is_nonnegative(one)
    replaced = substitute(one, {"A": symbol("C")})
    assert symbols_of(replaced) == {"B", "C"}
    assert substitute(replaced, {"C": symbol("A")}) == one
    largest = nested(300, dim_max)[-1]
    assert evaluate(largest, {"A": 4, "B": 1}) == size_table([largest], ("A", "B"))(4, 1)[0]
    assert pickle.loads(pickle.dumps(one)) == one


def test_polynomials_do_not_grow_without_bound() -> None:
    product: Dim = 1
    bindings = {}
    for number in range(40):
        bindings[f"s{number}"] = number % 3
        product = product * (symbol(f"s{number}") + 1)
        product = product * product if number % 10 == 9 else product
    assert isinstance(product, DimExpr)
    total: Dim = 0
    for number in range(500):
        total = total + symbol(f"s{number}") * (number + 1)
    expected = 1
    for number in range(40):
        expected *= number % 3 + 1
        expected = expected * expected if number % 10 == 9 else expected
    names = [f"s{number}" for number in range(500)]
    assert evaluate(product, bindings) == expected
    found = size_table([product, total], names)(*(number % 3 for number in range(500)))
    assert found == (expected, sum(number % 3 * (number + 1) for number in range(500)))


@pytest.mark.parametrize("name", ["A, B", "floordiv(A, 2)", "A*B", "7"])
def test_names_do_not_make_up_expressions(name: str) -> None:
    """Sizes are named by the model: a name may look like an expression."""
    lookalikes: list[Dim] = [floordiv(symbol("A"), 2), symbol("A") * symbol("B"), 7, broadcast(symbol("A"), symbol("B"))]
    assert all(symbol(name) != other for other in lookalikes)
    first, second = broadcast(symbol(name), symbol("C")), broadcast(symbol("A"), symbol("B, C"))
    assert first != second


def test_a_model_of_nested_unknown_sizes_opens() -> None:
    """x + concat(x[::2], x[::2]), again and again: of x of even length."""
    nodes, x = [], "x"
    for level in range(40):
        nodes.append(helper.make_node("Slice", [x, "zero", "end", "zero", "two"], [f"h{level}"]))
        nodes.append(helper.make_node("Concat", [f"h{level}", f"h{level}"], [f"g{level}"], axis=0))
        nodes.append(helper.make_node("Add", [f"g{level}", x], [f"x{level}"]))
        x = f"x{level}"
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, None])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([n], np.int64), name) for name, n in (("zero", 0), ("end", 1 << 40), ("two", 2))],
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    loaded, compiled = compile_native(content)
    assert host_nodes(compiled) == []
    for rows in (4, 2, 10):
        feeds = {"x": np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32) / 1e6}
        (actual,), (expected,) = run_native(loaded, compiled, feeds), run_reference(content, feeds)
        np.testing.assert_allclose(actual, expected, rtol=1e-5)
    assert len(format_model(load(content))) < 1 << 20
