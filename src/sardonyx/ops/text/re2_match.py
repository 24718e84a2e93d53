"""Matching regular expressions in time linear in the text, whatever the pattern: sets of states instead of going back.

A pattern is a program of few instructions (`Code`), each a tuple; addresses are relative, so that a piece can be copied:

    (CHARS, ranges)     a character in one of these ranges, then the next instruction
    (HOLDS, assertion)  goes on where an assertion about the position holds, as "at the start of a line"
    (SPLIT, a, b)       goes on at both positions
    (JUMP, a)           goes on there

Its end is the match. All ways through the program are followed at once. The set of positions they have reached is a state of an
automaton whose transitions are kept (`_State`), so most characters cost one look into a dictionary. A pattern has few such
states, but can be made to have very many: the table is emptied when it grows too large.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from sardonyx.ops.interruption import stop_if_asked

Ranges: TypeAlias = tuple[tuple[int, int], ...]  # code points, first and last, sorted
Instruction: TypeAlias = tuple[Any, ...]
Code: TypeAlias = list[Instruction]

CHARS, HOLDS, SPLIT, JUMP = range(4)
_OTHER, _WORD, _NEWLINE, _EDGE = range(4)  # what is on one side of a position: a character of a kind, or the end of the text
# Assertions, as functions of what is before a position and behind it
HOLDING: Final[dict[str, Callable[[int, int], bool]]] = {
    "text start": lambda before, behind: before == _EDGE,
    "text end": lambda before, behind: behind == _EDGE,
    "line start": lambda before, behind: before in (_EDGE, _NEWLINE),
    "line end": lambda before, behind: behind in (_EDGE, _NEWLINE),
    "word boundary": lambda before, behind: (before == _WORD) != (behind == _WORD),
    "no word boundary": lambda before, behind: (before == _WORD) == (behind == _WORD),
}
_MOST_STATES: Final = 2_000
_MOST_TRANSITIONS: Final = 100_000
_STEPS_BETWEEN_LOOKS: Final = 200_000  # instructions, in the worst case, between two looks whether to stop


def _kind(char: str) -> int:
    if char == "\n":
        return _NEWLINE
    return _WORD if char.isascii() and (char.isalnum() or char == "_") else _OTHER


class _State(dict[str, "_State"]):
    """Where all ways have got to; the states that follow, by character, are found out when they are first asked for."""

    __slots__ = ("_automaton", "before", "ends", "matched", "threads")

    def __init__(self, automaton: Automaton, threads: tuple[int, ...], before: int, matched: bool) -> None:
        super().__init__()
        self._automaton = automaton
        self.threads = threads
        self.before = before  # what was read last
        self.matched = matched  # whether a match ended before the character read last
        self.ends: bool | None = None  # whether one ends here, if the text does

    def __missing__(self, char: str) -> _State:
        following = self[char] = self._automaton.step(self, char)
        return following

    @property
    def is_dead(self) -> bool:
        """Whether no match will end later."""
        return not self.threads


class AsciiGroups(NamedTuple):
    """Groups of ASCII characters: the first of each, and the group of every character."""

    first: list[str]
    of: list[int]


class Automaton:
    """A program with the states it has been in. With `searching` a match may start anywhere; a reversed one reads backwards."""

    def __init__(self, code: Code, *, searching: bool = False, backwards: bool = False) -> None:
        self._code = code
        self._searching = searching
        self._backwards = backwards
        self._asserts = any(instruction[0] == HOLDS for instruction in code)
        self._starts = {at: [first for first, _ in each[1]] for at, each in enumerate(code) if each[0] == CHARS}
        self._states: dict[tuple[tuple[int, ...], int, bool], _State] = {}
        self._transitions = 0
        self.between_looks = max(1, _STEPS_BETWEEN_LOOKS // (len(code) + 1))

    def start(self, before: int = _EDGE) -> _State:
        """The state before anything is read."""
        return self._state((0,), before if self._asserts else _EDGE, False)

    def _state(self, threads: tuple[int, ...], before: int, matched: bool) -> _State:
        key = (threads, before, matched)
        found = self._states.get(key)
        if found is None:
            if len(self._states) > _MOST_STATES or self._transitions > _MOST_TRANSITIONS:
                self._states = {}
                self._transitions = 0
            found = self._states[key] = _State(self, threads, before, matched)
        return found

    def ascii_groups(self) -> AsciiGroups:
        """ASCII characters that no instruction tells apart."""
        edges = sorted({edge for each in self._code if each[0] == CHARS for first, last in each[1] for edge in (first, last + 1)})
        found: dict[tuple[int, int], int] = {}
        members = [found.setdefault((bisect_right(edges, code), _kind(chr(code))), len(found)) for code in range(128)]
        return AsciiGroups([chr(members.index(group)) for group in range(len(found))], members)

    def step(self, state: _State, char: str) -> _State:
        """The state after one more character."""
        behind = _kind(char) if self._asserts else _OTHER
        waiting, matched = self._closure(state, behind)
        point = ord(char)
        reached = {0} if self._searching else set()
        for at in waiting:
            position = bisect_right(self._starts[at], point)
            if position and point <= self._code[at][1][position - 1][1]:
                reached.add(at + 1)
        self._transitions += 1
        return self._state(tuple(sorted(reached)), behind, matched)

    def ends(self, state: _State) -> bool:
        """Whether a match ends where the text does."""
        if state.ends is None:
            state.ends = self._closure(state, _EDGE)[1]
        return state.ends

    def _closure(self, state: _State, behind: int) -> tuple[list[int], bool]:
        """The positions that wait for a character, if `behind` comes next, and whether the end of the program is reached."""
        code, last = self._code, len(self._code)
        sides = (behind, state.before) if self._backwards else (state.before, behind)
        pending = list(state.threads)
        seen = set(pending)
        waiting: list[int] = []
        while pending:
            at = pending.pop()
            if at == last:
                continue
            instruction = code[at]
            kind = instruction[0]
            if kind == CHARS:
                waiting.append(at)
                continue
            if kind == HOLDS:
                following = (1,) if HOLDING[instruction[1]](*sides) else ()
            else:
                following = instruction[1:]
            for distance in following:
                if at + distance not in seen:
                    seen.add(at + distance)
                    pending.append(at + distance)
        return waiting, last in seen


class Span(NamedTuple):
    """A match: text[start:end]."""

    start: int
    end: int


class DirectMatch(NamedTuple):
    """The same pattern for Python's `re`, if that is as safe (see `re2_direct`)."""

    pattern: re.Pattern[str]
    is_searched: bool  # whether a search takes linear time, too
    shortest: int  # characters of the shortest match


class Regex:
    """A compiled pattern: `forwards` as it is written, `backwards` with all sequences turned round."""

    def __init__(self, text: str, forwards: Code, backwards: Code, direct: DirectMatch | None = None) -> None:
        self.text = text
        self._direct = direct
        self._code = forwards
        self._forwards = Automaton(forwards)
        self._backwards = Automaton(backwards, searching=True, backwards=True)

    def __repr__(self) -> str:
        return f"Regex({self.text!r})"

    def automaton(self) -> Automaton:
        """One that reads texts from their beginning, and has no state yet."""
        return Automaton(self._code)

    def repeated_class(self) -> tuple[Ranges, int] | None:
        """The characters of a pattern that is one class, so many times or more; None if it is another."""
        *items, last = self._code or [(JUMP, 1)]
        if last != (SPLIT, -1, 1) or not items or any(each != items[0] or each[0] != CHARS for each in items):
            return None
        return items[0][1], len(items)

    def full_matches(self, texts: list[str]) -> list[bool]:
        """Which texts match as a whole."""
        if self._direct is None:
            return [self.fullmatch(text) for text in texts]
        stop_if_asked()
        return [found is not None for found in map(self._direct.pattern.fullmatch, texts)]

    def find_all(self, texts: list[str], least: int) -> list[list[str]] | None:
        """For each text its matches, one behind the other; None if some could be empty, shorter than `least`, or take long."""
        if self._direct is None or not self._direct.is_searched or self._direct.shortest < max(least, 1):
            return None
        stop_if_asked()
        return list(map(self._direct.pattern.findall, texts))

    def fullmatch(self, text: str) -> bool:
        """Whether the whole text matches."""
        if self._direct is not None:
            return self._direct.pattern.fullmatch(text) is not None
        automaton = self._forwards
        state, interval = automaton.start(), automaton.between_looks
        for first in range(0, len(text), interval):
            stop_if_asked()
            for char in text[first : first + interval]:
                state = state[char]
            if state.is_dead:
                return False
        return automaton.ends(state)

    def finder(self, text: str) -> Callable[[int], Span | None]:
        """A function that finds the leftmost match that starts at a position or behind it; of several, the longest."""
        if self._direct is not None and self._direct.is_searched:
            search = self._direct.pattern.search

            def find_directly(at: int) -> Span | None:
                found = search(text, at)
                return None if found is None else Span(*found.span())

            return find_directly
        starts = self._match_starts(text)

        def find(at: int) -> Span | None:
            start = starts.find(1, at)
            return None if start < 0 else Span(start, self._longest_from(text, start))

        return find

    def _match_starts(self, text: str) -> bytearray:
        """1 at every position where a match starts."""
        automaton = self._backwards
        found = bytearray(len(text) + 1)
        state, interval = automaton.start(), automaton.between_looks
        for position in range(len(text), 0, -1):
            if position % interval == 0:
                stop_if_asked()
            state = state[text[position - 1]]
            if state.matched:
                found[position] = 1
        found[0] = automaton.ends(state)
        return found

    def _longest_from(self, text: str, start: int) -> int:
        """The end of the longest match that starts at a position where one does."""
        automaton = self._forwards
        state, interval = automaton.start(_kind(text[start - 1]) if start else _EDGE), automaton.between_looks
        longest = start
        for position in range(start, len(text)):
            if position % interval == 0:
                stop_if_asked()
            state = state[text[position]]
            if state.matched:
                longest = position
            if state.is_dead:
                return longest
        return len(text) if automaton.ends(state) else longest


def choice(pieces: list[Code]) -> Code:
    """The program that takes one of several."""
    code: Code = []
    size = sum(map(len, pieces)) + 2 * (len(pieces) - 1)
    for piece in pieces[:-1]:
        code.append((SPLIT, 1, len(piece) + 2))
        code.extend(piece)
        code.append((JUMP, size - len(code)))
    return code + pieces[-1]


def repeated(code: Code, least: int, most: int | None) -> Code:
    """A program that runs another several times, any number of them if `most` is None."""
    if most is None:
        if least == 0:
            return [(SPLIT, 1, len(code) + 2), *code, (JUMP, -len(code) - 1)]
        return [*(code * least), (SPLIT, -len(code), 1)]
    optional: Iterator[Code] = ([(SPLIT, 1, (len(code) + 1) * left), *code] for left in range(most - least, 0, -1))
    return [*(code * least), *(instruction for piece in optional for instruction in piece)]
