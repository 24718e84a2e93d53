"""Real models out of packages: the same outputs as onnxruntime."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
from comparing import assert_models_agree  # noqa: E402

pytestmark = pytest.mark.slow

PICTURE = {"x:2": 64, "x:3": 256, "DynamicDimension.0": 1, "DynamicDimension.1": 64, "DynamicDimension.2": 256}

# package -> {model: sizes of its free dimensions}
MODELS: dict[str, dict[str, dict[str, int]]] = {
    "rapidocr_onnxruntime": {
        "models/ch_PP-OCRv4_det_infer.onnx": {"x:2": 256, "x:3": 320},
        "models/ch_PP-OCRv4_rec_infer.onnx": {"x:2": 48, "x:3": 320},
        "models/ch_ppocr_mobile_v2.0_cls_infer.onnx": {"x:2": 48, "x:3": 192},
    },
    "rapidocr": {
        "models/PP-OCRv6_det_small.onnx": {"x:2": 256, "x:3": 320},
        "models/PP-OCRv6_rec_small.onnx": {"x:2": 48, "x:3": 320},
        "models/ch_ppocr_mobile_v2.0_cls_mobile.onnx": {"x:2": 48, "x:3": 192},
    },
    "magika": {"models/standard_v3_3/model.onnx": {}},
    "nudenet": {"320n.onnx": {"height": 320, "width": 320}},
    "ddddocr": {
        "common.onnx": {"input1:2": 64, "input1:3": 160},
        "common_old.onnx": {"input1:2": 64, "input1:3": 160},
        "common_det.onnx": {},
    },
    "openwakeword": {
        "resources/models/embedding_model.onnx": {},
        "resources/models/melspectrogram.onnx": {"input:1": 17280, "samples": 17280},
        "resources/models/alexa_v0.1.onnx": {},
        "resources/models/hey_jarvis_v0.1.onnx": {},
        "resources/models/hey_mycroft_v0.1.onnx": {},
        "resources/models/hey_rhasspy_v0.1.onnx": {},
        "resources/models/timer_v0.1.onnx": {},
        "resources/models/weather_v0.1.onnx": {},
    },
    "basic_pitch": {"saved_models/icassp_2022/nmp.onnx": {}},
}

SILERO = [
    ("silero_vad", f"data/{name}")
    for name in (
        "silero_vad.onnx",
        "silero_vad_16k_op15.onnx",
        "silero_vad_half.onnx",
        "silero_vad_op18_ifless.onnx",
    )
]


def package_file(package: str, name: str) -> Path:
    """A file inside an installed package, without importing it; the test is skipped if the package is not there."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"{package} is not installed; `make models` installs it")
    return Path(found.origin).parent / name


@pytest.mark.parametrize(("package", "name"), [(package, name) for package, models in MODELS.items() for name in models])
def test_a_model_of_a_package_gives_onnxruntimes_answer(package: str, name: str) -> None:
    feeds = None
    path = package_file(package, name)
    if package == "magika":  # bytes of a file, 256 stands for padding
        feeds = {"bytes": np.random.default_rng(0).integers(0, 257, (3, 2048)).astype(np.int32)}
    assert_models_agree(path, feeds, MODELS[package][name])


@pytest.mark.parametrize(("package", "name"), SILERO)
def test_the_voice_detector_gives_onnxruntimes_answer(package: str, name: str) -> None:
    rng = np.random.default_rng(0)
    feeds: dict[str, Any] = {"input": (rng.normal(size=(1, 576)) * 0.1).astype(np.float32)}
    feeds["state"] = rng.normal(size=(2, 1, 128)).astype(np.float32)
    if "sr" in inputs_of(package_file(package, name)):
        feeds["sr"] = np.array(16000, np.int64)
    assert_models_agree(package_file(package, name), feeds)


def inputs_of(path: Path) -> list[str]:
    """The names of a model's inputs."""
    import sardonyx

    return [port.name for port in sardonyx.InferenceSession(path).get_inputs()]


def test_an_older_voice_detector_with_nested_ifs_gives_onnxruntimes_answer() -> None:
    path = package_file("openwakeword", "resources/models/silero_vad.onnx")
    rng = np.random.default_rng(0)
    feeds: dict[str, Any] = {"input": (rng.normal(size=(1, 640)) * 0.1).astype(np.float32), "sr": np.array(16000, np.int64)}
    feeds["h"] = feeds["c"] = np.zeros((2, 1, 64), np.float32)
    assert_models_agree(path, feeds)


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("faster_whisper", "assets/silero_vad_v6.onnx"),
        ("silero_vad", "data/silero_vad_16k_sequence.onnx"),
        ("silero_vad", "data/silero_vad_openvino_16k.onnx"),
        ("piper", "tashkeel/model.onnx"),
        ("piper", "hebrew/nakdimon.onnx"),
    ],
)
def test_a_sequence_model_gives_onnxruntimes_answer(package: str, name: str) -> None:
    path = package_file(package, name)
    sizes = {"batch": 1, "batch_size": 1, "sequence": 7, "seq_len": 7, "input:0": 1, "input:1": 576}
    assert_models_agree(path, None, sizes)
