"""Optimized models by their kind: the classes of `onnxruntime.transformers.onnx_model_bart`, `..._gpt2` and so on.

All are fused by the same passes, which look at the graph; kinds differ in what is fused where no options are given.
"""

from __future__ import annotations

from sardonyx.transformers.onnx_model_bert import BertOnnxModel


class BartOnnxModel(BertOnnxModel):
    """BART, Whisper and other encoders with decoders."""

    kind = "bart"


class BertOnnxModelTF(BertOnnxModel):
    """BERT out of TensorFlow."""

    kind = "bert_tf"


class BertOnnxModelKeras(BertOnnxModelTF):
    """BERT out of Keras."""

    kind = "bert_keras"


class ClipOnnxModel(BertOnnxModel):
    """CLIP, and other encoders of pictures and texts."""

    kind = "clip"


class ConformerOnnxModel(BertOnnxModel):
    """Conformers, which hear speech."""

    kind = "conformer"


class Gpt2OnnxModel(BertOnnxModel):
    """GPT-2 and other decoders."""

    kind = "gpt2"


class MmditOnnxModel(BertOnnxModel):
    """Transformers that diffuse pictures."""

    kind = "mmdit"


class PhiOnnxModel(BertOnnxModel):
    """Phi."""

    kind = "phi"


class Sam2OnnxModel(BertOnnxModel):
    """Segment Anything."""

    kind = "sam2"


class T5OnnxModel(BertOnnxModel):
    """T5."""

    kind = "t5"


class TnlrOnnxModel(BertOnnxModel):
    """TNLR."""

    kind = "tnlr"


class UnetOnnxModel(BertOnnxModel):
    """The U-Net of Stable Diffusion."""

    kind = "unet"


class VaeOnnxModel(UnetOnnxModel):
    """The autoencoder of Stable Diffusion."""

    kind = "vae"
