"""The native half of the runtime: walking the steps of a program, and waiting for work.

A program is an array of steps. Workers, which are threads, share each of them (`claims`); a program that is too small for that is
walked by its caller alone (`run`). How workers wait for work is the system's part (`drivers`): on Linux they sit in `work` until
the pool is closed, and one without work spins for a while, then sleeps in the kernel. Elsewhere they wait in Python, which calls
`help` for each of them (`runtime.plain_pool`); then a worker that waits long calls the function at GIVE of the pool block.

A step is four entries: function, position of its arguments in the table, position of its unit count, flags. Beside the unit
count the table holds how many workers the step is worth. A step may end a stretch of steps that are done again and again: if it
has units, which one worker does, then the number that its first argument points to decides whether to begin the stretch anew.

`launch` takes all it needs in one block, because every argument costs time on the Python side. It is given arrays as objects:
it reads the address of their data itself, at the place where a NumPy array keeps it, and fills it into the table. `call` is
`launch` with all that Python does around it (`array_call`); `text_calls` has functions that make numbers of texts for it.
`staged` runs a program whose sizes become known in stages (`staged_run`).

`loop` runs the same steps again and again, as the body of a Loop or Scan. Between two iterations one worker moves the addresses
that change (a carried value is read where the iteration before wrote it, slices and stacked results go on by one), counts, and
decides whether another iteration follows. What moves is a list of rows: table position and three distances; the first is added
after the first iteration, then the second and the third in turn. Where sizes change, too, the entries that an iteration needs are
computed beforehand: a list of table positions, and a row of values for each iteration, written when the one before is done. A
loop comes back when it has ended, when bad data was met, or when it has reached a limit: then it can go on where it stopped.
"""

from __future__ import annotations

from typing import NamedTuple

from sardonyx.codegen.array_call import array_call_ir
from sardonyx.codegen.blocks import (
    AT_LIMIT,
    BIND_ENTRIES,
    BLOCK_BIND_COUNT,
    BLOCK_BINDS,
    BLOCK_COUNT,
    BLOCK_OBJECTS,
    BLOCK_POOL,
    BLOCK_STEPS,
    BLOCK_TABLE,
    ENDED,
    FAULTY,
    INCREMENT_ENTRIES,
    LOOP_CONDITION,
    LOOP_COUNT,
    LOOP_FAULTS,
    LOOP_INCREMENT_COUNT,
    LOOP_INCREMENTS,
    LOOP_ITERATION,
    LOOP_LIMIT,
    LOOP_ROW,
    LOOP_SLOT_COUNT,
    LOOP_SLOTS,
    LOOP_STATE,
    LOOP_STEPS,
    LOOP_TABLE,
    NO_CONDITION,
    STRETCH,
)
from sardonyx.codegen.claims import after_stretch, claims_ir, step_fields
from sardonyx.codegen.staged_run import staged_run_ir
from sardonyx.codegen.text_calls import text_calls_ir


class System(NamedTuple):
    """What a system adds to the driver."""

    declarations: str
    pause: str  # a moment of waiting
    launched: str  # the end of `launch`, if there are several workers: label `together`
    functions: str  # `wake` and `rest` (see `claims`), and those that Python calls


def common_ir(system: System) -> str:
    """The module with run, bind, launch, call and loop, and the functions of `claims` and of the system, for `runtime.pool`."""
    return f"""
{system.declarations}

define void @run(ptr %steps, i64 %count, ptr %table) nounwind {{
entry:
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %step, label %done
step:
  %i = phi i64 [ 0, %entry ], [ %j, %after ]
{step_fields()}
  %one_on = add i64 %i, 1
  %some = icmp sgt i64 %units, 0
  br i1 %some, label %work, label %after
work:
  call void %function(ptr %args, i64 0, i64 %units, i64 0)
  %gp = getelementptr i64, ptr %fp, i64 3
  %flags = load i64, ptr %gp, align 8
  %stretch = lshr i64 %flags, {STRETCH}
  %repeats = icmp ne i64 %stretch, 0
  br i1 %repeats, label %ask, label %after
ask:
{after_stretch("%i")}
  br label %after
after:
  %j = phi i64 [ %one_on, %step ], [ %one_on, %work ], [ %next, %ask ]
  %more = icmp slt i64 %j, %count
  br i1 %more, label %step, label %done
done:
  ret void
}}

{_bind_ir("bind")}bound:
  ret void
}}

{_bind_ir("launch")}bound:
  %alone = icmp eq ptr %pool, null
  br i1 %alone, label %here, label %together
here:
  call void @run(ptr %steps, i64 %count, ptr %table)
  ret void
{system.launched}}}

{array_call_ir()}
{text_calls_ir()}
{staged_run_ir()}
{_loop_ir()}
{claims_ir(system.pause)}
{system.functions}
"""


def _bind_ir(name: str) -> str:
    """The beginning of a function that fills the addresses of objects into the table; it ends before the label `bound`."""
    return f"""
define void @{name}(ptr %block) nounwind {{
entry:
  %stepsp = getelementptr i64, ptr %block, i64 {BLOCK_STEPS}
  %steps = load ptr, ptr %stepsp, align 8
  %countp = getelementptr i64, ptr %block, i64 {BLOCK_COUNT}
  %count = load i64, ptr %countp, align 8
  %tablep = getelementptr i64, ptr %block, i64 {BLOCK_TABLE}
  %table = load ptr, ptr %tablep, align 8
  %bindsp = getelementptr i64, ptr %block, i64 {BLOCK_BINDS}
  %binds = load ptr, ptr %bindsp, align 8
  %bcountp = getelementptr i64, ptr %block, i64 {BLOCK_BIND_COUNT}
  %bcount = load i64, ptr %bcountp, align 8
  %objectsp = getelementptr i64, ptr %block, i64 {BLOCK_OBJECTS}
  %objects = load ptr, ptr %objectsp, align 8
  %poolp = getelementptr i64, ptr %block, i64 {BLOCK_POOL}
  %pool = load ptr, ptr %poolp, align 8
  %any = icmp sgt i64 %bcount, 0
  br i1 %any, label %bind, label %bound
bind:
  %i = phi i64 [ 0, %entry ], [ %j, %bind ]
  %at = mul i64 %i, {BIND_ENTRIES}
  %slotp = getelementptr i64, ptr %binds, i64 %at
  %slot = load i64, ptr %slotp, align 8
  %numberp = getelementptr i64, ptr %slotp, i64 1
  %number = load i64, ptr %numberp, align 8
  %offsetp = getelementptr i64, ptr %slotp, i64 2
  %offset = load i64, ptr %offsetp, align 8
  %objectp = getelementptr i64, ptr %objects, i64 %number
  %object = load ptr, ptr %objectp, align 8
  %datap = getelementptr i8, ptr %object, i64 {object.__basicsize__}
  %data = load i64, ptr %datap, align 8
  %address = add i64 %data, %offset
  %entryp = getelementptr i64, ptr %table, i64 %slot
  store i64 %address, ptr %entryp, align 8
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %bcount
  br i1 %more, label %bind, label %bound
"""


def _loop_ir() -> str:
    """What runs a loop: `advance` between iterations, and `loop` on one worker."""

    def load(name: str, entry: int, kind: str = "i64") -> str:
        return f"""  %{name}_p = getelementptr i64, ptr %loop, i64 {entry}
  %{name} = load {kind}, ptr %{name}_p, align 8"""

    return f"""
define internal void @advance(ptr %loop) nounwind {{
entry:
  %state_p = getelementptr i64, ptr %loop, i64 {LOOP_STATE}
{load("faults", LOOP_FAULTS, "ptr")}
{load("table", LOOP_TABLE, "ptr")}
{load("iteration", LOOP_ITERATION)}
{load("limit", LOOP_LIMIT)}
{load("condition_at", LOOP_CONDITION)}
{load("increments", LOOP_INCREMENTS, "ptr")}
{load("count", LOOP_INCREMENT_COUNT)}
{load("slots", LOOP_SLOTS, "ptr")}
{load("slot_count", LOOP_SLOT_COUNT)}
{load("values", LOOP_ROW, "ptr")}
  %code_p = getelementptr i64, ptr %faults, i64 1
  %code = load i64, ptr %code_p, align 8
  %bad = icmp ne i64 %code, 0
  br i1 %bad, label %faulty, label %good
faulty:
  store i64 {FAULTY}, ptr %state_p, align 8
  ret void
good:
  %next = add i64 %iteration, 1
  store i64 %next, ptr %iteration_p, align 8
  %within = icmp slt i64 %next, %limit
  %free = select i1 %within, i64 0, i64 {AT_LIMIT}
  %asks = icmp ne i64 %condition_at, {NO_CONDITION}
  br i1 %asks, label %ask, label %decided
ask:
  %condition_p = getelementptr ptr, ptr %table, i64 %condition_at
  %condition = load ptr, ptr %condition_p, align 8
  %truth = load i8, ptr %condition, align 1
  %true = icmp ne i8 %truth, 0
  %asked = select i1 %true, i64 %free, i64 {ENDED}
  br label %decided
decided:
  %state = phi i64 [ %free, %good ], [ %asked, %ask ]
  store i64 %state, ptr %state_p, align 8
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %move, label %written
move:
  %i = phi i64 [ 0, %decided ], [ %j, %move ]
  %at = mul i64 %i, {INCREMENT_ENTRIES}
  %row = getelementptr i64, ptr %increments, i64 %at
  %slot = load i64, ptr %row, align 8
  %first_p = getelementptr i64, ptr %row, i64 1
  %first = load i64, ptr %first_p, align 8
  %second_p = getelementptr i64, ptr %row, i64 2
  %second = load i64, ptr %second_p, align 8
  %third_p = getelementptr i64, ptr %row, i64 3
  %third = load i64, ptr %third_p, align 8
  %address_p = getelementptr i64, ptr %table, i64 %slot
  %old = load i64, ptr %address_p, align 8
  %new = add i64 %old, %first
  store i64 %new, ptr %address_p, align 8
  store i64 %second, ptr %first_p, align 8
  store i64 %third, ptr %second_p, align 8
  store i64 %second, ptr %third_p, align 8
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %count
  br i1 %more, label %move, label %written
written:
  %goes_on = icmp eq i64 %state, 0
  %has_row = icmp sgt i64 %slot_count, 0
  %writes = and i1 %goes_on, %has_row
  br i1 %writes, label %write, label %done
write:
  %k = phi i64 [ 0, %written ], [ %l, %write ]
  %target_p = getelementptr i64, ptr %slots, i64 %k
  %target = load i64, ptr %target_p, align 8
  %value_p = getelementptr i64, ptr %values, i64 %k
  %value = load i64, ptr %value_p, align 8
  %entry_p = getelementptr i64, ptr %table, i64 %target
  store i64 %value, ptr %entry_p, align 8
  %l = add i64 %k, 1
  %left = icmp slt i64 %l, %slot_count
  br i1 %left, label %write, label %row_done
row_done:
  %next_row = getelementptr i64, ptr %values, i64 %slot_count
  store ptr %next_row, ptr %values_p, align 8
  br label %done
done:
  ret void
}}

define void @loop(ptr %loop) nounwind {{
entry:
{load("steps", LOOP_STEPS, "ptr")}
{load("count", LOOP_COUNT)}
{load("table", LOOP_TABLE, "ptr")}
  %state_p = getelementptr i64, ptr %loop, i64 {LOOP_STATE}
  br label %round
round:
  call void @run(ptr %steps, i64 %count, ptr %table)
  call void @advance(ptr %loop)
  %state = load i64, ptr %state_p, align 8
  %again = icmp eq i64 %state, 0
  br i1 %again, label %round, label %end
end:
  ret void
}}

"""
