"""Damaged files of the ORT format with recorded optimisations and sparse weights: read, replayed and checked, or refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx import errors
from sardonyx.analysis.check import check_model
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.formats import ort
from sardonyx.passes.runtime_optimisations import replay_optimisations

from .test_ort_format import _damaged

RECORDING = "optimization.minimal_build_optimizations"


def recorded(folder: Path, module: Any) -> bytes:
    """A convolution with its activation, and the rewriting that fuses them written down for whoever loads the file."""
    weights = numpy_helper.from_array(np.random.default_rng(0).standard_normal((8, 4, 3, 3)).astype(np.float32), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 9, 9])]
    graph = helper.make_graph(nodes, "g", ends, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [weights])
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    options = module.SessionOptions()
    options.optimized_model_filepath = str(folder / "m.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    options.add_session_config_entry(RECORDING, "save")
    module.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return (folder / "m.ort").read_bytes()


def sparse(folder: Path) -> bytes:
    """A model with sparse weights, by onnxruntime."""
    values = helper.make_tensor("s", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    indices = helper.make_tensor("i", TensorProto.INT64, [3], [1, 5, 11])
    weights = helper.make_sparse_tensor(values, indices, [4, 4])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "s"], ["y"])], "g", ends[:1], ends[1:])
    graph.sparse_initializer.append(weights)
    path = folder / "s.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "s.ort")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    onnxruntime.InferenceSession(path, options)
    return (folder / "s.ort").read_bytes()


@pytest.mark.parametrize("seed", range(4))
def test_damaged_records_are_replayed_or_refused(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    sources = [recorded(tmp_path, sardonyx), recorded(tmp_path, onnxruntime), sparse(tmp_path)]
    assert any(ort.load(each).saved_optimisations for each in sources)
    refused = 0
    for _ in range(400):
        content = _damaged(rng.choice(sources), rng)
        try:
            model = ort.load(content)
            replay_optimisations(model, model.saved_optimisations)
            check_model(model, infer_shapes(model))
        except errors.SardonyxError:
            refused += 1
    assert refused > 80
