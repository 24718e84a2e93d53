"""All models of the benchmark, by name, with their inputs.

    case = CASES["resnet50"]
    path, feeds = case.prepare(Path(".bench-cache"))

Names that end in `_b8` are the same network with a batch of eight, in `_dynamo` the same one exported by the exporter that is
built on Dynamo.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from benchmarks.models.cases import Case, Maker, Unavailable, classical, exported, packaged, written
from benchmarks.models.kinds import (
    ATTENTION,
    AUDIO,
    BOTTLENECK,
    CLASSICAL,
    DECODER,
    DENSE,
    DETECTOR,
    MOBILE,
    OVERHEAD,
    RECURRENT,
    SMALL_TRANSFORMER,
    TRANSFORMER,
    TREES,
)

__all__ = ["CASES", "SYMBOLIC", "Case", "Unavailable"]


def _floats(**shapes: tuple[int, ...]) -> Callable[[np.random.Generator], Mapping[str, Any]]:
    return lambda rng: {name: rng.random(shape, np.float32) for name, shape in shapes.items()}


def _voice(rng: np.random.Generator) -> Mapping[str, Any]:
    sound = (rng.standard_normal((1, 576)) * 0.1).astype(np.float32)
    return {"input": sound, "state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16000, np.int64)}


def _page(height: int, width: int) -> Callable[[np.random.Generator], Mapping[str, Any]]:
    """A white page with dark strokes in lines, as a reader of text expects it: from -1 to 1."""

    def feeds(rng: np.random.Generator) -> Mapping[str, Any]:
        page = np.ones((1, 3, height, width), np.float32)
        for line in range(12, height - 24, 40):
            for left in range(16, width - 24, 14):
                if rng.random() < 0.8:
                    across, down = (int(size) for size in rng.integers(3, 11, 2))
                    page[:, :, line : line + 22, left : left + 3] = -0.9
                    page[:, :, line + down : line + down + 3, left : left + across] = -0.9
        return {"x": page}

    return feeds


def _picture(make: str, *shape: int) -> Maker:
    return Maker("vision", "picture_network", make=make, **({"shape": shape} if shape else {}))


def _published(make: str, *shape: int) -> Maker:
    return Maker("published", "picture_network", make=make, shape=shape or (1, 3, 224, 224))


def _bert(width: int, layers: int, *, batch: int = 1, tokens: int = 128, pooled: bool = False) -> Maker:
    return Maker("transformers", "bert_network", width=width, heads=12, layers=layers, pooled=pooled, batch=batch, tokens=tokens)


_EIGHT: Final = (8, 3, 224, 224)
_TEXT: Final = {name: {0: "batch", 1: "tokens"} for name in ("input_ids", "attention_mask", "token_type_ids")}
_PAST: Final = {
    "input_ids": {0: "batch", 1: "tokens"},
    **{f"past_{layer}": {1: "batch", 3: "before"} for layer in range(12)},
}
_BASE, _MINI = ("bert_base", _bert(768, 12, pooled=True)), ("minilm_l6", _bert(384, 6))
_GPT2: Final = ("gpt2", Maker("transformers", "gpt2_network", new=1, before=64))
_LLAMA: Final = ("llama", Maker("llama", "llama_network", new=1, before=64))
_LLAMA_PAST: Final = {
    "input_ids": {0: "batch", 1: "tokens"},
    **{f"past_{layer}": {1: "batch", 3: "before"} for layer in range(8)},
}
_OCR: Final = ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_{}_infer.onnx")
_WAKE: Final = ("openwakeword", "resources/models/{}.onnx")
_TREES: Final = {1: 1.2, 100: 3.0, 10_000: 4.0}
_ROWS: Final = {1: 1.2, 1000: 2.0}

_LIST: Final[tuple[Case, ...]] = (
    exported("resnet18", "ResNet-18", DENSE, _picture("resnet18")),
    exported("resnet18_b8", "ResNet-18, batch 8", DENSE, _picture("resnet18", *_EIGHT)),
    exported("resnet34_dynamo", "ResNet-34 (dynamo)", DENSE, _published("resnet34"), dynamo=True),
    exported("vgg16", "VGG-16", DENSE, _published("vgg16")),
    exported("unet", "U-Net 256 px", DENSE, _picture("unet", 1, 3, 256, 256)),
    exported("super_resolution", "super-resolution 2x, 128 px", DENSE, _picture("super_resolution", 1, 3, 128, 128)),
    exported("resnet50", "ResNet-50", BOTTLENECK, _picture("resnet50")),
    exported("resnet50_b8", "ResNet-50, batch 8", BOTTLENECK, _picture("resnet50", *_EIGHT)),
    exported("densenet121", "DenseNet-121", BOTTLENECK, _published("densenet121")),
    exported("googlenet", "GoogLeNet", BOTTLENECK, _published("googlenet")),
    exported("inception_v3", "Inception v3, 299 px", BOTTLENECK, _published("inception_v3", 1, 3, 299, 299)),
    exported("resnext50_dynamo", "ResNeXt-50 (dynamo)", BOTTLENECK, _published("resnext50_32x4d"), dynamo=True),
    exported("squeezenet", "SqueezeNet 1.1", BOTTLENECK, _published("squeezenet1_1")),
    exported("mobilenet_v2", "MobileNetV2", MOBILE, _picture("mobilenet_v2")),
    exported("mobilenet_v2_b8", "MobileNetV2, batch 8", MOBILE, _picture("mobilenet_v2", *_EIGHT)),
    exported("mobilenet_v3", "MobileNetV3-Large", MOBILE, _picture("mobilenet_v3")),
    exported("mobilenet_v3_dynamo", "MobileNetV3-Large (dynamo)", MOBILE, _published("mobilenet_v3_large"), dynamo=True),
    exported("efficientnet_b0", "EfficientNet-B0", MOBILE, _picture("efficientnet_b0")),
    exported("shufflenet_v2", "ShuffleNetV2", MOBILE, _published("shufflenet_v2_x1_0")),
    exported("mnasnet", "MNASNet", MOBILE, _published("mnasnet1_0")),
    packaged("yolov8n", "YOLOv8n (nudenet)", DETECTOR, "nudenet", "320n.onnx", _floats(images=(1, 3, 320, 320))),
    exported("faster_rcnn", "Faster R-CNN, MobileNetV3, 320 px", DETECTOR,
             Maker("published", "detector_network", make="fasterrcnn_mobilenet_v3_large_320_fpn"), ranked_by=2),
    exported("deeplab_v3", "DeepLabV3, MobileNetV3, 256 px", DETECTOR,
             _published("deeplabv3_mobilenet_v3_large", 1, 3, 256, 256)),
    packaged("ppocr_det", "PP-OCRv4 det", DETECTOR, _OCR[0], _OCR[1].format("det"), _page(480, 640)),
    packaged("ppocr_rec", "PP-OCRv4 rec", DETECTOR, _OCR[0], _OCR[1].format("rec"), _page(48, 320)),
    packaged("ddddocr", "ddddocr", DETECTOR, "ddddocr", "common.onnx", _floats(input1=(1, 1, 64, 160))),
    exported("bert_base", "BERT-base, 128 tokens", TRANSFORMER, _BASE[1], axes=_TEXT),
    exported("bert_base_b8", "BERT-base, 64 tokens, batch 8", TRANSFORMER,
             _bert(768, 12, pooled=True, batch=8, tokens=64), file=_BASE, axes=_TEXT),
    exported("vit_b16", "ViT-B/16", TRANSFORMER, Maker("transformers", "vit_network")),
    exported("swin_t", "Swin-T", TRANSFORMER, _published("swin_t")),
    exported("convnext_t", "ConvNeXt-T", TRANSFORMER, _published("convnext_tiny")),
    exported("convnext_t_dynamo", "ConvNeXt-T (dynamo)", TRANSFORMER, _published("convnext_tiny"), dynamo=True),
    exported("minilm_l6_64", "MiniLM-L6, 64 tokens", SMALL_TRANSFORMER, _bert(384, 6, tokens=64), file=_MINI, axes=_TEXT),
    exported("minilm_l6", "MiniLM-L6, 128 tokens", SMALL_TRANSFORMER, _MINI[1], axes=_TEXT),
    exported("minilm_l6_b8", "MiniLM-L6, 32 tokens, batch 8", SMALL_TRANSFORMER, _bert(384, 6, batch=8, tokens=32),
             file=_MINI, axes=_TEXT),
    exported("minilm_l6_dynamo", "MiniLM-L6, 64 tokens (dynamo)", SMALL_TRANSFORMER, _bert(384, 6, tokens=64),
             axes=_TEXT, dynamo=True),
    exported("deit_tiny", "DeiT-Tiny", SMALL_TRANSFORMER, Maker("transformers", "vit_network", width=192, heads=3)),
    packaged("magika", "magika", SMALL_TRANSFORMER, "magika", "models/standard_v3_3/model.onnx",
             lambda rng: {"bytes": rng.integers(0, 257, (1, 2048)).astype(np.int32)}),
    exported("gpt2_decode", "GPT-2 decode, past 64", DECODER, _GPT2[1], file=_GPT2, axes=_PAST),
    exported("gpt2_prefill", "GPT-2 prefill, 64 tokens", DECODER,
             Maker("transformers", "gpt2_network", new=64, before=0), file=_GPT2, axes=_PAST),
    exported("llama_decode", "Llama shape, 8 x 512, past 64", DECODER, _LLAMA[1], file=_LLAMA, axes=_LLAMA_PAST),
    exported("llama_prefill", "Llama shape, 64 tokens", DECODER, Maker("llama", "llama_network", new=64, before=0),
             file=_LLAMA, axes=_LLAMA_PAST),
    packaged("silero_vad", "silero-vad", RECURRENT, "silero_vad", "data/silero_vad.onnx", _voice),
    exported("lstm", "LSTM 2 x 256, 64 steps", RECURRENT, Maker("small", "recurrent_network", kind="LSTM")),
    exported("gru", "GRU 2 x 256, 64 steps", RECURRENT, Maker("small", "recurrent_network", kind="GRU")),
    exported("lstm_b8", "LSTM 2 x 256, 64 steps, batch 8", RECURRENT, Maker("small", "recurrent_network", kind="LSTM", batch=8)),
    exported("lstm_both", "LSTM 2 x 256, both directions", RECURRENT,
             Maker("small", "recurrent_network", kind="LSTM", both=True), axes={"x": {1: "steps"}}),
    exported("gru_both", "GRU 2 x 256, both directions", RECURRENT,
             Maker("small", "recurrent_network", kind="GRU", both=True), axes={"x": {1: "steps"}}),
    exported("lstm_stream", "LSTM 2 x 256, one step with state", RECURRENT, Maker("small", "streaming_network", kind="LSTM")),
    exported("gru_stream", "GRU 2 x 256, 4 steps with state", RECURRENT,
             Maker("small", "streaming_network", kind="GRU", steps=4)),
    packaged("basic_pitch", "basic-pitch", AUDIO, "basic_pitch", "saved_models/icassp_2022/nmp.onnx",
             lambda rng: {"serving_default_input_2:0": rng.standard_normal((1, 43844, 1)).astype(np.float32) * 0.1}),
    packaged("wake_embedding", "openwakeword embedding", AUDIO, _WAKE[0], _WAKE[1].format("embedding_model"),
             _floats(input_1=(1, 76, 32, 1))),
    packaged("wake_mel", "openwakeword mel", AUDIO, _WAKE[0], _WAKE[1].format("melspectrogram"), _floats(input=(1, 17280))),
    exported("voice_activity", "voice activity, separable 1-D", AUDIO, Maker("audio", "activity_network")),
    exported("separation", "source separation (Conv-TasNet)", AUDIO, Maker("audio", "separation_network")),
    exported("vocoder", "vocoder (HiFi-GAN)", AUDIO, Maker("audio", "vocoder_network")),
    exported("codec", "codec, encoder", AUDIO, Maker("audio", "codec_network")),
    exported("mlp", "MLP 64-128-128-10", OVERHEAD, Maker("small", "perceptron_network")),
    exported("chain", "100 elementwise nodes", OVERHEAD, Maker("small", "chain_network"), goal=8.0),
    exported("digits", "LeNet, 28 px", OVERHEAD, Maker("small", "digits_network")),
    exported("table", "table with embeddings", OVERHEAD, Maker("small", "table_network")),
    exported("attention", "12 heads x 1024 x 64, mask", ATTENTION, Maker("attention", "masked_network")),
    exported("attention_cross", "8 heads, 64 x 1500 x 64", ATTENTION, Maker("attention", "cross_network"), dynamo=True),
    written("attention_grouped", "Attention, 16 and 4 heads x 512, causal", ATTENTION, Maker("operators", "grouped_model")),
    *classical("lightgbm", "LightGBM, 500 trees", TREES, _TREES),
    *classical("xgboost", "XGBoost, 300 trees", TREES, _TREES),
    *classical("forest", "random forest, 200 trees", TREES, _TREES),
    *classical("histogram", "HistGradientBoosting, 200 trees", TREES, _TREES),
    *classical("logistic", "scaler and logistic regression", CLASSICAL, _ROWS),
    *classical("support_vectors", "SVC with probabilities", CLASSICAL, _ROWS),
    *classical("neighbours", "5 nearest neighbours", CLASSICAL, _ROWS),
    *classical("gaussian_process", "Gaussian process", CLASSICAL, _ROWS),
    *classical("one_hot", "one-hot texts, scaler, dictionary", CLASSICAL, _ROWS),
    *classical("text", "tf-idf of texts", CLASSICAL, _ROWS),
)  # fmt: skip

CASES: Final[dict[str, Case]] = {case.name: case for case in _LIST}

# For what is measured over many sizes; the models above have fixed ones where others measure them so.
SYMBOLIC: Final[dict[str, Case]] = {
    "unet_any": exported("unet_any", "U-Net, any size", DENSE, _picture("unet", 1, 3, 64, 64),
                         axes={"image": {2: "height", 3: "width"}}),
}  # fmt: skip
