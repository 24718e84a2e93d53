"""Which fusions `optimizer.optimize_model` makes, with the names of `onnxruntime.transformers.fusion_options`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from enum import Enum
from typing import Any, Final

_DIFFUSION: Final = ("unet", "vae", "clip")
# Attribute of FusionOptions -> the flag that turns it off, and what that says
_DISABLED_BY: Final = {
    "enable_attention": ("disable_attention", "leave attention as it is"),
    "enable_skip_layer_norm": ("disable_skip_layer_norm", "leave norms of sums as they are"),
    "enable_embed_layer_norm": ("disable_embed_layer_norm", "leave norms of embeddings as they are"),
    "enable_bias_skip_layer_norm": ("disable_bias_skip_layer_norm", "keep biases outside of norms of sums"),
    "enable_bias_gelu": ("disable_bias_gelu", "keep biases outside of Gelu"),
    "enable_layer_norm": ("disable_layer_norm", "leave layer norms as they are"),
    "enable_gelu": ("disable_gelu", "leave Gelu as it is"),
    "enable_shape_inference": ("disable_shape_inference", "do not infer symbolic shapes"),
    "enable_rotary_embeddings": ("disable_rotary_embeddings", "leave rotary embeddings as they are"),
}
_DISABLED_IN_DIFFUSION: Final = {
    "enable_nhwc_conv": "disable_nhwc_conv",
    "enable_group_norm": "disable_group_norm",
    "enable_skip_group_norm": "disable_skip_group_norm",
    "enable_bias_splitgelu": "disable_bias_splitgelu",
    "enable_packed_qkv": "disable_packed_qkv",
    "enable_packed_kv": "disable_packed_kv",
    "enable_bias_add": "disable_bias_add",
}
_ENABLED_BY: Final = {
    "enable_gelu_approximation": ("enable_gelu_approximation", "Gelu by tanh instead of erf"),
    "enable_gemm_fast_gelu": ("enable_gemm_fast_gelu", "join products and FastGelu"),
    "use_multi_head_attention": ("use_multi_head_attention", "MultiHeadAttention instead of Attention"),
}


class AttentionMaskFormat:
    """What the mask of attention is."""

    MaskIndexEnd = 0  # the lengths of texts that are padded on the right
    MaskIndexEndAndStart = 1
    AttentionMask = 2  # 1 for tokens, 0 for padding
    NoMask = 3


class AttentionOpType(Enum):
    """The operator that attention becomes."""

    Attention = "Attention"
    MultiHeadAttention = "MultiHeadAttention"
    GroupQueryAttention = "GroupQueryAttention"
    PagedAttention = "PagedAttention"

    def __str__(self) -> str:
        return self.value


class FusionOptions:
    """What is fused: attributes that are True or False, by the kind of model at first."""

    enable_attention: bool
    enable_skip_layer_norm: bool
    enable_embed_layer_norm: bool
    enable_bias_skip_layer_norm: bool
    enable_bias_gelu: bool
    enable_layer_norm: bool
    enable_gelu: bool
    enable_shape_inference: bool
    enable_rotary_embeddings: bool
    enable_gelu_approximation: bool
    enable_gemm_fast_gelu: bool
    use_multi_head_attention: bool

    def __init__(self, model_type: str) -> None:
        for name in _DISABLED_BY:
            setattr(self, name, True)
        for name in _ENABLED_BY:
            setattr(self, name, False)
        self.enable_qordered_matmul = True
        self.disable_multi_head_attention_bias = False
        self.group_norm_channels_last = True
        self.attention_op_type: AttentionOpType | None = None
        self.enable_embed_layer_norm = model_type not in ("clip", "qwen3")
        self.attention_mask_format = AttentionMaskFormat.AttentionMask
        if model_type == "bert":
            self.attention_mask_format = AttentionMaskFormat.MaskIndexEnd
        elif model_type in ("vit", "qwen3"):
            self.attention_mask_format = AttentionMaskFormat.NoMask
        if model_type in _DIFFUSION:
            for name in _DISABLED_IN_DIFFUSION:
                setattr(self, name, True)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"FusionOptions has no option {name!r}")

    def use_raw_attention_mask(self, use_raw_mask: bool = True) -> None:
        """Masks are 1 and 0 for each token, or else lengths."""
        masks = AttentionMaskFormat
        self.attention_mask_format = masks.AttentionMask if use_raw_mask else masks.MaskIndexEnd

    def disable_attention_mask(self) -> None:
        """There is no mask."""
        self.attention_mask_format = AttentionMaskFormat.NoMask

    def set_attention_op_type(self, attn_op_type: AttentionOpType) -> None:
        """Which operator attention becomes."""
        self.attention_op_type = attn_op_type

    @staticmethod
    def parse(args: Namespace) -> FusionOptions:
        """The options that parsed arguments ask for; what they lack stays as it is."""
        options = FusionOptions(args.model_type)
        disabled = {name: flag for name, (flag, _) in _DISABLED_BY.items()}
        if args.model_type in _DIFFUSION:
            disabled.update(_DISABLED_IN_DIFFUSION)
        for name, flag in disabled.items():
            if getattr(args, flag, False):
                setattr(options, name, False)
        for name, (flag, _) in _ENABLED_BY.items():
            if getattr(args, flag, False):
                setattr(options, name, True)
        if getattr(args, "use_mask_index", False):
            options.use_raw_attention_mask(False)
        if getattr(args, "use_raw_attention_mask", False):
            options.use_raw_attention_mask(True)
        if getattr(args, "no_attention_mask", False):
            options.disable_attention_mask()
        if args.model_type in _DIFFUSION and getattr(args, "use_group_norm_channels_first", False):
            options.group_norm_channels_last = False
        return options

    @staticmethod
    def add_arguments(parser: ArgumentParser) -> None:
        """Give a parser a flag for each option."""
        flags = dict([*_DISABLED_BY.values(), *_ENABLED_BY.values()])
        flags.update((flag, f"{flag.replace('_', ' ')}; for unet, vae and clip") for flag in _DISABLED_IN_DIFFUSION.values())
        flags["use_mask_index"] = "masks are lengths of texts that are padded on the right"
        flags["use_raw_attention_mask"] = "masks are 1 for tokens and 0 for padding"
        flags["no_attention_mask"] = "there is no mask"
        flags["use_group_norm_channels_first"] = "channels first in group norms; for unet and vae"
        for flag, text in flags.items():
            parser.add_argument(f"--{flag}", action="store_true", default=False, help=text)
