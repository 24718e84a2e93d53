"""Optimizers for PyTorch that update all parameters in one native call (`optimizers`)."""

from sardonyx.training.optim.optimizers import FusedAdam, FusedAdamW, FusedOptimizer, FusedSGD

__all__ = ["FusedAdam", "FusedAdamW", "FusedOptimizer", "FusedSGD"]
