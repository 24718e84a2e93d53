"""What the backward pass computes again: by layers, by a configuration; gradients keep their bits, and memory is saved."""

from __future__ import annotations

import copy
import json
import logging
import os
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from sardonyx import errors
from sardonyx.training import TrainingModule, TrainingProgram, memory_report
from sardonyx.training.debug import DebugOptions, LogLevel
from sardonyx.training.recompute import Choice, MemoryLevel, RecomputeOptions
from sardonyx.training.settings import CONFIG_VARIABLE, LEVEL_VARIABLE, RuntimeOptions
from sardonyx.training.step_memory import MemoryReport
from training.networks import network


@pytest.fixture(autouse=True)
def _no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", "FALLBACK_DISABLE")
    for name in (LEVEL_VARIABLE, CONFIG_VARIABLE):
        monkeypatch.delenv(name, raising=False)


class Block(nn.Module):
    """Half a transformer: norms, softmax, dropout, residuals."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.other = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.norm(x)
        weights = self.dropout(torch.softmax(self.q(y) @ self.k(y).transpose(-1, -2) / 4, -1))
        x = x + self.out(weights @ self.v(y))
        return x + self.inner(self.other(x))


def stack(layers: int = 4, dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Block(16, dropout) for _ in range(layers)), nn.Linear(16, 3))


def wrapped(module: nn.Module, level: int = 0, config: str = "") -> TrainingModule:
    """A module in training mode whose memory is optimized at some level."""
    given = {LEVEL_VARIABLE: str(level), CONFIG_VARIABLE: config}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        return TrainingModule(copy.deepcopy(module).train())
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def gradients(module: nn.Module, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
    module.zero_grad(set_to_none=True)
    torch.manual_seed(7)
    made = module(*args, **kwargs)
    first = made if isinstance(made, torch.Tensor) else next(iter(made.values())) if isinstance(made, dict) else made[0]
    first.square().sum().backward()
    return [each.grad.clone() for each in module.parameters() if each.grad is not None]


def program_of(module: TrainingModule) -> TrainingProgram:
    program = module._torch_module._execution_manager(True)._execution_agent
    assert isinstance(program, TrainingProgram)
    return program


def assert_same_bits(one: list[torch.Tensor], other: list[torch.Tensor]) -> None:
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("dropout", [pytest.param(0.0, marks=pytest.mark.slow), 0.3])
def test_layers_are_computed_again_with_the_same_bits_and_a_quarter_of_the_memory(dropout: float) -> None:
    module, x = stack(dropout=dropout), torch.randn(5, 12, 16)
    plain, layered, light = (wrapped(module, level) for level in (0, 1, 2))
    expected = gradients(plain, x)
    assert_same_bits(gradients(layered, x), expected)
    assert_same_bits(gradients(light, x), expected)
    reports = [memory_report(each) for each in (plain, layered, light)]
    assert reports[1].kept_bytes < 0.6 * reports[0].kept_bytes
    assert reports[1].peak < reports[0].peak
    assert reports[2].kept_bytes < reports[0].kept_bytes
    block = program_of(layered).run
    assert block is not None
    assert block._last is not None
    assert block._last[1].size < 0.6 * program_of(plain).run._last[1].size


def test_layers_end_between_the_blocks_and_run_again_right_before_their_gradients() -> None:
    layered = wrapped(stack(), 1)
    gradients(layered, torch.randn(5, 12, 16))
    program = program_of(layered)
    layers = program.recompute.layers
    assert len(layers) >= 4
    assert all(len([value for value in layer.ends if value.type.dtype.is_float]) == 1 for layer in layers[:-1])
    steps = [any(name.endswith("_recompute'") or "_recompute" in name for name in step.nodes) for step in program.plans[1].steps]
    # Not all at the beginning: some gradients come before the last that is computed again, and some after each.
    again = [number for number, repeated in enumerate(steps) if repeated]
    between = [number for number, repeated in enumerate(steps[: again[-1]]) if not repeated]
    assert again
    assert len(between) > len(steps) // 4
    priorities = [node.priority for node in program.halves.backward.nodes]
    assert min(priorities) == 0
    assert max(priorities) >= 10


@pytest.mark.parametrize("name", ["lenet", "nested"])
def test_networks_keep_their_bits(name: str) -> None:
    module, args, kwargs, _ = network(name)
    expected = gradients(wrapped(module), *args, **kwargs)
    for level in (1, 2):
        assert_same_bits(gradients(wrapped(module, level), *args, **kwargs), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "mobilenetv2", "unet", "lstm", "gru", "diffusion", "bert-mini", "gpt2", "vit-tiny"])
def test_large_networks_keep_their_bits(name: str) -> None:
    if name in ("bert-mini", "gpt2", "vit-tiny"):
        pytest.importorskip("transformers")
    module, args, kwargs, _ = network(name)
    expected = gradients(wrapped(module), *args, **kwargs)
    for level in (1, 2):
        assert_same_bits(gradients(wrapped(module, level), *args, **kwargs), expected)


@pytest.fixture(scope="module")
def clusters() -> tuple[nn.Module, torch.Tensor, list[torch.Tensor], MemoryReport]:
    module, x = stack(2, 0.2), torch.randn(3, 6, 16)
    plain = wrapped(module)
    return module, x, gradients(plain, x), memory_report(plain)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_choice_keeps_the_bits_and_saves_what_was_said(
    clusters: tuple[nn.Module, torch.Tensor, list[torch.Tensor], MemoryReport], data: st.DataObject
) -> None:
    module, x, expected, report = clusters
    choices = [each for each in report.savings if each.choice.endswith(":-1")]
    chosen = data.draw(st.lists(st.sampled_from(choices), min_size=1, max_size=3, unique=True))
    ours = wrapped(module, 0, ",".join(each.choice for each in chosen))
    assert_same_bits(gradients(ours, x), expected)
    saved = report.kept_bytes - memory_report(ours).kept_bytes
    assert saved >= max(each.saved for each in chosen)
    if len(chosen) == 1:
        assert saved == chosen[0].saved
        taken = {each.choice: each.taken for each in memory_report(ours).savings}
        assert taken[chosen[0].choice] == chosen[0].occurrences


def test_a_count_takes_the_first_ones(clusters: tuple[nn.Module, torch.Tensor, list[torch.Tensor], MemoryReport]) -> None:
    module, x, expected, report = clusters
    name = max((each for each in report.savings if each.occurrences > 1), key=lambda each: each.occurrences).choice
    cluster = name.rsplit(":", 2)[0]
    kept = []
    for count in (0, 1, -1):
        ours = wrapped(module, 0, f"{cluster}:1:{count}")
        assert_same_bits(gradients(ours, x), expected)
        kept.append(memory_report(ours).kept_bytes)
    assert kept[0] == report.kept_bytes
    assert kept[0] > kept[1] > kept[2]


def test_a_configuration_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "choices.json"
    path.write_text(json.dumps(["Gelu+:1:-1", "MatMul+Add+:2:3"]))
    assert RecomputeOptions.of(0, str(path)).choices == (Choice("Gelu+", 1, -1), Choice("MatMul+Add+", 2, 3))
    assert RecomputeOptions.of(1, str(path)) == RecomputeOptions(MemoryLevel.TRANSFORMER_LAYERWISE_RECOMPUTE)
    assert not RecomputeOptions.of(0, "Gelu+:0:-1, Erf+:1:0").is_enabled
    for text in ('{"a": 1}', "[1]", "no json"):
        path.write_text(text)
        with pytest.raises(errors.InvalidArgument, match=r"choices\.json"):
            RecomputeOptions.of(0, str(path))
    with pytest.raises(errors.InvalidArgument, match=r"missing\.json"):
        RecomputeOptions.of(0, str(tmp_path / "missing.json"))


@pytest.mark.parametrize("text", ["Gelu", "Gelu:1:-1", "Gelu+:3:1", "Gelu+:1", "Gelu+:1:-2", "Gelu+:one:1", "Gelu+:1:1:1"])
def test_choices_that_are_none(text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="strategy:count"):
        RecomputeOptions.of(0, text)


def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not RuntimeOptions.from_environment().memory_optimizer_is_enabled()
    monkeypatch.setenv(LEVEL_VARIABLE, "1")
    assert RuntimeOptions.from_environment().memory_optimizer_is_enabled()
    monkeypatch.setenv(LEVEL_VARIABLE, "3")
    with pytest.raises(ValueError, match="expected 0, 1 or 2"):
        RuntimeOptions.from_environment()
    monkeypatch.setenv(LEVEL_VARIABLE, "0")
    monkeypatch.setenv(CONFIG_VARIABLE, "nonsense")
    with pytest.raises(errors.InvalidArgument, match="nonsense"):
        RuntimeOptions.from_environment()
    with pytest.raises(errors.InvalidArgument, match="expected 0, 1 or 2"):
        RecomputeOptions.of(5)


def test_an_unknown_cluster_is_said(caplog: pytest.LogCaptureFixture) -> None:
    ours = wrapped(nn.Linear(3, 2), 0, "Softmax+Foo+:1:-1")
    with caplog.at_level(logging.WARNING, "sardonyx.training"):
        gradients(ours, torch.randn(4, 3))
    assert "Softmax+Foo+" in caplog.text


def test_the_table_is_printed_and_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEVEL_VARIABLE, "1")
    ours = TrainingModule(stack().train(), DebugOptions(log_level=LogLevel.INFO))
    with caplog.at_level(logging.INFO, "sardonyx.training"):
        gradients(ours, torch.randn(2, 5, 16))
    logging.getLogger("sardonyx.training").setLevel(logging.NOTSET)
    assert "Layer-wise memory optimization is enabled" in caplog.text
    assert "layer by layer (level 1)" in caplog.text
    text = str(memory_report(ours))
    for expected in ("kept between the passes", "without recomputation", "backward: arena", "layer by layer (level 1)", ":1:-1"):
        assert expected in text


def test_the_saved_graph_shows_what_is_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEVEL_VARIABLE, "1")
    options = DebugOptions(save_onnx=True, onnx_prefix="again", save_path=str(tmp_path))
    gradients(TrainingModule(stack().train(), options), torch.randn(2, 5, 16))
    graph = onnx.load(tmp_path / "again_execution_model_training.onnx").graph
    again = [node for node in graph.node if node.name.endswith("_recompute")]
    assert len(again) > 10
    made = {name for node in again for name in node.output}
    assert any(name in made for node in graph.node if node not in again for name in node.input)
