"""Regular expressions in RE2 syntax, compiled for Python's `re`.

Only whether a text matches is asked for, so groups lose their names and numbers. What RE2 has and Python has not is rewritten:
character classes such as [[:alpha:]], \\pL, \\z, \\Q...\\E, flags in the middle; \\d, \\w, \\s and \\b are ASCII as in RE2.
What Python has and RE2 has not (look-around, back references, possessive repeats) is an error, as it is there.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final, TypeAlias

Ranges: TypeAlias = tuple[tuple[int, int], ...]  # code points, first and last, sorted

_LAST: Final = 0x10FFFF
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
_CONTROL: Final = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_REPEAT: Final = re.compile(r"\{(\d+)(,\d*)?\}")
_MOST_REPEATS: Final = 1000  # RE2's own limit


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
        if unicodedata.category(chr(point)).startswith(name):
            if result and result[-1][1] == point - 1:
                result[-1] = (result[-1][0], point)
            else:
                result.append((point, point))
    return tuple(result)


def _class_text(ranges: Ranges, negated: bool = False) -> str:
    """A character class of Python's `re`."""
    if not ranges:
        return r"[\s\S]" if negated else r"(?!)"
    body = "".join(f"\\U{first:08x}" if first == last else f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)
    return f"[{'^' if negated else ''}{body}]"


class _Translator:
    """Walks the pattern once; `levels` holds, for each open group, if $ is multiline there and the flags opened inside it."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.out: list[str] = []
        self.levels: list[tuple[bool, list[str]]] = [(False, [])]

    def error(self, what: str) -> ValueError:
        return ValueError(f"the pattern {self.pattern!r} is not RE2 syntax: {what} at position {self.at}")

    def translate(self) -> str:
        pattern, repeatable = self.pattern, False
        while self.at < len(pattern):
            char = pattern[self.at]
            if char in "*+?" or (char == "{" and _REPEAT.match(pattern, self.at)):
                if not repeatable:
                    raise self.error(f"nothing to repeat before {char!r}")
                self._repeat(char)
                repeatable = False
                continue
            repeatable = True
            if char == "\\":
                self._escape()
            elif char == "[":
                self._class()
            elif char == "(":
                repeatable = self._open()
            elif char == ")":
                self._close()
            elif char == "|":
                opened = self.levels[-1][1]
                self.out.append(")" * len(opened) + "|" + "".join(opened))
                self.at += 1
                repeatable = False
            else:
                if char in "^$":  # in a group: RE2 lets an anchor be repeated
                    self.out.append(f"(?:{char})" if char == "^" or self.levels[-1][0] else r"(?:\Z)")
                else:
                    self.out.append(char if char == "." else re.escape(char))
                self.at += 1
        if len(self.levels) > 1:
            raise self.error("a group that is not closed")
        self.out.append(")" * len(self.levels[-1][1]))
        return "".join(self.out)

    def _repeat(self, char: str) -> None:
        counted = _REPEAT.match(self.pattern, self.at)
        text = counted.group() if counted else char
        if counted:
            bounds = [int(bound) for bound in text[1:-1].split(",") if bound]
            if max(bounds) > _MOST_REPEATS or bounds != sorted(bounds):
                raise self.error(f"bad repetition {text}")
        self.at += len(text)
        if self.pattern.startswith("?", self.at):  # lazy or greedy: the same texts match
            self.at += 1
        if self.at < len(self.pattern) and (self.pattern[self.at] in "*+?" or _REPEAT.match(self.pattern, self.at)):
            raise self.error("a repetition of a repetition")
        self.out.append(text)

    def _escape(self) -> None:
        letter = self.pattern[self.at + 1 : self.at + 2]
        if letter == "Q":
            end = self.pattern.find("\\E", self.at)
            stop = len(self.pattern) if end < 0 else end
            self.out.append(re.escape(self.pattern[self.at + 2 : stop]))
            self.at = stop if end < 0 else end + 2
        elif letter in ("A", "b", "B", "z"):
            self.out.append({"A": r"(?:\A)", "b": r"(?a:\b)", "B": r"(?a:\B)", "z": r"(?:\Z)"}[letter])
            self.at += 2
        else:
            member = self._member()
            self.out.append(_class_text(((member, member),) if isinstance(member, int) else member))

    def _escaped_class(self) -> Ranges | None:
        """The class an escape such as \\d or \\p{Lu} stands for; None if it is a single character."""
        letter = self.pattern[self.at + 1 : self.at + 2]
        if letter.lower() in _PERL:
            self.at += 2
            found = _PERL[letter.lower()]
            return _complement(found) if letter.isupper() else found
        if letter not in ("p", "P"):
            return None
        match = re.compile(r"\\[pP](?:([A-Z])|\{(\^?)([A-Za-z]+)\})").match(self.pattern, self.at)
        name = (match.group(1) or match.group(3)) if match else ""
        if match is None or not (name == "Any" or (len(name) <= 2 and _category(name))):
            raise self.error("a Unicode class that is not a general category")
        self.at = match.end()
        found = ((0, _LAST),) if name == "Any" else _category(name)
        return _complement(found) if (letter == "P") != bool(match.group(2)) else found

    def _escaped_point(self) -> int:
        """The code point an escape stands for."""
        match = re.compile(r"\\(?:x\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})|(0[0-7]{0,2}|[1-7][0-7]{2}))").match(
            self.pattern, self.at
        )
        if match:
            self.at = match.end()
            return int(match.group(3), 8) if match.group(3) else int(match.group(1) or match.group(2), 16)
        letter = self.pattern[self.at + 1 : self.at + 2]
        if letter in _CONTROL:
            self.at += 2
            return _CONTROL[letter]
        if not letter or letter.isalnum():
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
            posix = re.compile(r"\[:(\^?)(\w+):\]").match(self.pattern, self.at)
            if posix:
                if posix.group(2) not in _POSIX:
                    raise self.error(f"the class {posix.group()}")
                found = _POSIX[posix.group(2)]
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
            members.append((low, high))
        self.at += 1
        self.out.append(_class_text(tuple(members), negated))

    def _member(self) -> int | Ranges:
        if self.at >= len(self.pattern):
            raise self.error("a character class that is not closed")
        if self.pattern[self.at] == "\\":
            ranges = self._escaped_class()
            return self._escaped_point() if ranges is None else ranges
        self.at += 1
        return ord(self.pattern[self.at - 1])

    def _open(self) -> bool:
        """An opening parenthesis, or flags; whether what follows it may not be a repeat."""
        multiline = self.levels[-1][0]
        named = re.compile(r"\(\?P?<\w+>").match(self.pattern, self.at)
        flags = re.compile(r"\(\?([imsU]*)(-[imsU]+)?([:)])").match(self.pattern, self.at)
        if flags:
            on, off = (text.replace("U", "") for text in (flags.group(1), flags.group(2) or ""))
            multiline = (multiline or "m" in on) and "m" not in off
            opening = f"(?{''.join(sorted(set(on)))}{'' if off == '-' else off}:"
            self.at = flags.end()
            self.out.append(opening)
            if flags.group(3) == ")":
                self.levels[-1] = (multiline, [*self.levels[-1][1], opening])
            else:
                self.levels.append((multiline, []))
            return False
        if self.pattern.startswith("(?", self.at) and not named:
            raise self.error("a group RE2 does not have")
        self.at = named.end() if named else self.at + 1
        self.out.append("(?:")
        self.levels.append((multiline, []))
        return False

    def _close(self) -> None:
        if len(self.levels) == 1:
            raise self.error("a ) without (")
        self.out.append(")" * (len(self.levels.pop()[1]) + 1))
        self.at += 1


@cache
def compile_re2(pattern: str) -> re.Pattern[str]:
    """A pattern of RE2 as one of Python; ValueError if it is not RE2 syntax."""
    return re.compile(_Translator(pattern).translate())
