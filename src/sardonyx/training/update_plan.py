"""A step of an optimizer over a list of tensors, as one program: kernel calls, the scalars they read, the norm that clips.

    plan = UpdatePlan([TensorRow(size, ("f32", "f32", "f32", "f32"), group=0, block=0), ...], rules, settings)
    plan.bind(addresses)                 of parameter, gradient and states, row by row
    plan.run([scalars of block 0, ...], settings)

A plan knows sizes and element types; who makes it (the optimizers for PyTorch, those of `training.api`) knows the tensors, keeps
them alive and sees to it that they are as large as the rows say. Rows of one *block* read the same scalars: those of one group
whose parameters have seen equally many steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from sardonyx import errors
from sardonyx.kernel.optimizers import PIECE, Adjustment, Update, clip_factor, squares
from sardonyx.training.tensor_program import TensorCall, TensorProgram

_TYPES: Final = {"f32": np.float32, "f64": np.float64}
_WIDTHS: Final = {"f32": 4, "f64": 8, "bf16": 2, "f16": 2}


class TensorRow(NamedTuple):
    """A parameter: its elements, and the types of parameter, gradient and states in the order of the kernel's operands."""

    size: int
    kinds: tuple[str, ...]
    group: int  # whose rule holds
    block: int


class UpdateRule(NamedTuple):
    """What an optimizer does with the parameters of a group, apart from numbers."""

    update: Callable[[str, str, str, Adjustment], Update]
    key: tuple[Any, ...]  # equal for groups whose kernels are the same
    maximize: bool = False
    decayed: bool = False


class StepSettings(NamedTuple):
    """What holds for all groups in one step."""

    scale: float | None = None  # of the gradients, which are written back scaled
    bound: float | None = None  # of their norm
    workers: int = 0  # 0: as many as this process may use

    @property
    def kind(self) -> tuple[bool, bool, int]:
        """Equal for steps with the same kernels."""
        return self.scale is not None, self.bound is not None, self.workers


class UpdatePlan:
    """Kernel calls for a list of parameters."""

    def __init__(self, rows: Sequence[TensorRow], rules: Sequence[UpdateRule], settings: StepSettings) -> None:
        self.signature = signature(rows, rules, settings)
        stored, clipped, workers = settings.kind
        updates = [_update(row, rules[row.group], stored=stored, clipped=clipped) for row in rows]
        self._blocks: dict[tuple[int, str], tuple[Update, np.ndarray[Any, Any]]] = {}  # scalars, by block and kernel
        self._norm = np.zeros(3)  # of the gradients, its bound, the scale of the gradients
        self._factors = np.zeros(1, np.float32), np.zeros(1)
        self._sums = np.zeros(sum(-(-row.size // PIECE) for row in rows) if clipped else 0)
        calls: list[TensorCall] = []
        squared: list[tuple[int, int, int]] = []  # call, row and offset in bytes of the parts of gradients that are squared
        if clipped:
            calls, squared = self._norm_calls(rows)
        first = len(calls)
        for row, update in zip(rows, updates):
            block = self._block(row.block, update)
            factor = self._factors[update.compute == "f64"].ctypes.data
            scalars = [
                factor if name == "clip" else block.ctypes.data + position * block.itemsize
                for position, name in enumerate(update.scalars)
            ]
            calls.append(TensorCall(update.kernel, (row.size,), (*[0] * len(update.tensors), *scalars)))
        self._program = TensorProgram(calls, workers)
        slot = self._program.slot
        self._squared_slots = np.array([slot(call, 0) for call, _, _ in squared], np.int64)
        self._squared_rows = np.array([row for _, row, _ in squared], np.int64)
        self._squared_offsets = np.array([offset for _, _, offset in squared], np.int64)
        operands = [(first + number, operand) for number, row in enumerate(rows) for operand in range(len(row.kinds))]
        self._slots = np.array([slot(*each) for each in operands], np.int64)
        self._gradients = [position for position, (_, operand) in enumerate(operands) if operand == 1]
        self._gradient_slots = self._slots[self._gradients]

    def _block(self, number: int, update: Update) -> np.ndarray[Any, Any]:
        """The memory of the scalars that a row reads; rows of one block share it."""
        key = number, update.kernel.key
        if key not in self._blocks:
            self._blocks[key] = update, np.zeros(len(update.scalars), _TYPES[update.compute])
        return self._blocks[key][1]

    def _norm_calls(self, rows: Sequence[TensorRow]) -> tuple[list[TensorCall], list[tuple[int, int, int]]]:
        """Sums of squares of all pieces, then the factor."""
        calls: list[TensorCall] = []
        squared: list[tuple[int, int, int]] = []
        done = 0
        for number, row in enumerate(rows):
            kernel, whole = squares(row.kinds[1]), row.size // PIECE
            for count, length, start in ((whole, PIECE, 0), (1, row.size % PIECE, whole * PIECE)):
                if count and length:
                    squared.append((len(calls), number, start * _WIDTHS[row.kinds[1]]))
                    calls.append(TensorCall(kernel, (count, length), (0, self._sums.ctypes.data + done * 8)))
                    done += count
        calls[-1] = TensorCall(calls[-1].kernel, calls[-1].sizes, calls[-1].addresses, joins=True)
        norm, single, double = self._norm.ctypes.data, self._factors[0].ctypes.data, self._factors[1].ctypes.data
        addresses = (self._sums.ctypes.data, norm + 8, norm + 16, norm, single, double)
        calls.append(TensorCall(clip_factor(), (done,), addresses, joins=True))
        return calls, squared

    def bind(self, addresses: Sequence[int]) -> None:
        """Write down where parameter, gradient and states of each row lie."""
        found = np.array(addresses, np.int64)
        self._program.table[self._slots] = found
        self._bind_squared(found[self._gradients])

    def bind_gradients(self, addresses: Sequence[int]) -> None:
        """Write down where the gradients lie; everything else is where it was."""
        found = np.array(addresses, np.int64)
        self._program.table[self._gradient_slots] = found
        self._bind_squared(found)

    def _bind_squared(self, gradients: np.ndarray[Any, Any]) -> None:
        if len(self._squared_slots):
            self._program.table[self._squared_slots] = gradients[self._squared_rows] + self._squared_offsets

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


def signature(rows: Sequence[TensorRow], rules: Sequence[UpdateRule], settings: StepSettings) -> tuple[Any, ...]:
    """Equal for lists that one plan serves."""
    return list(rows), rule_keys(rules), settings.kind


def rule_keys(rules: Sequence[UpdateRule]) -> list[Any]:
    """What rules are told apart by."""
    return [rule[1:] for rule in rules]


def _update(row: TensorRow, rule: UpdateRule, *, stored: bool, clipped: bool) -> Update:
    parameter, gradient, *states = row.kinds
    if len(set(states)) > 1:
        raise errors.InvalidArgument(f"the states of a parameter have types {', '.join(states)}, expected one type for all")
    how = Adjustment(stored=stored, clipped=clipped, maximize=rule.maximize, decayed=rule.decayed)
    return rule.update(parameter, gradient, states[0] if states else parameter, how)
