"""The loop of a decoder: scores of the model, a token for each row, and so on until all rows have ended.

    for step in choose_tokens(model, prompts, config):     greedy, or by chance
        step.tokens, step.is_new                           one token a row; rows that ended before get the padding token

The model is anything that can `begin` with prompts, `extend` every row by a token, and `reorder` its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from sardonyx.decoding import scores as on
from sardonyx.decoding.config import GenerationConfig
from sardonyx.errors import InvalidArgument

Array = np.ndarray[Any, Any]


class DecoderModel(Protocol):
    """A model that keeps what it has read."""

    def begin(self, prompts: Sequence[Array]) -> Array:
        """Forget everything and read these prompts, a row each; the scores [rows, vocabulary] of what comes next."""
        ...

    def extend(self, tokens: Array) -> Array:
        """Read one more token for each row; the scores of what comes next."""
        ...

    def reorder(self, rows: Array) -> None:
        """Go on with these rows, by their numbers so far; one may come several times, others not at all."""
        ...


class Step(NamedTuple):
    """The tokens of one step, and which rows had not ended before it."""

    tokens: Array
    is_new: Array
    scores: Array  # as they were when the tokens were chosen


class Histories:
    """The tokens of each row so far, with room for more."""

    def __init__(self, prompts: Sequence[Array], room: int) -> None:
        self.lengths = np.array([len(prompt) for prompt in prompts], np.int64)
        self._tokens = np.zeros((len(prompts), max(room, int(self.lengths.max(initial=0)))), np.int64)
        for row, prompt in zip(self._tokens, prompts):
            row[: len(prompt)] = prompt

    def __getitem__(self, row: int) -> Array:
        found: Array = self._tokens[row, : self.lengths[row]]
        return found

    def all(self) -> list[Array]:
        """The tokens of every row."""
        return [self[row] for row in range(len(self.lengths))]

    def append(self, tokens: Array, rows: Array) -> None:
        """One more token for those rows that a mask names."""
        (where,) = np.nonzero(rows)
        if len(where) and int(self.lengths[where].max()) >= self._tokens.shape[1]:
            grown = np.zeros((len(self._tokens), self._tokens.shape[1] * 2 + 8), np.int64)
            grown[:, : self._tokens.shape[1]] = self._tokens
            self._tokens = grown
        self._tokens[where, self.lengths[where]] = tokens[where]
        self.lengths[where] += 1

    def reorder(self, rows: Array) -> None:
        """Go on with these rows."""
        self._tokens, self.lengths = self._tokens[rows], self.lengths[rows]


def check_prompts(prompts: Sequence[Any], config: GenerationConfig) -> list[Array]:
    """Prompts as arrays of token ids: none may be empty, or longer than the result may be."""
    found = [np.asarray(prompt) for prompt in prompts]
    if not found:
        raise InvalidArgument("there is no prompt")
    for number, prompt in enumerate(found):
        if not prompt.size:
            raise InvalidArgument(f"prompt {number} is empty", hint="begin with the token that starts a text (bos_token_id)")
        if prompt.ndim != 1 or prompt.dtype.kind not in "iu":
            raise InvalidArgument(f"prompt {number}: expected a row of token ids, found {prompt.dtype} of shape {prompt.shape}")
    longest = max(prompt.size for prompt in found)
    if config.max_new_tokens is None and config.max_length and longest > config.max_length:
        raise InvalidArgument(f"max_length is {config.max_length}, but a prompt has {longest} tokens")
    return [prompt.astype(np.int64) for prompt in found]


def choose_tokens(model: DecoderModel, prompts: Sequence[Any], config: GenerationConfig) -> Iterator[Step]:
    """Choose tokens for all rows until each has ended: the most likely ones, or by chance."""
    rows = check_prompts(prompts, config)
    if config.num_return_sequences > 1:
        rows = [row for row in rows for _ in range(config.num_return_sequences)]
    longest = max(len(row) for row in rows)
    most, least = config.longest(longest), config.shortest(longest)
    histories = Histories(rows, min(most, longest + 1024))
    chance = np.random.default_rng(config.seed) if config.do_sample else None
    stops = np.array(config.eos_token_id, np.int64)
    padding = config.pad_token_id if config.pad_token_id is not None else int(stops[0]) if len(stops) else 0
    goes_on = np.ones(len(rows), bool)
    adjust = ScoreAdjustment(config, longest, most)
    logits = model.begin(rows) if longest < most else None
    for length in range(longest, most):
        assert logits is not None
        scored = adjust(np.array(logits, np.float32), histories.all(), length >= least)
        tokens = scored.argmax(axis=1) if chance is None else draw(scored, config, chance)
        tokens = np.where(goes_on, tokens, padding)
        yield Step(tokens, goes_on.copy(), scored)
        histories.append(tokens, goes_on)
        goes_on &= ~np.isin(tokens, stops)
        if not goes_on.any():
            return
        if length + 1 < most:
            logits = model.extend(tokens)


class ScoreAdjustment:
    """What the settings say about tokens: those that come again, at the beginning, at the end. One for each generation."""

    def __init__(self, config: GenerationConfig, start: int, most: int) -> None:
        self._config = config
        self._start, self._most = start, most
        self._length = start
        ends = config.eos_token_id
        self._bad = [each for each in config.bad_words_ids if each and (len(each) > 1 or each[0] not in ends)]

    def __call__(self, scored: Array, histories: Sequence[Array], may_end: bool) -> Array:
        """Change scores of the next token, in place."""
        config, length = self._config, self._length
        self._length += 1
        on.penalize_repetition(scored, histories, config.repetition_penalty)
        on.forbid_repeated_ngrams(scored, histories, config.no_repeat_ngram_size)
        on.forbid_sequences(scored, histories, self._bad)
        if not may_end:
            on.forbid(scored, config.eos_token_id)
        forces_first = config.forced_bos_token_id is not None
        if config.forced_bos_token_id is not None and length == 1:
            on.force(scored, [config.forced_bos_token_id])
        if config.forced_eos_token_id and length == self._most - 1:
            on.force(scored, config.forced_eos_token_id)
        on.forbid(scored, config.suppress_tokens)
        if length == self._start + (forces_first and self._start == 1):
            on.forbid(scored, config.begin_suppress_tokens)
        return scored


def draw(scored: Array, config: GenerationConfig, chance: np.random.Generator) -> Array:
    """A token a row by chance."""
    if config.temperature != 1:
        scored = scored / np.float32(config.temperature)
    on.keep_best(scored, config.top_k)
    on.keep_nucleus(scored, config.top_p)
    on.keep_likely(scored, config.min_p)
    below = np.cumsum(on.probabilities(scored), axis=1)
    points = chance.random(len(scored)) * below[:, -1]
    found = np.array([np.searchsorted(row, point, side="right") for row, point in zip(below, points)])
    # Rounding may leave a point at the very end: the last token that can be chosen.
    last = scored.shape[1] - 1 - np.argmax(np.isfinite(scored[:, ::-1]), axis=1)
    chosen: Array = np.minimum(found, last)
    return chosen
