"""Training of ONNX models without PyTorch, as ONNX Runtime's `training.api` has it.

state = CheckpointState.load_checkpoint("checkpoint")
module = Module("training_model.onnx", state, "eval_model.onnx")
optimizer = Optimizer("optimizer_model.onnx", module)
for x, labels in batches:
    module.train()
    loss = module(x, labels)
    optimizer.step()
    module.lazy_reset_grad()
module.export_model_for_inferencing("model.onnx", ["output"])
"""

from sardonyx.training.api.checkpoint_state import CheckpointState
from sardonyx.training.api.lr_scheduler import LinearLRScheduler
from sardonyx.training.api.module import Module
from sardonyx.training.api.optimizer import Optimizer

__all__ = ["CheckpointState", "LinearLRScheduler", "Module", "Optimizer"]
