"""How depthwise windows lie over quads of rows."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from sardonyx.kernel.epilogue import Epilogue
from sardonyx.kernel.loops import Operand
from sardonyx.kernel.quant.windows import QuadWindowKernel, Taps

TAPS = Taps(3, 3, 1, 1, 1)
KERNEL = QuadWindowKernel(
    source="u8",
    block=64,
    flat=False,
    whole=True,
    taps=TAPS,
    column_stride=1,
    column_dilation=1,
    epilogue=Epilogue((Operand("u8", "unit"),), ()),
)


@pytest.mark.parametrize("field", fields(KERNEL), ids=lambda field: field.name)
def test_every_field_is_in_the_key(field: Any) -> None:
    value = getattr(KERNEL, field.name)
    others: dict[str, Any] = {"source": "i8", "epilogue": Epilogue((Operand("i8", "unit"),), ())}
    if isinstance(value, Taps):
        for own in fields(value):
            changed = replace(value, **{own.name: getattr(value, own.name) + 1})
            assert replace(KERNEL, taps=changed).key != KERNEL.key, own.name
        return
    other = others.get(field.name, not value if isinstance(value, bool) else 2)
    assert replace(KERNEL, **{field.name: other}).key != KERNEL.key


@pytest.mark.parametrize(
    ("taps", "lines", "together", "vectors"),
    [
        (Taps(3, 3, 1, 1, 1), 1, 2, 6),  # both rows see the same four
        (Taps(3, 3, 2, 1, 1), 1, 1, 3),
        (Taps(3, 3, 1, 2, 1), 1, 1, 3),
        (Taps(5, 5, 1, 1, 1), 2, 4, 40),
        (Taps(5, 5, 2, 1, 2), 2, 2, 40),
        (Taps(2, 3, 1, 1, 1), 1, 3, 9),
        (Taps(7, 1, 3, 1, 1), 2, 1, 2),
    ],
)
def test_rows_of_results_share_lines(taps: Taps, lines: int, together: int, vectors: int) -> None:
    assert (taps.lines, taps.together, len(taps.vectors)) == (lines, together, vectors)


@pytest.mark.parametrize("rows", range(1, 10))
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_every_tap_of_every_row_of_results_stands_in_one_line(rows: int, stride: int) -> None:
    taps = Taps(rows, 1, stride, 1, 1)
    assert taps.seen <= 4 * taps.lines
    for result in range(taps.together):
        lines = [line for _, own, line, _ in taps.vectors if own == result]
        seen = [taps.first_tap(result, line) + place for line in lines for place in range(4)]
        assert [tap for tap in seen if 0 <= tap < rows] == list(range(rows))
