"""How text is generated: how long, by which rule tokens are chosen, where it ends. The names are those of `transformers`.

GenerationConfig(max_new_tokens=64)                                   greedy
GenerationConfig(do_sample=True, temperature=0.7, top_p=0.9, seed=1)  sampling
GenerationConfig(num_beams=4, num_return_sequences=2)                 beam search
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Literal

from sardonyx.errors import InvalidArgument
from sardonyx.records import dataclass


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """Settings of a generation. Lengths count tokens; `max_length` and `min_length` count those of the (longest) prompt, too."""

    max_new_tokens: int | None = None
    max_length: int = 0  # 0: prompt and `max_new_tokens`, or 20 new ones if neither is given
    min_new_tokens: int = 0
    min_length: int = 0
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    num_beams: int = 1
    num_return_sequences: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    eos_token_id: tuple[int, ...] = ()
    pad_token_id: int | None = None
    suppress_tokens: tuple[int, ...] = ()  # never chosen
    begin_suppress_tokens: tuple[int, ...] = ()  # not chosen first
    bad_words_ids: tuple[tuple[int, ...], ...] = ()  # sequences that are never completed
    forced_bos_token_id: int | None = None  # the first token of a text behind the one that starts decoding
    forced_eos_token_id: tuple[int, ...] = ()  # what a text ends with that becomes as long as it may
    seed: int | None = None  # of sampling; None: another one every time

    def __post_init__(self) -> None:
        for name in ("eos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens"):
            object.__setattr__(self, name, _tokens(name, getattr(self, name)))
        object.__setattr__(self, "bad_words_ids", tuple(_tokens("bad_words_ids", each) for each in self.bad_words_ids))
        self._require(self.max_new_tokens is None or self.max_new_tokens >= 0, "max_new_tokens", "0 or more")
        for name in ("max_length", "min_new_tokens", "min_length", "top_k", "no_repeat_ngram_size"):
            self._require(getattr(self, name) >= 0, name, "0 or more")
        for name in ("num_beams", "num_return_sequences"):
            self._require(getattr(self, name) >= 1, name, "1 or more")
        for name in ("temperature", "repetition_penalty"):
            self._require(getattr(self, name) > 0 and math.isfinite(getattr(self, name)), name, "a positive number")
        self._require(0 < self.top_p <= 1, "top_p", "more than 0 and at most 1")
        self._require(0 <= self.min_p <= 1, "min_p", "from 0 to 1")
        self._require(math.isfinite(self.length_penalty), "length_penalty", "a number")
        self._require(self.early_stopping in (True, False, "never"), "early_stopping", "True, False or 'never'")
        if self.num_beams > 1 and self.num_return_sequences > self.num_beams:
            raise InvalidArgument(
                f"num_return_sequences is {self.num_return_sequences}: expected at most num_beams ({self.num_beams})"
            )
        if self.num_beams == 1 and self.num_return_sequences > 1 and not self.do_sample:
            raise InvalidArgument(
                f"num_return_sequences is {self.num_return_sequences}: without sampling or beams all would be the same",
                hint="set do_sample=True or num_beams",
            )

    def _require(self, holds: bool, name: str, expected: str) -> None:
        if not holds:
            raise InvalidArgument(f"{name} is {getattr(self, name)!r}: expected {expected}")

    def with_changes(self, **changes: Any) -> GenerationConfig:
        """The same with other settings; those that are None stay."""
        given = {name: value for name, value in changes.items() if value is not None}
        unknown = sorted(given.keys() - {field.name for field in fields(self)})
        if unknown:
            raise InvalidArgument(f"unknown settings of a generation: {', '.join(unknown)}", hint=f"known: {', '.join(names())}")
        return replace(self, **given)

    def longest(self, prompt: int) -> int:
        """How many tokens a sequence may have, its prompt of so many included."""
        if self.max_new_tokens is not None:
            return prompt + self.max_new_tokens
        return self.max_length or prompt + 20

    def shortest(self, prompt: int) -> int:
        """How many tokens a sequence must have before it may end."""
        return max(self.min_length, prompt + self.min_new_tokens if self.min_new_tokens else 0)


def names() -> list[str]:
    """The names of all settings."""
    return [field.name for field in fields(GenerationConfig)]


def _tokens(name: str, given: Any) -> tuple[int, ...]:
    if given is None:
        return ()
    found = tuple(given) if isinstance(given, (Sequence, set, frozenset)) else (given,)
    if not all(isinstance(token, int) and not isinstance(token, bool) and token >= 0 for token in found):
        raise InvalidArgument(f"{name} is {given!r}: expected token ids")
    return found


def from_mapping(given: Mapping[str, Any]) -> GenerationConfig:
    """The settings that a file of an exported model has, as far as they are known here; others are for other programs."""
    known = {name: given[name] for name in names() if given.get(name) is not None}
    if isinstance(known.get("pad_token_id"), list):
        known["pad_token_id"] = known["pad_token_id"][0]
    return GenerationConfig(**known)
