"""The ONNX backend suite: node, simple, pytorch-converted and pytorch-operator cases, judged by the suite's own comparison.

Cases in expected_failures.txt must fail: one that starts to pass is reported, so that the list stays true. By default all
optimizations are on and native code computes; `make conformance` runs every level, and the NumPy definitions, too.
"""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from guarded_session import guarded_memory
from sardonyx.backend.backend_rep import OnnxRuntimeBackendRep
from sardonyx.enums import GraphOptimizationLevel
from sardonyx.options import SessionOptions
from sardonyx.provider_names import CPU_PROVIDER, REFERENCE_PROVIDER
from sardonyx.session.inference_session import InferenceSession

WAYS = {level.name: (CPU_PROVIDER, level) for level in GraphOptimizationLevel}
WAYS["reference"] = (REFERENCE_PROVIDER, GraphOptimizationLevel.ORT_DISABLE_ALL)
DEFAULT = GraphOptimizationLevel.ORT_ENABLE_ALL.name
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


@cache
def cases() -> dict[str, Any]:
    """All cases by `kind/name`."""
    with warnings.catch_warnings():  # the suite computes its expected outputs as it is imported, infinities included
        warnings.simplefilter("ignore")
        return {f"{kind}/{case.name}": case for kind in KINDS for case in load_model_tests(kind=kind)}


def expected_failures() -> dict[str, str]:
    """Case -> reason, from lines `kind/name: reason`."""
    text = (Path(__file__).parent / "expected_failures.txt").read_text()
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {name: reason.strip() for name, _, reason in (line.partition(":") for line in lines)}


def as_array(item: Any) -> Any:
    """Data of a case as the runner hands it to a backend."""
    return onnx.numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item


def load_proto(path: Path, type_proto: Any) -> Any:
    """One `input_0.pb` or `output_0.pb`."""
    content = path.read_bytes()
    if type_proto.HasField("sequence_type"):
        return onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    if type_proto.HasField("optional_type"):
        return onnx.numpy_helper.to_optional(onnx.OptionalProto.FromString(content))
    return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(content))


def data_sets(case: Any, model: Any) -> list[tuple[list[Any], list[Any]]]:
    """The inputs and expected outputs of a case."""
    if case.data_sets is not None:
        return [([as_array(x) for x in inputs], [as_array(y) for y in outputs]) for inputs, outputs in case.data_sets]
    sets = []
    for folder in sorted(Path(case.model_dir).glob("test_data_set*")):
        inputs = [
            load_proto(folder / f"input_{i}.pb", model.graph.input[i].type) for i in range(len(list(folder.glob("input_*.pb"))))
        ]
        outputs = [
            load_proto(folder / f"output_{i}.pb", model.graph.output[i].type)
            for i in range(len(list(folder.glob("output_*.pb"))))
        ]
        sets.append((inputs, outputs))
    return sets


def run_case(case: Any, way: str) -> None:
    """Run a case on Sardonyx and compare as the suite does."""
    model = case.model if case.model is not None else onnx.load(Path(case.model_dir) / "model.onnx")
    provider, level = WAYS[way]
    options = SessionOptions()
    options.graph_optimization_level = level
    prepared = OnnxRuntimeBackendRep(InferenceSession(model, options, providers=[provider]))
    for inputs, expected in data_sets(case, model):
        outputs = list(prepared.run(inputs))
        Runner.assert_similar_outputs(expected, outputs, rtol=case.rtol, atol=case.atol, model_dir=case.model_dir)
        for output, reference in zip(outputs, expected):
            if isinstance(reference, np.ndarray) and reference.dtype != object:
                assert output.dtype == reference.dtype


def run_guarded(case: Any, at_start: bool) -> None:
    """Run a case with all memory of native code guarded; the answers are checked elsewhere."""
    model = case.model if case.model is not None else onnx.load(Path(case.model_dir) / "model.onnx")
    with guarded_memory(at_start) as guard:
        prepared = OnnxRuntimeBackendRep(InferenceSession(model, providers=[CPU_PROVIDER]))
        for inputs, _ in data_sets(case, model):
            plain = [isinstance(each, np.ndarray) and each.dtype != object for each in inputs]
            prepared.run([guard.copy(each, read_only=True) if fits else each for each, fits in zip(inputs, plain)])


@pytest.mark.slow
@pytest.mark.parametrize("at_start", [False, True], ids=["end", "start"])
@pytest.mark.parametrize("name", cases())
def test_cases_stay_in_their_memory(name: str, at_start: bool) -> None:
    if name not in expected_failures():
        run_guarded(cases()[name], at_start)


@pytest.mark.parametrize("way", [DEFAULT, *(pytest.param(way, marks=pytest.mark.slow) for way in WAYS if way != DEFAULT)])
@pytest.mark.parametrize("name", cases())
def test_case_of_the_onnx_backend_suite(name: str, way: str) -> None:
    reason = expected_failures().get(name)
    if reason is None:
        run_case(cases()[name], way)
        return
    assert reason, f"{name} stands in expected_failures.txt without a reason"
    with pytest.raises(Exception):  # noqa: B017, PT011 - any failure is the expected one
        run_case(cases()[name], way)


def test_the_suite_is_whole() -> None:
    assert len(cases()) == 2024
    assert set(expected_failures()) <= set(cases())
