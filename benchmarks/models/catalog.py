"""All models of the benchmark, by name, with their inputs.

    case = CASES["resnet50"]
    path, feeds = case.prepare(Path(".bench-cache"))

Models made in PyTorch are exported once and kept; a changed architecture is noticed by the hash of its source.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

Feeds = dict[str, Any]
Network = Callable[[], tuple[Any, Mapping[str, Any]]]

SOURCES: Final = Path(__file__).parent
OPSET: Final = 17


class Unavailable(Exception):
    """A model cannot be made here; the text says what is missing."""


@dataclass(frozen=True)
class Case:
    """A model with the inputs it is measured on."""

    name: str
    title: str
    group: str  # "convolution", "transformer", "recurrent", "small", "trees", "classical": how tables and charts are ordered
    prepare: Callable[[Path], tuple[Path, Feeds]] = field(compare=False)


def _vision(make: str, **options: Any) -> Network:
    def network() -> tuple[Any, Mapping[str, Any]]:
        from benchmarks.models import vision

        makers: dict[str, Callable[[], Any]] = {
            "resnet18": lambda: vision.resnet((2, 2, 2, 2), bottleneck=False),
            "resnet50": lambda: vision.resnet((3, 4, 6, 3), bottleneck=True),
            "mobilenet_v2": vision.mobilenet_v2,
            "mobilenet_v3": vision.mobilenet_v3_large,
            "efficientnet_b0": vision.efficientnet_b0,
            "unet": vision.UNet,
        }
        return vision.picture_network(makers[make], **options)

    return network


def _transformer(make: str, **options: Any) -> Network:
    def network() -> tuple[Any, Mapping[str, Any]]:
        from benchmarks.models import transformers

        makers: dict[str, Callable[..., tuple[Any, Mapping[str, Any]]]] = {
            "bert": transformers.bert_network,
            "vit": transformers.vit_network,
            "gpt2": transformers.gpt2_network,
        }
        return makers[make](**options)

    return network


def _small(make: str) -> Network:
    def network() -> tuple[Any, Mapping[str, Any]]:
        from torch import nn

        from benchmarks.models import small

        makers: dict[str, Callable[[], tuple[Any, Mapping[str, Any]]]] = {
            "lstm": lambda: small.recurrent_network(nn.LSTM),
            "gru": lambda: small.recurrent_network(nn.GRU),
            "mlp": small.perceptron_network,
            "chain": small.chain_network,
        }
        return makers[make]()

    return network


def _exported(
    name: str, title: str, group: str, network: Network, *, file: str = "", axes: Mapping[str, Mapping[int, str]] | None = None
) -> Case:
    """A network exported from PyTorch. `axes` names the dimensions that may vary; cases with one `file` share the model."""

    def prepare(folder: Path) -> tuple[Path, Feeds]:
        home = folder / name
        model = folder / (file or name) / "model.onnx"
        stamp, version = home / "source", _sources_hash()
        if not (model.exists() and stamp.exists() and stamp.read_text() == version):
            _export(network, model, home / "inputs.npz", axes or {})
            (model.parent / "source").write_text(version)
            stamp.write_text(version)
        with np.load(home / "inputs.npz") as arrays:
            return model, {key: arrays[key] for key in arrays.files}

    return Case(name, title, group, prepare)


@cache
def _sources_hash() -> str:
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCES.glob("*.py")) if path.name != "catalog.py"))
    return digest.hexdigest()


def _export(network: Network, model: Path, inputs: Path, axes: Mapping[str, Mapping[int, str]]) -> None:
    if importlib.util.find_spec("torch") is None:
        raise Unavailable("PyTorch is not installed; `make bench` installs it")
    import torch

    module, feeds = network()
    inputs.parent.mkdir(parents=True, exist_ok=True)
    np.savez(inputs, **{name: tensor.numpy() for name, tensor in feeds.items()})
    if model.exists() and (model.parent / "source").exists() and (model.parent / "source").read_text() == _sources_hash():
        return  # another case has made it
    model.parent.mkdir(parents=True, exist_ok=True)
    beside = model.with_suffix(".part")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            tuple(feeds.values()),
            str(beside),
            input_names=list(feeds),
            dynamic_axes={key: dict(value) for key, value in axes.items()} or None,
            opset_version=OPSET,
            dynamo=False,
        )
        program = torch.jit.trace(module, tuple(feeds.values()), check_trace=False)
        program.save(str(model.with_suffix(".pt")))  # for the comparison with PyTorch itself
    os.replace(beside, model)


def _packaged(
    name: str, title: str, group: str, package: str, file: str, feeds: Callable[[np.random.Generator], Mapping[str, Any]]
) -> Case:
    """A model inside an installed package, read as a file: the package itself is not imported."""

    def prepare(folder: Path) -> tuple[Path, Feeds]:
        found = importlib.util.find_spec(package)
        kept = folder / name / "model.onnx"
        if found is not None and found.origin is not None:
            source = Path(found.origin).parent / file
            if not kept.exists() or kept.stat().st_size != source.stat().st_size:
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, kept)
        if not kept.exists():
            raise Unavailable(f"the package {package} is not installed; `make bench` installs it")
        return kept, dict(feeds(np.random.default_rng(0)))

    return Case(name, title, group, prepare)


def _classical(make: str, title: str, group: str, *counts: int) -> list[Case]:
    """A model of classical machine learning, for so many rows at a time."""

    def case(count: int) -> Case:
        def prepare(folder: Path) -> tuple[Path, Feeds]:
            from benchmarks.models import classical

            model = folder / make / "model.onnx"
            stamp = model.parent / "source"
            if not (model.exists() and stamp.exists() and stamp.read_text() == _sources_hash()):
                lacking = classical.missing()
                if lacking:
                    raise Unavailable(f"{', '.join(lacking)} not installed; `make bench` installs all")
                model.parent.mkdir(parents=True, exist_ok=True)
                model.write_bytes(classical.make(make))
                stamp.write_text(_sources_hash())
            return model, {"X": classical.rows(count)}

        plural = "row" if count == 1 else "rows"
        return Case(f"{make}_{count}", f"{title}, {count:,} {plural}", group, prepare)

    return [case(count) for count in counts]


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


_TEXT: Final = {name: {0: "batch", 1: "tokens"} for name in ("input_ids", "attention_mask", "token_type_ids")}
_PAST: Final = {
    "input_ids": {0: "batch", 1: "tokens"},
    **{f"past_{layer}": {1: "batch", 3: "before"} for layer in range(12)},
}
_OCR: Final = ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_{}_infer.onnx")
_WAKE: Final = ("openwakeword", "resources/models/{}.onnx")

CASES: Final[dict[str, Case]] = {
    case.name: case
    for case in (
        _exported("resnet18", "ResNet-18", "convolution", _vision("resnet18")),
        _exported("resnet50", "ResNet-50", "convolution", _vision("resnet50")),
        _exported("mobilenet_v2", "MobileNetV2", "convolution", _vision("mobilenet_v2")),
        _exported("mobilenet_v3", "MobileNetV3-Large", "convolution", _vision("mobilenet_v3")),
        _exported("efficientnet_b0", "EfficientNet-B0", "convolution", _vision("efficientnet_b0")),
        _exported("unet", "U-Net 256 px", "convolution", _vision("unet", shape=(1, 3, 256, 256))),
        _packaged("yolov8n", "YOLOv8n (nudenet)", "convolution", "nudenet", "320n.onnx", _floats(images=(1, 3, 320, 320))),
        _packaged("ppocr_det", "PP-OCRv4 det", "convolution", _OCR[0], _OCR[1].format("det"), _page(480, 640)),
        _packaged("ppocr_rec", "PP-OCRv4 rec", "convolution", _OCR[0], _OCR[1].format("rec"), _page(48, 320)),
        _packaged("ddddocr", "ddddocr", "convolution", "ddddocr", "common.onnx", _floats(input1=(1, 1, 64, 160))),
        _packaged("basic_pitch", "basic-pitch", "convolution", "basic_pitch", "saved_models/icassp_2022/nmp.onnx",
                  lambda rng: {"serving_default_input_2:0": rng.standard_normal((1, 43844, 1)).astype(np.float32) * 0.1}),
        _packaged("wake_embedding", "openwakeword embedding", "convolution", _WAKE[0], _WAKE[1].format("embedding_model"),
                  _floats(input_1=(1, 76, 32, 1))),
        _packaged("wake_mel", "openwakeword mel", "convolution", _WAKE[0], _WAKE[1].format("melspectrogram"),
                  _floats(input=(1, 17280))),
        _exported("bert_base", "BERT-base, 128 tokens", "transformer",
                  _transformer("bert", width=768, heads=12, layers=12, pooled=True), axes=_TEXT),
        _exported("minilm_l6", "MiniLM-L6, 128 tokens", "transformer",
                  _transformer("bert", width=384, heads=12, layers=6, pooled=False), axes=_TEXT),
        _exported("vit_b16", "ViT-B/16", "transformer", _transformer("vit")),
        _exported("gpt2_decode", "GPT-2 decode, past 64", "transformer", _transformer("gpt2", new=1, before=64),
                  file="gpt2", axes=_PAST),
        _exported("gpt2_prefill", "GPT-2 prefill, 64 tokens", "transformer", _transformer("gpt2", new=64, before=0),
                  file="gpt2", axes=_PAST),
        _packaged("magika", "magika", "transformer", "magika", "models/standard_v3_3/model.onnx",
                  lambda rng: {"bytes": rng.integers(0, 257, (1, 2048)).astype(np.int32)}),
        _packaged("silero_vad", "silero-vad", "recurrent", "silero_vad", "data/silero_vad.onnx", _voice),
        _exported("lstm", "LSTM 2x256, 64 steps", "recurrent", _small("lstm")),
        _exported("gru", "GRU 2x256, 64 steps", "recurrent", _small("gru")),
        _exported("mlp", "MLP 64-128-128-10", "small", _small("mlp")),
        _exported("chain", "100 elementwise nodes", "small", _small("chain")),
        *_classical("lightgbm", "LightGBM, 500 trees", "trees", 1, 100, 10_000),
        *_classical("xgboost", "XGBoost, 300 trees", "trees", 1, 100, 10_000),
        *_classical("forest", "random forest, 200 trees", "trees", 1, 100, 10_000),
        *_classical("logistic", "scaler and logistic regression", "classical", 1, 1000),
        *_classical("support_vectors", "SVC with probabilities", "classical", 1, 1000),
        *_classical("neighbours", "5 nearest neighbours", "classical", 1, 1000),
        *_classical("gaussian_process", "Gaussian process", "classical", 1, 1000),
    )
}  # fmt: skip

# For what is measured over many sizes; the models above have fixed ones where others measure them so.
SYMBOLIC: Final[dict[str, Case]] = {
    "unet_any": _exported("unet_any", "U-Net, any size", "convolution", _vision("unet", shape=(1, 3, 64, 64)),
                          axes={"image": {2: "height", 3: "width"}}),
}  # fmt: skip
