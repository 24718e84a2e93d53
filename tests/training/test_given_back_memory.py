"""Backward passes of steps that keep much give memory back to the system while they go on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sardonyx.runtime.arena import give_back_pages, mapped_memory
from sardonyx.training import TrainingModule, kept_memory
from sardonyx.training.arrays import TensorMemory
from sardonyx.training.kept_memory import KeptPool, departures
from sardonyx.training.step_run import StepRun

LARGE_PAGE = 1 << 21


class Deep(nn.Module):
    """Layers that keep 4 MB each."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(256, 256) for _ in range(5)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


@pytest.fixture
def given_back(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What is given back, in bytes of the block; all steps count as such that keep much."""
    found: list[tuple[int, int]] = []

    def note(memory: Any, start: int, end: int) -> None:
        found.append((start, end))
        give_back_pages(memory, start, end)

    monkeypatch.setattr(kept_memory, "_MUCH", 1)
    monkeypatch.setattr(kept_memory, "give_back_pages", note)
    return found


def _gradients(module: nn.Module) -> list[torch.Tensor]:
    found = []
    for each in module.parameters():
        assert each.grad is not None
        found.append(each.grad.clone())
    return found


def _input() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(4096, 256, requires_grad=True)


def _deep() -> TrainingModule:
    torch.manual_seed(0)
    return TrainingModule(Deep())


def test_gradients_are_the_same_bits_whether_memory_is_given_back_or_not(given_back: list[tuple[int, int]]) -> None:
    module, x = _deep(), _input()
    y = module(x)
    y.sum().backward(retain_graph=True)  # whoever retains the graph needs all of it again
    assert not given_back
    expected = [*_gradients(module), x.grad]
    for _ in range(3):
        module.zero_grad()
        x.grad = None
        y.sum().backward()
        assert given_back
        for one, other in zip([*_gradients(module), x.grad], expected, strict=True):
            assert one is not None
            assert other is not None
            assert torch.equal(one, other)
        y = module(x)


def test_backward_twice_is_refused_by_torch(given_back: list[tuple[int, int]]) -> None:
    module, x = _deep(), _input()
    y = module(x).sum()
    y.backward()
    assert given_back
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_a_pass_that_was_broken_off_is_not_run_again(given_back: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = _deep(), _input()
    module(x).sum().backward()
    expected = _gradients(module)
    module.zero_grad()
    y = module(x).sum()

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(kept_memory, "give_back_pages", interrupted)
        with pytest.raises(KeyboardInterrupt):
            y.backward()
    with pytest.raises(RuntimeError, match="broken off"):
        y.backward()
    module.zero_grad()
    module(x).sum().backward()
    assert all(torch.equal(one, other) for one, other in zip(_gradients(module), expected, strict=True))


def test_gradients_of_some_inputs_only(given_back: list[tuple[int, int]]) -> None:
    module, x = _deep(), _input()
    module(x).sum().backward()
    expected = _gradients(module)
    first, last = next(iter(module.parameters())), list(module.parameters())[-1]
    found = torch.autograd.grad(module(x).sum(), [first, last])
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[-1])


def test_gradients_that_are_gone_make_room(given_back: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(TensorMemory, "give_back", lambda self, size: asked.append(size))
    module, x = _deep(), _input()
    module(x).sum().backward()
    assert not asked  # nobody knew yet how much is kept
    module(x).sum().backward()
    assert asked[0] > 4 << 20


def test_tensor_memory_gives_back_what_is_unused_alone() -> None:
    memory = TensorMemory()
    specs: list[Any] = [((2 << 20,), np.float32) for _ in range(3)]
    tensors = memory.make(specs)
    held, where = tensors[1], [tensor.data_ptr() for tensor in tensors]
    held.fill_(7)
    tensors.clear()
    memory.give_back(1)  # the first
    memory.give_back(1 << 40)  # and the last; the one that is held stays
    assert bool((held == 7).all())
    again = memory.make(specs)
    assert where[1] not in [tensor.data_ptr() for tensor in again]
    memory.give_back(1)


@given(st.lists(st.tuples(st.integers(-1, 9), st.integers(1, 1 << 16)), min_size=1, max_size=30))
def test_nothing_departs_before_it_was_read(values: list[tuple[int, int]]) -> None:
    offsets = [64 + sum(size for _, size in values[:number]) for number in range(len(values))]
    size = 64 + sum(size for _, size in values)
    lasts = [last for last, _ in values]
    assert departures(offsets, size, lasts) is None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kept_memory, "_MUCH", 1)
        found = departures(offsets, size, lasts)
    assert found is not None
    assert list(found.ends) == sorted(set(found.ends))
    for end, ranges in zip(found.ends, found.ranges, strict=True):
        for start, stop in ranges:
            assert 64 <= start < stop <= size
        for last, offset, (_, length) in zip(lasts, offsets, values, strict=True):
            if last >= end:
                assert all(stop <= offset or start >= offset + length for start, stop in ranges)


def test_pages_at_the_edges_stay() -> None:
    block = KeptPool().take(8 * LARGE_PAGE)
    block[:] = 5
    give_back_pages(block, 100, 6 * LARGE_PAGE + 100)
    assert bool((block[:100] == 5).all())
    assert bool((block[6 * LARGE_PAGE + 100 :] == 5).all())
    whole = -(-(block.address + 100) // LARGE_PAGE) * LARGE_PAGE - block.address
    assert bool((block[100:whole] == 5).all())
    give_back_pages(np.zeros(10, np.uint8), 0, 10)  # no mapped memory: nothing is done
    small = mapped_memory(4096)
    small[:] = 3
    give_back_pages(small, 0, 4096)
    assert bool((small == 3).all())


def test_each_input_has_its_last_read(given_back: list[tuple[int, int]]) -> None:
    module, x = _deep(), _input()
    module(x).sum().backward()
    run = module._torch_module._training_manager._execution_agent.run
    assert isinstance(run, StepRun)
    reads = run._backward.last_reads()
    assert len(reads) == len(run._backward.core.image.inputs)
    assert all(-1 <= read < run._backward.core.step_count for read in reads)
