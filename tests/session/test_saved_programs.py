"""Programs that come back to Python are saved whole: another process opens them without the compiler, and has equal bits."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from saved_models import MODELS, branches, loop
from session_agreement import REFERENCE

COMPILER = ("llvmlite", "sardonyx.passes", "sardonyx.lower", "sardonyx.compile", "sardonyx.analysis", "sardonyx.kernel")
PROGRAM = f"""
import pickle, sys
import sardonyx
work = pickle.load(sys.stdin.buffer)
results = {{}}
for path, runs in work.items():
    session = sardonyx.InferenceSession(path)
    results[path] = [session.run(None, feeds) for feeds in runs]
found = [name for name in sys.modules if name.startswith({COMPILER!r}) and name != "sardonyx.compile_options"]
operators = [name for name in sys.modules if name.startswith("sardonyx.ops.")]
sys.stdout.buffer.write(pickle.dumps((results, found, operators)))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def in_another_process(work: dict[str, list[Any]]) -> tuple[dict[str, Any], list[str], list[str]]:
    """The results of runs by model file, the modules of the compiler that were imported, and those of operators."""
    given, command = pickle.dumps(work), [sys.executable, "-c", PROGRAM]
    made = subprocess.run(command, input=given, capture_output=True, env=os.environ, check=False)
    assert made.returncode == 0, made.stderr.decode()
    results: tuple[dict[str, Any], list[str], list[str]] = pickle.loads(made.stdout)
    return results


def assert_equal_bits(actual: Any, expected: Any) -> None:
    assert type(actual) is type(expected)
    if isinstance(expected, list):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected):
            assert_equal_bits(one, other)
    elif isinstance(expected, np.ndarray):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        assert actual.tolist() == expected.tolist() if expected.dtype == object else actual.tobytes() == expected.tobytes()
    else:
        assert actual == expected


def write(folder: Path, name: str, content: bytes) -> str:
    path = folder / f"{name}.onnx"
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize("name", MODELS)
def test_another_process_needs_no_compiler_and_has_equal_bits(name: str, folder: Path) -> None:
    content, runs = MODELS[name]()
    path = write(folder, name, content)
    session = sardonyx.InferenceSession(path)
    expected = [session.run(None, feeds) for feeds in runs]
    reference = sardonyx.InferenceSession(path, providers=REFERENCE)
    for computed, feeds in zip(expected, runs):
        for actual, wanted in zip(computed, reference.run(None, feeds)):
            if isinstance(wanted, np.ndarray) and wanted.dtype != object:
                np.testing.assert_allclose(actual.astype(np.float64), wanted.astype(np.float64), rtol=1e-5, atol=1e-6)
    results, compiler, _ = in_another_process({path: runs})
    assert compiler == []
    assert_equal_bits(results[path], expected)


def test_of_the_operators_only_those_that_python_computes_are_imported(folder: Path) -> None:
    content, runs = MODELS["forest"]()
    path = write(folder, "forest", content)
    for feeds in runs:
        sardonyx.InferenceSession(path).run(None, feeds)
    _, _, operators = in_another_process({path: runs})
    families = {name.split(".")[2] for name in operators if name.count(".") == 3}
    assert families == {"ml"}


def test_a_branch_that_was_never_taken_is_compiled_then_and_saved_with_the_other_one(folder: Path) -> None:
    content, (taken, other) = branches()
    path = write(folder, "branches", content)
    first = sardonyx.InferenceSession(path).run(None, taken)
    results, compiler, _ = in_another_process({path: [taken]})
    assert compiler == []
    assert_equal_bits(results[path][0], first)
    results, compiler, _ = in_another_process({path: [other, taken]})
    assert compiler != []
    assert_equal_bits(results[path][1], first)
    again, compiler, _ = in_another_process({path: [taken, other]})
    assert compiler == []
    assert_equal_bits(again[path], results[path][::-1])


def test_the_first_cases_have_programs_and_later_ones_the_program_for_all(folder: Path) -> None:
    content, _ = MODELS["host_steps"]()
    path = write(folder, "m", content)
    random = np.random.default_rng(0)
    runs = [{"x": random.normal(size=(n, 4)).astype(np.float32)} for n in (1, 2, 3, 4, 5, 6)]
    session = sardonyx.InferenceSession(path)
    expected = [session.run(None, feeds) for feeds in runs]
    results, compiler, _ = in_another_process({path: runs[::-1]})
    assert compiler == []
    assert_equal_bits(results[path], expected[::-1])


def test_other_values_than_outputs_are_fetched_from_the_full_model(folder: Path) -> None:
    content, (feeds, _) = loop()
    path = write(folder, "loop", content)
    sardonyx.InferenceSession(path).run(None, feeds)
    session: Any = sardonyx.InferenceSession(path)
    assert type(session._opened.program).__name__ == "SavedSpecialisations"
    np.testing.assert_allclose(session.run(["e"], feeds)[0], np.exp(feeds["x"]), rtol=1e-6)


def test_bad_data_is_named_by_a_saved_program_as_by_a_compiled_one(folder: Path) -> None:
    content, (feeds, _) = MODELS["sequences"]()
    path = write(folder, "sequences", content)
    bad = {**feeds, "s": [np.ones((2, 2), np.float32)]}
    sardonyx.InferenceSession(path).run(None, feeds)
    said = []
    for _ in range(2):
        with pytest.raises(sardonyx.SardonyxError) as caught:
            sardonyx.InferenceSession(path).run(None, bad)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert "ConcatFromSequence" in said[0]


@pytest.mark.parametrize("name", ["branches", "loop", "forest"])
def test_a_dropped_session_leaves_nothing_to_the_garbage_collector(name: str, folder: Path) -> None:
    content, (feeds, *_) = MODELS[name]()
    path = write(folder, name, content)
    sardonyx.InferenceSession(path).run(None, feeds)
    session: Any = sardonyx.InferenceSession(path)
    session.run(None, feeds)
    program = session._opened.program
    assert program._full is None
    # A model that is native as a whole has no specialisations.
    left = [weakref.ref(each) for each in (program, program._file, *getattr(program, "_others", {}).values())]
    gc.collect()
    gc.disable()
    try:
        del session, program
        assert [ref() for ref in left] == [None] * len(left)
    finally:
        gc.enable()


def test_a_damaged_body_is_compiled_again(folder: Path) -> None:
    content, runs = MODELS["branches"]()
    path = write(folder, "branches", content)
    session = sardonyx.InferenceSession(path)
    expected = [session.run(None, feeds) for feeds in runs]
    for file in (folder / "cache").glob("*.program"):
        damaged = bytearray(file.read_bytes())
        nested = damaged.rfind(b"\x89SDX\r\n\x1a\n")
        if nested > 0:
            damaged[nested + 200] ^= 0xFF
            file.write_bytes(damaged)
    for _ in range(2):
        session = sardonyx.InferenceSession(path)
        assert_equal_bits([session.run(None, feeds) for feeds in runs], expected)
    results, compiler, _ = in_another_process({path: runs})
    assert compiler == []
    assert_equal_bits(results[path], expected)
