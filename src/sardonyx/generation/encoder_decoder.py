"""An encoder and a decoder: T5, BART, Marian, Whisper and the like, in the two or three files that exporters write.

    model = EncoderDecoder("encoder_model.onnx", "decoder_model_merged.onnx", start=0)
    prompts = model.read([[8, 15, 3], [9, 3]])        sources of any lengths; the rows that their texts begin with
    generate(model, prompts, num_beams=4)

The encoder reads a source once. What the decoder makes of it, keys and values for each layer, is computed with the first token
and stays as it is. Sources are rows of tokens, or an array of features, samples or pixels [rows, ...].
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sardonyx import errors
from sardonyx.generation.decoder import Decoder, element_type
from sardonyx.options import SessionOptions
from sardonyx.session.inference_session import InferenceSession

Array = np.ndarray[Any, Any]

_HIDDEN, _MASK = "encoder_hidden_states", "encoder_attention_mask"
_TOKENS: Final = "input_ids"


class EncoderDecoder(Decoder):
    """See the module. `start` is the token, or the tokens, that decoding begins with; the rest is as a decoder has it."""

    def __init__(
        self,
        encoder: str | os.PathLike[str] | bytes,
        decoder: str | os.PathLike[str] | bytes,
        options: SessionOptions | None = None,
        *,
        start: int | Sequence[int] = 0,
        padding: int = 0,
        room: int = 0,
        prompt_model: str | os.PathLike[str] | bytes | None = None,
        sizes: Any = None,
        providers: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(decoder, options, room=room, sizes=sizes, prompt_model=prompt_model, providers=providers)
        source = os.fspath(encoder) if isinstance(encoder, os.PathLike) else encoder
        self.encoder = InferenceSession(source, options, providers)
        self._ports = {port.name: port for port in self.encoder.get_inputs()}
        masks = [name for name in self._ports if name.endswith("attention_mask")]
        inputs = [name for name in self._ports if name not in masks]
        if len(inputs) != 1 or len(masks) > 1:
            raise errors.InvalidArgument(
                f"the encoder has the inputs {', '.join(self._ports)}: expected one, and perhaps its attention_mask"
            )
        self._source, self._source_mask = inputs[0], masks[0] if masks else ""
        self._starts = np.atleast_1d(np.asarray(start, np.int64))
        self._padding_token = padding
        self._encoded: dict[str, Array] = {}  # by the names of the decoder's inputs, a row for each source
        self._origins: Array = np.zeros(0, np.int64)  # the source of each row

    @property
    def reads_tokens(self) -> bool:
        """Whether sources are rows of tokens."""
        return self._source == _TOKENS

    @property
    def starts(self) -> Array:
        """The tokens that decoding begins with."""
        return self._starts

    def read(self, sources: Any, attention_mask: Any = None, *, start: Sequence[int] | None = None) -> list[Array]:
        """Encode sources; the rows that texts begin with, one for each. `start` are other tokens to begin with."""
        given, mask = self._rows(sources, attention_mask) if self.reads_tokens else self._features(sources, attention_mask)
        kind = element_type(self._ports[self._source])
        feeds = {self._source: np.ascontiguousarray(given).astype(kind, copy=False)}
        if self._source_mask:
            feeds[self._source_mask] = mask.astype(element_type(self._ports[self._source_mask]))
        hidden = self.encoder.run(None, feeds)[0]
        # Features become fewer on their way: no mask of theirs fits what comes out.
        seen = mask if mask.shape == hidden.shape[:2] else np.ones(hidden.shape[:2], np.int64)
        self._encoded = {_HIDDEN: hidden, _MASK: seen}
        begins = self._starts if start is None else np.asarray(start, np.int64)
        return [begins for _ in range(len(given))]

    def _rows(self, sources: Any, attention_mask: Any) -> tuple[Array, Array]:
        """Rows of tokens as one array, and which of it is no padding."""
        if attention_mask is not None:
            given, mask = np.asarray(sources), np.asarray(attention_mask)
            if given.shape != mask.shape or given.ndim != 2:
                raise errors.InvalidArgument(f"attention_mask has the shape {mask.shape}, the sources {given.shape}")
            return given, mask
        rows = [np.asarray(row, np.int64) for row in sources]
        for number, row in enumerate(rows):
            if row.ndim != 1 or not row.size:
                raise errors.InvalidArgument(f"source {number} has the shape {row.shape}: expected a row of tokens")
        if not rows:
            raise errors.InvalidArgument("there is no source")
        longest = max(len(row) for row in rows)
        given = np.full((len(rows), longest), self._padding_token, np.int64)
        mask = np.zeros(given.shape, np.int64)
        for number, row in enumerate(rows):
            given[number, : len(row)], mask[number, : len(row)] = row, 1
        self._check_tokens(rows)
        return given, mask

    def _features(self, sources: Any, attention_mask: Any) -> tuple[Array, Array]:
        given = np.asarray(sources)
        rank = len(self._ports[self._source].shape)
        if given.ndim != rank or not given.size:
            raise errors.InvalidArgument(
                f"{self._source} has the shape {list(given.shape)}: expected {self._ports[self._source].shape}"
            )
        mask = np.ones((given.shape[0], given.shape[-1]), np.int64) if attention_mask is None else np.asarray(attention_mask)
        return given, mask

    # What the loop asks for

    def begin(self, prompts: Sequence[Any]) -> Array:
        """Begin texts about the sources that were read last: one for each, or so many for each."""
        if not self._encoded:
            raise errors.InvalidArgument("nothing has been read", hint="generate(model, model.read(sources), ...)")
        sources = len(self._encoded[_HIDDEN])
        if len({len(np.atleast_1d(prompt)) for prompt in prompts}) != 1 or len(prompts) % sources:
            lengths = ", ".join(str(len(np.atleast_1d(prompt))) for prompt in prompts)
            raise errors.InvalidArgument(
                f"texts begin with {lengths} tokens for {sources} sources: expected the same number for each",
                hint="begin with what read() returns",
            )
        self._origins = np.repeat(np.arange(sources), len(prompts) // sources)
        self._context = {name: array[self._origins] for name, array in self._encoded.items()}
        return super().begin(prompts)

    def _reorder_context(self, order: Array) -> None:
        origins = self._origins[order]
        if not np.array_equal(origins, self._origins):  # beams of a text change places: all of them have the same source
            super()._reorder_context(order)
        self._origins = origins
