"""Regular expressions in RE2 syntax, compiled for a matcher that takes time linear in the text (`re2_match`).

Only whether a text matches, or where, is asked for, so groups lose their names and numbers, and greedy and lazy repeats are the
same. \\d, \\w, \\s and \\b are ASCII as in RE2. What RE2 does not have (look-around, back references, possessive repeats) is an
error, as it is there; so is \\C (a single byte), which it has.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from typing import Final, NamedTuple

from sardonyx.ops.tables import read_table
from sardonyx.ops.text.re2_direct import direct_match
from sardonyx.ops.text.re2_match import CHARS, HOLDS, Code, Ranges, Regex, choice, repeated

_LAST: Final = 0x10FFFF
_LAST_CASED: Final = 0x1FFFF  # behind it no letter has another case
_DIGIT: Final[Ranges] = ((48, 57),)
_WORD: Final[Ranges] = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Final[Ranges] = ((9, 10), (12, 13), (32, 32))
_PERL: Final = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_POSIX: Final[dict[str, Ranges]] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGIT,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_ASSERTIONS: Final = {"A": "text start", "z": "text end", "b": "word boundary", "B": "no word boundary"}
_CONTROL: Final = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_REPEAT: Final = re.compile(r"\{(\d+)(,\d*)?\}")
_MOST_REPEATS: Final = 1000  # RE2's own limit, also of repeats inside repeats
_MOST_NESTED: Final = 1000  # groups inside groups, likewise
_MOST_INSTRUCTIONS: Final = 100_000
_POSIX_CLASS: Final = re.compile(r"\[:(\^?)(\w+):\]")
_UNICODE_CLASS: Final = re.compile(r"\\[pP](?:([A-Z])|\{(\^?)([A-Za-z_]+)\})")
_POINT: Final = re.compile(r"\\(?:x\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})|(0[0-7]{0,2}|[1-7][0-7]{1,2}))")
_NAMED_GROUP: Final = re.compile(r"\(\?P?<\w+>")
_FLAGS: Final = re.compile(r"\(\?([imsU]*)(-[imsU]+)?([:)])")


def _complement(ranges: Ranges) -> Ranges:
    result = []
    start = 0
    for first, last in sorted(ranges):
        if first > start:
            result.append((start, first - 1))
        start = max(start, last + 1)
    if start <= _LAST:
        result.append((start, _LAST))
    return tuple(result)


@cache
def _category(name: str) -> Ranges:
    """The code points of a Unicode general category, as L or Nd."""
    result: list[tuple[int, int]] = []
    for point in range(_LAST + 1):
        category = unicodedata.category(chr(point))
        if category.startswith(name) and category != "Cn":  # what has no character belongs to no class
            if result and result[-1][1] == point - 1:
                result[-1] = (result[-1][0], point)
            else:
                result.append((point, point))
    return tuple(result)


@cache
def _scripts() -> dict[str, Ranges]:
    """The code points of every script, as Greek."""
    found: dict[str, Ranges] = {}
    for line in read_table("sardonyx.ops.text", "unicode_scripts.txt").splitlines():
        if not line.startswith("#"):
            name, *spans = line.split()
            ends = ([int(end, 16) for end in span.split("-")] for span in spans)
            found[name] = tuple((each[0], each[-1]) for each in ends)
    return found


@cache
def _case_orbits() -> dict[int, tuple[int, ...]]:
    """The other letters that are the same but for their case, of every letter that has any."""
    by_fold: dict[str, list[int]] = {}
    for point in range(_LAST_CASED + 1):
        char = chr(point)
        folded = char.casefold()
        if len(folded) != 1:  # several letters: then it is what its lower case is
            folded = char.lower() if len(char.lower()) == 1 else char
        if folded != char:
            by_fold.setdefault(folded, [ord(folded)]).append(point)
    return {point: tuple(other for other in same if other != point) for same in by_fold.values() for point in same}


def _folded(ranges: Ranges) -> Ranges:
    """The ranges with the other cases of all their letters."""
    orbits = _case_orbits()
    added: set[int] = set()
    for first, last in ranges:
        points = range(first, last + 1) if last - first < len(orbits) else [point for point in orbits if first <= point <= last]
        added.update(other for point in points for other in orbits.get(point, ()))
    return (*ranges, *((point, point) for point in added))


def _merged(ranges: Ranges) -> Ranges:
    """The same characters in ranges that are sorted and apart."""
    return _complement(_complement(ranges))


class _Piece(NamedTuple):
    """Part of a pattern, to be read forwards and backwards."""

    forwards: Code
    backwards: Code
    repeats: int = 1  # the largest product of counts of repeats inside each other


def _sequence(pieces: list[_Piece]) -> _Piece:
    forwards = [instruction for piece in pieces for instruction in piece.forwards]
    backwards = [instruction for piece in reversed(pieces) for instruction in piece.backwards]
    return _Piece(forwards, backwards, max((piece.repeats for piece in pieces), default=1))


class _Level:
    """An open group: its flags, the alternatives that are complete, and the pieces of the one being read."""

    def __init__(self, flags: frozenset[str]) -> None:
        self.flags = flags
        self.alternatives: list[_Piece] = []
        self.pieces: list[_Piece] = []

    def done(self) -> _Piece:
        alternatives = [*self.alternatives, _sequence(self.pieces)]
        return _Piece(
            choice([piece.forwards for piece in alternatives]),
            choice([piece.backwards for piece in alternatives]),
            max(piece.repeats for piece in alternatives),
        )


class _Parser:
    """Walks the pattern once; `levels` holds the open groups."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.levels = [_Level(frozenset())]

    def error(self, what: str) -> ValueError:
        return ValueError(f"the pattern {self.pattern!r} is not RE2 syntax: {what} at position {self.at}")

    def parse(self) -> _Piece:
        pattern = self.pattern
        while self.at < len(pattern):
            char = pattern[self.at]
            if char in "*+?" or (char == "{" and _REPEAT.match(pattern, self.at)):
                if not self.levels[-1].pieces:
                    raise self.error(f"nothing to repeat before {char!r}")
                self._repeat(char)
            elif char == "\\":
                self._escape()
            elif char == "[":
                self._class()
            elif char == "(":
                self._open()
            elif char == ")":
                self._close()
            elif char == "|":
                level = self.levels[-1]
                level.alternatives.append(_sequence(level.pieces))
                level.pieces = []
                self.at += 1
            else:
                flags = self.levels[-1].flags
                if char == "^":
                    self._holds("line start" if "m" in flags else "text start")
                elif char == "$":
                    self._holds("line end" if "m" in flags else "text end")
                elif char == ".":
                    self._append([(CHARS, ((0, _LAST),) if "s" in flags else ((0, 9), (11, _LAST)))])
                else:
                    self._characters(((ord(char), ord(char)),))
                self.at += 1
        if len(self.levels) > 1:
            raise self.error("a group that is not closed")
        return self.levels[0].done()

    def _append(self, code: Code) -> None:
        self.levels[-1].pieces.append(_Piece(code, code))

    def _holds(self, assertion: str) -> None:
        self._append([(HOLDS, assertion)])

    def _fold(self, ranges: Ranges) -> Ranges:
        return _folded(ranges) if "i" in self.levels[-1].flags else ranges

    def _characters(self, ranges: Ranges) -> None:
        self._append([(CHARS, _merged(self._fold(ranges)))])

    def _repeat(self, char: str) -> None:
        counted = _REPEAT.match(self.pattern, self.at)
        text = counted.group() if counted else char
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(text, (0, 0))
        repeats = 1
        piece = self.levels[-1].pieces.pop()
        if counted:
            least = int(counted.group(1))
            most = least if counted.group(2) is None else int(counted.group(2)[1:]) if counted.group(2) != "," else None
            repeats = max(1, least if most is None else most)
            if (most is not None and most < least) or piece.repeats * repeats > _MOST_REPEATS:
                raise self.error(f"bad repetition {text}")
        if (len(piece.forwards) + 1) * repeats > _MOST_INSTRUCTIONS:
            raise self.error(f"a pattern that is too large with the repetition {text}")
        self.at += len(text)
        if self.pattern.startswith("?", self.at):  # lazy or greedy: the same texts match
            self.at += 1
        if self.at < len(self.pattern) and (self.pattern[self.at] in "*+?" or _REPEAT.match(self.pattern, self.at)):
            raise self.error("a repetition of a repetition")
        forwards, backwards = repeated(piece.forwards, least, most), repeated(piece.backwards, least, most)
        self.levels[-1].pieces.append(_Piece(forwards, backwards, piece.repeats * repeats))

    def _escape(self) -> None:
        letter = self.pattern[self.at + 1 : self.at + 2]
        if letter == "Q":
            end = self.pattern.find("\\E", self.at)
            stop = len(self.pattern) if end < 0 else end
            for char in self.pattern[self.at + 2 : stop]:
                self._characters(((ord(char), ord(char)),))
            self.at = stop if end < 0 else end + 2
        elif letter in _ASSERTIONS:
            self._holds(_ASSERTIONS[letter])
            self.at += 2
        else:
            ranges = self._escaped_class()
            if ranges is None:
                point = self._escaped_point()
                self._characters(((point, point),))
            else:
                self._append([(CHARS, _merged(ranges))])

    def _escaped_class(self) -> Ranges | None:
        """The class an escape such as \\d or \\p{Lu} stands for; None if it is a single character."""
        letter = self.pattern[self.at + 1 : self.at + 2]
        if letter.lower() in _PERL:
            self.at += 2
            found = self._fold(_PERL[letter.lower()])
            return _complement(found) if letter.isupper() else found
        if letter not in ("p", "P"):
            return None
        match = _UNICODE_CLASS.match(self.pattern, self.at)
        name = (match.group(1) or match.group(3)) if match else ""
        known = ((0, _LAST),) if name == "Any" else _category(name) if len(name) <= 2 else _scripts().get(name, ())
        known = known or _scripts().get(name, ())  # Yi has two letters
        if match is None or not known:
            raise self.error("a Unicode class that is neither a general category nor a script")
        self.at = match.end()
        found = self._fold(known)
        return _complement(found) if (letter == "P") != bool(match.group(2)) else found

    def _escaped_point(self) -> int:
        """The code point an escape stands for."""
        match = _POINT.match(self.pattern, self.at)
        if match:
            point = int(match.group(3), 8) if match.group(3) else int(match.group(1) or match.group(2), 16)
            if point > _LAST:
                raise self.error(f"the escape {match.group()}")
            self.at = match.end()
            return point
        letter = self.pattern[self.at + 1 : self.at + 2]
        if letter in _CONTROL:
            self.at += 2
            return _CONTROL[letter]
        if not letter or not letter.isascii() or letter.isalnum():
            raise self.error(f"the escape \\{letter}")
        self.at += 2
        return ord(letter)

    def _class(self) -> None:
        """[...]: members are gathered as ranges of code points."""
        self.at += 1
        negated = self.pattern.startswith("^", self.at)
        self.at += negated
        members: list[tuple[int, int]] = []
        first = True
        while first or not self.pattern.startswith("]", self.at):
            if self.at >= len(self.pattern):
                raise self.error("a character class that is not closed")
            first = False
            posix = _POSIX_CLASS.match(self.pattern, self.at)
            if posix:
                if posix.group(2) not in _POSIX:
                    raise self.error(f"the class {posix.group()}")
                found = self._fold(_POSIX[posix.group(2)])
                members.extend(_complement(found) if posix.group(1) else found)
                self.at = posix.end()
                continue
            low = self._member()
            if not isinstance(low, int):
                members.extend(low)
                continue
            high: int | Ranges = low
            if self.pattern.startswith("-", self.at) and not self.pattern.startswith("-]", self.at):
                self.at += 1
                high = self._member()
            if not isinstance(high, int) or high < low:
                raise self.error("a bad range in a character class")
            members.extend(self._fold(((low, high),)))
        self.at += 1
        self._append([(CHARS, _complement(tuple(members)) if negated else _merged(tuple(members)))])

    def _member(self) -> int | Ranges:
        if self.at >= len(self.pattern):
            raise self.error("a character class that is not closed")
        if self.pattern[self.at] == "\\":
            ranges = self._escaped_class()
            return self._escaped_point() if ranges is None else ranges
        self.at += 1
        return ord(self.pattern[self.at - 1])

    def _open(self) -> None:
        """An opening parenthesis, or flags."""
        level = self.levels[-1]
        named = _NAMED_GROUP.match(self.pattern, self.at)
        flags = _FLAGS.match(self.pattern, self.at)
        if self.pattern.startswith("(?", self.at) and not named and not flags:
            raise self.error("a group RE2 does not have")
        if len(self.levels) > _MOST_NESTED:
            raise self.error("groups inside groups that are too many")
        changed = level.flags
        if flags:
            changed = (level.flags | set(flags.group(1))) - set((flags.group(2) or "-")[1:])
        self.at = flags.end() if flags else named.end() if named else self.at + 1
        if flags and flags.group(3) == ")":
            level.flags = changed
        else:
            self.levels.append(_Level(changed))

    def _close(self) -> None:
        if len(self.levels) == 1:
            raise self.error("a ) without (")
        piece = self.levels.pop().done()
        self.levels[-1].pieces.append(piece)
        self.at += 1


@lru_cache(maxsize=256)
def compile_re2(pattern: str) -> Regex:
    """A compiled pattern; ValueError if it is not RE2 syntax."""
    piece = _Parser(pattern).parse()
    size = len(piece.forwards)
    if size > _MOST_INSTRUCTIONS:
        raise ValueError(f"the pattern {pattern!r} is too large: it has {size} parts, {_MOST_INSTRUCTIONS} are allowed")
    return Regex(pattern, piece.forwards, piece.backwards, direct_match(piece.forwards))
