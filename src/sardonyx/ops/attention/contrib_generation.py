"""Generation as operators of com.microsoft: GreedySearch, Sampling, BeamSearch, WhisperBeamSearch run graphs, their attributes.

The graphs are of the GPT-2 form (`model_type` 0: one decoder), of the T5 form (1: an encoder and a decoder) or of the Whisper
form (2: an encoder of features and a decoder): see `search_models`. Tokens are chosen by the loops of `sardonyx.decoding`; what
differs from them, as where texts end and what the lengths of scores count, is ONNX Runtime's way. It has GreedySearch and
Sampling for the GPT-2 form only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from sardonyx.decoding import scores as on
from sardonyx.decoding.beams import beam_search
from sardonyx.decoding.config import GenerationConfig
from sardonyx.decoding.loop import DecoderModel
from sardonyx.decoding.timestamps import TimestampRule
from sardonyx.ir.dims import Dim
from sardonyx.ir.tensor import Array
from sardonyx.ops.attention.search_models import Body, EncoderFeeds, GptDecoder, SearchedPair, left_padding
from sardonyx.ops.definition import EvalContext, Trait, op
from sardonyx.ops.infer import InferContext, InferOne, InferResult

MICROSOFT: Final = "com.microsoft"
_LOWEST: Final = np.finfo(np.float32).min
_GPT, _T5, _WHISPER = 0, 1, 2  # model_type
_BY_TIMESTAMPS: Final = 1  # logits_processor
_MULTIPLIER, _MODULUS = 16807, (1 << 31) - 1  # of the generator that the C++ library calls its default one


def _number(value: Array | None, name: str, default: float) -> float:
    if value is None:
        return default
    if value.size != 1:
        raise ValueError(f"{name} has {value.size} elements, expected one")
    return float(value.reshape(-1)[0])


class _Form(NamedTuple):
    """The attributes that say which graphs there are."""

    model_type: int
    decoder: Body
    init_decoder: Body | None
    encoder: Body | None
    start: int
    padding: int
    vocabulary: int

    def model(self, given: Array, mask: Array | None, prompts: Array | None = None) -> tuple[GptDecoder | SearchedPair, Array]:
        """The model, and the rows that its texts begin with; `prompts` are those of the Whisper form."""
        if self.model_type not in (_GPT, _T5, _WHISPER):
            raise ValueError(f"model_type is {self.model_type}: expected 0 (GPT-2), 1 (T5) or 2 (Whisper)")
        name, shape = (
            ("input_features", "[rows, features, frames]") if self.model_type == _WHISPER else ("input_ids", "[rows, tokens]")
        )
        if given.ndim != (3 if self.model_type == _WHISPER else 2) or not given.size:
            raise ValueError(f"{name} has the shape {given.shape}: expected {shape}")
        if self.model_type == _GPT:
            return GptDecoder(self.decoder, self.init_decoder, given, mask, self.padding, self.vocabulary), given
        if self.encoder is None:
            raise ValueError(f"model_type is {self.model_type}, but there is no graph `encoder`")
        if prompts is None and self.start < 0:
            raise ValueError(f"decoder_start_token_id is {self.start}: texts need a token that they begin with")
        starts = np.full((len(given), 1), self.start, np.int32) if prompts is None else prompts
        if starts.ndim != 2 or len(starts) != len(given) or not starts.size:
            raise ValueError(f"decoder_input_ids has the shape {starts.shape}: expected [{len(given)}, tokens]")
        if self.model_type == _WHISPER:
            mask = None
        elif mask is None:
            mask = left_padding(given, self.padding)
        elif mask.shape != given.shape:
            raise ValueError(f"attention_mask has the shape {mask.shape}, input_ids {given.shape}")
        return SearchedPair(self.encoder, self.decoder, EncoderFeeds(given, mask, starts), self.vocabulary), starts


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
        timestamps: TimestampRule | None = None,
        forced: Array | None = None,
    ) -> None:
        if repetition_penalty <= 0:
            raise ValueError(f"repetition_penalty is {repetition_penalty}: expected a positive number")
        self._penalty, self._ngram, self._end, self._beams = repetition_penalty, ngram, end, beams
        self._vocab_mask, self._prefix_mask = vocab_mask, prefix_vocab_mask
        self._presence, self._temperature = presence, temperature
        self._timestamps, self._forced = timestamps, forced
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
        if self._timestamps is not None:
            self._timestamps.apply(scores, histories)
        if self._forced is not None and self._steps <= self._forced.shape[1]:
            tokens = np.repeat(self._forced[:, self._steps - 1], self._beams)
            for row, token in zip(scores, tokens):
                if 0 <= token < len(row):
                    row[np.arange(len(row)) != token] = _LOWEST
        return scores


def _row_by_row(
    model: DecoderModel,
    rules: _Rules,
    choose: Callable[[Array], Array],
    ids: Array,
    most: int,
    least: int,
    end: int,
    padding: int,
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
    encoder: Body | None,
    decoder_start_token_id: int,
    eos_token_id: int,
    pad_token_id: int,
    model_type: int,
    no_repeat_ngram_size: int,
    vocab_size: int,
) -> Array:
    form = _Form(model_type, decoder, init_decoder, encoder, decoder_start_token_id, pad_token_id, vocab_size)
    model, starts = form.model(input_ids, attention_mask)
    rules = _Rules(
        repetition_penalty=_number(repetition_penalty, "repetition_penalty", 1.0),
        ngram=no_repeat_ngram_size,
        vocab_mask=vocab_mask,
        prefix_vocab_mask=prefix_vocab_mask,
        end=eos_token_id,
    )
    most, least = (int(_number(value, name, 0)) for value, name in ((max_length, "max_length"), (min_length, "min_length")))
    return _row_by_row(model, rules, lambda scores: scores.argmax(axis=1), starts, most, least, eos_token_id, pad_token_id)


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
    encoder: Body | None,
    decoder_start_token_id: int,
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
    if temperature <= 0 or not 0 <= top_p <= 1:
        raise ValueError(f"temperature is {temperature}, top_p {top_p}: expected a positive number, and one from 0 to 1")
    form = _Form(model_type, decoder, init_decoder, encoder, decoder_start_token_id, pad_token_id, vocab_size)
    model, starts = form.model(input_ids, attention_mask)
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
    made = _row_by_row(model, rules, choose, starts, most, least, eos_token_id, pad_token_id)
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


class _Beams(NamedTuple):
    """The inputs of a search by beams that all forms have."""

    max_length: Array
    min_length: Array | None
    num_beams: Array | None
    num_return_sequences: Array | None
    length_penalty: Array | None
    early_stopping: int
    end: int
    padding: int

    def config(self, length: int) -> GenerationConfig:
        """The settings, for texts that begin with so many tokens."""
        counts = ((self.max_length, "max_length"), (self.min_length, "min_length"))
        most, least = (int(_number(value, name, 0)) for value, name in counts)
        beams = int(_number(self.num_beams, "num_beams", 1))
        returned = int(_number(self.num_return_sequences, "num_return_sequences", 1))
        if not 1 <= returned <= beams:
            raise ValueError(f"num_return_sequences is {returned}: expected 1 to num_beams ({beams})")
        if length > most:
            raise ValueError(f"max_length is {most}, but input_ids has {length} tokens a row")
        return GenerationConfig(
            max_length=max(most, 1),
            min_length=least,
            num_beams=beams,
            num_return_sequences=returned,
            length_penalty=_number(self.length_penalty, "length_penalty", 1.0),
            early_stopping=bool(self.early_stopping),
            eos_token_id=(self.end,) if self.end >= 0 else (),
            pad_token_id=max(self.padding, 0),
        )

    def run(self, model: DecoderModel, starts: Array, rules: _Rules) -> tuple[Array, ...]:
        """The best texts, their scores, and the scores that tokens were chosen by."""
        rows, length = starts.shape
        config = self.config(length)
        seen: list[Array] = []
        found = beam_search(model, list(starts), config, counts_prompt=True, adjust=rules, on_scores=seen.append)
        sequences = np.full((rows, config.num_return_sequences, config.max_length), self.padding, np.int32)
        totals = np.zeros((rows, config.num_return_sequences), np.float32)
        for text, kept in enumerate(found):
            for number, beam in enumerate(kept):
                sequences[text, number, : len(beam.tokens)] = beam.tokens
                totals[text, number] = beam.score
        vocabulary = seen[0].shape[1] if seen else 0
        kind = np.float32 if self.length_penalty is None else self.length_penalty.dtype
        every = np.zeros((config.max_length - length, rows, config.num_beams, vocabulary), kind)
        for step, scores in enumerate(seen):
            every[step] = scores.reshape(rows, config.num_beams, -1)
        return sequences, totals.astype(kind), every


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
    encoder: Body | None,
    decoder_start_token_id: int,
    eos_token_id: int,
    pad_token_id: int,
    model_type: int,
    no_repeat_ngram_size: int,
    early_stopping: int,
    vocab_size: int,
) -> tuple[Array, ...]:
    form = _Form(model_type, decoder, init_decoder, encoder, decoder_start_token_id, pad_token_id, vocab_size)
    model, starts = form.model(input_ids, attention_mask, decoder_input_ids if model_type == _WHISPER else None)
    if model_type == _WHISPER and _number(logits_processor, "logits_processor", 0) == _BY_TIMESTAMPS:
        raise ValueError("logits_processor is 1: BeamSearch does not know the tokens of timestamps, WhisperBeamSearch does")
    rules = _Rules(
        repetition_penalty=_number(repetition_penalty, "repetition_penalty", 1.0),
        ngram=no_repeat_ngram_size,
        vocab_mask=vocab_mask,
        prefix_vocab_mask=prefix_vocab_mask,
        end=eos_token_id,
        beams=int(_number(num_beams, "num_beams", 1)),
    )
    beams = _Beams(
        max_length, min_length, num_beams, num_return_sequences, length_penalty, early_stopping, eos_token_id, pad_token_id
    )
    return beams.run(model, starts, rules)


def _known(*tokens: int | None) -> tuple[int, ...]:
    return tuple(token for token in tokens if token is not None)


def _whisper_beam_search(
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
    cross_qk_layer_head: Array | None = None,
    extra_decoding_ids: Array | None = None,
    temperature: Array | None = None,
    *,
    ctx: EvalContext,
    decoder: Body,
    encoder: Body | None,
    decoder_start_token_id: int,
    eos_token_id: int,
    pad_token_id: int,
    model_type: int,
    no_repeat_ngram_size: int,
    early_stopping: int,
    vocab_size: int,
    translate_token_id: int | None,
    transcribe_token_id: int | None,
    start_of_lm_token_id: int | None,
    no_speech_token_id: int | None,
    no_timestamps_token_id: int | None,
    beginning_timestamp_token_id: int | None,
    decoder_output_cross_qk: int | None,
) -> tuple[Any, ...]:
    if model_type != _WHISPER:
        raise ValueError(f"model_type is {model_type}: expected 2, Whisper")
    if decoder_output_cross_qk or cross_qk_layer_head is not None:
        raise ValueError("cross_qk is asked for: the products of queries and keys are not given out (decoder_output_cross_qk)")
    form = _Form(model_type, decoder, None, encoder, decoder_start_token_id, pad_token_id, vocab_size)
    model, starts = form.model(input_ids, attention_mask, decoder_input_ids)
    warmth = _number(temperature, "temperature", 1.0)
    if warmth <= 0:
        raise ValueError(f"temperature is {warmth}: expected a positive number")
    timestamps = None
    if _number(logits_processor, "logits_processor", 0) == _BY_TIMESTAMPS:
        if beginning_timestamp_token_id is None or beginning_timestamp_token_id <= 0:
            raise ValueError(f"beginning_timestamp_token_id is {beginning_timestamp_token_id}: expected the token <|0.00|>")
        timestamps = TimestampRule(
            beginning_timestamp_token_id,
            eos_token_id,
            _known(no_timestamps_token_id, start_of_lm_token_id),
            _known(decoder_start_token_id, translate_token_id, transcribe_token_id),
        )
    if extra_decoding_ids is not None and (extra_decoding_ids.ndim != 2 or len(extra_decoding_ids) != len(input_ids)):
        raise ValueError(f"extra_decoding_ids has the shape {extra_decoding_ids.shape}: expected [{len(input_ids)}, tokens]")
    rules = _Rules(
        repetition_penalty=_number(repetition_penalty, "repetition_penalty", 1.0),
        ngram=no_repeat_ngram_size,
        vocab_mask=vocab_mask,
        prefix_vocab_mask=prefix_vocab_mask,
        end=eos_token_id,
        beams=int(_number(num_beams, "num_beams", 1)),
        temperature=warmth,
        timestamps=timestamps,
        forced=extra_decoding_ids,
    )
    beams = _Beams(
        max_length, min_length, num_beams, num_return_sequences, length_penalty, early_stopping, eos_token_id, pad_token_id
    )
    sequences, totals, every = beams.run(model, starts, rules)
    silence = None
    if ctx.outputs[4:5] == (True,):
        assert isinstance(model, SearchedPair)
        if model.first_logits is None or no_speech_token_id not in range(model.first_logits.shape[2]):
            raise ValueError(f"no_speech_token_id is {no_speech_token_id}: expected a token of the vocabulary")
        # By the scores behind the last token that texts begin with: those that the first new token is chosen by.
        silence = on.probabilities(model.first_logits[:, -1].astype(np.float32))[:, no_speech_token_id].astype(totals.dtype)
    return sequences, totals, every, None, silence


def _length_of(ctx: InferContext, position: int) -> Dim:
    given = ctx.ints(position) if ctx.has(position) else None
    return given[0] if given else ctx.fresh()


def _infer_rows(ctx: InferContext) -> InferResult:
    shape = ctx.shape(0)
    rows = shape[0] if shape is not None and len(shape) == 2 else ctx.fresh()
    return [(rows, _length_of(ctx, 1)), *([None] * (ctx.outputs - 1))]


def _infer_beams(ctx: InferContext) -> InferResult:
    shape = ctx.shape(0)
    rows = shape[0] if shape is not None and len(shape) in (2, 3) else ctx.fresh()
    returned = _length_of(ctx, 4)
    made: list[InferOne] = [(rows, returned, _length_of(ctx, 1)), (rows, returned), None, None, (rows,)]
    return made[: max(ctx.outputs, 1)]


_TRAITS: Final = Trait.CONTROL_FLOW | Trait.STATES_BODIES | Trait.REFUSES
GREEDY_SEARCH = op("GreedySearch", domain=MICROSOFT, eval=_greedy_search, infer=_infer_rows, traits=_TRAITS)
SAMPLING = op("Sampling", domain=MICROSOFT, eval=_sampling, infer=_infer_rows, traits=_TRAITS | Trait.RANDOM)
BEAM_SEARCH = op("BeamSearch", domain=MICROSOFT, eval=_beam_search, infer=_infer_beams, traits=_TRAITS)
WHISPER_BEAM_SEARCH = op("WhisperBeamSearch", domain=MICROSOFT, eval=_whisper_beam_search, infer=_infer_beams, traits=_TRAITS)
