"""Small models for tests of lowering: a few nodes, inputs from arrays, outputs whose types inference finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper, numpy_helper

from native_support import assert_native_agrees

Array = NDArray[Any]

F32, F64, F16 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16)
BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = (F32, F64, F16, BF16)
SIGNED = tuple(np.dtype(name) for name in ("int8", "int16", "int32", "int64"))
UNSIGNED = tuple(np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64"))
INTEGERS = SIGNED + UNSIGNED
BOOL = np.dtype(np.bool_)

TOLERANCE = {F32: 2e-5, F64: 1e-9, F16: 4e-3, BF16: 3e-2}


def onnx_type(dtype: Any) -> int:
    number: int = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return number


def model(
    nodes: Sequence[NodeProto],
    feeds: Mapping[str, Array],
    outputs: Mapping[str, Any],
    *,
    constants: Mapping[str, Array] | None = None,
    opset: int = 24,
    symbolic: bool = False,
) -> ModelProto:
    """A model of these nodes. With `symbolic`, the sizes of the inputs are names: equal sizes have equal names."""

    def shape(array: Array) -> list[Any]:
        return [f"d{size}" if symbolic and size > 1 else size for size in array.shape]

    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(name, onnx_type(array.dtype), shape(array)) for name, array in feeds.items()],
        [helper.make_tensor_value_info(name, onnx_type(dtype), None) for name, dtype in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=11)


def check_one(
    name: str, *arrays: Array, out: Any = None, domain: str = "", opset: int = 24, symbolic: bool = False, **attrs: Any
) -> None:
    """One node of an operator gives natively what its NumPy meaning gives; every node must be native."""
    feeds = {f"x{number}": array for number, array in enumerate(arrays)}
    node = helper.make_node(name, list(feeds), ["y"], domain=domain, **attrs)
    dtype = np.dtype(out) if out is not None else arrays[0].dtype
    tolerance = TOLERANCE.get(min((dtype, arrays[0].dtype), key=lambda kind: kind.itemsize), 0.0)
    made = model([node], feeds, {"y": dtype}, opset=opset, symbolic=symbolic)
    assert_native_agrees(made, feeds, rtol=tolerance, atol=tolerance / 10)


def samples(dtype: Any, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Numbers of a type, with extremes, zeros of both signs, NaN, infinities and denormals among the floats."""
    random, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype == BOOL:
        return random.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        result = np.asarray(random.integers(max(limits.min, -20), min(limits.max, 20), shape).astype(dtype))
        chosen: list[Any] = [limits.min, limits.max, 0, 1]
    else:
        result = np.asarray(random.standard_normal(shape) * random.choice([0.1, 1, 10], shape)).astype(dtype)
        chosen = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 1e-40]
    flat = result.reshape(-1)
    count = min(flat.size // 2, len(chosen))
    with np.errstate(all="ignore"):
        flat[random.permutation(flat.size)[:count]] = np.array(chosen[:count]).astype(dtype)
    return flat.reshape(shape)
