"""Runs one model on onnxruntime and on Sardonyx and compares all outputs; so with the .ort files that each writes of it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnxruntime

import sardonyx

RELATIVE = 1e-4  # of the largest magnitude in the output: errors of long sums do not shrink with the element they land on

_KINDS = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16, "tensor(int64)": np.int64,
    "tensor(int32)": np.int32, "tensor(bool)": np.bool_, "tensor(uint8)": np.uint8, "tensor(int8)": np.int8,
}  # fmt: skip


def random_feeds(session: Any, sizes: dict[str, int], seed: int = 0) -> dict[str, Any]:
    """Random data for every input; a dimension without a number gets its size from `sizes` (by name or input:axis), or 1."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, Any] = {}
    for port in session.get_inputs():
        shape = []
        for axis, dim in enumerate(port.shape):
            given = sizes.get(f"{port.name}:{axis}", sizes.get(str(dim)))
            shape.append(given if given is not None else dim if isinstance(dim, int) else 1)
        dtype = _KINDS[port.type]
        if np.issubdtype(dtype, np.floating):
            feeds[port.name] = np.asarray(rng.normal(size=shape), dtype)
        else:
            feeds[port.name] = rng.integers(0, 2 if dtype is np.bool_ else 8, size=shape).astype(dtype)
    return feeds


def assert_same(actual: Any, expected: Any, where: str, relative: float = RELATIVE) -> None:
    """Floats within a share of the largest, everything else exactly; containers element by element."""
    if isinstance(expected, list):
        assert isinstance(actual, list), where
        assert len(actual) == len(expected), where
        for index, (one, other) in enumerate(zip(actual, expected)):
            assert_same(one, other, f"{where}[{index}]", relative)
        return
    if isinstance(expected, dict):
        assert list(actual) == list(expected), where
        assert_same(np.array(list(actual.values())), np.array(list(expected.values())), where, relative)
        return
    assert isinstance(actual, np.ndarray), where
    assert actual.shape == expected.shape, f"{where}: shape {actual.shape}, onnxruntime gives {expected.shape}"
    assert actual.dtype == expected.dtype, f"{where}: {actual.dtype}, onnxruntime gives {expected.dtype}"
    if np.issubdtype(expected.dtype, np.floating):
        tolerance = relative if expected.dtype != np.float16 else 2e-2
        finite = expected[np.isfinite(expected)]
        scale = float(np.abs(finite).max()) if finite.size else 1.0
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * scale, err_msg=where)
    else:
        np.testing.assert_array_equal(actual, expected, err_msg=where)


def assert_models_agree(
    model: str | Path | bytes,
    feeds: dict[str, Any] | None = None,
    sizes: dict[str, int] | None = None,
    relative: float = RELATIVE,
) -> None:
    """The same answers from both, for given or random feeds, and from the .ort file of either in the other."""
    source = str(model) if isinstance(model, Path) else model
    theirs = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    ours = sardonyx.InferenceSession(source, providers=["CPUExecutionProvider"])
    given = [(port.name, port.type) for port in ours.get_inputs()]
    assert given == [(port.name, port.type) for port in theirs.get_inputs()]
    outputs = [(port.name, port.type) for port in ours.get_outputs()]
    assert outputs == [(port.name, port.type) for port in theirs.get_outputs()]
    if feeds is None:
        feeds = random_feeds(theirs, sizes or {})
    expected = theirs.run(None, feeds)
    actual = ours.run(None, feeds)
    for port, one, other in zip(theirs.get_outputs(), actual, expected):
        assert_same(one, other, port.name, relative)
    _assert_ort_files_agree(source, feeds, expected, relative)


def _assert_ort_files_agree(source: str | bytes, feeds: dict[str, Any], expected: list[Any], relative: float) -> None:
    with TemporaryDirectory() as folder:
        for writer, reader in ((onnxruntime, sardonyx), (sardonyx, onnxruntime)):
            file = f"{folder}/{writer.__name__}.ort"
            options = writer.SessionOptions()
            options.optimized_model_filepath = file
            options.graph_optimization_level = writer.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
            writer.InferenceSession(source, options, providers=["CPUExecutionProvider"])
            actual = reader.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, feeds)
            for number, (one, other) in enumerate(zip(actual, expected, strict=True)):
                assert_same(one, other, f"output {number} of the .ort file of {writer.__name__}", relative)
