"""The driver of each kind of runtime: how workers wait, in front of what is the same everywhere (`driver`)."""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.blocks import COUNT, GIVE, LOOP, SLEEPERS, SPINS, STEPS, STOP, TABLE, WORKERS
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
    give = f"""  %give_p = getelementptr i8, ptr %pool, i64 {GIVE}
  %function = load ptr, ptr %give_p, align 8
  call void %function()"""
    return System(declaration, pause, give, "together:\n  unreachable\n", "")


def _linux(architecture: str) -> System:
    """Workers sit in `work`, and sleep in the kernel; start and start_loop wake them, stop ends them."""
    declaration, pause = _pause(architecture)
    futex = _FUTEX[architecture]
    functions = f"""
define internal void @wake(ptr %pool) nounwind {{
entry:
  %old = load i64, ptr %pool, align 8
  %new = add i64 %old, 1
  store atomic i64 %new, ptr %pool seq_cst, align 8
  %lp = getelementptr i8, ptr %pool, i64 {SLEEPERS}
  %sleepers = load atomic i64, ptr %lp seq_cst, align 8
  %asleep = icmp sgt i64 %sleepers, 0
  br i1 %asleep, label %call, label %done
call:
  %woken = call i64 (i64, ...) @syscall(i64 {futex}, ptr %pool, i32 {_FUTEX_WAKE_PRIVATE}, i32 2147483647)
  br label %done
done:
  ret void
}}

define void @start(ptr %pool, ptr %steps, i64 %count, ptr %table) nounwind {{
  %sp = getelementptr i8, ptr %pool, i64 {STEPS}
  store ptr %steps, ptr %sp, align 8
  %cp = getelementptr i8, ptr %pool, i64 {COUNT}
  store i64 %count, ptr %cp, align 8
  %tp = getelementptr i8, ptr %pool, i64 {TABLE}
  store ptr %table, ptr %tp, align 8
  %looped = getelementptr i8, ptr %pool, i64 {LOOP}
  store ptr null, ptr %looped, align 8
  call void @wake(ptr %pool)
  %wp = getelementptr i8, ptr %pool, i64 {WORKERS}
  %workers = load i64, ptr %wp, align 8
  call void @run(ptr %pool, ptr %steps, i64 %count, ptr %table, i64 0, i64 %workers)
  ret void
}}

define void @start_loop(ptr %pool, ptr %loop) nounwind {{
  %looped = getelementptr i8, ptr %pool, i64 {LOOP}
  store ptr %loop, ptr %looped, align 8
  call void @wake(ptr %pool)
  %wp = getelementptr i8, ptr %pool, i64 {WORKERS}
  %workers = load i64, ptr %wp, align 8
  call void @loop(ptr %loop, ptr %pool, i64 0, i64 %workers)
  ret void
}}

define void @stop(ptr %pool) nounwind {{
  %stp = getelementptr i8, ptr %pool, i64 {STOP}
  store atomic i64 1, ptr %stp seq_cst, align 8
  %old = load i64, ptr %pool, align 8
  %new = add i64 %old, 1
  store atomic i64 %new, ptr %pool seq_cst, align 8
  %woken = call i64 (i64, ...) @syscall(i64 {futex}, ptr %pool, i32 {_FUTEX_WAKE_PRIVATE}, i32 2147483647)
  ret void
}}

define void @work(ptr %pool, i64 %worker, i64 %first) nounwind {{
entry:
  %lp = getelementptr i8, ptr %pool, i64 {SLEEPERS}
  %stp = getelementptr i8, ptr %pool, i64 {STOP}
  br label %idle
idle:
  %last = phi i64 [ %first, %entry ], [ %now, %single ], [ %now, %many ]
  %spp = getelementptr i8, ptr %pool, i64 {SPINS}
  %spins = load i64, ptr %spp, align 8
  br label %look
look:
  %round = phi i64 [ 0, %idle ], [ %rounds, %spin ], [ 0, %slept ]
  %now = load atomic i64, ptr %pool acquire, align 8
  %fresh = icmp ne i64 %now, %last
  br i1 %fresh, label %ready, label %wait
wait:
  %tired = icmp sge i64 %round, %spins
  br i1 %tired, label %sleep, label %spin
spin:
  {pause}
  %rounds = add i64 %round, 1
  br label %look
sleep:
  %was = atomicrmw add ptr %lp, i64 1 seq_cst
  %low = trunc i64 %last to i32
  %rc = call i64 (i64, ...) @syscall(i64 {futex}, ptr %pool, i32 {_FUTEX_WAIT_PRIVATE}, i32 %low, ptr null, ptr null, i32 0)
  %is = atomicrmw sub ptr %lp, i64 1 seq_cst
  br label %slept
slept:
  br label %look
ready:
  %halt = load atomic i64, ptr %stp acquire, align 8
  %leave = icmp ne i64 %halt, 0
  br i1 %leave, label %out, label %job
job:
  %wp = getelementptr i8, ptr %pool, i64 {WORKERS}
  %workers = load i64, ptr %wp, align 8
  %looped = getelementptr i8, ptr %pool, i64 {LOOP}
  %loop = load ptr, ptr %looped, align 8
  %once = icmp eq ptr %loop, null
  br i1 %once, label %single, label %many
many:
  call void @loop(ptr %loop, ptr %pool, i64 %worker, i64 %workers)
  br label %idle
single:
  %sp = getelementptr i8, ptr %pool, i64 {STEPS}
  %steps = load ptr, ptr %sp, align 8
  %cp = getelementptr i8, ptr %pool, i64 {COUNT}
  %count = load i64, ptr %cp, align 8
  %tp = getelementptr i8, ptr %pool, i64 {TABLE}
  %table = load ptr, ptr %tp, align 8
  call void @run(ptr %pool, ptr %steps, i64 %count, ptr %table, i64 %worker, i64 %workers)
  br label %idle
out:
  ret void
}}
"""
    return System(
        f"{declaration}\ndeclare i64 @syscall(i64, ...)\ndeclare i32 @sched_yield()",
        pause,
        "  %ignored = call i32 @sched_yield()",
        """together:
  call void @start(ptr %pool, ptr %steps, i64 %count, ptr %table)
  ret void
""",
        functions,
    )


_SYSTEMS: Final = {LINUX: _linux, PLAIN: _plain}
