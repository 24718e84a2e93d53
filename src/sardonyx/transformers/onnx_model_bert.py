"""An optimized transformer and how far its layers were fused: `onnxruntime.transformers.onnx_model_bert`."""

from __future__ import annotations

from typing import Any, Final

from sardonyx.transformers.fusion_options import FusionOptions
from sardonyx.transformers.fusions import fuse_model
from sardonyx.transformers.messages import to_ir, to_message
from sardonyx.transformers.onnx_model import OnnxModel

FUSED_OPERATORS: Final = (
    "EmbedLayerNormalization", "Attention", "MultiHeadAttention", "Gelu", "FastGelu", "BiasGelu", "GemmFastGelu",
    "LayerNormalization", "SimplifiedLayerNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
    "RotaryEmbedding", "GroupQueryAttention", "QuickGelu",
)  # fmt: skip


class BertOnnxModel(OnnxModel):
    """A transformer; `optimize` fuses its layers."""

    def __init__(self, model: Any, num_heads: int = 0, hidden_size: int = 0) -> None:
        if (num_heads == 0) != (hidden_size == 0) or (num_heads > 0 and hidden_size % num_heads):
            raise ValueError(f"hidden_size {hidden_size} is no multiple of num_heads {num_heads}")
        super().__init__(model)
        self.num_heads, self.hidden_size = num_heads, hidden_size

    def optimize(self, options: FusionOptions | None = None, add_dynamic_axes: bool = False) -> None:
        """Fuse what the options (all, if there are none) name."""
        ours = to_ir(self.model)
        fuse_model(ours, options or FusionOptions("bert"))
        self.initialize(to_message(ours))

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
