"""MoE and QMoE as native steps, against their NumPy meaning: activations, widths, routing, sizes, targets and threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from guarded import guarded
from native_support import host_nodes, in_order, prepared, run_native, run_reference
from sardonyx import errors
from sardonyx.compile.assemble import NativeSettings, compile_graph
from sardonyx.ir.tensor import Array
from sardonyx.kernel.matmul.experts import most_tiles
from sardonyx.records import dataclass
from session_agreement import session
from targets import here_and_less

TARGETS = [target.name for target in here_and_less()]
FLOATS, EXACT, BYTES = 1e-5, 2e-4, 4e-2  # of the largest result: floats, activations of 16 bits, of 8 bits


@dataclass(frozen=True)
class Mixture:
    """A model of one mixture of experts; `bits` 0 for one with floats."""

    experts: int = 4
    hidden: int = 32
    inner: int = 48
    k: int = 2
    activation: str = "silu"
    fusion: int = 0
    gated: bool = False  # has a third layer
    bias: bool = True
    bits: int = 0
    block: int = 0
    points: bool = False
    given: bool = False  # the router's weights come apart from what chooses
    normalize: int = 0
    level: int = 0
    limit: float | None = None
    kind: Any = np.float32
    tokens: tuple[Any, ...] = ("t",)
    seed: int = 0

    def content(self) -> bytes:
        rng = np.random.default_rng(self.seed)
        outer = 2 * self.inner if self.activation == "swiglu" and self.fusion else self.inner
        sizes = [(outer, self.hidden), (self.hidden, self.inner), *([(self.inner, self.hidden)] if self.gated else [])]
        constants: dict[str, Array] = {}
        for number, (outputs, inputs) in enumerate(sizes, 1):
            if self.bits:
                count = inputs * self.bits // 8
                constants[f"w{number}"] = rng.integers(0, 256, (self.experts, outputs, count), dtype=np.uint8)
                shape = (self.experts, outputs, inputs // self.block) if self.block else (self.experts, outputs)
                constants[f"s{number}"] = rng.uniform(0.01, 0.03, shape).astype(self.kind)
                if self.points:
                    packed = (*shape[:-1], -(-shape[-1] * self.bits // 8))
                    constants[f"z{number}"] = rng.integers(0, 256, packed, dtype=np.uint8)
            else:
                constants[f"w{number}"] = rng.normal(0, 0.2, (self.experts, outputs, inputs)).astype(self.kind)
            if self.bias:
                constants[f"b{number}"] = rng.normal(0, 0.5, (self.experts, outputs)).astype(self.kind)
        order = "w1 b1 w2 b2 w3 b3" if not self.bits else "w1 s1 b1 w2 s2 b2 w3 s3 b3 z1 z2 z3"
        names = ["x", "r", *(name if name in constants else "" for name in order.split()), *(["g"] if self.given else [])]
        while not names[-1]:
            names.pop()
        attrs: dict[str, Any] = {"k": self.k, "activation_type": self.activation, "swiglu_fusion": self.fusion}
        attrs |= {"normalize_routing_weights": self.normalize, "activation_alpha": 1.7, "activation_beta": 0.5}
        if self.limit is not None:
            attrs["swiglu_limit"] = self.limit
        if self.bits:
            attrs |= {"expert_weight_bits": self.bits, "accuracy_level": self.level}
            attrs |= {"block_size": self.block} if self.block else {}
        node = helper.make_node("QMoE" if self.bits else "MoE", names, ["y"], domain="com.microsoft", name="mixture", **attrs)
        code = helper.np_dtype_to_tensor_dtype(np.dtype(self.kind))
        rows = "t" if len(self.tokens) == 1 else "rows"
        fed = [("x", [*self.tokens, self.hidden]), ("r", [rows, self.experts]), *([("g", [rows, self.experts])] * self.given)]
        inputs_ = [helper.make_tensor_value_info(name, code, shape) for name, shape in fed]
        y = helper.make_tensor_value_info("y", code, [*self.tokens, self.hidden])
        weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
        graph = helper.make_graph([node], "mixture", inputs_, [y], weights)
        imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        made: bytes = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
        return made

    def feed(self, *tokens: int, seed: int = 0) -> dict[str, Array]:
        rng = np.random.default_rng(seed)
        rows = int(np.prod(tokens))
        feed = {"x": rng.standard_normal((*tokens, self.hidden)), "r": rng.standard_normal((rows, self.experts))}
        if self.given:
            feed["g"] = rng.uniform(0, 1, (rows, self.experts))
        return {name: array.astype(self.kind) for name, array in feed.items()}


def results(mixture: Mixture, feed: dict[str, Array], target: str = "", workers: int = 1) -> tuple[Array, Array]:
    """What native steps find, and what is meant."""
    content = mixture.content()
    graph = prepared(content)
    compiled = compile_graph(graph, graph.outputs, in_order(graph), in_order, NativeSettings(workers=workers, target=target))
    assert not host_nodes(compiled), list(compiled.grouping.refusals.values())
    (found,) = run_native(graph, compiled, {name: guarded(array) for name, array in feed.items()})
    (expected,) = run_reference(content, feed)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    return np.asarray(found), np.asarray(expected)


def check(mixture: Mixture, feed: dict[str, Array], limit: float, target: str = "", workers: int = 1) -> Array:
    found, expected = results(mixture, feed, target, workers)
    wanted = expected.astype(np.float64)
    if mixture.kind is not np.float32:
        limit = max(limit, 2e-3 if mixture.kind is np.float16 else 1e-2)
    if wanted.size:
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=0, atol=limit * max(np.abs(wanted).max(), 1e-30))
    return found


ACTIVATIONS: list[dict[str, Any]] = [
    {"activation": "relu"},
    {"activation": "gelu"},
    {"activation": "silu"},
    {"activation": "identity"},
    {"activation": "silu", "gated": True},
    {"activation": "swiglu", "gated": True, "limit": 0.7},
    {"activation": "swiglu", "fusion": 1},
    {"activation": "swiglu", "fusion": 2, "limit": 0.9},
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ACTIVATIONS, ids=str)
def test_floats(kind: dict[str, Any], target: str) -> None:
    check(Mixture(**kind, normalize=1), Mixture().feed(7), FLOATS, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize("points", [False, True])
def test_packed_weights(bits: int, block: int, points: bool, target: str) -> None:
    mixture = Mixture(bits=bits, block=block, points=points, activation="swiglu", fusion=1)
    check(mixture, mixture.feed(6), EXACT, target)


@pytest.mark.parametrize("kind", ACTIVATIONS, ids=str)
def test_activations_of_packed_weights(kind: dict[str, Any]) -> None:
    mixture = Mixture(**kind, bits=4, block=16, hidden=64)
    check(mixture, mixture.feed(5), EXACT)


def test_activations_of_8_bits() -> None:
    mixture = Mixture(bits=4, block=32, hidden=128, inner=96, level=4)
    check(mixture, mixture.feed(9), BYTES)


@pytest.mark.parametrize("kind", [np.float16, "bfloat16"])
@pytest.mark.parametrize("bits", [0, 4])
def test_narrow_floats(kind: Any, bits: int) -> None:
    import ml_dtypes

    mixture = Mixture(bits=bits, kind=ml_dtypes.bfloat16 if kind == "bfloat16" else kind, gated=True)
    check(mixture, mixture.feed(5), EXACT)


@pytest.mark.parametrize("bits", [0, 8])
def test_rows_of_a_batch_and_no_rows(bits: int) -> None:
    mixture = Mixture(bits=bits, tokens=("b", "s"))
    check(mixture, mixture.feed(2, 3), EXACT)
    for shape in ((0, 3), (1, 1)):
        check(mixture, mixture.feed(*shape), EXACT)


@pytest.mark.parametrize("tokens", [(1,), (3,), (2, 40)])
def test_known_numbers_of_tokens(tokens: tuple[int, ...]) -> None:
    for mixture in (Mixture(tokens=tokens), Mixture(tokens=tokens, bits=4)):
        check(mixture, mixture.feed(*tokens), EXACT)


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_any_sizes(data: st.DataObject) -> None:
    draw = data.draw
    experts = draw(st.integers(1, 9))
    bits = draw(st.sampled_from([0, 0, 4, 8]))
    steps = 16 if bits else 1
    mixture = Mixture(
        experts=experts,
        hidden=steps * draw(st.integers(1, 5)),
        inner=steps * draw(st.integers(1, 5)),
        k=draw(st.integers(1, experts)),
        bias=draw(st.booleans()),
        points=draw(st.booleans()),
        given=bool(bits) and draw(st.booleans()),
        normalize=draw(st.integers(0, 1)),
        bits=bits,
        seed=draw(st.integers(0, 9)),
        **draw(st.sampled_from(ACTIVATIONS)),
    )
    feed = mixture.feed(draw(st.integers(0, 40)), seed=draw(st.integers(0, 9)))
    if draw(st.booleans()):  # all tokens want the same experts
        feed["r"][:] = np.arange(experts)
    check(mixture, feed, EXACT if bits else FLOATS)


@pytest.mark.parametrize("bits", [0, 4])
def test_of_equal_logits_the_later_expert_is_better(bits: int) -> None:
    mixture = Mixture(bits=bits, experts=6, k=3)
    feed = mixture.feed(8)
    feed["r"] = np.round(feed["r"])
    check(mixture, feed, EXACT)
    feed["r"][:] = 0
    check(mixture, feed, EXACT)


@pytest.mark.parametrize("bits", [0, 4])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_no_numbers(bits: int, bad: float) -> None:
    mixture = Mixture(bits=bits, experts=5, k=2)
    feed = mixture.feed(6)
    feed["r"][0, 1] = feed["r"][1, :4] = feed["r"][2] = bad
    feed["r"][3, [0, 2]] = [-np.inf, bad]
    with np.errstate(invalid="ignore"):
        found, expected = results(mixture, feed)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    known = ~np.isnan(expected)
    assert known[4:].all()
    np.testing.assert_allclose(found[known], expected[known], rtol=0, atol=EXACT * np.abs(expected[known]).max())


def test_tokens_that_are_no_numbers_leave_others_alone() -> None:
    for bits in (0, 4):
        mixture = Mixture(bits=bits)
        feed = mixture.feed(5)
        feed["x"][2, 3] = np.nan
        found, expected = results(mixture, feed)
        rest = [0, 1, 3, 4]
        assert np.isnan(found[2]).any()
        np.testing.assert_allclose(found[rest], expected[rest], rtol=0, atol=EXACT * np.abs(expected[rest]).max())


@pytest.mark.parametrize("bits", [0, 4])
def test_same_bits_on_any_number_of_threads(bits: int) -> None:
    mixture = Mixture(bits=bits, experts=8, hidden=256, inner=256, activation="swiglu", fusion=1)
    feed = mixture.feed(33)
    np.testing.assert_array_equal(check(mixture, feed, EXACT), check(mixture, feed, EXACT, workers=3))


@given(st.lists(st.integers(0, 30), min_size=1, max_size=12), st.integers(1, 12))
def test_there_is_room_for_all_tiles(counts: list[int], height: int) -> None:
    room = most_tiles(sum(counts), len(counts), height)
    assert isinstance(room, int)
    assert sum(-(-count // height) for count in counts) <= room


def test_what_kernels_do_not_take_has_a_reason() -> None:
    graph = prepared(Mixture(bits=4, hidden=24).content())
    compiled = compile_graph(graph, graph.outputs, in_order(graph), in_order, NativeSettings())
    assert len(host_nodes(compiled)) == 1
    assert any("blocks of 24 weights" in reason for reason in compiled.grouping.refusals.values())


@pytest.mark.parametrize("bits", [0, 4])
def test_a_router_of_other_tokens_is_an_error_that_names_the_node(bits: int) -> None:
    mixture = Mixture(bits=bits, tokens=("b", "s"))
    feed = mixture.feed(2, 3)
    for rows in (5, 7, 0):
        other = {**feed, "r": np.zeros((rows, mixture.experts), np.float32)}
        with pytest.raises(errors.SardonyxError, match=rf"mixture.*router_probs has the shape \({rows}, 4\); expected \(6, 4\)"):
            session(mixture.content()).run(None, other)


def test_more_experts_than_there_are_is_an_error_that_names_the_node() -> None:
    mixture = Mixture(k=5)
    with pytest.raises(errors.SardonyxError, match=r"mixture.*k is 5; expected 1 to 4"):
        session(mixture.content()).run(None, mixture.feed(3))


ONNXRUNTIME: list[dict[str, Any]] = [
    {"activation": "silu", "normalize": 1},
    {"activation": "swiglu", "fusion": 1, "limit": 0.8},
    {"activation": "swiglu", "fusion": 1, "bits": 4},
    {"activation": "swiglu", "fusion": 1, "bits": 4, "block": 32, "points": True},
    {"activation": "silu", "bits": 8, "experts": 16, "k": 8},
]


@pytest.mark.parametrize("kind", ONNXRUNTIME, ids=str)
def test_onnxruntime_agrees(kind: dict[str, Any]) -> None:
    import onnxruntime

    mixture = Mixture(hidden=64, inner=64, **kind)
    feed = mixture.feed(19)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    theirs = onnxruntime.InferenceSession(mixture.content(), options, providers=["CPUExecutionProvider"])
    (expected,), (found,) = theirs.run(None, feed), session(mixture.content()).run(None, feed)
    limit = 2e-2 if mixture.bits == 8 else 5e-4  # it rounds activations to 8 bits beside weights of 8 bits
    np.testing.assert_allclose(found, expected, rtol=0, atol=limit * np.abs(expected).max())
