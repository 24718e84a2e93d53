"""Sizes that contradict each other are refused as the NumPy definitions refuse them, and nothing is touched outside of a buffer.

By default every case of the generator's own table is tried with one seed. `make guarded` goes on for SARDONYX_GUARDED_SECONDS
(300 if that is not set) from the seed SARDONYX_GUARDED_SEED on, over the node tests of onnx, small nets, random graphs and the
models of installed packages and libraries.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Sequence

import onnx
import pytest

from contradiction_cases import all_cases, node_cases, own_cases
from contradiction_models import real_models
from contradictions import Case, Tally, contradicted, drawn_axes, explore, explore_for, run_seed
from roughness import roughest
from sardonyx.ops.index import read_index
from sardonyx.ops.indexing.layout import DOMAIN

SECONDS = float(os.environ.get("SARDONYX_GUARDED_SECONDS", "300"))
SEED = int(os.environ.get("SARDONYX_GUARDED_SEED", "0"))


def assert_sound(tally: Tally) -> None:
    assert tally.seeds, "nothing was run"
    assert not tally.failures, f"{tally}\n" + "\n".join(tally.failures)


@pytest.mark.parametrize("part", range(4))
def test_operators_with_contradicting_sizes_stay_in_their_memory(part: int) -> None:
    cases = own_cases()
    tally = Tally()
    explore(cases, range(part, len(cases), 4), tally)
    assert_sound(tally)


@pytest.mark.slow
@pytest.mark.parametrize("cases", [all_cases, real_models], ids=["operators", "models"])
def test_contradicting_sizes_stay_in_their_memory_for_long(cases: Callable[[], Sequence[Case]]) -> None:
    made = cases()
    if not made:
        pytest.skip("nothing with models is installed; `make models` installs it")
    assert_sound(explore_for(made, SECONDS, SEED))


def operators_of(cases: Sequence[Case]) -> set[tuple[str, str]]:
    nodes = [node for case in cases for node in onnx.load_model_from_string(case.content).graph.node]
    return {(node.domain.removeprefix("ai.onnx"), node.op_type) for node in nodes}


def lowered_operators() -> set[tuple[str, str]]:
    """Those with a lowering rule; those of layouts stand in the small nets."""
    return {key for key in read_index("sardonyx.lower") if key[0] != DOMAIN}


@pytest.mark.slow
def test_every_operator_with_a_lowering_rule_is_among_those_whose_memory_is_tried() -> None:
    assert not lowered_operators() - operators_of([*own_cases(), *node_cases()])


def test_every_operator_that_onnx_has_no_tests_of_is_in_our_table() -> None:
    assert not {key for key in lowered_operators() if key[0] == "com.microsoft"} - operators_of(own_cases())


def test_a_seed_always_means_the_same_random_runs() -> None:
    case = own_cases()[0]
    first, second = (
        contradicted(case.feeds, drawn_axes(case.feeds, draw), draw) for draw in (random.Random(3), random.Random(3))
    )
    assert {name: array.shape for name, array in first.items()} == {name: array.shape for name, array in second.items()}
    assert [kind for kind, _ in run_seed([case], 0)] == [kind for kind, _ in run_seed([case], 0)]


def test_a_random_run_that_kills_its_process_is_reported_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def deadly(cases: Sequence[Case], seed: int) -> list[tuple[str, str]]:
        if seed == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return [("same answers", "")]

    monkeypatch.setattr("contradictions.run_seed", deadly)
    tally = Tally()
    explore(own_cases()[:2], range(3), tally)
    assert tally.seeds == 2
    assert tally.runs == {"same answers": 2, "crashes": 1}
    assert ["seed 1" in failure for failure in tally.failures] == [True]


def test_an_output_may_be_as_rough_as_what_it_is_computed_from() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    g (float16[2] h, bfloat16[2] b, float[2] f, bool c) => (float16 p, float16 q, float r, float s, float t, float u)
    <float[2] w = {1, 2}> {
        p = Abs(h)
        k = Cast <to = 10> (b)
        q = Add(p, k)
        r = Add(f, w)
        i = Cast <to = 10> (r)
        s = Cast <to = 1> (i)
        t = local.F(f)
        u = If (c) <then_branch = n () => (float x) { x = Cast <to = 1> (b) }, else_branch = m () => (float y) { y = Abs(f) }>
    }
    <domain: "local", opset_import: ["" : 21]>
    F (a) => (d) { e = Cast <to = 16> (a)  d = Cast <to = 1> (e) }"""
    model = onnx.parser.parse_model(text)
    inputs = {"h": "float16", "b": "bfloat16", "f": "float32", "c": "bool"}
    assert roughest(model, inputs) == ["float16", "bfloat16", "float32", "float16", "bfloat16", "bfloat16"]
    del model.functions[:], model.graph.node[-2:], model.graph.output[-2:]
    assert roughest(model, inputs, "int8") == ["int8", "bfloat16", "int8", "int8"]
