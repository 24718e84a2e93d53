"""The tool that runs ONNX Runtime's own tests: engines in processes of their own, crashes and hangs survived, compared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parent.parent / "tools/run_onnxruntime_tests.py"
TESTS = """
import os, time, unittest
import onnxruntime
from helper import where

OURS = "sardonyx" in onnxruntime.__file__

class TestBoth(unittest.TestCase):
    def test_passes(self):
        self.assertTrue(os.path.exists("testdata/model.onnx"))
        self.assertEqual(onnxruntime.__version__, "1.31.1")
        open("testdata/written", "x").close()  # a copy: the next engine finds it as it was

    def test_fails(self):
        self.assertFalse(OURS, "not here")

    def test_kills(self):
        if OURS: os._exit(3)

    def test_hangs(self):
        if OURS: time.sleep(600)

    def test_subtests(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertNotEqual(OURS * number, 1)

    def test_zz_goes_on(self):
        pass

    @unittest.skip("no such device")
    def test_skipped(self):
        pass
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """As much of a checkout as the tool needs."""
    tests = tmp_path / "onnxruntime/test/python"
    tests.mkdir(parents=True)
    (tests / "helper.py").write_text("where = __file__\n")
    (tests / "onnxruntime_test_python.py").write_text(TESTS)
    (tests / "onnxruntime_test_python_cudagraph.py").write_text("raise SystemExit('left out')\n")
    data = tmp_path / "onnxruntime/test/testdata"
    data.mkdir()
    (data / "model.onnx").write_bytes(b"")
    return tmp_path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(TOOL), *arguments], capture_output=True, text=True, timeout=300, check=False)


def test_both_engines_are_compared_test_by_test(checkout: Path) -> None:
    result = run(str(checkout), "--timeout", "15")
    assert result.returncode == 1
    assert "| together | 6 | 2 (33.3 %) |" in result.stdout
    assert "left out: onnxruntime_test_python_cudagraph.py: needs a GPU" in result.stdout
    lines = [line for line in result.stdout.splitlines() if line.startswith("regression: ")]
    place = "regression: onnxruntime_test_python.py: TestBoth."
    assert [line.partition(": failed: ")[0] for line in lines] == [
        f"{place}{name}" for name in ("test_fails", "test_hangs", "test_kills", "test_subtests")
    ]
    assert lines[0].endswith("AssertionError: True is not false : not here")
    assert lines[1].endswith("not done after 15 s (-1)")
    assert lines[2].endswith("the process died (3)")
    assert not (checkout / "onnxruntime/test/testdata/written").exists()


def test_the_minimum_decides(checkout: Path) -> None:
    tests = checkout / "onnxruntime/test/python/onnxruntime_test_python.py"
    tests.write_text(TESTS.replace("time.sleep(600)", "pass"))
    assert run(str(checkout), "--minimum", "50").returncode == 0


def test_another_folder_is_refused(tmp_path: Path) -> None:
    result = run(str(tmp_path))
    assert result.returncode == 1
    assert "is no checkout of onnxruntime" in result.stderr
