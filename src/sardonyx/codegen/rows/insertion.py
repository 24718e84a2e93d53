"""Insertion into the best entries so far, which are kept sorted, as selections do it -> LLVM."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sardonyx.codegen.function import FunctionBuilder


class SortedEntries(NamedTuple):
    """How entries are read and written, by their position; the new one is known to these functions."""

    value: Callable[[str], str]
    comes_first: Callable[[str], str]  # whether the new one stands before an entry of this value
    shift: Callable[[str, str, str], None]  # the entry at a position, and its value, to the position behind it
    put: Callable[[str], None]  # the new one at a position


def insert_sorted(f: FunctionBuilder, entries: SortedEntries, seen: str, last: str) -> None:
    """Put an entry among the best, if it is one of them; `seen` were offered before, and `last` is the last position."""
    compare, insert, skip = f.fresh("compare"), f.fresh("insert"), f.fresh("skip")
    f.branch_if(f.let(f"icmp sle i64 {seen}, {last}", "c"), insert, compare)
    f.label(compare)
    f.branch_if(entries.comes_first(entries.value(last)), insert, skip)
    f.label(insert)
    start = f.min(seen, last)
    head, look, shift, put = (f.fresh(hint) for hint in ("head", "look", "shift", "put"))
    f.branch(head)
    f.label(head)
    position, above = f.fresh("i"), f.fresh("i")
    f.line(f"{position} = phi i64 [ {start}, {insert} ], [ {above}, {shift} ]")
    f.branch_if(f.let(f"icmp sgt i64 {position}, 0", "c"), look, put)
    f.label(look)
    f.line(f"{above} = sub i64 {position}, 1")
    previous = entries.value(above)
    f.branch_if(entries.comes_first(previous), shift, put)
    f.label(shift)
    entries.shift(position, above, previous)
    f.branch(head)
    f.label(put)
    entries.put(position)
    f.branch(skip)
    f.label(skip)
