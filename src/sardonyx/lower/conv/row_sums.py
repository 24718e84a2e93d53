"""Sums of rows that a depthwise convolution leaves for the means of its channels.

    y = SiLU(depthwise(x));  m = mean of y over its pixels        (squeeze-and-excite)

A mean reads all of an image again, from the second cache or from further away. The convolution has every result in a register
once: it adds up those of a row, beside its multiplications, and the mean reads one vector for each row. Rows are the units that
workers share, so the order of the sums does not depend on how many workers there are.
"""

from __future__ import annotations

from typing import Final

from sardonyx import dtypes
from sardonyx.ir.dims import Dim
from sardonyx.lower.epilogue import GroupEpilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.lowering import LowerContext
from sardonyx.program.steps import View

_POOL: Final = "BlockedGlobalPool"


def wanted_row_sums(ctx: LowerContext, group: Group, epilogue: GroupEpilogue, shape: tuple[Dim, ...]) -> View | None:
    """Memory for a vector of each row of a group's result, if the means of its channels are wanted."""
    if len(epilogue.stores) != 1 or epilogue.views[epilogue.written[0]].buffer.dtype is not dtypes.FLOAT32:
        return None
    for value in group.produced:
        if any(reader.op_type == _POOL and reader.attr("kind") != "max" for reader, _ in value.uses):
            ctx.row_sums[value] = made = ctx.scratch(dtypes.FLOAT32, shape, "row sums")
            return made
    return None
