"""For tests of ai.onnx.ml in native code: one node, brought into native operators by the passes, compared with its definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, helper, numpy_helper

from lowering_case import onnx_type
from native_support import compile_native, host_nodes, run_native, run_reference
from sardonyx.formats.onnx import load
from sardonyx.ir.graph import Model
from sardonyx.passes.fold_shape_values import infer_from_inputs
from sardonyx.passes.pipeline import CLASSICAL

Array = NDArray[Any]
ML = "ai.onnx.ml"


def ml_model(
    name: str, inputs: Mapping[str, Array], *, outputs: int = 1, version: int = 3, symbolic: bool = True, **attrs: Any
) -> ModelProto:
    """A model of one node; arrays among the attributes are tensors. With `symbolic`, the number of rows is open."""
    plain = {key: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value for key, value in attrs.items()}
    names = [f"y{number}" for number in range(outputs)]
    node = helper.make_node(name, list(inputs), names, domain=ML, **plain)

    def shape(array: Array) -> list[Any]:
        return [f"n{axis}" if symbolic and axis == 0 and array.ndim > 1 else size for axis, size in enumerate(array.shape)]

    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(key, onnx_type(array.dtype), shape(array)) for key, array in inputs.items()],
        [helper.make_empty_tensor_value_info(output) for output in names],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(ML, version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def expanded(content: ModelProto) -> tuple[Model, list[str]]:
    """The model after the passes over ai.onnx.ml, and why they left nodes as they are."""
    model = load(content.SerializeToString())
    infer_from_inputs(model)
    reasons: list[str] = []
    for each in CLASSICAL:
        reasons += each.run(model).reasons
    return model, reasons


def assert_classical_agrees(
    content: ModelProto,
    feeds: Sequence[Mapping[str, Any]],
    *,
    tolerance: float = 1e-5,
    target: str = "",
    hosts: Sequence[str] = (),
) -> None:
    """Native code gives what the definition gives, for several feeds; only nodes of these operators may be left to the host."""
    model, reasons = expanded(content)
    graph, compiled = compile_native(model, target=target)
    assert set(host_nodes(compiled)) <= set(hosts), (host_nodes(compiled), reasons, list(compiled.grouping.refusals.values()))
    for feed in feeds:
        expected = run_reference(content.SerializeToString(), feed)
        for found, wanted in zip(run_native(graph, compiled, feed), expected, strict=True):
            assert found.dtype == wanted.dtype
            assert found.shape == wanted.shape
            if wanted.dtype.kind == "f":
                np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
            else:
                assert found.tolist() == wanted.tolist()
