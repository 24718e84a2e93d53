"""Windows of signals whose length only the run tells become operators that have kernels.

    w = HannWindow(n)   =>   i = Range(0, Shape(ConstantOfShape(n)), 1)
                             u = Sin(pi * Min(i, n - i) / n) ** 2
                             w = u

A window is a polynomial of `u`, which keeps its digits at both ends, where a cosine that is taken from 1 would lose them: Hann's
is u, Hamming's 4/46 + 42/46 u, Blackman's 0.36 u + 0.64 u u. Runs when the portable passes are done, before BindSizes. Refuses
element types other than float32 and float64, which the definition rounds once, and lengths that are known: those are folded.
"""

from __future__ import annotations

from math import pi
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import Node, Value
from sardonyx.passes.protocol import Reject
from sardonyx.passes.rewriter import Rewriter, dtype_of, shape_of
from sardonyx.passes.shaping_rule import ShapingRule
from sardonyx.records import dataclass

_POLYNOMIALS: Final = {  # coefficients of 1, u and u * u
    "HannWindow": (0.0, 1.0, 0.0),
    "HammingWindow": (4 / 46, 42 / 46, 0.0),
    "BlackmanWindow": (0.0, 0.36, 0.64),
}
_LENGTHS: Final = (dtypes.INT32, dtypes.INT64)


@dataclass(frozen=True)
class ExpandWindows(ShapingRule[Node]):
    """Ensures: windows are made in native code."""

    name: ClassVar[str] = "ExpandWindows"
    roots: ClassVar[frozenset[str]] = frozenset(_POLYNOMIALS)
    expands: ClassVar[bool] = True

    def match(self, g: Rewriter, node: Node) -> Node | Reject | None:
        """A window of as many elements as a number says."""
        value = node.inputs[0]
        shape = shape_of(value)
        if shape is None or any(size != 1 for size in shape) or dtype_of(value) not in _LENGTHS:
            return Reject("its length is not one number")
        if dtypes.from_onnx(attribute_values(node)["output_datatype"]) not in (dtypes.FLOAT32, dtypes.FLOAT64):
            return Reject("neither float32 nor float64")
        return Reject("its length is known") if g.array(value) is not None else node

    def rewrite(self, g: Rewriter, found: Node, facts: Any) -> None:
        """Put the operators in its place."""
        attrs = attribute_values(found)
        kind = dtypes.from_onnx(attrs["output_datatype"])

        def number(value: float) -> Value:
            return g.constant(np.asarray(value, kind.numpy), "number")

        one = g.constant(np.ones(1, np.int64), "one")
        given = g.op("Reshape", g.op("Cast", found.inputs[0], to=dtypes.INT64.onnx), one)
        bound = g.op("Shape", g.op("ConstantOfShape", given, value=np.zeros(1, np.uint8)))  # a length below 0 is refused there
        length = g.op("Reshape", bound, g.constant(np.empty(0, np.int64), "scalar"))
        zero, step = (g.constant(np.asarray(each, np.int64), "number") for each in (0, 1))
        steps = length if attrs["periodic"] else g.op("Sub", length, step)
        position = g.op("Cast", g.op("Range", zero, length, step), to=kind.onnx)
        whole = g.op("Cast", g.op("Max", steps, step), to=kind.onnx)
        part = g.op("Div", g.op("Min", position, g.op("Sub", whole, position)), whole)
        sine = g.op("Sin", g.op("Mul", part, number(pi)))
        square = g.op("Mul", sine, sine)
        constant, linear, quadratic = _POLYNOMIALS[found.op_type]
        window = square
        if quadratic:
            window = g.op("Mul", square, g.op("Add", g.op("Mul", square, number(quadratic)), number(linear)))
        elif constant:
            window = g.op("Add", g.op("Mul", square, number(linear)), number(constant))
        if not attrs["periodic"]:  # a single element has no steps to go
            window = g.op("Where", g.op("Less", steps, step), number(1), window)
        g.replace(found.outputs[0], window)
