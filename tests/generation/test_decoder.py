"""Decoders: the same text as a loop written by hand on onnxruntime, caches that stay where they are, nothing compiled anew."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_decoders import decoder_file, greedy_by_hand

from sardonyx import SessionOptions, errors
from sardonyx.compile import native_model
from sardonyx.generation import Decoder, GenerationConfig, generate, stream

PROMPTS = [[1, 5, 9, 33], [7, 8], [100, 2, 3, 4, 5, 6, 7], [64]]
COUNT = 90  # more than caches have room for at first


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("decoders")


@pytest.fixture(scope="module")
def wanted(folder: Path) -> list[list[int]]:
    """All forms have the same weights: one answer for all of them."""
    path = decoder_file(folder, "grouped")
    return [greedy_by_hand(path, prompt, COUNT) for prompt in PROMPTS]


@pytest.mark.parametrize("form", ["plain", "grouped", "merged"])
def test_greedy_text_is_that_of_a_loop_by_hand(folder: Path, wanted: list[list[int]], form: str) -> None:
    decoder = Decoder(decoder_file(folder, form))
    alone = [generate(decoder, prompt, max_new_tokens=COUNT).new_tokens[0].tolist() for prompt in PROMPTS]
    assert alone == wanted
    together = generate(decoder, PROMPTS, max_new_tokens=COUNT)
    assert [row.tolist() for row in together.new_tokens] == wanted


def test_a_plain_decoder_agrees_with_onnxruntime_on_itself(folder: Path) -> None:
    path = decoder_file(folder, "plain")
    found = generate(Decoder(path), PROMPTS[0], max_new_tokens=20).new_tokens[0].tolist()
    assert found == greedy_by_hand(path, PROMPTS[0], 20)


def test_a_model_of_its_own_may_read_prompts(folder: Path, wanted: list[list[int]]) -> None:
    decoder = Decoder(decoder_file(folder, "plain"), prompt_model=decoder_file(folder, "prompt"))
    found = generate(decoder, PROMPTS, max_new_tokens=COUNT)
    assert [row.tolist() for row in found.new_tokens] == wanted


def test_a_model_without_past_reads_everything_anew(folder: Path, wanted: list[list[int]]) -> None:
    found = generate(Decoder(decoder_file(folder, "pastless")), PROMPTS[:2], max_new_tokens=12)
    assert [row.tolist() for row in found.new_tokens] == [row[:12] for row in wanted[:2]]


@pytest.mark.parametrize("form", ["plain", "grouped", "merged"])
def test_caches_are_one_buffer_that_grows_by_half(folder: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = Decoder(decoder_file(folder, form))
    buffers: list[int] = []
    compiled: list[object] = []
    monkeypatch.setattr(native_model, "compile_graph", lambda *given: compiled.append(given))
    for _ in stream(decoder, PROMPTS[:2], max_new_tokens=COUNT):
        cache = decoder._caches[0].array
        if id(cache) not in buffers:
            buffers.append(id(cache))
        assert all(each.has_room and each.array.flags.c_contiguous for each in decoder._caches)
    assert len(buffers) == 2, "one buffer until it is full, then one that is half as large again"
    assert decoder._caches[0].array.shape[2] == 96
    assert compiled == []


@pytest.mark.parametrize("form", ["plain", "grouped"])
def test_room_can_be_given_at_the_start(folder: Path, form: str) -> None:
    decoder = Decoder(decoder_file(folder, form), room=128)
    generate(decoder, PROMPTS[0], max_new_tokens=4)
    first = decoder._caches[0].array
    generate(decoder, PROMPTS[0], max_new_tokens=COUNT)
    assert decoder._caches[0].array is first
    assert decoder.cache_bytes == 4 * first.nbytes


@pytest.mark.parametrize("form", ["plain", "grouped"])
def test_rows_in_another_order_go_on_as_they_would_have(folder: Path, form: str) -> None:
    decoder = Decoder(decoder_file(folder, form))
    decoder.begin(PROMPTS)
    straight = decoder.extend([3, 4, 5, 6])
    decoder.begin(PROMPTS)
    decoder.reorder([2, 0, 0, 3, 1])
    mixed = decoder.extend([5, 3, 3, 6, 4])
    np.testing.assert_allclose(mixed, straight[[2, 0, 0, 3, 1]], atol=2e-5)


def test_the_runtime_in_numpy_gives_the_same(folder: Path, wanted: list[list[int]]) -> None:
    decoder = Decoder(decoder_file(folder, "plain"), providers=["SardonyxReferenceExecutionProvider"])
    assert generate(decoder, PROMPTS[1], max_new_tokens=6).new_tokens[0].tolist() == wanted[1][:6]


def test_four_bits(folder: Path) -> None:
    (folder / "int4").mkdir()
    path = decoder_file(folder / "int4", "grouped", bits=4, level=0)
    found = generate(Decoder(path), PROMPTS[0], max_new_tokens=24).new_tokens[0].tolist()
    assert found == greedy_by_hand(path, PROMPTS[0], 24)


def test_unknown_tokens_are_refused(folder: Path) -> None:
    decoder = Decoder(decoder_file(folder, "grouped"))
    with pytest.raises(errors.InvalidArgument, match=r"input_ids: row 1 has the token 128, the model knows those from 0 to 127"):
        decoder.begin([[1, 2], [3, 128]])
    decoder.begin([[1, 2]])
    with pytest.raises(errors.InvalidArgument, match=r"row 0 has the token -1"):
        decoder.extend([-1])
    for rows in ([3], [-1], [[0]]):
        with pytest.raises(errors.InvalidArgument, match=r"to go on with: expected some of 0 to 0"):
            decoder.reorder(rows)
    with pytest.raises(errors.InvalidArgument, match=r"2 tokens were given for 1 rows"):
        decoder.extend([1, 2])


def test_models_that_are_no_decoders_are_refused(folder: Path) -> None:
    with pytest.raises(errors.InvalidArgument, match="room is -1: expected a number of positions"):
        Decoder(decoder_file(folder, "plain"), room=-1)
    with pytest.raises(errors.InvalidArgument, match="no input 'input_ids'"):
        Decoder("src/sardonyx/data/digits.onnx")
    with pytest.raises(errors.InvalidArgument, match="cache 'past': the model has no such input"):
        Decoder(decoder_file(folder, "plain"), caches={"past": "present.0.key"})


def test_options_of_the_caller_stay_as_they_are(folder: Path) -> None:
    options = SessionOptions()
    Decoder(decoder_file(folder, "grouped"), options)
    assert not options.config_entries


def test_beams_are_at_least_as_likely_as_the_greedy_text(folder: Path) -> None:
    decoder = Decoder(decoder_file(folder, "grouped"))

    def likelihood(tokens: list[int]) -> float:
        logits = decoder.begin([PROMPTS[0]])[0].astype(np.float64)
        total = 0.0
        for token in tokens:
            total += float(logits[token] - logits.max() - np.log(np.exp(logits - logits.max()).sum()))
            logits = decoder.extend([token])[0].astype(np.float64)
        return total

    greedy = generate(decoder, PROMPTS[0], max_new_tokens=6).new_tokens[0].tolist()
    config = GenerationConfig(num_beams=8, num_return_sequences=3, length_penalty=0.0)
    beams = generate(decoder, [PROMPTS[0], PROMPTS[1]], config, max_new_tokens=6)
    assert beams.scores is not None
    assert len(beams.sequences) == 6
    assert beams.scores[0] >= beams.scores[1] >= beams.scores[2]
    found = [likelihood(row.tolist()) for row in beams.new_tokens[:3]]
    np.testing.assert_allclose(found, beams.scores[:3], rtol=1e-4)
    assert found[0] >= likelihood(greedy) - 1e-4
