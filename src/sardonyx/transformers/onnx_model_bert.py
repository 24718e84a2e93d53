"""An optimized transformer and how far its layers were fused: `onnxruntime.transformers.onnx_model_bert`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx.transformers.fusion_options import FusionOptions
from sardonyx.transformers.fusion_utils import FusionUtils
from sardonyx.transformers.fusions import fuse_model
from sardonyx.transformers.messages import package, to_ir, to_message
from sardonyx.transformers.onnx_model import OnnxModel

FUSED_OPERATORS: Final = (
    "EmbedLayerNormalization", "Attention", "MultiHeadAttention", "Gelu", "FastGelu", "BiasGelu", "GemmFastGelu",
    "LayerNormalization", "SimplifiedLayerNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
    "RotaryEmbedding", "GroupQueryAttention", "QuickGelu",
)  # fmt: skip
_FED: Final = {"EmbedLayerNormalization": (0, 1, 7), "Attention": (3,)}  # where fused layers read inputs of the model


class BertOnnxModel(OnnxModel):
    """A transformer; `optimize` fuses its layers, and each `fuse_...` the layers of its name alone."""

    kind: ClassVar[str] = "bert"

    def __init__(self, model: Any, num_heads: int = 0, hidden_size: int = 0) -> None:
        if (num_heads == 0) != (hidden_size == 0) or (num_heads > 0 and hidden_size % num_heads):
            raise ValueError(f"hidden_size {hidden_size} is no multiple of num_heads {num_heads}")
        super().__init__(model)
        self.num_heads, self.hidden_size = num_heads, hidden_size
        self.utils = FusionUtils(self)

    # Fusions

    def optimize(self, options: FusionOptions | None = None, add_dynamic_axes: bool = False) -> None:
        """Fuse what the options (all that this kind of model has, if there are none) name."""
        ours = to_ir(self.model)
        fuse_model(ours, options or FusionOptions(self.kind), self.num_heads)
        self.initialize(to_message(ours))
        if add_dynamic_axes:
            self.use_dynamic_axes()

    def _fuse(self, *names: str) -> None:
        options = FusionOptions(self.kind)
        for name in vars(options):
            if name.startswith("enable_"):
                setattr(options, name, name in names)
        self.optimize(options)

    def fuse_constant_fold(self) -> None:
        """Compute what depends on constants alone."""
        self._fuse()

    def fuse_attention(self) -> None:
        """Fuse attention."""
        self._fuse("enable_attention")

    def fuse_gelu(self) -> None:
        """Fuse Gelu, in all ways it is written."""
        self._fuse("enable_gelu")

    def fuse_bias_gelu(self, is_fastgelu: bool) -> None:
        """Fuse a bias and a Gelu; both kinds of it."""
        self._fuse("enable_bias_gelu")

    def gelu_approximation(self) -> None:
        """Gelu by tanh instead of erf."""
        self._fuse("enable_gelu_approximation")

    def fuse_gemm_fast_gelu(self) -> None:
        """Fuse a product and a Gelu by tanh."""
        self._fuse("enable_gemm_fast_gelu")

    def fuse_layer_norm(self) -> None:
        """Fuse norms."""
        self._fuse("enable_layer_norm")

    def fuse_simplified_layer_norm(self) -> None:
        """Fuse norms."""
        self._fuse("enable_layer_norm")

    def fuse_skip_layer_norm(self, shape_infer: bool = True) -> None:
        """Fuse norms of sums."""
        self._fuse("enable_skip_layer_norm")

    def fuse_skip_simplified_layer_norm(self) -> None:
        """Fuse norms of sums."""
        self._fuse("enable_skip_layer_norm")

    def fuse_add_bias_skip_layer_norm(self) -> None:
        """Fuse norms of sums, with the bias of what is added."""
        self._fuse("enable_skip_layer_norm", "enable_bias_skip_layer_norm")

    def fuse_embed_layer(self, use_mask_index: bool = False) -> None:
        """Fuse norms of embeddings."""
        self._fuse("enable_embed_layer_norm")

    def fuse_rotary_embeddings(self) -> None:
        """Fuse rotary embeddings."""
        self._fuse("enable_rotary_embeddings")

    # Inputs

    def get_graph_inputs_from_node_type(self, op_type: str, input_indices: Sequence[int], casted: bool) -> list[str]:
        """The inputs of the model that nodes of an operator read at these places, directly or through a Cast."""
        makers = self.output_name_to_node()
        found: list[str] = []
        for node in self.get_nodes_by_op_type(op_type):
            names = [node.input[index] for index in input_indices if index < len(node.input)]
            if casted:
                read = (makers.get(name) for name in names)
                names = [maker.input[0] for maker in read if maker is not None and maker.op_type == "Cast"]
            found.extend(name for name in names if self.find_graph_input(name) is not None)
        return found

    def get_graph_inputs_from_fused_nodes(self, casted: bool) -> list[str]:
        """The inputs of the model that fused layers read, directly or through a Cast."""
        return [
            name
            for op_type, positions in _FED.items()
            for name in self.get_graph_inputs_from_node_type(op_type, positions, casted)
        ]

    def change_graph_inputs_to_int32(self) -> None:
        """Let all inputs be int32."""
        for value in self.model.graph.input:
            self.change_graph_input_type(value, package().TensorProto.INT32)

    def use_dynamic_axes(self, dynamic_batch_dim: str = "batch_size", dynamic_seq_len: str | None = "max_seq_len") -> None:
        """Name the batch of all outputs, and batch and length of the inputs that fused layers read."""
        fed = {name for casted in (True, False) for name in self.get_graph_inputs_from_fused_nodes(casted)}
        for value in self.model.graph.input:
            if value.name in fed:
                for dim, name in zip(value.type.tensor_type.shape.dim, (dynamic_batch_dim, dynamic_seq_len)):
                    if name is not None:
                        dim.dim_param = name
        for value in self.model.graph.output:
            value.type.tensor_type.shape.dim[0].dim_param = dynamic_batch_dim

    # Masks that hide nothing

    def clean_graph(self) -> None:
        """Simplify tensors of one number, as of masks that hide nothing; such masks of Attention are taken out."""
        makers = self.output_name_to_node()
        for node in self.get_nodes_by_op_type("ConstantOfShape"):
            concat = makers.get(node.input[0])
            shape = None if concat is None else self._shape_in_parts(concat, makers)
            if shape is not None:
                node.input[0] = shape
        for cast in self.get_nodes_by_op_type("Cast"):
            node = makers.get(cast.input[0])
            if node is not None and node.op_type == "ConstantOfShape" and len(self.get_children(node)) == 1:
                self._fill(node, self.get_node_attribute(cast, "to"))
                self.bypass_node(cast)
        makers = self.output_name_to_node()
        for node in self.get_nodes_by_op_type("Attention"):
            path = self.match_parent_path(node, ["ReduceSum", "ConstantOfShape", "Shape"], [3, 0, 0], makers)
            if path is not None and self._filled_with(path[1]) == 1:
                node.input[3] = ""
                while node.input and not node.input[-1]:
                    del node.input[-1]

    def _shape_in_parts(self, concat: Any, makers: Any) -> str | None:
        """The shape that is made of all its numbers, one by one."""
        shapes = set()
        if concat.op_type != "Concat":
            return None
        for position in range(len(concat.input)):
            path = self.match_parent_path(concat, ["Unsqueeze", "Gather", "Shape"], [position, 0, 0], makers)
            index = None if path is None else self.get_constant_value(path[1].input[1])
            if path is None or index is None or index.ndim or index.item() != position:
                return None
            shapes.add((path[2].input[0], path[2].output[0]))
        if len({value for value, _ in shapes}) != 1:
            return None
        (value, shape), *_ = sorted(shapes)
        return shape if len(self.get_shape(value) or ()) == len(concat.input) else None

    def _filled_with(self, node: Any) -> Any:
        value = self.get_node_attribute(node, "value")
        return np.zeros(1, np.float32)[0] if value is None else package().numpy_helper.to_array(value).flat[0]

    def _fill(self, node: Any, kind: int) -> None:
        """Let a ConstantOfShape make its number in another type."""
        onnx = package()
        array = np.array([self._filled_with(node)]).astype(onnx.helper.tensor_dtype_to_np_dtype(kind))
        del node.attribute[:]
        node.attribute.extend([onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(array))])

    # What was done

    def get_fused_operator_statistics(self) -> dict[str, int]:
        """How many nodes there are of each fused operator."""
        found = self.get_operator_statistics()
        return {name: found.get(name, 0) for name in FUSED_OPERATORS}

    def is_fully_optimized(self, fused_op_count: dict[str, int] | None = None) -> bool:
        """Whether embedding, attention, Gelu and norms were all fused."""
        count = fused_op_count or self.get_fused_operator_statistics()
        attention = count["Attention"] + count["MultiHeadAttention"] + count["GroupQueryAttention"]
        gelu = count["Gelu"] + count["FastGelu"] + count["BiasGelu"] + count["GemmFastGelu"] + count["QuickGelu"]
        norms = count["LayerNormalization"] + count["SkipLayerNormalization"]
        simplified = count["SimplifiedLayerNormalization"] + count["SkipSimplifiedLayerNormalization"]
        return bool(attention) and (
            (count["EmbedLayerNormalization"] > 0 and attention == gelu and norms >= 2 * attention) or simplified >= 2 * attention
        )
