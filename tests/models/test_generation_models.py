"""Exported language models generate what transformers generates, by beams too: decoders, encoders with decoders, speech."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sardonyx.generation import EncoderDecoder, SpeechReader, TextGenerator, generate, log_mel

pytest.importorskip("optimum.exporters.onnx", reason="`make models` installs optimum")

from transformer_clients import SENTENCES, saved

_ENDS = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}


def _gpt2(vocabulary: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}
    return GPT2LMHeadModel(GPT2Config(vocab_size=vocabulary, initializer_range=0.3, **sizes, **_ENDS))


def _llama(vocabulary: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
    }
    config = LlamaConfig(vocab_size=vocabulary, max_position_embeddings=64, initializer_range=0.3, **sizes, **_ENDS)
    return LlamaForCausalLM(config)


@pytest.mark.parametrize("make", [_gpt2, _llama])
def test_an_exported_model_generates_what_transformers_does(make: Any, tmp_path: Path) -> None:
    from optimum.exporters.onnx import main_export
    from transformers import AutoModelForCausalLM

    source, target = tmp_path / "source", tmp_path / "onnx"
    words = saved(make, str(source))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        main_export(str(source), str(target), task="text-generation-with-past")
        theirs = AutoModelForCausalLM.from_pretrained(source).eval()
    ours = TextGenerator.from_folder(target)
    for sentence in SENTENCES:
        batch = words([sentence], return_tensors="pt", return_token_type_ids=False)
        tokens = ours.encode(sentence)
        assert tokens == batch["input_ids"][0].tolist()
        for beams in (1, 3):
            lengths = {"max_new_tokens": 16, "min_new_tokens": 16}
            wanted = theirs.generate(**batch, num_beams=beams, do_sample=False, **lengths)[0].tolist()
            found = generate(ours.decoder, tokens, ours.config, num_beams=beams, **lengths)  # type: ignore[arg-type]
            assert found.sequences[0].tolist() == wanted
        pieces = list(ours.stream(sentence, max_new_tokens=16))
        assert "".join(pieces) == ours.generate(sentence, max_new_tokens=16)[0]
    assert all(cache.has_room for cache in ours.decoder._caches)


_LAYERS = {
    f"{part}_{name}": size
    for part in ("encoder", "decoder")
    for name, size in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 64))
}


def _t5(vocabulary: int) -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "initializer_factor": 3.0}
    ends = {"decoder_start_token_id": 0, "eos_token_id": 3, "pad_token_id": 0}
    return T5ForConditionalGeneration(T5Config(vocab_size=vocabulary, **sizes, **ends))


def _bart(vocabulary: int) -> Any:
    from transformers import BartConfig, BartForConditionalGeneration

    sizes = {"d_model": 32, "max_position_embeddings": 64, "init_std": 0.3, **_LAYERS}
    ends = {"decoder_start_token_id": 3, "forced_eos_token_id": None, **_ENDS}
    model = BartForConditionalGeneration(BartConfig(vocab_size=vocabulary, **sizes, **ends))
    model.generation_config.forced_bos_token_id, model.generation_config.forced_eos_token_id = 2, 3
    return model


def _marian(vocabulary: int) -> Any:
    from transformers import MarianConfig, MarianMTModel

    sizes = {"d_model": 32, "max_position_embeddings": 64, "init_std": 0.3, **_LAYERS}
    ends = {**_ENDS, "decoder_start_token_id": 0, "forced_eos_token_id": None}
    model = MarianMTModel(MarianConfig(vocab_size=vocabulary, **sizes, **ends))
    model.generation_config.bad_words_ids = [[0]]
    return model


@pytest.mark.parametrize("make", [_t5, _bart, _marian])
def test_an_exported_encoder_and_decoder_generate_what_transformers_does(make: Any, tmp_path: Path) -> None:
    from optimum.exporters.onnx import main_export
    from transformers import AutoModelForSeq2SeqLM

    source, target = tmp_path / "source", tmp_path / "onnx"
    words = saved(make, str(source))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        main_export(str(source), str(target), task="text2text-generation-with-past")
        theirs = AutoModelForSeq2SeqLM.from_pretrained(source).eval()
    for merged in (True, False):
        if not merged:
            (target / "decoder_model_merged.onnx").unlink()
        ours = TextGenerator.from_folder(target)
        assert isinstance(ours.decoder, EncoderDecoder)
        batch = words(SENTENCES, padding=True, return_tensors="pt", return_token_type_ids=False)
        rows = [ours.encode(sentence) for sentence in SENTENCES]
        for settings in ({}, {"num_beams": 3}, {"num_beams": 4, "num_return_sequences": 2}, {"min_new_tokens": 12}):
            wanted = theirs.generate(**batch, max_new_tokens=16, do_sample=False, **settings)
            found = generate(ours.decoder, ours.decoder.read(rows), ours.config, max_new_tokens=16, **settings)  # type: ignore[arg-type]
            assert found.padded().tolist() == wanted.tolist()
        pieces = list(ours.stream(SENTENCES[0], max_new_tokens=16))
        assert "".join(pieces) == ours.generate(SENTENCES[0], max_new_tokens=16)[0]
        assert all(cache.has_room != cache.is_cross for cache in ours.decoder._caches)


def _whisper(vocabulary: int) -> Any:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    ends = {**_ENDS, "decoder_start_token_id": 2, "suppress_tokens": None, "begin_suppress_tokens": None}
    model = WhisperForConditionalGeneration(
        WhisperConfig(
            vocab_size=vocabulary, num_mel_bins=16, d_model=32, init_std=0.3, max_target_positions=64, **_LAYERS, **ends
        )
    )
    model.generation_config.suppress_tokens, model.generation_config.begin_suppress_tokens = [7], [8, 3]
    model.generation_config.is_multilingual = False
    model.generation_config.no_timestamps_token_id = 4
    return model


def test_speech_is_heard_and_written_as_transformers_does(tmp_path: Path) -> None:
    from optimum.exporters.onnx import main_export
    from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

    source, target = tmp_path / "source", tmp_path / "onnx"
    saved(_whisper, str(source))
    WhisperFeatureExtractor(feature_size=16).save_pretrained(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        main_export(str(source), str(target), task="automatic-speech-recognition-with-past")
        theirs = WhisperForConditionalGeneration.from_pretrained(source).eval()
    ours = SpeechReader.from_folder(target)
    sound = np.random.default_rng(0).standard_normal(16000 * 5).astype(np.float32) * 0.1
    features = WhisperFeatureExtractor(feature_size=16)(sound, sampling_rate=16000, return_tensors="pt").input_features
    np.testing.assert_allclose(log_mel(sound, ours.speech), features.numpy(), atol=1e-5)
    for beams in (1, 3):
        wanted = theirs.generate(features, max_new_tokens=12, num_beams=beams, do_sample=False)[0].tolist()
        begins = ours._begin(log_mel(sound, ours.speech), "", "")
        (found,) = generate(ours.model, [begins], ours.text.config, max_new_tokens=12, num_beams=beams).new_tokens
        assert [token for token in found.tolist() if token != 3] == [token for token in wanted if token != 3]
    assert ours.transcribe(sound, max_new_tokens=12) == "".join(ours.stream(sound, max_new_tokens=12))
