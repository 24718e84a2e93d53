"""Run sklearn-onnx's test suite on Sardonyx and on onnxruntime, and compare test by test.

    python tools/run_sklearn_onnx_tests.py CHECKOUT [-k EXPRESSION] [--all] [--json RESULTS] [--jobs 1] [--timeout 300]

CHECKOUT is a checkout of sklearn-onnx's public repository, whose own skl2onnx is used. Needs onnxruntime, onnx, scikit-learn,
pandas, packaging and pytest; onnxmltools, lightgbm and xgboost for the second folder of tests. The random numbers of each test
begin at the same seed on both engines. A test that kills its process or is silent for too long has failed, and the others go on.
onnxruntime is asked about the tests that do not pass on Sardonyx; with --all about every one. Prints those that it passes, and
exits 1 if there are any but those that are known to be about onnxruntime itself.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TextIO

FOLDERS: Final = ("tests", "tests_onnxmltools")
GROUPS: Final = 8  # processes one after the other, or `--jobs` at a time
PASSED: Final = "passed"
_IMPORT: Final = " (import)"  # behind the name of a file that cannot be imported
_VECTORIZER: Final = "tests/test_sklearn_dict_vectorizer_converter.py::TestSklearnDictVectorizerConverter"
KNOWN: Final = {  # test -> why onnxruntime alone can pass it
    f"{_VECTORIZER}::test_model_dict_vectorizer_pipeline_int": (
        "onnxruntime refuses to be fed a map to int64, and the test takes that for success"
    ),
    "tests/test_algebra_complex.py::TestAlgebraComplex::test_complex": (
        "both refuse to add complex numbers; the test asks for onnxruntime's wording"
    ),
    "tests/test_sklearn_local_outlier_factor.py::TestSklearnLocalOutlierForest::test_local_outlier_factor_cdist_p3": (
        "both refuse CDist's metric minkowski; the test asks for onnxruntime's wording"
    ),
}

Outcomes = dict[str, tuple[str, str]]  # test -> outcome, last line of the failure


class _Recorder:
    """A plugin of pytest that writes a line when a test starts and when it ends, so that nothing is lost if the process dies."""

    def __init__(self, stream: TextIO, wanted: frozenset[str], done: frozenset[str]) -> None:
        self.stream = stream
        self.wanted = wanted
        self.done = done
        self.worst = (PASSED, "")

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if self._is_wanted(item.nodeid) and item.nodeid not in self.done]

    def _is_wanted(self, nodeid: str) -> bool:
        return nodeid in self.wanted or nodeid.partition("::")[0] in self.wanted

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._write(f"{report.nodeid}{_IMPORT}", "failed", _last_line(report))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.worst = (PASSED, "")
        self._write(nodeid, "started", "")

    def pytest_runtest_setup(self, item: Any) -> None:
        import numpy as np

        random.seed(0)
        np.random.seed(0)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.outcome != PASSED:
            self.worst = (report.outcome, _last_line(report))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(nodeid, *self.worst)

    def _write(self, name: str, outcome: str, detail: str) -> None:
        self.stream.write(json.dumps([name, outcome, detail]) + "\n")
        self.stream.flush()


def _last_line(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    return " ".join(text.split())[:300]


def run_tests(engine: str, checkout: Path, wanted: Sequence[str], expression: str, results: Path, done: Sequence[str]) -> int:
    """In a process of its own: run tests, given by their names or those of their files, that are not done."""
    if engine == "sardonyx":
        import sardonyx

        sardonyx.install_as_onnxruntime()
    import pytest

    sys.path.insert(0, str(checkout))
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:terminalreporter", f"--rootdir={checkout}", "-c", os.devnull]
    with results.open("a") as stream:
        paths = sorted({str(checkout / name.partition("::")[0]) for name in wanted})
        recorder = _Recorder(stream, frozenset(wanted), frozenset(done))
        code = pytest.main([*options, "-k", expression, *paths], plugins=[recorder])
    return 0 if code in (0, 1, 2, 5) else int(code)  # done, failures, errors at import, nothing to run


def outcomes_of(engine: str, checkout: Path, wanted: Sequence[str], expression: str, timeout: float) -> Outcomes:
    """What became of each test; processes that die or hang are started again behind the test that did it."""
    outcomes: Outcomes = {}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    while True:
        with tempfile.TemporaryDirectory() as folder:
            job, results, errors = (Path(folder) / name for name in ("job", "results", "errors"))
            results.touch()
            job.write_text(json.dumps([engine, str(checkout), list(wanted), expression, str(results), list(outcomes)]))
            command = [sys.executable, __file__, "--run-tests", str(job)]
            with errors.open("w") as said:
                process = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said)
                silent = not _ends(process, results, timeout)
            started = None
            for name, outcome, detail in map(json.loads, results.read_text().splitlines()):
                started = name if outcome == "started" else None
                if started is None:
                    outcomes[name] = (outcome, detail)
            if process.returncode == 0:
                return outcomes
            if started is None:
                raise SystemExit(f"the tests cannot be run on {engine}:\n{errors.read_text()[-4000:]}")
        outcomes[started] = ("failed", f"silent for {timeout:.0f} s" if silent else f"the process died ({process.returncode})")


def _ends(process: subprocess.Popen[bytes], results: Path, timeout: float) -> bool:
    """Wait for a process; it is killed if it has written nothing for a while."""
    size, since = 0, time.monotonic()
    while process.poll() is None:
        now = results.stat().st_size
        if now != size:
            size, since = now, time.monotonic()
        if time.monotonic() - since > timeout:
            process.kill()
            process.wait()
            return False
        time.sleep(0.2)
    return True


def report(ours: Outcomes, theirs: Outcomes) -> int:
    """Print figures and regressions; 1 if there are regressions that are not known."""
    broken = {name.removesuffix(_IMPORT): reason for name, (_, reason) in ours.items() if name.endswith(_IMPORT)}
    lost = [name for name, (outcome, _) in theirs.items() if outcome == PASSED and ours.get(name, ("", ""))[0] != PASSED]
    for name in lost:
        outcome, reason = ours.get(name, ("failed", broken.get(name.partition("::")[0], "the test did not run")))
        print(f"known: {name}: {KNOWN[name]}" if name in KNOWN else f"regression: {name}: {outcome}: {reason}")
    for name, (outcome, _) in ours.items():
        if outcome == PASSED and theirs.get(name, ("", ""))[0] == "failed":
            print(f"only on Sardonyx: {name}")
    counts = collections.Counter(outcome for outcome, _ in ours.values())
    print("on Sardonyx:", ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    print(f"{len(lost)} pass on onnxruntime alone, {len(lost) - sum(name in KNOWN for name in lost)} of them for no known reason")
    return 1 if set(lost) - set(KNOWN) or not counts[PASSED] else 0


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--run-tests"]:
        engine, checkout, wanted, expression, written, done = json.loads(Path(arguments[1]).read_text())
        return run_tests(engine, Path(checkout), wanted, expression, Path(written), done)
    parser = argparse.ArgumentParser(description="sklearn-onnx's test suite, on Sardonyx and on onnxruntime")
    parser.add_argument("checkout", type=Path, help="a checkout of sklearn-onnx's repository")
    parser.add_argument("-k", default="", dest="expression", help="only tests whose name fits, as pytest's -k")
    parser.add_argument("--all", action="store_true", help="run every test on onnxruntime, too")
    parser.add_argument("--json", type=Path, help="write every outcome to this file")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (default 1)")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a test may take (default 300)")
    given = parser.parse_args(arguments)
    checkout = given.checkout.resolve()
    files = [f"{path.parent.name}/{path.name}" for folder in FOLDERS for path in sorted((checkout / folder).glob("test_*.py"))]
    if not files:
        raise SystemExit(f"{checkout} is no checkout of sklearn-onnx: it has no tests/test_*.py")

    def run(engine: str, wanted: Sequence[str]) -> Outcomes:
        groups = [wanted[start::GROUPS] for start in range(GROUPS) if wanted[start::GROUPS]]
        with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
            runs = [pool.submit(outcomes_of, engine, checkout, group, given.expression, given.timeout) for group in groups]
            return {name: outcome for run in runs for name, outcome in run.result().items()}

    ours = run("sardonyx", files)
    open_questions = [name.removesuffix(_IMPORT) for name, (outcome, _) in ours.items() if outcome != PASSED]
    theirs = run("onnxruntime", files if given.all else open_questions)
    if given.json:
        given.json.write_text(json.dumps({"sardonyx": ours, "onnxruntime": theirs}, indent=1))
    return report(ours, theirs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
