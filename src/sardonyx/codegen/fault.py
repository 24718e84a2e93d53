"""How kernels report bad data: a record that keeps the first bad element, in the order of steps and positions.

The record is [lock, code, position, found, limit]. Reporting is rare and slow: workers take turns, so that the record does not
depend on which of them came first.
"""

from __future__ import annotations

from sardonyx.codegen.function import FunctionBuilder


def report_unless(f: FunctionBuilder, condition: str, record: str, code: str, position: str, found: str, limit: str) -> None:
    """Write down what was found where a condition does not hold, and go on."""
    bad, good = f.fresh("bad"), f.fresh("good")
    f.branch_if(condition, good, bad)
    f.label(bad)
    report(f, record, code, position, found, limit)
    f.branch(good)
    f.label(good)


def report(f: FunctionBuilder, record: str, code: str, position: str, found: str, limit: str) -> None:
    """Write down what was found, unless something earlier is there."""
    wait, locked, write, done = (f.fresh(hint) for hint in ("wait", "locked", "write", "reported"))
    f.branch(wait)
    f.label(wait)
    taken = f.let(f"cmpxchg ptr {record}, i64 0, i64 1 acquire monotonic, align 8")
    f.branch_if(f.let(f"extractvalue {{ i64, i1 }} {taken}, 1"), locked, wait)
    f.label(locked)
    entries = [f.element(record, "i64", number) for number in range(5)]
    old_code = f.let(f"load i64, ptr {entries[1]}, align 8")
    old_position = f.let(f"load i64, ptr {entries[2]}, align 8")
    none = f.let(f"icmp eq i64 {old_code}, 0")
    earlier = f.let(f"icmp slt i64 {code}, {old_code}")
    same = f.let(f"icmp eq i64 {code}, {old_code}")
    before = f.let(f"icmp slt i64 {position}, {old_position}")
    first = f.let(f"or i1 {earlier}, {f.let(f'and i1 {same}, {before}')}")
    unlock = f.fresh("unlock")
    f.branch_if(f.let(f"or i1 {none}, {first}"), write, unlock)
    f.label(write)
    for entry, value in zip(entries[1:], (code, position, found, limit)):
        f.line(f"store i64 {value}, ptr {entry}, align 8")
    f.branch(unlock)
    f.label(unlock)
    f.line(f"store atomic i64 0, ptr {record} release, align 8")
    f.branch(done)
    f.label(done)
