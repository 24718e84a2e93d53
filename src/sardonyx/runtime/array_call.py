"""Runs of small programs by one function that Python calls directly (`codegen.array_call`), without any Python around the call.

    call = ArrayCall.of(function, context, inputs, outputs)
    call.run({"x": x})    ->    [y], or None if the feeds are not what the call was made for

It is made for the types and shapes of one run. All that native code reads, it reads at places that were looked at first: where an
array object has its fields, NumPy's table of functions. On an interpreter whose objects look different, or that runs several
threads at once, there is none.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from sardonyx.codegen.blocks import (
    ARRAY_FLAGS,
    ARRAY_RANK,
    ARRAY_READABLE,
    ARRAY_SIZES,
    ARRAY_TYPE,
    CALL_ARRAY,
    CALL_BUSY,
    CALL_CLEAR,
    CALL_DICT,
    CALL_DICT_GET,
    CALL_DICT_SIZE,
    CALL_DROP,
    CALL_ENTRIES,
    CALL_ERROR,
    CALL_FAULT_ENTRIES,
    CALL_FAULTS,
    CALL_FEEDS,
    CALL_HOLD,
    CALL_INPUT_ROWS,
    CALL_INPUTS,
    CALL_KEEPS,
    CALL_LAUNCH,
    CALL_LET_GO,
    CALL_MOST,
    CALL_NAMED,
    CALL_NEW_ARRAY,
    CALL_NEW_LIST,
    CALL_NONE,
    CALL_OUTPUT_ROWS,
    CALL_OUTPUTS,
    CALL_ROW,
    CALL_SET_ITEM,
    CALL_TAKE_UP,
    NO_TYPE_NUMBER,
    TYPE_NUMBER,
    TYPE_ORDER,
)
from sardonyx.runtime.native_core import ADDRESS_FIRST, Array, address_of

if TYPE_CHECKING:
    from sardonyx.runtime.executable import RunContext


class GivenArray(NamedTuple):
    """What an array must be that a call is given."""

    name: str | None  # of the feed; arrays without one come as arguments of their own
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    flags: int = ARRAY_READABLE
    address: int = 0  # where it must lie, if that matters


_PYTHON: Final = {
    CALL_DICT_SIZE: "PyDict_Size", CALL_DICT_GET: "PyDict_GetItemWithError", CALL_ERROR: "PyErr_Occurred",
    CALL_CLEAR: "PyErr_Clear", CALL_HOLD: "Py_IncRef", CALL_DROP: "Py_DecRef", CALL_NEW_LIST: "PyList_New",
    CALL_SET_ITEM: "PyList_SetItem", CALL_LET_GO: "PyEval_SaveThread", CALL_TAKE_UP: "PyEval_RestoreThread",
}  # fmt: skip
# NumPy's table of functions, whose order is part of what it promises to code compiled against it
_ARRAY_CLASS, _NEW_ARRAY = 2, 94
_ONE_TYPE: Final = "biufcO"  # kinds of which all types of a number and order of bytes are the same
_ARGUMENTS_IN_A_ROW: Final = 0x80  # how Python calls: METH_FASTCALL


class CallBlock(np.ndarray[Any, Any]):
    """What native code is given with each call: it reads it where an array has its data. It lives as long as its function."""

    keeps: Any


class _Method(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("text", ctypes.c_char_p))


_methods: dict[int, _Method] = {}  # by the address of their code; functions of Python refer to them


class ArrayCall:
    """A program set up for one set of types and shapes."""

    __slots__ = ("_block", "context", "run")

    def __init__(self, run: Callable[..., list[Array] | None], block: memoryview, context: RunContext) -> None:
        self.run = run  # the arrays that native code has written; None if this run needs the long way
        self.context = context
        self._block = block

    @classmethod
    def of(
        cls,
        code: int,
        keeps: Any,
        context: RunContext,
        inputs: Sequence[GivenArray],
        outputs: Sequence[tuple[np.dtype[Any], tuple[int, ...]]],
        feeds: int,
        *,
        is_held: bool,
    ) -> ArrayCall | None:
        """The call of a context that is set up; None if there can be none.

        `code` is the address of the driver's `call`, `keeps` what must live as long as that. Inputs with a name come out of a
        dictionary of so many feeds; those behind them, and arrays that results are written to, are given one by one. `outputs`
        are made. A call that `is_held` keeps its context until it is told to free it.
        """
        found = interpreter_addresses()
        if found is None or max(len(inputs), len(outputs)) > CALL_MOST:
            return None
        block = np.zeros(CALL_ENTRIES, np.int64).view(CallBlock)
        for entry, name in _PYTHON.items():
            block[entry] = found.of(name)
        block[CALL_DICT], block[CALL_ARRAY], block[CALL_NONE] = id(dict), id(np.ndarray), id(None)
        block[CALL_NEW_ARRAY] = found.new_array
        input_rows, input_parts = _rows(inputs)
        output_rows, output_parts = _rows([GivenArray(None, *each) for each in outputs])
        block[CALL_FEEDS], block[CALL_NAMED] = feeds, sum(each.name is not None for each in inputs)
        block[CALL_INPUTS], block[CALL_INPUT_ROWS] = len(inputs), address_of(input_rows)
        block[CALL_OUTPUTS], block[CALL_OUTPUT_ROWS] = len(outputs), address_of(output_rows)
        block[CALL_LAUNCH], block[CALL_KEEPS] = context.block_address, is_held
        block[CALL_FAULTS], block[CALL_FAULT_ENTRIES] = address_of(context.faults), len(context.faults)
        block.keeps = keeps, context, input_rows, input_parts, output_rows, output_parts
        return cls(direct_function(code, block), block.data, context)

    def free(self) -> None:
        """The next run may use the context."""
        self._block[CALL_BUSY] = 0


def _rows(values: Sequence[GivenArray]) -> tuple[Array, list[Any]]:
    """What native code compares, and the objects that it points to."""
    rows = np.zeros((max(len(values), 1), CALL_ROW), np.int64)
    parts: list[Any] = []
    for row, (name, dtype, shape, flags, address) in zip(rows, values):
        sizes = np.array(shape, np.int64)
        number = dtype.num if dtype.isbuiltin == 1 and dtype.kind in _ONE_TYPE else NO_TYPE_NUMBER
        row[:] = 0 if name is None else id(name), id(dtype), len(shape), address_of(sizes), flags, address, number
        parts.append((name, dtype, sizes))
    return rows, parts


def direct_function(code: int, block: CallBlock) -> Callable[..., Any]:
    """A function of Python that is native code; it is given the block with each call."""
    method = _methods.get(code)
    if method is None:
        method = _methods[code] = _Method(b"call", code, _ARGUMENTS_IN_A_ROW, None)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    made: Callable[..., Any] = make(ctypes.addressof(method), block, None)
    return made


class InterpreterAddresses(NamedTuple):
    """Where native code finds what it calls of Python and NumPy."""

    new_array: int

    @staticmethod
    def of(name: str) -> int:
        """A function of Python's own."""
        return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


@cache
def interpreter_addresses() -> InterpreterAddresses | None:
    """Where functions are; None if native code cannot be called directly, or does not know how objects look."""
    one_at_a_time = getattr(sys, "_is_gil_enabled", lambda: True)()
    if sys.implementation.name != "cpython" or not one_at_a_time or not ADDRESS_FIRST or not _arrays_look_as_expected():
        return None
    table = _numpy_functions()
    return None if table is None else InterpreterAddresses(table[_NEW_ARRAY])


def _numpy_functions() -> Any:
    """NumPy's table of functions, if it is what it is expected to be."""
    module = sys.modules.get("numpy._core._multiarray_umath") or sys.modules.get("numpy.core._multiarray_umath")
    capsule = getattr(module, "_ARRAY_API", None)
    if capsule is None:
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = (ctypes.c_int64 * (_NEW_ARRAY + 1)).from_address(pointer(capsule, None))
    return table if table[_ARRAY_CLASS] == id(np.ndarray) else None


def _arrays_look_as_expected() -> bool:
    """Whether native code finds the rank, sizes, type and flags of arrays, and the number and order of bytes of types."""
    header = object.__basicsize__
    for dtype in (np.dtype(np.int16), np.dtype(">f4"), np.dtype(object), np.dtype(np.bool_)):
        start = id(dtype) + header
        if (
            ctypes.c_int.from_address(start + TYPE_NUMBER).value != dtype.num
            or ctypes.c_char.from_address(start + TYPE_ORDER).value.decode() != dtype.byteorder
        ):
            return False
    for probe in (np.zeros((3, 5), np.int16), np.zeros((7, 4, 2), np.float64)[:, ::2], np.zeros((), np.int8)):
        start = id(probe) + header
        sizes = ctypes.c_void_p.from_address(start + ARRAY_SIZES).value or 0
        if (
            ctypes.c_int.from_address(start + ARRAY_RANK).value != probe.ndim
            or ctypes.c_int64.from_address(start + ARRAY_TYPE).value != id(probe.dtype)
            or ctypes.c_int.from_address(start + ARRAY_FLAGS).value != probe.flags.num
            or (probe.ndim and tuple((ctypes.c_int64 * probe.ndim).from_address(sizes)) != probe.shape)
        ):
            return False
    return True
