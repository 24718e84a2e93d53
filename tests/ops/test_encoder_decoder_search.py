"""BeamSearch and WhisperBeamSearch of encoders and decoders against onnxruntime; GreedySearch and Sampling by their meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from search_graphs import FEATURES, VOCABULARY, decoder, encoder

import sardonyx
from sardonyx import errors

Array = np.ndarray[Any, Any]
START, END = 1, 3
IDS = np.array([[0, 0, 7, 9, 11], [5, 6, 7, 8, 9], [0, 1, 2, 30, 0]], np.int32)
SOUND = np.random.default_rng(3).standard_normal((2, FEATURES, 7)).astype(np.float32)
ORDER = (
    "input_ids", "max_length", "min_length", "num_beams", "num_return_sequences", "length_penalty", "repetition_penalty",
    "vocab_mask", "prefix_vocab_mask", "attention_mask", "decoder_input_ids", "logits_processor", "cross_qk_layer_head",
    "extra_decoding_ids", "temperature",
)  # fmt: skip
OUTPUTS = ["sequences", "sequences_scores", "scores"]


def integers(*values: int) -> Array:
    return np.array(values, np.int32)


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


def model(op: str, feeds: dict[str, Array], outputs: list[str], *, order: tuple[str, ...] = ORDER, **attrs: Any) -> bytes:
    attrs = {"eos_token_id": END, "pad_token_id": 0, "decoder_start_token_id": START, **attrs}
    names = [name if name in feeds else "" for name in order]
    while names[-1] == "":
        names.pop()
    node = helper.make_node(op, names, outputs, domain="com.microsoft", **attrs)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape))
        for name, array in feeds.items()
    ]
    kinds = [TensorProto.INT32, *[TensorProto.FLOAT] * (len(outputs) - 1)]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(outputs, kinds) if name]
    graph = helper.make_graph([node], "search", inputs, results)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return content


def check(op: str, feeds: dict[str, Array], **attrs: Any) -> list[Array]:
    content = model(op, feeds, OUTPUTS, **attrs)
    wanted = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feeds)
    found = sardonyx.InferenceSession(content).run(None, feeds)
    np.testing.assert_array_equal(found[0], wanted[0])
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-4)
    assert found[2].shape == wanted[2].shape
    ours, theirs = (np.maximum(scores[:1], -1e8) for scores in (found[2], wanted[2]))  # before any text may have ended
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    return found


def searched(**changes: Array) -> dict[str, Array]:
    feeds = {"input_ids": IDS, "max_length": integers(14), "min_length": integers(1), "num_beams": integers(3)}
    return {**feeds, "num_return_sequences": integers(2), "length_penalty": floats(1.0), **changes}


FORMS = {
    "crosses only": lambda: {"encoder": encoder(decodes=False), "decoder": decoder()},
    "first logits": lambda: {"encoder": encoder(), "decoder": decoder()},
    "hidden states": lambda: {"encoder": encoder(), "decoder": decoder(hidden=True)},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("changes", "attrs"),
    [
        ({}, {}),
        ({"length_penalty": floats(2.0), "min_length": integers(11)}, {"early_stopping": 1}),
        ({"length_penalty": floats(0.2), "repetition_penalty": floats(1.3)}, {"no_repeat_ngram_size": 3}),
        ({"num_beams": integers(1), "num_return_sequences": integers(1)}, {}),
        ({"attention_mask": np.array([[1, 1, 1, 1, 1], [0, 1, 1, 1, 1], [1, 0, 1, 0, 1]], np.int32)}, {}),
        ({"vocab_mask": integers(*([1, 1, 0, 1] * 10))}, {"vocab_size": VOCABULARY}),
    ],
)
def test_beam_search_of_the_t5_form(form: str, changes: dict[str, Array], attrs: dict[str, Any]) -> None:
    check("BeamSearch", searched(**changes), model_type=1, **FORMS[form](), **attrs)


def whisper(**changes: Array) -> dict[str, Array]:
    return searched(**{"input_ids": SOUND, **changes})


STAMPS: dict[str, Any] = {
    "translate_token_id": 5, "transcribe_token_id": 6, "start_of_lm_token_id": 7, "no_speech_token_id": 8,
    "no_timestamps_token_id": 9, "beginning_timestamp_token_id": 25,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "attrs"),
    [
        ({}, {}),
        ({"decoder_input_ids": np.array([[1, 4, 5, 9], [1, 4, 6, 9]], np.int32)}, {}),
        ({"temperature": floats(0.6), "repetition_penalty": floats(1.2)}, {"no_repeat_ngram_size": 2}),
        ({"logits_processor": integers(1), "max_length": integers(30)}, {}),
        (
            {"logits_processor": integers(1), "decoder_input_ids": np.array([[1, 4, 5], [1, 4, 6]], np.int32)},
            {"early_stopping": 1},
        ),
    ],
)
def test_whisper_beam_search(changes: dict[str, Array], attrs: dict[str, Any]) -> None:
    graphs = {"encoder": encoder(whisper=True), "decoder": decoder(whisper=True)}
    check("WhisperBeamSearch", whisper(**changes), model_type=2, **graphs, **STAMPS, **attrs)


def test_whisper_graphs_in_a_plain_beam_search() -> None:
    check("BeamSearch", whisper(), model_type=2, encoder=encoder(whisper=True), decoder=decoder(whisper=True, hidden=True))


def test_timestamps_come_in_pairs_and_do_not_go_back() -> None:
    graphs = {"encoder": encoder(whisper=True), "decoder": decoder(whisper=True)}
    feeds = whisper(logits_processor=integers(1), max_length=integers(30), min_length=integers(25))
    stamps_from = {**STAMPS, "beginning_timestamp_token_id": 12}
    sequences, *_ = check("WhisperBeamSearch", feeds, model_type=2, **graphs, **stamps_from)
    for row in sequences.reshape(-1, sequences.shape[-1]):
        stamps = row[row >= 12]
        assert len(stamps)
        assert (np.diff(stamps) >= 0).all()


def test_how_likely_silence_is_and_tokens_that_are_forced() -> None:
    graphs = {"encoder": encoder(whisper=True), "decoder": decoder(whisper=True)}
    names = [*OUTPUTS, "", "non_speech_probs"]
    feeds = whisper(extra_decoding_ids=np.array([[11, 12], [13, -1]], np.int32))
    sequences, _, _, silence = sardonyx.InferenceSession(
        model("WhisperBeamSearch", feeds, names, model_type=2, **graphs, **STAMPS)
    ).run(None, feeds)
    assert sequences[0, :, 1:3].tolist() == [[11, 12]] * 2
    assert sequences[1, :, 1].tolist() == [13] * 2
    assert silence.shape == (2,)
    assert ((silence > 0) & (silence < 1)).all()


@pytest.mark.parametrize("op", ["GreedySearch", "Sampling"])
def test_one_token_at_a_time(op: str) -> None:
    """onnxruntime has these for the GPT-2 form only: greedy is a search with one beam."""
    order = ("input_ids", "max_length", "min_length", "repetition_penalty")
    feeds = {"input_ids": IDS, "max_length": integers(12), "min_length": integers(12)}
    graphs = FORMS["first logits"]()
    (found,) = sardonyx.InferenceSession(model(op, feeds, ["sequences"], order=order, model_type=1, **graphs)).run(None, feeds)
    one = searched(num_beams=integers(1), num_return_sequences=integers(1), max_length=integers(12), min_length=integers(12))
    (wanted, *_) = sardonyx.InferenceSession(model("BeamSearch", one, OUTPUTS, model_type=1, **graphs)).run(None, one)
    if op == "GreedySearch":
        np.testing.assert_array_equal(found, wanted[:, 0])
    assert found.shape == (3, 12)
    assert ((found >= 0) & (found < VOCABULARY)).all()


@pytest.mark.parametrize(
    ("op", "feeds", "attrs", "message"),
    [
        ("BeamSearch", searched(), {"model_type": 3}, r"model_type is 3: expected 0 \(GPT-2\), 1 \(T5\) or 2"),
        ("BeamSearch", searched(), {"model_type": 1, "encoder": None}, "there is no graph `encoder`"),
        ("BeamSearch", searched(), {"model_type": 1, "decoder_start_token_id": -1}, "decoder_start_token_id is -1"),
        ("BeamSearch", searched(), {"model_type": 1, "encoder": encoder(whisper=True)}, "the encoder"),
        ("BeamSearch", searched(attention_mask=np.ones((3, 4), np.int32)), {"model_type": 1}, "attention_mask has the shape"),
        ("BeamSearch", searched(), {"model_type": 1, "decoder": decoder(whisper=True)}, "does not fit the 2 layers"),
        ("WhisperBeamSearch", whisper(), {"decoder_output_cross_qk": 1}, "cross_qk is asked for"),
        ("WhisperBeamSearch", whisper(), {"model_type": 1}, "model_type is 1: expected 2"),
        ("WhisperBeamSearch", whisper(temperature=floats(0)), {}, "temperature is 0"),
        ("WhisperBeamSearch", whisper(logits_processor=integers(1)), {}, "beginning_timestamp_token_id is None"),
        ("WhisperBeamSearch", whisper(decoder_input_ids=np.ones((3, 2), np.int32)), {}, "decoder_input_ids has the shape"),
    ],
)
def test_what_makes_no_sense_is_refused(op: str, feeds: dict[str, Array], attrs: dict[str, Any], message: str) -> None:
    is_whisper = op.startswith("W")
    given: dict[str, Any] = {
        "encoder": encoder(whisper=is_whisper),
        "decoder": decoder(whisper=is_whisper),
        "model_type": 2,
        **attrs,
    }
    given = {name: value for name, value in given.items() if value is not None}
    session = sardonyx.InferenceSession(model(op, feeds, ["sequences"], **given))
    with pytest.raises(errors.SardonyxError, match=f"{op}.*{message}"):
        session.run(None, feeds)
