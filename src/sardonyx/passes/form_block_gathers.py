"""Lookups in tables of a type of 4 bits, the tables as bytes.

    com.microsoft::GatherBlockQuantized(t: i4[V,K], i, scale: f32[V,blocks])  =>  sardonyx::GatherBlocks(t': u8[V,K/2], i, scale)

The bytes are those of the table, where they lie; kernels know no types of less than a byte. A signed number is an unsigned one
whose highest bit is flipped, and so is its zero point; without zero points they are 0. Refuses tables that are computed or
shaped otherwise: rows are looked up, with blocks along them that fill a row, and rows fill whole bytes.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import Node
from sardonyx.ir.tensor import Derivation, Tensor, origin_of, release_pages
from sardonyx.ops.infer import normalize_axis
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, dtype_of
from sardonyx.records import dataclass

_DOMAIN: Final = "sardonyx"
_TYPES: Final = frozenset((dtypes.INT4, dtypes.UINT4))


@dataclass(frozen=True)
class _Table:
    data: Tensor
    zero_points: Tensor | None

    @property
    def middle(self) -> int:
        """The highest bit of a signed number."""
        return 1 << (self.data.dtype.bits - 1) if self.data.dtype in dtypes.SIGNED else 0


@dataclass(frozen=True)
class FormBlockGathers(Rule[_Table]):
    """Lookups in tables of 4 bits."""

    name: ClassVar[str] = "FormBlockGathers"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(("GatherBlockQuantized",))
    domains: ClassVar[frozenset[str]] = frozenset((MICROSOFT,))

    def match(self, g: Rewriter, node: Node) -> _Table | Reject | None:
        if dtype_of(node.inputs[0]) not in _TYPES:
            return None
        data, points = g.constant_of(node.inputs[0]), (*node.inputs, None)[3]
        held = g.constant_of(points)
        if data is None or (points is not None and held is None):
            return Reject("the table or its zero points are computed")
        return _Table(data, held)

    def check(self, g: Rewriter, found: _Table) -> Reject | None:
        node, shape = g.anchor, found.data.shape
        attrs, scales = attribute_values(node), node.inputs[2]
        if len(shape) != 2 or [normalize_axis(int(attrs[name]), 2) for name in ("gather_axis", "quantize_axis")] != [0, 1]:
            return Reject(f"a table of {len(shape)} dimensions, or blocks that do not lie along the rows that are looked up")
        block = int(attrs["block_size"])
        if block <= 0 or block % 2 or shape[1] % block:
            return Reject(f"rows of {shape[1]} elements in blocks of {block}")
        expected = (shape[0], shape[1] // block)
        if scales is None or scales.shape != expected:
            return Reject(f"scales that are not of shape {list(expected)}")
        points = found.zero_points
        if points is not None and (points.shape != expected or points.dtype is not found.data.dtype):
            return Reject(f"zero points {points.dtype.name}{list(points.shape)}, not of shape {list(expected)}")
        return None

    def rewrite(self, g: Rewriter, found: _Table, facts: None) -> None:
        node, data = g.anchor, found.data
        table = Tensor(dtypes.UINT8, (data.shape[0], data.shape[1] // 2), data.raw, name=data.name)
        inputs = [g.constant(table, f"{data.name or 'table'}_bytes"), *node.inputs[1:3]]
        if found.zero_points is not None:
            inputs.append(g.constant(_codes(found.zero_points, found.middle), f"{found.zero_points.name or 'points'}_bytes"))
        attrs = {"bits": data.dtype.bits, "signed": int(found.middle > 0), "zero_point": found.middle}
        g.replace(node.outputs[0], g.op("GatherBlocks", *inputs, domain=_DOMAIN, **attrs))


def _codes(points: Tensor, middle: int) -> Tensor:
    """Zero points as unsigned numbers, one a byte; made when somebody wants them."""

    def load() -> memoryview:
        codes = (points.numpy().view(np.uint8) & np.uint8(15)) ^ np.uint8(middle)
        release_pages([points])
        return np.ascontiguousarray(codes).reshape(-1).data

    origin = origin_of("codes", (points,), (middle,))
    return Tensor(dtypes.UINT8, points.shape, load, origin=origin, derivation=Derivation("", (), ()))
