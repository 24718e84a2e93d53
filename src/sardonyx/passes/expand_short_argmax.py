"""The largest of a few columns is found by comparing columns, for many rows at a time.

    y = ArgMax(x: f32[N,3]) {axis = 1, keepdims = 0}   =>   above = Greater(column 1, column 0)
                                                            best = Where(above, column 1, column 0)
                                                            Where(Greater(column 2, best), 2, Where(above, 1, 0))

A reduction would have a vector for each row. Runs after the passes that look for reductions. Refuses: rows of unknown or large
number of columns, other axes, the last of equal elements. NaN is larger than every number, as in the definition.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.graph import Node, Value
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import Rewriter, dtype_of
from sardonyx.records import dataclass

_MOST: Final = 12  # columns
_VERSION: Final = 13  # from here on Slice and Squeeze have their numbers as inputs


@dataclass(frozen=True)
class ExpandShortArgMax(Rule[int]):
    """Ensures: no ArgMax of a matrix with a few columns."""

    name: ClassVar[str] = "ExpandShortArgMax"
    roots: ClassVar[frozenset[str]] = frozenset(("ArgMax",))
    expands: ClassVar[bool] = True

    def match(self, g: Rewriter, node: Node) -> int | Reject | None:
        x = node.inputs[0]
        if x is None or x.shape is None or len(x.shape) != 2 or dtype_of(x) not in (dtypes.FLOAT32, dtypes.FLOAT64):
            return None
        columns = x.shape[1]
        if node.version < _VERSION or node.attr("axis", 0) not in (1, -1) or node.attr("select_last_index", 0):
            return None
        return columns if isinstance(columns, int) and 1 < columns <= _MOST else None

    def rewrite(self, g: Rewriter, found: int, facts: Any) -> None:
        node = g.anchor
        x = node.inputs[0]
        assert x is not None

        def numbers(*values: int) -> Value:
            return g.constant(np.array(values, np.int64), "numbers")

        def column(number: int) -> Value:
            return g.op("Slice", x, numbers(number), numbers(number + 1), numbers(1))

        best: Value = column(0)
        index = numbers(0)
        for number in range(1, found):
            here = column(number)
            not_below = g.op("Not", g.op("LessOrEqual", here, best))  # NaN is not below anything
            above = g.op("And", not_below, g.op("Not", g.op("IsNaN", best)))
            index = g.op("Where", above, numbers(number), index)
            best = g.op("Where", above, here, best)
        result = index if node.attr("keepdims", 1) else g.op("Reshape", index, numbers(-1))
        g.replace(node.outputs[0], result)
