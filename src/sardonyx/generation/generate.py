"""Tokens in, tokens out: all of them at the end (`generate`), or each as it is chosen (`stream`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from sardonyx.decoding.beams import beam_search
from sardonyx.decoding.config import GenerationConfig
from sardonyx.decoding.loop import DecoderModel, Step, choose_tokens
from sardonyx.errors import InvalidArgument
from sardonyx.records import dataclass

Array = np.ndarray[Any, Any]
OnTokens: TypeAlias = Callable[[Array], "bool | None"]  # True ends the generation


@dataclass(frozen=True)
class Generation:
    """What was generated: texts as rows of tokens, `count` for each prompt one after the other."""

    sequences: list[Array]  # prompt, new tokens, and the one that ended the text
    prompt_lengths: list[int]
    scores: list[float] | None = None  # of beam search: the sum of logarithms over a power of the length
    padding: int = 0

    @property
    def new_tokens(self) -> list[Array]:
        """The texts without their prompts."""
        return [row[length:] for row, length in zip(self.sequences, self.prompt_lengths)]

    def padded(self) -> Array:
        """The texts as one array; short ones end with padding."""
        longest = max(len(row) for row in self.sequences)
        made = np.full((len(self.sequences), longest), self.padding, np.int64)
        for row, tokens in zip(made, self.sequences):
            row[: len(tokens)] = tokens
        return made


def generate(
    decoder: DecoderModel,
    prompts: Any,
    config: GenerationConfig | None = None,
    *,
    attention_mask: Any = None,
    on_tokens: OnTokens | None = None,
    **changes: Any,
) -> Generation:
    """Continue prompts: a row of tokens, a list of such rows of any lengths, or an array with an attention mask (0: padding).

    `changes` are settings that differ from those of `config`. `on_tokens` is called with the tokens of every step (greedy and
    sampling), one for each row.
    """
    settings = (config or GenerationConfig()).with_changes(**changes)
    rows = prompt_rows(prompts, attention_mask)
    padding = settings.pad_token_id if settings.pad_token_id is not None else (*settings.eos_token_id, 0)[0]
    if settings.num_beams > 1:
        if settings.do_sample:
            raise InvalidArgument("do_sample=True with num_beams > 1: beams are not drawn by chance", hint="set one of them")
        if on_tokens is not None:
            raise InvalidArgument("on_tokens with num_beams > 1: the tokens of beams are known at the end only")
        found = beam_search(decoder, rows, settings)
        beams = [beam for text in found for beam in text]
        sequences = [beam.tokens if beam.end is None else np.append(beam.tokens, beam.end) for beam in beams]
        lengths = [len(row) for row, text in zip(rows, found) for _ in text]
        return Generation(sequences, lengths, [beam.score for beam in beams], padding)
    starts = [row for row in rows for _ in range(settings.num_return_sequences)]
    made: list[list[int]] = [[] for _ in starts]
    for step in choose_tokens(decoder, rows, settings):
        for row, token, is_new in zip(made, step.tokens.tolist(), step.is_new.tolist()):
            if is_new:
                row.append(token)
        if on_tokens is not None and on_tokens(step.tokens):
            break
    sequences = [np.concatenate([start, np.array(row, np.int64)]) for start, row in zip(starts, made)]
    return Generation(sequences, [len(start) for start in starts], None, padding)


def stream(
    decoder: DecoderModel, prompts: Any, config: GenerationConfig | None = None, *, attention_mask: Any = None, **changes: Any
) -> Iterator[Step]:
    """The same, step by step: each has the tokens of all rows. Whoever stops asking stops the generation."""
    settings = (config or GenerationConfig()).with_changes(**changes)
    if settings.num_beams > 1:
        raise InvalidArgument(
            f"num_beams is {settings.num_beams}: the tokens of beams are known at the end only", hint="use generate"
        )
    return choose_tokens(decoder, prompt_rows(prompts, attention_mask), settings)


def prompt_rows(prompts: Any, attention_mask: Any = None) -> list[Array]:
    """Prompts as rows without padding."""
    if isinstance(prompts, np.ndarray) or attention_mask is not None:
        given = np.asarray(prompts)
        given = given[None] if given.ndim == 1 else given
        if given.ndim != 2:
            raise InvalidArgument(f"prompts have the shape {given.shape}: expected [rows, tokens]")
        mask = np.ones(given.shape, bool) if attention_mask is None else np.asarray(attention_mask).astype(bool)
        if mask.shape != given.shape:
            raise InvalidArgument(f"attention_mask has the shape {mask.shape}, the prompts {given.shape}")
        return [row[keep].astype(np.int64) for row, keep in zip(given, mask)]
    if isinstance(prompts, Sequence) and prompts and isinstance(prompts[0], (int, np.integer)):
        return [np.asarray(prompts, np.int64)]
    return [np.asarray(row) for row in prompts]
