"""Exported language models generate what transformers generates: greedy and with beams, GPT-2 and Llama with grouped heads."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from sardonyx.generation import TextGenerator, generate

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
