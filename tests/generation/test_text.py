"""Folders of exported models, and text in and out; the tokenizer is a stand-in."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from small_decoders import decoder_file, greedy_by_hand

from sardonyx import errors
from sardonyx.cli.main import main
from sardonyx.generation import TextGenerator, read_folder


class Letters:
    """A tokenizer: a letter is its number; 'ß' takes two tokens."""

    @classmethod
    def from_file(cls, path: str) -> Letters:
        assert Path(path).is_file()
        return cls()

    def encode(self, text: str) -> Any:
        return SimpleNamespace(ids=[token for letter in text for token in ([126, 127] if letter == "ß" else [ord(letter)])])

    def decode(self, tokens: list[int], skip_special_tokens: bool = True) -> str:
        return "".join(map(chr, tokens)).replace("\x7e\x7f", "ß").replace("\x7e", "\ufffd")


@pytest.fixture(scope="module")
def optimum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("optimum")
    decoder_file(folder, "plain").rename(folder / "model.onnx")
    (folder / "config.json").write_text(json.dumps({"num_attention_heads": 4, "hidden_size": 64, "max_position_embeddings": 512}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 3, "max_length": 20, "temperature": 0.6}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def genai(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("genai")
    decoder_file(folder, "grouped").rename(folder / "decoder.onnx")
    decoder = {
        "filename": "decoder.onnx",
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "head_size": 16,
        "inputs": {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"},
        "outputs": {"present_key_names": "present.%d.key", "present_value_names": "present.%d.value"},
    }
    model = {"decoder": decoder, "eos_token_id": [3, 4], "pad_token_id": 0, "bos_token_id": 1, "context_length": 64}
    (folder / "genai_config.json").write_text(json.dumps({"model": model, "search": {"top_k": 1, "do_sample": False}}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture(autouse=True)
def tokenizers(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("tokenizers")
    module.Tokenizer = Letters  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tokenizers", module)


def test_text_of_both_kinds_of_folders_is_the_same(optimum: Path, genai: Path) -> None:
    tokens = greedy_by_hand(optimum / "model.onnx", [ord(letter) for letter in "Hello"], 30)
    ends = tokens.index(3) if 3 in tokens else len(tokens)
    wanted = Letters().decode(tokens[:ends])
    for folder in (optimum, genai):
        model = TextGenerator.from_folder(folder)
        pieces = list(model.stream("Hello", max_new_tokens=30))
        assert "".join(pieces) == wanted
        assert model.generate(["Hello", "Hi"], max_new_tokens=30)[0] == wanted


def test_what_folders_say(optimum: Path, genai: Path) -> None:
    first, second = read_folder(optimum), read_folder(genai)
    assert first.config.eos_token_id == (3,)
    assert (first.config.temperature, first.config.max_length, first.context) == (1.0, 0, 512)
    assert first.sizes == {"num_key_value_heads": 4, "head_dim": 16}
    assert second.model.name == "decoder.onnx"
    assert second.caches is not None
    assert second.caches["past_key_values.1.value"] == "present.1.value"
    assert (second.config.eos_token_id, second.context, second.bos_token_id) == ((3, 4), 64, 1)


def test_the_context_is_not_exceeded(genai: Path) -> None:
    model = TextGenerator.from_folder(genai)
    (text,) = model.generate("a" * 60, max_new_tokens=30, eos_token_id=())
    assert len(model.encode(text)) == 4
    with pytest.raises(errors.InvalidArgument, match="the prompt has 64 tokens, the model reads at most 64"):
        model.generate("a" * 64)
    assert model.encode("") == [1]


class Spelling:
    """Stands for a decoder: spells a text."""

    def __init__(self, text: str) -> None:
        self.tokens = [*Letters().encode(text).ids, 0]
        self.at = 0

    def begin(self, prompts: Any) -> Any:
        self.at = -1
        return self.extend([0])

    def extend(self, tokens: Any) -> Any:
        import numpy as np

        self.at += 1
        return np.eye(128, dtype=np.float32)[[self.tokens[self.at]]]

    def reorder(self, rows: Any) -> None:
        raise AssertionError


def _spelled(text: str, stop: list[str]) -> list[str]:
    model = TextGenerator(Spelling(text), Letters())  # type: ignore[arg-type]
    return list(model.stream("x", stop=stop, max_new_tokens=40, eos_token_id=0))


def test_half_characters_and_beginnings_of_stop_texts_are_held_back() -> None:
    assert _spelled("aßb", []) == ["a", "ß", "b"]
    assert _spelled("one END two", ["END"]) == ["o", "n", "e", " "]
    assert _spelled("an ENd", ["END"]) == ["a", "n", " ", "ENd"]
    assert _spelled("cut EN", ["END"]) == ["c", "u", "t", " ", "EN"]


def test_the_command_writes_text(optimum: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = "".join(TextGenerator.from_folder(optimum).stream("Hello", max_new_tokens=12))
    assert main(["generate", str(optimum), "--prompt", "Hello", "--max-new-tokens", "12", "--stats"]) == 0
    captured = capsys.readouterr()
    assert captured.out.rstrip("\n") == wanted.rstrip("\n")
    assert "tokens/s" in captured.err
    texts = []
    for _ in range(2):
        assert main(["generate", str(optimum), "--prompt", "Hi", "--sample", "--seed", "3", "--max-new-tokens", "8"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert main(["generate", str(optimum), "--prompt", "Hi", "--num-beams", "3", "--max-new-tokens", "8"]) == 0


def test_what_is_missing_is_named(optimum: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.NoSuchFile, match="is no folder"):
        read_folder(tmp_path / "nowhere")
    with pytest.raises(errors.NoSuchFile, match=r"has no decoder: looked for model.onnx"):
        read_folder(tmp_path)
    (tmp_path / "genai_config.json").write_text("{}")
    with pytest.raises(errors.NoSuchFile, match=r"which genai_config.json names as the decoder"):
        read_folder(tmp_path)
    (tmp_path / "genai_config.json").write_text("[")
    with pytest.raises(errors.InvalidArgument, match=r"genai_config.json"):
        read_folder(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(errors.InvalidArgument, match="the package `tokenizers` is not installed") as caught:
        TextGenerator.from_folder(optimum)
    assert "pip install tokenizers" in caught.value.hint
