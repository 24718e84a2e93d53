"""What kernels that move data are called and how their work is counted."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from sardonyx.ir.dims import evaluate, symbol
from sardonyx.kernel.indexing import indexing, transpose
from sardonyx.kernel.indexing.check import IndexCheckKernel
from sardonyx.kernel.indexing.columns import ColumnsKernel
from sardonyx.kernel.indexing.compact import CountKernel, NonzeroIndicesKernel
from sardonyx.kernel.indexing.indexing import IndexKernel
from sardonyx.kernel.indexing.short_rows import ShortRowsKernel
from sardonyx.kernel.indexing.transpose import TransposeKernel
from sardonyx.kernel.indexing.write import WriteKernel
from sardonyx.kernel.matmul import interleave
from sardonyx.kernel.matmul.interleave import InterleaveKernel
from sardonyx.kernel.rows.scan import ScanKernel
from sardonyx.kernel.rows.sort import SortKernel
from sardonyx.kernel.rows.topk import TopKKernel
from sardonyx.kernel.sampling.nearest import NearestKernel
from sardonyx.kernel.sampling.resample import ResampleKernel

KERNELS = [
    WriteKernel(type="i64", count=3),
    TransposeKernel(type="i32", outer=1, side=8),
    InterleaveKernel(type="i32", count=3, outer=1),
    IndexKernel(
        direction="gather",
        type="i32",
        index="i64",
        indices=1,
        parallel=1,
        ordered=0,
        rows=False,
        combine="",
        inner=("unit",),
        unit_strides=(True,),
    ),
    IndexCheckKernel(index="i64"),
    ScanKernel(type="f32", compute="f32", operation="add", exclusive=False, outer=1, vectors=1, by_rows=False),
    TopKKernel(type="f32", largest=True, outer=1),
    SortKernel(type="f32", largest=True, outer=1, few=False),
    ColumnsKernel(type="f32", width=3, columns=(2, 0)),
    CountKernel(type="f32"),
    NonzeroIndicesKernel(type="f32", axes=2),
    ResampleKernel(source="f32", target="f32", compute="f32", taps=2, outer=1, rows=True),
    ShortRowsKernel(width=3, outer=1),
    NearestKernel(type="i32", outer=1, lines=True),
]
OTHER: dict[Any, Any] = {"f32": "f64", "i32": "i16", "i64": "i32", "gather": "scatter", "add": "mul", "": "add"}


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_every_field_is_in_the_key(kernel: Any) -> None:
    for field in fields(kernel):
        value = getattr(kernel, field.name)
        if isinstance(value, tuple):
            other: Any = ("zero",) if isinstance(value[0], str) else (False,)
        elif isinstance(value, str):
            other = OTHER[value]
        else:
            other = not value if isinstance(value, bool) else value + 1
        assert replace(kernel, **{field.name: other}).key != kernel.key, field.name


def test_work_is_counted_for_sizes_that_are_not_known_yet() -> None:
    n = symbol("N")
    assert evaluate(transpose.units([n], n * 10, 100), {"N": 7}) == 7 * 2 * 2
    assert evaluate(interleave.units([2], n), {"N": 1025}) == 4
    rows = IndexKernel(direction="gather", type="i32", index="i64", indices=1, parallel=1, ordered=0, rows=True)
    assert evaluate(indexing.units(rows, [n, 5000]), {"N": 3}) == 6
    elements = replace(rows, rows=False)
    assert evaluate(indexing.units(elements, [n]), {"N": 1025}) == 2
    in_order = replace(rows, parallel=0, ordered=1)
    assert indexing.units(in_order, [n, 100]) == 1
