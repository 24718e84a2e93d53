"""SparseTensor: forms, views and checks."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import sardonyx
from sardonyx.runtime.sparse import SparseTensor

CPU = sardonyx.OrtDevice.make("cpu", 0)
VALUES = np.array([1, 2, 3], np.float32)
DENSE = np.array([[0, 0, 0], [1, 0, 2], [0, 3, 0]], np.float32)


@pytest.fixture(params=["onnxruntime", "sardonyx"])
def ort(request: pytest.FixtureRequest) -> Any:
    return importlib.import_module(request.param)


@pytest.mark.parametrize("indices", [np.array([3, 5, 7]), np.array([[1, 0], [1, 2], [2, 1]])], ids=["flat", "coordinates"])
def test_coo(ort: Any, indices: Any) -> None:
    device = ort.OrtDevice.make("cpu", 0)
    sparse = ort.SparseTensor.sparse_coo_from_numpy([3, 3], VALUES, indices, device)
    assert sparse.format() == ort.OrtSparseFormat.ORT_SPARSE_COO
    assert (list(sparse.dense_shape()), sparse.data_type(), sparse.device_name()) == ([3, 3], "sparse_tensor(float)", "cpu")
    np.testing.assert_array_equal(sparse.values(), VALUES)
    np.testing.assert_array_equal(sparse.as_coo_view().indices(), indices)
    assert not sparse.values().flags.writeable
    assert not sparse.as_coo_view().indices().flags.writeable
    for view in (sparse.as_csrc_view, sparse.as_blocksparse_view):
        with pytest.raises(RuntimeError, match="This sparse tensor does not contain"):
            view()


def test_csr(ort: Any) -> None:
    device = ort.OrtDevice.make("cpu", 0)
    sparse = ort.SparseTensor.sparse_csr_from_numpy([3, 3], VALUES, np.array([0, 2, 1]), np.array([0, 0, 2, 3]), device)
    assert sparse.format() == ort.OrtSparseFormat.ORT_SPARSE_CSRC
    assert sparse.as_csrc_view().inner().tolist() == [0, 2, 1]
    assert sparse.as_csrc_view().outer().tolist() == [0, 0, 2, 3]
    with pytest.raises(RuntimeError, match="This sparse tensor does not contain COO format"):
        sparse.as_coo_view()


def test_strings_are_values_too(ort: Any) -> None:
    sparse = ort.SparseTensor.sparse_coo_from_numpy([3, 3], np.array(["a", "b"]), np.array([1, 2]), ort.OrtDevice.make("cpu", 0))
    assert (sparse.data_type(), list(sparse.values())) == ("sparse_tensor(string)", ["a", "b"])


def test_a_value_holds_a_sparse_tensor(ort: Any) -> None:
    sparse = ort.SparseTensor.sparse_coo_from_numpy([3, 3], VALUES, np.array([3, 5, 7]), ort.OrtDevice.make("cpu", 0))
    value = ort.OrtValue.ort_value_from_sparse_tensor(sparse)
    assert value.is_sparse_tensor()
    assert not value.is_tensor()
    assert (value.data_type(), value.element_type(), list(value.shape())) == ("sparse_tensor(float)", 1, [3, 3])
    np.testing.assert_array_equal(value.as_sparse_tensor().values(), VALUES)
    for ask in (value.numpy, value.data_ptr, value.tensor_size_in_bytes):
        with pytest.raises(RuntimeError, match="Only OrtValues that are Tensors"):
            ask()


def test_there_is_no_gpu(ort: Any) -> None:
    sparse = ort.SparseTensor.sparse_coo_from_numpy([3, 3], VALUES, np.array([3, 5, 7]), ort.OrtDevice.make("cpu", 0))
    with pytest.raises(RuntimeError, match="Cuda is not available in this build"):
        sparse.to_cuda(ort.OrtDevice.make("cuda", 0))


@pytest.mark.parametrize(
    ("shape", "values", "indices", "text"),
    [
        ([3, 3], VALUES, [1, 2], "Index size: 2 must be equal to or twice the values size: 3"),
        ([3, 3], VALUES[None], [1, 2, 3], "Expecting values 1-D numpy values array"),
    ],
)
def test_coo_that_does_not_fit(ort: Any, shape: Any, values: Any, indices: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        ort.SparseTensor.sparse_coo_from_numpy(shape, values, np.array(indices), ort.OrtDevice.make("cpu", 0))


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        ([1, 2, 9], "indices reach outside of the dense shape"),
        ([-1, 2, 3], "indices reach outside of the dense shape"),
        ([[0, 0], [1, 1], [2, 3]], "indices reach outside of the dense shape"),
        ([[0], [1], [2]], "indices have 1 coordinates"),
        ([0.5, 1, 2], "coo_indices must be integers"),
    ],
)
def test_places_are_checked(indices: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        SparseTensor.sparse_coo_from_numpy([3, 3], VALUES, np.array(indices), CPU)


@pytest.mark.parametrize(
    ("shape", "inner", "outer", "text"),
    [
        ([3], [0, 2, 1], [0, 0, 2, 3], "CSR needs a dense shape of rank 2"),
        ([3, 3], [0, 2], [0, 0, 2, 3], "needs 3 inner and 4 outer indices, got 2 and 4"),
        ([3, 3], [0, 2, 1], [0, 0, 2], "needs 3 inner and 4 outer indices, got 3 and 3"),
        ([3, 3], [0, 2, 1], [0, 2, 0, 3], "outer indices must rise from 0 to 3"),
        ([3, 3], [0, 2, 3], [0, 0, 2, 3], "inner indices reach outside"),
    ],
)
def test_csr_that_does_not_fit(shape: Any, inner: Any, outer: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        SparseTensor.sparse_csr_from_numpy(shape, VALUES, np.array(inner), np.array(outer), CPU)


def test_blocks() -> None:
    blocks = np.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], np.float32)
    sparse = SparseTensor.blocksparse_from_numpy([4, 4], blocks, np.array([[0, 1], [1, 0]]), CPU)
    assert sparse.format() is sardonyx.OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE
    assert sparse.as_blocksparse_view().indices().tolist() == [[0, 1], [1, 0]]
    assert sparse.to_dense().tolist() == [[0, 0, 1, 2], [0, 0, 3, 4], [5, 6, 0, 0], [7, 8, 0, 0]]
    for shape, indices in (([4, 5], [[0, 1], [1, 0]]), ([4, 4], [[0, 2], [1, 0]]), ([4, 4], [0, 1])):
        with pytest.raises(RuntimeError):
            SparseTensor.blocksparse_from_numpy(shape, blocks, np.array(indices), CPU)


def test_dense_forms() -> None:
    coordinates = SparseTensor.sparse_coo_from_numpy([3, 3], VALUES, np.array([[1, 0], [1, 2], [2, 1]]), CPU)
    rows = SparseTensor.sparse_csr_from_numpy([3, 3], VALUES, np.array([0, 2, 1]), np.array([0, 0, 2, 3]), CPU)
    for sparse in (coordinates, rows, SparseTensor.from_dense(DENSE), SparseTensor(rows)):
        np.testing.assert_array_equal(sparse.to_dense(), DENSE)


@given(hnp.arrays(np.int32, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4), elements=st.integers(-1, 1)))
def test_a_dense_tensor_survives_being_made_sparse(array: Any) -> None:
    sparse = SparseTensor.from_dense(array)
    assert len(sparse.values()) == np.count_nonzero(array)
    np.testing.assert_array_equal(sparse.to_dense(), array)
    assert sparse.to_dense().dtype == array.dtype


def test_a_sparse_tensor_is_made_by_a_factory() -> None:
    with pytest.raises(ValueError, match="factory methods"):
        SparseTensor([3, 3])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a SparseTensor, got ndarray"):
        sardonyx.OrtValue.ort_value_from_sparse_tensor(DENSE)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="Can't allocate memory on the device"):
        SparseTensor.sparse_coo_from_numpy([3, 3], VALUES, np.array([3, 5, 7]), sardonyx.OrtDevice.make("cuda", 0))
    assert repr(SparseTensor.from_dense(DENSE)) == "SparseTensor(sparse_tensor(float), [3, 3], 3 values, ORT_SPARSE_COO)"
