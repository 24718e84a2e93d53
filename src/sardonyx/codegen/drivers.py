"""The driver of each kind of runtime: how workers wait, in front of what is the same everywhere (`driver`)."""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.blocks import FREE, GIVE, IDLE, SLEEPERS, STOP, UNDONE
from sardonyx.codegen.claims import at, load
from sardonyx.codegen.driver import System, common_ir
from sardonyx.target.machine import LINUX, PLAIN
from sardonyx.target.target import Target

# Tells the core that it waits: (declaration, call)
_PAUSE: Final = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}

_FUTEX: Final = {"x86_64": 202, "aarch64": 98}  # number of the system call
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
    futex = _FUTEX[architecture]
    wake_all = f"call i64 (i64, ...) @syscall(i64 {futex}, ptr %pool, i32 {_FUTEX_WAKE_PRIVATE}, i32 2147483647)"
    functions = f"""
define internal void @wake(ptr %pool) nounwind {{
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
  %old = atomicrmw add ptr %pool, i64 1 seq_cst
  %woken = {wake_all}
  br label %done
done:
  ret void
}}

; Sleep, unless there is something to do by now. Who makes such writes it before he looks for sleepers, and counts on before he
; wakes them; a worker says that it sleeps before it looks: one of the two sees the other.
define internal i64 @rest(ptr %pool, i64 %worker, i64 %rounds) nounwind {{
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
  %rc = call i64 (i64, ...) @syscall(i64 {futex}, ptr %pool, i32 {_FUTEX_WAIT_PRIVATE}, i32 %low, ptr null, ptr null, i32 0)
  br label %awake
awake:
  ret i64 0
}}

define void @start(ptr %pool, ptr %steps, i64 %count, ptr %table) nounwind {{
  call void @prepare(ptr %pool, ptr %steps, i64 %count, ptr %table)
  call void @wake(ptr %pool)
  call void @lead(ptr %pool)
  ret void
}}

define void @start_loop(ptr %pool, ptr %loop) nounwind {{
  call void @prepare_loop(ptr %pool, ptr %loop)
  call void @wake(ptr %pool)
  call void @lead(ptr %pool)
  ret void
}}

define void @stop(ptr %pool) nounwind {{
{at("stop", STOP)}
  store atomic i64 1, ptr %stop_p seq_cst, align 8
  %old = atomicrmw add ptr %pool, i64 1 seq_cst
  %woken = {wake_all}
  ret void
}}

define void @work(ptr %pool, i64 %worker) nounwind {{
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
