"""Blocks that build training models: losses and optimizers on top of a model, its gradients, and checkpoints.

with onnxblock.base(model):
    block("output")              a ForwardBlock or TrainingBlock (`onnxblock.py`), made of `blocks`, `loss` and `optim`
"""

from sardonyx.training.onnxblock import blocks, loss, optim
from sardonyx.training.onnxblock.blocks import Block
from sardonyx.training.onnxblock.checkpoint_utils import load_checkpoint_to_model, save_checkpoint
from sardonyx.training.onnxblock.model_accessor import base, custom_op_library, empty_base
from sardonyx.training.onnxblock.onnxblock import ForwardBlock, TrainingBlock

__all__ = [
    "Block",
    "ForwardBlock",
    "TrainingBlock",
    "base",
    "blocks",
    "custom_op_library",
    "empty_base",
    "load_checkpoint_to_model",
    "loss",
    "optim",
    "save_checkpoint",
]
