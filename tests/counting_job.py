"""A program for pools of workers that counts who did how much."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.codegen import llvm, loader
from sardonyx.codegen.blocks import BARRIER, STRETCH
from sardonyx.compile.assemble import library
from sardonyx.runtime.pool import Pool
from sardonyx.target.machine import runtime


def _counting(name: str, rest: str) -> str:
    """A kernel that adds the size of its share to the counter of its worker, at its first argument, then does the rest."""
    return f"""
define void @{name}(ptr %args, i64 %begin, i64 %end, i64 %worker) {{
entry:
  %counters = load ptr, ptr %args
  %mine = getelementptr i64, ptr %counters, i64 %worker
  %old = load i64, ptr %mine
  %share = sub i64 %end, %begin
  %new = add i64 %old, %share
  store i64 %new, ptr %mine
{rest}}}
"""


# args = [address of counters]
COUNTING = _counting(
    "count",
    """
  ret void
""",
)
# The same, after as many shares have begun as there are workers: args = [counters, workers, address of the number begun]
MEETING = _counting(
    "meet",
    """
  %wp = getelementptr i64, ptr %args, i64 1
  %workers = load i64, ptr %wp
  %bp = getelementptr i64, ptr %args, i64 2
  %begun = load ptr, ptr %bp
  %before = atomicrmw add ptr %begun, i64 1 seq_cst
  %round = udiv i64 %before, %workers
  %next = add i64 %round, 1
  %all = mul i64 %next, %workers
  br label %wait
wait:
  %now = load atomic i64, ptr %begun acquire, align 8
  %there = icmp sge i64 %now, %all
  br i1 %there, label %done, label %wait
done:
  ret void
""",
)
# The same; worker 1 waits in its first share until others have done all the rest: args = [counters, units, address of the number
# of units that are done]
HELD_UP = _counting(
    "held",
    """
  %up = getelementptr i64, ptr %args, i64 1
  %units = load i64, ptr %up
  %dp = getelementptr i64, ptr %args, i64 2
  %done_p = load ptr, ptr %dp
  %before = atomicrmw add ptr %done_p, i64 %share seq_cst
  %is_held = icmp eq i64 %worker, 1
  br i1 %is_held, label %wait, label %done
wait:
  %now = load atomic i64, ptr %done_p acquire, align 8
  %all = icmp sge i64 %now, %units
  br i1 %all, label %done, label %wait
done:
  ret void
""",
)
# The same; unit 1 takes as many rounds of waiting as the second argument says
SLOW = _counting(
    "slow",
    """
  %rp = getelementptr i64, ptr %args, i64 1
  %rounds = load i64, ptr %rp
  %dp = getelementptr i64, ptr %args, i64 2
  %shared = load ptr, ptr %dp
  %is_slow = icmp eq i64 %begin, 1
  br i1 %is_slow, label %wait, label %done
wait:
  %round = phi i64 [ 0, %entry ], [ %next, %wait ]
  %next = add i64 %round, 1
  store atomic i64 %next, ptr %shared release, align 8
  %more = icmp slt i64 %next, %rounds
  br i1 %more, label %wait, label %done
done:
  ret void
""",
)
# Counts rounds: args = [address of whether to go on and how many are over, how many there are]; begins anew after the last
ROUNDS = """
define void @round(ptr %args, i64 %begin, i64 %end, i64 %worker) {
  %counter = load ptr, ptr %args
  %done_p = getelementptr i64, ptr %counter, i64 1
  %rounds_p = getelementptr i64, ptr %args, i64 1
  %rounds = load i64, ptr %rounds_p
  %before = load i64, ptr %done_p
  %done = add i64 %before, 1
  %more = icmp slt i64 %done, %rounds
  %goes_on = zext i1 %more to i64
  %kept = mul i64 %done, %goes_on
  store i64 %goes_on, ptr %counter
  store i64 %kept, ptr %done_p
  ret void
}
"""
STEPS, UNITS = 300, 11


class Job:
    """A program of many counting steps, or of other ones: their text, the name of the function and what else it is given."""

    def __init__(
        self,
        worth: int,
        text: str = COUNTING,
        name: str = "count",
        arguments: Sequence[int] = (),
        units: int = UNITS,
        steps: int = STEPS,
        flags: int = BARRIER,
    ) -> None:
        self.code = loader.load(llvm.compile_to_object(text, library(None).target), runtime())
        self.counters = np.zeros(16, np.int64)
        self.shared = np.zeros(1, np.int64)  # for kernels that look at each other
        self.table = np.array([units, worth, self.counters.ctypes.data, *arguments, self.shared.ctypes.data], np.int64)
        self.steps = np.tile(np.array([self.code.functions[name], 2, 0, flags], np.int64), steps)
        self._count = steps

    def run(self, pool: Pool) -> None:
        pool.run(self.steps.ctypes.data, self._count, self.table.ctypes.data)


class RepeatingJob:
    """A step, a stretch of two that are done so many times, and a step."""

    def __init__(self, worth: int, rounds: int) -> None:
        self.code = loader.load(llvm.compile_to_object(COUNTING + ROUNDS, library(None).target), runtime())
        self.before, self.inside, self.behind = (np.zeros(16, np.int64) for _ in range(3))
        self.counter = np.array([1, 0], np.int64)
        count, step_of_round = (self.code.functions[name] for name in ("count", "round"))
        units = UNITS if rounds else 0
        tables = [
            [UNITS, worth, self.before.ctypes.data],
            [units, worth, self.inside.ctypes.data],
            [units, 1, self.inside.ctypes.data],
            [min(rounds, 1), worth, self.counter.ctypes.data, rounds],
            [UNITS, worth, self.behind.ctypes.data],
        ]
        starts = np.cumsum([0, *map(len, tables)])[:-1].tolist()
        flags = [BARRIER, BARRIER, BARRIER, BARRIER | 3 << STRETCH, BARRIER]
        functions = [count, count, count, step_of_round, count]
        self.table = np.array([number for table in tables for number in table], np.int64)
        self.steps = np.array([(function, at + 2, at, flag) for function, at, flag in zip(functions, starts, flags)], np.int64)
