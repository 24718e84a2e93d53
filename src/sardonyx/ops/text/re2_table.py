"""Patterns as tables of states and ASCII characters, for native code that matches whole texts.

    table = ascii_table(compile_re2("[ab]+c"))    ->    state 0 reads nothing more; table.following[state, ord("a")]

The automaton of `re2_match` makes its states as they are needed; here all that ASCII texts reach are made. A pattern may have
very many: then there is no table.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sardonyx.ops.text.re2_match import Regex

_MOST_STATES: Final = 200
_ASCII: Final = 128


class AsciiTable(NamedTuple):
    """The states of an automaton. State 0 is the one that no text ends in whatever follows."""

    following: NDArray[np.uint16]  # [state, character]
    ends: NDArray[np.uint8]  # whether a match ends in a state, if the text does
    start: int


def ascii_table(regex: Regex) -> AsciiTable | None:
    """The table of a pattern; None if it has too many states."""
    automaton = regex.automaton()
    groups = automaton.ascii_groups()
    first = automaton.start()
    numbers = {id(first): 1}
    states, rows = [first], [np.zeros(_ASCII, np.uint16)]
    for state in states:  # grows while it is walked
        by_group = []
        for character in groups.first:
            following = automaton.step(state, character)
            if following.is_dead:
                by_group.append(0)
                continue
            if id(following) not in numbers:
                if len(states) >= _MOST_STATES:
                    return None
                states.append(following)
                numbers[id(following)] = len(states)
            by_group.append(numbers[id(following)])
        rows.append(np.array(by_group, np.uint16)[groups.of])
    ends = np.array([False, *(automaton.ends(state) for state in states)], np.uint8)
    return AsciiTable(np.stack(rows), ends, 1)
