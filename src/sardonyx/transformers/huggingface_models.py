"""Models of Hugging Face's hub that programs for ONNX Runtime measure: `onnxruntime.transformers.huggingface_models`."""

from __future__ import annotations

from typing import Final

_ENDS: Final = ("", "WithLMHead", "ForSequenceClassification", "ForQuestionAnswering", "ForCausalLM")
MODEL_CLASSES: Final = [f"AutoModel{end}" for end in _ENDS]
_OPSET: Final = 16
# kind of model, inputs, whether the weights need a file beside the model -> names
_NAMES: Final = {
    ("bert", "input_ids attention_mask token_type_ids", False): "bert-base-cased bert-large-cased",
    ("bert", "input_ids mems", False): "transfo-xl-wt103",
    ("bert", "input_ids attention_mask", False): (
        "roberta-base roberta-large roberta-large-mnli deepset/roberta-base-squad2 distilroberta-base distilbert-base-uncased "
        "distilbert-base-uncased-distilled-squad"
    ),
    ("bert", "input_ids visual_feats visual_pos", False): "unc-nlp/lxmert-base-uncased",
    ("bert", "input_ids", False): (
        "xlnet-base-cased xlnet-large-cased xlm-mlm-ende-1024 xlm-mlm-enfr-1024 camembert-base albert-base-v1 albert-large-v1 "
        "albert-base-v2 albert-large-v2 xlm-roberta-base flaubert/flaubert_small_cased flaubert/flaubert_base_cased "
        "microsoft/layoutlm-base-uncased microsoft/layoutlm-large-uncased squeezebert/squeezebert-uncased "
        "squeezebert/squeezebert-mnli squeezebert/squeezebert-mnli-headless"
    ),
    ("bert", "input_ids", True): "xlm-mlm-en-2048 ctrl albert-xlarge-v1 albert-xlarge-v2 xlm-roberta-large",
    ("vit", "pixel_values", False): "google/vit-base-patch16-224",
    ("swin", "pixel_values", False): " ".join(f"microsoft/swin-{size}-patch4-window7-224" for size in ("base", "small", "tiny")),
}
# name -> inputs, opset, whether the weights need a file beside the model, kind of model
MODELS: Final = {
    name: (inputs.split(), _OPSET, beside, kind) for (kind, inputs, beside), names in _NAMES.items() for name in names.split()
}
