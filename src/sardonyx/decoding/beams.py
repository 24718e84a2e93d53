"""Beam search: the best few beginnings of every text, by the sum of the logarithms of their tokens' probabilities.

A beginning that ends is kept as a hypothesis, whose score is its sum divided by a power of its length. The search for a text ends
when its hypotheses are as many as beams and no beginning can become better than the worst of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from sardonyx.decoding import scores as on
from sardonyx.decoding.config import GenerationConfig
from sardonyx.decoding.loop import DecoderModel, Histories, ScoreAdjustment, check_prompts
from sardonyx.records import dataclass

Array = np.ndarray[Any, Any]
Adjust = Callable[[Array, Sequence[Array], bool], Array]  # scores, histories, whether a text may end

_UNUSED = -1e9  # the score of beams that are copies of the first one at the beginning


@dataclass(frozen=True, eq=False)
class Beam:
    """A text and its score; `end` is the token it ended with, which `tokens` does not hold."""

    tokens: Array
    score: float
    end: int | None = None


@dataclass
class _Hypotheses:
    """The best texts that have ended, for one prompt."""

    count: int
    exponent: float
    early: bool | str
    start: int  # tokens at the beginning that do not count
    counts_end: bool
    beams: list[Beam] = field(default_factory=list)
    is_done: bool = False

    @property
    def worst(self) -> float:
        return min((beam.score for beam in self.beams), default=1e9)

    def add(self, tokens: Array, total: float, end: int | None = None) -> None:
        length = len(tokens) - self.start + (self.counts_end and end is not None)
        score = total / float(max(length, 1)) ** self.exponent
        if len(self.beams) < self.count or score > self.worst:
            self.beams.append(Beam(tokens.copy(), score, end))
            if len(self.beams) > self.count:
                self.beams.remove(min(self.beams, key=lambda beam: beam.score))

    def settle(self, best: float, length: int, most: int) -> None:
        """Whether nothing better can come, if the best beginning has this sum at this length."""
        if len(self.beams) < self.count or self.is_done:
            return
        if self.early is True:
            self.is_done = True
            return
        reach = most if self.early == "never" and self.exponent > 0 else length
        self.is_done = self.worst >= best / float(max(reach - self.start, 1)) ** self.exponent


def beam_search(
    model: DecoderModel,
    prompts: Sequence[Any],
    config: GenerationConfig,
    *,
    counts_prompt: bool = False,
    adjust: Adjust | None = None,
    on_scores: Callable[[Array], None] | None = None,
) -> list[list[Beam]]:
    """For every prompt the best texts, best first. The texts hold their prompts.

    `counts_prompt`: the lengths that sums are divided by count the prompt, but not the end, as in ONNX Runtime's operator.
    `adjust` changes the logarithms of probabilities instead of what the settings say; `on_scores` is shown what tokens are
    chosen by.
    """
    rows = check_prompts(prompts, config)
    texts, beams = len(rows), config.num_beams
    longest = max(len(row) for row in rows)
    most, least = config.longest(longest), config.shortest(longest)
    found = [
        _Hypotheses(beams, config.length_penalty, config.early_stopping, 0 if counts_prompt else len(row), not counts_prompt)
        for row in rows
    ]
    histories = Histories([row for row in rows for _ in range(beams)], most)
    stops = config.eos_token_id
    padding = config.pad_token_id if config.pad_token_id is not None else stops[0] if stops else 0
    totals = np.full((texts, beams), _UNUSED, np.float32)
    totals[:, 0] = 0
    logits = None
    adjust = adjust or ScoreAdjustment(config, longest, most)
    if longest < most:
        logits = np.repeat(model.begin(rows), beams, axis=0)
        model.reorder(np.repeat(np.arange(texts), beams))
    for length in range(longest, most):
        assert logits is not None
        scored = on.log_softmax(np.asarray(logits, np.float32))
        scored = adjust(scored, histories.all(), length >= least)
        sums = scored + totals.reshape(-1, 1)
        if on_scores is not None:
            on_scores(sums)
        best = sums.reshape(texts, -1).max(axis=1)
        tokens, origins, totals = _next_beams(sums.reshape(texts, -1), scored.shape[1], histories, found, config, padding)
        histories.reorder(origins)
        histories.append(tokens, np.ones(len(tokens), bool))
        for text, hypotheses in enumerate(found):
            hypotheses.settle(float(best[text]), length if counts_prompt else length + 1, most)
        if all(hypotheses.is_done for hypotheses in found):
            break
        if length + 1 < most:
            if (origins != np.arange(len(origins))).any():
                model.reorder(origins)
            logits = model.extend(tokens)
    for text, hypotheses in enumerate(found):
        if not hypotheses.is_done:
            for beam in range(beams):
                hypotheses.add(histories[text * beams + beam], float(totals[text, beam]))
        # The latest of equals first, as a sort by falling score of what was added leaves them in the usual libraries.
        hypotheses.beams.sort(key=lambda beam: beam.score)
        hypotheses.beams.reverse()
    return [hypotheses.beams[: config.num_return_sequences] for hypotheses in found]


def _next_beams(
    sums: Array, vocabulary: int, histories: Histories, found: list[_Hypotheses], config: GenerationConfig, padding: int
) -> tuple[Array, Array, Array]:
    """Tokens, the rows they extend, and the new sums [texts, beams]; beginnings that end become hypotheses."""
    texts, beams = len(found), config.num_beams
    tokens = np.full((texts, beams), padding, np.int64)
    origins = np.arange(texts * beams).reshape(texts, beams)
    totals = np.zeros((texts, beams), np.float32)
    candidates = min(max(2, 1 + len(config.eos_token_id)) * beams, sums.shape[1])
    for text, hypotheses in enumerate(found):
        if hypotheses.is_done:
            continue
        row = sums[text]
        chosen = np.argpartition(row, -candidates)[-candidates:]
        chosen = chosen[np.lexsort((chosen, -row[chosen]))]
        taken = 0
        for rank, candidate in enumerate(chosen):
            beam, token = divmod(int(candidate), vocabulary)
            origin = text * beams + beam
            if token in config.eos_token_id:
                if rank < beams:
                    hypotheses.add(histories[origin], float(row[candidate]), token)
                continue
            tokens[text, taken], origins[text, taken], totals[text, taken] = token, origin, row[candidate]
            taken += 1
            if taken == beams:
                break
    return tokens.reshape(-1), origins.reshape(-1), totals
