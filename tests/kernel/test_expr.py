"""The table of expressions: one object a node, in whatever thread, as long as somebody uses it."""

from __future__ import annotations

import gc
import pickle
import sys
import threading
from collections.abc import Iterator

import pytest

from sardonyx.kernel import expr
from sardonyx.kernel.expr import Expr, const, load
from sardonyx.kernel.math import erf


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads that take turns after every few instructions."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_an_expression_built_twice_is_one_object() -> None:
    x = load(0, "f32")
    y = erf(x + 1.0)
    assert erf(load(0, "f32") + 1.0) is y
    assert const(0.0, "f32") is not const(-0.0, "f32")
    assert pickle.loads(pickle.dumps(y)) is y


@pytest.mark.usefixtures("hasty")
def test_threads_that_build_the_same_get_the_same() -> None:
    count, iterations = 4, 300
    made: list[list[Expr]] = [[] for _ in range(count)]
    meet = threading.Barrier(count)

    def build(number: int) -> None:
        for iteration in range(iterations):
            meet.wait(60)
            made[number].append(load(0, "f32") + float(iteration))

    threads = [threading.Thread(target=build, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for row in zip(*made, strict=True):
        assert all(node is row[0] for node in row)


@pytest.mark.usefixtures("hasty")
def test_nodes_that_come_and_go_in_threads_leave_nothing_behind() -> None:
    before = len(expr._known)
    problems: list[str] = []

    def build() -> None:
        for _ in range(200):
            x = load(0, "f32") * 12345.0
            if load(0, "f32") * 12345.0 is not x:
                problems.append("two objects of one node")
            del x

    threads = [threading.Thread(target=build) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    gc.collect()
    assert not problems
    assert len(expr._known) <= before


def test_what_nobody_uses_leaves_the_table() -> None:
    gc.collect()
    before = len(expr._known)
    x = load(0, "f64")
    for iteration in range(50_000):  # deep: it is given up without recursion
        x = x + float(iteration)
    assert len(expr._known) > before + 50_000
    del x
    gc.collect()
    assert len(expr._known) <= before
