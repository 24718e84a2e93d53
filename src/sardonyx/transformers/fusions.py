"""The passes that fuse the layers of a transformer, in their order."""

from __future__ import annotations

from sardonyx.ir.graph import Model
from sardonyx.passes.fold_constants import FoldConstants
from sardonyx.passes.fold_shape_values import FoldShapeValues, infer_from_inputs
from sardonyx.passes.fuse_activations import FuseGelu, FuseQuickGelu, FuseTanhGelu
from sardonyx.passes.fuse_contrib_attention import FuseContribAttention
from sardonyx.passes.fuse_norms import FuseLayerNorm, FuseRmsNorm
from sardonyx.passes.fuse_transformers import ApproximateGelu, FuseBiasGelu, FuseEmbedding, FuseSkipNorm
from sardonyx.passes.inline_functions import InlineFunctions
from sardonyx.passes.merge_reshapes import MergeReshapes
from sardonyx.passes.merge_subexpressions import MergeSubexpressions
from sardonyx.passes.protocol import Pass
from sardonyx.passes.remove_no_ops import RemoveIdentity, RemoveNoOps
from sardonyx.passes.remove_unused import RemoveUnused
from sardonyx.transformers.fusion_options import AttentionOpType, FusionOptions


def passes_for(options: FusionOptions) -> list[Pass]:
    """What the options ask for."""
    first: list[Pass] = [
        FoldShapeValues(),  # sets types; sizes of reshapes and scales become constants
        RemoveIdentity(),
        FoldConstants(),
        MergeSubexpressions(),
        RemoveNoOps(),
        MergeReshapes(),
        RemoveUnused(),
    ]
    is_plain = options.use_multi_head_attention or options.attention_op_type is AttentionOpType.MultiHeadAttention
    chosen: list[tuple[bool, Pass]] = [
        (options.enable_layer_norm, FuseLayerNorm()),
        (options.enable_layer_norm, FuseRmsNorm()),
        (options.enable_gelu, FuseGelu()),
        (options.enable_gelu, FuseTanhGelu()),
        (options.enable_gelu, FuseQuickGelu()),
        (options.enable_attention, FuseContribAttention(packs=not is_plain)),
        (options.enable_embed_layer_norm, FuseEmbedding()),
        (options.enable_skip_layer_norm, FuseSkipNorm(with_bias=options.enable_bias_skip_layer_norm)),
        (options.enable_bias_gelu, FuseBiasGelu()),
        (options.enable_gelu_approximation, ApproximateGelu()),
    ]
    return [*first, *(each for wanted, each in chosen if wanted), RemoveUnused()]


def fuse_model(model: Model, options: FusionOptions, heads: int = 0) -> None:
    """Change a model in place."""
    InlineFunctions().run(model)
    for each in passes_for(options):
        if each.run(model).modified and each.name.startswith("Fuse"):
            infer_from_inputs(model)  # the next ones compare shapes with those of fused nodes
