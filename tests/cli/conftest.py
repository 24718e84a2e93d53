"""Models for the tests of the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

Build = Callable[..., str]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Writes a model of the given nodes and returns its path."""

    def make(
        nodes: list[Any],
        inputs: dict[str, tuple[int, Any]],
        outputs: dict[str, tuple[int, Any]],
        weights: dict[str, np.ndarray[Any, Any]] | None = None,
        *,
        opset: int = 17,
        metadata: dict[str, str] | None = None,
        name: str = "model.onnx",
    ) -> str:
        graph = helper.make_graph(
            nodes,
            "graph",
            [helper.make_tensor_value_info(key, *described) for key, described in inputs.items()],
            [helper.make_tensor_value_info(key, *described) for key, described in outputs.items()],
            [numpy_helper.from_array(array, key) for key, array in (weights or {}).items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        helper.set_model_props(model, metadata or {})
        path = tmp_path / name
        onnx.save(model, str(path))
        return str(path)

    return make


@pytest.fixture
def adder(build: Build) -> str:
    """`y = a + b` over float32[N,3]."""
    shape = (TensorProto.FLOAT, ["N", 3])
    return build([helper.make_node("Add", ["a", "b"], ["y"], name="sum")], {"a": shape, "b": shape}, {"y": shape})
