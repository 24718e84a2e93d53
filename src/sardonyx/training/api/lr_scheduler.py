"""A learning rate that rises linearly from 0 and then falls linearly to 0."""

from __future__ import annotations

from sardonyx import errors
from sardonyx.training.api.optimizer import Optimizer


class LinearLRScheduler:
    """Sets the learning rate of an optimizer by the number of steps it has made.

    It rises from 0 to `initial_lr` in `warmup_step_count` steps and is 0 again after `total_step_count`.
    """

    def __init__(self, optimizer: Optimizer, warmup_step_count: int, total_step_count: int, initial_lr: float) -> None:
        if warmup_step_count < 0 or total_step_count < 1 or warmup_step_count > total_step_count:
            found = f"warmup_step_count is {warmup_step_count}, total_step_count {total_step_count}"
            raise errors.InvalidArgument(f"{found}: expected 0 <= warmup <= total, and a total of at least 1")
        self._optimizer = optimizer
        self._warmup, self._total = warmup_step_count, total_step_count
        optimizer.set_initial_learning_rate(initial_lr)
        self._initial = initial_lr
        self.step()

    def step(self) -> None:
        """Set the learning rate that belongs to the optimizer's step; call it after every step."""
        step = self._optimizer.step_count
        if step < self._warmup:
            factor = step / self._warmup
        elif self._total == self._warmup:
            factor = 0.0
        else:
            factor = max(0.0, (self._total - step) / (self._total - self._warmup))
        self._optimizer.set_learning_rate(self._initial * factor)
