"""Optimizers as blocks: one node that updates a sequence of parameters by a sequence of gradients."""

from __future__ import annotations

from typing import Any

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.ir.types import TensorType
from sardonyx.training.onnxblock import blocks
from sardonyx.training.onnxblock.editor import FLAG, sequence_of
from sardonyx.training.onnxblock.names import fresh_name
from sardonyx.training.onnxblock.onnxblock import ForwardBlock

_RATE = TensorType(dtypes.FLOAT32, (1,))
_STEP = TensorType(dtypes.INT64, (1,))
_DOMAIN = "com.microsoft"


class ClipGradNorm(blocks.Block):
    """Gradients scaled so that the norm of all of them together is at most `max_norm`."""

    def __init__(self, max_norm: float) -> None:
        super().__init__()
        self._max_norm = max_norm

    def build(self, gradients_name: str) -> str:
        output = fresh_name("clip_grad_norm_output")
        self.editor.node("InplaceClipGradNorm", [gradients_name], [output], domain=_DOMAIN, max_norm=float(self._max_norm))
        self.editor.state(output, sequence_of(dtypes.FLOAT32))
        return output


class SGDOptimizer(blocks.Block):
    """The node of gradient descent."""

    def build(self, learning_rate_name: str, params_name: str, gradients_name: str) -> str:
        output = fresh_name("update_completed")
        self.editor.node("SGDOptimizerV2", [learning_rate_name, params_name, gradients_name], [output], domain=_DOMAIN)
        return output


class AdamWOptimizer(blocks.Block):
    """The node of Adam with decoupled weight decay, as transformers computes it."""

    def __init__(
        self,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__()
        self._attributes = {
            "alpha": float(betas[0]),
            "beta": float(betas[1]),
            "epsilon": float(eps),
            "weight_decay": float(weight_decay),
            "correct_bias": int(bias_correction),
            "adam_mode": 1,
        }

    def build(self, *names: str) -> str:
        """`names`: learning rate, step, then the sequences of parameters, gradients, first and second moments."""
        output = fresh_name("adamw.updated_flag")
        self.editor.node("AdamWOptimizer", list(names), [output], domain=_DOMAIN, **self._attributes)
        return output


class _OptimizerModel(ForwardBlock):
    """The whole graph of an optimizer: its inputs, clipping, and the node."""

    def __init__(self, clip_grad: Any = None) -> None:
        super().__init__()
        self._clip_grad = clip_grad

    def build(self, parameters: Any) -> str:
        """`parameters` are those of a TrainingBlock."""
        trainable, _ = parameters
        if not trainable:
            raise RuntimeError("There is no parameter to optimize: none of the model's requires a gradient.")
        dtype = _dtype_of(trainable[0])
        self.editor.input("learning_rate", _RATE)
        for name in self._inputs():
            self.editor.input(name, _STEP if name == "step" else sequence_of(dtype))
        gradients = "gradients" if self._clip_grad is None else self._clip_grad("gradients")
        output = self._optimizer(gradients)
        self.editor.output(output, FLAG)
        return output

    def _inputs(self) -> tuple[str, ...]:
        raise NotImplementedError

    def _optimizer(self, gradients: str) -> str:
        raise NotImplementedError


class AdamW(_OptimizerModel):
    """The optimizer model of Adam with decoupled weight decay."""

    def __init__(
        self,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        clip_grad: Any = None,
    ) -> None:
        super().__init__(clip_grad)
        self._adamw = AdamWOptimizer(bias_correction, betas, eps, weight_decay)

    def _inputs(self) -> tuple[str, ...]:
        return ("step", "params", "gradients", "first_order_moments", "second_order_moments")

    def _optimizer(self, gradients: str) -> str:
        names = ("learning_rate", "step", "params", gradients, "first_order_moments", "second_order_moments")
        return str(self._adamw(*names))


class SGD(_OptimizerModel):
    """The optimizer model of gradient descent."""

    def __init__(self, clip_grad: Any = None) -> None:
        super().__init__(clip_grad)
        self._sgd = SGDOptimizer()

    def _inputs(self) -> tuple[str, ...]:
        return ("params", "gradients")

    def _optimizer(self, gradients: str) -> str:
        return str(self._sgd("learning_rate", "params", gradients))


def _dtype_of(parameter: Any) -> DType:
    """The element type of a parameter: a TensorProto, or one of ours."""
    if hasattr(parameter, "data_type"):
        return dtypes.from_onnx(parameter.data_type)
    return dtypes.from_numpy(parameter.data.dtype)
