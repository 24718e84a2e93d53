"""Encoders with decoders: the same text as a loop written by hand on onnxruntime, in all forms; speech; folders; errors."""

from __future__ import annotations

import json
import sys
import wave
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from search_graphs import FEATURES, VOCABULARY
from small_encoder_decoders import greedy_by_hand, write_folder

from sardonyx import errors
from sardonyx.cli.main import main
from sardonyx.compile import native_model
from sardonyx.generation import EncoderDecoder, GenerationConfig, SpeechReader, TextGenerator, generate, read_folder, stream
from sardonyx.generation.text import open_decoder

SOURCES = [[5, 9, 33], [7, 8, 2, 30, 31, 6], [11]]
COUNT = 70  # more than caches have room for at first


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("encoders")
    return {form: write_folder(root / form, form) for form in ("merged", "split", "pastless")}


@pytest.fixture(scope="module")
def wanted(folders: dict[str, Path]) -> list[list[int]]:
    """All forms have the same weights: one answer for all of them."""
    return [greedy_by_hand(folders["pastless"], np.array([source]), COUNT, [1]) for source in SOURCES]


def opened(folder: Path) -> EncoderDecoder:
    found = open_decoder(read_folder(folder))
    assert isinstance(found, EncoderDecoder)
    return found


@pytest.mark.parametrize("form", ["merged", "split", "pastless"])
def test_greedy_text_is_that_of_a_loop_by_hand(folders: dict[str, Path], wanted: list[list[int]], form: str) -> None:
    model = opened(folders[form])
    for source, tokens in zip(SOURCES, wanted):
        assert generate(model, model.read([source]), max_new_tokens=COUNT).new_tokens[0].tolist() == tokens
    together = generate(model, model.read(SOURCES), max_new_tokens=COUNT)
    assert [row.tolist() for row in together.new_tokens] == wanted
    given = np.array([[5, 9, 33, 0, 0, 0], [7, 8, 2, 30, 31, 6]])
    masked = generate(model, model.read(given, given != 0), max_new_tokens=COUNT)
    assert [row.tolist() for row in masked.new_tokens] == wanted[:2]


@pytest.mark.parametrize("form", ["merged", "split"])
def test_caches_stay_where_they_are(folders: dict[str, Path], form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = opened(folders[form])
    compiled: list[object] = []
    monkeypatch.setattr(native_model, "compile_graph", lambda *given: compiled.append(given))
    buffers: dict[str, set[int]] = {}
    for _ in stream(model, model.read(SOURCES[:2]), max_new_tokens=COUNT):
        for cache in model._caches:
            buffers.setdefault(cache.past, set()).add(id(cache.array))
            assert cache.has_room != cache.is_cross
    assert {len(seen) for name, seen in buffers.items() if ".encoder." in name} == {1}, "computed once"
    assert {len(seen) for name, seen in buffers.items() if ".decoder." in name} == {2}, "grown once"
    assert compiled == []


def test_beams_of_all_forms_agree_and_their_sources_stay(folders: dict[str, Path]) -> None:
    config = GenerationConfig(num_beams=4, num_return_sequences=3, eos_token_id=(3,))
    found = []
    for folder in folders.values():
        model = opened(folder)
        found.append(generate(model, model.read(SOURCES), config, max_new_tokens=12))
    assert len(found[0].sequences) == 9
    for other in found[1:]:
        assert [row.tolist() for row in other.sequences] == [row.tolist() for row in found[0].sequences]
        np.testing.assert_allclose(other.scores, found[0].scores, rtol=1e-4)  # type: ignore[arg-type]
    one = opened(folders["merged"])
    alone = generate(one, one.read(SOURCES[1:2]), config, max_new_tokens=12)
    assert [row.tolist() for row in alone.sequences] == [row.tolist() for row in found[0].sequences[3:6]]


def test_several_samples_of_each_source(folders: dict[str, Path]) -> None:
    model = opened(folders["merged"])
    config = GenerationConfig(do_sample=True, num_return_sequences=3, seed=5)
    found = generate(model, model.read(SOURCES[:2]), config, max_new_tokens=8)
    assert len(found.sequences) == 6
    assert all(int(row.min()) >= 0 and int(row.max()) < VOCABULARY for row in found.sequences)


def test_settings_of_the_beginning_and_the_end(folders: dict[str, Path], wanted: list[list[int]]) -> None:
    model = opened(folders["merged"])
    first, second = wanted[0][:2]

    def text(**changes: Any) -> list[int]:
        found: list[int] = generate(model, model.read(SOURCES[:1]), max_new_tokens=6, **changes).new_tokens[0].tolist()
        return found

    assert text(forced_bos_token_id=17)[0] == 17
    assert text(forced_eos_token_id=(3,))[-1] == 3
    assert text(forced_eos_token_id=3, num_beams=2)[-1] == 3
    assert text(begin_suppress_tokens=(first,))[0] != first
    assert first not in text(suppress_tokens=(first,))
    assert text(bad_words_ids=((first, second),))[:2] != [first, second]
    assert first not in text(bad_words_ids=((first,),), num_beams=2)


class Letters:
    """A tokenizer: a letter is its place in the alphabet, behind the special tokens."""

    @classmethod
    def from_file(cls, path: str) -> Letters:
        return cls()

    def encode(self, text: str) -> Any:
        return SimpleNamespace(ids=[ord(letter) - 65 for letter in text])

    def decode(self, tokens: list[int], skip_special_tokens: bool = True) -> str:
        return "".join(chr(65 + token) for token in tokens)


@pytest.fixture(autouse=True)
def tokenizers(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("tokenizers")
    module.Tokenizer = Letters  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tokenizers", module)


def test_text_from_a_folder(folders: dict[str, Path], wanted: list[list[int]], capsys: pytest.CaptureFixture[str]) -> None:
    prompt = "".join(chr(65 + token) for token in SOURCES[0])
    text = Letters().decode(wanted[0][:9])
    model = TextGenerator.from_folder(folders["split"])
    assert "".join(model.stream(prompt, max_new_tokens=9, eos_token_id=())) == text
    assert model.generate([prompt, "HI"], max_new_tokens=9, eos_token_id=())[0] == text
    assert main(["generate", str(folders["merged"]), "--prompt", prompt, "--max-new-tokens", "9", "--min-new-tokens", "9"]) == 0
    assert len(capsys.readouterr().out) >= 9
    assert main(["generate", str(folders["merged"]), "--prompt", prompt, "--num-beams", "2", "--max-new-tokens", "4"]) == 0


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("speech")
    tokens = {
        "lang_to_id": {"<|en|>": 20, "<|de|>": 21},
        "task_to_id": {"transcribe": 22, "translate": 23},
        "is_multilingual": True,
        "no_timestamps_token_id": 24,
    }
    folder = write_folder(root / "whisper", "merged", speech=True, **tokens)
    write_folder(root / "plain", "pastless", speech=True)
    how = {"n_fft": 16, "hop_length": 8, "feature_size": FEATURES, "sampling_rate": 1000, "chunk_length": 1}
    (folder / "preprocessor_config.json").write_text(json.dumps(how))
    with wave.open(str(root / "sound.wav"), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(2000)
        file.writeframes((np.random.default_rng(0).standard_normal(5000) * 9000).astype("<i2").tobytes())
    return folder


def test_speech(whisper: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sardonyx.generation import log_mel, read_sound

    model = SpeechReader.from_folder(whisper)
    sound = read_sound(whisper.parent / "sound.wav", model.speech.rate)
    assert len(sound) == 1250
    pieces = [log_mel(sound[at : at + 1000], model.speech) for at in (0, 1000)]
    plain = whisper.parent / "plain"
    texts = [Letters().decode(greedy_by_hand(plain, features, 6, [1, 21, 23, 24])) for features in pieces]
    settings: dict[str, Any] = {"max_new_tokens": 6, "eos_token_id": ()}
    assert "".join(model.stream(sound, language="de", task="translate", **settings)) == "".join(texts)
    assert model.transcribe(sound, language="de", task="translate", **settings) == "".join(texts)
    heard = model.transcribe(sound, **settings)
    assert heard in (model.transcribe(sound, language="de", **settings), model.transcribe(sound, language="en", **settings))
    arguments = [
        "generate",
        str(whisper),
        "--audio",
        str(whisper.parent / "sound.wav"),
        "--language",
        "en",
        "--max-new-tokens",
        "4",
    ]
    assert main(arguments) == 0
    assert capsys.readouterr().out.strip()
    with pytest.raises(errors.InvalidArgument, match="language 'fr': the model knows en, de"):
        model.transcribe(sound, language="fr")
    with pytest.raises(errors.InvalidArgument, match="expected finite samples"):
        model.transcribe(np.full(10, np.nan))


def test_what_does_not_fit_is_refused(folders: dict[str, Path], whisper: Path, tmp_path: Path) -> None:
    model = opened(folders["merged"])
    with pytest.raises(errors.InvalidArgument, match="nothing has been read"):
        model.begin([[1]])
    with pytest.raises(errors.InvalidArgument, match=r"source 1 has the shape \(0,\)"):
        model.read([[1], []])
    with pytest.raises(errors.InvalidArgument, match="row 0 has the token 40"):
        model.read([[40]])
    with pytest.raises(errors.InvalidArgument, match="attention_mask has the shape"):
        model.read([[1, 2]], [[1]])
    model.read(SOURCES[:2])
    with pytest.raises(errors.InvalidArgument, match="texts begin with 1, 2 tokens for 2 sources"):
        model.begin([[1], [1, 2]])
    with pytest.raises(errors.InvalidArgument, match="has no model of speech"):
        SpeechReader.from_folder(folders["merged"])
    with pytest.raises(errors.InvalidArgument, match=r"the encoder has the inputs .*: expected one"):
        EncoderDecoder(folders["split"] / "decoder_model.onnx", folders["split"] / "decoder_model.onnx")
    speech = opened(whisper)
    with pytest.raises(errors.InvalidArgument, match=r"input_features has the shape \[2, 2\]"):
        speech.read(np.ones((2, 2), np.float32))
    (tmp_path / "noise.wav").write_bytes(b"RIFF")
    assert main(["generate", str(whisper), "--audio", str(tmp_path / "noise.wav")]) != 0
    assert main(["generate", str(whisper), "--prompt", "x", "--language", "en"]) != 0
