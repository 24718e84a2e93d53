"""Random models give the same natively as by NumPy: at every level, on any number of threads, opened again from the cache, for
feeds of growing, shrinking and empty sizes one after the other, and with all memory guarded.

A seed that fails is made smaller by `random_model(seed, steps)` with fewer steps.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

import sardonyx
from guarded_session import guarded_feeds, guarded_memory
from random_mixes import random_mix
from random_models import RandomModel, Sizes
from random_steps import random_model
from sardonyx.enums import GraphOptimizationLevel as Level
from sardonyx.runtime import native_core
from session_agreement import REFERENCE, difference, outcome, same_bits, session

SIZES: tuple[Sizes, ...] = (
    {"N": 2, "S": 5, "T": 3},
    {"N": 3, "S": 1, "T": 4},
    {"N": 1, "S": 1, "T": 1},
    {"N": 4, "S": 7, "T": 2},
    {"N": 0, "S": 3, "T": 1},
    {"N": 2, "S": 0, "T": 0},
    {"N": 2, "S": 5, "T": 3},  # known by now: from here on a program made for these sizes may run
    {"N": 2, "S": 5, "T": 3},
    {"N": 1, "S": 40, "T": 9},
)
FEW, FEW_MIXES, ALL = 8, 3, 400
LEVELS = (Level.ORT_DISABLE_ALL, Level.ORT_ENABLE_BASIC, Level.ORT_ENABLE_EXTENDED, Level.ORT_ENABLE_LAYOUT, Level.ORT_ENABLE_ALL)

shapes = pytest.mark.parametrize("symbolic", [True, False], ids=["symbolic", "static"])


class Maker(Protocol):
    """The model of a seed."""

    def __call__(self, seed: int, *, symbolic: bool = True) -> RandomModel: ...


def some(make: Maker, name: str, few: int) -> list[Any]:
    """The seeds of a kind of models: a few of them always, the others in long runs."""
    return [pytest.param(make, seed, id=f"{name}-{seed}", marks=[] if seed < few else pytest.mark.slow) for seed in range(ALL)]


seeds = pytest.mark.parametrize(("make", "seed"), [*some(random_model, "model", FEW), *some(random_mix, "mix", FEW_MIXES)])


class Checked:
    """A random model with its feeds and what NumPy makes of them."""

    def __init__(self, model: RandomModel, symbolic: bool, special: bool = False) -> None:
        self.model = model
        sizes = SIZES if symbolic else SIZES[:1] * 3
        self.feeds = [self.model.feeds(each, special) for each in sizes]
        reference = session(self.model.content, providers=REFERENCE)
        self.expected = [outcome(reference, feeds) for feeds in self.feeds]

    def agree(self, opened: sardonyx.InferenceSession, feeds: Sequence[Any] | None = None) -> list[Any]:
        """Compare all runs. Where NumPy finds an error, the node at fault may be one that nobody needs, so native may answer."""
        results = []
        for position, (given, expected) in enumerate(zip(feeds or self.feeds, self.expected, strict=True)):
            result = outcome(opened, given)
            results.append(result)
            if expected is None:
                continue
            assert result is not None, f"run {position}: only native code raises"
            for value, actual, wanted in zip(self.model.graph.outputs, result, expected, strict=True):
                assert not difference(actual, wanted, self.model.loosest), (position, value.name)
        return results


@seeds
@shapes
def test_a_random_model_gives_what_numpy_gives(
    make: Maker,
    seed: int,
    symbolic: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    checked = Checked(make(seed, symbolic=symbolic), symbolic)
    content = checked.model.content
    with caplog.at_level(logging.WARNING, "sardonyx"):
        alone = checked.agree(session(content))
        for level in LEVELS[:-1]:
            checked.agree(session(content, level=level))
    assert not caplog.records, "kernels that could not be made"
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    saved_by = session(content)
    # Every step is worth sharing here, however small.
    monkeypatch.setattr(native_core, "PARALLEL_FROM", 1)
    monkeypatch.setattr(native_core, "SHARED_FROM", 1)
    again = session(content, threads=3)
    for first, second, third in zip(alone, checked.agree(saved_by), checked.agree(again)):
        assert same_bits(first, second)
        assert same_bits(first, third)


@seeds
@shapes
@pytest.mark.parametrize("at_start", [False, True], ids=["end", "start"])
def test_a_random_model_stays_in_its_memory(make: Maker, seed: int, symbolic: bool, at_start: bool) -> None:
    checked = Checked(make(seed, symbolic=symbolic), symbolic)
    with guarded_memory(at_start) as guard:
        feeds = [guarded_feeds(guard, each) for each in checked.feeds]
        checked.agree(session(checked.model.content), feeds)


@pytest.mark.parametrize(("make", "seed"), some(random_mix, "mix", FEW_MIXES))
@shapes
def test_special_numbers_in_a_random_mix_reach_what_they_do_in_numpy(make: Maker, seed: int, symbolic: bool) -> None:
    checked = Checked(make(seed, symbolic=symbolic), symbolic, special=True)
    checked.agree(session(checked.model.content))


@seeds
def test_values_inside_a_random_model_can_be_fetched(make: Maker, seed: int) -> None:
    model = make(seed)
    names = [value.name for node in model.graph.nodes for value in node.outputs]
    feeds = model.feeds(SIZES[0])
    expected = outcome(session(model.content, providers=REFERENCE), feeds, names)
    assert expected is not None
    for level in (Level.ORT_DISABLE_ALL, Level.ORT_ENABLE_ALL):
        found = outcome(session(model.content, level=level), feeds, names)
        assert found is not None
        for name, actual, wanted in zip(names, found, expected, strict=True):
            assert not difference(actual, wanted, model.loosest), name


def test_sizes_that_no_program_serves_give_the_same_bits_in_sessions_that_were_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    model = random_mix(57)  # its first sizes get programs of their own; the last do not fit the program for all others
    feeds = [model.feeds(each) for each in SIZES[:6]]
    fresh, saved = ([outcome(opened, each) for each in feeds] for opened in (session(model.content), session(model.content)))
    assert all(map(same_bits, fresh, saved))
