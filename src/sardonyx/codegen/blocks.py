"""The blocks of memory by which Python and the native half of the runtime (`driver`) understand each other.

A module of its own: a start from a saved program needs these numbers, and not the text of the driver.
"""

from __future__ import annotations

from typing import Final

# Of the agreement between Python, kernels and driver: blocks, tables, the signature of kernels. Whoever changes it, here or in
# the driver, counts on: compiled models in files are refused then.
ABI_VERSION: Final = 4

# Offsets in the pool block, in bytes: a line of what is written once for a job, one of what is written when a worker sleeps or is
# held up, one of the step that is open (see `claims`).
GENERATION: Final = 0  # counts whenever sleepers are woken; the futex word is its low half
STOP: Final = 8
STEPS: Final = 16
COUNT: Final = 24
TABLE: Final = 32
WORKERS: Final = 40
SPINS: Final = 48  # rounds of waiting for a job before a worker sleeps
LOOP: Final = 56  # the loop block, if the job is a loop
SLEEPERS: Final = 64  # not 0: somebody may sleep
GIVE: Final = 72  # function that lets others use the core, if workers wait in Python
PRESSURE: Final = 80  # so many more steps are cut finely, because a worker was held up
ASLEEP_AT: Final = 88  # the core that the caller gave up while it waits for a worker, or NOWHERE
PATIENCE: Final = 104  # rounds of waiting for a chunk that somebody has claimed before he is taken to be held up
WAKER: Final = 96  # the core of the worker that woke others last
FREE: Final = 128  # a bit for every chunk of the open step that nobody has claimed
UNDONE: Final = 136  # chunks that are not finished; IDLE when no job runs
FIRST: Final = 144  # the open step, or the first of several that are done without meeting in between
BEYOND: Final = 152  # the step behind these
CHUNKS: Final = 160
EACH: Final = 168  # how many of the chunks are one worker's to begin with
POOL_BYTES: Final = 192
LINE: Final = 64
IDLE: Final = -1
NOWHERE: Final = -1
MOST_CHUNKS: Final = 64  # bits of FREE

# Entries of a launch block
BLOCK_STEPS, BLOCK_COUNT, BLOCK_TABLE, BLOCK_BINDS, BLOCK_BIND_COUNT, BLOCK_OBJECTS, BLOCK_POOL = range(7)
BLOCK_ENTRIES: Final = 7
BIND_ENTRIES: Final = 3  # table position, number of the object, offset in bytes

# Entries of a loop block. The iteration is where the body reads its number.
(
    LOOP_STEPS, LOOP_COUNT, LOOP_TABLE, LOOP_INCREMENTS, LOOP_INCREMENT_COUNT,
    LOOP_ITERATION, LOOP_LIMIT, LOOP_CONDITION, LOOP_FAULTS, LOOP_STATE, LOOP_SLOTS, LOOP_SLOT_COUNT, LOOP_ROW,
) = range(13)  # fmt: skip
LOOP_ENTRIES: Final = 13
INCREMENT_ENTRIES: Final = 4
NO_CONDITION: Final = -1  # instead of the table position with the condition's address: always another iteration
# What a loop says when it comes back
AT_LIMIT, ENDED, FAULTY = 1, 2, 3

BARRIER: Final = 1  # flag of a step: what follows begins when all of it is done
STRETCH: Final = 1  # bit of the flags from which on they count the steps, this one the last of them, that may be done again
STEP_ENTRIES: Final = 4

# Entries of a call block (see `array_call`): what is fed and made, what runs, and functions of Python and NumPy
(
    CALL_FEEDS, CALL_NAMED, CALL_INPUTS, CALL_INPUT_ROWS, CALL_OUTPUTS, CALL_OUTPUT_ROWS, CALL_LAUNCH, CALL_BUSY, CALL_KEEPS,
    CALL_FAULTS, CALL_FAULT_ENTRIES, CALL_DICT, CALL_ARRAY, CALL_NONE,
    CALL_DICT_SIZE, CALL_DICT_GET, CALL_ERROR, CALL_CLEAR, CALL_HOLD, CALL_DROP, CALL_NEW_LIST, CALL_SET_ITEM, CALL_NEW_ARRAY,
    CALL_LET_GO, CALL_TAKE_UP,
) = range(25)  # fmt: skip
CALL_ENTRIES: Final = 25
# Of an array that is given or made: its name if it is fed by one, type, rank, address of the sizes; of one that is given also the
# flags it must have, where its data must lie, if that matters, and the type's number, if all types of that number are the same
CALL_NAME, CALL_TYPE, CALL_RANK, CALL_SIZES, CALL_FLAGS, CALL_ADDRESS, CALL_TYPE_NUMBER = range(7)
CALL_ROW: Final = 7
NO_TYPE_NUMBER: Final = -1
CALL_MOST: Final = 32  # arrays that are given, and that are made
# Where an array object has its fields: distances in bytes from the first behind its header, which is the address of its data
ARRAY_RANK, ARRAY_SIZES, ARRAY_TYPE, ARRAY_FLAGS = 8, 16, 40, 48
TYPE_ORDER, TYPE_NUMBER = 10, 12  # the same of the objects that are types of elements: order of bytes, number of the type
NATIVE_ORDER, NO_ORDER = ord("="), ord("|")
ARRAY_READABLE, ARRAY_WRITABLE = 0x1, 0x501  # flags: in C order; also aligned and not read-only

# Entries of a text block (see `text_calls`): types and functions of Python and NumPy, then what the function at hand needs
(
    TEXT_ARRAY, TEXT_OBJECTS, TEXT_STR, TEXT_NONE, TEXT_HOLD, TEXT_DROP, TEXT_CLEAR, TEXT_NEW_ARRAY, TEXT_DICT_GET, TEXT_NUMBER,
    TEXT_UTF8, TEXT_RESULT, TEXT_DICT, TEXT_SEED, TEXT_SLOTS, TEXT_MASK, TEXT_KEYS, TEXT_KEY_WIDTH, TEXT_LENGTHS, TEXT_POSITIONS,
    TEXT_GIVEN, TEXT_OTHERS, TEXT_PARSE, TEXT_POWERS, TEXT_NEW, TEXT_DECODE, TEXT_START, TEXT_TABLE, TEXT_ENDS, TEXT_LEAST,
    TEXT_LIMIT, TEXT_SINGLES, TEXT_GRAMS, TEXT_GRAM_COUNT, TEXT_BASE,
) = range(35)  # fmt: skip
TEXT_ENTRIES: Final = 35
TEXT_FACTOR: Final = 0x9E3779B97F4A7C15  # of the hash of characters

# Entries of a block of staged instructions (see `staged_run`), the widths and codes of those
(
    STAGED_CODE, STAGED_NEXT, STAGED_STATE, STAGED_TABLE, STAGED_VALUES, STAGED_BASES, STAGED_OBJECTS, STAGED_FAULTS,
    STAGED_CHANGED, STAGED_ROOM, STAGED_LIMIT, STAGED_TOTAL,
) = range(12)  # fmt: skip
STAGED_ENTRIES: Final = 12
INSTRUCTION_ENTRIES: Final = 4  # code and three numbers
(
    STAGED_END, STAGED_ADD, STAGED_MUL, STAGED_FLOORDIV, STAGED_MOD, STAGED_BROADCAST, STAGED_MAX, STAGED_MIN, STAGED_CHECK,
    STAGED_EQUAL, STAGED_SLOT, STAGED_WORK, STAGED_FROM, STAGED_NEED, STAGED_RESERVE, STAGED_AT, STAGED_SAVE, STAGED_SHARE,
    STAGED_ADDRESS, STAGED_COUNT, STAGED_EXPECT, STAGED_SKIP, STAGED_RUN, STAGED_STOP, STAGED_BIND,
    STAGED_EXTENT, STAGED_EXPECT_EXTENT,
) = range(27)  # fmt: skip
# What such a run says when it comes back, beside the number of a stop, which is not negative
STAGED_DONE, STAGED_REFUSED, STAGED_FAULTY = -1, -2, -3
