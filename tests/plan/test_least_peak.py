"""Orders by planned memory: least-peak-first is an order, and MEMORY_EFFICIENT never needs more than the others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from benchmarks import orders
from hypothesis import given, settings
from hypothesis import strategies as st

import sardonyx
from model_text import model
from sardonyx.cli.main import main
from sardonyx.enums import ExecutionOrder
from sardonyx.formats.onnx import load
from sardonyx.ir.dims import symbol
from sardonyx.plan import peak
from sardonyx.plan.least_peak import ASSUMED, assumed_size, least_peak_order
from sardonyx.plan.memory import Lifetime
from sardonyx.plan.peak import live_bytes

SMALL = {
    "chain": lambda: orders.chain_training(32, 64, 3),
    "branches": lambda: orders.branched_training(32, 64, 3),
    "statistics": lambda: orders.statistics_training(32, 64, 3),
}


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1 << 30))
def test_least_peak_first_keeps_every_node_behind_what_it_needs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names, lines = ["x"], []
    for number in range(int(rng.integers(1, 30))):
        first, second = (names[int(rng.integers(len(names)))] for _ in range(2))
        lines.append(f"v{number} = Add({first}, {second})")
        names.append(f"v{number}")
    read = load(model(f"(float[N,4] x) => (float[N,4] {names[-1]}) {{ {' '.join(lines)} }}", 17))
    order = least_peak_order(read.graph)
    assert set(order) == set(read.graph.nodes)
    assert len(order) == len(read.graph)
    done = set(read.graph.inputs)
    for node in order:
        assert all(value in done for value in node.inputs)
        done.update(node.outputs)
    assert order == least_peak_order(read.graph)


def test_a_branch_is_finished_before_the_next_begins() -> None:
    text = """(float[N,1] x, float[1,4096] r) => (float[N,1] y) {
        a = Mul(x, r) b = Mul(x, r) c = Mul(x, r)
        p = ReduceSum(a, axes) q = ReduceSum(b, axes) s = ReduceSum(c, axes) y = Sum(p, q, s)
    }"""
    read = load(model(text.replace("(float[N,1] x,", "(int64[1] axes, float[N,1] x,"), 17))
    names = [node.outputs[0].name for node in least_peak_order(read.graph)]
    assert names == ["a", "p", "b", "q", "c", "s", "y"]


def test_sizes_that_nobody_knows_are_assumed() -> None:
    assert assumed_size(symbol("N") * 2 + 1) == 2 * ASSUMED + 1
    assert assumed_size(symbol("N") * symbol("M"), {"N": 3}) == 3 * ASSUMED
    assert assumed_size(7) == 7


def test_live_bytes_count_both_ends() -> None:
    assert live_bytes([Lifetime(10, 0, 1), Lifetime(5, 1, 3), Lifetime(7, 9, 12)], 5) == [10, 15, 5, 5, 0]


@pytest.mark.parametrize("name", SMALL)
def test_the_memory_efficient_order_needs_no_more_than_any_other(name: str) -> None:
    found = {each.order: each for each in sardonyx.explain_memory(SMALL[name]())}
    least = found["MEMORY_EFFICIENT"].arena_bytes
    assert all(least <= each.arena_bytes for each in found.values())
    for each in found.values():
        assert len(each.live) == len(each.steps)
        assert max(each.live) <= each.arena_bytes


@pytest.mark.parametrize(
    ("needed", "expected"),
    [
        ({1: [10, 11, 12], ASSUMED: [700, 600, 640]}, 1),  # a tenth above the best for one size, and the best for the other
        ({1: [10, 20, 10], ASSUMED: [640, 600, 620]}, 2),
        ({1: [10, 10, 10], ASSUMED: [600, 600, 600]}, 0),
        ({1: [0, 0, 0], ASSUMED: [0, 0, 0]}, 0),
    ],
)
def test_plans_are_compared_for_small_and_large_sizes(
    needed: dict[int, list[int]], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: Any = [SimpleNamespace(dims=[symbol("N"), 4], number=number) for number in range(3)]
    monkeypatch.setattr(peak, "planned_bytes", lambda plan, sizes: needed[sizes.get("N", ASSUMED)][plan.number])
    assert peak.sparest(plans) == expected


def session(content: bytes, order: ExecutionOrder) -> Any:
    options = sardonyx.SessionOptions()
    options.execution_order = order
    return sardonyx.InferenceSession(content, options)


@pytest.mark.parametrize("name", SMALL)
def test_every_order_gives_the_same_results(name: str) -> None:
    content = SMALL[name]()
    x = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)
    sessions = {order: session(content, order) for order in ExecutionOrder}
    expected = sessions[ExecutionOrder.DEFAULT].run(None, {"x": x})
    for each in sessions.values():
        for ours, theirs in zip(each.run(None, {"x": x}), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_kernels_follow_the_order_of_their_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are made along the order, and steps stand as their groups do."""
    monkeypatch.setenv("SARDONYX_CACHE_DIR", "")
    content = SMALL["branches"]()
    for order in (ExecutionOrder.DEFAULT, ExecutionOrder.PRIORITY_BASED):
        compiled = session(content, order)._opened.program.main
        steps = [group.index for group in compiled.lowered.groups if group is not None]
        assert steps == sorted(steps)


def test_a_late_shape_does_not_keep_a_large_value() -> None:
    """Three products of this size, one after the other: one at a time."""
    side = 256
    for each in sardonyx.explain_memory(orders.late_shape(side)):
        assert each.arena_bytes < 1.5 * side * side * 4


def test_explain_memory_prints_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, picture = tmp_path / "m.onnx", tmp_path / "m.svg"
    path.write_bytes(SMALL["chain"]())
    assert main(["explain", "--memory", str(path), "--picture", str(picture)]) == 0
    text = capsys.readouterr().out
    for name in ("DEFAULT", "PRIORITY_BASED", "MEMORY_EFFICIENT", "least peak first"):
        assert name in text
    root = ET.fromstring(picture.read_text("utf-8"))
    assert len(root.findall("{http://www.w3.org/2000/svg}path")) == 4
    assert main(["explain", "--memory", str(path), "--json"]) == 0
    assert '"arena_bytes"' in capsys.readouterr().out
    assert main(["explain", str(path), "--picture", str(picture)]) == 2


def test_a_graph_without_buffers_is_drawn_too(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model("(float[N] x) => (float[N] y) { y = Identity(x) }", 17))
    assert main(["explain", "--memory", str(path), "--picture", str(tmp_path / "m.svg")]) == 0
