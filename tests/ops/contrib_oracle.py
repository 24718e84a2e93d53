"""Run one operator on onnxruntime and on its own definition, and compare.

Used by the tests of the com.microsoft operators: `check("Gelu", [x])` builds a model of one node, runs it on onnxruntime with
all optimizations off, evaluates the definition of Sardonyx with the attribute defaults of its signature, and compares outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from op_case import Array, attributes, inferred, onnxruntime_session

from sardonyx import dtypes
from sardonyx.ir.types import SequenceType, TensorType
from sardonyx.ops import registry
from sardonyx.ops.registry import EvalContext

MICROSOFT = "com.microsoft"


def evaluate(
    name: str, inputs: Sequence[Array | None], *, domain: str = MICROSOFT, version: int = 1, outputs: int = 1, **attrs: Any
) -> list[Any]:
    """The outputs of Sardonyx's definition; as many as `outputs`."""
    definition = registry.lookup(domain, name, version)
    assert definition is not None, f"{domain}::{name} is not defined"
    merged = attributes(domain, name, version, attrs)
    wanted = {key: merged.get(key) for key in definition.attr_names}
    trimmed = list(inputs)
    while trimmed and trimmed[-1] is None:
        trimmed.pop()
    result = registry.call(definition, trimmed, wanted, EvalContext(version, (True,) * outputs))
    return list(result[:outputs])


def element_code(array: Array) -> int:
    return dtypes.from_numpy(array.dtype).onnx


def as_onnxruntime(
    name: str,
    inputs: Sequence[Array | None],
    *,
    domain: str = MICROSOFT,
    version: int = 1,
    outputs: int = 1,
    like: Sequence[Array] = (),
    in_place: dict[int, int] | None = None,
    **attrs: Any,
) -> list[Any]:
    """The outputs of onnxruntime; arrays in `like` give it the element types of outputs it cannot infer.

    `in_place` maps outputs to the inputs whose memory they must use.
    """
    names = [f"x{index}" if array is not None else "" for index, array in enumerate(inputs)]
    while names and not names[-1]:
        names.pop()
    results = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(name, names, results, domain=domain, **attrs)
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(f"x{index}", element_code(array), array.shape)
            for index, array in enumerate(inputs)
            if array is not None
        ],
        [
            helper.make_tensor_value_info(result, element_code(like[index]), None) if like else onnx.ValueInfoProto(name=result)
            for index, result in enumerate(results)
        ],
    )
    opsets = [helper.make_opsetid(domain, version)] + ([] if not domain else [helper.make_opsetid("", 21)])
    session = onnxruntime_session(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    feeds = {}
    for index, array in enumerate(inputs):
        if array is not None:
            kind = dtypes.from_numpy(array.dtype)
            feeds[f"x{index}"] = array if array.dtype.kind in "fiubO" else _packed(array, kind.onnx)
    if not in_place:
        return list(session.run(results, feeds))
    values = {key: onnxruntime.OrtValue.ortvalue_from_numpy(array) for key, array in feeds.items()}
    binding = session.io_binding()
    for key, value in values.items():
        binding.bind_ortvalue_input(key, value)
    for index, result in enumerate(results):
        if index in in_place:
            binding.bind_ortvalue_output(result, values[f"x{in_place[index]}"])
        else:
            binding.bind_output(result)
    session.run_with_iobinding(binding)
    return list(binding.copy_outputs_to_cpu())


def _packed(array: Array, code: int) -> Any:
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, code)


def infer(
    name: str, inputs: Sequence[Array | None], *, domain: str = MICROSOFT, version: int = 1, outputs: int = 1, **attrs: Any
) -> list[Any]:
    """The shapes the shape rule gives for these inputs."""
    definition = registry.lookup(domain, name, version)
    assert definition is not None
    return inferred(definition, inputs, attributes(domain, name, version, attrs), version, outputs)


def assert_inferred(shapes: Sequence[Any], arrays: Sequence[Any]) -> None:
    """Every number in an inferred shape is what the array has; unknown dimensions fit anything."""
    for shape, array in zip(shapes, arrays, strict=False):
        found = shape.shape if isinstance(shape, TensorType) else shape
        if found is None or isinstance(found, SequenceType) or array is None:
            continue
        assert len(found) == array.ndim, f"inferred {found}, is {array.shape}"
        for dim, size in zip(found, array.shape, strict=True):
            assert not isinstance(dim, int) or dim == size, f"inferred {found}, is {array.shape}"


def check(
    name: str,
    inputs: Sequence[Array | None],
    *,
    domain: str = MICROSOFT,
    version: int = 1,
    outputs: int = 1,
    tolerance: float = 2e-5,
    apart: int = 0,
    in_place: dict[int, int] | None = None,
    **attrs: Any,
) -> list[Any]:
    """Compare definition and onnxruntime: floats within `tolerance`, integers at most `apart` apart, the rest equal."""
    ours = evaluate(name, inputs, domain=domain, version=version, outputs=outputs, **attrs)
    theirs = as_onnxruntime(name, inputs, domain=domain, version=version, outputs=outputs, like=ours, in_place=in_place, **attrs)
    assert len(ours) == len(theirs)
    for ours_one, theirs_one in zip(ours, theirs, strict=True):
        assert isinstance(ours_one, np.ndarray), f"{name} gave {type(ours_one)}"
        assert ours_one.shape == theirs_one.shape
        if ours_one.dtype.kind == "f":
            assert ours_one.dtype == theirs_one.dtype
            loose = max(tolerance, 4e-3) if ours_one.dtype == np.float16 else tolerance
            np.testing.assert_allclose(ours_one.astype(np.float64), theirs_one.astype(np.float64), rtol=loose, atol=loose)
        elif ours_one.dtype.kind in "iu":
            assert ours_one.dtype == theirs_one.dtype
            difference = np.abs(ours_one.astype(np.int64) - theirs_one.astype(np.int64))
            assert difference.max(initial=0) <= apart, f"{np.count_nonzero(difference)} differ, by up to {difference.max()}"
        else:
            np.testing.assert_array_equal(ours_one, theirs_one)
    assert_inferred(infer(name, inputs, domain=domain, version=version, outputs=outputs, **attrs), ours)
    return ours


def quantized(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    """Random data over the whole range of an 8-bit type."""
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def quantized_weights(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    """Random weights of an 8-bit type, which onnxruntime multiplies exactly by unsigned bytes on any machine.

    Where a machine has no instruction for it, it adds pairs of products in 16 bits that saturate: signed weights take 7 bits.
    """
    data = quantized(rng, shape, dtype)
    return data >> 1 if np.dtype(dtype).kind == "i" else data


def normal(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Array:
    return rng.standard_normal(shape).astype(dtype)


def run_model(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """Evaluate a model node by node with Sardonyx's definitions."""
    values: dict[str, Any] = {"": None, **feeds}
    values.update({tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer})
    versions = {entry.domain: entry.version for entry in model.opset_import}
    for node in model.graph.node:
        attrs = {attr.name: helper.get_attribute_value(attr) for attr in node.attribute}
        attrs = {key: value.decode() if isinstance(value, bytes) else value for key, value in attrs.items()}
        inputs = [values[name] for name in node.input]
        results = evaluate(
            node.op_type, inputs, domain=node.domain, version=versions[node.domain], outputs=len(node.output), **attrs
        )
        values.update(zip(node.output, results, strict=True))
    return [values[output.name] for output in model.graph.output]


def optimized(nodes: list[onnx.NodeProto], weights: dict[str, Array], x: Array, folder: Path) -> tuple[onnx.ModelProto, Array]:
    """The model as onnxruntime saves it fully optimized, and its result."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, x.shape)],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "optimized.onnx"), session.run(None, {"x": x})[0]
