"""Graphs that GreedySearch, Sampling, BeamSearch and WhisperBeamSearch run token by token, as models of `sardonyx.decoding`.

GPT-2 form      input_ids, position_ids, attention_mask, past_0, ... -> logits, present_0, ...
                A past is [2, rows, heads, length, size]. Another graph, `init_decoder`, may read the prompt.
T5 form         encoder: encoder_input_ids, encoder_attention_mask -> present_key_cross_0, present_value_cross_0, ...
                or, with decoder_input_ids, -> logits, encoder_hidden_states, the selves' presents, the crosses' presents
                decoder: input_ids, [encoder_input_ids,] encoder_attention_mask, [encoder_hidden_states,] the selves' pasts, the
                crosses' -> logits, the selves' presents
Whisper form    the same without encoder_attention_mask, of encoders that take decoder_input_ids

What the encoder says of its source, the cross keys and values, is computed once. A decoder whose input_ids are declared
[rows, 1] is given new tokens, another one whole sequences, as ONNX Runtime does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ir.types import TensorType
from sardonyx.ops.interruption import stop_if_asked

Body = Callable[..., list[Any]]

_DECODER_INPUTS: Final = 3  # of the GPT-2 form, before the pasts


class GptDecoder:
    """A decoder graph and what it has read."""

    def __init__(self, decoder: Body, first: Body | None, ids: Array, mask: Array | None, padding: int, vocabulary: int) -> None:
        self._decoder, self._first = decoder, first or decoder
        self._ids = ids
        self._mask = (ids != padding).astype(np.int32) if mask is None else mask.astype(np.int32)
        if self._mask.shape != ids.shape:
            raise ValueError(f"attention_mask has the shape {self._mask.shape}, input_ids {ids.shape}")
        self._vocabulary = vocabulary
        self._lengths = self._mask.sum(axis=1, dtype=np.int32)
        self._pasts: list[Array] = []

    def begin(self, prompts: Sequence[Array]) -> Array:
        """Read the prompts; they are what the object was made with."""
        rows = len(self._ids)
        types = _types(self._first)[_DECODER_INPUTS:]
        self._pasts = [np.zeros(_past_shape(each, rows), each.dtype.numpy) for each in types]
        positions = np.where(self._mask, np.cumsum(self._mask, axis=1, dtype=np.int32) - 1, 0)
        return self._run(self._first, self._ids, positions.astype(np.int32))

    def extend(self, tokens: Array) -> Array:
        """Read one more token for each row."""
        stop_if_asked()
        positions = self._lengths[:, None]
        self._lengths = self._lengths + 1
        self._mask = np.concatenate([self._mask, np.ones((len(self._mask), 1), np.int32)], axis=1)
        return self._run(self._decoder, np.asarray(tokens).reshape(-1, 1), positions)

    def reorder(self, rows: Array) -> None:
        """Go on with these rows."""
        self._pasts = [np.ascontiguousarray(past[:, rows]) for past in self._pasts]
        self._mask, self._lengths = self._mask[rows], self._lengths[rows]

    def _run(self, body: Body, ids: Array, positions: Array) -> Array:
        given = _typed((ids, positions, self._mask), _types(body))
        logits, *presents = body(*given, *self._pasts)
        self._pasts = _successors(self._pasts, presents, length=3)
        return _last(logits, self._vocabulary)


class EncoderFeeds(NamedTuple):
    """What an encoder reads, and what texts begin with."""

    given: Array  # tokens or features
    mask: Array | None  # 0: padding; None: the form has no mask
    starts: Array  # [rows, length]


class SearchedPair:
    """An encoder graph, a decoder graph, and what the decoder has written."""

    def __init__(self, encoder: Body, decoder: Body, source: EncoderFeeds, vocabulary: int) -> None:
        self._encoder, self._decoder, self._source = encoder, decoder, source
        self._vocabulary = vocabulary
        self._tokens = source.starts
        self._feeds: list[Array] = []  # of the decoder, behind input_ids and before the pasts
        self._selves: list[Array] = []
        self._crosses: list[Array] = []
        self.first_logits: Array | None = None  # of all tokens that texts begin with, [rows, length, vocabulary]
        shape = _shape(_types(decoder)[0] if _types(decoder) else None)
        self._reads_new_tokens = shape is not None and len(shape) == 2 and shape[1] == 1

    def begin(self, prompts: Sequence[Array]) -> Array:
        """Read the source; texts begin as the object was told."""
        source, types = self._source, _types(self._encoder)
        given = [source.given, *(() if source.mask is None else (source.mask,))]
        decodes = len(types) == len(given) + 1
        if len(types) not in (len(given), len(given) + 1):
            raise ValueError(f"the encoder takes {len(types)} inputs: expected {len(given)} or {len(given) + 1}")
        if isinstance(types[0], TensorType) and types[0].dtype.numpy.kind != source.given.dtype.kind:
            raise ValueError(f"the encoder reads {types[0]}, but was given {source.given.dtype} {list(source.given.shape)}")
        outputs = self._encoder(*_typed((*given, *((source.starts,) if decodes else ())), types))
        self._take(outputs, given, decodes=decodes)
        if decodes:
            self.first_logits = np.asarray(outputs[0])
            return _last(outputs[0], self._vocabulary)
        return self._run(self._tokens)

    def _take(self, outputs: list[Any], given: list[Array], *, decodes: bool) -> None:
        """Divide what the encoder gave: hidden states, the selves' presents, the crosses' presents."""
        count = len(outputs) - (2 if decodes else 0)
        group = 4 if decodes else 2  # for each layer
        if count < group or count % group:
            raise ValueError(f"the encoder gives {len(outputs)} outputs: expected {'2 + 4' if decodes else '2'} for each layer")
        layers = count // group
        types = _types(self._decoder)
        between = types[1 : max(len(types) - 4 * layers, 1)]  # input_ids and the pasts
        integers = [each for each in between if isinstance(each, TensorType) and each.dtype.numpy.kind in "iu"]
        hidden = [np.asarray(outputs[1])] if decodes else []
        self._feeds = [*given[len(given) - len(integers) :], *hidden[: len(between) - len(integers)]]
        if len(types) != 1 + len(self._feeds) + 4 * layers or bool(integers) == (self._source.mask is None):
            raise ValueError(f"the decoder takes {len(types)} inputs, which does not fit the {layers} layers of the encoder")
        presents = [np.asarray(each) for each in outputs[2 if decodes else 0 :]]
        self._crosses = presents[-2 * layers :]
        self._selves = presents[: 2 * layers] if decodes else [np.zeros_like(each[:, :, :0]) for each in self._crosses]

    def extend(self, tokens: Array) -> Array:
        """Read one more token for each row."""
        stop_if_asked()
        new = np.asarray(tokens).reshape(-1, 1)
        self._tokens = np.concatenate([self._tokens, new], axis=1)
        return self._run(new if self._reads_new_tokens else self._tokens)

    def reorder(self, rows: Array) -> None:
        """Go on with these rows."""
        self._selves = [np.ascontiguousarray(each[rows]) for each in self._selves]
        self._crosses = [np.ascontiguousarray(each[rows]) for each in self._crosses]
        self._feeds = [np.ascontiguousarray(each[rows]) for each in self._feeds]
        self._tokens = self._tokens[rows]

    def _run(self, ids: Array) -> Array:
        given = _typed((ids, *self._feeds), _types(self._decoder))
        logits, *presents = self._decoder(*given, *self._selves, *self._crosses)
        self._selves = _successors(self._selves, presents, length=2)
        return _last(logits, self._vocabulary)


def left_padding(ids: Array, padding: int) -> Array:
    """A mask of tokens: padding before the first other one is 0. Texts of T5 may end with a token that is padding elsewhere."""
    return np.logical_or.accumulate(ids != padding, axis=1).astype(np.int32)


def _types(body: Body) -> tuple[Any, ...]:
    found: tuple[Any, ...] = getattr(body, "input_types", ())
    return found


def _shape(type_: Any) -> tuple[Any, ...] | None:
    return type_.shape if isinstance(type_, TensorType) else None


def _typed(arrays: Sequence[Array], types: Sequence[Any]) -> list[Array]:
    """Arrays as the first inputs of a graph are declared."""
    kinds = [each.dtype.numpy if isinstance(each, TensorType) else np.dtype(np.int32) for each in types]
    return [np.asarray(array, kind) for array, kind in zip(arrays, kinds)]


def _successors(pasts: list[Array], presents: list[Any], *, length: int) -> list[Array]:
    """Presents, which are the next pasts: their sizes may differ along the axis of positions only."""
    if len(presents) < len(pasts):
        raise ValueError(f"the decoder gives {len(presents)} presents for {len(pasts)} pasts")
    made = [np.asarray(each) for each in presents[: len(pasts)]]
    for past, present in zip(pasts, made):
        old, new = ([*each.shape[:length], *each.shape[length + 1 :]] for each in (past, present))
        if present.ndim != past.ndim or old != new:
            raise ValueError(f"a present of the decoder is {present.shape}, its past {past.shape}: only the length may differ")
    return made


def _last(logits: Any, vocabulary: int) -> Array:
    """The scores of what comes next."""
    scores = np.asarray(logits)
    if scores.ndim != 3 or not scores.shape[1]:
        raise ValueError(f"the decoder gives logits of the shape {scores.shape}: expected [rows, tokens, vocabulary]")
    last = scores[:, -1].astype(np.float32)
    return last[:, :vocabulary] if vocabulary > 0 else last


def _past_shape(type_: Any, rows: int) -> tuple[int, ...]:
    """The shape of a past that holds nothing."""
    known = [dim if isinstance(dim, int) else None for dim in _shape(type_) or ()]
    if len(known) != 5 or any(known[axis] is None for axis in (0, 2, 4)):
        raise ValueError(f"a past of the decoder is {type_}: expected a tensor [2, rows, heads, length, size] with known sizes")
    return (known[0] or 0, rows, known[2] or 0, 0, known[4] or 0)
