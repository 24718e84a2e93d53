"""Run onnxruntime's own Python tests on onnxruntime and on Sardonyx, and compare test by test.

    python tools/run_onnxruntime_tests.py CHECKOUT [FILE ...] [--folder quantization|transformers] [--json RESULTS] [--minimum 95]

The tests are those that lie in onnxruntime/test/python, or in a folder of it that `--folder` names.

CHECKOUT is a checkout of onnxruntime's public repository. Needs onnxruntime, parameterized, packaging and an onnx whose IR
version that onnxruntime reads (1.21 for onnxruntime 1.31); torch is used by some tests if it is there. Each file runs in a
process of its own, on a copy of the tests and their data, as onnxruntime's build lays them out. A test that crashes the
process or exceeds the time counts as failed, and the file goes on behind it. Prints the table that
docs/onnxruntime-compatibility.md shows; exits 1 if fewer than the minimum of the tests that pass on onnxruntime pass on
Sardonyx.
"""

# ruff: noqa: N802 - unittest names its methods

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TextIO

ENGINES: Final = ("onnxruntime", "sardonyx")
PATTERNS: Final = {
    "": ("onnxruntime_test_*.py", "test_pep561_*.py"),
    "quantization": ("test_*.py",),
    "transformers": ("test_*.py",),
}
LEFT_OUT: Final = {
    "onnxruntime_test_collective.py": "needs MPI and several GPUs",
    "onnxruntime_test_distributed.py": "needs MPI and several GPUs",
    "onnxruntime_test_python_azure.py": "needs a build with the Azure execution provider's endpoints",
    "onnxruntime_test_python_cudagraph.py": "needs a GPU",
    "onnxruntime_test_python_dmlgraph.py": "needs a GPU",
    "onnxruntime_test_python_nv_tensorrt_rtx_ep_tests.py": "needs a GPU",
    "onnxruntime_test_python_keras.py": "needs keras and onnxmltools of old releases",
    "onnxruntime_test_python_symbolic_shape_infer.py": "tests onnxruntime.tools",
    "test_op_matmulnbits_prepacked_cuda.py": "needs a GPU",
    # onnxruntime/test/python/transformers
    **dict.fromkeys(
        (
            "test_cuda_plugin_ep.py", "test_gqa.py", "test_group_norm.py", "test_mha_flash_attn.py", "test_moe_cuda.py",
            "test_paged_attention.py", "test_parity_decoder_attention.py", "test_parity_huggingface_gpt_attention.py",
            "test_parity_neox_attention.py", "test_qmoe_cuda.py", "test_qmoe_fp4_cuda.py", "test_qmoe_fp8_cuda.py",
            "test_qmoe_nvfp4_cuda.py", "test_qmoe_wfp4afp8_cuda.py", "test_sparse_attention.py",
        ),
        "needs a GPU",
    ),
    "test_convert_tf_models_to_pytorch.py": "tests a converter of TensorFlow's checkpoints, which it replaces by mocks",
    **dict.fromkeys(
        (
            "test_generation.py", "test_gpt2_benchmark.py", "test_gpt2_to_onnx.py", "test_optimizer_huggingface_bert.py",
            "test_optimizer_stable_diffusion.py", "test_profiler.py", "test_shape_infer_helper.py",
            "test_whisper_timestamp_processor.py",
        ),
        "exports models that it loads from Hugging Face's hub",
    ),
}  # fmt: skip
PASSED: Final = "passed"

Outcomes = dict[str, tuple[str, str]]  # test -> outcome, last line of the failure
_Failure = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]


class _Recorder(unittest.TestResult):
    """Writes a line when a test starts and when it ends, so that nothing is lost if the process dies."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.stream_ = stream
        self.worst: tuple[str, str] = (PASSED, "")

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.worst = (PASSED, "")
        self._write(_name(test), "started", "")

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self._write(_name(test), *self.worst)

    def addFailure(self, test: unittest.TestCase, err: _Failure) -> None:
        self.worst = ("failed", _last_line(err))

    def addError(self, test: unittest.TestCase, err: _Failure) -> None:
        self.worst = ("failed", _last_line(err))
        if not isinstance(test, unittest.TestCase) or not hasattr(test, "_testMethodName"):  # setUpClass and the like
            self._write(str(test), *self.worst)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: _Failure | None) -> None:
        if err is not None:
            self.worst = ("failed", _last_line(err))

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.worst = ("skipped", reason)

    def addExpectedFailure(self, test: unittest.TestCase, err: _Failure) -> None:
        self.worst = ("failed", _last_line(err))

    def _write(self, name: str, outcome: str, detail: str) -> None:
        self.stream_.write(json.dumps([name, outcome, detail]) + "\n")
        self.stream_.flush()


def _name(test: unittest.TestCase) -> str:
    return ".".join(test.id().split(".")[-2:])


def _last_line(err: _Failure) -> str:
    lines = str(err[1]).strip().splitlines() or [""]
    return f"{type(err[1]).__name__}: {' '.join(lines)}"[:300]


def run_file(path: Path, engine: str, results: Path, done: Sequence[str]) -> int:
    """In a process of its own: run the tests of one file that are not done."""
    if engine == "sardonyx":
        import sardonyx  # lazy: onnxruntime's run must not know it

        sardonyx.install_as_onnxruntime()
    sys.path.insert(0, str(path.parent))
    sys.argv = [str(path)]
    with results.open("a") as stream:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        try:
            spec.loader.exec_module(module)
        except BaseException as error:  # whatever it is, the file cannot be imported
            stream.write(json.dumps(["(import)", "failed", f"{type(error).__name__}: {error}"[:300]]) + "\n")
            return 0
        left = unittest.TestSuite(
            test for test in _tests(unittest.defaultTestLoader.loadTestsFromModule(module)) if _name(test) not in done
        )
        left.run(_Recorder(stream))
    return 0


def _tests(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from _tests(each)
        else:
            yield each


def outcomes_of(path: Path, engine: str, timeout: float) -> Outcomes:
    """What became of each test of a file; processes that die or hang are started again behind the test that did it."""
    outcomes: Outcomes = {}
    workplace = path.parents[1] if path.parent.name == "transformers" else path.parent  # from where tests name their data
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    while True:
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder) / "results"
            results.touch()
            done = Path(folder) / "done"
            done.write_text(json.dumps(list(outcomes)))
            command = [sys.executable, __file__, "--run-file", str(path), engine, str(results), str(done)]
            end = "the process died"
            with open(os.devnull, "w") as nowhere:
                try:
                    code = subprocess.run(
                        command, cwd=workplace, env=environment, timeout=timeout, stdout=nowhere, stderr=nowhere, check=False
                    ).returncode
                except subprocess.TimeoutExpired:
                    code, end = -1, f"not done after {timeout:.0f} s"
            started = None
            for name, outcome, detail in map(json.loads, results.read_text().splitlines()):
                if outcome == "started":
                    started = name
                else:
                    started = None
                    outcomes[name] = (outcome, detail)
        if code == 0 or started is None:
            return outcomes
        outcomes[started] = ("failed", f"{end} ({code})")


def laid_out(checkout: Path, inner: str, folder: Path) -> Path:
    """A copy of the tests (those of an inner folder, in a folder of that name) and of their data, side by side."""
    source = checkout / "onnxruntime/test"
    if not (source / "python" / inner).is_dir():
        raise SystemExit(f"{checkout} is no checkout of onnxruntime: it has no onnxruntime/test/python/{inner}")
    if (source / "testdata").is_dir():  # some checkouts lack it: tests that need it then pass on neither
        shutil.copytree(source / "testdata", folder / "testdata", symlinks=True)
    (folder / inner).mkdir(exist_ok=True)
    if (source / "python" / inner / "test_data").is_dir():
        shutil.copytree(source / "python" / inner / "test_data", folder / inner / "test_data")
    for path in (source / "python" / inner).glob("*.py"):
        shutil.copy(path, folder / inner)
    return folder / inner


def report(results: Mapping[str, Mapping[str, Outcomes]], minimum: float) -> int:
    """Print the table and the regressions; 1 if there are too many."""
    print("| file | pass on onnxruntime | of those on Sardonyx |\n|---|---|---|")
    regressions: list[str] = []
    total = same = 0
    for file, engines in results.items():
        theirs, ours = (engines.get(engine, {}) for engine in ENGINES)
        expected = [name for name, (outcome, _) in theirs.items() if outcome == PASSED]
        lost = [name for name in expected if ours.get(name, ("missing", ""))[0] != PASSED]
        total, same = total + len(expected), same + len(expected) - len(lost)
        if theirs:
            print(f"| `{file}` | {len(expected)} | {len(expected) - len(lost)} |")
        stopped = ours.get("(import)", ("missing", "the test did not run"))
        regressions += [f"{file}: {name}: {': '.join(ours.get(name, stopped))}" for name in lost]
    share = 100 * same / max(total, 1)
    print(f"| together | {total} | {same} ({share:.1f} %) |\n")
    for file, reason in LEFT_OUT.items():
        print(f"left out: {file}: {reason}")
    print(*(f"regression: {each}" for each in regressions), sep="\n")
    return 0 if total and share >= minimum else 1


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--run-file"]:
        file, engine, written, done = arguments[1:]
        return run_file(Path(file), engine, Path(written), json.loads(Path(done).read_text()))
    parser = argparse.ArgumentParser(description="onnxruntime's own Python tests, on onnxruntime and on Sardonyx")
    parser.add_argument("checkout", type=Path, help="a checkout of onnxruntime's repository")
    parser.add_argument("files", nargs="*", help="names of test files; default: all but those left out")
    parser.add_argument("--folder", choices=sorted(PATTERNS), default="", help="of the tests (default: those in no folder)")
    parser.add_argument(
        "--engines", nargs="+", choices=ENGINES, default=ENGINES, help="run these only; the rest comes from --json"
    )
    parser.add_argument("--json", type=Path, help="write every outcome to this file, and read those of other engines from it")
    parser.add_argument("--minimum", type=float, default=95.0, help="per cent that must pass (default 95)")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a file may take, before it is taken up again")
    given = parser.parse_args(arguments)
    known = len(given.engines) < len(ENGINES) and given.json is not None and given.json.exists()
    results: dict[str, Any] = json.loads(given.json.read_text()) if known else {}
    for engine in given.engines:
        with tempfile.TemporaryDirectory() as folder:
            tests = laid_out(given.checkout, given.folder, Path(folder).resolve())
            files = [
                path for pattern in PATTERNS[given.folder] for path in sorted(tests.glob(pattern)) if path.name not in LEFT_OUT
            ]
            for path in [tests / name for name in given.files] or files:
                print(f"{engine}: {path.name}", file=sys.stderr)
                results.setdefault(path.name, {})[engine] = outcomes_of(path, engine, given.timeout)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))
    return report(results, given.minimum)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
