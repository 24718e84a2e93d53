"""Tensors as arrays and arrays as tensors, in the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, is_
from sys import getrefcount
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np
import torch

from sardonyx.runtime.arena import LARGE_FROM, mapped_memory
from sardonyx.runtime.native_core import address_of
from sardonyx.training.step_run import Given, Spec

Array = np.ndarray[Any, Any]

_VIEWED: Final = {  # torch type -> the type of the same width in which it crosses over, and NumPy's for it
    torch.bfloat16: (torch.int16, np.dtype(ml_dtypes.bfloat16)),
    torch.float8_e4m3fn: (torch.uint8, np.dtype(ml_dtypes.float8_e4m3fn)),
    torch.float8_e5m2: (torch.uint8, np.dtype(ml_dtypes.float8_e5m2)),
}
_BACK: Final = {array: (np.dtype(str(carrier).removeprefix("torch.")), dtype) for dtype, (carrier, array) in _VIEWED.items()}


def array_of(tensor: torch.Tensor) -> Array:
    """The array that shares a tensor's memory; a tensor that is not contiguous, or not on the CPU's plain memory, is copied."""
    plain = tensor.detach()
    if not plain.is_contiguous():
        plain = plain.contiguous()
    found = _VIEWED.get(plain.dtype)
    if found is not None:
        viewed: Array = plain.view(found[0]).numpy().view(found[1])
        return viewed
    array: Array = plain.resolve_conj().resolve_neg().numpy()
    return array


def tensor_of(array: Array) -> torch.Tensor:
    """The tensor that shares an array's memory; an array that may not be written is copied."""
    if not array.flags.writeable or not array.flags.c_contiguous:
        array = np.array(array)
    found = _BACK.get(array.dtype)
    if found is not None:
        return torch.from_numpy(array.view(found[0])).view(found[1])
    return torch.from_numpy(array)


class _Lasting(NamedTuple):
    """Tensors that live long, and what is known of them."""

    tensors: list[torch.Tensor]  # none, if they must be looked at anew each time
    kinds: tuple[list[Any], ...]
    arrays: list[Array]


class _Shaped(NamedTuple):
    """What follows from the tensors that live long, for shapes of the others."""

    lasting: _Lasting
    others: tuple[tuple[int, ...], ...]
    shapes: tuple[tuple[int, ...], ...]  # of all
    addresses: list[int]  # those of the others are to be filled in


class TensorArrays:
    """Shapes, addresses and arrays of the tensors that a graph is given, from call to call.

    Tensors that live long, as parameters do, are looked at all together, and what is known of them serves as long as each is the
    same tensor with the same memory. Arrays keep the memory they show alive, so a known address is never one of freed memory.
    Threads may ask at once: what belongs together is one record, which is replaced but never changed.
    """

    def __init__(self, lasting: Sequence[int]) -> None:
        self._positions = tuple(lasting)  # of the tensors that live long
        self._lasting = _Lasting([], (), [])
        self._shaped: _Shaped | None = None

    def arrays(self, values: Sequence[torch.Tensor]) -> list[Array]:
        """The arrays of the tensors that live long, in order."""
        return self._look(values).arrays

    def _look(self, values: Sequence[torch.Tensor]) -> _Lasting:
        known = self._lasting
        tensors = [values[position] for position in self._positions]
        if (
            known.tensors
            and all(map(is_, tensors, known.tensors))
            and (list(map(_address, tensors)), list(map(_shape, tensors)), list(map(_dtype, tensors))) == known.kinds
            and all(map(_is_contiguous, tensors))
        ):
            return known
        arrays = [array_of(tensor) for tensor in tensors]
        # A tensor that is not contiguous is shown by a copy, which is stale after the next update.
        keep = all(map(_is_contiguous, tensors)) and not any(map(_is_flagged, tensors))
        kinds = list(map(_address, tensors)), list(map(_shape, tensors)), list(map(_dtype, tensors))
        found = self._lasting = _Lasting(tensors if keep else [], kinds, arrays)
        return found

    def given(self, values: Sequence[Any], others: Sequence[tuple[int, torch.Tensor]], extra: int) -> Given:
        """The same by address, with `others` at their positions, and `extra` places behind that somebody else fills."""
        lasting = self._look(values)
        shapes = tuple([tensor.shape for _, tensor in others])
        shaped = self._shaped
        if shaped is None or shaped.lasting is not lasting or shapes != shaped.others:
            shaped = self._shaped = self._shape_all(lasting, shapes, others, extra)
        addresses = shaped.addresses.copy()
        for position, tensor in others:
            addresses[position] = tensor.data_ptr()
        return Given(shaped.shapes, addresses, (lasting.arrays, others))

    def _shape_all(
        self, lasting: _Lasting, shapes: tuple[tuple[int, ...], ...], others: Sequence[tuple[int, torch.Tensor]], extra: int
    ) -> _Shaped:
        count = len(self._positions) + len(others) + extra
        found: list[tuple[int, ...]] = [()] * count
        addresses = [0] * count
        for position, array in zip(self._positions, lasting.arrays):
            found[position], addresses[position] = array.shape, address_of(array)
        for position, tensor in others:
            found[position] = tuple(tensor.shape)
        return _Shaped(lasting, shapes, tuple(found), addresses)


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without a gradient whose elements lie in order, in the CPU's memory: the same memory if it can be."""
    if type(tensor) not in _PLAIN or not tensor.is_cpu:
        return tensor_of(array_of(tensor))  # says what is wrong with it, if anything
    plain = tensor.detach()  # keeps the memory, whatever becomes of the tensor
    if not plain.is_contiguous() or _is_flagged(plain):
        return plain.resolve_conj().resolve_neg().contiguous()
    return plain


def lies_in_order(tensor: torch.Tensor) -> bool:
    """Whether a tensor's elements are what lies in the CPU's memory from its address on."""
    return type(tensor) in _PLAIN and tensor.is_cpu and tensor.is_contiguous() and not _is_flagged(tensor)


def _is_flagged(tensor: torch.Tensor) -> bool:
    """Whether the elements are not what lies in memory."""
    return bool(tensor.is_neg() or tensor.is_conj())


_address, _is_contiguous = torch.Tensor.data_ptr, torch.Tensor.is_contiguous
_shape, _dtype = attrgetter("shape"), attrgetter("dtype")
_PLAIN: Final = (torch.Tensor, torch.nn.Parameter)


class _Planned(NamedTuple):
    """What tensors of given shapes and types are made of."""

    specs: list[Spec]
    kinds: list[tuple[tuple[int, ...], torch.dtype, int]]
    alike: list[torch.Tensor]  # tensors of the same shapes and types, without memory to speak of
    any_large: bool


class TensorMemory:
    """New tensors of given shapes and types, again and again; large ones in the memory of earlier ones that are gone.

    What a graph gives out in one step is as a rule gone in the next, and the system clears new pages before it hands them out.
    Memory is used again when the array that shows it has no reference but the one from here.
    """

    def __init__(self) -> None:
        self._planned: _Planned | None = None  # replaced, never changed: threads may ask at once
        self._sets: list[dict[int, Array]] = []  # of large ones by number; one set is enough unless threads run at once

    def make(self, specs: list[Spec]) -> list[torch.Tensor]:
        """The tensors; what is in them is anything."""
        planned = self._planned
        if planned is None or specs is not planned.specs:
            kinds = [(shape, *_kind_of(shape, np.dtype(dtype))) for shape, dtype in specs]
            alike = [torch.empty((), dtype=dtype).expand(shape) for shape, dtype, _ in kinds]
            planned = self._planned = _Planned(specs, kinds, alike, any(large for _, _, large in kinds))
        _, kinds, alike, any_large = planned
        if not any_large:
            return list(map(_new_alike, alike))
        try:
            held = self._sets.pop()
        except IndexError:
            held = {}
        tensors = [
            self._used_again(held, number, shape, dtype, large) if large else _new_alike(alike[number])
            for number, (shape, dtype, large) in enumerate(kinds)
        ]
        if len(self._sets) < _MOST_SETS:
            self._sets.append(held)
        return tensors

    def give_back(self, size: int) -> None:
        """Give the system about as many bytes of tensors that are gone, the first ones first.

        Only those in large pages, which the system clears in a fraction of the time.
        """
        try:
            held = self._sets.pop()
        except IndexError:
            return
        for number in sorted(number for number, array in held.items() if array.nbytes >= LARGE_FROM):
            if size <= 0:
                break
            array = held.pop(number)
            if getrefcount(array) > _UNUSED:
                held[number] = array
            else:
                size -= array.nbytes
        self._sets.append(held)

    def _used_again(
        self, held: dict[int, Array], number: int, shape: tuple[int, ...], dtype: torch.dtype, size: int
    ) -> torch.Tensor:
        viewed = _VIEWED.get(dtype)
        array = held.pop(number, None)
        carrier: np.dtype[Any] = _NUMPY_TYPES[dtype] if viewed is None else _NUMPY_TYPES[viewed[0]]
        if array is None or getrefcount(array) > _UNUSED:
            array = _placed(mapped_memory(size + _STAGGER * _STAGGERED), number, shape, carrier)
        elif array.shape != shape or array.dtype != carrier:
            memory = array.base
            assert isinstance(memory, np.ndarray)
            fits = size + _STAGGER * _STAGGERED
            if not fits <= memory.nbytes <= 4 * fits:
                memory = mapped_memory(fits)
            array = _placed(memory, number, shape, carrier)
        held[number] = array
        tensor = torch.from_numpy(array)
        return tensor if viewed is None else tensor.view(dtype)


_new_alike: Final = (
    torch.empty_like
)  # takes half the time of torch.empty; of one element that is repeated it makes a whole tensor
_UNUSED: Final = 2  # references to an array that only a local name, and the question for their number, hold
_MOST_SETS: Final = 4
_LARGE: Final = 1 << 17  # bytes from which on the C library, too, asks the system
_STAGGER: Final = 320  # bytes: arrays that all began at a page's beginning would compete for the same lines of the caches
_STAGGERED: Final = 12
_NUMPY_TYPES: Final[dict[torch.dtype, np.dtype[Any]]] = {
    torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64), torch.float16: np.dtype(np.float16),
    torch.int8: np.dtype(np.int8), torch.int16: np.dtype(np.int16), torch.int32: np.dtype(np.int32),
    torch.int64: np.dtype(np.int64), torch.uint8: np.dtype(np.uint8), torch.uint16: np.dtype(np.uint16),
    torch.uint32: np.dtype(np.uint32), torch.uint64: np.dtype(np.uint64), torch.bool: np.dtype(np.bool_),
    torch.complex64: np.dtype(np.complex64), torch.complex128: np.dtype(np.complex128),
}  # fmt: skip
_TORCH_TYPES: Final = {
    **{array: dtype for dtype, array in _NUMPY_TYPES.items()},
    **{array: dtype for dtype, (_, array) in _VIEWED.items()},
}


def _kind_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[torch.dtype, int]:
    """The tensor's type, and its bytes if they are many."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return _TORCH_TYPES[dtype], size if size >= _LARGE else 0


def _placed(memory: Array, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    start = number % _STAGGERED * _STAGGER
    return np.ndarray(shape, dtype, memory, start)
