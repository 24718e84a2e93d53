"""How workers share a step: chunks of it are claimed, and whoever finishes the last one opens the next step.

    FREE = 0b1100    UNDONE = 3      chunk 0 is done, 1 is being worked at, 2 and 3 are to be had

The range of a step's units is cut into chunks. A worker begins with those that are its own, which are the same part of every
step, so that it finds in its cache what it wrote before; when none of them is left it takes those of others, from the end.
Claiming a chunk is clearing its bit, finishing it is counting down. Nobody waits for a worker who has claimed nothing: one that
was not woken yet, or that the system has taken off its core, finds that the others have done its part and are further on. What a
chunk computes does not depend on who computes it, nor on how a step is cut.

The worker that finishes the last chunk walks on (`go_on`): it does steps that are not worth sharing itself, goes back to the
beginning of a stretch of steps that are done again, moves on to the next iteration of a loop, and opens the next step that is
worth sharing, of which it has claimed a chunk before others see it. So the steps and the table of a job are read only by a worker
with an unfinished chunk, or by the one who walks on: when the job is over, nobody looks at them any more, however late.

Usually there is a chunk for each worker. When a worker has waited long for one that another has claimed, that other is
probably held up: then the next steps are cut finely (PRESSURE counts how many), so that little hangs on a single chunk.
A worker that has waited long sleeps. If the system lets another process use the core of the worker it waits for, that one gets
this core, finishes its chunk, and leaves to another core before the sleeper wakes up: else both would share this one from now on.
"""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.blocks import (
    BARRIER,
    BEYOND,
    CHUNKS,
    COUNT,
    EACH,
    FIRST,
    FREE,
    IDLE,
    LOOP,
    LOOP_COUNT,
    LOOP_STATE,
    LOOP_STEPS,
    LOOP_TABLE,
    MOST_CHUNKS,
    PATIENCE,
    PRESSURE,
    SPINS,
    STEP_ENTRIES,
    STEPS,
    STRETCH,
    TABLE,
    UNDONE,
    WORKERS,
)

# Rounds of waiting, of about 40 ns; for a chunk that somebody has claimed see PATIENCE
_LONG_STEP: Final = 40_000  # for a step that one worker does alone
_AGAIN: Final = 1_000  # for either, if somebody was held up a moment ago

_FINE_STEPS: Final = 2_000  # how many steps are cut finely after somebody was held up
# Chunks of a worker's part then, at most, and how many times `program.image.SHARED_FROM` one must be worth: some
# kernels prepare what they read for every call, so small ones cost more than they bring.
_FINE: Final = 4
_FINEST: Final = 200


def at(name: str, offset: int) -> str:
    """The address of a field of the pool block."""
    return f"  %{name}_p = getelementptr i8, ptr %pool, i64 {offset}"


def load(name: str, offset: int, kind: str = "i64", order: str = "") -> str:
    """A field of the pool block."""
    how = f"load atomic {kind}, ptr %{name}_p {order}" if order else f"load {kind}, ptr %{name}_p"
    return f"{at(name, offset)}\n  %{name} = {how}, align 8"


def store(name: str, offset: int, value: str, kind: str = "i64") -> str:
    """Write a field of the pool block."""
    return f"{at(name, offset)}\n  store {kind} {value}, ptr %{name}_p, align 8"


def step_fields() -> str:
    """Of step %i: its function, where its arguments stand in the table, and how many units it has."""
    return f"""  %base = mul i64 %i, {STEP_ENTRIES}
  %fp = getelementptr i64, ptr %steps, i64 %base
  %function = load ptr, ptr %fp, align 8
  %ap = getelementptr i64, ptr %fp, i64 1
  %args_at = load i64, ptr %ap, align 8
  %up = getelementptr i64, ptr %fp, i64 2
  %units_at = load i64, ptr %up, align 8
  %args = getelementptr i64, ptr %table, i64 %args_at
  %units_p = getelementptr i64, ptr %table, i64 %units_at
  %units = load i64, ptr %units_p, align 8"""


def after_stretch(step: str) -> str:
    """%next: what follows a step that ends a stretch of %stretch steps and has its arguments at %args."""
    return f"""  %asked_p = load ptr, ptr %args, align 8
  %asked = load i64, ptr %asked_p, align 8
  %is_again = icmp ne i64 %asked, 0
  %behind = add i64 {step}, 1
  %beginning = sub i64 %behind, %stretch
  %next = select i1 %is_again, i64 %beginning, i64 %behind"""


def claims_ir(pause: str) -> str:
    """The functions prepare, prepare_loop, lead and help, and what they are made of.

    Of the system they need four more: `wake`, which ends the sleep of workers if there may be something to do for them; `rest`,
    which is called when a worker has waited for long; `crowds`, whether a worker has got the core of the caller, who sleeps; and
    `move`, by which it leaves that.
    """
    return f"""
declare i64 @llvm.cttz.i64(i64, i1)
declare i64 @llvm.ctlz.i64(i64, i1)

; A chunk of steps that are done without meeting in between
define internal void @share(ptr %pool, i64 %worker, i64 %chunk, i64 %chunks, i64 %first, i64 %beyond) nounwind {{
entry:
{load("steps", STEPS, "ptr")}
{load("table", TABLE, "ptr")}
  %chunk1 = add i64 %chunk, 1
  br label %step
step:
  %i = phi i64 [ %first, %entry ], [ %j, %after ]
{step_fields()}
  %lo = mul i64 %units, %chunk
  %begin = udiv i64 %lo, %chunks
  %hi = mul i64 %units, %chunk1
  %end = udiv i64 %hi, %chunks
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %work, label %after
work:
  call void %function(ptr %args, i64 %begin, i64 %end, i64 %worker)
  br label %after
after:
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %beyond
  br i1 %more, label %step, label %done
done:
  ret void
}}

; Everything from a step on that is not worth sharing, then a chunk of what is; by the worker that has finished the last chunk
define internal void @go_on(ptr %pool, i64 %worker, i64 %from) nounwind {{
entry:
{load("steps", STEPS, "ptr")}
{load("table", TABLE, "ptr")}
{load("count", COUNT)}
{load("workers", WORKERS)}
{load("loop", LOOP, "ptr")}
{at("free", FREE)}
{at("undone", UNDONE)}
{at("pressure", PRESSURE)}
  %once = icmp eq ptr %loop, null
  %wide = icmp sgt i64 %workers, {MOST_CHUNKS}
  %sharers = select i1 %wide, i64 {MOST_CHUNKS}, i64 %workers
  br label %step
step:
  %i = phi i64 [ %from, %entry ], [ %n, %whole ], [ %next, %ask ], [ %n, %finished ], [ 0, %turn ]
  %left = icmp slt i64 %i, %count
  br i1 %left, label %look, label %end
end:
  br i1 %once, label %over, label %turn
turn:
  call void @advance(ptr %loop)
  %loop_state_p = getelementptr i64, ptr %loop, i64 {LOOP_STATE}
  %loop_state = load i64, ptr %loop_state_p, align 8
  %again = icmp eq i64 %loop_state, 0
  br i1 %again, label %step, label %over
over:
  %was = atomicrmw xchg ptr %undone_p, i64 {IDLE} seq_cst
  call void @wake(ptr %pool)
  ret void

; How far it goes without meeting, and what that is worth
look:
  %l = phi i64 [ %i, %step ], [ %n, %further ]
  %most_worth = phi i64 [ 1, %step ], [ %worth_now, %further ]
  %most_units = phi i64 [ 0, %step ], [ %units_now, %further ]
  %base = mul i64 %l, {STEP_ENTRIES}
  %fp = getelementptr i64, ptr %steps, i64 %base
  %up = getelementptr i64, ptr %fp, i64 2
  %units_at = load i64, ptr %up, align 8
  %gp = getelementptr i64, ptr %fp, i64 3
  %flags = load i64, ptr %gp, align 8
  %units_p = getelementptr i64, ptr %table, i64 %units_at
  %units = load i64, ptr %units_p, align 8
  %worth_p = getelementptr i64, ptr %units_p, i64 1
  %worth = load i64, ptr %worth_p, align 8
  %more_worth = icmp sgt i64 %worth, %most_worth
  %worth_now = select i1 %more_worth, i64 %worth, i64 %most_worth
  %more_units = icmp sgt i64 %units, %most_units
  %units_now = select i1 %more_units, i64 %units, i64 %most_units
  %n = add i64 %l, 1
  %flag = and i64 %flags, {BARRIER}
  %meets = icmp ne i64 %flag, 0
  %final = icmp sge i64 %n, %count
  %settled = or i1 %meets, %final
  br i1 %settled, label %choose, label %further
further:
  br label %look
choose:
  %fewer_worth = icmp slt i64 %worth_now, %sharers
  %parts_worth = select i1 %fewer_worth, i64 %worth_now, i64 %sharers
  %fewer_units = icmp slt i64 %units_now, %parts_worth
  %parts = select i1 %fewer_units, i64 %units_now, i64 %parts_worth
  %shared = icmp sgt i64 %parts, 1
  br i1 %shared, label %cut, label %whole
whole:
  call void @share(ptr %pool, i64 %worker, i64 0, i64 1, i64 %i, i64 %n)
  %stretch = lshr i64 %flags, {STRETCH}
  %repeats = icmp ne i64 %stretch, 0
  %has_units = icmp sgt i64 %units, 0
  %asks = and i1 %repeats, %has_units
  br i1 %asks, label %ask, label %step
ask:
  %ap = getelementptr i64, ptr %fp, i64 1
  %args_at = load i64, ptr %ap, align 8
  %args = getelementptr i64, ptr %table, i64 %args_at
{after_stretch("%l")}
  br label %step

cut:
  %pressed = load atomic i64, ptr %pressure_p monotonic, align 8
  %is_pressed = icmp sgt i64 %pressed, 0
  br i1 %is_pressed, label %finely, label %open
finely:
  %less = sub i64 %pressed, 1
  store atomic i64 %less, ptr %pressure_p monotonic, align 8
  %fine_parts = mul i64 %parts, {_FINEST}
  %by_bits = udiv i64 {MOST_CHUNKS}, %parts
  %by_worth = udiv i64 %worth_now, %fine_parts
  %by_units = udiv i64 %units_now, %parts
  %many = icmp ugt i64 %by_bits, {_FINE}
  %by_call = select i1 %many, i64 {_FINE}, i64 %by_bits
  %units_least = icmp ult i64 %by_units, %by_worth
  %most1 = select i1 %units_least, i64 %by_units, i64 %by_worth
  %call_least = icmp ult i64 %by_call, %most1
  %most2 = select i1 %call_least, i64 %by_call, i64 %most1
  %none = icmp eq i64 %most2, 0
  %fine = select i1 %none, i64 1, i64 %most2
  br label %open
open:
  %each = phi i64 [ 1, %cut ], [ %fine, %finely ]
  %chunks = mul i64 %each, %parts
{store("first", FIRST, "%i")}
{store("beyond", BEYOND, "%n")}
{store("chunks", CHUNKS, "%chunks")}
{at("each", EACH)}
  store atomic i64 %each, ptr %each_p monotonic, align 8
  store atomic i64 %chunks, ptr %undone_p monotonic, align 8
  %unused = sub i64 {MOST_CHUNKS}, %chunks
  %all = lshr i64 -1, %unused
  %has_own = icmp slt i64 %worker, %parts
  %own_at = mul i64 %worker, %each
  %mine = select i1 %has_own, i64 %own_at, i64 0
  %my_bit = shl i64 1, %mine
  %others = xor i64 %all, %my_bit
  %crowds = call i1 @crowds(ptr %pool, i64 %worker)
  br i1 %crowds, label %leave, label %stay
leave:
  %until_now = atomicrmw xchg ptr %free_p, i64 %all seq_cst
  call void @wake(ptr %pool)
  call void @move()
  ret void
stay:
  %before = atomicrmw xchg ptr %free_p, i64 %others seq_cst
  call void @wake(ptr %pool)
  call void @share(ptr %pool, i64 %worker, i64 %mine, i64 %chunks, i64 %i, i64 %n)
  %still = atomicrmw sub ptr %undone_p, i64 1 acq_rel
  %last = icmp eq i64 %still, 1
  br i1 %last, label %finished, label %out
finished:
  br label %step
out:
  ret void
}}

; Claim a chunk and do it, if there is one; false if there was none
define internal i1 @take(ptr %pool, i64 %worker) nounwind {{
entry:
{load("free", FREE, order="acquire")}
  %some = icmp ne i64 %free, 0
  br i1 %some, label %pick, label %nothing
nothing:
  ret i1 false
pick:
{load("each", EACH, order="monotonic")}
  %own_at = mul i64 %worker, %each
  %has_own = icmp ult i64 %own_at, {MOST_CHUNKS}
  %shift = select i1 %has_own, i64 %own_at, i64 0
  %bound = shl i64 1, %each
  %ones = sub i64 %bound, 1
  %shifted = shl i64 %ones, %shift
  %mask = select i1 %has_own, i64 %shifted, i64 0
  %own = and i64 %free, %mask
  %none_own = icmp eq i64 %own, 0
  %lowest = call i64 @llvm.cttz.i64(i64 %own, i1 false)
  %above = call i64 @llvm.ctlz.i64(i64 %free, i1 true)
  %highest = sub i64 63, %above
  %chunk = select i1 %none_own, i64 %highest, i64 %lowest
  %bit = shl i64 1, %chunk
  %rest = xor i64 %bit, -1
  %old = atomicrmw and ptr %free_p, i64 %rest acq_rel
  %was = and i64 %old, %bit
  %got = icmp ne i64 %was, 0
  br i1 %got, label %work, label %done
work:
{load("chunks", CHUNKS)}
{load("first", FIRST)}
{load("beyond", BEYOND)}
  call void @share(ptr %pool, i64 %worker, i64 %chunk, i64 %chunks, i64 %first, i64 %beyond)
{at("undone", UNDONE)}
  %still = atomicrmw sub ptr %undone_p, i64 1 acq_rel
  %last = icmp eq i64 %still, 1
  br i1 %last, label %on, label %done
on:
  call void @go_on(ptr %pool, i64 %worker, i64 %beyond)
  br label %done
done:
  ret i1 true
}}

; A moment of waiting; how many rounds a worker has waited now
define internal i64 @wait(ptr %pool, i64 %worker, i64 %round) nounwind {{
entry:
  {pause}
  %rounds = add i64 %round, 1
{load("undone", UNDONE, order="acquire")}
{load("spins", SPINS)}
  %is_idle = icmp eq i64 %undone, {IDLE}
  %is_claimed = icmp sgt i64 %undone, 0
{load("pressure", PRESSURE, order="monotonic")}
  %is_pressed = icmp sgt i64 %pressure, 0
{load("patience", PATIENCE)}
  %usual = select i1 %is_claimed, i64 %patience, i64 {_LONG_STEP}
  %within = select i1 %is_pressed, i64 {_AGAIN}, i64 %usual
  %limit = select i1 %is_idle, i64 %spins, i64 %within
  %long = icmp sge i64 %round, %limit
  br i1 %long, label %tired, label %soon
soon:
  ret i64 %rounds
tired:
  br i1 %is_claimed, label %held, label %sleep
held:
  store atomic i64 {_FINE_STEPS}, ptr %pressure_p monotonic, align 8
  br label %sleep
sleep:
  %on = call i64 @rest(ptr %pool, i64 %worker, i64 %rounds)
  ret i64 %on
}}

; Describe a job; no worker looks at it before there are chunks
define void @prepare(ptr %pool, ptr %steps, i64 %count, ptr %table) nounwind {{
{store("steps", STEPS, "%steps", "ptr")}
{store("count", COUNT, "%count")}
{store("table", TABLE, "%table", "ptr")}
{store("loop", LOOP, "null", "ptr")}
{at("undone", UNDONE)}
  store atomic i64 0, ptr %undone_p release, align 8
  ret void
}}

define void @prepare_loop(ptr %pool, ptr %loop) nounwind {{
  %steps_p = getelementptr i64, ptr %loop, i64 {LOOP_STEPS}
  %steps = load ptr, ptr %steps_p, align 8
  %count_p = getelementptr i64, ptr %loop, i64 {LOOP_COUNT}
  %count = load i64, ptr %count_p, align 8
  %table_p = getelementptr i64, ptr %loop, i64 {LOOP_TABLE}
  %table = load ptr, ptr %table_p, align 8
  call void @prepare(ptr %pool, ptr %steps, i64 %count, ptr %table)
{store("looped", LOOP, "%loop", "ptr")}
  ret void
}}

; Run the job that was prepared, as its caller
define void @lead(ptr %pool) nounwind {{
  call void @go_on(ptr %pool, i64 0, i64 0)
  call void @help(ptr %pool, i64 0)
  ret void
}}

; Help with the job that runs until it is over
define void @help(ptr %pool, i64 %worker) nounwind {{
entry:
  br label %look
look:
  %round = phi i64 [ 0, %entry ], [ %rounds, %waits ], [ 0, %took ]
{load("undone", UNDONE, order="acquire")}
  %over = icmp eq i64 %undone, {IDLE}
  br i1 %over, label %done, label %try
try:
  %found = call i1 @take(ptr %pool, i64 %worker)
  br i1 %found, label %took, label %waits
took:
  br label %look
waits:
  %rounds = call i64 @wait(ptr %pool, i64 %worker, i64 %round)
  br label %look
done:
  ret void
}}
"""
