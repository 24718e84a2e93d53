"""Models as users export them from PyTorch, transformers, scikit-learn, LightGBM and XGBoost, small, with feeds that fit.

    for name, content, feeds in exported_models(): ...

The libraries are imported in another process, which ends when all models are made. What is not installed is left out.
"""

from __future__ import annotations

import importlib.util
import io
import multiprocessing
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np

Made = tuple[str, bytes, dict[str, Any]]
Network = tuple[Any, Mapping[str, Any]]  # a module of PyTorch and its inputs by name
OPSET: Final = 17
ROWS: Final = 5  # of the tables that estimators get


def exported_models() -> list[Made]:
    """All of them."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_make_all).result()


def _make_all() -> list[Made]:
    tests = Path(__file__).parent
    sys.path += [str(tests.parent), str(tests), str(tests / "models")]
    warnings.simplefilter("ignore")
    made: list[Made] = []
    if _installed("torch"):
        made += _torch_models()
    if _installed("sklearn", "skl2onnx"):
        made += _estimators()
    return made


def _installed(*packages: str) -> bool:
    return all(importlib.util.find_spec(package) is not None for package in packages)


def _torch_models() -> Iterator[Made]:
    import torch
    from test_torch_models import networks

    compilable = _installed("onnxscript")
    for name, make in networks().items():
        torch.manual_seed(0)
        module, inputs = make()
        yield f"torch {name}", *_traced(module, {"x": inputs[0]}, is_open=False)
        if compilable:
            exported = torch.onnx.export(module, inputs, input_names=["x"], dynamo=True, verbose=False)
            yield f"torch {name}, compiled", exported.model_proto.SerializeToString(), {"x": inputs[0].numpy()}
    for name, network in {**_benchmark_networks(), **(_language_models() if _installed("transformers") else {})}.items():
        torch.manual_seed(0)
        yield f"torch {name}", *_traced(*network(), is_open=True)


def _traced(module: Any, inputs: Mapping[str, Any], *, is_open: bool) -> tuple[bytes, dict[str, Any]]:
    """An export by tracing; `is_open` leaves all sizes to the run where the module does not need them."""
    import torch

    buffer = io.BytesIO()
    named = {name: {axis: f"{name}_{axis}" for axis in range(tensor.ndim)} for name, tensor in inputs.items()}
    torch.onnx.export(
        module,
        tuple(inputs.values()),
        buffer,
        input_names=list(inputs),
        dynamic_axes=named if is_open else None,
        opset_version=OPSET,
        dynamo=False,
    )
    return buffer.getvalue(), {name: tensor.numpy() for name, tensor in inputs.items()}


def _benchmark_networks() -> dict[str, Callable[[], Network]]:
    """The networks of the benchmark, smaller."""
    import torch
    from benchmarks.models import small, transformers, vision
    from torch import nn

    picture = (1, 3, 32, 32)
    words = {
        "input_ids": torch.randint(0, 100, (2, 7)),
        "attention_mask": torch.ones(2, 7, dtype=torch.int64),
        "token_type_ids": torch.zeros(2, 7, dtype=torch.int64),
    }
    past = {f"past_{layer}": torch.randn(2, 1, 4, 5, 8) * 0.3 for layer in range(2)}

    def see(make: Callable[[], Any]) -> Callable[[], Network]:
        # with statistics of larger pictures: those of two pixels would be divided by next to nothing
        return lambda: (vision.prepared(make(), (1, 3, 128, 128)), {"image": torch.randn(*picture)})

    def read(pooled: bool) -> Callable[[], Network]:
        return lambda: (transformers.prepared(transformers.Bert(32, 4, 2, pooled=pooled, vocabulary=100)), words)

    def listen(kind: Any) -> Callable[[], Network]:
        return lambda: (small.Recurrent(kind, 12, 20).eval(), {"x": torch.randn(1, 6, 12)})

    return {
        "ResNet": see(lambda: vision.resnet((1, 1, 1, 1), bottleneck=False)),
        "ResNet with bottlenecks": see(lambda: vision.resnet((1, 1, 1, 1), bottleneck=True)),
        "MobileNetV2": see(vision.mobilenet_v2),
        "MobileNetV3": see(vision.mobilenet_v3_large),
        "EfficientNet": see(vision.efficientnet_b0),
        "U-Net": see(lambda: vision.UNet(8, 2)),
        "ViT": lambda: (
            transformers.prepared(transformers.VisionTransformer(32, 4, 2, pixels=32, patch=8)),
            {"image": torch.randn(*picture)},
        ),
        "BERT": read(pooled=True),
        "MiniLM": read(pooled=False),
        "GPT-2 with past": lambda: (
            transformers.prepared(transformers.Gpt2(32, 4, 2, vocabulary=100, context=64)),
            {"input_ids": torch.randint(0, 100, (1, 3)), **past},
        ),
        "LSTM": listen(nn.LSTM),
        "GRU": listen(nn.GRU),
        "perceptron": small.perceptron_network,
        "chain": small.chain_network,
    }


def _language_models() -> dict[str, Callable[[], Network]]:
    """Small models of the transformers library."""
    import torch
    import transformers

    class First(torch.nn.Module):  # type: ignore[misc]
        """A model called with named inputs, and the first of its results."""

        def __init__(self, model: Any, *names: str, **settings: Any) -> None:
            super().__init__()
            self.model, self.names, self.settings = model.eval(), names, settings

        def forward(self, *inputs: Any) -> Any:
            """The states of the last layer."""
            return self.model(**dict(zip(self.names, inputs)), **self.settings)[0]

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    plain = {"attn_implementation": "eager"}
    tokens, mask = torch.randint(4, 90, (2, 7)), torch.ones(2, 7, dtype=torch.int64)
    states = torch.randn(2, 6, 32)

    def t5() -> Any:
        kinds = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
        return transformers.T5Config(vocab_size=100, **kinds, **plain)

    def encoded() -> Network:
        model = transformers.T5EncoderModel(t5())
        return First(model, "input_ids", "attention_mask"), {"input_ids": tokens, "attention_mask": mask}

    def decoded() -> Network:
        model = transformers.T5ForConditionalGeneration(t5()).decoder
        inputs = {"input_ids": tokens[:, :4], "encoder_hidden_states": states}
        return First(model, *inputs, use_cache=False), inputs

    def roberta() -> Network:
        model = transformers.RobertaModel(transformers.RobertaConfig(vocab_size=100, **sizes, **plain), add_pooling_layer=False)
        return First(model, "input_ids", "attention_mask"), {"input_ids": tokens, "attention_mask": mask}

    def clip() -> Network:
        config = transformers.CLIPVisionConfig(image_size=32, patch_size=8, **sizes, **plain)
        return First(transformers.CLIPVisionModel(config), "pixel_values"), {"pixel_values": torch.randn(1, 3, 32, 32)}

    def wav2vec() -> Network:
        config = transformers.Wav2Vec2Config(conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3), **sizes, **plain,
                                             num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4)  # fmt: skip
        return First(transformers.Wav2Vec2Model(config), "input_values"), {"input_values": torch.randn(1, 400)}

    return {"T5 encoder": encoded, "T5 decoder": decoded, "RoBERTa": roberta, "CLIP": clip, "wav2vec": wav2vec}


def _estimators() -> Iterator[Made]:
    from skl2onnx import to_onnx
    from sklearn.base import is_classifier
    from sklearn.svm import LinearSVC
    from test_converted_models import BINARY, CLASSES, TARGET, X, estimators

    for name, fitted in estimators().items():
        estimator = fitted()
        has_maps = is_classifier(estimator) and not isinstance(estimator, LinearSVC)  # scores by class, unless told otherwise
        options = {id(estimator): {"zipmap": False}} if has_maps else None
        model = to_onnx(estimator, X[:1], target_opset={"": 18, "ai.onnx.ml": 3}, options=options)
        yield f"scikit-learn {name}", model.SerializeToString(), {"X": X[:ROWS]}
    if not _installed("onnxmltools"):
        return
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    for library, prefix, silent in (("lightgbm", "LGBM", -1), ("xgboost", "XGB", 0)):
        if not _installed(library):
            continue
        module = importlib.import_module(library)
        for kind, target in (("classifier", CLASSES), ("two classes", BINARY), ("regressor", TARGET)):
            boosted = getattr(module, prefix + ("Regressor" if kind == "regressor" else "Classifier"))
            given = boosted(n_estimators=5, verbosity=silent).fit(X, target)
            plain = {} if library == "xgboost" else {"zipmap": False}
            types = [("X", FloatTensorType([None, 6]))]
            model = getattr(onnxmltools, f"convert_{library}")(given, initial_types=types, **plain)
            yield f"{library} {kind}", model.SerializeToString(), {"X": np.ascontiguousarray(X[:ROWS])}
