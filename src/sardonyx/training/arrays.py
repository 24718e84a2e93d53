"""Tensors as arrays and arrays as tensors, in the same memory."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np
import torch

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


class TensorArrays:
    """The arrays of tensors that live long, as parameters do: made again only when a tensor has other memory.

    An array keeps the memory it shows alive, so the same address with the same shape is the same memory.
    """

    def __init__(self, count: int) -> None:
        self._known: list[tuple[int, torch.Size, torch.dtype, Array] | None] = [None] * count

    def get(self, index: int, tensor: torch.Tensor) -> Array:
        """The array of the tensor that stands at an index."""
        known = self._known[index]
        if known is not None and known[0] == tensor.data_ptr() and known[1] == tensor.shape and known[2] is tensor.dtype:
            return known[3]
        array = array_of(tensor)
        if tensor.is_contiguous():  # otherwise it is a copy, and stale after the next update
            self._known[index] = tensor.data_ptr(), tensor.shape, tensor.dtype, array
        return array
