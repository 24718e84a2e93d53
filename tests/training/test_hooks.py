"""Subscribers of ONNX Runtime's `training.utils.hooks`: what they see of a module in PyTorch and in a training module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sardonyx.training.module import TrainingModule
from sardonyx.training.utils.hooks import (
    GlobalSubscriberManager,
    RuntimeStates,
    StatisticsSubscriber,
    SubscriberBase,
    SubscriberManager,
    inspect_activation,
    summary,
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True))
        self.last = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> Any:
        h = self.layers(x)
        return {"y": self.last(h), "h": h}


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("wrapped", [False, True])
def test_statistics_of_every_activation_and_gradient_are_written(wrapped: bool, tmp_path: Path) -> None:
    model: Any = TrainingModule(Net()) if wrapped else Net()
    manager = SubscriberManager()
    manager.subscribe(model, [StatisticsSubscriber(str(tmp_path / "out"), end_step=2)])
    for _ in range(3):
        model(torch.randn(5, 4))["y"].sum().backward()
    names = ["Net_0_0th", "Sequential_1_0th", "Linear_2_0th", "ReLU_3_0th", "Linear_4_0th"]
    expected = {f"{name}_output_{direction}" for name in names for direction in ("forward", "backward")}
    for step in (0, 1):
        assert files(tmp_path / "out" / f"step_{step}") == {*expected, "order.txt", "Net_0_1th_output_forward"}
    assert files(tmp_path / "out") == {"step_0", "step_1"}
    text = (tmp_path / "out" / "step_1" / "Linear_4_0th_output_backward").read_text()
    assert "shape: torch.Size([5, 2])" in text
    assert "min: 1.0 max: 1.0, mean: 1.0, std: 0.0" in text
    order = (tmp_path / "out" / "step_0" / "order.txt").read_text().splitlines()
    assert order.index("Linear_2_0th_output_forward") < order.index("Linear_4_0th_output_forward")
    assert order.index("Linear_4_0th_output_backward") < order.index("Linear_2_0th_output_backward")


def test_results_and_gradients_stay_the_same_and_end_with_the_subscription(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Net()
    x = torch.randn(5, 4)

    def gradients() -> list[torch.Tensor]:
        model.zero_grad()
        model(x)["y"].square().sum().backward()
        return [each.grad.clone() for each in model.parameters() if each.grad is not None]

    expected = gradients()
    manager = SubscriberManager()
    manager.subscribe(model, [StatisticsSubscriber(str(tmp_path / "out"))])
    assert all(torch.equal(one, other) for one, other in zip(gradients(), expected, strict=True))
    manager.unsubscribe()
    gradients()
    assert files(tmp_path / "out") == {"step_0"}


def test_a_subscriber_may_change_what_flows() -> None:
    class Doubles(SubscriberBase):
        def post_forward_tensor_apply_impl(
            self, run_rtx: RuntimeStates, module: nn.Module, tensor_index: int, tensor: torch.Tensor
        ) -> torch.Tensor:
            return tensor * 2 if isinstance(module, nn.ReLU) else tensor

        def pre_forward_module_apply_impl(
            self, run_rtx: RuntimeStates, module: nn.Module, args: Any, kwargs: Any
        ) -> tuple[Any, Any]:
            return (args[0] + 1, *args[1:]) if isinstance(module, nn.ReLU) else args, kwargs

    model = nn.Sequential(nn.ReLU())
    manager = SubscriberManager()
    subscriber = Doubles()
    manager.subscribe(model, [subscriber])
    assert torch.equal(model(torch.tensor([1.0, -3.0])), torch.tensor([4.0, 0.0]))
    assert manager.get_subscriber(Doubles) is subscriber
    assert manager.get_run_context().global_states.execution_step == 1


def test_activations_inside_a_module(tmp_path: Path) -> None:
    class Inspected(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return inspect_activation("middle", x * 2) + 1

    model = Inspected()
    with pytest.raises(RuntimeError, match="not registered"):
        model(torch.ones(2))
    GlobalSubscriberManager.subscribe(model, [StatisticsSubscriber(str(tmp_path / "out"))])
    try:
        TrainingModule(model)(torch.ones(2, requires_grad=True)).sum().backward()
    finally:
        GlobalSubscriberManager.unsubscribe()
    assert {"middle_forward", "middle_backward"} <= files(tmp_path / "out" / "step_0")


def test_wrong_uses_are_named(tmp_path: Path) -> None:
    manager = SubscriberManager()
    wrong: Any = "model"
    with pytest.raises(ValueError, match=r"torch\.nn\.Module instance, not a str"):
        manager.subscribe(wrong, [SubscriberBase()])
    with pytest.raises(ValueError, match="SubscriberBase instance, not a str"):
        manager.subscribe(Net(), [wrong])
    with pytest.raises(RuntimeError, match="No subscribers"):
        manager.subscribe(Net(), [])
    with pytest.raises(RuntimeError, match="is not registered"):
        manager.get_subscriber(StatisticsSubscriber)
    with pytest.raises(FileExistsError, match="override_output_dir=True"):
        StatisticsSubscriber(str(tmp_path))
    with pytest.warns(UserWarning, match="overriding it"):
        StatisticsSubscriber(str(tmp_path), override_output_dir=True)


def test_summaries_of_special_values() -> None:
    text = summary("t", torch.tensor([float("nan"), float("inf"), -1.0, 0.0, 2.0]))
    assert "nan: 1, inf: 1" in text
    assert "neg: 1, pos: 2, zero: 1" in text
    assert "shape: torch.Size([0])" in summary("t", torch.zeros(0))
    assert "std: 0.0" in summary("t", torch.tensor([True]))
