"""A choice between close candidates: a race decides once, and its winner is remembered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sardonyx.cache_folder import CacheFolder
from sardonyx.codegen.object_cache import ObjectCache
from sardonyx.target.timed_choice import BUDGET, CLOSE, ROUNDS, Candidate, Run, TimedChoices, close_ones, fastest
from threads import at_once


def candidate(name: str, estimate: int, effort: int = 1000) -> Candidate:
    return Candidate(name, estimate, f"kernel of {name}, sizes", effort)


NEAR = (candidate("direct", 110), candidate("winograd", 100))


class Clock:
    """Says how long each candidate takes, and counts how often it was asked."""

    def __init__(self, **times: int | Sequence[int]) -> None:
        self.times = {name: [time] * ROUNDS if isinstance(time, int) else list(time) for name, time in times.items()}
        self.asked: list[str] = []

    def __call__(self, candidates: Sequence[Candidate]) -> list[Run]:
        return [self._run(each.name) for each in candidates]

    def _run(self, name: str) -> Run:
        def run() -> int:
            self.asked.append(name)
            return self.times[name].pop(0)

        return run


def forbidden(candidates: Sequence[Candidate]) -> Sequence[Run]:
    raise AssertionError(f"{[each.name for each in candidates]} are raced")


def choices(folder: Path, machine: str = "a machine", budget: int = BUDGET) -> TimedChoices:
    folder.chmod(0o700)
    return TimedChoices(machine, str(folder), budget=budget)


def test_the_faster_of_two_close_ones_wins_and_they_take_turns(tmp_path: Path) -> None:
    clock = Clock(direct=80, winograd=90)
    assert choices(tmp_path).winner(NEAR, clock).name == "direct"
    assert clock.asked == ["winograd", "direct"] * ROUNDS


def test_the_favourite_stays_unless_another_is_clearly_faster(tmp_path: Path) -> None:
    assert choices(tmp_path).winner(NEAR, Clock(direct=97, winograd=100)).name == "winograd"


def test_the_best_time_of_each_counts() -> None:
    clock = Clock(winograd=[900, 100, 120], direct=[80, 800, 700])  # one round of each is undisturbed
    assert fastest(clock([candidate("winograd", 1), candidate("direct", 1)])) == 1


def test_estimates_that_are_far_apart_decide_alone(tmp_path: Path) -> None:
    """However busy the machine: what is estimated to be far slower is not even run."""
    far = (candidate("direct", int(100 * CLOSE) + 1), candidate("winograd", 100))
    assert choices(tmp_path).winner(far, forbidden).name == "winograd"
    assert not list(tmp_path.glob("*.choice"))
    three = (*far, candidate("rows", 101))
    clock = Clock(winograd=10_000_000, rows=20_000_000)  # disturbed, both
    assert choices(tmp_path).winner(three, clock).name == "winograd"
    assert "direct" not in clock.asked


def test_the_favourite_comes_first() -> None:
    assert close_ones([100, 80, 90, 80, 500]) == [1, 3, 2, 0]


def test_a_winner_is_remembered_by_other_processes(tmp_path: Path) -> None:
    first = choices(tmp_path)
    assert first.winner(NEAR, Clock(direct=10, winograd=100)).name == "direct"
    assert first.winner(NEAR, forbidden).name == "direct"
    assert choices(tmp_path).winner(NEAR, forbidden).name == "direct"
    assert first.races == 1


@pytest.mark.parametrize(
    "other", [(NEAR[0], candidate("winograd", 100)._replace(identity="other sizes")), (NEAR[0], NEAR[1], candidate("rows", 105))]
)
def test_other_kernels_or_sizes_are_another_choice(tmp_path: Path, other: Sequence[Candidate]) -> None:
    choices(tmp_path).winner(NEAR, Clock(direct=10, winograd=100))
    clock = Clock(direct=100, winograd=10, rows=100)
    assert choices(tmp_path).winner(other, clock).name == "winograd"


def test_another_machine_or_version_is_another_choice(tmp_path: Path) -> None:
    choices(tmp_path).winner(NEAR, Clock(direct=10, winograd=100))
    assert choices(tmp_path, "another machine").winner(NEAR, Clock(direct=100, winograd=10)).name == "winograd"
    assert choices(tmp_path).winner(NEAR, forbidden).name == "direct"


@pytest.mark.parametrize("damage", [lambda content: b"", lambda content: content[:-1] + b"x", lambda content: content * 2])
def test_a_damaged_file_is_ignored_and_replaced(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    choices(tmp_path).winner(NEAR, Clock(direct=10, winograd=100))
    (file,) = tmp_path.glob("*.choice")
    file.write_bytes(damage(file.read_bytes()))
    assert choices(tmp_path).winner(NEAR, Clock(direct=100, winograd=10)).name == "winograd"
    assert choices(tmp_path).winner(NEAR, forbidden).name == "winograd"


def test_a_remembered_name_that_is_no_candidate_is_ignored(tmp_path: Path) -> None:
    choices(tmp_path).winner(NEAR, Clock(direct=10, winograd=100))
    (file,) = tmp_path.glob("*.choice")
    CacheFolder(tmp_path, ".choice", 1 << 20).write(file.stem, b"rm -rf")
    assert choices(tmp_path).winner(NEAR, Clock(direct=10, winograd=100)).name == "winograd"  # the estimates' favourite


def test_choices_are_forgotten_with_the_kernels(tmp_path: Path) -> None:
    choices(tmp_path).winner(NEAR, Clock(direct=10, winograd=100))
    assert ObjectCache(tmp_path).clear() == 0
    assert choices(tmp_path).winner(NEAR, Clock(direct=100, winograd=10)).name == "winograd"


def test_of_two_processes_the_first_to_write_decides(tmp_path: Path) -> None:
    """Another process comes to the other winner while this one measures: both take the same in the end."""
    others: list[str] = []

    def meanwhile(candidates: Sequence[Candidate]) -> Sequence[Run]:
        others.append(choices(tmp_path).winner(NEAR, Clock(direct=10, winograd=100)).name)
        return Clock(direct=100, winograd=10)(candidates)

    assert choices(tmp_path).winner(NEAR, meanwhile).name == others[0] == "direct"


def test_many_writers_agree_on_the_first(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    folder, barrier, kept = CacheFolder(tmp_path, ".choice", 1 << 20), threading.Barrier(8), set[bytes | None]()

    def write(number: int) -> None:
        barrier.wait()
        kept.add(folder.write_first("key", b"%d" % number))

    at_once(write, range(8))
    assert kept == {folder.read("key")}
    assert [path.name for path in tmp_path.iterdir()] == ["key.choice"]


def test_what_has_no_place_in_the_budget_is_left_to_the_estimates_and_remembered(tmp_path: Path) -> None:
    """Otherwise the order in which models are compiled would decide."""
    scarce = choices(tmp_path, budget=1999)
    assert scarce.winner(NEAR, forbidden).name == "winograd"
    assert choices(tmp_path).winner(NEAR, forbidden).name == "winograd"
    other = (candidate("direct", 110, 700), candidate("rows", 100, 700))
    assert scarce.winner(other, Clock(direct=10, rows=100)).name == "direct"
    assert scarce.races == 1


def test_what_cannot_be_remembered_is_left_to_the_estimates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes would decide otherwise."""
    monkeypatch.setattr("sardonyx.cache_folder.write_atomically", lambda *args, **choices: "the disk is full")
    assert choices(tmp_path).winner(NEAR, Clock(direct=10, winograd=100)).name == "winograd"
