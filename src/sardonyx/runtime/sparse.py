"""Sparse tensors: values, and where they stand in a dense tensor of zeros.

    COO     indices [count] into the flattened tensor, or [count, 2] of row and column
    CSR     inner: the column of each value; outer: where each row's values begin, rows + 1 numbers
    blocks  values [..., block rows, block columns], indices [2, count] of block row and block column

Arrays are kept, not copied, and handed out read-only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sardonyx import dtypes
from sardonyx.enums import OrtEnum
from sardonyx.ir.tensor import Array
from sardonyx.runtime.devices import OrtDevice, require_cpu


class OrtSparseFormat(OrtEnum):
    """How the indices of the values are stored."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


class SparseCooView:
    """The indices of a COO tensor's values."""

    def __init__(self, indices: Array) -> None:
        self._indices = indices

    def indices(self) -> Array:
        """[count] positions in the flattened tensor, or [count, 2] coordinates."""
        return self._indices


class SparseCsrView:
    """The indices of a CSR tensor's values."""

    def __init__(self, inner: Array, outer: Array) -> None:
        self._inner = inner
        self._outer = outer

    def inner(self) -> Array:
        """The column of each value."""
        return self._inner

    def outer(self) -> Array:
        """Where each row begins in the values; one number more than rows."""
        return self._outer


class SparseBlockSparseView:
    """The indices of a block-sparse tensor's blocks."""

    def __init__(self, indices: Array) -> None:
        self._indices = indices

    def indices(self) -> Array:
        """[2, count]: block row and block column of each block."""
        return self._indices


class SparseTensor:
    """A sparse tensor; made by `sparse_coo_from_numpy`, `sparse_csr_from_numpy` or `blocksparse_from_numpy`."""

    _shape: tuple[int, ...]
    _values: Array
    _view: SparseCooView | SparseCsrView | SparseBlockSparseView

    def __init__(self, sparse_tensor: SparseTensor) -> None:
        if not isinstance(sparse_tensor, SparseTensor):
            raise ValueError("a SparseTensor is made by one of its factory methods, e.g. sparse_coo_from_numpy")
        self._shape, self._values, self._view = sparse_tensor._shape, sparse_tensor._values, sparse_tensor._view

    @classmethod
    def _of(
        cls, shape: tuple[int, ...], values: Array, view: SparseCooView | SparseCsrView | SparseBlockSparseView
    ) -> SparseTensor:
        made = cls.__new__(cls)
        made._shape, made._values, made._view = shape, values, view
        return made

    def __repr__(self) -> str:
        return f"SparseTensor({self.data_type()}, {self.dense_shape()}, {len(self._values)} values, {self.format().name})"

    @classmethod
    def sparse_coo_from_numpy(
        cls, dense_shape: Sequence[int] | NDArray[np.int64], values: Array, coo_indices: Array, ort_device: OrtDevice
    ) -> SparseTensor:
        """A tensor in COO form; indices are positions in the flattened tensor, or one row of coordinates a value."""
        shape = _dense_shape(dense_shape, ort_device)
        values, indices = _vector(values, "values"), _integers(coo_indices, "coo_indices")
        if indices.ndim == 1 and indices.size == 2 * values.size and values.size:
            indices = indices.reshape(-1, 2)
        if len(indices) != len(values) or indices.ndim > 2:
            raise RuntimeError(f"Index size: {indices.size} must be equal to or twice the values size: {values.size}")
        if indices.ndim == 2 and indices.shape[1] != len(shape):
            raise RuntimeError(f"indices have {indices.shape[1]} coordinates, the dense shape {list(shape)} has {len(shape)}")
        limits = np.asarray(shape if indices.ndim == 2 else [int(np.prod(shape))])
        if indices.size and not ((indices >= 0).all() and (indices.reshape(len(indices), -1) < limits).all()):
            raise RuntimeError(f"indices reach outside of the dense shape {list(shape)}")
        return cls._of(shape, _read_only(values), SparseCooView(_read_only(indices)))

    @classmethod
    def sparse_csr_from_numpy(
        cls,
        dense_shape: Sequence[int] | NDArray[np.int64],
        values: Array,
        inner_indices: Array,
        outer_indices: Array,
        ort_device: OrtDevice,
    ) -> SparseTensor:
        """A matrix in CSR form: the column of each value, and where each row begins."""
        shape = _dense_shape(dense_shape, ort_device)
        values, inner, outer = _vector(values, "values"), _integers(inner_indices, "inner"), _integers(outer_indices, "outer")
        if len(shape) != 2:
            raise RuntimeError(f"CSR needs a dense shape of rank 2, got {list(shape)}")
        if inner.ndim != 1 or outer.ndim != 1 or inner.size != values.size or outer.size != shape[0] + 1:
            raise RuntimeError(
                f"CSR of {values.size} values and {shape[0]} rows needs {values.size} inner and {shape[0] + 1} outer indices, "
                f"got {inner.size} and {outer.size}"
            )
        if (np.diff(outer) < 0).any() or outer[0] != 0 or outer[-1] != values.size:
            raise RuntimeError(f"outer indices must rise from 0 to {values.size}, got {outer.tolist()}")
        if inner.size and not ((inner >= 0).all() and (inner < shape[1]).all()):
            raise RuntimeError(f"inner indices reach outside of the dense shape {list(shape)}")
        return cls._of(shape, _read_only(values), SparseCsrView(_read_only(inner), _read_only(outer)))

    @classmethod
    def blocksparse_from_numpy(
        cls, dense_shape: Sequence[int] | NDArray[np.int64], values: Array, block_indices: Array, ort_device: OrtDevice
    ) -> SparseTensor:
        """A matrix of blocks: values [count, rows, columns] and [2, count] of block row and block column."""
        shape = _dense_shape(dense_shape, ort_device)
        indices = _integers(block_indices, "block_indices").astype(np.int32)
        if values.ndim != 3 or indices.shape != (2, len(values)) or len(shape) != 2:
            raise RuntimeError(
                f"expected values [count, rows, columns], indices [2, count] and a dense shape of rank 2, "
                f"got {list(values.shape)}, {list(indices.shape)} and {list(shape)}"
            )
        block = values.shape[1:]
        if any(size % max(part, 1) for size, part in zip(shape, block)):
            raise RuntimeError(f"the dense shape {list(shape)} is not a multiple of the blocks {list(block)}")
        if indices.size and not ((indices >= 0).all() and ((indices.T + 1) * block <= shape).all()):
            raise RuntimeError(f"blocks of {list(block)} reach outside of the dense shape {list(shape)}")
        return cls._of(shape, _read_only(values), SparseBlockSparseView(_read_only(indices)))

    @classmethod
    def from_dense(cls, array: Array) -> SparseTensor:
        """The non-zero elements of an array, in COO form with flat indices."""
        indices = np.flatnonzero(array)
        return cls._of(array.shape, _read_only(array.reshape(-1)[indices]), SparseCooView(_read_only(indices)))

    def to_dense(self) -> Array:
        """The whole tensor, zeros included."""
        empty = "" if self._values.dtype == object else 0
        result: Array = np.full(self._shape, empty, dtype=self._values.dtype)
        view = self._view
        if isinstance(view, SparseCooView):
            indices = view.indices()
            if indices.ndim == 2:
                result[tuple(indices.T)] = self._values
            else:
                result.reshape(-1)[indices] = self._values
        elif isinstance(view, SparseCsrView):
            result[np.repeat(np.arange(self._shape[0]), np.diff(view.outer())), view.inner()] = self._values
        else:
            rows, columns = self._values.shape[1:]
            blocks = result.reshape(self._shape[0] // rows, rows, self._shape[1] // columns, columns)
            block_rows, block_columns = view.indices()
            blocks[block_rows, :, block_columns, :] = self._values
        return result

    def values(self) -> Array:
        """The values, read-only."""
        return self._values

    def as_coo_view(self) -> SparseCooView:
        """The indices, if this is COO."""
        if not isinstance(self._view, SparseCooView):
            raise RuntimeError("This sparse tensor does not contain COO format")
        return self._view

    def as_csrc_view(self) -> SparseCsrView:
        """The indices, if this is CSR."""
        if not isinstance(self._view, SparseCsrView):
            raise RuntimeError("This sparse tensor does not contain CSR(C) format")
        return self._view

    def as_blocksparse_view(self) -> SparseBlockSparseView:
        """The indices, if this consists of blocks."""
        if not isinstance(self._view, SparseBlockSparseView):
            raise RuntimeError("This sparse tensor does not contain BlockSparse format")
        return self._view

    get_coo_data = as_coo_view
    get_csrc_data = as_csrc_view
    get_blocksparse_data = as_blocksparse_view

    def format(self) -> OrtSparseFormat:
        """How the indices are written down."""
        if isinstance(self._view, SparseCooView):
            return OrtSparseFormat.ORT_SPARSE_COO
        if isinstance(self._view, SparseCsrView):
            return OrtSparseFormat.ORT_SPARSE_CSRC
        return OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE

    def dense_shape(self) -> list[int]:
        """The shape of the whole tensor."""
        return list(self._shape)

    def data_type(self) -> str:
        """For example sparse_tensor(float)."""
        return f"sparse_tensor({dtypes.from_numpy(self._values.dtype).ort})"

    def device_name(self) -> str:
        """Always cpu."""
        return "cpu"

    def to_cuda(self, ort_device: OrtDevice) -> SparseTensor:
        """Not possible: Sardonyx computes on the CPU."""
        raise RuntimeError("Cuda is not available in this build")

    def _get_c_tensor(self) -> SparseTensor:
        return self


def _dense_shape(shape: Sequence[int] | NDArray[np.int64], device: OrtDevice) -> tuple[int, ...]:
    require_cpu(device)
    sizes = tuple(int(size) for size in shape)
    if any(size < 0 for size in sizes):
        raise RuntimeError(f"dense shape {list(sizes)} has a negative size")
    return sizes


def _vector(values: Array, what: str) -> Array:
    values = np.asarray(values)
    if values.ndim != 1:
        raise RuntimeError(f"Expecting {what} 1-D numpy values array, got {list(values.shape)}")
    if dtypes.from_numpy(values.dtype) is dtypes.STRING:
        return values.astype(object)
    return values


def _integers(indices: Any, what: str) -> Array:
    found = np.asarray(indices)
    if found.dtype.kind not in "iu" and found.size:
        raise RuntimeError(f"{what} must be integers, got {found.dtype}")
    return np.ascontiguousarray(found, np.int64)


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view
