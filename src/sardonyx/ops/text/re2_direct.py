"""Patterns that Python's own `re` matches in linear time, too: there it is faster than an automaton by far.

    [a-z0-9]+@[a-z]+\\.com      a sequence of classes of characters, each once or repeated
    a+ab                       left to the automaton: how often `a` repeats depends on what follows

`re` goes back when something does not fit. That takes long only where a character can be taken in several ways, so the classes
here are apart from all that may follow them. A search tries every position: what can fail late, after a repetition, is left
to the automaton as well. Longest and first match are the same, as there is one way to match.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from sardonyx.ops.text.re2_match import CHARS, JUMP, SPLIT, Code, DirectMatch, Ranges

_MOST_FIXED: Final = 16  # characters that are compared at each position of a search


class _Item(NamedTuple):
    """A class of characters and how often it stands there; `most` is None for any number."""

    ranges: Ranges
    least: int
    most: int | None

    @property
    def is_fixed(self) -> bool:
        return self.least == self.most


def direct_match(code: Code) -> DirectMatch | None:
    """What matches a program by `re`; None if that may take longer than linear time, or the program is no plain sequence."""
    items = _items(code)
    if not items or not _is_deterministic(items):
        return None
    fixed = sum(item.least for item in items)
    is_searched = all(item.is_fixed for item in items[:-1]) and fixed <= _MOST_FIXED
    return DirectMatch(re.compile("".join(map(_written, items))), is_searched, fixed)


def _items(code: Code) -> list[_Item]:
    """The sequence that a program is; empty if it is none."""
    items: list[_Item] = []
    at = 0
    while at < len(code):
        kinds = [instruction[0] for instruction in code[at : at + 3]]
        if kinds[:1] == [CHARS]:
            repeats = code[at + 1 : at + 2] == [(SPLIT, -1, 1)]
            items.append(_Item(code[at][1], 1, None if repeats else 1))
            at += 2 if repeats else 1
        elif code[at] == (SPLIT, 1, 3) and kinds == [SPLIT, CHARS, JUMP] and code[at + 2] == (JUMP, -2):
            items.append(_Item(code[at + 1][1], 0, None))
            at += 3
        elif code[at] == (SPLIT, 1, 2) and kinds[:2] == [SPLIT, CHARS] and code[at + 2 : at + 3] != [(SPLIT, -1, 1)]:
            items.append(_Item(code[at + 1][1], 0, 1))
            at += 2
        else:
            return []
    return items if all(item.ranges for item in items) else []


def _is_deterministic(items: list[_Item]) -> bool:
    for number, item in enumerate(items):
        if item.is_fixed:
            continue
        for other in items[number + 1 :]:
            if not _are_apart(item.ranges, other.ranges):
                return False
            if other.least:
                break
    return True


def _are_apart(one: Ranges, other: Ranges) -> bool:
    return all(last < begin or end < first for first, last in one for begin, end in other)


def _written(item: _Item) -> str:
    characters = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in item.ranges)
    count = {(1, 1): "", (1, None): "+", (0, None): "*", (0, 1): "?"}[item.least, item.most]
    return f"[{characters}]{count}"
