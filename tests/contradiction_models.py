"""Real models with feeds that fit, for `contradictions.py`: what installed packages ship, and exports of networks and estimators.

What is not installed is left out; the environment of `make models` has all of it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper

from contradictions import Case, Feeds
from exported_models import exported_models
from session_agreement import REFERENCE, session

_KINDS: Final[dict[str, Any]] = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16, "tensor(int64)": np.int64,
    "tensor(int32)": np.int32, "tensor(bool)": np.bool_, "tensor(uint8)": np.uint8, "tensor(int8)": np.int8,
}  # fmt: skip

# Package, model, and the sizes (by name or input:axis) that are not told by the model itself; small, for NumPy computes it, too.
PACKAGES: Final[list[tuple[str, str, dict[str, int]]]] = [
    ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", {"x:2": 64, "x:3": 64}),
    ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", {"x:2": 48, "x:3": 64}),
    ("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x:2": 48, "x:3": 96}),
    ("rapidocr", "models/PP-OCRv6_det_small.onnx", {"x:2": 64, "x:3": 64}),
    ("rapidocr", "models/PP-OCRv6_rec_small.onnx", {"x:2": 48, "x:3": 64}),
    ("rapidocr", "models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", {"x:2": 48, "x:3": 96}),
    ("magika", "models/standard_v3_3/model.onnx", {}),
    ("nudenet", "320n.onnx", {"height": 64, "width": 64}),
    ("ddddocr", "common_old.onnx", {"input1:2": 64, "input1:3": 64}),
    ("ddddocr", "common.onnx", {"input1:2": 64, "input1:3": 64}),
    ("ddddocr", "common_det.onnx", {}),
    *(("openwakeword", f"resources/models/{name}_v0.1.onnx", {}) for name in
      ("alexa", "hey_jarvis", "hey_mycroft", "hey_rhasspy", "timer", "weather")),
    ("openwakeword", "resources/models/embedding_model.onnx", {}),
    ("openwakeword", "resources/models/melspectrogram.onnx", {"input:1": 1760, "samples": 1760}),
    ("openwakeword", "resources/models/silero_vad.onnx", {"input:1": 640, "h:1": 1, "c:1": 1}),
    ("basic_pitch", "saved_models/icassp_2022/nmp.onnx", {}),
    *(("silero_vad", f"data/silero_vad{name}.onnx", {"input:1": 576, "state:1": 1, "sequence": 3}) for name in
      ("", "_16k_op15", "_16k_sequence", "_half", "_op18_ifless", "_openvino_16k")),
    ("faster_whisper", "assets/silero_vad_v6.onnx", {"input:1": 576}),
    ("piper", "hebrew/nakdimon.onnx", {"seq_len": 7}),
    ("piper", "tashkeel/model.onnx", {"seq_len": 7, "char_inputs:1": 7, "diac_inputs:1": 7}),
]  # fmt: skip


def real_models() -> list[Case]:
    """All of them."""
    return [*package_cases(), *export_cases()]


def export_cases() -> list[Case]:
    """Models made from PyTorch, transformers, scikit-learn, LightGBM and XGBoost."""
    return [
        Case(name, content, feeds, fixed=True, inner=_inner_type(onnx.load_model_from_string(content)))
        for name, content, feeds in exported_models()
    ]


def package_cases() -> list[Case]:
    """Models that installed packages ship; what is not installed is left out."""
    made = []
    for package, name, sizes in PACKAGES:
        found = importlib.util.find_spec(package)
        if found is not None and found.origin is not None:
            made.append(model_case(Path(found.origin).parent / name, f"{package} {name}", sizes))
    return made


def model_case(path: Path, name: str, sizes: Mapping[str, int]) -> Case:
    """A model file with random feeds; sizes it leaves open are 1 if nothing else is said."""
    content = path.read_bytes()
    random = np.random.default_rng(0)
    feeds: Feeds = {}
    for port in session(content, providers=REFERENCE).get_inputs():
        shape = [
            sizes.get(f"{port.name}:{axis}", sizes.get(str(dim), dim if isinstance(dim, int) else 1))
            for axis, dim in enumerate(port.shape)
        ]
        kind = _KINDS[port.type]
        if port.name == "sr":
            feeds[port.name] = np.asarray(16000, kind)
        elif np.issubdtype(kind, np.floating):
            feeds[port.name] = np.asarray(random.normal(size=shape) * 0.1, kind)
        else:
            feeds[port.name] = random.integers(0, 2 if kind is np.bool_ else 8, shape).astype(kind)
    return Case(name, content, feeds, fixed=True, inner=_inner_type(onnx.load_model_from_string(content)))


def _inner_type(model: onnx.ModelProto) -> str:
    """What is quantized while a model runs is rounded to 8 bits, and many layers in half precision add up to as much."""
    graph = model.graph
    rough = any(tensor.data_type == onnx.TensorProto.FLOAT16 for tensor in graph.initializer) or any(
        node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear")
        or (node.op_type == "Cast" and helper.get_node_attr_value(node, "to") == onnx.TensorProto.FLOAT16)
        for node in graph.node
    )
    return "int8" if rough else "float64"
