"""Choosing tokens: greedy, by chance, the settings that change scores, and where texts end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx import errors
from sardonyx.decoding import scores as on
from sardonyx.decoding.config import GenerationConfig, from_mapping
from sardonyx.decoding.loop import choose_tokens, draw
from sardonyx.generation import generate, stream

Array = np.ndarray[Any, Any]


class Chain:
    """A model whose scores depend on the last token only: a row of a table."""

    def __init__(self, table: Array) -> None:
        self.table = np.asarray(table, np.float32)
        self.rows = 0

    def begin(self, prompts: Sequence[Array]) -> Array:
        return self.extend(np.array([prompt[-1] for prompt in prompts]))

    def extend(self, tokens: Array) -> Array:
        self.rows = len(tokens)
        return self.table[tokens]

    def reorder(self, rows: Array) -> None:
        self.rows = len(rows)


NEXT = Chain(np.eye(8)[(np.arange(8) + 1) % 8])


def test_greedy_takes_the_most_likely_until_the_end() -> None:
    made = generate(NEXT, [[1], [3, 4]], GenerationConfig(eos_token_id=(6,), pad_token_id=7), max_new_tokens=9)
    assert [row.tolist() for row in made.sequences] == [[1, 2, 3, 4, 5, 6], [3, 4, 5, 6]]
    assert made.padded().tolist() == [[1, 2, 3, 4, 5, 6], [3, 4, 5, 6, 7, 7]]
    assert made.scores is None


def test_tokens_are_handed_on_as_they_come_and_the_caller_may_stop() -> None:
    seen: list[list[int]] = []

    def on_tokens(tokens: Array) -> bool:
        seen.append(tokens.tolist())
        return len(seen) == 3

    made = generate(NEXT, [1], max_new_tokens=7, on_tokens=on_tokens)
    assert seen == [[2], [3], [4]]
    assert made.new_tokens[0].tolist() == [2, 3, 4]
    steps = stream(NEXT, [1], max_new_tokens=7)
    assert next(steps).tokens.tolist() == [2]
    steps.close()  # type: ignore[attr-defined]


def test_lengths() -> None:
    ends = GenerationConfig(eos_token_id=2)  # type: ignore[arg-type]
    assert generate(NEXT, [1], ends, max_new_tokens=5).new_tokens[0].tolist() == [2]
    forced = generate(NEXT, [1], ends, max_new_tokens=5, min_new_tokens=2).new_tokens[0].tolist()
    assert forced[0] != 2
    assert len(generate(NEXT, [1, 1, 1], max_length=5).sequences[0]) == 5
    assert len(generate(NEXT, [1]).sequences[0]) == 21
    assert generate(NEXT, [1], max_new_tokens=0).sequences[0].tolist() == [1]


def test_padding_is_taken_from_prompts_by_the_mask() -> None:
    ids, mask = np.array([[0, 0, 5], [1, 2, 3]]), np.array([[0, 0, 1], [1, 1, 1]])
    made = generate(NEXT, ids, max_new_tokens=1, attention_mask=mask)
    assert [row.tolist() for row in made.sequences] == [[5, 6], [1, 2, 3, 4]]


def test_equal_seeds_choose_equal_tokens() -> None:
    flat = Chain(np.random.default_rng(0).standard_normal((50, 50)))
    config = GenerationConfig(do_sample=True, max_new_tokens=20, num_return_sequences=3)
    first, again, other = (generate(flat, [1], config, seed=seed).padded() for seed in (4, 4, 5))
    assert (first == again).all()
    assert (first != other).any()
    assert len({tuple(row) for row in first.tolist()}) == 3


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 9), st.floats(0.05, 1.0), st.floats(0.0, 0.5), st.floats(0.2, 3.0))
def test_tokens_come_as_often_as_their_probabilities_say(seed: int, top_k: int, top_p: float, min_p: float, heat: float) -> None:
    logits = np.random.default_rng(seed).standard_normal(12).astype(np.float32) * 2
    config = GenerationConfig(do_sample=True, top_k=top_k, top_p=top_p, min_p=min_p, temperature=heat)
    chances = _by_definition(logits, top_k, top_p, min_p, heat)
    found = draw(np.tile(logits, (4000, 1)), config, np.random.default_rng(seed))
    share = np.bincount(found, minlength=12) / len(found)
    assert set(np.nonzero(share)[0]) <= set(np.nonzero(chances)[0])
    assert np.abs(share - chances).max() < 0.06


def _by_definition(logits: Array, top_k: int, top_p: float, min_p: float, heat: float) -> Array:
    """Probabilities of tokens, by sets."""
    weights = np.exp(logits.astype(np.float64) / heat)
    kept = {int(token) for token in np.argsort(-weights)[:top_k]}

    def normal(tokens: set[int]) -> dict[int, float]:
        total = sum(weights[token] for token in tokens)
        return {token: float(weights[token] / total) for token in tokens}

    chances = normal(kept)
    nucleus: set[int] = set()
    for token in sorted(kept, key=lambda token: -chances[token]):
        nucleus.add(token)
        if sum(chances[each] for each in nucleus) >= top_p - 1e-12:
            break
    chances = normal(nucleus)
    largest = max(chances.values())
    chances = normal({token for token in nucleus if chances[token] >= min_p * largest})
    return np.array([chances.get(token, 0.0) for token in range(len(logits))])


def test_repetition_is_penalized_by_sign() -> None:
    scores = np.array([[2.0, -2.0, 1.0]], np.float32)
    on.penalize_repetition(scores, [np.array([0, 1, 1])], 2.0)
    assert scores.tolist() == [[1.0, -4.0, 1.0]]


def test_ngrams_do_not_come_again() -> None:
    scores = np.zeros((1, 5), np.float32)
    on.forbid_repeated_ngrams(scores, [np.array([1, 2, 3, 1, 2])], 3)
    assert np.isneginf(scores[0]).nonzero()[0].tolist() == [3]
    on.forbid_repeated_ngrams(scores, [np.array([4])], 1)
    assert np.isneginf(scores[0]).nonzero()[0].tolist() == [3, 4]
    text = generate(Chain(np.eye(4)[[1, 2, 0, 0]] + np.eye(4)[[3, 3, 3, 3]] * 0.5), [0], no_repeat_ngram_size=2, max_new_tokens=6)
    pairs = list(zip(text.sequences[0][:-1].tolist(), text.sequences[0][1:].tolist()))
    assert len(set(pairs)) == len(pairs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": 0.0}, "temperature is 0.0: expected a positive number"),
        ({"top_p": 1.5}, "top_p is 1.5: expected more than 0 and at most 1"),
        ({"top_k": -1}, "top_k is -1: expected 0 or more"),
        ({"num_beams": 0}, "num_beams is 0: expected 1 or more"),
        ({"num_return_sequences": 2}, "without sampling or beams all would be the same"),
        ({"num_beams": 2, "num_return_sequences": 3}, "expected at most num_beams"),
        ({"eos_token_id": (-2,)}, "eos_token_id is"),
        ({"heat": 3}, "unknown settings of a generation: heat"),
        ({"num_beams": 2, "do_sample": True}, "beams are not drawn by chance"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=message):
        generate(NEXT, [1], **changes)


def test_prompts_that_make_no_sense_are_refused() -> None:
    for prompts, message in (([[]], "prompt 0 is empty"), ([], "there is no prompt"), ([[1], [0.5]], "prompt 1: expected a row")):
        with pytest.raises(errors.InvalidArgument, match=message):
            list(choose_tokens(NEXT, prompts, GenerationConfig()))
    with pytest.raises(errors.InvalidArgument, match="max_length is 2, but a prompt has 3 tokens"):
        generate(NEXT, [1, 2, 3], max_length=2)


def test_settings_of_a_file_leave_out_what_is_not_known() -> None:
    config = from_mapping({"top_k": 5, "eos_token_id": [1, 2], "pad_token_id": [3], "architectures": ["X"], "top_p": None})
    assert (config.top_k, config.eos_token_id, config.pad_token_id, config.top_p) == (5, (1, 2), 3, 1.0)
