"""Memory of training steps: what forward leaves to backward, gradients and outputs are used again, and never while in use."""

from __future__ import annotations

import sys
import threading

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as f

from sardonyx.training import TrainingModule
from sardonyx.training.arrays import TensorArrays, TensorMemory, memory_of
from sardonyx.training.kept_memory import KeptPool, block_at
from sardonyx.training.step_run import Spec


class Wide(nn.Module):
    """Gradients and outputs that are large enough to be used again."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(200, 300), nn.Linear(300, 200)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


def _pair() -> tuple[TrainingModule, nn.Module]:
    torch.manual_seed(0)
    ours = Wide()
    torch.manual_seed(0)
    return TrainingModule(ours), Wide()


def _same_gradients(ours: nn.Module, theirs: nn.Module) -> None:
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        # Sums over the batch cancel: what counts is the largest gradient of the tensor.
        assert (one.grad - other.grad).abs().max() <= 1e-4 * other.grad.abs().max()


def test_a_block_is_taken_again_only_when_nobody_holds_it() -> None:
    pool = KeptPool()
    first = pool.take(100)
    pool.watch(first)
    address = first.address
    tensor = torch.from_numpy(first)
    assert block_at(address) is first
    del first
    second = pool.take(100)
    assert second.address != address
    pool.watch(second)
    del tensor, second
    again = {pool.take(100).address, pool.take(100).address}
    assert address in again
    huge = pool.take(1 << 24)
    assert huge.nbytes >= 1 << 24


def test_several_passes_under_way_keep_their_values() -> None:
    ours, theirs = _pair()
    batches = [torch.randn(count, 200) for count in (5, 700, 3, 5)]
    losses = [ours(x).square().sum() for x in batches]
    for loss in reversed(losses):
        loss.backward()
    for x in batches:
        theirs(x).square().sum().backward()
    _same_gradients(ours, theirs)


def test_gradients_and_outputs_that_are_held_do_not_change() -> None:
    ours, theirs = _pair()
    held = []
    for step in range(5):
        x = torch.randn(400, 200)
        for module in (ours, theirs):
            module.zero_grad()
        y = ours(x)
        y.square().sum().backward()
        theirs(x).square().sum().backward()
        _same_gradients(ours, theirs)
        gradient = ours.first.weight.grad
        held.append((y.detach(), y.detach().clone(), gradient, gradient.clone()))
        del y, gradient
        if step == 2:
            held.pop(0)
    for y, y_then, gradient, gradient_then in held:
        assert torch.equal(y, y_then)
        assert torch.equal(gradient, gradient_then)


def test_memory_of_gradients_is_used_again() -> None:
    ours, _ = _pair()
    x = torch.randn(8, 200)
    addresses = set()
    for _ in range(6):
        ours.zero_grad(set_to_none=True)
        ours(x).sum().backward()
        addresses.add(ours.first.weight.grad.data_ptr())
    assert len(addresses) == 1


def test_accumulated_gradients() -> None:
    ours, theirs = _pair()
    for _ in range(4):
        x = torch.randn(6, 200)
        ours(x).square().mean().backward()
        theirs(x).square().mean().backward()
    _same_gradients(ours, theirs)


def test_steps_on_several_threads() -> None:
    ours, theirs = _pair()
    ours(torch.randn(2, 200)).sum().backward()
    ours.zero_grad()
    count = 120
    batches = [torch.randn(20 + number % 17, 200) for number in range(count)]
    expected = [torch.autograd.grad(theirs(x).square().sum(), list(theirs.parameters())) for x in batches]
    found: dict[int, tuple[torch.Tensor, ...]] = {}

    def work(numbers: range) -> None:
        for number in numbers:
            found[number] = torch.autograd.grad(ours(batches[number]).square().sum(), list(ours.parameters()))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns in the middle of everything
    try:
        threads = [threading.Thread(target=work, args=(range(start, count, 3),)) for start in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    for number, gradients in enumerate(expected):
        for one, other in zip(found[number], gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_parameter_whose_memory_is_replaced_is_read_anew() -> None:
    ours, theirs = _pair()
    x = torch.randn(7, 200)
    loss = ours(x).sum()
    for module in (ours, theirs):
        weight = module.first.weight
        weight.data = weight.data.clone() * 2
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-4)
    square = nn.Parameter(torch.randn(200, 200))
    layer = TrainingModule(nn.Linear(200, 200, bias=False))
    layer.weight.data = square.data.clone()
    before = layer(x)
    layer.weight.data = layer.weight.data.t()  # the same address and shape, in another order
    torch.testing.assert_close(layer(x), f.linear(x, square.t()), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(before, f.linear(x, square), rtol=1e-4, atol=1e-4)
    del loss


def test_inputs_in_any_order_of_memory() -> None:
    ours, theirs = _pair()
    base = torch.randn(200, 9)
    for x in (
        base.t(),
        base.t()[::2],
        torch.randn(1, 200).expand(4, 200),
        torch.randn(3, 200, dtype=torch.complex64).conj().imag,
    ):
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-4)
    with pytest.raises(Exception, match=r"(?i)meta|numpy|device"):
        memory_of(torch.empty(3, device="meta"))


def test_gradients_that_lie_otherwise() -> None:
    ours, theirs = _pair()
    x = torch.randn(200, 200)
    gradient = torch.randn(200, 200)
    for seed in (gradient.t(), torch.ones(()).expand(200, 200), torch._neg_view(gradient)):
        for module in (ours, theirs):
            module.zero_grad()
            module(x).backward(seed)
        _same_gradients(ours, theirs)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.bool_])
@pytest.mark.parametrize("shape", [(), (3,), (0, 4), (300, 400)])
def test_new_tensors(dtype: type, shape: tuple[int, ...]) -> None:
    memory = TensorMemory()
    specs = [(shape, np.dtype(dtype)), (shape, np.dtype(dtype))]
    one, other = memory.make(specs)
    assert tuple(one.shape) == shape
    assert one.dtype == torch.from_numpy(np.zeros(1, dtype)).dtype
    assert one.is_contiguous()
    assert one.numel() == 0 or one.data_ptr() != other.data_ptr()
    first = one.data_ptr()
    again = memory.make(specs)
    assert one.numel() == 0 or first not in [each.data_ptr() for each in again]


def test_bfloat16_memory_is_used_again() -> None:
    memory = TensorMemory()
    specs: list[Spec] = [((300, 400), np.dtype(ml_dtypes.bfloat16))]
    [one] = memory.make(specs)
    address = one.data_ptr()
    assert one.dtype is torch.bfloat16
    [other] = memory.make(specs)
    assert other.data_ptr() != address
    del one, other
    [third] = memory.make(specs)
    [fourth] = memory.make([((100, 1200), np.dtype(ml_dtypes.bfloat16))])
    assert third.data_ptr() != fourth.data_ptr()


def test_lasting_tensors_are_known_by_identity_and_memory() -> None:
    arrays = TensorArrays((1,))
    parameter = torch.randn(3, 4)
    known = arrays.arrays([None, parameter])
    assert arrays.arrays([None, parameter]) is known
    assert arrays.arrays([None, parameter.clone()]) is not known
