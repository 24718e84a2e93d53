"""What quantization costs, layer by layer: as a table, as a picture, and from the command line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import onnx
import pytest

from quantization.small_models import convolutional, feeds_for, products
from sardonyx.cli.main import main
from sardonyx.quantization import (
    CalibrationFeeds,
    LayerError,
    MatMulNBitsQuantizer,
    QuantFormat,
    QuantType,
    layer_errors,
    quantize_dynamic,
    quantize_static,
)
from sardonyx.quantization.error_chart import chart


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(convolutional(), str(path))
    return path


def _quantize(model: Path, kind: str) -> tuple[Path, Any]:
    feeds = feeds_for(onnx.load(str(model))).feeds
    out = model.with_name(f"{kind}.onnx")
    if kind == "dynamic":
        quantize_dynamic(model, out, weight_type=QuantType.QUInt8)
    elif kind == "blocks":
        quantizer = MatMulNBitsQuantizer(model, block_size=16)
        quantizer.process()
        quantizer.model.save_model_to_file(out)
    else:
        quantize_static(model, out, CalibrationFeeds(feeds), quant_format=QuantFormat[kind], activation_type=QuantType.QUInt8)
    return out, feeds


@pytest.mark.parametrize("kind", ["dynamic", "QDQ", "QOperator"])
def test_every_weighted_layer_has_both_errors(model: Path, kind: str) -> None:
    out, feeds = _quantize(model, kind)
    layers = {each.name: each for each in layer_errors(model, out, feeds)}
    for name in ("conv1", "conv2", "gemm"):
        weight, output = layers[name].weight, layers[name].output
        assert weight is not None
        assert 35 < weight < 60
        assert output is not None
        assert 25 < output < 70


def test_weights_in_blocks(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(products(), str(path))
    out, feeds = _quantize(path, "blocks")
    layers = {each.name: each for each in layer_errors(path, out, feeds)}
    assert 15 < (layers["matmul1"].weight or 0) < 30
    assert layers["gemm"].weight is None
    assert layer_errors(path, path, feeds)[0].output == math.inf


def test_the_chart_is_a_picture_of_all_layers() -> None:
    layers = [LayerError(f"layer <{index}>", "Conv", 20.0 + index, 10.0 * index if index else math.inf) for index in range(90)]
    root = ET.fromstring(chart(layers, "a & b"))
    texts = [each.text for each in root.iter() if each.text]
    assert "a & b" in texts
    assert "the worst 80 of 90 layers; signal-to-quantization-noise ratio in dB, longer is better" in texts
    assert ET.fromstring(chart([], "nothing")) is not None


def test_the_command(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, drawn = tmp_path / "out.onnx", tmp_path / "chart.svg"
    np.savez(tmp_path / "a.npz", x=np.ones((2, 3, 8, 8), np.float32))
    np.save(tmp_path / "b.npy", np.zeros((1, 3, 8, 8), np.float32))
    data = [str(tmp_path / "a.npz"), str(tmp_path / "b.npy")]
    assert main(["quantize", str(model), "-o", str(out), "--static", "--data", *data, "--chart", str(drawn)]) == 0
    printed = capsys.readouterr().out
    assert "conv1" in printed
    assert f"written to {out}" in printed
    assert drawn.read_text().startswith("<svg")
    assert main(["quantize", str(model), "-o", str(out), "--weight-type", "uint8", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["bytes"][1] < facts["bytes"][0]
    assert {each["name"] for each in facts["layers"]} == {"conv1", "conv2", "gemm"}


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--static"], 2, "--static needs inputs"),
        (["--static", "--random", "0"], 2, "--random 0"),
        (["--static", "--data", "missing.npy"], 2, "missing.npy: there is no such file"),
        (["--bits", "4", "--block-size", "20"], 1, "block_size is 20"),
        (["--bits", "8", "--format", "qdq"], 1, "bits is 8"),
        (["--nodes", "nothing"], 1, "no node called 'nothing'"),
    ],
)
def test_wrong_commands(tmp_path: Path, arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(products(), str(path))
    assert main(["quantize", str(path), "-o", str(tmp_path / "out.onnx"), *arguments]) == code
    assert text in capsys.readouterr().err


def test_a_model_is_not_written_over_itself(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantize", str(model), "-o", str(model)]) == 2
    assert "OUT is MODEL itself" in capsys.readouterr().err
