"""Host steps read constants of every element type, however the model holds them and whoever reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import sardonyx
from sardonyx import dtypes
from sardonyx.ir.tensor import from_numpy

REFERENCE, NATIVE = "SardonyxReferenceExecutionProvider", "CPUExecutionProvider"
TEXTS = np.array(["setosa", "versicolor", "ü", ""], object)
LEVELS = (sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL, sardonyx.GraphOptimizationLevel.ORT_ENABLE_ALL)


def elements(dtype: dtypes.DType) -> Any:
    """Four elements of a type."""
    return TEXTS if dtype is dtypes.STRING else np.array([1, 2, 1, 2]).astype(dtype.numpy)


def tensor(array: Any, name: str = "c") -> TensorProto:
    """A constant of a type that NumPy may not know."""
    dtype = dtypes.from_numpy(array.dtype)
    if dtype is dtypes.STRING:
        return helper.make_tensor(name, TensorProto.STRING, array.shape, [text.encode() for text in array.flat])
    return helper.make_tensor(name, dtype.onnx, array.shape, bytes(from_numpy(array).raw()), raw=True)


def info(name: str, dtype: int, shape: Sequence[Any] | None = None) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def whole(nodes: Sequence[NodeProto], dtype: int, initializers: Sequence[TensorProto] = (), sparse: Sequence[Any] = ()) -> bytes:
    """A model that is fed a shape and a condition and gives `y`."""
    inputs = [info("shape", TensorProto.INT64, ["rank"]), info("yes", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", dtype)], initializers, sparse_initializer=sparse)
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13).SerializeToString()
    return content


def reader(output: str = "y") -> NodeProto:
    """The rank of the result is known only at run time: a host step whatever the element type."""
    return helper.make_node("Reshape", ["c", "shape"], [output])


def initializer(array: Any, dtype: int) -> bytes:
    return whole([reader()], dtype, [tensor(array)])


def constant_node(array: Any, dtype: int) -> bytes:
    return whole([helper.make_node("Constant", [], ["c"], value=tensor(array)), reader()], dtype)


def branches(dtype: int) -> NodeProto:
    taken = helper.make_graph([reader("a")], "then", [], [info("a", dtype)])
    other = helper.make_graph([helper.make_node("Identity", ["c"], ["b"])], "else", [], [info("b", dtype)])
    return helper.make_node("If", ["yes"], ["y"], then_branch=taken, else_branch=other)


def captured(array: Any, dtype: int) -> bytes:
    return whole([branches(dtype)], dtype, [tensor(array)])


def captured_constant_node(array: Any, dtype: int) -> bytes:
    return whole([helper.make_node("Constant", [], ["c"], value=tensor(array)), branches(dtype)], dtype)


def owned_by_a_branch(array: Any, dtype: int) -> bytes:
    node = branches(dtype)
    for attribute in node.attribute:
        attribute.g.initializer.append(tensor(array))
    return whole([node], dtype)


def captured_twice(array: Any, dtype: int) -> bytes:
    node = branches(dtype)
    node.output[0] = "inner"
    outer = helper.make_graph([node], "outer", [], [info("inner", dtype)])
    other = helper.make_graph([helper.make_node("Identity", ["c"], ["e"])], "other", [], [info("e", dtype)])
    around = helper.make_node("If", ["yes"], ["y"], then_branch=outer, else_branch=other)
    return whole([around], dtype, [tensor(array)])


def in_an_optional(array: Any, dtype: int) -> bytes:
    nodes = [helper.make_node("Optional", ["c"], ["o"]), helper.make_node("OptionalGetElement", ["o"], ["d"])]
    node = reader()
    node.input[0] = "d"
    return whole([*nodes, node], dtype, [tensor(array)])


def in_a_sequence(array: Any, dtype: int) -> bytes:
    zero = helper.make_node("Constant", [], ["zero"], value=numpy_helper.from_array(np.array(0)))
    make = helper.make_node("SequenceConstruct", ["c", "c"], ["s"])
    node = reader()
    node.input[0] = "d"
    return whole([zero, make, helper.make_node("SequenceAt", ["s", "zero"], ["d"]), node], dtype, [tensor(array)])


def sparse_initializer(array: Any, dtype: int) -> bytes:
    places = numpy_helper.from_array(np.array([1, 2]), "indices")
    sparse = helper.make_sparse_tensor(tensor(array[1:3]), places, [4])
    return whole([reader()], dtype, sparse=[sparse])


Maker = Callable[[Any, int], bytes]
KINDS: tuple[Maker, ...] = (
    initializer, constant_node, captured, captured_constant_node, owned_by_a_branch, captured_twice, sparse_initializer,
)  # fmt: skip
CONTAINERS: tuple[Maker, ...] = (in_an_optional, in_a_sequence)
# What ONNX allows in an Optional or a sequence.
CONTAINED = dtypes.ALL[: dtypes.ALL.index(dtypes.COMPLEX128) + 1]
# No operator but Cast takes floats of six bits.
TAKEN = [dtype for dtype in dtypes.ALL if dtype not in (dtypes.FLOAT6E2M3, dtypes.FLOAT6E3M2)]
CASES = [(kind, dtype) for kind in KINDS for dtype in TAKEN] + [(kind, dtype) for kind in CONTAINERS for dtype in CONTAINED]


def text(each: Any) -> str:
    return each.name if isinstance(each, dtypes.DType) else str(each.__name__)


@pytest.mark.parametrize(("kind", "dtype"), CASES, ids=text)
def test_a_host_step_reads_a_constant_of_any_type(kind: Maker, dtype: dtypes.DType) -> None:
    array = elements(dtype)
    content = kind(array, dtype.onnx)
    expected = array
    if kind is sparse_initializer:
        expected = np.full(4, "", object) if dtype is dtypes.STRING else np.zeros(4, dtype.numpy)
        expected[1:3] = array[1:3]
    feeds = {"shape": np.array([2, 2]), "yes": np.array(True)}
    for level in LEVELS:
        options = sardonyx.SessionOptions()
        options.graph_optimization_level = level
        session = sardonyx.InferenceSession(content, options, providers=[NATIVE])
        for _ in range(3):  # the third run is one of a case that came before
            (result,) = session.run(None, feeds)
            assert result.dtype == expected.dtype
            np.testing.assert_array_equal(result, expected.reshape(2, 2))
        result[...] = result[::-1].copy()  # what a caller does to a result is no matter of the next run
        np.testing.assert_array_equal(session.run(None, feeds)[0], expected.reshape(2, 2))


def string_model(nodes: Sequence[NodeProto], inputs: Sequence[Any], dtype: int, **constants: Any) -> bytes:
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("com.microsoft", 1)]
    initializers = [tensor(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", dtype)], initializers)
    content: bytes = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    return content


LABELS = TEXTS[:3]
BOOLS = info("x", TensorProto.BOOL, ["n", 1])
FLOATS = info("x", TensorProto.FLOAT, ["n"])
NUMBERS = info("x", TensorProto.INT64, ["n"])
OPERATORS: dict[str, tuple[bytes, Any]] = {
    "Gather": (
        string_model([helper.make_node("Gather", ["c", "x"], ["y"])], [NUMBERS], TensorProto.STRING, c=LABELS),
        np.array([2, 0, -1]),
    ),
    "Where": (
        string_model([helper.make_node("Where", ["x", "c", "d"], ["y"])], [BOOLS], TensorProto.STRING, c=LABELS, d=LABELS[::-1]),
        np.array([[True], [False]]),
    ),
    "Equal": (
        string_model([helper.make_node("Gather", ["c", "x"], ["g"]), helper.make_node("Equal", ["g", "c"], ["y"])],
                     [NUMBERS], TensorProto.BOOL, c=LABELS),
        np.array([2, 1, 2]),
    ),
    "Expand": (
        string_model([helper.make_node("Expand", ["c", "x"], ["y"])], [NUMBERS], TensorProto.STRING, c=LABELS),
        np.array([2, 3]),
    ),
    "Tile": (
        string_model([helper.make_node("Tile", ["c", "x"], ["y"])], [info("x", TensorProto.INT64, [1])], TensorProto.STRING,
                     c=LABELS),
        np.array([2]),
    ),
    "ArrayFeatureExtractor": (
        string_model([helper.make_node("ArrayFeatureExtractor", ["c", "x"], ["y"], domain="ai.onnx.ml")],
                     [NUMBERS], TensorProto.STRING, c=LABELS),
        np.array([1, 1, 0]),
    ),
    "float8": (
        string_model([helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
                      helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])],
                     [FLOATS], TensorProto.FLOAT, s=np.float32(0.5), z=np.zeros((), dtypes.FLOAT8E4M3FN.numpy)),
        np.array([1.5, 0.3, -700], np.float32),
    ),
    "4-bit": (
        string_model([helper.make_node("DequantizeLinear", ["w", "s", "z"], ["q"], axis=0),
                      helper.make_node("Mul", ["q", "x"], ["y"])],
                     [info("x", TensorProto.FLOAT, ["n", 1])], TensorProto.FLOAT, s=np.array([0.5, 2], np.float32),
                     w=np.arange(-8, 8).reshape(2, 8).astype(dtypes.INT4.numpy), z=np.array([1, -2]).astype(dtypes.INT4.numpy)),
        np.array([[1.5], [0.3]], np.float32),
    ),
    "GatherBlockQuantized": (
        string_model([helper.make_node("GatherBlockQuantized", ["w", "x", "s"], ["y"], domain="com.microsoft", block_size=16)],
                     [NUMBERS], TensorProto.FLOAT, s=np.array([[0.5, 2]], np.float32).repeat(3, 0),
                     w=np.arange(96).reshape(3, 32).astype(np.int8).view(np.int8).astype(dtypes.INT4.numpy)),
        np.array([2, 0, 2]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_with_constants_of_types_without_kernels_agree_with_onnxruntime(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    content, x = OPERATORS[name]
    (expected,) = onnxruntime.InferenceSession(content, providers=[NATIVE]).run(None, {"x": x})
    for provider in (REFERENCE, NATIVE):
        (actual,) = sardonyx.InferenceSession(content, providers=[provider]).run(None, {"x": x})
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("provider", [REFERENCE, NATIVE])
def test_constants_anywhere_in_a_file_give_the_same_bits(provider: str) -> None:
    """NumPy multiplies arrays at addresses that suit their elements in another order than others."""
    random = np.random.default_rng(0)
    x, weights = random.standard_normal((1, 8, 1)), random.standard_normal((8, 16, 5))
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], dilations=[2])  # of float64: a host step
    found = set()
    for filler in range(1, 9):
        ports = [info(name, TensorProto.DOUBLE, [1, channels, None]) for name, channels in (("x", 8), ("y", 16))]
        graph = helper.make_graph([node], "g" * filler, ports[:1], ports[1:], [tensor(weights, "w")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
        session = sardonyx.InferenceSession(model.SerializeToString(), providers=[provider])
        found |= {session.run(None, {"x": x})[0].tobytes() for _ in range(3)}
    assert len(found) == 1
