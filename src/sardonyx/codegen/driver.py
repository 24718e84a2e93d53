"""The native half of the runtime: walking the steps of a program, the barrier between them, and waiting for work.

Every worker walks the same array of steps, does its part of each and meets the others at a barrier. Workers are threads. How they
wait for work is the system's part (`drivers`): on Linux they sit in `work` until the pool is closed, and
one without work spins for a while, then sleeps in the kernel. Elsewhere they wait in Python, which calls `run` and `loop` for
each of them (`runtime.plain_pool`); then a worker that waits long at a barrier calls the function at GIVE of the pool block.

A step is four entries: function, position of its arguments in the table, position of its unit count, flags. Beside the unit
count the table holds how many workers the step is worth.

`launch` takes all it needs in one block, because every argument costs time on the Python side. It is given arrays as objects:
it reads the address of their data itself, at the place where a NumPy array keeps it, and fills it into the table.

`loop` runs the same steps again and again, as the body of a Loop or Scan. Between two iterations one worker moves the addresses
that change (a carried value is read where the iteration before wrote it, slices and stacked results go on by one), counts, and
decides whether another iteration follows. What moves is a list of rows: table position and three distances; the first is added
after the first iteration, then the second and the third in turn. A loop comes back when it has ended, when bad data was met, or
when it has reached a limit: then it can go on where it stopped.

The pool block: one cache line of job description, one for the count of sleepers, then a line for each worker with the number of
the barrier it has reached. A worker writes only its own line, so a barrier costs each of them one store and a few loads.
"""

from __future__ import annotations

from typing import NamedTuple

from sardonyx.codegen.blocks import (
    AT_LIMIT,
    BARRIER,
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
    LINE,
    LINES,
    LOOP_CONDITION,
    LOOP_COUNT,
    LOOP_FAULTS,
    LOOP_INCREMENT_COUNT,
    LOOP_INCREMENTS,
    LOOP_ITERATION,
    LOOP_LIMIT,
    LOOP_STATE,
    LOOP_STEPS,
    LOOP_TABLE,
    NO_CONDITION,
    STEP_ENTRIES,
)


class System(NamedTuple):
    """What a system adds to the driver."""

    declarations: str
    pause: str  # a moment of waiting
    give: str  # lets others use the core
    launched: str  # the end of `launch`, if there are several workers: label `together`
    functions: str


def common_ir(system: System) -> str:
    """The module with the functions run, bind, launch and loop, and those of the system; `runtime.pool` calls them."""
    return f"""
{system.declarations}

define internal void @barrier(ptr %pool, i64 %worker, i64 %workers) nounwind {{
entry:
  %line = mul i64 %worker, {LINE}
  %at = add i64 %line, {LINES}
  %mine = getelementptr i8, ptr %pool, i64 %at
  %old = load i64, ptr %mine, align 8
  %number = add i64 %old, 1
  store atomic i64 %number, ptr %mine release, align 8
  br label %next
next:
  %other = phi i64 [ 0, %entry ], [ %following, %passed ]
  %oline = mul i64 %other, {LINE}
  %oat = add i64 %oline, {LINES}
  %their = getelementptr i8, ptr %pool, i64 %oat
  br label %wait
wait:
  %round = phi i64 [ 0, %next ], [ %rounds, %again ]
  %seen = load atomic i64, ptr %their acquire, align 8
  %there = icmp sge i64 %seen, %number
  br i1 %there, label %passed, label %spin
spin:
  {system.pause}
  %rounds = add i64 %round, 1
  %long = icmp ugt i64 %rounds, 1000
  br i1 %long, label %give, label %again
give:
{system.give}
  br label %again
again:
  br label %wait
passed:
  %following = add i64 %other, 1
  %more = icmp slt i64 %following, %workers
  br i1 %more, label %next, label %done
done:
  ret void
}}

define void @run(ptr %pool, ptr %steps, i64 %count, ptr %table, i64 %worker, i64 %workers) nounwind {{
entry:
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %step, label %done
step:
  %i = phi i64 [ 0, %entry ], [ %j, %after ]
  %base = mul i64 %i, {STEP_ENTRIES}
  %fp = getelementptr i64, ptr %steps, i64 %base
  %function = load ptr, ptr %fp, align 8
  %ap = getelementptr i64, ptr %fp, i64 1
  %args_at = load i64, ptr %ap, align 8
  %up = getelementptr i64, ptr %fp, i64 2
  %units_at = load i64, ptr %up, align 8
  %gp = getelementptr i64, ptr %fp, i64 3
  %flags = load i64, ptr %gp, align 8
  %args = getelementptr i64, ptr %table, i64 %args_at
  %units_p = getelementptr i64, ptr %table, i64 %units_at
  %units = load i64, ptr %units_p, align 8
  %worth_p = getelementptr i64, ptr %units_p, i64 1
  %worth = load i64, ptr %worth_p, align 8
  %fewer = icmp slt i64 %worth, %workers
  %parts = select i1 %fewer, i64 %worth, i64 %workers
  %takes = icmp slt i64 %worker, %parts
  br i1 %takes, label %divide, label %meet
divide:
  %whole = icmp eq i64 %parts, 1
  br i1 %whole, label %sized, label %share
share:
  %lo = mul i64 %units, %worker
  %from = udiv i64 %lo, %parts
  %w1 = add i64 %worker, 1
  %hi = mul i64 %units, %w1
  %to = udiv i64 %hi, %parts
  br label %sized
sized:
  %begin = phi i64 [ 0, %divide ], [ %from, %share ]
  %end = phi i64 [ %units, %divide ], [ %to, %share ]
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %work, label %meet
work:
  call void %function(ptr %args, i64 %begin, i64 %end, i64 %worker)
  br label %meet
meet:
  %alone = icmp eq i64 %workers, 1
  %flag = and i64 %flags, {BARRIER}
  %no = icmp eq i64 %flag, 0
  %skip = or i1 %alone, %no
  br i1 %skip, label %after, label %look
look:
  ; Between two steps that one worker does alone nobody need wait: the others go ahead to the next step they share.
  %i1 = add i64 %i, 1
  %final = icmp sge i64 %i1, %count
  %shared = icmp sgt i64 %parts, 1
  %now = or i1 %final, %shared
  br i1 %now, label %sync, label %peek
peek:
  %nup = getelementptr i64, ptr %fp, i64 {STEP_ENTRIES + 2}
  %next_at = load i64, ptr %nup, align 8
  %next_p = getelementptr i64, ptr %table, i64 %next_at
  %next_worth_p = getelementptr i64, ptr %next_p, i64 1
  %next_worth = load i64, ptr %next_worth_p, align 8
  %next_shared = icmp sgt i64 %next_worth, 1
  br i1 %next_shared, label %sync, label %after
sync:
  call void @barrier(ptr %pool, i64 %worker, i64 %workers)
  br label %after
after:
  %j = add i64 %i, 1
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
  call void @run(ptr null, ptr %steps, i64 %count, ptr %table, i64 0, i64 1)
  ret void
{system.launched}}}

{_loop_ir()}
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
    """What runs a loop: `advance` by the first worker between iterations, `loop` by each, `start_loop` to call it."""

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
  br i1 %any, label %move, label %done
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
  br i1 %more, label %move, label %done
done:
  ret void
}}

define void @loop(ptr %loop, ptr %pool, i64 %worker, i64 %workers) nounwind {{
entry:
{load("steps", LOOP_STEPS, "ptr")}
{load("count", LOOP_COUNT)}
{load("table", LOOP_TABLE, "ptr")}
  %state_p = getelementptr i64, ptr %loop, i64 {LOOP_STATE}
  %alone = icmp eq i64 %workers, 1
  %leads = icmp eq i64 %worker, 0
  br label %round
round:
  call void @run(ptr %pool, ptr %steps, i64 %count, ptr %table, i64 %worker, i64 %workers)
  br i1 %leads, label %lead, label %meet
lead:
  call void @advance(ptr %loop)
  br i1 %alone, label %look, label %meet
meet:
  call void @barrier(ptr %pool, i64 %worker, i64 %workers)
  br label %look
look:
  %state = load i64, ptr %state_p, align 8
  %again = icmp eq i64 %state, 0
  br i1 %again, label %round, label %end
end:
  br i1 %alone, label %done, label %leave
leave:
  ; Nobody may start the next job before all have seen that this one is over.
  call void @barrier(ptr %pool, i64 %worker, i64 %workers)
  br label %done
done:
  ret void
}}

"""
