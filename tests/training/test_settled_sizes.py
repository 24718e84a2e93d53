"""Sizes that parameters decide are known to the compiler; what has no such size stays open."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import nn

from sardonyx.training import TrainingModule, TrainingProgram, memory_report


def _program(module: nn.Module, *args: Any) -> tuple[TrainingModule, TrainingProgram]:
    ours = TrainingModule(module.train())
    ours(*args).sum().backward()
    program = ours._torch_module._execution_manager(True)._execution_agent
    assert isinstance(program, TrainingProgram)
    return ours, program


@pytest.mark.parametrize(
    ("module", "shape", "known"),
    [
        (nn.Conv2d(3, 4, 3), (2, 3, 8, 9), {1: 3}),
        (nn.Conv2d(6, 4, 3, groups=2), (2, 6, 8, 9), {1: 6}),
        (nn.ConvTranspose2d(3, 4, 3), (2, 3, 8, 9), {1: 3}),
        (nn.Linear(5, 4), (7, 5), {1: 5}),
        (nn.Linear(5, 4), (2, 7, 5), {2: 5}),
        (nn.Softmax(-1), (7, 5), {}),
    ],
)
def test_sizes_of_inputs(module: nn.Module, shape: tuple[int, ...], known: dict[int, int]) -> None:
    x = torch.randn(*shape, requires_grad=True)
    ours, program = _program(module, x)
    found = program.halves.forward.inputs[0].shape
    assert found is not None
    assert {axis: size for axis, size in enumerate(found) if isinstance(size, int)} == known
    assert program.is_native
    assert program.run is not None or not known
    more = torch.randn(*(size + 1 if axis not in known else size for axis, size in enumerate(shape)))
    torch.testing.assert_close(ours(more), module(more), rtol=1e-4, atol=1e-5)


def test_other_sizes_are_refused_as_before() -> None:
    ours = TrainingModule(nn.Linear(5, 4))
    ours(torch.randn(2, 5)).sum().backward()
    with pytest.raises(Exception, match="columns"):
        ours(torch.randn(2, 6))
    assert ours(torch.randn(3, 5)).shape == (3, 4)


def test_gradients_of_weights_are_written_where_they_belong() -> None:
    """No product is transposed by a copy, and gradients that are read do not pile up until all layers are done."""
    layers = [layer for _ in range(8) for layer in (nn.Linear(32, 32), nn.GELU())]
    ours, program = _program(nn.Sequential(*layers), torch.randn(4, 64, 32))
    assert not [step for step in program.plans[1].steps if "copy" in step.label]
    assert memory_report(ours).backward.arena_bytes < 8 * 4 * 64 * 32 * 4  # that of one value a layer
    assert memory_report(ours).backward.arena_bytes >= 4 * 64 * 32 * 4


def test_an_export_leaves_no_activations_behind() -> None:
    gc.collect()
    before = sum(type(each) is torch.Tensor and not each.is_leaf for each in gc.get_objects())
    ours = TrainingModule(nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2), nn.Softmax(-1)).train())
    ours(torch.randn(3, 5)).sum().backward()
    gc.collect()
    after = sum(type(each) is torch.Tensor and not each.is_leaf for each in gc.get_objects())
    assert after <= before
