"""Weights that lie [K, N] are packed to the same bytes straight from there as by way of their rows."""

from __future__ import annotations

import numpy as np
import pytest

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.ir.tensor import Array, Derivation, Tensor, from_numpy
from sardonyx.lower.quant.block_weights import pack_block_scales, pack_block_weights
from sardonyx.passes import form_block_products as pass_
from sardonyx.program.constants import Derived, Part, by_shortcut
from sardonyx.runtime import weight_store
from sardonyx.runtime.weight_store import WeightStore

TYPES = (dtypes.INT2, dtypes.UINT2, dtypes.INT4, dtypes.UINT4, dtypes.INT8, dtypes.UINT8)


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))


def _tensors(dtype: DType, depth: int, columns: int, block: int) -> tuple[Tensor, Tensor]:
    """The rows of some weights, with and without a word on how they were made."""
    raw = np.random.default_rng(depth + columns).integers(0, 256, depth * columns * dtype.bits // 8, np.uint8)
    weights = Tensor(dtype, (depth, columns), lambda: raw.data)
    rows = pass_._rows(weights, block)
    derivation = pass_._rows_derivation(weights, block)
    assert derivation is not None
    return Tensor(dtypes.UINT8, rows.shape, lambda: rows.data, derivation=derivation), from_numpy(rows)


def _packed(rows: Tensor, bits: int, lanes: int) -> Array:
    count, blocks, width = rows.shape
    shape = (-(-count // lanes), blocks, width // 4, lanes)
    constant = Derived(
        pack_block_weights, (Part(rows, 0, rows.shape, _dense(rows.shape)),), (bits, lanes), dtypes.UINT32, shape, "any"
    )
    assert (by_shortcut(constant) is None) == (rows.derivation is None)
    return WeightStore().array(constant)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_weights(dtype: DType, lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for depth, columns, block, limit in ((64, 40, 32, 1 << 20), (96, 36, 16, 400), (256, 132, 128, 3000), (16, 4, 16, 1)):
        monkeypatch.setattr(weight_store, "_BLOCK", limit)  # bytes that are packed at once
        made, plain = _tensors(dtype, depth, columns, block)
        np.testing.assert_array_equal(_packed(made, dtype.bits, lanes), _packed(plain, dtype.bits, lanes))


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_scales(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_store, "_BLOCK", 500)
    scales: Array = np.random.default_rng(1).random((5, 43)).astype(kind)
    transposed = np.ascontiguousarray(scales.T)
    found = []
    for derivation in (None, Derivation("block_scales", (from_numpy(scales),), ())):
        raw = transposed.view(np.uint8).reshape(-1)
        tensor = Tensor(dtypes.from_numpy(scales.dtype), (43 * 5,), lambda raw=raw: raw.data, derivation=derivation)  # type: ignore[misc]
        part = Part(tensor, 0, (43, 5), (5, 1))
        found.append(WeightStore().array(Derived(pack_block_scales, (part,), (8,), dtypes.FLOAT32, (6, 5, 8), "any")))
    np.testing.assert_array_equal(found[0], found[1])


def test_weights_whose_rows_do_not_fill_bytes_or_blocks_are_made_step_by_step() -> None:
    for shape in ((32, 3), (40, 4)):
        weights = Tensor(dtypes.UINT4, shape, lambda: memoryview(bytes(100)))
        assert pass_._rows_derivation(weights, 32) is None


def test_zero_points_in_the_middle_are_recognised() -> None:
    for dtype, middle in ((dtypes.UINT4, 8), (dtypes.INT4, 0), (dtypes.UINT8, 128), (dtypes.INT8, 0), (dtypes.UINT2, 2)):
        for count in (7, 8):
            points = np.full(count, middle).astype(dtype.numpy)
            assert pass_._is_middle(from_numpy(points), dtype)
            points[3] = 1
            assert not pass_._is_middle(from_numpy(points), dtype)
    assert pass_._is_middle(None, dtypes.INT4)
    assert not pass_._is_middle(None, dtypes.UINT4)
