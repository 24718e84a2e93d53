"""A program for pools of workers that counts who did how much."""

from __future__ import annotations

import numpy as np

from sardonyx.codegen import llvm, loader
from sardonyx.compile.assemble import library
from sardonyx.runtime.pool import Pool
from sardonyx.target.machine import runtime

# Adds the size of its share to the counter of its worker: args = [address of counters]
COUNTING = """
define void @count(ptr %args, i64 %begin, i64 %end, i64 %worker) {
  %counters = load ptr, ptr %args
  %mine = getelementptr i64, ptr %counters, i64 %worker
  %old = load i64, ptr %mine
  %share = sub i64 %end, %begin
  %new = add i64 %old, %share
  store i64 %new, ptr %mine
  ret void
}
"""
STEPS, UNITS = 300, 11


class Job:
    """A program of many counting steps."""

    def __init__(self, worth: int) -> None:
        self.code = loader.load(llvm.compile_to_object(COUNTING, library(None).target), runtime())
        self.counters = np.zeros(16, np.int64)
        self.table = np.array([self.counters.ctypes.data, UNITS, worth], np.int64)
        self.steps = np.tile(np.array([self.code.functions["count"], 0, 1, 1], np.int64), STEPS)

    def run(self, pool: Pool) -> None:
        pool.run(self.steps.ctypes.data, STEPS, self.table.ctypes.data)
