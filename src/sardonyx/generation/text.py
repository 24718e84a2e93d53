"""Text in, text out: a decoder, or an encoder and a decoder, with its tokenizer.

Tokens are parts of characters, too: text is handed on when the characters of its end are whole. A stop text that may just be
beginning is held back until it is one or not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from sardonyx.decoding.config import GenerationConfig
from sardonyx.errors import InvalidArgument, NoSuchFile
from sardonyx.generation.decoder import Decoder
from sardonyx.generation.encoder_decoder import EncoderDecoder
from sardonyx.generation.folder import ModelFolder, read_folder
from sardonyx.generation.generate import Generation, generate, stream
from sardonyx.options import SessionOptions

_UNFINISHED = "\ufffd"  # what the bytes of half a character decode to


def load_tokenizer(folder: ModelFolder) -> Any:
    """The tokenizer of a folder, by the `tokenizers` package."""
    if not folder.tokenizer.is_file():
        raise NoSuchFile(
            f"{folder.tokenizer} is missing: without it text cannot be made tokens",
            hint="export the tokenizer with the model, or give tokens to sardonyx.generation.generate",
        )
    try:
        from tokenizers import Tokenizer  # lazy: it is optional, and only text needs it
    except ImportError as error:
        raise InvalidArgument(
            "the package `tokenizers` is not installed, which reads tokenizer.json",
            hint="pip install tokenizers, or give tokens to sardonyx.generation.generate",
        ) from error
    return Tokenizer.from_file(os.fspath(folder.tokenizer))


def open_decoder(folder: ModelFolder, options: SessionOptions | None = None, *, room: int = 0) -> Decoder:
    """The decoder of a folder, with its encoder if it has one."""
    if folder.encoder is None:
        return Decoder(
            folder.model, options, caches=folder.caches, room=room, sizes=folder.sizes, prompt_model=folder.prompt_model
        )
    if folder.start is None:
        raise InvalidArgument(f"{folder.path}: neither config.json nor generation_config.json has decoder_start_token_id")
    return EncoderDecoder(
        folder.encoder,
        folder.model,
        options,
        start=folder.start,
        padding=folder.config.pad_token_id or 0,
        room=room,
        prompt_model=folder.prompt_model,
        sizes=folder.sizes,
    )


class TextGenerator:
    """A decoder, its tokenizer and the settings it comes with."""

    def __init__(
        self,
        decoder: Decoder,
        tokenizer: Any,
        config: GenerationConfig | None = None,
        *,
        context: int = 0,
        bos_token_id: int | None = None,
    ) -> None:
        self.decoder = decoder
        self.tokenizer = tokenizer  # has encode(text).ids and decode(ids)
        self.config = config or GenerationConfig()
        self._context = context
        self._bos = bos_token_id

    @classmethod
    def from_folder(
        cls, path: str | os.PathLike[str], options: SessionOptions | None = None, *, model: str = "", room: int = 0
    ) -> TextGenerator:
        """Open an exported folder (see `folder`); `model` names the decoder's file, `room` is what caches have at first."""
        folder = read_folder(path, model=model)
        tokenizer = load_tokenizer(folder)
        decoder = open_decoder(folder, options, room=room)
        return cls(decoder, tokenizer, folder.config, context=folder.context, bos_token_id=folder.bos_token_id)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text; of an empty one the token that begins texts."""
        found: list[int] = list(self.tokenizer.encode(text).ids)
        if not found and self._bos is not None:
            return [self._bos]
        return found

    def stream(self, prompt: str, *, stop: Sequence[str] = (), **changes: Any) -> Iterator[str]:
        """Pieces of the text that follows a prompt; `stop` are texts before which it ends, `changes` settings."""
        return self.stream_after(self._prompts([prompt])[0], stop, changes)

    def _prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """What the decoder begins with: the tokens of texts, or, where an encoder reads those, the token that starts decoding."""
        rows = [self.encode(text) for text in texts]
        if not isinstance(self.decoder, EncoderDecoder):
            return rows
        longest = max((len(row) for row in rows), default=0)
        if self._context and longest > self._context:
            raise InvalidArgument(f"the text has {longest} tokens, the encoder reads at most {self._context}")
        return [row.tolist() for row in self.decoder.read(rows)]

    def stream_after(self, tokens: Sequence[int], stop: Sequence[str], changes: dict[str, Any]) -> Iterator[str]:
        """Pieces of the text that follows tokens."""
        settings = self._settings(tokens, changes)
        made: list[int] = []
        sent = 0
        for step in stream(self.decoder, [tokens], settings):
            token = int(step.tokens[0])
            if token in settings.eos_token_id:
                break
            made.append(token)
            text = self._decode(made)
            end, held = _cut(text, stop)
            if end is not None:
                if end > sent:
                    yield text[sent:end]
                return
            if held > sent and not text.endswith(_UNFINISHED):
                yield text[sent:held]
                sent = held
        text = self._decode(made)
        if len(text) > sent:
            yield text[sent:]

    def generate(self, prompts: str | Sequence[str], *, stop: Sequence[str] = (), **changes: Any) -> list[str]:
        """The texts that follow prompts, `num_return_sequences` for each."""
        given = [prompts] if isinstance(prompts, str) else list(prompts)
        return self.generate_after(self._prompts(given), stop, changes)

    def generate_after(self, rows: Sequence[Sequence[int]], stop: Sequence[str], changes: dict[str, Any]) -> list[str]:
        """The texts that follow rows of tokens."""
        settings = self._settings(max(rows, key=len, default=[]), changes)
        result: Generation = generate(self.decoder, rows, settings)
        texts = []
        for row in result.new_tokens:
            text = self._decode([int(token) for token in row if int(token) not in settings.eos_token_id])
            end, _ = _cut(text, stop)
            texts.append(text if end is None else text[:end])
        return texts

    def _settings(self, tokens: Sequence[int], changes: dict[str, Any]) -> GenerationConfig:
        settings = self.config.with_changes(**changes)
        if self._context and len(tokens) >= self._context:
            raise InvalidArgument(f"the prompt has {len(tokens)} tokens, the model reads at most {self._context}")
        if self._context and settings.longest(len(tokens)) > self._context:
            settings = settings.with_changes(max_new_tokens=self._context - len(tokens))
        return settings

    def _decode(self, tokens: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text


def _cut(text: str, stop: Sequence[str]) -> tuple[int | None, int]:
    """Where a stop text begins, if one is there; and how much of the text cannot be the beginning of one."""
    found = [text.find(each) for each in stop if each]
    ends = [at for at in found if at >= 0]
    if ends:
        return min(ends), min(ends)
    held = len(text)
    for each in stop:
        for size in range(min(len(each) - 1, len(text)), 0, -1):
            if text.endswith(each[:size]):
                held = min(held, len(text) - size)
                break
    return None, held
