"""Folders of exported models: which file is the decoder, how its caches are called, how text is generated.

genai_config.json                              written by onnxruntime-genai's builder
config.json, generation_config.json            written by optimum and others, beside or above onnx/

model.onnx, decoder_model_merged.onnx, decoder_model.onnx with decoder_with_past_model.onnx: what the file is called
encoder_model.onnx beside it                   an encoder, whose source the decoder writes about
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sardonyx.decoding.config import GenerationConfig, from_mapping
from sardonyx.errors import InvalidArgument, NoSuchFile
from sardonyx.generation.features import SpeechSettings, read_settings
from sardonyx.records import dataclass

_MODELS: Final = ("model.onnx", "decoder_model_merged.onnx", "decoder_with_past_model.onnx", "decoder_model.onnx")
_PROMPT_MODEL: Final = "decoder_model.onnx"  # of older exports: what reads prompts for decoder_with_past_model.onnx
_ENCODER: Final = "encoder_model.onnx"
_LIMITS: Final = ("max_target_positions", "max_position_embeddings", "n_positions")  # the last means something else with encoders
_SHORT: Final = {"eos_token_id", "pad_token_id", "bos_token_id"}


@dataclass(frozen=True)
class ModelFolder:
    """What a folder says about its decoder."""

    path: Path
    model: Path
    config: GenerationConfig
    caches: Mapping[str, str] | None = None  # past -> present, where the folder names them
    sizes: Mapping[str, int] | None = None  # num_key_value_heads, head_dim
    prompt_model: Path | None = None
    context: int = 0  # the longest text, prompt included; 0: not known
    bos_token_id: int | None = None
    encoder: Path | None = None
    start: int | None = None  # the token that decoding begins with, of models with an encoder
    speech: SpeechSettings | None = None  # of models that listen: how sound becomes features, and which languages they know

    @property
    def tokenizer(self) -> Path:
        """The file of the tokenizer; it may be missing."""
        return self.path / "tokenizer.json"


def read_folder(path: str | os.PathLike[str], *, model: str = "") -> ModelFolder:
    """Look at a folder; `model` names the file of the decoder, if it has an unusual name."""
    folder = Path(path)
    if not folder.is_dir():
        raise NoSuchFile(f"{os.fspath(path)!r} is no folder", hint="give the folder that an exporter has written")
    genai = _json(folder / "genai_config.json")
    return _of_genai(folder, genai, model) if genai is not None else _of_transformers(folder, model)


def _json(path: Path) -> dict[str, Any] | None:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"{path}: {error}", hint="the file should hold one JSON object") from None
    if not isinstance(found, dict):
        raise InvalidArgument(f"{path} holds {type(found).__name__}: expected a JSON object")
    return found


def _of_genai(folder: Path, given: Mapping[str, Any], model: str) -> ModelFolder:
    about = given.get("model", {})
    decoder = about.get("decoder", {})
    file = folder / (model or decoder.get("filename", "model.onnx"))
    if not file.is_file():
        raise NoSuchFile(f"{file} is missing, which genai_config.json names as the decoder")
    inputs, outputs = decoder.get("inputs", {}), decoder.get("outputs", {})
    caches: dict[str, str] = {}
    for layer in range(int(decoder.get("num_hidden_layers", 0))):
        for kind in ("key", "value"):
            past, present = inputs.get(f"past_{kind}_names"), outputs.get(f"present_{kind}_names")
            if past and present:
                caches[past.replace("%d", str(layer))] = present.replace("%d", str(layer))
    search = {name: value for name, value in given.get("search", {}).items() if name not in ("max_length", "min_length")}
    settings = {**search, **{name: about.get(name) for name in _SHORT}}
    sizes = {"num_key_value_heads": decoder.get("num_key_value_heads"), "head_dim": decoder.get("head_size")}
    return ModelFolder(
        folder,
        file,
        _config(settings),
        caches or None,
        {name: int(value) for name, value in sizes.items() if value},
        None,
        int(about.get("context_length", 0)),
        _first(about.get("bos_token_id")),
    )


def _of_transformers(folder: Path, model: str) -> ModelFolder:
    folders = [folder, folder / "onnx"]
    files = [each / name for each in folders for name in ((model,) if model else _MODELS)]
    file = next((each for each in files if each.is_file()), None)
    if file is None:
        listed = ", ".join(sorted(each.name for each in folder.iterdir())[:12])
        raise NoSuchFile(
            f"{folder} has no decoder: looked for {', '.join((model,) if model else _MODELS)}, there and in onnx/",
            hint=f"it has {listed}" if listed else "it is empty",
        )
    about = {**(_json(folder / "config.json") or {})}
    about = {**about, **about.get("text_config", {}), **(about.get("decoder") or {})}
    settings = {**about, **(_json(folder / "generation_config.json") or {})}
    for name in ("max_length", "min_length"):  # of the transformers library's own loop: 20 and 0
        settings.pop(name, None)
    heads = _either(about, "decoder_attention_heads", "num_attention_heads", "n_head", "num_heads")
    width = _either(about, "d_model", "hidden_size", "n_embd")
    size = _either(about, "head_dim", "d_kv") or (width // heads if width and heads else None)
    sizes = {"num_key_value_heads": about.get("num_key_value_heads") or heads, "head_dim": size}
    prompt = file.with_name(_PROMPT_MODEL) if file.name == "decoder_with_past_model.onnx" else None
    encoder = file.with_name(_ENCODER)
    prepared = _json(folder / "preprocessor_config.json")
    return ModelFolder(
        folder,
        file,
        _config(settings),
        None,
        {name: int(value) for name, value in sizes.items() if value},
        prompt if prompt is not None and prompt.is_file() else None,
        int(_either(about, *_LIMITS[: 2 if encoder.is_file() else 3]) or 0),
        _first(settings.get("bos_token_id")),
        encoder if encoder.is_file() else None,
        _first(_either(settings, "decoder_start_token_id", "bos_token_id")),
        None if prepared is None or "n_fft" not in prepared else read_settings(prepared, settings),
    )


def _either(given: Mapping[str, Any], *names: str) -> Any:
    """What is said under the first of these names."""
    return next((given[name] for name in names if given.get(name) is not None), None)


def _config(settings: Mapping[str, Any]) -> GenerationConfig:
    """Settings of a file; what would be drawn by chance stays off where the file does not sample."""
    given = dict(settings)
    if not given.get("do_sample"):
        for name in ("temperature", "top_k", "top_p", "min_p", "num_return_sequences"):
            given.pop(name, None)
    if given.get("temperature") == 0:
        given.pop("temperature")
        given["do_sample"] = False
    return from_mapping(given)


def _first(given: Any) -> int | None:
    found = given[0] if isinstance(given, list) and given else given
    return int(found) if isinstance(found, int) else None
