"""The fused optimizers against those of PyTorch that they stand for."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from sardonyx import errors
from sardonyx.training.optim import FusedAdam, FusedAdamW, FusedSGD
from sardonyx.training.optim.adam_modes import AdamWithModes, AdamWMode

SHAPES = [(7,), (16, 3, 3, 3), (100, 123), (1,), (), (0, 4), (5000,)]
CASES: list[tuple[Any, Any, dict[str, Any]]] = [
    (FusedAdam, torch.optim.Adam, {}),
    (FusedAdam, torch.optim.Adam, {"weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-6}),
    (FusedAdam, torch.optim.Adam, {"amsgrad": True, "maximize": True}),
    (FusedAdam, torch.optim.Adam, {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    (FusedAdamW, torch.optim.AdamW, {"weight_decay": 0.1}),
    (FusedAdamW, torch.optim.AdamW, {"amsgrad": True, "maximize": True, "weight_decay": 0.0}),
    (FusedSGD, torch.optim.SGD, {}),
    (FusedSGD, torch.optim.SGD, {"weight_decay": 0.1, "maximize": True}),
    (FusedSGD, torch.optim.SGD, {"momentum": 0.9, "dampening": 0.3}),
    (FusedSGD, torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
]
NAMES = [f"{ours.__name__}-{'-'.join(options) or 'plain'}" for ours, _, options in CASES]


def made(dtype: torch.dtype = torch.float32, seed: int = 0) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)) for shape in SHAPES]


def give_gradients(*lists: list[torch.nn.Parameter], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for same in zip(*lists):
        gradient = torch.randn(same[0].shape, generator=generator, dtype=torch.float64)
        for parameter in same:
            parameter.grad = gradient.to(parameter.dtype)


def assert_close(found: Any, expected: Any, tolerance: float = 1e-6) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.detach(), other.detach(), rtol=tolerance, atol=tolerance, check_dtype=False)


@pytest.mark.parametrize(("ours", "theirs", "options"), CASES, ids=NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_agree_with_pytorch(ours: Any, theirs: Any, options: dict[str, Any], dtype: torch.dtype) -> None:
    mine, reference = made(dtype), made(dtype)
    optimizer, expected = ours(mine, lr=0.01, **options), theirs(reference, lr=0.01, **options)
    for seed in range(6):
        give_gradients(mine, reference, seed=seed)
        optimizer.step()
        expected.step()
    assert_close(mine, reference, 1e-6 if dtype == torch.float32 else 1e-14)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_types_are_updated_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    short = made(dtype)
    wide = [torch.nn.Parameter(each.detach().float()) for each in short]
    give_gradients(short, seed=1)
    for one, other in zip(short, wide):
        assert one.grad is not None
        other.grad = one.grad.float()
    FusedSGD(short, lr=0.1).step()
    FusedSGD(wide, lr=0.1).step()
    assert all(torch.equal(one, other.to(dtype)) for one, other in zip(short, wide))


def test_complex_parameters_are_pairs_of_numbers() -> None:
    start = torch.randn(33, dtype=torch.complex64, generator=torch.Generator().manual_seed(1))
    mine, reference = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    for kind, parameter in ((FusedAdam, mine), (torch.optim.Adam, reference)):
        optimizer = kind([parameter], lr=0.01)
        for scale in (1.0, 2.0):
            parameter.grad = start.conj() * scale
            optimizer.step()
    assert_close([mine], [reference])


@pytest.mark.parametrize(("ours", "theirs", "options"), CASES, ids=NAMES)
def test_state_dictionaries_go_both_ways(ours: Any, theirs: Any, options: dict[str, Any]) -> None:
    mine, reference = made(), made()
    optimizer, expected = ours(mine, lr=0.01, **options), theirs(reference, lr=0.01, **options)
    for step in range(6):
        give_gradients(mine, reference, seed=step)
        optimizer.step()
        expected.step()
        if step % 2:  # they change places
            one, other = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(expected.state_dict())
            optimizer.load_state_dict(other)
            expected.load_state_dict(one)
    assert_close(mine, reference)
    assert optimizer.state_dict()["param_groups"] == expected.state_dict()["param_groups"]
    assert optimizer.state_dict()["state"].keys() == expected.state_dict()["state"].keys()


def test_a_pickled_optimizer_goes_on_bit_by_bit() -> None:
    mine, other = made(), made()
    optimizer = FusedAdamW(mine, lr=0.01, max_grad_norm=0.5)
    give_gradients(mine, seed=1)
    optimizer.step()
    again = pickle.loads(pickle.dumps(optimizer))
    copies = [each for group in again.param_groups for each in group["params"]]
    for seed in (2, 3):
        give_gradients(mine, copies, other, seed=seed)
        optimizer.step()
        again.step()
    assert all(torch.equal(one, two) for one, two in zip(mine, copies))
    assert again.max_grad_norm == 0.5


def test_groups_have_options_of_their_own_and_schedulers_work() -> None:
    mine, reference = made(), made()
    optimizers = []
    for kind, parameters in ((FusedAdam, mine), (torch.optim.Adam, reference)):
        groups = [{"params": parameters[:3], "lr": 0.1}, {"params": parameters[3:], "weight_decay": 0.2, "amsgrad": True}]
        optimizer = kind(groups, lr=0.01)
        optimizers.append((optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)))
    for seed in range(5):
        give_gradients(mine, reference, seed=seed)
        for optimizer, scheduler in optimizers:
            optimizer.step()
            scheduler.step()
    assert_close(mine, reference)


def test_parameters_whose_gradients_come_and_go_count_their_own_steps() -> None:
    mine, reference = made(), made()
    optimizer, expected = FusedAdam(mine, lr=0.01), torch.optim.Adam(reference, lr=0.01)
    for seed in range(6):
        give_gradients(mine, reference, seed=seed)
        for parameters in (mine, reference):
            for number in range(len(parameters)):
                if seed % (number + 1):
                    parameters[number].grad = None
        optimizer.step()
        expected.step()
    assert_close(mine, reference)
    steps = [float(optimizer.state[one]["step"]) for one in mine if one in optimizer.state]
    assert steps == [float(expected.state[other]["step"]) for other in reference if other in expected.state]


def test_a_group_added_later_is_updated() -> None:
    mine, reference = made(), made()
    optimizer, expected = FusedSGD(mine[:2], lr=0.1, momentum=0.9), torch.optim.SGD(reference[:2], lr=0.1, momentum=0.9)
    for seed in range(4):
        if seed == 2:
            optimizer.add_param_group({"params": mine[2:], "lr": 0.5})
            expected.add_param_group({"params": reference[2:], "lr": 0.5})
        give_gradients(mine, reference, seed=seed)
        optimizer.step()
        expected.step()
    assert_close(mine, reference)


def test_gradients_are_clipped_by_their_global_norm() -> None:
    mine, reference = made(), made()
    optimizer = FusedSGD(mine, lr=0.1, momentum=0.9, max_grad_norm=2.0)
    expected = torch.optim.SGD(reference, lr=0.1, momentum=0.9)
    for seed in range(4):
        give_gradients(mine, reference, seed=seed)
        if seed == 2:  # below the bound
            for parameter in (*mine, *reference):
                assert parameter.grad is not None
                parameter.grad *= 1e-4
        optimizer.step()
        norm = torch.nn.utils.clip_grad_norm_(reference, 2.0)
        expected.step()
        assert optimizer.grad_norm == pytest.approx(float(norm), rel=1e-5)
    assert_close(mine, reference)


def test_a_norm_beyond_float32_is_clipped() -> None:
    parameter = torch.nn.Parameter(torch.zeros(10000))
    parameter.grad = torch.full((10000,), 3e38)
    FusedSGD([parameter], lr=1.0, max_grad_norm=1.0).step()
    torch.testing.assert_close(parameter.detach(), torch.full((10000,), -0.01))


def test_gradscaler_leaves_scaling_and_skipping_to_the_step() -> None:
    mine, reference = made(), made()
    optimizers = [(FusedAdam(mine, lr=0.01), mine), (torch.optim.Adam(reference, lr=0.01, fused=True), reference)]
    for optimizer, parameters in optimizers:
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
        for step in range(4):
            optimizer.zero_grad()
            total = sum((each * each).sum() for each in parameters) * (float("inf") if step == 1 else 1.0)
            scaler.scale(total).backward()
            scaler.step(optimizer)
            scaler.update()
    assert_close(mine, reference)
    assert_close([each.grad for each in mine], [each.grad for each in reference])


def test_any_number_of_threads_gives_the_same_bits() -> None:
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            parameters = [
                torch.nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(1))) for shape in (300001, 77)
            ]
            optimizer = FusedAdamW(parameters, lr=0.01, max_grad_norm=1.0)
            for seed in (1, 2):
                give_gradients(parameters, seed=seed)
                optimizer.step()
            results.append(parameters)
    finally:
        torch.set_num_threads(before)
    for others in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(results[0], others))


@pytest.mark.parametrize("kind", [FusedAdam, FusedSGD])
def test_tensors_that_lie_otherwise_are_updated_all_the_same(kind: Any) -> None:
    start = torch.randn(4, 6, 5, 3, generator=torch.Generator().manual_seed(1))
    gradient = torch.randn(4, 6, 5, 3, generator=torch.Generator().manual_seed(2))
    base = torch.zeros(4, 6, 5, 6)
    layouts = [
        start.clone(),
        start.clone(memory_format=torch.channels_last),
        start.transpose(0, 2).contiguous().transpose(0, 2),
        base[..., ::2].copy_(start),  # with gaps
    ]
    results = []
    for layout in layouts:
        for order in (gradient, gradient.contiguous(memory_format=torch.channels_last)):
            parameter = torch.nn.Parameter(layout.clone(memory_format=torch.preserve_format))
            if layout is layouts[3]:
                parameter = torch.nn.Parameter(torch.zeros(4, 6, 5, 6)[..., ::2].copy_(start))
            optimizer = kind([parameter], lr=0.01)
            for _ in range(2):
                parameter.grad = order
                optimizer.step()
            results.append(parameter)
    assert all(torch.equal(results[0], other) for other in results[1:])


def test_states_in_another_order_than_their_parameter_are_rearranged() -> None:
    start = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    plain = torch.nn.Parameter(start.clone())
    last = torch.nn.Parameter(start.clone(memory_format=torch.channels_last))
    one, other = FusedAdam([plain], lr=0.01), FusedAdam([last], lr=0.01)
    plain.grad = start.clone()
    one.step()
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    with torch.no_grad():
        last.copy_(plain)
    plain.grad, last.grad = start.clone(), start.clone(memory_format=torch.channels_last)
    one.step()
    other.step()
    assert torch.equal(plain, last)
    assert torch.equal(one.state[plain]["exp_avg"], other.state[last]["exp_avg"])
    assert other.state[last]["exp_avg"].stride() == last.stride()


def test_a_closure_is_called_with_gradients_enabled() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = FusedSGD([parameter], lr=0.5)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (parameter * parameter).sum()
        loss.backward()
        return loss

    assert float(optimizer.step(closure).detach()) == 3.0
    assert parameter.tolist() == [0.0, 0.0, 0.0]


def test_a_step_without_gradients_does_nothing() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = FusedAdam([parameter], max_grad_norm=1.0)
    optimizer.step()
    assert parameter.tolist() == [1.0, 1.0, 1.0]
    assert optimizer.grad_norm == 0.0


def test_saved_tensors_that_a_step_changed_are_noticed_in_backward() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    loss = (parameter * parameter).sum()
    parameter.grad = torch.ones(3)
    FusedSGD([parameter], lr=0.1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_step_hooks_are_called() -> None:
    seen: list[str] = []
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = FusedAdam([parameter])
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("behind"))
    parameter.grad = torch.ones(3)
    optimizer.step()
    assert seen == ["before", "behind"]


def test_memory_that_a_caller_replaces_is_found_again() -> None:
    mine, reference = made(), made()
    optimizer, expected = FusedAdam(mine, lr=0.01), torch.optim.Adam(reference, lr=0.01)
    for seed in range(5):
        give_gradients(mine, reference, seed=seed)
        for parameters, each in ((mine, optimizer), (reference, expected)):
            if seed == 2:
                parameters[1].data = parameters[1].data.clone() * 2
                each.state[parameters[2]]["exp_avg"] = torch.zeros_like(parameters[2])
            if seed == 3:
                each.state[parameters[0]]["step"].fill_(1)
                each.state[parameters[2]] = dict(each.state[parameters[2]], step=torch.tensor(7.0))
            each.step()
    assert_close(mine, reference)


def test_sparse_gradients_are_refused() -> None:
    layer = torch.nn.Embedding(10, 4, sparse=True)
    layer(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(RuntimeError, match="FusedAdam does not support sparse gradients"):
        FusedAdam(layer.parameters()).step()


def test_a_resized_parameter_is_refused() -> None:
    parameter = torch.nn.Parameter(torch.ones(4, 3))
    optimizer = FusedAdam([parameter])
    parameter.grad = torch.ones(4, 3)
    optimizer.step()
    parameter.data = torch.ones(8, 3)
    parameter.grad = torch.ones(8, 3)
    with pytest.raises(errors.InvalidArgument, match=r"shape \(8, 3\), its gradient or state \(4, 3\)"):
        optimizer.step()


@pytest.mark.parametrize(
    "options", [{"lr": -1.0}, {"betas": (1.5, 0.9)}, {"max_grad_norm": 0.0}, {"max_grad_norm": float("nan")}]
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Invalid"):
        FusedAdam([torch.nn.Parameter(torch.ones(3))], **options)


@pytest.mark.parametrize("option", ["capturable", "differentiable"])
def test_what_a_native_step_cannot_do_is_refused(option: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=f"FusedAdam has no {option}=True"):
        FusedAdam([torch.nn.Parameter(torch.ones(3))], **{option: True})


def test_integers_are_refused() -> None:
    parameter = torch.nn.Parameter(torch.ones(3, dtype=torch.int32), requires_grad=False)
    parameter.grad = torch.ones(3, dtype=torch.int32)
    with pytest.raises(errors.InvalidArgument, match=r"type torch\.int32 on cpu cannot be updated"):
        FusedSGD([parameter], lr=0.1).step()


@pytest.mark.parametrize("mode", list(AdamWMode))
def test_onnxruntimes_adam_has_three_kinds_of_weight_decay(mode: AdamWMode) -> None:
    mine, reference = made(), made()
    optimizer = AdamWithModes(mine, lr=0.01, eps=1e-15, weight_decay=0.1, adam_w_mode=mode)
    kind = torch.optim.Adam if mode == AdamWMode.ADAM_L2_REGULARIZATION else torch.optim.AdamW
    behind = mode == AdamWMode.ADAMW_TRANSFORMERS
    expected = kind(reference, lr=0.01, eps=1e-15, weight_decay=0.0 if behind else 0.1)
    for seed in range(3):
        give_gradients(mine, reference, seed=seed)
        optimizer.step()
        expected.step()
        if behind:
            with torch.no_grad():
                for parameter in reference:
                    parameter.mul_(1 - 0.01 * 0.1)
    assert_close(mine, reference, 1e-5)


def test_onnxruntimes_adam_without_bias_correction() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.full((3,), 0.5)
    AdamWithModes([parameter], lr=0.1, bias_correction=False, eps=0.0).step()
    torch.testing.assert_close(parameter.detach(), 1 - 0.1 * torch.full((3,), 0.05) / (0.001**0.5 * 0.5))


def test_a_network_learns() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = FusedAdamW(model.parameters(), lr=0.03, max_grad_norm=1.0)
    x = torch.randn(64, 8)
    y = x[:, :1] * x[:, 1:2]
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.2 * losses[0]
    assert np.isfinite(losses).all()
