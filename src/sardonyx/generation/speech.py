"""Speech in, text out: Whisper and models like it.

    reader = SpeechReader.from_folder("whisper-onnx")
    for piece in reader.stream(read_sound("speech.wav"), language="de"):
        print(piece, end="", flush=True)

Sound is cut into what the model hears at a time, half a minute, and each piece is written down by itself. A model of many
languages finds out which one it hears in the first piece, if nobody says it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sardonyx.errors import InvalidArgument
from sardonyx.generation.encoder_decoder import EncoderDecoder
from sardonyx.generation.features import SpeechSettings, log_mel
from sardonyx.generation.folder import read_folder
from sardonyx.generation.text import TextGenerator, load_tokenizer, open_decoder
from sardonyx.options import SessionOptions

Array = np.ndarray[Any, Any]


class SpeechReader:
    """A model of speech, which writes text; `speech` says how it hears."""

    def __init__(self, text: TextGenerator, model: EncoderDecoder, speech: SpeechSettings) -> None:
        self.text = text
        self.model = model
        self.speech = speech

    @classmethod
    def from_folder(
        cls, path: str | os.PathLike[str], options: SessionOptions | None = None, *, model: str = "", room: int = 0
    ) -> SpeechReader:
        """Open an exported folder (see `folder`)."""
        folder = read_folder(path, model=model)
        decoder = open_decoder(folder, options, room=room)
        if not isinstance(decoder, EncoderDecoder) or decoder.reads_tokens or folder.speech is None:
            raise InvalidArgument(
                f"{folder.path} has no model of speech: expected encoder_model.onnx with the input input_features, and "
                "preprocessor_config.json with n_fft",
                hint="give text to TextGenerator",
            )
        text = TextGenerator(decoder, load_tokenizer(folder), folder.config, context=folder.context)
        return cls(text, decoder, folder.speech)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        return self.text.encode(text)

    def stream(
        self, sound: Any, *, language: str = "", task: str = "", stop: Sequence[str] = (), **changes: Any
    ) -> Iterator[str]:
        """Pieces of the text of a sound: samples at the model's rate."""
        for features in self._pieces_of(sound):
            begins = self._begin(features, language, task)
            language = language or self._language_of(begins)
            yield from self.text.stream_after(begins, stop, changes)

    def transcribe(self, sound: Any, *, language: str = "", task: str = "", stop: Sequence[str] = (), **changes: Any) -> str:
        """The text of a sound."""
        texts = []
        for features in self._pieces_of(sound):
            begins = self._begin(features, language, task)
            language = language or self._language_of(begins)
            texts.append(self.text.generate_after([begins], stop, changes)[0])
        return "".join(texts)

    def _pieces_of(self, sound: Any) -> Iterator[Array]:
        samples = np.asarray(sound)
        size = self.speech.seconds * self.speech.rate
        for start in range(0, max(len(samples), 1), size):
            yield log_mel(samples[start : start + size], self.speech)

    def _begin(self, features: Array, language: str, task: str) -> list[int]:
        """What decoding begins with: <|startoftranscript|>, language, task, <|notimestamps|>, as far as the model has them."""
        how, starts = self.speech, self.model.starts.tolist()
        prompts = self.model.read(features)
        more: list[int] = []
        if how.languages:
            more += [self._choice("language", language, how.languages) if language else self._heard(prompts)]
            more += [self._choice("task", task or "transcribe", how.tasks)] if how.tasks else []
        elif language or task not in ("", "transcribe"):
            raise InvalidArgument(f"language {language!r}, task {task!r}: the model knows one language, which it transcribes")
        if how.no_timestamps is not None:
            more.append(how.no_timestamps)
        return [*starts, *more]

    def _choice(self, name: str, given: str, known: Any) -> int:
        if given not in known:
            raise InvalidArgument(f"{name} {given!r}: the model knows {', '.join(known)}")
        return int(known[given])

    def _heard(self, prompts: Sequence[Array]) -> int:
        """The token of the language that is most likely."""
        logits = self.model.begin(prompts)[0]
        tokens = list(self.speech.languages.values())
        return tokens[int(np.argmax(logits[tokens]))]

    def _language_of(self, tokens: Sequence[int]) -> str:
        names = {token: name for name, token in self.speech.languages.items()}
        return next((names[token] for token in tokens if token in names), "")
