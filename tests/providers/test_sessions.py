"""Sessions with providers that claim a part of the model: who computes what, and that the results are the same."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from model_text import model
from provider_support import CPU, Boxing, Other, Recording, assignment, recording_options, registered
from sardonyx.providers import ClaimedRegion, Declined, ExecutionProvider, GraphView
from threads import at_once

X = np.random.default_rng(3).standard_normal((3, 4)).astype(np.float32)
DIAMOND = "(float[N,4] x) => (float[N,4] y) { a = Relu(x)  b = Abs(a)  c = Exp(a)  y = Add(b, c) }"
RECORDING, OTHER, BOXING = Recording.name, Other.name, Boxing.name
LEVELS = list(sardonyx.GraphOptimizationLevel)


def expected(content: bytes, feeds: dict[str, Any], fetches: list[str] | None = None) -> list[Any]:
    return sardonyx.InferenceSession(content).run(fetches, feeds)


def check(session: sardonyx.InferenceSession, content: bytes, feeds: dict[str, Any], fetches: list[str] | None = None) -> None:
    for got, wanted in zip(session.run(fetches, feeds), expected(content, feeds, fetches), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("operators", ["Relu", "Abs,Exp", "Relu,Abs,Add", "Relu,Abs,Exp,Add", "Exp", "Relu,Add"])
def test_any_part_of_a_model_may_be_claimed(operators: str, level: Any) -> None:
    content = model(DIAMOND)
    options = recording_options()
    options.graph_optimization_level = level
    with registered(Recording) as made:
        session = sardonyx.InferenceSession(content, options, providers=[(RECORDING, {"operators": operators})])
        for rows in (3, 5, 0):
            check(session, content, {"x": np.resize(X, (rows, 4))})
        assert made[RECORDING].runs == 3 * len(made[RECORDING].regions)
    by_provider = [op for name, ops in assignment(session) for op in ops if name == RECORDING]
    assert sorted(by_provider) == sorted(operators.split(","))
    assert sorted(op for _, ops in assignment(session) for op in ops) == ["Abs", "Add", "Exp", "Relu"]


def test_a_diamond_whose_middle_is_not_claimed_is_two_regions() -> None:
    with registered(Recording) as made:
        providers = [(RECORDING, {"operators": "Relu,Abs,Add"})]
        session = sardonyx.InferenceSession(model(DIAMOND), recording_options(), providers=providers)
        assert made[RECORDING].regions == [["Relu", "Abs"], ["Add"]]
    assert assignment(session) == [(RECORDING, ["Relu", "Abs"]), (CPU, ["Exp"]), (RECORDING, ["Add"])]


def test_the_first_provider_of_the_list_claims_first() -> None:
    content = model(DIAMOND)
    with registered(Recording, Other):
        one, two = (RECORDING, {"operators": "Relu,Abs"}), (OTHER, {"operators": "Abs,Exp"})
        session = sardonyx.InferenceSession(content, recording_options(), providers=[one, two])
        assert dict(assignment(session)) == {RECORDING: ["Relu", "Abs"], OTHER: ["Exp"], CPU: ["Add"]}
        assert session.get_providers() == [RECORDING, OTHER, CPU]
        assert session.get_provider_options() == {**dict([one, two]), CPU: {}}
        check(session, content, {"x": X})
        session.set_providers([two, one])
        assert session.get_providers() == [OTHER, RECORDING, CPU]
        assert sorted(assignment(session)) == [(CPU, ["Add"]), (OTHER, ["Abs"]), (OTHER, ["Exp"]), (RECORDING, ["Relu"])]
        check(session, content, {"x": X})
        session.set_providers([CPU, one])
        assert {name for name, _ in assignment(session)} == {CPU}  # it takes everything
        check(session, content, {"x": X})


def test_the_reference_provider_takes_the_rest_or_some_operators() -> None:
    reference = "SardonyxReferenceExecutionProvider"
    content = model(DIAMOND)
    with registered(Recording):
        session = sardonyx.InferenceSession(
            content, recording_options(), providers=[(RECORDING, {"operators": "Abs"}), reference]
        )
        assert sorted(assignment(session)) == [(RECORDING, ["Abs"]), *((reference, [op]) for op in ("Add", "Exp", "Relu"))]
        check(session, content, {"x": X})
        check(session, content, {"x": X}, ["a", "b"])
    session = sardonyx.InferenceSession(content, recording_options(), providers=[(reference, {"operators": "Exp, Abs"})])
    assert sorted(assignment(session)) == [(CPU, ["Add"]), (CPU, ["Relu"]), (reference, ["Abs"]), (reference, ["Exp"])]
    check(session, content, {"x": X})


def test_values_inside_of_a_region_can_be_fetched() -> None:
    content = model(DIAMOND)
    with registered(Recording) as made:
        session = sardonyx.InferenceSession(content, providers=[(RECORDING, {"operators": "Relu,Abs,Exp,Add"})])
        check(session, content, {"x": X}, ["a"])
        check(session, content, {"x": X}, ["y", "c", "x"])
        assert made[RECORDING].regions == [["Relu", "Abs", "Exp", "Add"], ["Relu"], ["Relu", "Abs", "Exp", "Add"]]
        with pytest.raises(sardonyx.InvalidArgument, match="nothing"):
            session.run(["nothing", "a"], {"x": X})


BRANCHES = """(float[N,4] x, bool c) => (float[] y) {
    r = Relu(x)
    s = If (c) <
        then_branch = t () => (float[] u) { v = Abs(r)  w = Exp(v)  u = Add(w, x) },
        else_branch = e () => (float[] u2) { v2 = Abs(x)  u2 = Neg(v2) }
    >
    y = Neg(s)
}"""


@pytest.mark.parametrize("operators", ["Abs", "Abs,Exp", "Relu,Add", "If", "Abs,Exp,Add,Neg", "Neg"])
def test_regions_inside_of_branches(operators: str) -> None:
    content = model(BRANCHES)
    with registered(Recording) as made:
        session = sardonyx.InferenceSession(content, providers=[(RECORDING, {"operators": operators})])
        for condition in (True, False):
            check(session, content, {"x": X, "c": np.array(condition)})
            check(session, content, {"x": X, "c": np.array(condition)}, ["r", "s"])
        assert made[RECORDING].runs


LOOP = """(float[4] x, int64 n) => (float[4] y, float[] z) {
    t = Constant <value = bool {1}> ()
    y, z = Loop (n, t, x) <body = b (int64 i, bool c, float[4] s) => (bool d, float[4] s2, float[4] o) {
        d = Identity(c)  h = Abs(s)  s2 = Add(h, x)  o = Sqrt(s2)
    }>
}"""


@pytest.mark.parametrize("operators", ["Abs", "Abs,Add", "Sqrt,Add,Abs", "Loop", "Identity"])
def test_regions_inside_of_loops(operators: str) -> None:
    content = model(LOOP)
    with registered(Recording) as made:
        session = sardonyx.InferenceSession(content, providers=[(RECORDING, {"operators": operators})])
        for count in (3, 1, 0):
            check(session, content, {"x": X[0], "n": np.array(count)})
        assert made[RECORDING].runs >= 3


def test_an_outer_node_with_a_region_inside_is_not_offered() -> None:
    content = model(BRANCHES)
    with registered(Recording, Other) as made:
        providers = [(RECORDING, {"operators": "Abs"}), (OTHER, {"operators": "If,Relu,Neg"})]
        session = sardonyx.InferenceSession(content, providers=providers)
        assert ["If"] not in made[OTHER].regions
        for condition in (True, False):
            check(session, content, {"x": X, "c": np.array(condition)})


DATA_DEPENDENT = """(float[N] x) => (float[] y, int64[] z) {
    zero = Constant <value = float {0}> ()
    m = Greater(x, zero)
    i = NonZero(m)
    first = Constant <value_ints = [0]> ()
    j = Squeeze(i, first)
    g = Gather(x, j)
    d = Add(g, g)
    z = Shape(d)
    e = Exp(d)
    y = Concat <axis = 0> (e, x)
}"""


@pytest.mark.parametrize("operators", ["NonZero", "Gather,Add", "NonZero,Squeeze,Gather", "Squeeze,Exp", "Exp,Concat", "Shape"])
@pytest.mark.parametrize("level", [LEVELS[0], LEVELS[-1]])
def test_sizes_that_only_the_data_tells_cross_the_border(operators: str, level: Any) -> None:
    content = model(DATA_DEPENDENT)
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = level
    with registered(Recording, Boxing):
        for name in (RECORDING, BOXING):
            session = sardonyx.InferenceSession(content, options, providers=[(name, {"operators": operators})])
            for count in (7, 7, 12, 1):
                x = np.random.default_rng(count).standard_normal(count).astype(np.float32)
                check(session, content, {"x": x})


def test_sizes_computed_by_a_region_shape_what_follows() -> None:
    content = model(
        """(float[N,M] x) => (float[] y) {
            s = Shape(x)  one = Constant <value_ints = [0]> ()  n = Gather(s, one)
            minus = Constant <value_ints = [-1]> ()  t = Concat <axis = 0> (minus, n)  r = Reshape(x, t)  y = Relu(r)
        }"""
    )
    with registered(Recording):
        session = sardonyx.InferenceSession(content, providers=[(RECORDING, {"operators": "Shape,Gather,Concat"})])
        for shape in ((3, 4), (2, 5)):
            check(session, content, {"x": np.resize(X, shape)})


def test_values_that_are_no_tensors_cross_the_border() -> None:
    content = model(
        """(float[N,4] x) => (float[] y) {
            a = Relu(x)  s = SequenceConstruct(a, x)  b = ConcatFromSequence <axis = 1> (s)  y = Abs(b)
        }"""
    )
    with registered(Recording, Boxing):
        for operators in ("SequenceConstruct", "ConcatFromSequence", "Relu,SequenceConstruct"):
            session = sardonyx.InferenceSession(content, providers=[(RECORDING, {"operators": operators})])
            check(session, content, {"x": X})
        with pytest.raises(sardonyx.EPFail, match=r"BoxingExecutionProvider claims SequenceConstruct .* only tensors are copied"):
            sardonyx.InferenceSession(content, providers=[(BOXING, {"operators": "SequenceConstruct"})])


def test_weights_are_constants_of_the_region_unless_a_feed_may_replace_them() -> None:
    seen: list[tuple[list[str], list[str]]] = []

    class Looking(Recording):
        def compile(self, region: ClaimedRegion) -> Any:
            seen.append(([value.name for value in region.inputs], sorted(region.constants)))
            return super().compile(region)

    proto = onnx.load_from_string(model("(float[4] x) => (float[4] y) <float[4] w = {1,2,3,4}> { a = Add(x, w)  y = Mul(a, w) }"))
    with registered(Looking):
        providers = [(RECORDING, {"operators": "Add,Mul"})]
        session = sardonyx.InferenceSession(proto.SerializeToString(), providers=providers)
        np.testing.assert_array_equal(session.run(None, {"x": np.ones(4, np.float32)})[0], [2, 6, 12, 20])
        proto.graph.input.append(onnx.helper.make_tensor_value_info("w", 1, [4]))
        session = sardonyx.InferenceSession(proto.SerializeToString(), providers=providers)
        np.testing.assert_array_equal(session.run(None, {"x": np.ones(4, np.float32)})[0], [2, 6, 12, 20])
        fed = session.run(None, {"x": np.ones(4, np.float32), "w": np.ones(4, np.float32)})[0]
        np.testing.assert_array_equal(fed, [2, 2, 2, 2])
    assert seen == [(["x"], ["w"]), (["x", "w"], [])]


def test_values_are_copied_where_devices_differ_and_nowhere_else() -> None:
    content = model(
        """(float[N,4] x) => (float[N,4] y, float[N,4] a) {
            a = Relu(x)  b = Abs(a)  c = Exp(b)  d = Neg(b)  e = Add(c, d)  y = Sub(e, x)
        }"""
    )
    with registered(Boxing) as made:
        session = sardonyx.InferenceSession(content, recording_options(), providers=[(BOXING, {"operators": "Relu,Abs,Neg,Add"})])
        provider = made[BOXING]
        # {Relu, Abs, Neg} and {Add}: x and c go up; a and b come down; d stays between them, and so does not e
        assert provider.regions == [["Relu", "Abs", "Neg"], ["Add"]]
        check(session, content, {"x": X})
        assert (provider.device.uploads, provider.device.downloads) == (2, 3)
        assert all(ops for _, ops in assignment(session))  # copies are no nodes of the model


def test_a_graph_on_a_device_alone_is_copied_at_its_ends() -> None:
    content = model(DIAMOND)
    with registered(Boxing) as made:
        session = sardonyx.InferenceSession(content, providers=[(BOXING, {"operators": "Relu,Abs,Exp,Add"})])
        check(session, content, {"x": X})
        assert (made[BOXING].device.uploads, made[BOXING].device.downloads) == (1, 1)
    for content in (model(BRANCHES), model(LOOP)):
        feeds: dict[str, Any] = {"x": X, "c": np.array(True)} if content == model(BRANCHES) else {"x": X[0], "n": np.array(3)}
        with registered(Boxing):
            check(sardonyx.InferenceSession(content, providers=[(BOXING, {"operators": "Abs,Exp,Add,Neg,Relu"})]), content, feeds)


def test_the_trace_says_who_computed_what(tmp_path: Path) -> None:
    options = sardonyx.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    with registered(Recording):
        session = sardonyx.InferenceSession(model(DIAMOND), options, providers=[(RECORDING, {"operators": "Relu,Abs"})])
        session.run(None, {"x": X})
    events = [event["args"] for event in json.loads(Path(session.end_profiling()).read_text()) if event["cat"] == "Node"]
    by_provider = {event["provider"]: event["nodes"] for event in events}
    assert by_provider[RECORDING] == "Relu '-> a'; Abs '-> b'"
    assert set(by_provider) == {RECORDING, CPU}


def test_a_result_that_is_an_input_is_not_the_callers_array() -> None:
    class Passing(Recording):
        def compile(self, region: ClaimedRegion) -> Any:
            def run(inputs: Any) -> list[Any]:  # as a library without notion of read-only arrays would do
                memory = (ctypes.c_char * inputs[0].nbytes).from_address(inputs[0].ctypes.data)
                return [np.frombuffer(memory, inputs[0].dtype).reshape(inputs[0].shape)]

            return run

    for text in (
        "(float[3,4] x) => (float[3,4] y) { y = Relu(x) }",
        "(float[3,4] x) => (float[3,4] y) { a = Abs(x)  y = Relu(a) }",
    ):
        with registered(Passing):
            session = sardonyx.InferenceSession(model(text), providers=[(RECORDING, {"operators": "Relu"})])
        results = [session.run(None, {"x": X})[0] for _ in range(2)]
        assert not any(np.shares_memory(one, other) for one, other in ((results[0], X), results))


def test_several_callers_at_once() -> None:
    content = model(DIAMOND)
    with registered(Recording):
        session = sardonyx.InferenceSession(content, providers=[(RECORDING, {"operators": "Relu,Add"})])
    feeds = [np.random.default_rng(seed).standard_normal((seed + 1, 4)).astype(np.float32) for seed in range(4)]
    wanted = [expected(content, {"x": x})[0] for x in feeds]
    wrong: list[Any] = []

    def call(number: int) -> None:
        for _ in range(50):
            got = session.run(None, {"x": feeds[number]})[0]
            if not np.allclose(got, wanted[number], rtol=1e-6):
                wrong.append(got)

    at_once(call, range(4))
    assert not wrong


CUSTOM = "(float[N,4] x) => (float[N,4] y) { a = Relu(x)  b = acme.Twice(a)  y = Abs(b) }"


def custom_model(text: str = CUSTOM) -> bytes:
    imports = '["": 21, "acme": 1]'
    content: bytes = onnx.parser.parse_model(f"<ir_version: 10, opset_import: {imports}> graph {text}").SerializeToString()
    return content


def test_a_provider_may_bring_operators_of_its_own() -> None:
    class Acme(Recording):
        def compile(self, region: ClaimedRegion) -> Any:
            return lambda inputs: [inputs[0] * 2]

    with registered(Acme):
        session = sardonyx.InferenceSession(custom_model(), recording_options(), providers=[(RECORDING, {"operators": "Twice"})])
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], np.maximum(X, 0) * 2)
        assert (RECORDING, ["Twice"]) in assignment(session)
        with pytest.raises(sardonyx.InvalidGraph, match=r"acme::Twice.*is not known"):
            sardonyx.InferenceSession(custom_model(), providers=[(RECORDING, {"operators": "Relu"})])
    with pytest.raises(sardonyx.InvalidGraph, match=r"acme::Twice.*is not known"):
        sardonyx.InferenceSession(custom_model())


def test_the_optimised_model_has_the_nodes_of_regions(tmp_path: Path) -> None:
    for text, feeds in ((DIAMOND, {"x": X}), (BRANCHES, {"x": X, "c": np.array(True)}), (LOOP, {"x": X[0], "n": np.array(2)})):
        content = model(text)
        options = sardonyx.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "saved.onnx")
        with registered(Boxing):
            sardonyx.InferenceSession(content, options, providers=[(BOXING, {"operators": "Relu,Abs,Add"})])
        saved = (tmp_path / "saved.onnx").read_bytes()
        onnx.checker.check_model(onnx.load_from_string(saved))
        for got, wanted in zip(expected(saved, feeds), expected(content, feeds), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)


# What goes wrong


class Failing(ExecutionProvider):
    """Does what its option says when it is asked for something."""

    name = "FailingExecutionProvider"

    def __init__(self, options: Any) -> None:
        self.how = options["how"]
        if self.how == "make":
            raise KeyError("no licence")

    def claim(self, view: GraphView) -> Any:
        nodes = list(view.nodes)
        if self.how == "claim":
            raise ValueError("no idea")
        if self.how == "detour":
            return [[node for node in nodes if node.op_type in ("Relu", "Add")]]
        if self.how == "twice":
            return [nodes[:2], nodes[1:3]]
        if self.how == "foreign":
            return [next(iter(nodes[0].graph.nodes)), object()] if False else [[sardonyx.load_model(model(DIAMOND)).graph._first]]
        return view.regions(node for node in nodes if node.op_type in ("Relu", "Abs"))

    def compile(self, region: ClaimedRegion) -> Any:
        if self.how == "compile":
            raise RuntimeError("out of registers")
        if self.how == "decline":
            raise Declined("not today")
        answers: dict[str, Any] = {
            "few": [],
            "list": [[1.0], [2.0]],
            "type": [np.zeros((3, 4)), np.zeros((3, 4))],
            "rank": [np.zeros(3, np.float32), np.zeros(3, np.float32)],
        }

        def run(inputs: Any) -> Any:
            if self.how == "run":
                raise IndexError("lost it")
            return answers[self.how]

        return run


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("make", r"FailingExecutionProvider cannot be made: KeyError: 'no licence'"),
        ("claim", r"FailingExecutionProvider failed to claim nodes of graph .*: ValueError: no idea"),
        ("detour", r"claims Relu '-> a', Add '-> y' as one region, but a path leaves it to \w+ '-> [bc]' and comes back"),
        ("twice", r"claims Abs '-> b', but claims it twice"),
        ("foreign", r"claims Relu '-> a', but was not offered it"),
        ("compile", r"failed to compile a region of 2 nodes \(Relu '-> a', Abs '-> b'\): RuntimeError: out of registers"),
    ],
)
def test_a_provider_that_fails_while_the_session_opens(how: str, text: str) -> None:
    with registered(Failing), pytest.raises(sardonyx.EPFail, match=text):
        sardonyx.InferenceSession(model(DIAMOND), providers=[("FailingExecutionProvider", {"how": how})])


def test_a_provider_that_declines_leaves_its_nodes_to_the_next() -> None:
    content = model(DIAMOND)
    with registered(Failing, Recording):
        providers = [("FailingExecutionProvider", {"how": "decline"}), (RECORDING, {"operators": "Abs"})]
        session = sardonyx.InferenceSession(content, recording_options(), providers=providers)
    assert sorted(assignment(session)) == [(CPU, ["Add"]), (CPU, ["Exp"]), (CPU, ["Relu"]), (RECORDING, ["Abs"])]
    check(session, content, {"x": X})


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("run", r"FailingExecutionProvider failed to compute Relu '-> a', Abs '-> b': IndexError: lost it"),
        ("few", r"FailingExecutionProvider returned 0 values for Relu '-> a', Abs '-> b', expected 2: a, b"),
        ("list", r"FailingExecutionProvider computes Relu '-> a', Abs '-> b': 'a' is a list, expected an array of f32"),
        ("type", r"'a' is an array of float64, expected float32"),
        ("rank", r"'a' is an array of shape \[3\], expected 2 dimensions"),
    ],
)
def test_a_provider_that_fails_in_a_run(how: str, text: str) -> None:
    with registered(Failing):
        session = sardonyx.InferenceSession(model(DIAMOND), providers=[("FailingExecutionProvider", {"how": how})])
    with pytest.raises(sardonyx.Fail, match=text):
        session.run(None, {"x": X})


def test_results_of_another_size_than_inferred_are_no_matter_of_memory() -> None:
    class Longer(Recording):
        def compile(self, region: ClaimedRegion) -> Any:
            return lambda inputs: [np.ones((7, 4), np.float32)]

    with registered(Longer):
        session = sardonyx.InferenceSession(model(DIAMOND), providers=[(RECORDING, {"operators": "Abs"})])
    with pytest.raises(sardonyx.SardonyxError, match="Add"):  # as NumPy says it: (7, 4) and (3, 4) do not fit
        session.run(None, {"x": X})
