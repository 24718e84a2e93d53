"""Timestamps in what Whisper writes: tokens from <|0.00|> on, of which one stands before and one behind every piece of speech."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.records import dataclass

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TimestampRule:
    """The numbers of the tokens that the rule is about; negative ones do not exist.

    Timestamps come in pairs and do not go back; the first is at most `latest` steps after the beginning; where all timestamps
    together are likelier than any other token, a timestamp comes.
    """

    first: int  # <|0.00|>, behind which there are only timestamps
    end: int  # <|endoftext|>, before which there is only text
    never: tuple[int, ...]  # <|notimestamps|>, <|startoflm|>
    not_again: tuple[int, ...]  # <|startoftranscript|>, <|translate|>, <|transcribe|>: not behind the first timestamp
    latest: int = 50
    lowest: float = float(np.finfo(np.float32).min)

    def apply(self, scores: Array, histories: Sequence[Array]) -> None:
        """Change the logarithms of probabilities [rows, vocabulary]."""
        for row, history in zip(scores, histories):
            self._forbid(row, history)
            stamps, text = row[self.first :], row[: self.first]
            held = stamps[stamps > self.lowest].astype(np.float64)
            together = held.max() + np.log(np.exp(held - held.max()).sum()) if held.size else self.lowest
            if together > text.max(initial=self.lowest):
                text[:] = self.lowest

    def _forbid(self, row: Array, history: Array) -> None:
        (where,) = np.nonzero(history >= self.first)
        begins = int(where[0]) + 1 if len(where) else len(history)  # the length of what comes before the first piece
        forbidden = (*self.never, *(self.not_again if len(history) > begins else ()))
        row[[token for token in forbidden if 0 <= token < len(row)]] = self.lowest
        ends_with_one = len(history) > 0 and bool(history[-1] >= self.first)
        is_paired = len(history) <= begins or bool(history[-2] >= self.first)
        if ends_with_one and is_paired:
            row[self.first :] = self.lowest
        elif ends_with_one:
            row[: self.end] = self.lowest
        if len(where):
            last = int(history[where[-1]])
            row[self.first : last + (not ends_with_one or is_paired)] = self.lowest
        if len(history) == begins:
            row[self.first + self.latest + 1 :] = self.lowest
