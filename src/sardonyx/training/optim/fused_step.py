"""One native call for a whole optimizer step: what FusedAdam, FusedAdamW and FusedSGD have in common.

    parameters with gradients ── rows ──> UpdatePlan: one kernel call for each tensor ──> one native call

A plan is made once for a list of parameters and kept as long as kinds, sizes and options of the list stay the same; from step to
step only addresses (gradients come and go) and scalars (learning rate, bias correction) are written into it. Sizes and layouts
are looked at before every step: a kernel sees each tensor as one run of elements, so gradients and states that lie otherwise than
their parameter are brought into its order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, Final, NamedTuple

import torch

from sardonyx import errors
from sardonyx.training.update_plan import StepSettings, TensorRow, UpdatePlan, UpdateRule, rule_keys, signature

_KINDS: Final = {
    torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16",
    torch.complex64: "f32", torch.complex128: "f64",
}  # fmt: skip


class ParameterRow(NamedTuple):
    """A parameter to update: its state in the order of the kernel's operands, and which scalars it reads."""

    parameter: Any
    gradient: Any
    states: tuple[Any, ...]
    group: int
    block: Any  # rows of a group with equal blocks read the same scalars


Scalars = Callable[[int, Any], dict[str, float]]


class StepResult(NamedTuple):
    """The norm of the gradients, if it has a bound, and what the next step may use."""

    norm: float | None
    reusable: ReusableRows | None


class ReusableRows:
    """The rows of the step before. If nothing but gradients and numbers has changed, a step need not look at them one by one."""

    def __init__(
        self,
        rows: list[ParameterRow],
        blocks: list[tuple[int, Any]],
        rules: Sequence[UpdateRule],
        settings: StepSettings,
        plan: UpdatePlan,
    ) -> None:
        self.blocks = blocks
        self.members = [[at for at, row in enumerate(rows) if (row.group, row.block) == block] for block in blocks]
        self._plan = plan
        self._kind = rule_keys(rules), settings.kind
        self._parameters = [row.parameter for row in rows]
        self._states = [state for row in rows for state in row.states]
        self._fixed = self._parameters + self._states
        self._addresses = list(map(_address, self._fixed))
        self._sizes = list(map(_elements, self._fixed))
        self._own_sizes = self._sizes[: len(rows)]
        self._strides = list(map(_strides, self._parameters))
        self._dtypes = [parameter.dtype for parameter in self._parameters]
        self._gradient_dtypes = [row.gradient.dtype for row in rows]

    def fit(
        self, parameters: list[Any], gradients: list[Any], states: list[Any], rules: Sequence[UpdateRule], settings: StepSettings
    ) -> bool:
        """Whether these are the same rows, with gradients that lie as their parameters do."""
        return (
            len(parameters) == len(self._parameters)
            and all(map(is_, parameters, self._parameters))
            and len(states) == len(self._states)
            and all(map(is_, states, self._states))
            and self._kind == (rule_keys(rules), settings.kind)
            and all(gradient.layout is torch.strided for gradient in gradients)
            and list(map(_address, self._fixed)) == self._addresses
            and list(map(_elements, self._fixed)) == self._sizes
            and list(map(_elements, gradients)) == self._own_sizes
            and list(map(_strides, parameters)) == self._strides
            and list(map(_strides, gradients)) == self._strides
            and [parameter.dtype for parameter in parameters] == self._dtypes
            and [gradient.dtype for gradient in gradients] == self._gradient_dtypes
        )

    def run(self, gradients: list[Any], numbers: Sequence[dict[str, float]], settings: StepSettings) -> float | None:
        """Update the rows with new gradients, and the scalars of each block."""
        self._plan.bind_gradients(list(map(_address, gradients)))
        norm = self._plan.run(numbers, settings)
        torch.autograd.graph.increment_version(self._parameters)
        return norm


_address, _elements, _strides = torch.Tensor.data_ptr, torch.Tensor.numel, torch.Tensor.stride


class FusedStep:
    """The plan an optimizer keeps from step to step."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._plan: UpdatePlan | None = None

    def run(self, rows: list[ParameterRow], rules: Sequence[UpdateRule], scalars: Scalars, settings: StepSettings) -> StepResult:
        """Update all rows; rows whose memory can be used as it lies in the next step, too, are `reusable`."""
        rows = [row for row in rows if row.parameter.numel()]
        if not rows:
            return StepResult(0.0 if settings.bound is not None else None, None)
        arranged = list(rows)
        staged = self._arranged(arranged)
        blocks = list(dict.fromkeys((row.group, row.block) for row in rows))
        order = {block: number for number, block in enumerate(blocks)}
        described = [_row(row, order[row.group, row.block]) for row in arranged]
        if self._plan is None or self._plan.signature != signature(described, rules, settings):
            self._plan = UpdatePlan(described, rules, settings)
        self._plan.bind([each.data_ptr() for row in arranged for each in (row.parameter, row.gradient, *row.states)])
        norm = self._plan.run([scalars(*block) for block in blocks], settings)
        for original, copy in staged:
            original.copy_(copy)
        torch.autograd.graph.increment_version([row.parameter for row in rows])
        reusable = None if staged else ReusableRows(rows, blocks, rules, settings, self._plan)
        return StepResult(norm, reusable)

    def _arranged(self, rows: list[ParameterRow]) -> list[tuple[Any, Any]]:
        """Have every tensor of a row lie as its parameter does. Returns what must be copied back after the step."""
        staged: list[tuple[Any, Any]] = []
        for number, row in enumerate(rows):
            parameter, gradient = row.parameter, row.gradient
            if gradient.layout is not torch.strided or parameter.layout is not torch.strided:
                found = f"{self._name} does not support sparse gradients, found {gradient.layout}"
                raise RuntimeError(f"{found}; use a dense layer, or torch.optim.SparseAdam")
            shape, strides = parameter.shape, parameter.stride()
            same = all(tensor.shape == shape and tensor.stride() == strides for tensor in (gradient, *row.states))
            if not (same and _is_dense(parameter)):
                rows[number] = self._as_parameter(row, staged)
        return staged

    def _as_parameter(self, row: ParameterRow, staged: list[tuple[Any, Any]]) -> ParameterRow:
        target = row.parameter if _is_dense(row.parameter) else torch.empty(row.parameter.shape, dtype=row.parameter.dtype)
        if target is not row.parameter:
            target.copy_(row.parameter)
            staged.append((row.parameter, target))
        tensors = []
        for tensor in (row.gradient, *row.states):
            if tensor.shape != target.shape:
                raise errors.InvalidArgument(
                    f"{self._name}: a parameter has shape {tuple(target.shape)}, its gradient or state {tuple(tensor.shape)}",
                    hint="the parameter was resized: make a new optimizer, or drop its state",
                )
            if tensor.stride() == target.stride():
                tensors.append(tensor)
                continue
            copy = torch.empty_like(target, dtype=tensor.dtype)
            copy.copy_(tensor)
            staged.append((tensor, copy))
            tensors.append(copy)
        return row._replace(parameter=target, gradient=tensors[0], states=tuple(tensors[1:]))


def _is_dense(tensor: Any) -> bool:
    """Whether its elements fill a run of memory, in whatever order."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _row(row: ParameterRow, block: int) -> TensorRow:
    kinds = tuple([_kind(tensor) for tensor in (row.parameter, row.gradient, *row.states)])
    return TensorRow(row.parameter.numel() * (2 if row.parameter.is_complex() else 1), kinds, row.group, block)


def _kind(tensor: Any) -> str:
    if tensor.dtype not in _KINDS or not tensor.is_cpu:
        raise errors.InvalidArgument(
            f"a tensor of type {tensor.dtype} on {tensor.device} cannot be updated",
            hint="parameters, gradients and states are floating point and on the CPU",
        )
    return _KINDS[tensor.dtype]
