"""The driver of each kind of runtime: how workers wait, in front of what is the same everywhere (`driver`)."""

from __future__ import annotations

from typing import Final, NamedTuple

from sardonyx.codegen.blocks import ASLEEP_AT, FREE, GIVE, IDLE, NOWHERE, SLEEPERS, STOP, UNDONE, WAKER
from sardonyx.codegen.claims import at, load
from sardonyx.codegen.driver import System, common_ir
from sardonyx.target.machine import LINUX, PLAIN
from sardonyx.target.target import Target

# Attributes of functions that are called when a program begins or a worker has nothing to do, not for every step: they call the
# system or wait. LLVM makes code of them without optimising it, which takes a third of the driver's time off.
_SELDOM: Final = "nounwind optnone noinline"
# Tells the core that it waits: (declaration, call)
_PAUSE: Final = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}


class _Calls(NamedTuple):
    """Numbers of system calls."""

    futex: int
    setaffinity: int
    getaffinity: int
    getcpu: int


_CALLS: Final = {"x86_64": _Calls(202, 203, 204, 309), "aarch64": _Calls(98, 122, 123, 168)}
_CORES: Final = 1024  # that we can name; on larger machines workers stay where they are
_NAP: Final = 150_000  # nanoseconds of sleep in the middle of a job
_FUTEX_WAIT_PRIVATE, _FUTEX_WAKE_PRIVATE = 128, 129


def driver_ir(target: Target) -> str:
    """The native half of the runtime that a target has."""
    return common_ir(_SYSTEMS[target.runtime](target.architecture))


def _pause(architecture: str) -> tuple[str, str]:
    return _PAUSE.get(architecture, ("", "fence seq_cst"))


def _plain(architecture: str) -> System:
    """Workers wait in Python. Nobody launches a program for several of them: they are called one by one."""
    declaration, pause = _pause(architecture)
    functions = f"""
define internal void @wake(ptr %pool) nounwind {{
  ret void
}}

define internal i1 @crowds(ptr %pool, i64 %worker) nounwind {{
  ret i1 false
}}

define internal void @move() nounwind {{
  ret void
}}

define internal i64 @rest(ptr %pool, i64 %worker, i64 %rounds) nounwind {{
{load("give", GIVE, "ptr")}
  call void %give()
  ret i64 %rounds
}}
"""
    return System(declaration, pause, "together:\n  unreachable\n", functions)


def _linux(architecture: str) -> System:
    """Workers sit in `work`, and sleep in the kernel; start and start_loop wake them, stop ends them."""
    declaration, pause = _pause(architecture)
    calls = _CALLS[architecture]
    futex = calls.futex
    wake_all = f"call i64 (i64, ...) @syscall(i64 {futex}, ptr %pool, i32 {_FUTEX_WAKE_PRIVATE}, i32 2147483647)"
    functions = f"""
define internal void @wake(ptr %pool) {_SELDOM} {{
entry:
{load("sleepers", SLEEPERS, order="seq_cst")}
  %asleep = icmp ne i64 %sleepers, 0
  br i1 %asleep, label %claim, label %done
claim:
  ; Until it runs again, a worker that was woken costs nobody a second call.
  %before = atomicrmw xchg ptr %sleepers_p, i64 0 seq_cst
  %first = icmp ne i64 %before, 0
  br i1 %first, label %call, label %done
call:
  %core = call i64 @core()
{at("waker", WAKER)}
  store atomic i64 %core, ptr %waker_p monotonic, align 8
  %old = atomicrmw add ptr %pool, i64 1 seq_cst
  %woken = {wake_all}
  br label %done
done:
  ret void
}}

; Sleep, unless there is something to do by now. Who makes such writes it before he looks for sleepers, and counts on before he
; wakes them; a worker says that it sleeps before it looks: one of the two sees the other.
define internal i64 @rest(ptr %pool, i64 %worker, i64 %rounds) {_SELDOM} {{
entry:
  %seen = load atomic i64, ptr %pool seq_cst, align 8
{at("sleepers", SLEEPERS)}
  store atomic i64 1, ptr %sleepers_p seq_cst, align 8
{load("free", FREE, order="seq_cst")}
  %has_chunks = icmp ne i64 %free, 0
{load("undone", UNDONE, order="seq_cst")}
  %is_idle = icmp eq i64 %undone, {IDLE}
  %leads = icmp eq i64 %worker, 0
  %is_over = and i1 %leads, %is_idle
{load("stop", STOP, order="seq_cst")}
  %stopped = icmp ne i64 %stop, 0
  %either = or i1 %has_chunks, %is_over
  %any = or i1 %either, %stopped
  br i1 %any, label %awake, label %sleep
sleep:
  %low = trunc i64 %seen to i32
  br i1 %is_idle, label %idle, label %job
idle:
  %called = call i64 (i64, ...) @syscall(i64 {futex}, ptr %pool, i32 {_FUTEX_WAIT_PRIVATE}, i32 %low, ptr null, ptr null, i32 0)
  br label %again
job:
  ; The system brings a worker that waits for its core here only when it has waited for some time: so this is tried repeatedly.
  %time = alloca [2 x i64], align 8
  store i64 0, ptr %time, align 8
  %ns_p = getelementptr i64, ptr %time, i64 1
  store i64 {_NAP}, ptr %ns_p, align 8
{at("asleep_at", ASLEEP_AT)}
  br i1 %leads, label %tell, label %nap
tell:
  %core = call i64 @core()
  store atomic i64 %core, ptr %asleep_at_p monotonic, align 8
  br label %nap
nap:
  %napped = call i64 (i64, ...) @syscall(i64 {futex}, ptr %pool, i32 {_FUTEX_WAIT_PRIVATE}, i32 %low, ptr %time, ptr null, i32 0)
  br i1 %leads, label %up, label %again
up:
  store atomic i64 {NOWHERE}, ptr %asleep_at_p monotonic, align 8
  ret i64 0
again:
  %rc = phi i64 [ %called, %idle ], [ %napped, %nap ]
  %was_woken = icmp eq i64 %rc, 0
  br i1 %was_woken, label %where, label %awake
where:
  %here = call i64 @core()
{load("waker", WAKER, order="monotonic")}
  %same = icmp eq i64 %here, %waker
  br i1 %same, label %leave, label %awake
leave:
  call void @move()
  br label %awake
awake:
  ret i64 0
}}

define internal i64 @core() {_SELDOM} {{
  %core = alloca i32, align 4
  store i32 {NOWHERE}, ptr %core, align 4
  %rc = call i64 (i64, ...) @syscall(i64 {calls.getcpu}, ptr %core, ptr null, ptr null)
  %number = load i32, ptr %core, align 4
  %wide = sext i32 %number to i64
  ret i64 %wide
}}

define internal i1 @crowds(ptr %pool, i64 %worker) {_SELDOM} {{
entry:
{load("asleep_at", ASLEEP_AT, order="monotonic")}
  %none = icmp slt i64 %asleep_at, 0
  %leads = icmp eq i64 %worker, 0
  %not = or i1 %none, %leads
  br i1 %not, label %no, label %look
look:
  %core = call i64 @core()
  %same = icmp eq i64 %core, %asleep_at
  ret i1 %same
no:
  ret i1 false
}}

; Go to any other core that this thread may use; afterwards it may use the same ones as before.
define internal void @move() {_SELDOM} {{
entry:
  %all = alloca [{_CORES // 64} x i64], align 8
  %others = alloca [{_CORES // 64} x i64], align 8
  %bytes = call i64 (i64, ...) @syscall(i64 {calls.getaffinity}, i32 0, i64 {_CORES // 8}, ptr %all)
  %words = sdiv i64 %bytes, 8
  %known = icmp sgt i64 %words, 0
  br i1 %known, label %look, label %done
look:
  %core = call i64 @core()
  %at = sdiv i64 %core, 64
  %in = and i64 %core, 63
  %bit = shl i64 1, %in
  %but = xor i64 %bit, -1
  br label %copy
copy:
  %i = phi i64 [ 0, %look ], [ %j, %copy ]
  %left = phi i64 [ 0, %look ], [ %left_now, %copy ]
  %from = getelementptr i64, ptr %all, i64 %i
  %word = load i64, ptr %from, align 8
  %here = icmp eq i64 %i, %at
  %cut = and i64 %word, %but
  %kept = select i1 %here, i64 %cut, i64 %word
  %to = getelementptr i64, ptr %others, i64 %i
  store i64 %kept, ptr %to, align 8
  %left_now = or i64 %left, %kept
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %words
  br i1 %more, label %copy, label %copied
copied:
  %any = icmp ne i64 %left_now, 0
  br i1 %any, label %go, label %done
go:
  %gone = call i64 (i64, ...) @syscall(i64 {calls.setaffinity}, i32 0, i64 %bytes, ptr %others)
  %free = call i64 (i64, ...) @syscall(i64 {calls.setaffinity}, i32 0, i64 %bytes, ptr %all)
  br label %done
done:
  ret void
}}

define void @start(ptr %pool, ptr %steps, i64 %count, ptr %table) {_SELDOM} {{
  call void @prepare(ptr %pool, ptr %steps, i64 %count, ptr %table)
  call void @wake(ptr %pool)
  call void @lead(ptr %pool)
  ret void
}}

define void @start_loop(ptr %pool, ptr %loop) {_SELDOM} {{
  call void @prepare_loop(ptr %pool, ptr %loop)
  call void @wake(ptr %pool)
  call void @lead(ptr %pool)
  ret void
}}

define void @stop(ptr %pool) {_SELDOM} {{
{at("stop", STOP)}
  store atomic i64 1, ptr %stop_p seq_cst, align 8
  %old = atomicrmw add ptr %pool, i64 1 seq_cst
  %woken = {wake_all}
  ret void
}}

define void @work(ptr %pool, i64 %worker) {_SELDOM} {{
entry:
  br label %look
look:
  %round = phi i64 [ 0, %entry ], [ 0, %took ], [ %rounds, %waits ]
  %found = call i1 @take(ptr %pool, i64 %worker)
  br i1 %found, label %took, label %nothing
took:
  br label %look
nothing:
{load("stop", STOP, order="acquire")}
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %out, label %waits
waits:
  %rounds = call i64 @wait(ptr %pool, i64 %worker, i64 %round)
  br label %look
out:
  ret void
}}
"""
    return System(
        f"{declaration}\ndeclare i64 @syscall(i64, ...)",
        pause,
        """together:
  call void @start(ptr %pool, ptr %steps, i64 %count, ptr %table)
  ret void
""",
        functions,
    )


_SYSTEMS: Final = {LINUX: _linux, PLAIN: _plain}
