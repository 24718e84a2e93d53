"""Products with dequantized weights become MatMulNBits, as ONNX Runtime makes them, number by number; what it refuses stays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.errors import InvalidArgument
from sardonyx.ir.tensor import Array
from sardonyx.ops.quant.contrib_quant_matmul import unpack_bits
from session_agreement import REFERENCE, session

TYPES = {
    "u4": TensorProto.UINT4, "i4": TensorProto.INT4, "u8": TensorProto.UINT8, "i8": TensorProto.INT8,
    "u2": getattr(TensorProto, "UINT2", 0), "i2": getattr(TensorProto, "INT2", 0),
}  # fmt: skip


def quantized(kind: str, shape: tuple[int, ...], rng: np.random.Generator, name: str) -> Any:
    bits, low = int(kind[1]), -(1 << (int(kind[1]) - 1)) if kind[0] == "i" else 0
    numbers = rng.integers(low, low + (1 << bits), shape)
    return helper.make_tensor(name, TYPES[kind], shape, numbers.reshape(-1).tolist())


def model(
    kind: str = "u4",
    *,
    depth: int = 96,
    columns: int = 20,
    block: int = 32,
    scales: str = "blocks",
    zero: bool = True,
    gemm: bool = False,
    bias: bool = False,
    scale_type: Any = np.float32,
    tied: bool = False,
    **attrs: Any,
) -> bytes:
    rng = np.random.default_rng(depth + columns)
    shape: tuple[int, ...] = {"blocks": (-(-depth // block), columns), "columns": (columns,), "one": ()}[scales]
    how: dict[str, Any] = {"blocks": {"axis": 0, "block_size": block}, "columns": {"axis": 1}, "one": {}}[scales]
    scale = rng.uniform(0.01, 0.1, shape).astype(scale_type)
    constants = [quantized(kind, (depth, columns), rng, "w"), numpy_helper.from_array(np.asarray(scale), "s")]
    if zero:
        constants.append(quantized(kind, shape, rng, "z"))
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", *(["z"] if zero else [])], ["d"], **how)]
    inputs = ["a", "d"]
    if bias:
        constants.append(numpy_helper.from_array(rng.standard_normal(columns).astype(scale_type), "c"))
        inputs.append("c")
    nodes.append(helper.make_node("Gemm" if gemm else "MatMul", inputs, ["y"], name="product", **attrs))
    code = helper.np_dtype_to_tensor_dtype(np.dtype(scale_type))
    outputs = [helper.make_tensor_value_info("y", code, None)]
    if tied:
        nodes.append(helper.make_node("Identity", ["d"], ["e"]))
        outputs.append(helper.make_tensor_value_info("e", code, None))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("a", code, ["m", depth])], outputs, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25 if kind[1] == "2" else 21)], ir_version=11)
    content: bytes = made.SerializeToString()
    return content


def saved(content: bytes, path: Path, runtime: Any, config: dict[str, str]) -> Any:
    options = runtime.SessionOptions()
    options.optimized_model_filepath = os.fspath(path)
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    for key, value in config.items():
        options.add_session_config_entry(key, value)
    runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return onnx.load(path)


def product_of(saved_model: Any) -> tuple[dict[str, Any], list[Array | None]]:
    (node,) = [node for node in saved_model.graph.node if node.op_type == "MatMulNBits"]
    held = {each.name: numpy_helper.to_array(each) for each in saved_model.graph.initializer}
    attrs = {attr.name: helper.get_attribute_value(attr) for attr in node.attribute}
    attrs.pop("weight_prepacked", None)  # ONNX Runtime writes its default, 0
    return attrs, [held.get(name) for name in node.input[1:]]


CASES: list[dict[str, Any]] = [
    *({"kind": kind, "zero": zero} for kind in ("u4", "i4", "u8", "i8") for zero in (True, False)),
    *({"kind": kind, "scales": scales, "depth": 70} for kind in ("u4", "i8") for scales in ("columns", "one")),
    {"depth": 100, "block": 16},
    {"kind": "i4", "depth": 130, "block": 128, "zero": False},
    {"gemm": True},
    {"kind": "i4", "gemm": True, "bias": True, "zero": False},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_product_is_onnxruntimes_and_agrees_with_the_definition(case: dict[str, Any], tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    content = model(**case)
    attrs, constants = product_of(saved(content, tmp_path / "ours.onnx", sardonyx, {}))
    their_attrs, theirs = product_of(saved(content, tmp_path / "theirs.onnx", onnxruntime, {}))
    assert attrs == their_attrs
    assert len(constants) == len(theirs)
    lengths = (
        attrs["K"],
        0,
        -(-attrs["K"] // attrs["block_size"]),
    )  # of rows; what stands behind them differs, and means nothing
    for number, (own, other) in enumerate(zip(constants, theirs)):
        assert (own is None) == (other is None)
        if own is not None and other is not None:
            assert (own.dtype, own.size) == (other.dtype, other.size)
            if own.dtype == np.uint8:
                rows = [unpack_bits(each.reshape(attrs["N"], -1), attrs["bits"])[:, : lengths[number]] for each in (own, other)]
                np.testing.assert_array_equal(rows[0], rows[1])
            else:
                np.testing.assert_array_equal(own.reshape(-1), other.reshape(-1))
    a = np.random.default_rng(1).standard_normal((3, case.get("depth", 96))).astype(np.float32)
    (found,), (expected,) = session(content).run(None, {"a": a}), session(content, providers=REFERENCE).run(None, {"a": a})
    assert np.abs(found - expected).max() < 2e-2 * np.abs(expected).max()


@pytest.mark.parametrize("kind", ["u2", "i2"])
def test_weights_of_two_bits_agree(kind: str) -> None:
    content = model(kind)
    a = np.random.default_rng(1).standard_normal((3, 96)).astype(np.float32)
    (found,), (expected,) = session(content).run(None, {"a": a}), session(content, providers=REFERENCE).run(None, {"a": a})
    assert np.abs(found - expected).max() < 2e-2 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("case", "config"),
    [
        ({"tied": True}, {}),
        ({"gemm": True, "alpha": 0.5}, {}),
        ({"depth": 96, "block": 8}, {}),
        ({}, {"session.disable_quant_qdq": "1"}),
    ],
    ids=str,
)
def test_what_onnxruntime_leaves_alone_stays(case: dict[str, Any], config: dict[str, str], tmp_path: Path) -> None:
    content = model(**case)
    made = saved(content, tmp_path / "ours.onnx", sardonyx, config)
    assert all(node.op_type != "MatMulNBits" for node in made.graph.node)
    onnxruntime = pytest.importorskip("onnxruntime")
    theirs = saved(content, tmp_path / "theirs.onnx", onnxruntime, config)
    assert all(node.op_type != "MatMulNBits" for node in theirs.graph.node)


@pytest.mark.parametrize("size", ["-1", "0", "16", "128"])
def test_options_set_level_and_block_size(size: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    config = {"session.qdq_matmulnbits_accuracy_level": "0", "session.qdq_matmulnbits_block_size": size}
    content = model("u4", scales="columns", depth=72)
    attrs, _ = product_of(saved(content, tmp_path / "ours.onnx", sardonyx, config))
    their_attrs, _ = product_of(saved(content, tmp_path / "theirs.onnx", onnxruntime, config))
    assert attrs == their_attrs


@pytest.mark.parametrize(
    ("key", "value"),
    [("session.qdq_matmulnbits_accuracy_level", "5"), ("session.qdq_matmulnbits_block_size", "24")],
)
def test_options_that_make_no_sense_are_refused(key: str, value: str) -> None:
    options = sardonyx.SessionOptions()
    options.add_session_config_entry(key, value)
    with pytest.raises(InvalidArgument, match=f"{key} is '{value}': expected"):
        sardonyx.InferenceSession(model(), options)
