"""Generation as operators of com.microsoft: GreedySearch, Sampling and BeamSearch run a decoder, their attribute, token by token.

The decoder is of the GPT-2 form: input_ids, position_ids, attention_mask, then a past for each layer ([2, rows, heads, length,
size]); it gives logits and a present for each past. A second graph, `init_decoder`, may read the prompt. Tokens are chosen by
the loops of `sardonyx.decoding`; what differs from them, as where texts end and what the lengths of scores count, is ONNX
Runtime's way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from sardonyx.decoding import scores as on
from sardonyx.decoding.beams import beam_search
from sardonyx.decoding.config import GenerationConfig
from sardonyx.ir.dims import Dim
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import TensorType
from sardonyx.ops.definition import EvalContext, Trait, op
from sardonyx.ops.infer import InferContext, InferOne, InferResult
from sardonyx.ops.interruption import stop_if_asked

MICROSOFT: Final = "com.microsoft"
Body = Callable[..., list[Any]]

_LOWEST: Final = np.finfo(np.float32).min
_DECODER_INPUTS: Final = 3  # before the pasts
_MULTIPLIER, _MODULUS = 16807, (1 << 31) - 1  # of the generator that the C++ library calls its default one


class _GptDecoder:
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
        types = getattr(self._first, "input_types", ())[_DECODER_INPUTS:]
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
        types = getattr(body, "input_types", ())
        kinds = [each.dtype.numpy if isinstance(each, TensorType) else np.dtype(np.int32) for each in types[:_DECODER_INPUTS]]
        given = [np.asarray(array, kind) for array, kind in zip((ids, positions, self._mask), kinds)]
        logits, *presents = body(*given, *self._pasts)
        if len(presents) < len(self._pasts):
            raise ValueError(f"the decoder gives {len(presents)} presents for {len(self._pasts)} pasts")
        for past, present in zip(self._pasts, presents):
            if present.ndim != 5 or (present.shape[:3], present.shape[4]) != (past.shape[:3], past.shape[4]):
                raise ValueError(
                    f"a present of the decoder is {present.shape}, its past {past.shape}: only the length may differ"
                )
        self._pasts = presents[: len(self._pasts)]
        last = np.asarray(logits)[:, -1].astype(np.float32)
        return last[:, : self._vocabulary] if self._vocabulary > 0 else last


def _past_shape(type_: Any, rows: int) -> tuple[int, ...]:
    """The shape of a past that holds nothing."""
    shape = type_.shape if isinstance(type_, TensorType) else None
    known = [dim if isinstance(dim, int) else None for dim in shape or ()]
    if len(known) != 5 or any(known[axis] is None for axis in (0, 2, 4)):
        raise ValueError(f"a past of the decoder is {type_}: expected a tensor [2, rows, heads, length, size] with known sizes")
    return (known[0] or 0, rows, known[2] or 0, 0, known[4] or 0)


def _number(value: Array | None, name: str, default: float) -> float:
    if value is None:
        return default
    if value.size != 1:
        raise ValueError(f"{name} has {value.size} elements, expected one")
    return float(value.reshape(-1)[0])


def _check_form(model_type: int, ids: Array) -> None:
    if model_type != 0:
        raise ValueError(f"model_type is {model_type}: expected 0, a decoder of the GPT-2 form")
    if ids.ndim != 2 or not ids.size:
        raise ValueError(f"input_ids has the shape {ids.shape}: expected [rows, tokens]")


class _Rules:
    """What becomes of scores before tokens are chosen."""

    def __init__(
        self,
        *,
        repetition_penalty: float,
        ngram: int,
        vocab_mask: Array | None,
        prefix_vocab_mask: Array | None,
        end: int,
        presence: tuple[Array | None, float] = (None, 0.0),
        temperature: float = 1.0,
        beams: int = 1,
    ) -> None:
        if repetition_penalty <= 0:
            raise ValueError(f"repetition_penalty is {repetition_penalty}: expected a positive number")
        self._penalty, self._ngram, self._end, self._beams = repetition_penalty, ngram, end, beams
        self._vocab_mask, self._prefix_mask = vocab_mask, prefix_vocab_mask
        self._presence, self._temperature = presence, temperature
        self._steps = 0

    def __call__(self, scores: Array, histories: Sequence[Array], may_end: bool) -> Array:
        self._steps += 1
        on.penalize_repetition(scores, histories, self._penalty)
        on.forbid_repeated_ngrams(scores, histories, self._ngram)
        for mask, holds in ((self._vocab_mask, True), (self._prefix_mask, self._steps == 1)):
            if mask is None or not holds:
                continue
            rows = mask if mask.ndim == 1 else np.repeat(mask, self._beams, axis=0)
            if rows.shape[-1] != scores.shape[1]:
                raise ValueError(f"a mask of {rows.shape[-1]} tokens for a vocabulary of {scores.shape[1]}")
            scores = np.where(rows == 0, _LOWEST, scores)
        if not may_end and 0 <= self._end < scores.shape[1]:
            scores[:, self._end] = _LOWEST
        scores[np.isneginf(scores)] = _LOWEST
        if self._temperature != 1:
            scores /= np.float32(self._temperature)
        mask, penalty = self._presence
        if mask is not None and penalty:
            scores -= mask.astype(np.float32) * np.float32(penalty)
        return scores


def _row_by_row(
    model: _GptDecoder, rules: _Rules, choose: Callable[[Array], Array], ids: Array, most: int, least: int, end: int, padding: int
) -> Array:
    """Sequences [rows, most]: one token a row at a time, padding where a row has ended."""
    rows, length = ids.shape
    if length > most:
        raise ValueError(f"max_length is {most}, but input_ids has {length} tokens a row")
    made = np.full((rows, most), padding, np.int32)
    made[:, :length] = ids
    ended = np.zeros(rows, bool)
    logits = model.begin(list(ids)) if length < most else None
    while length < most:
        assert logits is not None
        scores = rules(np.array(logits), [row[:length] for row in made.astype(np.int64)], length >= least)
        tokens = choose(scores)
        ended |= tokens == end
        tokens = np.where(ended, padding, tokens)
        made[:, length] = tokens
        length += 1
        if ended.all():
            break
        if length < most:
            logits = model.extend(tokens)
    return made


def _greedy_search(
    input_ids: Array,
    max_length: Array,
    min_length: Array | None = None,
    repetition_penalty: Array | None = None,
    vocab_mask: Array | None = None,
    prefix_vocab_mask: Array | None = None,
    attention_mask: Array | None = None,
    *,
    decoder: Body,
    init_decoder: Body | None,
    eos_token_id: int,
    pad_token_id: int,
    model_type: int,
    no_repeat_ngram_size: int,
    vocab_size: int,
) -> Array:
    _check_form(model_type, input_ids)
    model = _GptDecoder(decoder, init_decoder, input_ids, attention_mask, pad_token_id, vocab_size)
    rules = _Rules(
        repetition_penalty=_number(repetition_penalty, "repetition_penalty", 1.0),
        ngram=no_repeat_ngram_size,
        vocab_mask=vocab_mask,
        prefix_vocab_mask=prefix_vocab_mask,
        end=eos_token_id,
    )
    most, least = (int(_number(value, name, 0)) for value, name in ((max_length, "max_length"), (min_length, "min_length")))
    return _row_by_row(model, rules, lambda scores: scores.argmax(axis=1), input_ids, most, least, eos_token_id, pad_token_id)


class _Chance:
    """Numbers from 0 to 1 as ONNX Runtime draws them: two of the C++ library's default generator make one."""

    def __init__(self, seed: int) -> None:
        self._state = seed % _MODULUS or 1

    def _draw(self) -> int:
        self._state = self._state * _MULTIPLIER % _MODULUS
        return self._state - 1

    def next(self) -> float:
        low, high = self._draw(), self._draw()
        return min((low + high * (_MODULUS - 1)) / float(_MODULUS - 1) ** 2, float(np.nextafter(1.0, 0.0)))


def _sampling(
    input_ids: Array,
    max_length: Array,
    min_length: Array | None = None,
    repetition_penalty: Array | None = None,
    vocab_mask: Array | None = None,
    prefix_vocab_mask: Array | None = None,
    attention_mask: Array | None = None,
    presence_mask: Array | None = None,
    seed: Array | None = None,
    *,
    ctx: EvalContext,
    decoder: Body,
    init_decoder: Body | None,
    eos_token_id: int,
    pad_token_id: int,
    model_type: int,
    no_repeat_ngram_size: int,
    vocab_size: int,
    temperature: float,
    top_p: float,
    filter_value: float,
    min_tokens_to_keep: int,
    presence_penalty: float,
    custom: int,
) -> tuple[Array, ...]:
    _check_form(model_type, input_ids)
    if temperature <= 0 or not 0 <= top_p <= 1:
        raise ValueError(f"temperature is {temperature}, top_p {top_p}: expected a positive number, and one from 0 to 1")
    model = _GptDecoder(decoder, init_decoder, input_ids, attention_mask, pad_token_id, vocab_size)
    rules = _Rules(
        repetition_penalty=_number(repetition_penalty, "repetition_penalty", 1.0),
        ngram=no_repeat_ngram_size,
        vocab_mask=vocab_mask,
        prefix_vocab_mask=prefix_vocab_mask,
        end=eos_token_id,
        presence=(presence_mask, presence_penalty),
        temperature=temperature,
    )
    chance = _Chance(int(_number(seed, "seed", 0)) if seed is not None else int(np.random.default_rng().integers(1, _MODULUS)))
    filtered: list[Array] = []

    def choose(scores: Array) -> Array:
        if not 0 <= min_tokens_to_keep <= scores.shape[1]:
            raise ValueError(f"min_tokens_to_keep is {min_tokens_to_keep}: expected at most the vocabulary's {scores.shape[1]}")
        _filter(scores, top_p, min_tokens_to_keep, filter_value, is_descending=bool(custom))
        filtered.append(scores.copy())
        tokens = []
        for row in on.probabilities(scores):
            below = np.cumsum(row)
            tokens.append(min(int(np.searchsorted(below, chance.next() * below[-1], side="right")), len(row) - 1))
        return np.array(tokens)

    most, least = (int(_number(value, name, 0)) for value, name in ((max_length, "max_length"), (min_length, "min_length")))
    made = _row_by_row(model, rules, choose, input_ids, most, least, eos_token_id, pad_token_id)
    return made, filtered[-1] if filtered else np.zeros((len(input_ids), 0), np.float32)


def _filter(scores: Array, share: float, least: int, value: float, *, is_descending: bool) -> None:
    """Give tokens outside the most likely share of the probability another score."""
    order = np.argsort(-scores if is_descending else scores, axis=1, kind="stable")
    chances = np.cumsum(np.take_along_axis(on.probabilities(scores), order, axis=1), axis=1)
    if is_descending:
        gone = np.zeros(chances.shape, bool)
        gone[:, 1:] = chances[:, :-1] > share
        gone[:, :least] = False
    else:
        gone = chances <= 1 - share
        gone[:, scores.shape[1] - least :] = False
    for row, tokens, removed in zip(scores, order, gone):
        row[tokens[removed]] = value


def _beam_search(
    input_ids: Array,
    max_length: Array,
    min_length: Array | None = None,
    num_beams: Array | None = None,
    num_return_sequences: Array | None = None,
    length_penalty: Array | None = None,
    repetition_penalty: Array | None = None,
    vocab_mask: Array | None = None,
    prefix_vocab_mask: Array | None = None,
    attention_mask: Array | None = None,
    decoder_input_ids: Array | None = None,
    logits_processor: Array | None = None,
    *,
    decoder: Body,
    init_decoder: Body | None,
    eos_token_id: int,
    pad_token_id: int,
    model_type: int,
    no_repeat_ngram_size: int,
    early_stopping: int,
    vocab_size: int,
) -> tuple[Array, ...]:
    _check_form(model_type, input_ids)
    rows, length = input_ids.shape
    counts = ((max_length, "max_length"), (min_length, "min_length"))
    most, least = (int(_number(value, name, 0)) for value, name in counts)
    beams, returned = int(_number(num_beams, "num_beams", 1)), int(_number(num_return_sequences, "num_return_sequences", 1))
    if not 1 <= returned <= beams:
        raise ValueError(f"num_return_sequences is {returned}: expected 1 to num_beams ({beams})")
    if length > most:
        raise ValueError(f"max_length is {most}, but input_ids has {length} tokens a row")
    model = _GptDecoder(decoder, init_decoder, input_ids, attention_mask, pad_token_id, vocab_size)
    rules = _Rules(
        repetition_penalty=_number(repetition_penalty, "repetition_penalty", 1.0),
        ngram=no_repeat_ngram_size,
        vocab_mask=vocab_mask,
        prefix_vocab_mask=prefix_vocab_mask,
        end=eos_token_id,
        beams=beams,
    )
    config = GenerationConfig(
        max_length=max(most, 1),
        min_length=least,
        num_beams=beams,
        num_return_sequences=returned,
        length_penalty=_number(length_penalty, "length_penalty", 1.0),
        early_stopping=bool(early_stopping),
        eos_token_id=(eos_token_id,) if eos_token_id >= 0 else (),
        pad_token_id=max(pad_token_id, 0),
    )
    seen: list[Array] = []
    found = beam_search(model, list(input_ids), config, counts_prompt=True, adjust=rules, on_scores=seen.append)
    sequences = np.full((rows, returned, most), pad_token_id, np.int32)
    totals = np.zeros((rows, returned), np.float32)
    for text, kept in enumerate(found):
        for number, beam in enumerate(kept):
            sequences[text, number, : len(beam.tokens)] = beam.tokens
            totals[text, number] = beam.score
    vocabulary = seen[0].shape[1] if seen else 0
    kind = np.float32 if length_penalty is None else length_penalty.dtype
    every = np.zeros((most - length, rows, beams, vocabulary), kind)
    for step, scores in enumerate(seen):
        every[step] = scores.reshape(rows, beams, -1)
    return sequences, totals.astype(kind), every


def _length_of(ctx: InferContext, position: int) -> Dim:
    given = ctx.ints(position) if ctx.has(position) else None
    return given[0] if given else ctx.fresh()


def _infer_rows(ctx: InferContext) -> InferResult:
    shape = ctx.shape(0)
    rows = shape[0] if shape is not None and len(shape) == 2 else ctx.fresh()
    return [(rows, _length_of(ctx, 1)), *([None] * (ctx.outputs - 1))]


def _infer_beams(ctx: InferContext) -> InferResult:
    shape = ctx.shape(0)
    rows = shape[0] if shape is not None and len(shape) == 2 else ctx.fresh()
    returned = _length_of(ctx, 4)
    made: list[InferOne] = [(rows, returned, _length_of(ctx, 1)), (rows, returned), None]
    return made[: max(ctx.outputs, 1)]


_TRAITS: Final = Trait.CONTROL_FLOW | Trait.STATES_BODIES | Trait.REFUSES
GREEDY_SEARCH = op("GreedySearch", domain=MICROSOFT, eval=_greedy_search, infer=_infer_rows, traits=_TRAITS)
SAMPLING = op("Sampling", domain=MICROSOFT, eval=_sampling, infer=_infer_rows, traits=_TRAITS | Trait.RANDOM)
BEAM_SEARCH = op("BeamSearch", domain=MICROSOFT, eval=_beam_search, infer=_infer_beams, traits=_TRAITS)
