"""Candidates that are timed while a model is compiled: when, what for, and what becomes of the winner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

import sardonyx as sx
from conv_support import blocked, model, numbers
from native_support import in_order, run_native, run_reference
from sardonyx.codegen.library import KernelLibrary
from sardonyx.compile import step_choice
from sardonyx.compile.assemble import NativeSettings, compile_graph, library
from sardonyx.compile.compiler import native_settings
from sardonyx.compile.step_trial import StepTrial, bytes_of
from sardonyx.compile_options import CompileOptions
from sardonyx.errors import InvalidArgument
from sardonyx.ir.tensor import Array
from sardonyx.kernel.conv.conv import ConvKernel
from sardonyx.kernel.conv.winograd import WinogradKernel
from sardonyx.lower.conv import conv_choice
from sardonyx.options import TIME_CANDIDATES_KEY
from sardonyx.program.steps import KernelStep
from sardonyx.target.levels import generic


def layer(batch: int | str = 1) -> tuple[ModelProto, dict[str, Array]]:
    """A convolution for which several algorithms could be used."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)]
    content = model(nodes, {"x": (batch, 32, 12, 12)}, {"w": numbers(1, 32, 32, 3, 3)})
    return content, {"x": numbers(2, 1, 32, 12, 12)}


@pytest.fixture(name="close")
def _close(monkeypatch: pytest.MonkeyPatch) -> None:
    """All algorithms are thought to take about as long, Winograd's with large tiles the least."""
    monkeypatch.setattr(conv_choice, "estimates", lambda task: {"direct": 110_000, "winograd2": 105_000, "winograd4": 100_000})


class FakeTimes:
    """Stands for the clock: how long a kernel of some class takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.winner = "ConvKernel"
        self.raced = 0
        monkeypatch.setattr(step_choice, "run_cold", self._run)
        self._kinds: dict[int, str] = {}
        original = StepTrial.__init__

        def watched(trial: StepTrial, steps: Any, *rest: Any, **choices: Any) -> None:
            kernel = steps[-1].kernel
            self._kinds[id(trial)] = type(kernel).__name__ + str(getattr(kernel, "tile", ""))
            original(trial, steps, *rest, **choices)

        monkeypatch.setattr(StepTrial, "__init__", watched)

    def _run(self, trial: StepTrial, target: Any) -> int:
        trial.run()  # it must be possible
        self.raced += 1
        return 50 if self._kinds[id(trial)] == self.winner else 100


@pytest.fixture(name="times")
def _times(monkeypatch: pytest.MonkeyPatch) -> FakeTimes:
    return FakeTimes(monkeypatch)


def kind_of(content: ModelProto, settings: NativeSettings) -> str:
    graph, _ = blocked(content)
    compiled = compile_graph(graph, graph.outputs, in_order(graph), in_order, settings)
    kernels = [step.kernel for step in compiled.lowered.steps if isinstance(step, KernelStep)]
    (kernel,) = [each for each in kernels if isinstance(each, ConvKernel | WinogradKernel)]
    return "ConvKernel" if isinstance(kernel, ConvKernel) else f"WinogradKernel{kernel.tile}"


def timed(folder: Path, **choices: Any) -> NativeSettings:
    folder.chmod(0o700)
    return NativeSettings(cache_folder=str(folder), workers=1, times_candidates=True, **choices)


@pytest.mark.usefixtures("close")
@pytest.mark.parametrize("winner", ["ConvKernel", "WinogradKernel2", "WinogradKernel4"])
def test_the_winner_is_compiled_and_remembered(tmp_path: Path, times: FakeTimes, winner: str) -> None:
    times.winner = winner
    content, feeds = layer()
    assert kind_of(content, timed(tmp_path)) == winner
    raced, times.winner = times.raced, "none"
    assert kind_of(content, timed(tmp_path)) == winner
    assert times.raced == raced > 0
    graph, _ = blocked(content)
    compiled = compile_graph(graph, graph.outputs, in_order(graph), in_order, timed(tmp_path))
    (result,) = run_native(graph, compiled, feeds)
    np.testing.assert_allclose(result, run_reference(content.SerializeToString(), feeds)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("close")
def test_sizes_that_are_not_known_are_the_usual_ones(tmp_path: Path, times: FakeTimes) -> None:
    assert kind_of(layer("batch")[0], timed(tmp_path)) == "ConvKernel"
    assert times.raced


@pytest.mark.usefixtures("close")
def test_an_algorithm_that_is_not_exact_enough_is_no_candidate(
    tmp_path: Path, times: FakeTimes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conv_choice, "relative_error", lambda kernels, tile, strides: 1.0 if tile == 4 else 1e-7)
    times.winner = "WinogradKernel4"
    assert kind_of(layer()[0], timed(tmp_path)) == "WinogradKernel2"


@pytest.mark.usefixtures("close")
def test_estimates_decide_for_other_machines_without_a_cache_and_by_default(tmp_path: Path, times: FakeTimes) -> None:
    content, _ = layer()
    elsewhere = KernelLibrary(library(None).target, None, loads=False)
    assert timed(tmp_path, kernels=elsewhere).chooser() is None
    assert NativeSettings(times_candidates=True).chooser() is None
    assert kind_of(content, NativeSettings(cache_folder=str(tmp_path), workers=1)) == "WinogradKernel4"
    tmp_path.chmod(0o777)  # anybody may write to it
    assert NativeSettings(cache_folder=str(tmp_path), times_candidates=True, kernels=library(None)).chooser() is None
    assert not times.raced


def test_what_the_options_of_a_session_mean() -> None:
    assert not native_settings(CompileOptions()).times_candidates
    assert native_settings(CompileOptions(config={TIME_CANDIDATES_KEY: "1"})).times_candidates
    assert not native_settings(CompileOptions(config={TIME_CANDIDATES_KEY: "1"}, deterministic=True)).times_candidates


@pytest.mark.usefixtures("close")
def test_a_session_takes_the_winner_and_the_next_one_opens_with_it(
    tmp_path: Path, times: FakeTimes, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    content, feeds = layer()

    def result(**entries: str) -> bytes:
        options = sx.SessionOptions()
        options.use_deterministic_compute = entries.pop("deterministic", "") == "1"
        for value in entries.values():
            options.add_session_config_entry("session.time_candidates", value)
        (made,) = sx.InferenceSession(content.SerializeToString(), options).run(None, feeds)
        return bytes(made.tobytes())

    by_estimate = result()
    assert not times.raced
    by_time = result(timing="1")
    assert times.raced
    assert by_time != by_estimate  # plain sums, and those of Winograd's tiles
    raced, times.winner = times.raced, "WinogradKernel2"
    assert result(timing="1") == by_time
    assert result(timing="1", deterministic="1") == result(timing="0") == by_estimate
    assert times.raced == raced


@pytest.mark.usefixtures("close")
def test_a_bundle_for_other_machines_is_never_timed(tmp_path: Path, times: FakeTimes, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    options = sx.SessionOptions()
    options.add_session_config_entry("session.time_candidates", "1")
    sx.compile_bundle(layer()[0].SerializeToString(), tmp_path / "net.sdx", targets=["x86-64-v3", "aarch64"], options=options)
    assert not times.raced


def test_another_value_of_the_option_is_an_error() -> None:
    options = sx.SessionOptions()
    options.add_session_config_entry("session.time_candidates", "often")
    with pytest.raises(InvalidArgument, match=r"session.time_candidates is 'often': expected 0 or 1"):
        sx.InferenceSession(layer()[0].SerializeToString(), options)


def test_machines_differ_in_their_caches_and_instructions() -> None:
    first, second = (step_choice.machine_of(generic(name)) for name in ("x86-64-v3", "x86-64-v4"))
    assert first != second


# Runs of single steps


def steps_of(content: ModelProto) -> list[KernelStep]:
    graph, _ = blocked(content)
    compiled = compile_graph(graph, graph.outputs, in_order(graph), in_order, NativeSettings(workers=1))
    return [step for step in compiled.lowered.steps if isinstance(step, KernelStep)]


def test_a_trial_runs_steps_or_a_part_of_long_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = steps_of(layer()[0])
    ticks = iter(range(0, 10_000, 7))
    trial = StepTrial(steps, library(None), lambda size: int(str(size)))
    monkeypatch.setattr(trial, "_clock", lambda: next(ticks))
    assert trial.run() == 7 * len(steps)
    part = StepTrial(steps, library(None), lambda size: int(str(size)), longest=1)
    assert part.run() > 0
    part.touch()


def test_the_memory_of_a_trial_is_known_beforehand() -> None:
    steps = steps_of(layer()[0])
    assert bytes_of(steps, lambda size: int(str(size))) >= 4 * (32 * 12 * 12 + 32 * 32 * 9)
