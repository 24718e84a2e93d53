"""One native call for a whole optimizer step: what FusedAdam, FusedAdamW and FusedSGD have in common.

    parameters with gradients ── rows ──> UpdatePlan: one kernel call for each tensor ──> TensorProgram.run()

A plan is made once for a list of parameters and kept as long as kinds, sizes and options of the list stay the same; from step to
step only addresses (gradients come and go) and scalars (learning rate, bias correction) are written into it. Sizes and layouts
are looked at before every step: a kernel sees each tensor as one run of elements, so gradients and states that lie otherwise than
their parameter are brought into its order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import is_
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from sardonyx import errors
from sardonyx.kernel.optimizers import PIECE, Adjustment, Update, clip_factor, squares
from sardonyx.training.tensor_program import TensorCall, TensorProgram

_KINDS: Final = {
    torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16",
    torch.complex64: "f32", torch.complex128: "f64",
}  # fmt: skip
_TYPES: Final = {"f32": np.float32, "f64": np.float64}
_WIDTHS: Final = {"f32": 4, "f64": 8, "bf16": 2, "f16": 2}


class ParameterRow(NamedTuple):
    """A parameter to update: its state in the order of the kernel's operands, and which scalars it reads."""

    parameter: Any
    gradient: Any
    states: tuple[Any, ...]
    group: int
    block: Any  # rows of a group with equal blocks read the same scalars


class UpdateRule(NamedTuple):
    """What an optimizer does with the parameters of a group, apart from numbers."""

    update: Callable[[str, str, str, Adjustment], Update]
    key: tuple[Any, ...]  # equal for groups whose kernels are the same
    maximize: bool
    decayed: bool


class StepSettings(NamedTuple):
    """What holds for all groups in one step."""

    scale: float | None  # of the gradients, which are written back scaled
    bound: float | None  # of their norm
    workers: int

    @property
    def kind(self) -> tuple[bool, bool, int]:
        """Equal for steps with the same kernels."""
        return self.scale is not None, self.bound is not None, self.workers


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
        self._kind = _keys(rules), settings.kind
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
            and self._kind == (_keys(rules), settings.kind)
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


def _keys(rules: Sequence[UpdateRule]) -> list[Any]:
    return [rule[1:] for rule in rules]


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
        signature = _signature(arranged, blocks, rules, settings)
        if self._plan is None or self._plan.signature != signature:
            self._plan = UpdatePlan(arranged, rules, signature, settings)
        self._plan.bind(arranged)
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


def _signature(
    rows: Iterable[ParameterRow], blocks: list[tuple[int, Any]], rules: Sequence[UpdateRule], settings: StepSettings
) -> tuple[Any, ...]:
    """Equal for lists that one plan serves: kinds and sizes of the tensors, and which of them share scalars."""
    numbers = {block: number for number, block in enumerate(blocks)}
    kinds = [
        (
            row.parameter.numel(),
            row.parameter.dtype,
            row.gradient.dtype,
            [state.dtype for state in row.states],
            row.group,
            numbers[row.group, row.block],
        )
        for row in rows
    ]
    return kinds, _keys(rules), settings.kind


class UpdatePlan:
    """Kernel calls for a list of parameters."""

    def __init__(
        self, rows: Sequence[ParameterRow], rules: Sequence[UpdateRule], signature: tuple[Any, ...], settings: StepSettings
    ) -> None:
        self.signature = signature
        stored, clipped, workers = settings.kind
        updates = [_update(row, rules[row.group], stored=stored, clipped=clipped) for row in rows]
        self._sizes = [row.parameter.numel() * (2 if row.parameter.is_complex() else 1) for row in rows]
        self._blocks: dict[tuple[int, str], tuple[Update, np.ndarray[Any, Any]]] = {}  # scalars, by block and kernel
        self._norm = np.zeros(3)  # of the gradients, its bound, the scale of the gradients
        self._factors = np.zeros(1, np.float32), np.zeros(1)
        pieces = sum(-(-size // PIECE) for size in self._sizes) if clipped else 0
        self._sums = np.zeros(pieces)
        calls: list[TensorCall] = []
        moving: list[tuple[int, int, int, int]] = []  # call, operand, row, offset in bytes: gradients that are squared
        if clipped:
            calls, moving = self._norm_calls(rows)
        first = len(calls)
        order = {key: number for number, key in enumerate(dict.fromkeys((row.group, row.block) for row in rows))}
        for row, update, size in zip(rows, updates, self._sizes):
            block = self._block(order[row.group, row.block], update)
            factor = self._factors[update.compute == "f64"].ctypes.data
            scalars = [
                factor if name == "clip" else block.ctypes.data + position * block.itemsize
                for position, name in enumerate(update.scalars)
            ]
            calls.append(TensorCall(update.kernel, (size,), (*[0] * len(update.tensors), *scalars)))
        self._program = TensorProgram(calls, workers)
        slot = self._program.slot
        self._moving_slots = np.array([slot(call, operand) for call, operand, _, _ in moving], np.int64)
        self._moving_rows = np.array([row for _, _, row, _ in moving], np.int64)
        self._moving_offsets = np.array([offset for _, _, _, offset in moving], np.int64)
        self._slots = np.array(
            [slot(first + number, each) for number, row in enumerate(rows) for each in _tensors(row)], np.int64
        )
        self._gradient_slots = np.array([slot(first + number, 1) for number in range(len(rows))], np.int64)

    def _block(self, number: int, update: Update) -> np.ndarray[Any, Any]:
        """The memory of the scalars that a row reads; rows of one block share it."""
        key = number, update.kernel.key
        if key not in self._blocks:
            self._blocks[key] = update, np.zeros(len(update.scalars), _TYPES[update.compute])
        return self._blocks[key][1]

    def _norm_calls(self, rows: Sequence[ParameterRow]) -> tuple[list[TensorCall], list[tuple[int, int, int, int]]]:
        """Sums of squares of all pieces, then the factor."""
        calls: list[TensorCall] = []
        moving: list[tuple[int, int, int, int]] = []
        done = 0
        for number, (row, size) in enumerate(zip(rows, self._sizes)):
            kind = _KINDS[row.gradient.dtype]
            kernel, whole = squares(kind), size // PIECE
            for count, length, start in ((whole, PIECE, 0), (1, size % PIECE, whole * PIECE)):
                if count and length:
                    moving.append((len(calls), 0, number, start * _WIDTHS[kind]))
                    calls.append(TensorCall(kernel, (count, length), (0, self._sums.ctypes.data + done * 8)))
                    done += count
        calls[-1] = TensorCall(calls[-1].kernel, calls[-1].sizes, calls[-1].addresses, joins=True)
        norm, single, double = self._norm.ctypes.data, self._factors[0].ctypes.data, self._factors[1].ctypes.data
        addresses = (self._sums.ctypes.data, norm + 8, norm + 16, norm, single, double)
        calls.append(TensorCall(clip_factor(), (done,), addresses, joins=True))
        return calls, moving

    def bind(self, rows: Sequence[ParameterRow]) -> None:
        """Write down where the tensors of rows like those the plan was made for lie."""
        self._program.table[self._slots] = [
            tensor.data_ptr() for row in rows for tensor in (row.parameter, row.gradient, *row.states)
        ]
        self.bind_gradients([row.gradient.data_ptr() for row in rows])

    def bind_gradients(self, addresses: list[int]) -> None:
        """Write down where the gradients lie."""
        found = np.array(addresses, np.int64)
        self._program.table[self._gradient_slots] = found
        if len(self._moving_slots):
            self._program.table[self._moving_slots] = found[self._moving_rows] + self._moving_offsets

    def run(self, numbers: Sequence[dict[str, float]], settings: StepSettings) -> float | None:
        """Update the tensors with the scalars of each block; the norm of the gradients, if it has a bound."""
        scale, bound = 1.0 if settings.scale is None else settings.scale, settings.bound
        if bound is not None:
            self._norm[1:] = bound, abs(scale)
        for (block, _), (update, memory) in self._blocks.items():
            given = {**numbers[block], "scale": scale}
            memory[:] = [given.get(name, 0.0) for name in update.scalars]
        self._program.run()
        return float(self._norm[0]) if bound is not None else None


def _tensors(row: ParameterRow) -> range:
    return range(2 + len(row.states))


def _update(row: ParameterRow, rule: UpdateRule, *, stored: bool, clipped: bool) -> Update:
    kinds = [_kind(tensor) for tensor in (row.parameter, row.gradient, *row.states)]
    how = Adjustment(stored=stored, clipped=clipped, maximize=rule.maximize, decayed=rule.decayed)
    return rule.update(kinds[0], kinds[1], kinds[2] if row.states else kinds[0], how)


def _kind(tensor: Any) -> str:
    if tensor.dtype not in _KINDS or not tensor.is_cpu:
        raise errors.InvalidArgument(
            f"a tensor of type {tensor.dtype} on {tensor.device} cannot be updated",
            hint="parameters, gradients and states are floating point and on the CPU",
        )
    return _KINDS[tensor.dtype]
