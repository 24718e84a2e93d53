"""Beam search against a search through all texts."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_loop import Chain

from sardonyx.decoding.beams import beam_search
from sardonyx.decoding.config import GenerationConfig
from sardonyx.generation import generate, stream

Array = np.ndarray[Any, Any]


def _all_texts(table: Array, start: int, count: int, end: int, penalty: float) -> list[tuple[float, tuple[int, ...]]]:
    """Every text of at most `count` tokens with its score, best first."""
    logs = table - np.log(np.exp(table).sum(axis=1, keepdims=True))
    found = {}
    for tokens in itertools.product(range(len(table)), repeat=count):
        cut = tokens.index(end) + 1 if end in tokens else count
        text = tokens[:cut]
        total = sum(logs[before, after] for before, after in zip((start, *text[:-1]), text))
        found[text] = float(total) / cut**penalty
    return sorted(((score, text) for text, score in found.items()), reverse=True)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from([0.0, 1.0, 2.0]))
def test_with_enough_beams_the_best_texts_of_all_are_found(seed: int, penalty: float) -> None:
    table = np.random.default_rng(seed).standard_normal((4, 4))
    config = GenerationConfig(
        num_beams=64, num_return_sequences=3, eos_token_id=(3,), max_new_tokens=3, length_penalty=penalty, early_stopping="never"
    )
    (beams,) = beam_search(Chain(table), [[0]], config)
    wanted = _all_texts(table, 0, 3, 3, penalty)[:3]
    np.testing.assert_allclose([beam.score for beam in beams], [score for score, _ in wanted], rtol=1e-4)


def test_texts_that_end_keep_their_end_and_one_beam_is_greedy() -> None:
    table = np.log(np.array([[0.1, 0.6, 0.3], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]]))
    made = generate(Chain(table), [[0], [1]], num_beams=2, eos_token_id=(2,), max_new_tokens=4)
    assert [row.tolist()[-1] for row in made.sequences] == [2, 2]
    with pytest.raises(Exception, match="known at the end only"):
        stream(Chain(table), [0], num_beams=2)
