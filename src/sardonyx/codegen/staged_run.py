"""Runs whose sizes become known in stages, without Python between the stages: instructions that native code follows.

    COUNT symbol, RUN steps, SKIP if nothing changed, MUL, ADD, SLOT, RESERVE, ADDRESS, ..., STOP for results, BIND, RUN, END

Steps count something, or arrays come in other shapes; the numbers become sizes, sizes become entries of the table, buffers get
their addresses, and steps follow that use them. An instruction is a code and three numbers (`runtime.staged_run` writes them).
*Values* are the results of all operations on sizes, *bases* the addresses of all buffers. What follows from sizes is skipped
while they are those of the run before. Results are Python's to allocate: a stop comes back to it, the next call goes on there.

Anything unusual comes back as REFUSED: a negative count, sizes that contradict each other or do not fit 64 bits, buffers that
need more room than there is, steps that take long enough to be shared. Python then does the run again in its own way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sardonyx.codegen.array_call import HEADER, load_entry, load_field
from sardonyx.codegen.blocks import (
    ARRAY_SIZES,
    INSTRUCTION_ENTRIES,
    STAGED_ADD,
    STAGED_ADDRESS,
    STAGED_AT,
    STAGED_BASES,
    STAGED_BIND,
    STAGED_BROADCAST,
    STAGED_CHANGED,
    STAGED_CHECK,
    STAGED_CODE,
    STAGED_COUNT,
    STAGED_DONE,
    STAGED_END,
    STAGED_EQUAL,
    STAGED_EXPECT,
    STAGED_EXPECT_EXTENT,
    STAGED_EXTENT,
    STAGED_FAULTS,
    STAGED_FAULTY,
    STAGED_FLOORDIV,
    STAGED_FROM,
    STAGED_LIMIT,
    STAGED_MAX,
    STAGED_MIN,
    STAGED_MOD,
    STAGED_MUL,
    STAGED_NEED,
    STAGED_NEXT,
    STAGED_OBJECTS,
    STAGED_REFUSED,
    STAGED_RESERVE,
    STAGED_ROOM,
    STAGED_RUN,
    STAGED_SAVE,
    STAGED_SHARE,
    STAGED_SKIP,
    STAGED_SLOT,
    STAGED_STATE,
    STAGED_STOP,
    STAGED_TABLE,
    STAGED_TOTAL,
    STAGED_VALUES,
    STAGED_WORK,
)

_ALIGNMENT: Final = 64  # of buffers


def _store(value: str, array: str, index: str, name: str) -> str:
    return f"""  %{name}_p = getelementptr i64, ptr %{array}, i64 {index}
  store i64 {value}, ptr %{name}_p, align 8"""


def _operands(name: str) -> str:
    return f"{load_entry(f'{name}_x', '%a', block='values')}\n{load_entry(f'{name}_y', '%b', block='values')}"


def _result(name: str, value: str) -> str:
    return f"{_store(value, 'values', '%c', name)}\n  br label %next"


def _checked(name: str, function: str) -> str:
    """A sum or product that must fit 64 bits."""
    return f"""{_operands(name)}
  %{name}_both = call {{ i64, i1 }} @llvm.{function}.with.overflow.i64(i64 %{name}_x, i64 %{name}_y)
  %{name}_result = extractvalue {{ i64, i1 }} %{name}_both, 0
  %{name}_over = extractvalue {{ i64, i1 }} %{name}_both, 1
  br i1 %{name}_over, label %refuse, label %{name}_fits
{name}_fits:
{_result(f"{name}_to", f"%{name}_result")}"""


def _division(name: str, wanted: str) -> str:
    """The quotient or remainder that Python has: rounded down; 0 if the divisor is."""
    quotient = f"""  %{name}_down = sext i1 %{name}_below to i64
  %{name}_result = add i64 %{name}_cut, %{name}_down"""
    remainder = f"""  %{name}_up = select i1 %{name}_below, i64 %{name}_y, i64 0
  %{name}_result = add i64 %{name}_rest, %{name}_up"""
    return f"""{_operands(name)}
  %{name}_none = icmp eq i64 %{name}_y, 0
  br i1 %{name}_none, label %{name}_by_zero, label %{name}_some
{name}_by_zero:
{_result(f"{name}_zero", "0")}
{name}_some:
  %{name}_turns = icmp eq i64 %{name}_y, -1
  br i1 %{name}_turns, label %refuse, label %{name}_divide
{name}_divide:
  %{name}_cut = sdiv i64 %{name}_x, %{name}_y
  %{name}_back = mul i64 %{name}_cut, %{name}_y
  %{name}_rest = sub i64 %{name}_x, %{name}_back
  %{name}_left = icmp ne i64 %{name}_rest, 0
  %{name}_signs = xor i64 %{name}_rest, %{name}_y
  %{name}_differ = icmp slt i64 %{name}_signs, 0
  %{name}_below = and i1 %{name}_left, %{name}_differ
{quotient if wanted == "quotient" else remainder}
{_result(f"{name}_to", f"%{name}_result")}"""


def _chosen(name: str, condition: str) -> str:
    """One of two values; the condition is on x and y, and chooses x."""
    return f"""{_operands(name)}
  %{name}_takes = icmp {condition.format(x=f"%{name}_x", y=f"%{name}_y")}
  %{name}_result = select i1 %{name}_takes, i64 %{name}_x, i64 %{name}_y
{_result(f"{name}_to", f"%{name}_result")}"""


def _counted(name: str) -> str:
    """A number that steps have written: the b-th of buffer a."""
    return f"""{load_entry(f"{name}_base", "%a", "ptr", "bases")}
{load_entry(name, "%b", block=f"{name}_base")}"""


def _extent(name: str) -> str:
    """The size of array a along axis b."""
    return f"""{load_entry(f"{name}_object", "%a", "ptr", "objects")}
{load_field(f"{name}_sizes", f"{name}_object", HEADER + ARRAY_SIZES, "ptr")}
{load_entry(name, "%b", block=f"{name}_sizes")}"""


def _learnt(name: str, source: str) -> str:
    """A size that a symbol gets."""
    return f"""{source}
{load_entry(f"{name}_before", "%c", block="values")}
  %{name}_bad = icmp slt i64 %{name}, 0
  br i1 %{name}_bad, label %refuse, label %{name}_good
{name}_good:
  %{name}_same = icmp eq i64 %{name}, %{name}_before
  br i1 %{name}_same, label %next, label %{name}_other
{name}_other:
  store i64 %{name}, ptr %{name}_before_p, align 8
  store i64 1, ptr %changed, align 8
  br label %next"""


def _expected(name: str, source: str) -> str:
    """A size that is known already."""
    return f"""{source}
{load_entry(f"{name}_value", "%c", block="values")}
  %{name}_good = icmp eq i64 %{name}, %{name}_value
  br i1 %{name}_good, label %next, label %refuse"""


_CASES: Final[Mapping[int, str]] = {
    STAGED_ADD: _checked("add", "sadd"),
    STAGED_MUL: _checked("mul", "smul"),
    STAGED_FLOORDIV: _division("floordiv", "quotient"),
    STAGED_MOD: _division("mod", "remainder"),
    STAGED_BROADCAST: _chosen("broadcast", "ne i64 {x}, 1"),
    STAGED_MAX: _chosen("max", "sge i64 {x}, {y}"),
    STAGED_MIN: _chosen("min", "sle i64 {x}, {y}"),
    STAGED_CHECK: f"""{_operands("check")}
  %check_one = icmp eq i64 %check_x, 1
  %check_same = icmp eq i64 %check_x, %check_y
  %check_good = or i1 %check_one, %check_same
  br i1 %check_good, label %next, label %refuse""",
    STAGED_EQUAL: f"""{_operands("equal")}
  %equal_good = icmp eq i64 %equal_x, %equal_y
  br i1 %equal_good, label %next, label %refuse""",
    STAGED_SLOT: f"""{load_entry("slot_value", "%a", block="values")}
{_store("%slot_value", "table", "%c", "slot")}
  br label %next""",
    # The workers that a step of this work is worth; b is the work of one
    STAGED_WORK: f"""{load_entry("work", "%a", block="values")}
{load_entry("limit", STAGED_LIMIT)}
  %work_long = icmp sgt i64 %work, %limit
  br i1 %work_long, label %refuse, label %work_short
work_short:
  %work_before = load i64, ptr %total, align 8
  %work_total = add i64 %work_before, %work
  store i64 %work_total, ptr %total, align 8
{load_entry("most_work", STAGED_TOTAL)}
  %work_much = icmp sgt i64 %work_total, %most_work
  br i1 %work_much, label %refuse, label %work_little
work_little:
  %work_parts = sdiv i64 %work, %b
  %work_many = icmp sgt i64 %work_parts, 1
  %work_workers = select i1 %work_many, i64 %work_parts, i64 1
{_store("%work_workers", "table", "%c", "work_slot")}
  br label %next""",
    # Room: FROM begins where a stage's begins, NEED and RESERVE take a piece as large as its largest buffer, AT gives it to one
    STAGED_FROM: f"""{load_entry("from", "%a", block="values")}
  store i64 %from, ptr %cursor, align 8
  store i64 0, ptr %most, align 8
  br label %next""",
    STAGED_NEED: f"""{load_entry("need_size", "%a", block="values")}
  %need_any = icmp sgt i64 %need_size, 0
  %need_one = select i1 %need_any, i64 %need_size, i64 0
  %need_both = call {{ i64, i1 }} @llvm.smul.with.overflow.i64(i64 %need_one, i64 %b)
  %need_over = extractvalue {{ i64, i1 }} %need_both, 1
  br i1 %need_over, label %refuse, label %need_fits
need_fits:
  %need = extractvalue {{ i64, i1 }} %need_both, 0
  %need_most = load i64, ptr %most, align 8
  %need_more = icmp sgt i64 %need, %need_most
  %need_now = select i1 %need_more, i64 %need, i64 %need_most
  store i64 %need_now, ptr %most, align 8
  br label %next""",
    STAGED_RESERVE: f"""  %reserve_from = load i64, ptr %cursor, align 8
  %reserve_size = load i64, ptr %most, align 8
  store i64 0, ptr %most, align 8
  store i64 %reserve_from, ptr %piece, align 8
{load_entry("room", STAGED_ROOM)}
  %reserve_left = sub i64 %room, %reserve_from
  %reserve_full = icmp sgt i64 %reserve_size, %reserve_left
  br i1 %reserve_full, label %refuse, label %reserve_fits
reserve_fits:
  %reserve_up = add i64 %reserve_size, {_ALIGNMENT - 1}
  %reserve_whole = and i64 %reserve_up, {-_ALIGNMENT}
  %reserve_to = add i64 %reserve_from, %reserve_whole
  store i64 %reserve_to, ptr %cursor, align 8
  br label %next""",
    STAGED_AT: f"""  %at_from = load i64, ptr %piece, align 8
{load_entry("at_first", "%a", block="values")}
  %at_address = add i64 %at_first, %at_from
{_store("%at_address", "bases", "%c", "at_base")}
  br label %next""",
    STAGED_SAVE: f"""  %save_at = load i64, ptr %cursor, align 8
{_store("%save_at", "values", "%c", "save")}
  br label %next""",
    STAGED_SHARE: f"""{load_entry("share", "%a", block="bases")}
{_store("%share", "bases", "%c", "share_to")}
  br label %next""",
    STAGED_ADDRESS: f"""{load_entry("address_base", "%a", block="bases")}
{load_entry("address_offset", "%b", block="values")}
  %address = add i64 %address_base, %address_offset
{_store("%address", "table", "%c", "address_slot")}
  br label %next""",
    STAGED_COUNT: _learnt("count", _counted("count")),
    STAGED_EXPECT: _expected("expect", _counted("expect")),
    STAGED_EXTENT: _learnt("extent", _extent("extent")),
    STAGED_EXPECT_EXTENT: _expected("same", _extent("same")),
    STAGED_SKIP: """  %skip_changed = load i64, ptr %changed, align 8
  %skip_none = icmp eq i64 %skip_changed, 0
  %skip_by = select i1 %skip_none, i64 %a, i64 0
  %skip_to = add i64 %pc, %skip_by
  store i64 %skip_to, ptr %counter, align 8
  br label %next""",
    STAGED_RUN: f"""  %run_steps = inttoptr i64 %a to ptr
  call void @run(ptr %run_steps, i64 %b, ptr %table)
  %run_can = icmp ne i64 %c, 0
  br i1 %run_can, label %run_judge, label %next
run_judge:
{load_entry("run_fault", "1", block="faults")}
  %run_good = icmp eq i64 %run_fault, 0
  br i1 %run_good, label %next, label %faulty""",
    STAGED_BIND: f"""{load_entry("object", "%a", "ptr", "objects")}
  %data_p = getelementptr i8, ptr %object, i64 {HEADER}
  %data = load i64, ptr %data_p, align 8
{_store("%data", "bases", "%c", "bind_base")}
  br label %next""",
}


def staged_run_ir() -> str:
    """The function `staged`, which follows a block's instructions until a stop, the end, or something unusual."""
    numbers = {STAGED_END: "end", STAGED_STOP: "stop", **{code: f"do_{code}" for code in _CASES}}
    targets = " ".join(f"i64 {code}, label %{label}" for code, label in sorted(numbers.items()))
    cases = "\n".join(f"do_{code}:\n{body}" for code, body in _CASES.items())
    return f"""
declare {{ i64, i1 }} @llvm.sadd.with.overflow.i64(i64, i64)
declare {{ i64, i1 }} @llvm.smul.with.overflow.i64(i64, i64)

define void @staged(ptr %block) nounwind {{
entry:
  %counter = alloca i64, align 8
  %changed = alloca i64, align 8
  %cursor = alloca i64, align 8
  %most = alloca i64, align 8
  %piece = alloca i64, align 8
  %total = alloca i64, align 8
{load_entry("code", STAGED_CODE, "ptr")}
{load_entry("start", STAGED_NEXT)}
{load_entry("table", STAGED_TABLE, "ptr")}
{load_entry("values", STAGED_VALUES, "ptr")}
{load_entry("bases", STAGED_BASES, "ptr")}
{load_entry("objects", STAGED_OBJECTS, "ptr")}
{load_entry("faults", STAGED_FAULTS, "ptr")}
{load_entry("was_changed", STAGED_CHANGED)}
  %state_p = getelementptr i64, ptr %block, i64 {STAGED_STATE}
  store i64 %start, ptr %counter, align 8
  store i64 %was_changed, ptr %changed, align 8
  store i64 0, ptr %cursor, align 8
  store i64 0, ptr %most, align 8
  store i64 0, ptr %piece, align 8
  store i64 0, ptr %total, align 8
  br label %next
next:
  %at = load i64, ptr %counter, align 8
  %row = mul i64 %at, {INSTRUCTION_ENTRIES}
{load_entry("op", "%row", block="code")}
{load_entry("a", 1, block="op_p")}
{load_entry("b", 2, block="op_p")}
{load_entry("c", 3, block="op_p")}
  %pc = add i64 %at, 1
  store i64 %pc, ptr %counter, align 8
  switch i64 %op, label %refuse [ {targets} ]
{cases}
stop:
  %so_far = load i64, ptr %changed, align 8
  store i64 %so_far, ptr %was_changed_p, align 8
  store i64 %pc, ptr %start_p, align 8
  store i64 %a, ptr %state_p, align 8
  ret void
end:
  store i64 0, ptr %was_changed_p, align 8
  store i64 {STAGED_DONE}, ptr %state_p, align 8
  ret void
refuse:
  store i64 {STAGED_REFUSED}, ptr %state_p, align 8
  ret void
faulty:
  store i64 {STAGED_FAULTY}, ptr %state_p, align 8
  ret void
}}
"""
