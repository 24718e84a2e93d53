"""FusedAdam, FusedAdamW and FusedSGD: PyTorch's optimizers with one native loop over all parameters.

    optimizer = FusedAdamW(model.parameters(), lr=1e-3, weight_decay=0.01, max_grad_norm=1.0)
    loss.backward()
    optimizer.step()                       # clips, decays, updates: every tensor is read and written once

They are subclasses of the optimizers they stand for: parameter groups, state dictionaries (in both directions), learning-rate
schedulers, hooks and GradScaler work as before. `max_grad_norm` clips the gradients of all groups together by their norm while
they are used, without a pass that writes them; `grad_norm` then tells the norm they had. Parameters may be float32, float64,
bfloat16, float16 or complex, on the CPU; those of 16 bits are updated in 32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
import torch

from sardonyx import errors
from sardonyx.kernel.optimizers import adam, sgd
from sardonyx.training.optim.fused_step import FusedStep, ParameterRow, ReusableRows
from sardonyx.training.update_plan import StepSettings, UpdateRule

Group = dict[str, Any]


class FusedOptimizer(torch.optim.Optimizer):
    """An optimizer whose step is one native call. Subclasses say what the step is, by rule, rows and scalars."""

    max_grad_norm: float | None = None
    grad_norm: float | None = None  # of the last step, if there is a bound for it

    def _prepare(self, max_grad_norm: float | None) -> None:
        if max_grad_norm is not None and not max_grad_norm > 0:
            raise ValueError(f"Invalid max_grad_norm: {max_grad_norm}, expected a positive number or None")
        for option in ("capturable", "differentiable"):
            if any(group.get(option) for group in self.param_groups):
                found = f"{type(self).__name__} has no {option}=True"
                raise errors.InvalidArgument(found, hint="use the optimizer of torch.optim that it stands for")
        self.max_grad_norm = max_grad_norm
        self._step_supports_amp_scaling = True  # GradScaler leaves scaling and skipping to the step
        self._forget()

    def _forget(self) -> None:
        """Make the next step look at everything anew."""
        self._fused = FusedStep(type(self).__name__)
        self._reusable: ReusableRows | None = None
        self._known: list[Any] = []  # states of the step before, all of the optimizer's
        self._row_states: list[tuple[dict[str, Any], Sequence[str]]] = []  # of its rows, with the names of their tensors

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "max_grad_norm": self.max_grad_norm, "_step_supports_amp_scaling": True}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have gradients; the loss that `closure` computes, if it is given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        found_inf, grad_scale = getattr(self, "found_inf", None), getattr(self, "grad_scale", None)
        if found_inf is not None and float(found_inf):
            return loss
        scale = None if grad_scale is None else 1.0 / float(grad_scale)
        settings = StepSettings(scale, self.max_grad_norm, torch.get_num_threads())
        rules = [self._rule(group) for group in self.param_groups]
        present = [[each for each in group["params"] if each.grad is not None] for group in self.param_groups]
        parameters = [each for group in present for each in group]
        gradients = [each.grad for each in parameters]
        reusable, states = self._reusable, self._known_states()
        if reusable is not None and states is not None and reusable.fit(parameters, gradients, states, rules, settings):
            blocks = self._next_blocks(reusable)
            if blocks is not None:
                self.grad_norm = reusable.run(gradients, [self._numbers(*block) for block in blocks], settings)
                return loss
        rows = self._rows(present)
        self.grad_norm, self._reusable = self._fused.run(rows, rules, self._numbers, settings)
        self._known = list(self.state.values())
        return loss

    def _known_states(self) -> list[Any] | None:
        """The tensors of all rows' states; None if the states are not those of the step before."""
        if list(map(id, self.state.values())) != list(map(id, self._known)):
            return None
        try:
            return [state[name] for state, names in self._row_states for name in names]
        except KeyError:
            return None

    def _states_of(self, parameters: list[Any], names: Sequence[str]) -> list[dict[str, Any]]:
        """The states of parameters, with zeros where a tensor is missing."""
        states = [self.state[parameter] for parameter in parameters]
        for parameter, state in zip(parameters, states):
            for name in names:
                found = state.get(name)
                if found is None:
                    state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                elif found.stride() != parameter.stride() and found.shape == parameter.shape:  # loaded: saved in another order
                    state[name] = torch.empty_like(parameter, dtype=found.dtype, memory_format=torch.preserve_format).copy_(found)
        self._row_states += [(state, names) for state in states]
        return states

    def _numbers(self, group: int, block: Any) -> dict[str, float]:
        return self._scalars(self.param_groups[group], block)

    def _next_blocks(self, reusable: ReusableRows) -> list[tuple[int, Any]] | None:
        """Which scalars the rows of the step before read in this one; None if they no longer share them."""
        raise NotImplementedError

    def _rows(self, present: list[list[Any]]) -> list[ParameterRow]:
        """The rows of the parameters of each group that have gradients."""
        raise NotImplementedError

    def _rule(self, group: Group) -> UpdateRule:
        """What is done with the parameters of a group."""
        raise NotImplementedError

    def _scalars(self, group: Group, block: Any) -> dict[str, float]:
        """The scalars of the rule, by name."""
        raise NotImplementedError


class StepCounts:
    """The steps of many parameters in one array; each is a tensor of its own, as PyTorch keeps them, in this memory."""

    def __init__(self, states: list[dict[str, Any]]) -> None:
        self.values = np.array([float(state["step"]) for state in states], np.float32)
        self.tensors = list(torch.from_numpy(self.values).unbind())
        for state, tensor in zip(states, self.tensors):
            state["step"] = tensor

    def serves(self, states: list[dict[str, Any]]) -> bool:
        """Whether the states still hold these tensors."""
        return len(states) == len(self.tensors) and all(s["step"] is each for s, each in zip(states, self.tensors))


class AdamSteps(FusedOptimizer):
    """Rows of Adam: moments, and how many steps each parameter has seen."""

    _counts: StepCounts

    def _forget(self) -> None:
        super()._forget()
        self._counts = StepCounts([])

    def _rows(self, present: list[list[Any]]) -> list[ParameterRow]:
        self._row_states = []
        for number, parameters in enumerate(present):
            for state in self._states_of(parameters, self._names(self.param_groups[number])):
                state.setdefault("step", torch.tensor(0.0))
        states = [state for state, _ in self._row_states]
        if not self._counts.serves(states):
            self._counts = StepCounts(states)
        self._counts.values += 1
        owners = [(number, parameter) for number, parameters in enumerate(present) for parameter in parameters]
        return [
            ParameterRow(parameter, parameter.grad, tuple([state[name] for name in names]), number, count)
            for (number, parameter), (state, names), count in zip(owners, self._row_states, self._counts.values.tolist())
        ]

    def _next_blocks(self, reusable: ReusableRows) -> list[tuple[int, Any]] | None:
        counts = self._counts.values
        if not self._counts.serves([state for state, _ in self._row_states]):
            return None
        steps = [counts[members] for members in reusable.members]
        if any((each != each[0]).any() for each in steps):
            return None  # somebody has set the steps of some
        counts += 1
        return [(group, float(each[0]) + 1) for (group, _), each in zip(reusable.blocks, steps)]

    def _names(self, group: Group) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group.get("amsgrad") else ("exp_avg", "exp_avg_sq")

    def _rule(self, group: Group) -> UpdateRule:
        amsgrad = bool(group.get("amsgrad"))
        decayed = group["weight_decay"] != 0 and not group["decoupled_weight_decay"]
        return UpdateRule(partial(adam, amsgrad=amsgrad), ("adam", amsgrad), bool(group.get("maximize")), decayed)

    def _scalars(self, group: Group, block: float) -> dict[str, float]:
        rate, decay = float(group["lr"]), float(group["weight_decay"])
        beta1, beta2 = map(float, group["betas"])
        return {
            "decay": decay,
            "beta1_rest": 1 - beta1,
            "beta2": beta2,
            "beta2_rest": 1 - beta2,
            "root_scale": 1 / sqrt(1 - beta2**block),
            "epsilon": float(group["eps"]),
            "before": 1 - rate * decay if group["decoupled_weight_decay"] else 1.0,
            "step": rate / (1 - beta1**block),
            "after": 1.0,
        }


class FusedAdam(AdamSteps, torch.optim.Adam):
    """torch.optim.Adam in one native call a step; the arguments are the same, and `max_grad_norm`."""

    def __init__(self, params: Any, *args: Any, max_grad_norm: float | None = None, **options: Any) -> None:
        super().__init__(params, *args, **options)
        self._prepare(max_grad_norm)


class FusedAdamW(AdamSteps, torch.optim.AdamW):
    """torch.optim.AdamW, whose weight decay does not go through the moments, in one native call a step."""

    def __init__(self, params: Any, *args: Any, max_grad_norm: float | None = None, **options: Any) -> None:
        super().__init__(params, *args, **options)
        self._prepare(max_grad_norm)


class FusedSGD(FusedOptimizer, torch.optim.SGD):
    """torch.optim.SGD, with momentum or without, in one native call a step."""

    def __init__(self, params: Any, *args: Any, max_grad_norm: float | None = None, **options: Any) -> None:
        super().__init__(params, *args, **options)
        self._prepare(max_grad_norm)

    def _rows(self, present: list[list[Any]]) -> list[ParameterRow]:
        self._row_states, rows = [], []
        for number, parameters in enumerate(present):
            names = ("momentum_buffer",) if self.param_groups[number]["momentum"] else ()
            # A buffer that begins as 0, times the momentum, plus the gradient without dampening: the gradient itself.
            first = [bool(names) and self.state[each].get("momentum_buffer") is None for each in parameters]
            states = self._states_of(parameters, names) if names else [{}] * len(parameters)
            for parameter, state, new in zip(parameters, states, first):
                rows.append(ParameterRow(parameter, parameter.grad, tuple([state[name] for name in names]), number, new))
        return rows

    def _next_blocks(self, reusable: ReusableRows) -> list[tuple[int, Any]] | None:
        return [(group, False) for group, _ in reusable.blocks]

    def _rule(self, group: Group) -> UpdateRule:
        momentum, nesterov = bool(group["momentum"]), bool(group["nesterov"])
        update = partial(sgd, momentum=momentum, nesterov=nesterov)
        return UpdateRule(update, ("sgd", momentum, nesterov), bool(group.get("maximize")), group["weight_decay"] != 0)

    def _scalars(self, group: Group, block: bool) -> dict[str, float]:
        return {
            "decay": float(group["weight_decay"]),
            "kept": float(group["momentum"]),
            "undamped": 1.0 if block else 1.0 - float(group["dampening"]),
            "step": float(group["lr"]),
        }
