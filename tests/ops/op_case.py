"""One operator of ai.onnx at a time: evaluate it, hold its shape rule to the result, and ask other implementations.

`run` evaluates the definition and checks on the way that every output is an array of the element type the signature says, and
that the shape rule agrees with it twice: for the plain shapes, and for shapes of symbols that are bound afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper
from onnx.reference import ReferenceEvaluator

from sardonyx import dtypes
from sardonyx.ir import dims
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.types import TensorType, Type
from sardonyx.ops import registry, signature
from sardonyx.ops.infer import InferContext

Array = NDArray[Any]
NEWEST = 28

FLOATS = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
SIGNED = (np.int8, np.int16, np.int32, np.int64)
UNSIGNED = (np.uint8, np.uint16, np.uint32, np.uint64)


def text(*items: str) -> Array:
    """A one-dimensional string tensor."""
    result = np.empty(len(items), dtype=object)
    result[:] = items
    return result


def i64(*items: int) -> Array:
    return np.array(items, np.int64)


def attributes(domain: str, name: str, version: int, given: dict[str, Any]) -> dict[str, Any]:
    """All attributes of an operator as its definition gets them."""
    form = signature.signature(domain, name, version)
    assert form is not None, f"no signature for {domain}::{name}-{version}"
    assert set(given) <= set(form.attributes), f"{name}-{form.since} has no attribute {set(given) - set(form.attributes)}"
    merged = {key: attribute.default for key, attribute in form.attributes.items()}
    return merged | {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}


def run(name: str, *inputs: Array | None, version: int = NEWEST, outputs: int = 1, **attrs: Any) -> Any:
    """The output (a list of them if there are several), checked against signature and shape rule."""
    definition = registry.lookup("", name, version)
    form = signature.signature("", name, version)
    assert definition is not None
    assert form is not None
    merged = attributes("", name, version, attrs)
    given = {key: merged.get(key) for key in definition.attr_names}
    before = [None if array is None else array.copy() for array in inputs]
    results = registry.call(definition, inputs, given, registry.EvalContext(version, (True,) * outputs))[:outputs]
    for old, new in zip(before, inputs, strict=True):
        assert old is None or new is None or _same_bits(old, new), f"{name} changed its input"
    for symbolic in (False, True):
        _check_types(name, form, inputs, results, inferred(definition, inputs, merged, version, outputs, symbolic))
    return results[0] if outputs == 1 else list(results)


def _same_bits(a: Array, b: Array) -> bool:
    return bool((a == b).all()) if a.dtype == object else a.tobytes() == b.tobytes()


def _symbolic(size: int) -> dims.Dim:
    return size if size < 2 else dims.symbol(f"d{size}")


def inferred(
    definition: registry.OpDef,
    inputs: Sequence[Array | None],
    attrs: dict[str, Any],
    version: int,
    outputs: int,
    symbolic: bool = False,
) -> list[Any]:
    """What the shape rule says about every output, for the shapes of these arrays or for symbols in their place."""
    values = [None if array is None else Value(f"x{index}") for index, array in enumerate(inputs)]
    results = [Value(f"y{index}") for index in range(outputs)]
    node = Node(definition.name, values, results, domain=definition.domain, version=version)
    types: list[Type | None] = []
    for array in inputs:
        if array is None:
            types.append(None)
            continue
        shape = tuple(_symbolic(size) for size in array.shape) if symbolic and array.ndim > 1 else tuple(array.shape)
        types.append(TensorType(dtypes.from_numpy(array.dtype), shape))

    def value_of(index: int) -> tuple[tuple[dims.Dim, ...], tuple[dims.Dim, ...]] | None:
        array = inputs[index]
        if array is None or array.dtype.kind not in "iu" or array.size > 64:
            return None
        return tuple(int(item) for item in array.reshape(-1)), tuple(array.shape)

    assert definition.infer is not None, f"{definition.label} has no shape rule"
    context = InferContext(node, types, attrs, value_of, lambda index: inputs[index], lambda graph, given: [])
    found = definition.infer(context)
    return found if isinstance(found, list) else [found]


def _check_types(
    name: str, form: signature.Signature, inputs: Sequence[Any], results: Sequence[Any], inferred: list[Any]
) -> None:
    assert len(inferred) >= len(results), f"{name}: {len(inferred)} inferred, {len(results)} given"
    for index, (result, found) in enumerate(zip(results, inferred, strict=False)):
        assert isinstance(result, np.ndarray), f"{name} gave {type(result)}"
        parameter = form.output_at(index)
        assert parameter is not None
        allowed = set(form.allowed(parameter))
        for position, array in enumerate(inputs):
            source = form.input_at(position)
            if array is not None and source is not None and source.type == parameter.type:
                allowed &= {dtypes.from_numpy(array.dtype).name}
        assert dtypes.from_numpy(result.dtype).name in allowed, f"{name} gave {result.dtype}, expected {allowed}"
        if isinstance(found, TensorType):
            assert found.dtype.numpy == result.dtype, f"{name} inferred {found.dtype}, gave {result.dtype}"
            found = found.shape  # noqa: PLW2901
        if found is None:
            continue
        assert len(found) == result.ndim, f"{name} inferred {found}, gave {result.shape}"
        for dim, size in zip(found, result.shape, strict=True):
            if isinstance(dim, dims.DimExpr) and dim.is_anonymous:
                continue
            bound = dims.evaluate(dim, {symbol: int(symbol[1:]) for symbol in dims.symbols_of(dim)})
            assert bound == size, f"{name} inferred {found}, gave {result.shape}"


def known_shape(name: str, inputs: Sequence[Any], *, version: int = NEWEST, outputs: int = 1, **attrs: Any) -> Any:
    """What the shape rule says; an input is a TensorType, an array, or a tuple of dimensions that are its value."""
    definition = registry.lookup("", name, version)
    assert definition is not None
    assert definition.infer is not None
    node = Node(
        name, [None if item is None else Value(f"x{i}") for i, item in enumerate(inputs)], [Value("y")] * outputs, version=version
    )
    types: list[Type | None] = []
    for item in inputs:
        if isinstance(item, np.ndarray):
            types.append(TensorType(dtypes.from_numpy(item.dtype), item.shape))
        elif isinstance(item, tuple):
            types.append(TensorType(dtypes.INT64, (len(item),)))
        else:
            types.append(item)

    def value_of(index: int) -> tuple[tuple[dims.Dim, ...], tuple[dims.Dim, ...]] | None:
        item = inputs[index]
        if isinstance(item, tuple):
            return item, (len(item),)
        return (tuple(item.reshape(-1).tolist()), item.shape) if isinstance(item, np.ndarray) else None

    def constant_of(index: int) -> Array | None:
        return inputs[index] if isinstance(inputs[index], np.ndarray) else None

    merged = attributes("", name, version, attrs)
    found = definition.infer(InferContext(node, types, merged, value_of, constant_of, lambda graph, given: []))
    return [list(shape) if isinstance(shape, tuple) else shape for shape in found] if isinstance(found, list) else found


def f32(*shape: Any) -> TensorType:
    """A float32 tensor type; names become symbols."""
    return TensorType(dtypes.FLOAT32, tuple(dims.symbol(dim) if isinstance(dim, str) else dim for dim in shape))


def one_node(
    name: str, inputs: Sequence[Array | None], version: int, outputs: int, like: Sequence[Array], attrs: dict[str, Any]
) -> Any:
    """A model of one node."""
    names = ["" if array is None else f"x{index}" for index, array in enumerate(inputs)]
    results = [f"y{index}" for index in range(outputs)]

    def info(value: str, array: Array) -> Any:
        return helper.make_tensor_value_info(value, dtypes.from_numpy(array.dtype).onnx, None)

    made = [info(result, like[index]) if like else onnx.ValueInfoProto(name=result) for index, result in enumerate(results)]
    feeds = [info(f"x{index}", array) for index, array in enumerate(inputs) if array is not None]
    graph = helper.make_graph([helper.make_node(name, names, results, **attrs)], "one", feeds, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10)


def by_reference(name: str, *inputs: Array | None, version: int = 24, outputs: int = 1, **attrs: Any) -> Any:
    """What the evaluator of the onnx package gives."""
    model = one_node(name, inputs, version, outputs, (), attrs)
    with np.errstate(all="ignore"):
        results = ReferenceEvaluator(model).run(None, {f"x{i}": array for i, array in enumerate(inputs) if array is not None})
    return results[0] if outputs == 1 else results


def onnxruntime_session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """The model as it stands: nothing is optimised, one thread, no log."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def by_onnxruntime(name: str, *inputs: Array | None, like: Sequence[Array], version: int = 21, **attrs: Any) -> list[Any]:
    """What onnxruntime gives; `like` are arrays of the output types."""
    session = onnxruntime_session(one_node(name, inputs, version, len(like), like, attrs))
    feeds = {
        f"x{index}": np.ascontiguousarray(array).reshape(array.shape) for index, array in enumerate(inputs) if array is not None
    }
    return list(session.run(None, feeds))


def close(actual: Any, expected: Any, ulps: float = 4) -> None:
    """Same shape and dtype; floats within some units in the last place, the rest equal."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if dtypes.from_numpy(actual.dtype).is_float:
        step = float(ml_dtypes.finfo(actual.dtype).eps)  # type: ignore[no-untyped-call]
        np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64), rtol=ulps * step, atol=step * 1e-3)
    else:
        np.testing.assert_array_equal(actual, expected)


shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
seeds = st.integers(0, 2**32 - 1)


def random_array(seed: int, shape: Sequence[int], dtype: Any, special: bool = True) -> Array:
    """Data over a moderate range in a random memory layout; floats with NaN, infinities and zeros if `special`."""
    rng = np.random.default_rng(seed)
    shape = tuple(shape)
    kind = dtypes.from_numpy(dtype)
    if kind is dtypes.BOOL:
        data: Array = rng.integers(0, 2, shape).astype(np.bool_)
    elif kind is dtypes.STRING:
        data = np.array(["", "a", "b", "ab", "ä"], dtype=object)[rng.integers(0, 5, shape)]
        data = np.asarray(data, dtype=object).reshape(shape)
    elif kind.is_float:
        data = np.asarray(rng.normal(0, 3, shape))
        if special and data.size:
            places = rng.integers(0, data.size, max(data.size // 4, 1))
            data.reshape(-1)[places] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.0], places.size)
        data = data.astype(dtype)
    else:
        low, high = (0, 100) if kind in dtypes.UNSIGNED else (-50, 50)
        data = np.asarray(rng.integers(low, high, shape)).astype(dtype)
    layout = rng.integers(3)
    if layout == 1:
        return np.asarray(data.T.copy().T)
    if layout == 2 and data.ndim:
        return np.repeat(data, 2, axis=-1)[..., ::2]
    return data


def broadcast_partner(seed: int, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape that broadcasts with `shape`: fewer dimensions, some of size 1."""
    rng = np.random.default_rng(seed)
    kept = list(shape)[int(rng.integers(0, len(shape) + 1)) :]
    return tuple(1 if rng.random() < 0.4 else size for size in kept)
