"""FusedAdam as ONNX Runtime's `training.optim` has it: one class with three kinds of weight decay.

Its defaults and argument names are those of onnxruntime.training.optim.FusedAdam; the update is the native one of `optimizers`.
"""

from __future__ import annotations

from enum import IntEnum
from math import sqrt
from typing import Any

from sardonyx.training.optim.optimizers import AdamSteps, Group
from sardonyx.training.update_plan import UpdateRule


class AdamWMode(IntEnum):
    """Where the weight decay stands."""

    ADAM_L2_REGULARIZATION = 0  # a penalty in the loss: part of the gradient
    ADAMW_TRANSFORMERS = 1  # behind the update, as transformers' AdamW
    ADAMW_TORCH = 2  # before the update, as torch.optim.AdamW


class AdamWithModes(AdamSteps):
    """Adam with a mode of weight decay, with or without bias correction."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        adam_w_mode: AdamWMode = AdamWMode.ADAMW_TRANSFORMERS,
        weight_decay: float = 0.0,
        set_grad_none: bool = True,
        *,
        max_grad_norm: float | None = None,
    ) -> None:
        defaults = {"lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults)
        self._adam_w_mode = AdamWMode(adam_w_mode)
        self._set_grad_none = set_grad_none
        self._prepare(max_grad_norm)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or set them to 0 if neither this call nor the optimizer wants them forgotten."""
        super().zero_grad(set_to_none=self._set_grad_none or set_to_none)

    def _rule(self, group: Group) -> UpdateRule:
        return super()._rule({**group, "decoupled_weight_decay": self._adam_w_mode != AdamWMode.ADAM_L2_REGULARIZATION})

    def _scalars(self, group: Group, block: float) -> dict[str, float]:
        decoupled = self._adam_w_mode != AdamWMode.ADAM_L2_REGULARIZATION
        numbers = super()._scalars({**group, "decoupled_weight_decay": decoupled}, block)
        if not group["bias_correction"]:
            numbers.update(root_scale=1.0, step=float(group["lr"]))
        if self._adam_w_mode == AdamWMode.ADAMW_TRANSFORMERS:
            beta1, beta2 = map(float, group["betas"])
            corrected = sqrt(1 - beta2**block) / (1 - beta1**block) if group["bias_correction"] else 1.0
            numbers.update(root_scale=1.0, step=float(group["lr"]) * corrected, after=numbers["before"], before=1.0)
        return numbers


FusedAdam = AdamWithModes
