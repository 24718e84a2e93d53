"""ForwardBlock and TrainingBlock: whole models, built of blocks on a base.

class Trained(onnxblock.TrainingBlock):
    def __init__(self):
        super().__init__()
        self.loss = onnxblock.loss.CrossEntropyLoss()

    def build(self, output_name):
        return self.loss(output_name)

block = Trained()
block.requires_grad("fc.weight")
with onnxblock.base(model):
    block("output")
training_model, eval_model = block.to_model_proto()
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from sardonyx.ir.graph import Model
from sardonyx.records import dataclass
from sardonyx.training.onnxblock import blocks
from sardonyx.training.onnxblock.messages import tensor_protos, to_proto
from sardonyx.training.onnxblock.model_accessor import current
from sardonyx.training.training_graph import TrainingModels, build_training_models, with_outputs


@dataclass(frozen=True, eq=False)
class NamedParameter:
    """A parameter of a model that is no message of the `onnx` package."""

    name: str
    data: np.ndarray[Any, Any]


def _names(output: Any) -> list[str]:
    return [output] if isinstance(output, str) else list(output)


class ForwardBlock(blocks.Block):
    """A block whose outputs are the outputs of a model."""

    def __init__(self) -> None:
        super().__init__()
        self._model: Model | None = None

    @abstractmethod
    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Add blocks; the names of the model's outputs."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Build the block, and the model it makes of the base."""
        output = super().__call__(*args, **kwargs)
        self._model = with_outputs(self.editor.model(), _names(output))
        return output

    def to_model(self) -> Model:
        """The model, as a graph of Sardonyx."""
        if self._model is None:
            raise RuntimeError("Please build the forward models first before trying to retrieve it.")
        return self._model

    def to_model_proto(self) -> Any:
        """The model, as a ModelProto."""
        return to_proto(self.to_model())


class TrainingBlock(blocks.Block):
    """A block whose first output is a loss: gradients of what requires them are computed from there."""

    def __init__(self) -> None:
        super().__init__()
        self._requires_grad: dict[str, None] = {}
        self._frozen: dict[str, None] = {}
        self._models: TrainingModels | None = None
        self._with_protos = False

    @abstractmethod
    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Add blocks; the name of the loss, or a tuple of it and other outputs."""

    def requires_grad(self, argument_name: str, value: bool = True) -> None:
        """Say of a parameter or input that it gets a gradient, or that it is a parameter without."""
        chosen, other = (self._requires_grad, self._frozen) if value else (self._frozen, self._requires_grad)
        other.pop(argument_name, None)
        chosen[argument_name] = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Build the block, the training and the evaluation model."""
        output = super().__call__(*args, **kwargs)
        model = with_outputs(self.editor.model(), _names(output))
        self._with_protos = not isinstance(self.base, Model)
        self._models = build_training_models(model, list(self._requires_grad), list(self._frozen))
        if self._with_protos:
            current().model.CopyFrom(to_proto(self._models.training))
        return output

    def to_models(self) -> tuple[Model, Model]:
        """Training and evaluation model, as graphs of Sardonyx."""
        if self._models is None:
            raise RuntimeError("Please build the training and eval models first before trying to retrieve them.")
        return self._models.training, self._models.evaluation

    def to_model_proto(self) -> tuple[Any, Any]:
        """Training and evaluation model, as ModelProtos."""
        training, evaluation = self.to_models()
        return to_proto(training), to_proto(evaluation)

    def parameters(self) -> tuple[list[Any], list[Any]]:
        """Trainable and frozen parameters: TensorProtos, if the base was a ModelProto, else with `name` and `data`."""
        if self._models is None:
            raise RuntimeError("Please build the training model first before trying to retrieve the parameters.")
        both = self._models.trainable, self._models.frozen
        if not self._with_protos:
            first, second = ([NamedParameter(name, array) for name, array in found.items()] for found in both)
            return first, second
        return tensor_protos(self._models.trainable), tensor_protos(self._models.frozen)
