"""The race between two checkouts: what it measures, how it says so, what it refuses. No time is asserted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import race_checkouts
import small_nets

ROOT = Path(__file__).parent.parent
QUICK = ["--rounds", "2", "--seconds", "0.001", "--openings", "1", "--threads", "1"]


def test_equal_checkouts_race_and_give_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    net = small_nets.Net()
    model = tmp_path / "tiny.onnx"
    model.write_bytes(net.done(net.g.Relu(net.linear(net.input("x", (2, 4)), 4, 3)))[0])
    written = tmp_path / "figures.json"
    code = race_checkouts.main([str(ROOT), str(ROOT), str(model), "small-perceptron", "--json", str(written), *QUICK])
    assert code in (0, 1)  # 1: one of the two equal sides happened to be slower
    shown = capsys.readouterr().out
    assert "| tiny | " in shown
    assert "| **geometric mean** | " in shown
    figures = json.loads(written.read_text("utf-8"))
    assert sorted(figures) == ["small-perceptron", "tiny"]
    for record in figures.values():
        assert record["A"]["answers"] == record["B"]["answers"]
        for side in record.values():
            assert side["runs"] >= 4
            assert all(0 < side[figure]["best"] <= side[figure]["median"] for figure in race_checkouts.FIGURES)


def test_a_revision_is_checked_out_and_the_worktree_removed(tmp_path: Path) -> None:
    known = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if known.returncode:
        pytest.skip("the tests do not run in a git checkout")
    with race_checkouts.checkouts(("HEAD", str(ROOT)), tmp_path) as sides:
        assert sides[0].folder != ROOT
        assert (sides[0].source / "sardonyx/__init__.py").exists()
        assert sides[1].folder == ROOT
        assert sides[0].cache != sides[1].cache
    assert not sides[0].folder.exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["no-such-revision", "."], "no-such-revision is neither a folder nor a revision"),
        (["TMP", "."], "has no src/sardonyx: expected a checkout of Sardonyx"),
        ([".", ".", "abacus"], "no model is called abacus, and no file; there are: small-residual_net, "),
    ],
)
def test_what_cannot_be_raced_is_refused(
    arguments: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [{"TMP": str(tmp_path), ".": str(ROOT)}.get(each, each) for each in arguments]
    assert race_checkouts.main([*named, *QUICK]) == 2
    assert text in capsys.readouterr().err


def _side(run: float, peak: float, answer: str = "a") -> dict[str, Any]:
    figures: dict[str, Any] = {name: {"best": 1.0, "median": 1.0} for name in race_checkouts.FIGURES}
    return {**figures, "run": {"best": run, "median": run}, "peak": {"best": peak, "median": peak}, "answers": [answer]}


def test_what_is_more_than_three_percent_worse_is_marked() -> None:
    fine = {"A": _side(1.0, 100), "B": _side(1.029, 102)}
    bad = {"A": _side(1.0, 100), "B": _side(1.05, 110, "b")}
    assert race_checkouts.worse(fine) == []
    assert race_checkouts.worse(bad) == ["run +5.0%", "peak memory +10.0%"]
    *_, first, second, mean = race_checkouts.table_lines({"fine": fine, "bad": bad})
    assert "| same bits | - |" in first
    assert "| differ | run +5.0%, peak memory +10.0% |" in second
    assert mean.startswith("| **geometric mean** | | | 0.962 |")
