"""Modules that do what a graph cannot follow by itself: never silently otherwise than in PyTorch."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it
from torch.utils.checkpoint import checkpoint

from sardonyx.training.fallback import ORTModuleONNXModelException
from sardonyx.training.module import TrainingModule


@pytest.fixture(autouse=True)
def _no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", "FALLBACK_DISABLE")
    torch.manual_seed(0)


class Does(nn.Module):
    """What a function says, with a layer and attributes."""

    def __init__(self, function: Callable[..., Any], **attributes: Any) -> None:
        super().__init__()
        self.function = function
        self.layer = nn.Linear(3, 4)
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def pair(module: nn.Module) -> tuple[Any, Any]:
    return TrainingModule(copy.deepcopy(module)), module


def exports(module: Any) -> int:
    return int(module._torch_module._execution_manager(True)._graph_transition_manager.counters.exports)


def assert_same(ours: Any, theirs: Any, *args: torch.Tensor) -> None:
    """Results and gradients of one call."""
    for module in (ours, theirs):
        module.zero_grad()
    found, expected = ours(*args), theirs(*args)
    torch.testing.assert_close(found, expected)
    weights = torch.cos(torch.arange(expected.numel())).reshape(expected.shape)
    for result in (found, expected):
        (result * weights).sum().backward()
    for (name, one), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None), name
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)


def _by_rows(module: Any, x: torch.Tensor) -> Any:
    return module.layer(x) if x.shape[0] > 2 else module.layer(x) * 2


def _python_sizes(module: Any, x: torch.Tensor) -> Any:
    rows = int(x.shape[0])
    return module.layer(x).reshape(rows, -1).view(rows * 2, -1)


def _loop(module: Any, x: torch.Tensor) -> torch.Tensor:
    state = torch.zeros(4)
    for row in range(x.shape[0]):
        state = torch.tanh(module.layer(x[row]) + state)
    return state


def _iteration(module: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.stack([module.layer(row) * number for number, row in enumerate(x)]).sum(0)


def _parts(module: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.cat([module.layer(part) * number for number, part in enumerate(x.split(2))])


def _squeezed(module: Any, x: torch.Tensor) -> Any:
    return module.layer(x.squeeze(0)) + module.layer(x[:1]).squeeze()


@pytest.mark.parametrize("function", [_by_rows, _python_sizes, _loop, _iteration, _parts, _squeezed])
def test_what_sizes_decide_in_python_holds_for_those_sizes_only(function: Callable[..., Any]) -> None:
    ours, theirs = pair(Does(function))
    for rows in (4, 1, 3, 4, 1):
        assert_same(ours, theirs, torch.randn(rows, 3))
    assert exports(ours) == (2 if function is _by_rows else 3)


def test_a_batch_of_one_is_refused_by_a_norm_as_ever() -> None:
    ours, theirs = pair(nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3)))
    for shape in ((4, 2, 3, 3), (6, 2, 1, 1), (1, 2, 3, 2)):
        assert_same(ours, theirs, torch.randn(shape))
    assert exports(ours) == 1
    with pytest.raises(ORTModuleONNXModelException, match="more than 1 value per channel"):
        ours(torch.randn(1, 2, 1, 1))
    assert_same(ours, theirs, torch.randn(4, 2, 3, 3))


def _stash(module: Any, x: torch.Tensor) -> Any:
    module.last = module.layer(x)
    return module.last * 2


def _count(module: Any, x: torch.Tensor) -> Any:
    module.calls += 1
    return module.layer(x)


def _append(module: Any, x: torch.Tensor) -> Any:
    module.log.append(len(module.log))
    return module.layer(x)


@pytest.mark.parametrize(("function", "name"), [(_stash, "last"), (_count, "calls"), (_append, "log")])
def test_attributes_that_forward_sets_are_refused_or_set_by_pytorch(
    function: Callable[..., Any], name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start: dict[str, Any] = {"calls": 0, "log": []}
    module = Does(function, **start)
    with pytest.raises(ORTModuleONNXModelException, match=rf"forward sets '{name}'"):
        TrainingModule(module)(torch.randn(2, 3))
    assert getattr(module, name, None) == start.get(name)
    monkeypatch.delenv("ORTMODULE_FALLBACK_POLICY")
    ours, theirs = pair(module)
    for _ in range(3):
        assert_same(ours, theirs, torch.randn(2, 3))
    if name == "last":
        torch.testing.assert_close(ours.last, theirs.last)
    else:
        assert getattr(ours, name) == getattr(theirs, name)
    assert len(caplog.records) == 1


def test_a_cache_that_the_first_call_fills_is_no_obstacle() -> None:
    def cached(module: Any, x: torch.Tensor) -> Any:
        if module.mask is None:
            module.mask = torch.tensor([1.0, 0.0, 1.0])
        return module.layer(x * module.mask)

    ours, theirs = pair(Does(cached, mask=None))
    for rows in (2, 3):
        assert_same(ours, theirs, torch.randn(rows, 3))
    assert exports(ours) == 1


def test_attributes_that_change_are_seen_wherever_they_are_set() -> None:
    ours, theirs = pair(
        nn.Sequential(Does(lambda module, x: module.layer(x) * module.scale * module.factor, scale=1.0), nn.ReLU())
    )
    for module in (ours.module, theirs):
        module[0].factor = torch.tensor(2.0)
    x = torch.randn(5, 3)
    assert_same(ours, theirs, x)
    for change in (
        lambda module: setattr(module[0], "scale", 3.0),
        lambda module: setattr(module[0], "factor", torch.tensor(0.5)),
        lambda module: module[0].factor.mul_(4),
        lambda module: delattr(module[0], "unused") if hasattr(module[0], "unused") else None,
    ):
        change(ours.module)
        change(theirs)
        assert_same(ours, theirs, x)
    assert exports(ours) == 4


def test_layers_of_torch_may_be_changed() -> None:
    ours, theirs = pair(nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(3)))
    x = torch.randn(6, 3)
    ours(x)
    theirs[1].load_state_dict(ours.module[1].state_dict())
    for module in (ours.module, theirs):
        module[0].p = 0.0
        module[1].momentum = 0.7
    assert_same(ours, theirs, x)
    torch.testing.assert_close(ours.module[1].running_mean, theirs[1].running_mean)


def test_inputs_that_a_module_changes_in_place_are_changed_by_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    def writes(module: Any, x: torch.Tensor) -> Any:
        x[:, 0] = 7
        return module.layer(x)

    x = torch.zeros(2, 3)
    with pytest.raises(ORTModuleONNXModelException, match=r"changes its input .* in place"):
        TrainingModule(Does(writes))(x)
    assert not x.any()
    monkeypatch.delenv("ORTMODULE_FALLBACK_POLICY")
    TrainingModule(Does(writes))(x)
    assert x[:, 0].tolist() == [7, 7]


def test_torchs_seed_decides_what_is_dropped() -> None:
    ours = TrainingModule(nn.Dropout(0.5))
    x = torch.ones(64)
    for requires_grad in (False, True):
        x.requires_grad_(requires_grad)
        results = []
        for _ in range(2):
            torch.manual_seed(5)
            results.append(ours(x))
        assert torch.equal(*results)
        assert not torch.equal(ours(x), results[0])


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_drops_the_same_elements_again(reentrant: bool) -> None:
    ours = TrainingModule(nn.Sequential(nn.Linear(3, 64), nn.Dropout(0.5)))
    y = checkpoint(ours, torch.randn(4, 3, requires_grad=True), use_reentrant=reentrant)
    y.sum().backward()
    torch.testing.assert_close(ours.module[0].bias.grad, (y != 0).float().sum(0) * 2)


def test_threads_with_and_without_gradients() -> None:
    ours, theirs = pair(nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)))
    x = torch.randn(4, 3)
    expected = theirs(x)
    failures: list[BaseException] = []

    def run(gradients: bool) -> None:
        try:
            for _ in range(5):
                with torch.set_grad_enabled(gradients):
                    y = ours(x)
                assert y.requires_grad == gradients
                torch.testing.assert_close(y, expected)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number % 2 == 0,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_training_module_inside_another_is_part_of_its_graph() -> None:
    inner = nn.Linear(3, 3)
    ours = TrainingModule(nn.Sequential(TrainingModule(copy.deepcopy(inner)), nn.ReLU()))
    assert_same(ours, nn.Sequential(inner, nn.ReLU()), torch.randn(4, 3))


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)],
        [nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()],
        [nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten()],
    ],
    ids=["rows", "batch norm", "group norm"],
)
def test_bfloat16_autocast_of_layers_with_weights_in_float32(layers: list[nn.Module]) -> None:
    for layer in layers:  # made before there was a seed: maxima that are equal but for rounding go to other elements
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    ours, theirs = pair(nn.Sequential(*layers))
    x = torch.randn(6, 16)
    results = []
    for module in (ours, theirs):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = module(x)
        results.append(y)
        F.mse_loss(y.float(), torch.ones_like(y, dtype=torch.float32)).backward()
    assert results[0].dtype is results[1].dtype
    torch.testing.assert_close(*results, rtol=0.05, atol=0.05)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=0.1, atol=0.02)


@pytest.mark.parametrize("more", [{"sparse": True}, {"scale_grad_by_freq": True}])
def test_embeddings_with_gradients_of_their_own_are_refused(more: dict[str, bool]) -> None:
    with pytest.raises(ORTModuleONNXModelException, match="embedding"):
        TrainingModule(nn.Embedding(5, 3, **more))(torch.tensor([1, 2]))


class _Either(torch.nn.Module):
    """What it computes depends on an argument, so that each value of it has a graph of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([3.0]))

    def forward(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return {"times": lambda: x * self.w, "plus": lambda: x + 10 * self.w, "minus": lambda: 100 * self.w - x}[name]()


def test_threads_whose_calls_have_other_graphs() -> None:
    """Each gets the graph of its own call, also while another thread's is being made; each graph is made once."""
    module, kinds = TrainingModule(_Either()), ("times", "plus", "minus")
    wanted = {"times": 2 * 3.0, "plus": 2 + 30.0, "minus": 300 - 2.0}
    wrong: list[str] = []

    def work(start: int) -> None:
        for number in range(150):
            kind = kinds[(start + number) % 3] if number % 2 else kinds[start]
            found = module(torch.full((1 + number % 3,), 2.0), kind)
            if not torch.equal(found, torch.full_like(found, wanted[kind])) or found.grad_fn is None:
                wrong.append(f"{kind}: {found}")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(start,)) for start in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong, wrong[:3]
    counters = module._torch_module._execution_manager(True)._graph_transition_manager.counters
    assert (counters.exports, counters.processings, counters.compilations) == (3, 3, 3)


def test_a_call_that_another_thread_makes_in_between_does_not_change_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    module = TrainingModule(_Either())
    module(torch.ones(1), "times")
    manager = module._torch_module._execution_manager(True)._graph_transition_manager
    look, calls = manager._look, 0

    def interrupted(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:  # as if threads took turns here: another one is done with the same call
            thread = threading.Thread(target=module, args=(torch.ones(1), "plus"))
            thread.start()
            thread.join()
        return look(*given)

    monkeypatch.setattr(manager, "_look", interrupted)
    assert module(torch.full((1,), 2.0), "plus").item() == 32.0


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which torch.compile looks at itself
def test_torch_compile_does_not_follow_calls_into_our_compiler() -> None:
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = TrainingModule(nn.Linear(3, 4)), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> Any:
            return self.head(torch.tanh(self.inner(x)))

    module, x = Around(), torch.randn(5, 3)
    expected = module.head(torch.tanh(F.linear(x, module.inner.weight, module.inner.bias)))
    found = torch.compile(module, backend="eager")(x)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    assert module.inner.weight.grad is not None
    assert module.inner._torch_module._execution_manager(True)._execution_agent.host_nodes == ()
