"""The fusions of `graph_fusions`, applied to the message in an ONNXModel."""

from __future__ import annotations

from sardonyx.analysis.shapes import infer_shapes
from sardonyx.ir.graph import Model
from sardonyx.quantization import graph_fusions, messages
from sardonyx.quantization.onnx_model import ONNXModel
from sardonyx.quantization.opset import raise_opset


class Fusion:
    """A rewriting of a model in place."""

    def __init__(self, model: ONNXModel) -> None:
        self.model = model

    def rewrite(self, model: Model) -> int:
        """Change a model; how many nodes have been made."""
        raise NotImplementedError

    def apply(self) -> bool:
        """Change the model; whether anything has been changed."""
        model = messages.from_message(self.model.model)
        infer_shapes(model)
        if not self.rewrite(model):
            return False
        self.model.model.CopyFrom(messages.to_message(model))
        return True


class FusionGelu(Fusion):
    """Sequences with Erf to Gelu."""

    def rewrite(self, model: Model) -> int:
        """Change a model; how many nodes have been made."""
        return graph_fusions.fuse_gelu(model)


class FusionLayerNormalization(Fusion):
    """Sequences with ReduceMean to LayerNormalization."""

    def rewrite(self, model: Model) -> int:
        """Change a model; how many nodes have been made."""
        return graph_fusions.fuse_layer_norms(model)


class FusionLpNormalization(Fusion):
    """Sequences with ReduceL2 to LpNormalization."""

    def __init__(self, model: ONNXModel, epsilon: float = 1e-12) -> None:
        super().__init__(model)
        self.epsilon = epsilon

    def rewrite(self, model: Model) -> int:
        """Change a model; how many nodes have been made."""
        return graph_fusions.fuse_lp_norms(model, self.epsilon)


class FusionSpaceToDepth(Fusion):
    """Sequences of Reshape and Transpose to SpaceToDepth."""

    def rewrite(self, model: Model) -> int:
        """Change a model; how many nodes have been made."""
        return graph_fusions.fuse_space_to_depth(model)


class ReplaceUpsampleWithResize(Fusion):
    """Upsample, which newer opsets do not have, to Resize; the model is raised to opset 11."""

    def __init__(self, model: ONNXModel, opset: int) -> None:
        super().__init__(model)
        self.opset = opset

    def rewrite(self, model: Model) -> int:
        """Change a model; how many nodes have been made."""
        count = sum(node.op_type == "Upsample" for node in model.graph.nodes)
        if count:
            raise_opset(model, 11)
        return count
