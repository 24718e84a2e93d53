"""The ORT format: what ONNX Runtime writes is read here, what is written here is read there, and both compute the same."""

from __future__ import annotations

import importlib
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import sardonyx
from ort_files import by_hand
from sardonyx import errors
from sardonyx.formats import ort
from sardonyx.formats.onnx import load as load_onnx
from sardonyx.formats.ort import schema
from sardonyx.formats.ort.encode import TableOut
from sardonyx.formats.ort.schema import slots
from sardonyx.ir.graph import Model, SparseConstant
from sardonyx.ir.tensor import Tensor
from sardonyx.matching.signatures import TableFacts
from small_nets import NETS

onnxruntime.set_default_logger_severity(3)
LEVELS = onnxruntime.GraphOptimizationLevel


def converted_by_onnxruntime(source: Any, folder: Path, level: Any = LEVELS.ORT_ENABLE_EXTENDED) -> str:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(folder / "theirs.ort")
    onnxruntime.InferenceSession(source, options)
    return str(options.optimized_model_filepath)


def converted_here(source: Any, folder: Path, level: int = 99) -> str:
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel(level)
    options.optimized_model_filepath = str(folder / "ours.ort")
    sardonyx.InferenceSession(source, options)
    return str(options.optimized_model_filepath)


def agree(wanted: list[Any], found: list[Any]) -> None:
    assert len(wanted) == len(found)
    for a, b in zip(wanted, found):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(NETS))
def test_models_written_by_onnxruntime_compute_the_same_here(name: str, tmp_path: Path) -> None:
    content, feeds = NETS[name]()
    for level in (LEVELS.ORT_ENABLE_BASIC, LEVELS.ORT_ENABLE_ALL):
        path = converted_by_onnxruntime(content, tmp_path, level)
        agree(onnxruntime.InferenceSession(path).run(None, feeds), sardonyx.InferenceSession(path).run(None, feeds))


@pytest.mark.parametrize("name", sorted(NETS))
def test_models_written_here_compute_the_same_in_onnxruntime(name: str, tmp_path: Path) -> None:
    content, feeds = NETS[name]()
    wanted = onnxruntime.InferenceSession(content).run(None, feeds)
    for level in (0, 99):
        path = converted_here(content, tmp_path, level)
        agree(wanted, onnxruntime.InferenceSession(path).run(None, feeds))
        agree(wanted, sardonyx.InferenceSession(path).run(None, feeds))


def branches() -> bytes:
    """Subgraphs that capture values, an omitted input, a list of inputs, Constants, strings, defaults of attributes."""
    import onnx
    from onnx import TensorProto, helper

    def value(name: str, kind: int = TensorProto.FLOAT, shape: Any = None) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    weights = helper.make_tensor("w", TensorProto.FLOAT, [3], [1, 2, 3])
    inner = helper.make_graph([helper.make_node("Sub", ["a", "x"], ["i"])], "inner", [], [value("i")])
    other = helper.make_graph([helper.make_node("Mul", ["x", "a"], ["o"])], "other", [], [value("o")])
    then = helper.make_graph(
        [
            helper.make_node("Add", ["a", "w"], ["t0"]),
            helper.make_node("If", ["c"], ["t1"], then_branch=inner, else_branch=other),
            helper.make_node("Add", ["t0", "t1"], ["t"]),
        ],
        "then", [], [value("t")], [weights],
    )  # fmt: skip
    otherwise = helper.make_graph([helper.make_node("Mul", ["a", "x"], ["e"])], "else", [], [value("e")])
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first", doc_string="a comment"),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise),
        helper.make_node("Clip", ["x", "", "top"], ["z1"]),
        helper.make_node("Constant", [], ["six"], value_float=6.0),
        helper.make_node("Concat", ["z1", "a", "x"], ["z2"], axis=0),
        helper.make_node("LeakyRelu", ["z2"], ["z3"]),
        helper.make_node("Mul", ["z3", "six"], ["z"]),
        helper.make_node("ArgMax", ["x"], ["best"], axis=1, keepdims=0),
        helper.make_node(
            "LabelEncoder", ["best"], ["label"], domain="ai.onnx.ml", keys_int64s=[0, 1, 2], values_strings=["a", "b", "ç"]
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "branches",
        [value("x", shape=["N", 3]), value("c", TensorProto.BOOL, [])],
        [value("y"), value("z"), value("label", TensorProto.STRING, ["N"])],
        [helper.make_tensor("top", TensorProto.FLOAT, [], [2.0])],
        doc_string="about the graph",
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9, producer_name="maker", producer_version="3")
    model.model_version = 7
    model.doc_string = "about the model"
    model.domain = "example.org"
    onnx.helper.set_model_props(model, {"key": "välue"})
    return bytes(model.SerializeToString())


def test_subgraphs_strings_and_metadata(tmp_path: Path) -> None:
    content = branches()
    session = onnxruntime.InferenceSession(content)
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    theirs, ours = converted_by_onnxruntime(content, tmp_path, LEVELS.ORT_ENABLE_BASIC), converted_here(content, tmp_path, 1)
    for condition in (True, False):
        feeds = {"x": x, "c": np.array(condition)}
        wanted = session.run(None, feeds)
        for path in (theirs, ours):
            for engine in (onnxruntime, sardonyx):
                found = engine.InferenceSession(path).run(None, feeds)
                agree(wanted[:2], found[:2])
                assert wanted[2].tolist() == found[2].tolist()
    metadata = onnxruntime.InferenceSession(theirs).get_modelmeta()
    for found in (onnxruntime.InferenceSession(ours), sardonyx.InferenceSession(theirs), sardonyx.InferenceSession(ours)):
        other = found.get_modelmeta()
        for name in ("producer_name", "graph_name", "domain", "description", "graph_description", "version"):
            assert getattr(other, name) == getattr(metadata, name)
        assert other.custom_metadata_map == {"key": "välue"}
        assert [(each.name, each.type, each.shape) for each in found.get_inputs()] == [
            ("x", "tensor(float)", ["N", 3]),
            ("c", "tensor(bool)", []),
        ]


def test_the_resolver_written_here_is_the_one_that_onnxruntime_writes(tmp_path: Path) -> None:
    theirs = ort.load(converted_by_onnxruntime(branches(), tmp_path, LEVELS.ORT_DISABLE_ALL))
    ours = ort.load(converted_here(branches(), tmp_path, 0))
    assert ours.type_arguments == theirs.type_arguments


def test_nodes_carry_all_attributes_with_a_default(tmp_path: Path) -> None:
    model = ort.load(converted_here(branches(), tmp_path, 0))
    (node,) = (node for node in model.graph.nodes if node.op_type == "LeakyRelu")
    assert node.attr("alpha") == pytest.approx(0.01)


def test_weights_are_parts_of_the_mapped_file(tmp_path: Path) -> None:
    content, _ = NETS[min(NETS)]()
    for path in (converted_by_onnxruntime(content, tmp_path), converted_here(content, tmp_path)):
        model = ort.load(path)
        held = [value.constant for value in model.graph.initializers.values()]
        assert held
        large = [each for each in held if isinstance(each, Tensor) and each.nbytes > 64]
        assert all(len(each.raw()) == each.nbytes for each in large)
        assert all(each.raw().obj is large[0].raw().obj for each in large)


def test_the_schema_is_that_of_onnxruntime() -> None:
    class Recorder:
        def __init__(self) -> None:
            self.slot = -1

        def __getattr__(self, name: str) -> Any:
            return lambda slot, *rest: setattr(self, "slot", slot)

    for table, fields in schema.tables().items():
        module = importlib.import_module(f"onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs.{table}")
        for field, slot in fields.items():
            recorder = Recorder()
            getattr(module, f"{table}Add{''.join(part.capitalize() for part in field.split('_'))}")(recorder, 0)
            assert (table, field, recorder.slot) == (table, field, slot)


_MODEL, _GRAPH, _NODE, _SESSION = slots("Model"), slots("Graph"), slots("Node"), slots("InferenceSession")


def test_a_file_made_by_hand_runs() -> None:
    (y,) = sardonyx.InferenceSession(by_hand()).run(None, {"x": np.array([-5, 1], np.float32)})
    assert y.tolist() == [0, 3]
    for version in "12345":  # which a build with the operator table still reads
        assert len(ort.load(by_hand(version=version, resolver=version == "5")).graph) == 2


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"version": "7"}, r"The ORT format model version \[7\] is not supported"),
        ({"version": "6.0"}, r"version \[6.0\] is not supported"),
        ({"version": ""}, r"version \[\] is not supported"),
        ({"version": None}, "Missing version"),
        ({"model": False}, "Missing Model"),
        ({"graph": False}, "Graph is null"),
        ({"resolver": False}, "Missing kernel type string resolver"),
        ({"identifier": b"TFL3"}, "does not have the identifier ORTM"),
        ({"raw": b"\0\0\0\0"}, r"f32\[2\] needs 8 bytes, raw_data has 4"),
        ({"dims": [1 << 40, 1 << 40]}, "larger than any memory"),
        ({"dims": [-2]}, "negative dimension"),
        ({"dims": [1] * 100}, "more than 64 dimensions"),
        ({"data_type": 0}, "element type is missing"),
        ({"data_type": 99}, "99"),
        ({"external": 0}, "its data is not in the model"),
        ({"args": ["x", "w", None, "s", "y"]}, "NodeArg name is missing"),
        ({"args": ["w", "s", "y"]}, "graph input 'x' is not among the values"),
        ({"inputs": ["q"]}, "graph input 'q' is not among the values"),
        ({"inputs": []}, "which nothing produces"),
        ({"outputs": ["q"]}, "graph output 'q'"),
        ({"index": 4_000_000_000, "limit": 4_000_000_001, "edges": []}, None),
        ({"index": 4_000_000_000}, "has the index 4000000000, not below the graph's 2"),
        ({"index": 0}, "has the index 0, that of another node"),
        ({"limit": 1}, "has the index 1, not below the graph's 1"),
        ({"edges": [(7, [], [])]}, "edges of node 7, which does not exist"),
        ({"edges": [(0, [], [(9, 0, 0)])]}, "an edge to node 9, which does not exist"),
        ({"edges": [(0, [], [(1, 5, 0)])]}, "from output 5 of Add"),
        ({"edges": [(0, [], [(1, 0, -1)])]}, "to input -1 of Relu"),
        ({"counts": [1]}, "its input_arg_counts are"),
        ({"counts": [-1, 3]}, "its input_arg_counts are"),
        ({"node_type": 1}, "compiled by another runtime's execution provider"),
        ({"op": ""}, "a node without an operator"),
        ({"elem_type": 77}, "77"),
        ({"value_type": 9}, "a type of kind 9"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_malformed_tables_are_clear_errors(changes: dict[str, Any], text: str | None) -> None:
    if text is None:  # a large index alone costs nothing
        ort.load(by_hand(**changes))
        return
    with pytest.raises(errors.Fail, match=text):
        ort.load(by_hand(**changes))


def test_an_unknown_operator_and_a_wrong_name_of_a_format_are_errors(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidGraph, match="Frobnicate"):
        sardonyx.InferenceSession(by_hand(op="Frobnicate"))
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.load_model_format", "TFLITE")
    with pytest.raises(errors.InvalidArgument, match="expected 'ORT' or 'ONNX'"):
        sardonyx.InferenceSession(by_hand(), options)


def test_parts_that_share_too_much_of_the_file_end_in_an_error() -> None:
    """Attributes whose graphs refer to one another many times would unfold to more than any memory."""
    deepest = TableOut()
    attribute = slots("Attribute")
    for _ in range(40):
        graphs, node, graph = TableOut(), TableOut(), TableOut()
        graphs.text(attribute.name, "g")
        graphs.number(attribute.type, "i", 10)
        graphs.tables(attribute.graphs, [deepest] * 10)
        node.text(_NODE.op_type, "If")
        node.number(_NODE.since_version, "i", 16)
        node.tables(_NODE.attributes, [graphs])
        graph.tables(_GRAPH.nodes, [node])
        graph.number(_GRAPH.max_node_index, "I", 1)
        deepest = graph
    model, session = TableOut(), TableOut()
    model.table(_MODEL.graph, deepest)
    session.text(_SESSION.ort_version, "6")
    session.table(_SESSION.model, model)
    session.table(_SESSION.kernel_type_str_resolver, TableOut())
    content = _encode_shared(session)
    with pytest.raises(errors.Fail):
        ort.load(content)


def _encode_shared(session: TableOut) -> bytes:
    """Encode tables of which one stands in several places: each object once, where the last reference to it has passed."""
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    done: dict[int, int] = {}

    def put(each: Any) -> int:
        if id(each) in done:
            return done[id(each)]
        if type(each).__name__ == "_Text":
            found = builder.CreateString(each.content)
        elif type(each).__name__ == "_References":
            inside = [put(item) for item in each.items]
            builder.StartVector(4, len(inside), 4)
            for offset in reversed(inside):
                builder.PrependUOffsetTRelative(offset)
            found = builder.EndVector()
        else:
            fields = [(slot, code, put(value) if code == "o" else value) for slot, code, value in each._fields]
            builder.StartObject(16)
            for slot, code, value in fields:
                if code == "o":
                    builder.PrependUOffsetTRelativeSlot(slot, value, 0)
                elif code == "i":
                    builder.PrependInt32Slot(slot, value, 0)
                else:
                    builder.PrependUint32Slot(slot, value, 0)
            found = builder.EndObject()
        done[id(each)] = found
        return int(found)

    builder.Finish(put(session), file_identifier=b"ORTM")
    return bytes(builder.Output())


def _damaged(content: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(damaged))
        kind = rng.randrange(4)
        if kind == 0:
            damaged[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            damaged[at] = rng.choice((0, 1, 4, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            word = rng.choice((0, 1, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, len(content), rng.randrange(len(content))))
            damaged[at : at + 4] = struct.pack("<I", word)[: len(damaged) - at]
        else:
            other = rng.randrange(len(damaged))
            damaged[at : at + 4] = damaged[other : other + 4]
    return bytes(damaged[: rng.randrange(len(damaged))] if rng.randrange(20) == 0 else damaged)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_are_read_or_refused(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    sources = [by_hand(), Path(converted_here(branches(), tmp_path)).read_bytes()]
    sources.append(Path(converted_by_onnxruntime(branches(), tmp_path)).read_bytes())
    refused = 0
    for _ in range(500):
        try:
            model = ort.load(_damaged(rng.choice(sources), rng))
        except errors.SardonyxError:
            refused += 1
        else:
            assert isinstance(model, Model)
    assert refused > 100


def test_damaged_models_that_can_be_read_run_or_are_refused(tmp_path: Path) -> None:
    rng = random.Random(7)
    content = by_hand()
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    for _ in range(60):
        try:
            session = sardonyx.InferenceSession(_damaged(content, rng), options)
            session.run(None, {"x": np.zeros(2, np.float32)})
        except (errors.SardonyxError, TypeError):
            pass


def test_sparse_initializers_stay_sparse() -> None:
    import onnx
    from onnx import TensorProto, helper

    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [3.0, 4.0])
    indices = helper.make_tensor("", TensorProto.INT64, [2], [1, 4])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y])
    graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2, 3]))
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    assert onnx.load_from_string(content)
    written = ort.to_bytes(load_onnx(content), TableFacts())
    assert isinstance(ort.load(written).graph.initializers["w"].constant, SparseConstant)
    feeds = {"x": np.ones((2, 3), np.float32)}
    wanted = [[1, 4, 1], [1, 5, 1]]
    assert sardonyx.InferenceSession(written).run(None, feeds)[0].tolist() == wanted
    assert onnxruntime.InferenceSession(written).run(None, feeds)[0].tolist() == wanted
