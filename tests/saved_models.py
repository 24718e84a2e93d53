"""Models whose programs come back to Python, for tests of what is saved of them.

Data-dependent sizes, host steps, loops, branches, sequences, texts, maps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from model_text import model

Feeds = dict[str, Any]
Model = tuple[bytes, list[Feeds]]  # with the feeds of runs that follow each other

F32 = np.float32
_info = helper.make_tensor_value_info


def _built(graph: Any, *opsets: tuple[str, int]) -> bytes:
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets or (("", 17),)]
    content: bytes = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    return content


def counted() -> Model:
    """Sizes that a kernel counts."""
    x = np.arange(20, dtype=F32).reshape(4, 5) % 3
    text = "(float[N,5] x) => (int64[2,K] y, float[K] z) { y = NonZero(x) c = Cast<to=9>(x) z = Compress(x, c) }"
    return model(text, 17), [{"x": x}, {"x": x[:2]}]


def detector() -> Model:
    """A detector's head: boxes above a threshold, without those that overlap."""
    random = np.random.default_rng(0)
    corners = random.uniform(0, 50, (1, 30, 2))
    boxes = np.concatenate([corners, corners + random.uniform(5, 30, (1, 30, 2))], axis=2).astype(F32)
    text = """(float[1,N,4] boxes, float[1,2,N] scores, int64[1] most, float[1] overlap, float[1] least)
        => (int64[K,3] kept, float[K,4] found, float[N,4] wide) {
            kept = NonMaxSuppression(boxes, scores, most, overlap, least)
            flat = Squeeze(boxes)
            wide = Mul(flat, overlap)
            two = Constant<value_int=2>()
            number = Gather<axis=1>(kept, two)
            found = Gather(flat, number)
        }"""
    feeds = {
        "boxes": boxes,
        "scores": random.uniform(size=(1, 2, 30)).astype(F32),
        "most": np.array([10]),
        "overlap": np.array([0.5], F32),
        "least": np.array([0.3], F32),
    }
    return model(text, 17), [feeds]


def host_steps() -> Model:
    """Native segments around nodes that NumPy computes, with attributes and constants."""
    x = np.random.default_rng(0).normal(size=(6, 4)).astype(F32)
    text = """(float[N,4] x) => (float[K] y, int64[K] n, float[N,4] r) {
        e = Exp(x) s = Add(e, x) u, i, j, n = Unique<sorted=1>(s) y = Sqrt(u) r = Relu(x)
    }"""
    return model(text, 17), [{"x": x}, {"x": x[:3]}]


def loop(is_native: bool = True) -> Model:
    """A Loop that sums and stacks; or one whose carried value grows, which goes iteration by iteration."""
    grown: list[int | str] = [3] if is_native else ["k"]
    step = helper.make_node("Add", ["s", "w"], ["t"]) if is_native else helper.make_node("Concat", ["s", "w"], ["t"], axis=0)
    body = helper.make_graph(
        [step, helper.make_node("Identity", ["c"], ["d"]), helper.make_node("ReduceSum", ["t"], ["r"], keepdims=0)],
        "body",
        [_info("i", TensorProto.INT64, []), _info("c", TensorProto.BOOL, []), _info("s", TensorProto.FLOAT, grown)],
        [_info("d", TensorProto.BOOL, []), _info("t", TensorProto.FLOAT, grown), _info("r", TensorProto.FLOAT, [])],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Exp", ["x"], ["e"]),
            helper.make_node("Loop", ["n", "", "e"], ["f", "rows"], body=body),
            helper.make_node("Tanh", ["f"], ["y"]),
        ],
        "g",
        [_info("n", TensorProto.INT64, []), _info("x", TensorProto.FLOAT, [3])],
        [_info("y", TensorProto.FLOAT, grown), _info("rows", TensorProto.FLOAT, ["m"])],
        [numpy_helper.from_array(np.array([0.1, 0.2, 0.3], F32), "w")],
    )
    x = np.array([0, -1, 1], F32)
    return _built(graph), [{"n": np.array(7), "x": x}, {"n": np.array(3), "x": x}]


def grown_loop() -> Model:
    """A Loop whose carried value grows."""
    return loop(is_native=False)


def scan() -> Model:
    """A Scan over rows that captures a weight computed outside, and one around it in its body."""
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["row", "scale"], ["p"]),
            helper.make_node("Add", ["s", "p"], ["t"]),
            helper.make_node("Identity", ["t"], ["o"]),
        ],
        "body",
        [_info("s", TensorProto.FLOAT, [4]), _info("row", TensorProto.FLOAT, [4])],
        [_info("t", TensorProto.FLOAT, [4]), _info("o", TensorProto.FLOAT, [4])],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Exp", ["z"], ["scale"]),
            helper.make_node("Scan", ["s0", "x"], ["last", "all"], body=body, num_scan_inputs=1, scan_output_directions=[1]),
        ],
        "g",
        [_info("z", TensorProto.FLOAT, [4]), _info("s0", TensorProto.FLOAT, [4]), _info("x", TensorProto.FLOAT, ["n", 4])],
        [_info("last", TensorProto.FLOAT, [4]), _info("all", TensorProto.FLOAT, ["n", 4])],
    )
    random = np.random.default_rng(0)
    feeds = {"z": random.normal(size=4), "s0": random.normal(size=4), "x": random.normal(size=(9, 4))}
    return _built(graph), [{name: array.astype(F32) for name, array in feeds.items()}]


def branches() -> Model:
    """An If that stays whole: its sides have results of different ranks, capture values, and one has a Loop inside."""
    body = helper.make_graph(
        [helper.make_node("Mul", ["s", "x"], ["t"]), helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [_info("i", TensorProto.INT64, []), _info("c", TensorProto.BOOL, []), _info("s", TensorProto.FLOAT, ["n"])],
        [_info("d", TensorProto.BOOL, []), _info("t", TensorProto.FLOAT, ["n"])],
    )
    one = helper.make_graph(
        [helper.make_node("Loop", ["three", "", "e"], ["y1"], body=body)], "then", [], [_info("y1", TensorProto.FLOAT, ["n"])]
    )
    other = helper.make_graph(
        [helper.make_node("Unsqueeze", ["e", "zero"], ["u"]), helper.make_node("MatMul", ["u", "w"], ["y2"])],
        "else",
        [],
        [_info("y2", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(np.random.default_rng(0).normal(size=(3, 5)).astype(F32), "w")],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Exp", ["x"], ["e"]),
            helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
            helper.make_node("Greater", ["sum", "limit"], ["c"]),
            helper.make_node("If", ["c"], ["y"], then_branch=one, else_branch=other),
        ],
        "g",
        [_info("x", TensorProto.FLOAT, [3])],
        [_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(np.array(3, np.int64), "three"),
            numpy_helper.from_array(np.array([0], np.int64), "zero"),
            numpy_helper.from_array(np.array(0, F32), "limit"),
        ],
    )
    return _built(graph), [{"x": np.array([1, 2, 3], F32)}, {"x": np.array([-1, -2, 1], F32)}]


def forest() -> Model:
    """A classifier of trees as scikit-learn's are exported, with labels that are texts, and a map of probabilities."""
    tree = {
        "nodes_treeids": [0] * 5,
        "nodes_nodeids": list(range(5)),
        "nodes_featureids": [0, 0, 1, 0, 0],
        "nodes_values": [0.5, 0.0, -0.25, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 3, 0, 0],
        "nodes_falsenodeids": [2, 0, 4, 0, 0],
        "class_treeids": [0] * 6,
        "class_nodeids": [1, 1, 3, 3, 4, 4],
        "class_ids": [0, 1, 0, 1, 0, 1],
        "class_weights": [0.9, 0.1, 0.25, 0.75, 0.4, 0.6],
        "classlabels_strings": ["cat", "größer"],
        "post_transform": "NONE",
    }
    graph = helper.make_graph(
        [
            helper.make_node("Scaler", ["x"], ["scaled"], domain="ai.onnx.ml", offset=[0.5, 0.0], scale=[2.0, 1.0]),
            helper.make_node("TreeEnsembleClassifier", ["scaled"], ["label", "p"], domain="ai.onnx.ml", **tree),
            helper.make_node("ZipMap", ["p"], ["maps"], domain="ai.onnx.ml", classlabels_strings=["cat", "größer"]),
        ],
        "g",
        [_info("x", TensorProto.FLOAT, ["N", 2])],
        [
            _info("label", TensorProto.STRING, ["N"]),
            _info("p", TensorProto.FLOAT, ["N", 2]),
            helper.make_value_info(
                "maps",
                helper.make_sequence_type_proto(
                    helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
                ),
            ),
        ],
    )
    x = np.random.default_rng(0).normal(size=(7, 2)).astype(F32)
    return _built(graph, ("", 17), ("ai.onnx.ml", 3)), [{"x": x}, {"x": x[:2]}]


def texts() -> Model:
    """Texts that are constants, attributes, inputs and results."""
    names = np.array(["beta", "Alpha", "nul\0", "größe"], object)
    graph = helper.make_graph(
        [
            helper.make_node("StringNormalizer", ["s"], ["low"], case_change_action="LOWER", stopwords=["alpha"]),
            helper.make_node("StringConcat", ["low", "tail"], ["y"]),
            helper.make_node(
                "LabelEncoder",
                ["low"],
                ["codes"],
                domain="ai.onnx.ml",
                keys_tensor=helper.make_tensor("k", TensorProto.STRING, [2], [b"beta", "größe".encode()]),
                values_tensor=numpy_helper.from_array(np.array([3, 5], np.int64)),
                default_tensor=numpy_helper.from_array(np.array([-1], np.int64)),
            ),
            helper.make_node("Mul", ["codes", "codes"], ["squares"]),
        ],
        "g",
        [_info("s", TensorProto.STRING, ["n"])],
        [_info("y", TensorProto.STRING, None), _info("squares", TensorProto.INT64, None)],
        [helper.make_tensor("tail", TensorProto.STRING, [1], [b"!"])],
    )
    return _built(graph, ("", 20), ("ai.onnx.ml", 4)), [{"s": names}]


def sequences() -> Model:
    """Sequences as inputs and results, optional values, and a type among the attributes."""
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    graph = helper.make_graph(
        [
            helper.make_node("Exp", ["x"], ["e"]),
            helper.make_node("SequenceInsert", ["s", "e"], ["longer"]),
            helper.make_node("SequenceLength", ["longer"], ["count"]),
            helper.make_node("ConcatFromSequence", ["longer"], ["joined"], axis=0),
            helper.make_node("Relu", ["joined"], ["y"]),
            helper.make_node("Optional", [], ["nothing"], type=tensor),
            helper.make_node("OptionalHasElement", ["nothing"], ["has"]),
        ],
        "g",
        [_info("x", TensorProto.FLOAT, ["n"]), helper.make_value_info("s", sequence)],
        [
            helper.make_value_info("longer", sequence),
            _info("count", TensorProto.INT64, []),
            _info("y", TensorProto.FLOAT, ["m"]),
            _info("has", TensorProto.BOOL, []),
        ],
    )
    x = np.arange(3, dtype=F32)
    return _built(graph, ("", 18)), [{"x": x, "s": [x + 1, -x]}, {"x": x, "s": [x[:1]]}]


def odd_ends() -> Model:
    """Outputs that are an input, a weight, one value twice, of a type that NumPy lacks; an input with a default."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"]), helper.make_node("Cast", ["y"], ["b"], to=TensorProto.BFLOAT16)],
        "g",
        [_info("x", TensorProto.FLOAT, ["n", 4]), _info("w", TensorProto.FLOAT, [4])],
        [
            _info("y", TensorProto.FLOAT, ["n", 4]),
            _info("x", TensorProto.FLOAT, ["n", 4]),
            _info("b", TensorProto.BFLOAT16, ["n", 4]),
            _info("k", TensorProto.FLOAT, [2]),
        ],
        [numpy_helper.from_array(np.arange(4, dtype=F32), "w"), numpy_helper.from_array(np.array([1, 2], F32), "k")],
    )
    x = np.ones((2, 4), F32)
    return _built(graph), [{"x": x}, {"x": x, "w": np.full(4, 7, F32)}]


def sparse() -> Model:
    """A sparse tensor among the attributes of a node that Python computes, inside a body that Python runs."""
    values = helper.make_tensor("v", TensorProto.FLOAT, [2], [1.5, -2.0])
    indices = helper.make_tensor("i", TensorProto.INT64, [2], [1, 4])
    constant = helper.make_node("Constant", [], ["k"], sparse_value=helper.make_sparse_tensor(values, indices, [6]))
    graph = helper.make_graph(
        [
            constant,
            helper.make_node("Add", ["x", "k"], ["a"]),
            helper.make_node("Unique", ["a"], ["u"]),
            helper.make_node("Exp", ["u"], ["y"]),
        ],
        "g",
        [_info("x", TensorProto.FLOAT, [6])],
        [_info("y", TensorProto.FLOAT, ["k"])],
    )
    return _built(graph), [{"x": np.arange(6, dtype=F32) % 2}]


MODELS: dict[str, Callable[[], Model]] = {
    each.__name__: each
    for each in (
        counted, detector, host_steps, loop, grown_loop, scan, branches, forest, texts, sequences, odd_ends, sparse,
    )
}  # fmt: skip
