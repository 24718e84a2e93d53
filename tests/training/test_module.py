"""TrainingModule: results and gradients are PyTorch's, and everything else is the wrapped module's."""

from __future__ import annotations

import copy
import gc
import io
import logging
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it
from torch.nn.utils import prune

from sardonyx.training.fallback import ORTModuleIOError, ORTModuleONNXModelException, ORTModuleTorchModelException
from sardonyx.training.module import TrainingModule
from sardonyx.training.transition import Counters


@pytest.fixture(autouse=True)
def _no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be compiled fails the test, unless it asks for something else."""
    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", "FALLBACK_DISABLE")
    torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 3)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, scale: float = 1.0, *, hidden: bool = False) -> Any:
        h = torch.tanh(self.first(x))
        y = self.second(h) * scale
        return (y, h) if hidden else y

    def twice(self, x: torch.Tensor) -> Any:
        return self(x) + self(x)


def counters(module: TrainingModule, training: bool = True) -> Counters:
    found: Counters = module._torch_module._execution_manager(training)._graph_transition_manager.counters
    return found


def assert_same_gradients(ours: nn.Module, theirs: nn.Module) -> None:
    expected = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        other = expected[name].grad
        assert (parameter.grad is None) == (other is None), name
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, other, rtol=1e-4, atol=1e-5)


def pair(module: nn.Module) -> tuple[TrainingModule, nn.Module]:
    return TrainingModule(copy.deepcopy(module)), module


def test_results_and_gradients() -> None:
    ours, theirs = pair(Net())
    for rows in (5, 2, 7):
        x = torch.randn(rows, 4, requires_grad=True)
        z = x.detach().clone().requires_grad_()
        torch.testing.assert_close(ours(x), theirs(z))
        ours(x).square().sum().backward()
        theirs(z).square().sum().backward()
        torch.testing.assert_close(x.grad, z.grad)
    assert_same_gradients(ours, theirs)
    assert ours.unused.weight.grad is None
    assert counters(ours) == Counters(1, 1, 1)


def test_one_export_for_all_sizes_and_numbers() -> None:
    ours = TrainingModule(Net())
    for rows in range(1, 6):
        ours(torch.randn(rows, 4), float(rows)).sum().backward()
    assert counters(ours) == Counters(1, 1, 1)


def test_numbers_that_decide_are_constants() -> None:
    class Repeats(nn.Module):
        def forward(self, x: torch.Tensor, times: int) -> Any:
            for _ in range(times):
                x = x * 2
            return x

    ours = TrainingModule(Repeats())
    x = torch.ones(2, requires_grad=True)
    assert ours(x, 3)[0] == 8
    assert ours(x, 2)[0] == 4
    assert ours(x, 3)[0] == 8
    assert counters(ours).exports == 3  # the first time the number was an input, then once for each


def test_structures_that_come_back_are_not_exported_again() -> None:
    ours = TrainingModule(Net())
    x = torch.randn(3, 4)
    for _ in range(3):
        assert isinstance(ours(x, hidden=True), tuple)
        assert isinstance(ours(x), torch.Tensor)
    assert counters(ours) == Counters(2, 2, 2)


def test_frozen_parameters_are_processed_again_but_not_exported() -> None:
    ours, theirs = pair(Net())
    x = torch.randn(3, 4)
    for frozen in (False, True, False, True):
        for module in (ours, theirs):
            module.zero_grad()
            module.first.weight.requires_grad_(not frozen)
            module(x).sum().backward()
        assert_same_gradients(ours, theirs)
    assert counters(ours) == Counters(1, 2, 2)


def test_training_and_evaluation_have_graphs_of_their_own() -> None:
    ours, theirs = pair(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.0)))
    for _ in range(2):
        for mode in (True, False):
            x = torch.randn(5, 4)
            torch.testing.assert_close(ours.train(mode)(x), theirs.train(mode)(x))
    assert counters(ours) == Counters(1, 1, 1)
    assert counters(ours, training=False) == Counters(1, 1, 1)
    for name, buffer in ours.named_buffers():
        torch.testing.assert_close(buffer, theirs.get_buffer(name))


def test_evaluation_has_gradients_and_training_without_gradients_updates_statistics() -> None:
    ours, theirs = pair(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)))
    x = torch.randn(5, 4)
    for module in (ours.eval(), theirs.eval()):
        module(x).square().sum().backward()
    assert_same_gradients(ours, theirs)
    with torch.no_grad():
        torch.testing.assert_close(ours.train()(x), theirs.train()(x))
    assert not ours.train()(x).isnan().any()
    theirs(x)
    for name, buffer in ours.named_buffers():
        torch.testing.assert_close(buffer, theirs.get_buffer(name))


def test_stopped_gradients() -> None:
    class Stops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 3)
            self.b = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> Any:
            with torch.no_grad():
                frozen = self.b(x)
            h = self.a(x)
            return h * h.detach() + frozen * h

    ours, theirs = pair(Stops())
    x = torch.randn(4, 3)
    ours(x).sum().backward()
    theirs(x).sum().backward()
    assert_same_gradients(ours, theirs)
    assert ours.b.weight.grad is None


def test_accumulation_clipping_and_an_optimizer() -> None:
    ours, theirs = pair(Net())
    for module in (ours, theirs):
        torch.manual_seed(1)
        optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
        for step in range(6):
            x = torch.randn(4, 4)
            (module(x).square().mean() / 2).backward()
            if step % 2:
                nn.utils.clip_grad_norm_(module.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_shared_parameters_get_both_gradients() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(7, 4)
            self.head = nn.Linear(4, 7, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens: torch.Tensor) -> Any:
            return self.head(self.embedding(tokens))

    ours, theirs = pair(Tied())
    tokens = torch.tensor([[1, 2, 6], [0, 2, 2]])
    for module in (ours, theirs):
        F.cross_entropy(module(tokens).flatten(0, 1), tokens.flatten()).backward()
    assert_same_gradients(ours, theirs)


def test_an_output_that_is_an_input() -> None:
    class Passes(nn.Module):
        def forward(self, x: torch.Tensor, n: torch.Tensor) -> Any:
            return x, x * 2, n

    ours = TrainingModule(Passes())
    x = torch.randn(3, requires_grad=True)
    same, double, n = ours(x, torch.arange(3))
    (same.sum() + double.sum()).backward()
    assert not n.requires_grad
    torch.testing.assert_close(x.grad, torch.full((3,), 3.0))


def test_only_one_of_two_outputs_is_used() -> None:
    ours, theirs = pair(Net())
    x = torch.randn(3, 4)
    for which in (0, 1):
        for module in (ours, theirs):
            module.zero_grad()
            module(x, hidden=True)[which].sum().backward()
        assert_same_gradients_but_zeros(ours, theirs)


def assert_same_gradients_but_zeros(ours: nn.Module, theirs: nn.Module) -> None:
    """As autograd functions do: a parameter that an unused output depends on has a gradient of zeros rather than none."""
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        expected = torch.zeros_like(other) if other.grad is None else other.grad
        torch.testing.assert_close(torch.zeros_like(one) if one.grad is None else one.grad, expected)


def test_a_second_backward_pass_needs_the_graph() -> None:
    ours = TrainingModule(Net())
    loss = ours(torch.randn(3, 4)).sum()
    loss.backward(retain_graph=True)
    first = ours.first.weight.grad.clone()
    loss.backward()
    torch.testing.assert_close(ours.first.weight.grad, 2 * first)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_gradients_of_gradients_are_refused() -> None:
    ours = TrainingModule(Net())
    x = torch.randn(3, 4, requires_grad=True)
    [gradient] = torch.autograd.grad(ours(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_changes_in_place_are_noticed() -> None:
    ours = TrainingModule(Net())
    loss = ours(torch.randn(3, 4)).sum()
    with torch.no_grad():
        ours.second.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_what_was_saved_goes_with_the_backward_pass() -> None:
    ours = TrainingModule(Net())
    output = ours(torch.randn(3, 4))
    output.sum().backward()
    pool = ours._torch_module._execution_manager(True)._execution_agent.run.pool
    [block] = pool._known
    gc.collect()
    assert sys.getrefcount(block) == 3  # the pool's, ours, and the question's: no graph holds it


def test_hooks_that_copy_what_is_saved_are_told_apart() -> None:
    ours = TrainingModule(Net())
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.clone(), lambda tensor: tensor):
        output = ours(torch.randn(3, 4))
    with pytest.raises(RuntimeError, match="hooks on saved tensors"):
        output.sum().backward()


def test_bfloat16_autocast() -> None:
    ours, theirs = pair(Net())
    x = torch.randn(6, 4)
    for module in (ours, theirs):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = module(x)
        assert y.dtype is torch.bfloat16
        y.float().square().sum().backward()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        if other.grad is not None:
            torch.testing.assert_close(one.grad, other.grad, rtol=5e-2, atol=5e-2)
    ours(x)
    assert counters(ours).exports == 2


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(reentrant: bool) -> None:
    ours, theirs = pair(Net())
    x = torch.randn(3, 4)
    for module in (ours, theirs):
        given = x.clone().requires_grad_()
        torch.utils.checkpoint.checkpoint(module, given, use_reentrant=reentrant).sum().backward()
    assert_same_gradients(ours, theirs)


def test_the_wrapped_modules_interface() -> None:
    net = Net()
    ours = TrainingModule(net)
    assert ours.module is net
    assert list(ours.state_dict()) == list(net.state_dict())
    assert [name for name, _ in ours.named_parameters()] == [name for name, _ in net.named_parameters()]
    assert ours.first is net.first
    assert [name for name, _ in ours.named_children()] == ["first", "second", "unused"]
    assert ours.eval().training is net.training is False
    seen: list[nn.Module] = []
    ours.apply(seen.append)
    assert net in seen
    assert ours.double().first.weight.dtype is torch.float64
    assert ours(torch.randn(2, 4, dtype=torch.float64)).dtype is torch.float64
    ours.float()
    torch.testing.assert_close(ours(torch.ones(2, 4)), net(torch.ones(2, 4)))
    with pytest.raises(AttributeError, match="nothing"):
        _ = ours.nothing
    with pytest.raises(ORTModuleTorchModelException):
        ours.add_module("more", nn.Linear(1, 1))


def test_a_method_of_the_module_runs_compiled() -> None:
    ours, theirs = pair(Net())
    x = torch.randn(3, 4)
    torch.testing.assert_close(ours.twice(x), theirs.twice(x))
    assert counters(ours).exports == 1


def test_attributes_set_through_the_wrapper_are_the_modules() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = 2.0

        def forward(self, x: torch.Tensor) -> Any:
            return x * self.scale

    ours = TrainingModule(Scaled())
    x = torch.ones(2, requires_grad=True)
    assert ours(x)[0] == 2
    ours.scale = 3.0
    assert ours.module.scale == 3.0
    assert ours(x)[0] == 3
    assert counters(ours).exports == 2


def test_a_replaced_submodule_is_seen() -> None:
    ours = TrainingModule(Net())
    x = torch.randn(3, 4)
    ours(x)
    ours.module.second = nn.Linear(8, 5)
    assert ours(x).shape == (3, 5)
    ours.module.load_state_dict(net_with_five().state_dict(), assign=True)
    torch.testing.assert_close(ours(x), ours.module(x))
    assert counters(ours).exports == 2


def net_with_five() -> nn.Module:
    net = Net()
    net.second = nn.Linear(8, 5)
    return net


def test_hooks() -> None:
    ours = TrainingModule(Net())
    seen: list[str] = []
    ours.register_forward_hook(lambda *_: seen.append("forward"))
    ours.first.weight.register_hook(lambda _: seen.append("gradient"))
    ours(torch.randn(3, 4)).sum().backward()
    assert seen == ["forward", "gradient"]


HOOKS: dict[str, Callable[[nn.Module, Any], Any]] = {
    "forward": lambda module, hook: module.register_forward_hook(hook),
    "forward_pre": lambda module, hook: module.register_forward_pre_hook(hook),
    "full_backward": lambda module, hook: module.register_full_backward_hook(hook),
    "full_backward_pre": lambda module, hook: module.register_full_backward_pre_hook(hook),
    "global": lambda _, hook: nn.modules.module.register_module_forward_hook(hook),
}


@pytest.mark.parametrize("kind", HOOKS)
def test_hooks_on_submodules_are_called_by_pytorch_until_they_are_removed(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("ORTMODULE_FALLBACK_POLICY")
    ours = TrainingModule(Net())
    x = torch.randn(3, 4, requires_grad=True)  # or torch warns of backward hooks
    seen: list[str] = []

    def hook(module: nn.Module, *_: Any) -> None:
        if isinstance(module, nn.Linear):
            seen.append(type(module).__name__)

    for _ in range(2):
        ours(x).sum().backward()
        assert not seen
        handle = HOOKS[kind](ours.module.first, hook)
        for count in (1, 2):
            ours(x).sum().backward()
            assert len(seen) == count * (2 if kind == "global" else 1)
        handle.remove()
        seen.clear()
    assert "ORTModuleFunction" in type(ours(x).grad_fn).__name__
    (record,) = caplog.records
    assert re.search(r"hook .*\.hook on (Linear|every module), which a compiled graph would not call", record.getMessage())
    assert counters(ours) == Counters(1, 1, 1)


def test_hooks_on_submodules_are_an_error_if_nothing_falls_back() -> None:
    ours = TrainingModule(Net())
    ours.first.register_forward_hook(lambda *_: None)
    with pytest.raises(ORTModuleTorchModelException, match=r"forward hook .* on Linear"):
        ours(torch.randn(3, 4))


def test_hooks_by_which_torch_computes_weights_are_part_of_the_graph() -> None:
    ours, theirs = pair(nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), nn.Linear(3, 2)))
    prune.l1_unstructured(ours.module[1], "weight", 2)
    prune.l1_unstructured(theirs[1], "weight", 2)
    x = torch.randn(3, 4)
    for module in (ours, theirs):
        module(x).square().sum().backward()
    assert_same_gradients(ours, theirs)


@pytest.mark.parametrize("method", ["register_hook", "retain_grad"])
def test_hooks_on_tensors_inside_a_module_are_refused_with_their_line(method: str) -> None:
    class Hooked(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            h = x * 2
            if method == "register_hook":
                h.register_hook(lambda gradient: gradient * 3)
            else:
                h.retain_grad()
            return h

    with pytest.raises(ORTModuleONNXModelException, match=rf"{method}\(\) on a tensor.*test_module.py:\d+"):
        TrainingModule(Hooked())(torch.ones(2, requires_grad=True))


def test_copies_and_pickles() -> None:
    ours = TrainingModule(Net())
    x = torch.randn(3, 4)
    expected = ours(x)
    buffer = io.BytesIO()
    torch.save(ours, buffer)
    buffer.seek(0)
    for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), torch.load(buffer, weights_only=False)):
        assert isinstance(other, TrainingModule)
        assert other.first is not ours.first
        assert torch.equal(other(x), expected)
        other(x).sum().backward()
        assert other.first.weight.grad is not None


def test_a_type_that_has_no_schema_is_named() -> None:
    ours = TrainingModule(Net())
    with pytest.raises(ORTModuleIOError, match="for input x"):
        ours(object())

    class Strange(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return {"y": [x, {1}]}

    with pytest.raises(ORTModuleIOError, match=r"the module's result\['y'\]\[1\] is a <class 'set'>"):
        TrainingModule(Strange())(torch.ones(2))


class Decides(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x if x.sum() > 0 else -x


def test_what_cannot_be_compiled_is_an_error_or_runs_in_pytorch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ORTModuleONNXModelException, match="depends on the data of a tensor"):
        TrainingModule(Decides())(torch.ones(2))
    monkeypatch.delenv("ORTMODULE_FALLBACK_POLICY")
    ours = TrainingModule(Decides())
    with caplog.at_level(logging.WARNING):
        assert ours(torch.ones(2))[0] == 1
        assert ours(-torch.ones(2))[0] == 1
    assert len(caplog.records) == 1
    assert "depends on the data of a tensor" in caplog.text


def test_a_wrong_call_is_no_reason_to_fall_back(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv("ORTMODULE_FALLBACK_POLICY")
    ours = TrainingModule(Net())
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        ours(torch.randn(3, 5))
    assert ours(torch.randn(3, 4)).shape == (3, 3)
    assert not ours._fallback_manager.is_pending()
    assert caplog.records == []


def test_shapes_that_disagree_are_an_error_and_the_module_still_works() -> None:
    ours = TrainingModule(Net())
    x = torch.randn(3, 4)
    expected = ours(x)
    with pytest.raises(Exception, match=r"5|shape"):
        ours(torch.randn(3, 5))
    assert torch.equal(ours(x), expected)


def test_data_parallel_is_refused() -> None:
    with pytest.raises(ORTModuleTorchModelException, match="DistributedDataParallel"):
        TrainingModule(nn.DataParallel(Net()))
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        TrainingModule("module")


def test_exported_graphs_are_kept_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTMODULE_CACHE_DIR", str(tmp_path))
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))
    x = torch.randn(5, 4)
    first, second = TrainingModule(copy.deepcopy(module)), TrainingModule(copy.deepcopy(module))
    for ours in (first, second):
        ours(x).sum().backward()
        assert_same_gradients(ours, first)
    assert counters(first).exports == 1
    assert counters(second).exports == 0
    torch.testing.assert_close(first.get_buffer("1.running_mean"), second.get_buffer("1.running_mean"))
    assert len(list(tmp_path.glob("*.onnx"))) == 1
    second.eval()(x)
    assert counters(second, training=False).exports == 1


def test_a_row_for_padding_gets_no_gradient() -> None:
    ours, theirs = pair(nn.Embedding(5, 3, padding_idx=1))
    tokens = torch.tensor([[1, 2, 1], [4, 1, 2]])
    for module in (ours, theirs):
        module(tokens).square().sum().backward()
    assert_same_gradients(ours, theirs)


@pytest.mark.parametrize("keepdim", [True, False])
def test_the_largest_along_an_axis_alone_gets_the_gradient(keepdim: bool) -> None:
    class Extremes(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return *torch.max(x, 1, keepdim=keepdim), *torch.min(x, dim=0, keepdim=keepdim), x.max(), torch.max(x, x * 2)

    x = torch.tensor([[3.0, 1.0, 3.0], [0.0, 0.5, 0.25]], requires_grad=True)
    results = []
    for module in pair(Extremes()):
        x.grad = None
        outputs = module(x)
        (outputs[0].sum() + 2 * outputs[2].sum() + 3 * outputs[4] + outputs[5].sum()).backward()
        results.append([*outputs, x.grad])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("offset", "dims"), [(0, (0, 1)), (1, (0, 2)), (-2, (1, 2)), (9, (2, 0))])
def test_a_diagonal_of_any_size(offset: int, dims: tuple[int, int]) -> None:
    class Diagonal(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.diagonal(x, offset, *dims) * 2

    ours = TrainingModule(Diagonal())
    for shape in ((3, 4, 5), (5, 3, 2)):
        x = torch.randn(shape, requires_grad=True)
        z = x.detach().clone().requires_grad_()
        torch.testing.assert_close(ours(x), Diagonal()(z))
        ours(x).sum().backward()
        Diagonal()(z).sum().backward()
        torch.testing.assert_close(x.grad, z.grad)
    assert counters(ours).exports == 1


def test_names_that_collide_are_told_but_not_those_of_torch(caplog: pytest.LogCaptureFixture) -> None:
    TrainingModule(nn.Conv2d(1, 1, 1))
    assert caplog.records == []

    class Collides(Net):
        def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
            return super().load_state_dict(*args, **kwargs)

    TrainingModule(Collides())
    assert [record.getMessage().split(".")[0] for record in caplog.records] == [
        "User Module's attribute name load_state_dict collides with ORTModule's attribute name"
    ]


def test_zero_grad_forgets_all_gradients_whatever_became_of_the_module() -> None:
    module = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2))
    ours = TrainingModule(module)

    def has_gradients() -> bool:
        ours(torch.randn(5, 3)).sum().backward()
        return all(each.grad is not None for each in module.parameters())

    for change in (
        lambda: None,
        lambda: setattr(module[0], "bias", nn.Parameter(torch.zeros(4))),  # its place was there, and empty
        lambda: setattr(module[1], "weight", nn.Parameter(torch.zeros(2, 4))),
        lambda: module.append(nn.Linear(2, 2)),
    ):
        change()
        assert has_gradients()
        ours.zero_grad()
        assert all(each.grad is None for each in module.parameters())
    assert has_gradients()
    late = nn.Parameter(torch.zeros(2))
    late.grad = torch.ones(2)
    module[2].late = late
    ours.zero_grad(set_to_none=False)
    assert all(each.grad is not None and not each.grad.any() for each in module.parameters())
    late.grad = torch.ones(2)
    ours.zero_grad()
    assert late.grad is None
