"""The blocks of memory by which Python and the native half of the runtime (`driver`) understand each other.

A module of its own: a start from a saved program needs these numbers, and not the text of the driver.
"""

from __future__ import annotations

from typing import Final

# Of the agreement between Python, kernels and driver: blocks, tables, the signature of kernels. Whoever changes it, here or in
# the driver, counts on: compiled models in files are refused then.
ABI_VERSION: Final = 1

# Offsets in the pool block, in bytes
GENERATION: Final = 0  # number of the current job; the futex word is its low half
STOP: Final = 8
STEPS: Final = 16
COUNT: Final = 24
TABLE: Final = 32
WORKERS: Final = 40
SPINS: Final = 48  # rounds of waiting before a worker sleeps
LOOP: Final = 56  # the loop block, if the job is a loop
SLEEPERS: Final = 64
GIVE: Final = 72  # function that lets others use the core, if workers wait in Python
LINES: Final = 128
LINE: Final = 64

# Entries of a launch block
BLOCK_STEPS, BLOCK_COUNT, BLOCK_TABLE, BLOCK_BINDS, BLOCK_BIND_COUNT, BLOCK_OBJECTS, BLOCK_POOL = range(7)
BLOCK_ENTRIES: Final = 7
BIND_ENTRIES: Final = 3  # table position, number of the object, offset in bytes

# Entries of a loop block. The iteration is where the body reads its number.
(
    LOOP_STEPS, LOOP_COUNT, LOOP_TABLE, LOOP_INCREMENTS, LOOP_INCREMENT_COUNT,
    LOOP_ITERATION, LOOP_LIMIT, LOOP_CONDITION, LOOP_FAULTS, LOOP_STATE,
) = range(10)  # fmt: skip
LOOP_ENTRIES: Final = 10
INCREMENT_ENTRIES: Final = 4
NO_CONDITION: Final = -1  # instead of the table position with the condition's address: always another iteration
# What a loop says when it comes back
AT_LIMIT, ENDED, FAULTY = 1, 2, 3

BARRIER: Final = 1  # flag of a step: all workers meet after it
STEP_ENTRIES: Final = 4
