"""What can be seen of a training step: planned memory, a timeline of it, a profile of its kernels."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch
from torch import nn

from sardonyx import errors
from sardonyx.training import MemoryReport, StepProfile, TrainingModule, memory_report


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.body(x)
        return made


def _called(module: nn.Module, *shape: int) -> TrainingModule:
    ours = TrainingModule(module.train())
    ours(torch.randn(*shape)).sum().backward()
    return ours


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 40), nn.Tanh(), nn.Linear(40, 2))


def test_the_report_counts_what_is_kept() -> None:
    for batch in (6, 11):
        report = memory_report(_called(_mlp(), batch, 20))
        assert set(report.sizes.values()) == {batch}
        assert report.kept_bytes == batch * (30 + 40) * 4  # the results of both tanh
        gradients = sum(each.numel() for each in _mlp().parameters()) * 4
        assert report.backward.results[-1] == gradients
        assert report.forward.results[-1] == batch * 2 * 4
        assert report.forward.kept[-1] == report.backward.kept[0] == report.kept_bytes
        assert report.peak >= report.backward.peak >= report.kept_bytes + gradients


def test_the_reported_arena_is_the_one_that_is_used() -> None:
    ours = _called(_mlp(), 64, 20)
    report = memory_report(ours)
    program = ours._torch_module._execution_manager(True)._execution_agent
    for half, planned in ((program._forward, report.forward), (program._backward, report.backward)):
        [context] = half.executable._free_by_address
        assert planned.arena_bytes <= context.arena.nbytes
        assert max(planned.arena, default=0) <= planned.arena_bytes


def test_a_timeline_is_a_picture(tmp_path: Path) -> None:
    report = memory_report(_called(Convolutional(), 2, 3, 12, 12))
    path = tmp_path / "memory.svg"
    report.write_timeline(path)
    root = ET.parse(path).getroot()
    text = "".join(root.itertext())
    for expected in ("forward", "backward", "kept between the passes", "peak"):
        assert expected in text
    paths = [each for each in root.iter() if each.tag.endswith("path")]
    assert {each.get("class") for each in paths} == {"kept", "arena", "results"}


def test_without_a_step_there_is_no_report() -> None:
    ours = TrainingModule(_mlp())
    with pytest.raises(errors.InvalidArgument, match="no compiled training step"):
        memory_report(ours)
    ours.eval()
    ours(torch.randn(2, 20))
    with pytest.raises(errors.InvalidArgument, match="no compiled training step"):
        memory_report(ours)


@pytest.mark.parametrize("module", [_mlp, Convolutional])
def test_a_profile_has_both_passes_with_their_kernels(module: type[nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(0)
    ours = TrainingModule(module().train())
    x = torch.randn(4, 20) if module is _mlp else torch.randn(2, 3, 12, 12)
    torch.manual_seed(1)
    ours(x).square().sum().backward()
    expected = [each.grad.clone() for each in ours.parameters()]
    ours.zero_grad()
    path = tmp_path / "step.json"
    with StepProfile(path):
        ours(x).square().sum().backward()
    events = json.loads(path.read_text())
    spans = {event["name"]: event for event in events if event["cat"] == "Session"}
    assert set(spans) == {"forward", "backward"}
    kernels = [event for event in events if event["cat"] == "Node"]
    for span in spans.values():
        inside = [each for each in kernels if span["ts"] <= each["ts"] and each["ts"] + each["dur"] <= span["ts"] + span["dur"]]
        assert inside
        assert any("nodes" in each["args"] for each in inside)
    for parameter, gradient in zip(ours.parameters(), expected, strict=True):
        assert torch.equal(parameter.grad, gradient)
    ours(x).sum().backward()  # runs as ever afterwards
    assert json.loads(path.read_text()) == events


def test_one_profile_at_a_time_and_it_is_written_whatever_happens(tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    ours = _called(_mlp(), 3, 20)
    with StepProfile(path):
        ours(torch.randn(3, 20)).sum()
        with pytest.raises(errors.InvalidArgument, match="already"):
            StepProfile(tmp_path / "other.json").__enter__()
    names = {event["name"] for event in json.loads(path.read_text())}
    assert "forward" in names
    with pytest.raises(errors.SardonyxError, match="cannot be written"), StepProfile(tmp_path / "no" / "folder.json"):
        pass


def test_reports_are_values() -> None:
    one, other = (memory_report(_called(_mlp(), 5, 20)) for _ in range(2))
    assert isinstance(one, MemoryReport)
    assert str(one) == str(other)
