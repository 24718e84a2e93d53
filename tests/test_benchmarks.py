"""The benchmarks themselves: every one imports and runs one step; tables, chart and page say what was measured."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from benchmarks import __main__ as command
from benchmarks import chart, limits, memory, neighbour, report
from benchmarks.models.cases import Maker
from benchmarks.models.catalog import CASES, SYMBOLIC, Unavailable
from benchmarks.models.kinds import KINDS
from benchmarks.ranked import ranked_difference

from sardonyx import benchmarking

ROOT = Path(__file__).parent.parent
KERNELS = sorted(path for path in (ROOT / "benchmarks/kernels").glob("*.py") if not path.stem.startswith("_"))


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_a_kernel_benchmark_imports_and_has_a_main(path: Path) -> None:
    pytest.importorskip("onnxruntime")
    assert callable(importlib.import_module(f"benchmarks.kernels.{path.stem}").main)


def test_an_unknown_kernel_benchmark_is_named() -> None:
    command = [sys.executable, "-m", "benchmarks.kernels", "abacus"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert "there is no kernel benchmark 'abacus'; known: peak, " in done.stderr


def test_the_memory_benchmark_knows_its_models_and_varies_their_shapes() -> None:
    feeds = {"input_ids": np.zeros((1, 128), np.int64), "past_0": np.zeros((2, 1, 12, 4, 64), np.float32)}
    for name in memory.VARIED:
        assert name in CASES or name in SYMBOLIC
        many = memory.varied(name, feeds)
        shapes = {tuple(value.shape for value in each.values()) for each in many}
        assert len(shapes) > memory.FEW / 2


def test_an_unknown_model_of_the_memory_benchmark_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        memory.main(["abacus"])
    assert "no model is called abacus; there are: ppocr_det" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_a_model_benchmark_runs_one_step_and_the_engines_agree(name: str) -> None:
    pytest.importorskip("onnxruntime")
    try:
        model, feeds = CASES[name].prepare(ROOT / ".bench-cache")
    except Unavailable as missing:
        pytest.skip(str(missing))
    ours, theirs = (benchmarking.open_engine(name, model, 2).run(feeds) for name in (benchmarking.OURS, "onnxruntime"))
    assert CASES[name].difference(ours, theirs) < 1e-3


def test_rows_that_change_places_with_others_of_the_same_score_agree() -> None:
    boxes, labels, scores = np.arange(20.0).reshape(5, 4), np.array([1, 1, 2, 1, 3]), np.array([0.9, 0.5, 0.5 - 1e-7, 0.4, 0.1])
    swapped = [0, 2, 1, 3, 4]
    found = ranked_difference([boxes[swapped], labels[swapped], scores], [boxes, labels, scores], 2)
    assert 0 < found < 1e-6
    assert benchmarking.largest_difference([boxes[swapped]], [boxes]) > 0.1
    reverse = [4, 3, 2, 1, 0]
    assert ranked_difference([boxes[reverse], labels[reverse], scores[reverse]], [boxes, labels, scores], 2) > 0.5
    assert ranked_difference([boxes[[0, 1, 1, 3, 4]], labels, scores], [boxes, labels, scores], 2) > 0.1
    assert ranked_difference([boxes[:4], labels[:4], scores[:4]], [boxes, labels, scores], 2) == np.inf


@pytest.mark.parametrize("name", ["mlp", "chain"])
@pytest.mark.filterwarnings("ignore")
def test_a_small_model_is_measured_from_end_to_end(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    results = tmp_path / "results.json"
    quick = ["--seconds", "0.02", "--no-fresh", "--no-scaling", "--no-page", "--cache", str(tmp_path / "models")]
    assert command.main([name, *quick, "--json", str(results), "--markdown", str(tmp_path / "table.md")]) == 0
    record = json.loads(results.read_text())["models"][name]
    assert record["ratio"]["onnxruntime"]["best"] > 0
    assert record["steps"]["kernels"] > 0
    assert CASES[name].title in capsys.readouterr().out
    assert "Geometric mean of the ratio over 1 models" in (tmp_path / "table.md").read_text()


@pytest.mark.filterwarnings("ignore")
def test_pytorch_runs_the_network_itself(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    quick = ["--seconds", "0.02", "--no-fresh", "--no-scaling", "--no-steps", "--no-page", "--cache", str(tmp_path / "models")]
    results = tmp_path / "results.json"
    assert command.main(["mlp", *quick, "--peers", "onnxruntime,torch", "--json", str(results)]) == 0
    record = json.loads(results.read_text())["models"]["mlp"]
    assert record["ratio"]["torch"]["best"] > 0
    assert record["engines"]["torch"]["difference"] < 1e-5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_compiler_of_pytorch_has_a_table_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    quick = ["--seconds", "0.02", "--no-fresh", "--no-scaling", "--no-steps", "--no-page", "--cache", str(tmp_path / "models")]
    results = tmp_path / "results.json"
    assert command.main(["mlp", *quick, "--peers", "torch.compile", "--json", str(results)]) == 0
    assert json.loads(results.read_text())["models"]["mlp"]["engines"]["torch.compile"]["difference"] < 1e-5
    assert "torch.compile: geometric mean" in capsys.readouterr().out


def test_an_engine_of_pytorch_needs_its_program_beside_the_model(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for engine, program in (("torch", "model.pt "), ("torch.compile", "model.pt2 ")):
        with pytest.raises(benchmarking.EngineUnavailable, match=program):
            benchmarking.open_engine(engine, tmp_path / "model.onnx", 1)


@pytest.mark.filterwarnings("ignore")
def test_a_model_is_measured_beside_a_busy_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    quick = ["--seconds", "0.01", "--blocks", "1", "--no-page", "--cache", str(tmp_path)]
    assert neighbour.main(["mlp", *quick]) == 0
    assert "| MLP 64-128-128-10 | " in capsys.readouterr().out
    with pytest.raises(SystemExit):
        neighbour.main(["abacus"])
    assert "no model is called abacus" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
def test_the_operations_of_a_model_are_those_of_its_products(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    counted = limits.operations(*CASES["mlp"].prepare(tmp_path))
    assert counted == pytest.approx(2 * (64 * 128 + 128 * 128 + 128 * 10), rel=0.02)


def test_results_of_other_engines_are_written_into_their_part_of_the_page() -> None:
    timing = {"timing": {"best": 1e-3}}
    model = {
        "title": "A",
        "engines": {"sardonyx": timing, "openvino": {"timing": {"best": 2e-3}}},
        "ratio": {"openvino": {"best": 2.0}},
    }
    failed = {"title": "B", "engines": {"sardonyx": timing, "openvino": {"error": "no"}}}
    lines = list(report.peer_lines({"models": {"a": model, "b": failed}}))
    assert lines[2:4] == ["| A | 1.00 ms | 2.00 ms | **2.00** |", "| B | 1.00 ms | - | - |"]
    assert lines[-1] == "- openvino: geometric mean 2.00 over the 1 models that it runs, 1 of them above 1"


@pytest.mark.filterwarnings("ignore")
def test_a_small_model_is_measured_for_a_lesser_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    quick = ["--seconds", "0.02", "--no-fresh", "--no-scaling", "--no-steps", "--no-page", "--cache", str(tmp_path / "models")]
    assert command.main(["mlp", *quick, "--target", "x86-64-v2", "--json", str(tmp_path / "results.json")]) == 0
    assert json.loads((tmp_path / "results.json").read_text())["models"]["mlp"]["reference"] < 1e-5
    assert "| model | x86-64-v2 | all of the machine |" in capsys.readouterr().out


def test_names_of_models_may_have_wildcards(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(CASES)
    with pytest.raises(SystemExit):
        command.main(["no-such-*"])
    assert "no model is called no-such-*" in capsys.readouterr().err


def test_the_issue_of_a_missing_package_is_told(tmp_path: Path) -> None:
    if importlib.util.find_spec("magika") is not None:
        pytest.skip("magika is installed")
    with pytest.raises(Unavailable, match="the package magika is not installed"):
        CASES["magika"].prepare(tmp_path)


def engine(best: float, difference: float | None = None) -> dict[str, Any]:
    timing = {"best": best, "median": best * 1.1, "runs": 10}
    return {"version": "1", "timing": timing, **({} if difference is None else {"difference": difference})}


def record(title: str, ours: float, theirs: float, difference: float = 1e-6, **more: Any) -> dict[str, Any]:
    ratio = {"onnxruntime": {"best": theirs / ours, "median": theirs / ours}}
    engines = {"sardonyx": engine(ours), "onnxruntime": engine(theirs, difference)}
    return {"title": title, "kind": "small", "goal": 2.0, "engines": engines, "ratio": ratio, "exact": difference, **more}


@pytest.fixture
def results() -> dict[str, Any]:
    fresh = {
        "sardonyx": {
            "creation": {"cold": 1.5, "warm": 0.02},
            "peak_bytes": 50_000_000,
            "start": {"total": 0.1},
            "shapes": [11, 10],
        },
        "onnxruntime": {
            "creation": {"cold": 0.2, "warm": 0.2},
            "peak_bytes": 60_000_000,
            "start": {"total": 0.2},
            "shapes": [2, 1],
        },
    }
    return {
        "threads": 2,
        "machine": {"date": "2026-01-01", "processor": "Abacus", "flags": ["avx2"], "cores": 2, "system": "Linux",
                    "python": "3.11", "packages": {"onnxruntime": "1.31.1"}},
        "models": {
            "fast": record("Fast <net>", 0.001, 0.004, fresh=fresh, scaling={"two_threads_over_one": {"sardonyx": 1.9}}),
            "slow": record("Slow net", 0.2, 0.1),
            "wrong": record("Wrong net", 0.00001, 0.00001, difference=0.5),
            "broken": {"title": "Broken net", "kind": "small", "goal": 2.0, "error": "it broke"},
        },
    }  # fmt: skip


def test_the_table_has_a_row_for_every_model(results: dict[str, Any]) -> None:
    lines = list(report.table_lines(results))
    assert lines[:2] == ["### Small", ""]
    rows = [line.strip("| ").split(" | ") for line in lines][4:]
    assert rows[0] == [
        "Fast <net>",
        "1.00 ms",
        "4.00 ms",
        "**4.00** (4.00)",
        "2",
        "1e-06",
        "50 MB / 60 MB",
        "1.50 s, 20.0 ms",
        "200 ms",
    ]
    assert rows[1][1:4] == ["200 ms", "100 ms", "0.50 (0.50)"]
    assert rows[2][5] == "5e-01 **WRONG**"
    assert rows[3][5] == "it broke"


def test_the_summary_has_the_mean_and_the_lowest(results: dict[str, Any]) -> None:
    text = "\n".join(report.summary_lines(results))
    assert "over 3 models: 1.26 (medians 1.26); lowest: 0.50 (Slow net)" in text
    assert "two threads over one: sardonyx 1.90" in text
    assert "fresh process: sardonyx 100 ms, onnxruntime 200 ms" in text
    assert "200 random shapes over memory after the largest alone: sardonyx 1.10, onnxruntime 2.00" in text


def test_kinds_are_summed_up(results: dict[str, Any]) -> None:
    rows = [line.strip("| ").split(" | ") for line in report.kind_lines(results)][2:]
    assert rows[0] == ["small", "3", "2", "1.26", "0.50 (Slow net)", "1 of 3", "5e-01"]
    assert rows[1][:2] == ["all", "3"]


def test_other_engines_have_their_means(results: dict[str, Any]) -> None:
    results["models"]["fast"]["ratio"]["openvino"] = {"best": 2.0, "median": 2.0}
    text = "\n".join(report.summary_lines(results))
    assert "Against openvino: geometric mean 2.00 over 1 models that it runs" in text


def test_every_kind_has_models_and_every_model_a_goal() -> None:
    counts = Counter(case.kind for case in CASES.values())
    assert list(counts) == list(KINDS)
    assert min(counts.values()) >= 3
    assert len(CASES) >= 60
    assert all(case.wanted >= 1 for case in CASES.values())
    assert all(name == case.name for name, case in CASES.items())


def test_a_changed_option_or_source_makes_a_model_anew() -> None:
    one, other = (Maker("small", "recurrent_network", kind=kind) for kind in ("LSTM", "GRU"))
    assert one.version() == Maker("small", "recurrent_network", kind="LSTM").version()
    assert len({one.version(), one.version("dynamo"), other.version(), Maker("llama", "llama_network").version()}) == 4


def test_a_model_is_made_once(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    model, feeds = CASES["attention_grouped"].prepare(tmp_path)
    before = model.stat().st_mtime_ns
    again, same = CASES["attention_grouped"].prepare(tmp_path)
    assert again == model
    assert model.stat().st_mtime_ns == before
    assert all(np.array_equal(feeds[name], same[name]) for name in feeds)


def test_the_page_keeps_its_own_text(results: dict[str, Any]) -> None:
    page = f"# Title\n{report.BEGIN}\nancient\n{report.END}\nafter\n"
    once = report.page_with(page, results)
    assert once.startswith("# Title\n")
    assert once.endswith("\nafter\n")
    assert "ancient" not in once
    assert "| Slow net |" in once
    assert report.page_with(once, results) == once
    with pytest.raises(ValueError, match="lacks its marks"):
        report.page_with("# Title", results)


def test_a_lesser_target_has_a_table_of_its_own(results: dict[str, Any]) -> None:
    results["machine"]["flags"].append("avx512f")
    less = {"target": "x86-64-v3", "threads": 2, "machine": results["machine"], "models": {
        "fast": record("Fast <net>", 0.002, 0.004, reference=1e-7),
        "slow": record("Slow net", 0.4, 0.1, reference={"error": "no memory"}),
        "broken": {"title": "Broken net", "kind": "small", "goal": 2.0, "error": "it broke"},
    }}  # fmt: skip
    page = f"{report.BEGIN}\nall\n{report.END}\n{report.BEGIN_TARGET}\nancient\n{report.END}\nafter\n"
    filled = report.page_with_target(page, less, results)
    assert filled.startswith(f"{report.BEGIN}\nall\n{report.END}")
    assert "ancient" not in filled
    assert "| Fast <net> | 2.00 ms | 1.00 ms | 2.00 | **2.00** | 1e-06 | 1e-07 |" in filled
    assert "| Slow net | 400 ms | 200 ms | 2.00 | 0.25 | 1e-06 | not compared: {'error': 'no memory'} |" in filled
    assert "| Broken net | it broke |" in filled
    assert "over 2 models: 2.00 times the time with all of the machine, 0.71 times as fast" in filled
    assert "| Fast <net> |" in report.page_with_target((ROOT / "docs/benchmarks.md").read_text("utf-8"), less, results)


def test_a_target_that_is_all_of_its_machine_has_a_table_without_comparison(results: dict[str, Any]) -> None:
    other = {"target": "x86-64-v3", "threads": 2, "machine": results["machine"], "models": {
        "fast": record("Fast <net>", 0.002, 0.004),
        "broken": {"title": "Broken net", "kind": "small", "goal": 2.0, "error": "it broke"},
    }}  # fmt: skip
    full = {**results, "machine": {**results["machine"], "flags": ["avx2", "avx512f"]}}
    lines = list(report.target_lines(other, full))
    assert any(line.startswith("| Fast <net> | 2.00 ms | 4.00 ms | **2.00** (") for line in lines)
    assert "| Broken net | it broke | - | - | - | - |" in lines
    assert not any("all of the machine" in line for line in lines)


def test_a_busy_machine_is_told(results: dict[str, Any]) -> None:
    assert "Other work" not in report.machine_line(results)
    results["machine"]["load"] = 4.2
    assert report.machine_line(results).endswith("Other work ran on the machine at the same time (load 4.2).")


def test_the_page_of_the_project_has_the_marks(results: dict[str, Any]) -> None:
    page = (ROOT / "docs/benchmarks.md").read_text("utf-8")
    assert "| Slow net |" in report.page_with(page, results)
    readme = report.readme_with((ROOT / "README.md").read_text("utf-8"), results)
    assert "| small | 3 | 2 | 1.26 | 0.50 (Slow net) |" in readme


def test_the_chart_is_a_picture_with_a_bar_for_every_model(results: dict[str, Any]) -> None:
    picture = ET.fromstring(chart.ratio_chart(results))
    bars = [each for each in picture.iter() if each.tag.endswith("rect")]
    assert [bar.get("class") for bar in bars] == ["faster", "slower", "faster"]
    texts = [each.text for each in picture.iter() if each.tag.endswith("text")]
    assert "Fast <net>" in texts
    assert "4.00" in texts
    width, height = float(picture.get("width", 0)), float(picture.get("height", 0))
    for bar in bars:
        x, y = float(bar.get("x", -1)), float(bar.get("y", -1))
        assert 0 <= x <= x + float(bar.get("width", 0)) <= width
        assert 0 <= y <= height


def test_a_chart_without_results_is_still_a_picture(results: dict[str, Any]) -> None:
    results["models"] = {}
    assert ET.fromstring(chart.ratio_chart(results)).tag.endswith("svg")


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.5, "2.50 s"), (0.5, "500 ms"), (0.0125, "12.5 ms"), (3e-6, "3.00 us"), (0.0, "0.00 us")]
)
def test_durations_have_three_digits(seconds: float, text: str) -> None:
    assert report.time_text(seconds) == text
