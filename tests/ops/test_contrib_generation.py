"""GreedySearch, Sampling and BeamSearch of com.microsoft against onnxruntime, on a decoder made in code."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx import errors

Array = np.ndarray[Any, Any]
VOCABULARY, WIDTH, HEADS, LAYERS = 40, 16, 2, 2
END = 3
IDS = np.array([[3, 3, 7, 9, 11], [5, 6, 7, 8, 9], [3, 1, 2, 30, 31]], np.int32)


def decoder() -> onnx.GraphProto:
    """input_ids, position_ids, attention_mask, past_0, ... -> logits, present_0, ..."""
    random = np.random.default_rng(5)

    def weight(name: str, *shape: int) -> str:
        array = random.standard_normal(shape).astype(np.float32) * np.float32(0.35 if len(shape) > 1 else 0.1)
        weights.append(onnx.numpy_helper.from_array(array, name))
        return name

    weights: list[onnx.TensorProto] = []
    nodes = [
        helper.make_node("Gather", [weight("tokens", VOCABULARY, WIDTH), "input_ids"], ["token"]),
        helper.make_node("Gather", [weight("positions", 64, WIDTH), "position_ids"], ["position"]),
        helper.make_node("Add", ["token", "position"], ["x0"]),
    ]
    for layer in range(LAYERS):
        inputs = [f"x{layer}", weight(f"w{layer}", WIDTH, 3 * WIDTH), weight(f"b{layer}", 3 * WIDTH), "attention_mask"]
        nodes += [
            helper.make_node(
                "Attention",
                [*inputs, f"past_{layer}"],
                [f"a{layer}", f"present_{layer}"],
                domain="com.microsoft",
                num_heads=HEADS,
                unidirectional=1,
            ),
            helper.make_node("Add", [f"x{layer}", f"a{layer}"], [f"x{layer + 1}"]),
        ]
    nodes.append(helper.make_node("MatMul", [f"x{LAYERS}", weight("head", WIDTH, VOCABULARY)], ["logits"]))
    past = [2, "rows", HEADS, "past", WIDTH // HEADS]
    present = [2, "rows", HEADS, "total", WIDTH // HEADS]
    inputs_ = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT32, ["rows", "new"]),
        helper.make_tensor_value_info("position_ids", TensorProto.INT32, ["rows", "new"]),
        helper.make_tensor_value_info("attention_mask", TensorProto.INT32, ["rows", "total"]),
        *(helper.make_tensor_value_info(f"past_{layer}", TensorProto.FLOAT, past) for layer in range(LAYERS)),
    ]
    outputs = [
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", "new", VOCABULARY]),
        *(helper.make_tensor_value_info(f"present_{layer}", TensorProto.FLOAT, present) for layer in range(LAYERS)),
    ]
    return helper.make_graph(nodes, "decoder", inputs_, outputs, weights)


def model(op: str, feeds: dict[str, Array | None], outputs: list[str], **attrs: Any) -> bytes:
    given = {name: array for name, array in feeds.items() if array is not None}
    names = [name if array is not None else "" for name, array in feeds.items()]
    attrs = {"eos_token_id": END, "pad_token_id": END, "model_type": 0, "decoder": decoder(), **attrs}
    node = helper.make_node(op, names, outputs, domain="com.microsoft", **attrs)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape))
        for name, array in given.items()
    ]
    kinds = [TensorProto.INT32, TensorProto.FLOAT, TensorProto.FLOAT]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(outputs, kinds)]
    graph = helper.make_graph([node], "search", inputs, results)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return content


def integers(*values: int) -> Array:
    return np.array(values, np.int32)


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


def check(op: str, feeds: dict[str, Array | None], outputs: list[str], **attrs: Any) -> None:
    content = model(op, feeds, outputs, **attrs)
    given = {name: array for name, array in feeds.items() if array is not None}
    wanted = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, given)
    found = sardonyx.InferenceSession(content).run(None, given)
    count = _written(found[0]) if found[0].ndim == 2 else found[0].shape[-1]
    np.testing.assert_array_equal(found[0][..., :count], wanted[0][..., :count])
    if len(found) > 1:
        np.testing.assert_allclose(found[1], wanted[1], rtol=1e-4)
        assert found[2].shape == wanted[2].shape
        ours, theirs = (np.maximum(scores[:2], -1e8) for scores in (found[2], wanted[2]))  # before any text may have ended
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def _written(sequences: Array) -> int:
    """How many tokens rows have when all have ended: what stands behind that, onnxruntime does not write."""
    new = sequences[:, IDS.shape[1] :]
    ends = [int(np.argmax(row == row[-1])) if (row[-1] == row[-2]) else len(row) for row in new]
    return int(IDS.shape[1]) + max(ends)


def searched(**changes: Array | None) -> dict[str, Array | None]:
    """The inputs of GreedySearch, in their order."""
    feeds: dict[str, Array | None] = {
        "input_ids": IDS, "max_length": integers(16), "min_length": integers(1), "repetition_penalty": None, "vocab_mask": None,
        "prefix_vocab_mask": None, "attention_mask": None,
    }  # fmt: skip
    return {**feeds, **changes}


def beamed(**changes: Array | None) -> dict[str, Array | None]:
    """The inputs of BeamSearch, in their order."""
    feeds: dict[str, Array | None] = {
        "input_ids": IDS, "max_length": integers(14), "min_length": integers(1), "num_beams": integers(3),
        "num_return_sequences": integers(2), "length_penalty": floats(1.0), "repetition_penalty": None, "vocab_mask": None,
        "prefix_vocab_mask": None, "attention_mask": None,
    }  # fmt: skip
    return {**feeds, **changes}


@pytest.mark.parametrize(
    ("changes", "attrs"),
    [
        ({}, {}),
        ({"min_length": integers(12), "repetition_penalty": floats(1.4)}, {}),
        ({"vocab_mask": integers(*([1, 0] * 20))}, {"no_repeat_ngram_size": 2}),
        ({"prefix_vocab_mask": np.eye(3, VOCABULARY, 6, np.int32), "min_length": integers(9)}, {"pad_token_id": 0}),
        ({"attention_mask": np.array([[0, 0, 1, 1, 1], [1] * 5, [0, 1, 1, 1, 1]], np.int32)}, {"init_decoder": decoder()}),
    ],
)
def test_greedy_search_agrees(changes: dict[str, Array], attrs: dict[str, Any]) -> None:
    check("GreedySearch", searched(**changes), ["sequences"], **attrs)


@pytest.mark.parametrize("seed", [0, 1, 4711])
@pytest.mark.parametrize(
    "attrs", [{"top_p": 0.6}, {"top_p": 0.9, "temperature": 0.7, "min_tokens_to_keep": 3}, {"top_p": 0.5, "custom": 1}]
)
def test_sampling_agrees_for_every_seed(seed: int, attrs: dict[str, Any]) -> None:
    feeds = searched(repetition_penalty=floats(1.1), presence_mask=None, seed=integers(seed))
    check("Sampling", feeds, ["sequences"], filter_value=-1e20, **attrs)


def test_sampling_without_a_seed_stays_inside_the_vocabulary() -> None:
    content = model("Sampling", searched(), ["sequences"], top_p=0.9)
    (found,) = sardonyx.InferenceSession(content).run(
        None, {"input_ids": IDS, "max_length": integers(16), "min_length": integers(1)}
    )
    assert found.shape == (3, 16)
    assert ((found >= 0) & (found < VOCABULARY)).all()


@pytest.mark.parametrize(
    ("changes", "attrs"),
    [
        ({}, {}),
        ({"length_penalty": floats(2.0), "min_length": integers(11)}, {"early_stopping": 1}),
        ({"length_penalty": floats(0.2), "repetition_penalty": floats(1.3)}, {"no_repeat_ngram_size": 3}),
        ({"num_beams": integers(1), "num_return_sequences": integers(1)}, {"init_decoder": decoder()}),
        ({"vocab_mask": integers(*([1, 1, 0, 1] * 10))}, {"vocab_size": VOCABULARY}),
    ],
)
def test_beam_search_agrees(changes: dict[str, Array], attrs: dict[str, Any]) -> None:
    check("BeamSearch", beamed(**changes), ["sequences", "sequences_scores", "scores"], **attrs)


@pytest.mark.parametrize(
    ("feeds", "attrs", "message"),
    [
        (beamed(num_return_sequences=integers(4)), {}, "num_return_sequences is 4: expected 1 to num_beams"),
        (beamed(max_length=integers(4)), {}, "max_length is 4, but input_ids has 5 tokens a row"),
        (beamed(), {"model_type": 1}, "there is no graph `encoder`"),
        (beamed(vocab_mask=integers(1, 0)), {}, "a mask of 2 tokens for a vocabulary of 40"),
        (beamed(repetition_penalty=floats(0.0)), {}, "repetition_penalty is 0.0"),
    ],
)
def test_what_makes_no_sense_is_refused(feeds: dict[str, Array | None], attrs: dict[str, Any], message: str) -> None:
    session = sardonyx.InferenceSession(model("BeamSearch", feeds, ["sequences"], **attrs))
    with pytest.raises(errors.SardonyxError, match=f"BeamSearch.*{message}"):
        session.run(None, {name: array for name, array in feeds.items() if array is not None})
