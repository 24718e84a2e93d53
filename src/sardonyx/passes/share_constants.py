"""Keep one of several equal constants.

    const a: f32[] = [0.5]; const b: f32[] = [0.5]      =>   readers of b read a

Equal means the same type, shape and bytes (so 0.0 and -0.0 differ). Large constants are compared by a digest. Makes equal nodes
recognisable to MergeSubexpressions. Constants that are inputs or outputs of the graph stay.
"""

from __future__ import annotations

import hashlib
from typing import ClassVar, Final

from sardonyx import dtypes
from sardonyx.ir.graph import Model, Value
from sardonyx.ir.tensor import Tensor
from sardonyx.passes.protocol import PassResult
from sardonyx.passes.rewriter import Rewriter
from sardonyx.records import dataclass

_SHORT: Final = 64  # bytes that are their own digest


@dataclass(frozen=True)
class ShareConstants:
    """Equal constants of one graph become one. `largest` bytes: hashing the weights of a large model costs more than it gives."""

    name: ClassVar[str] = "ShareConstants"
    ort_names: ClassVar[tuple[str, ...]] = ("ConstantSharing",)
    largest: int = 1 << 16

    def run(self, model: Model) -> PassResult:
        """Graph by graph: a constant of a subgraph is not moved out of it."""
        g = Rewriter(model)
        changes = 0
        for graph in g.graphs():
            kept: dict[tuple[object, ...], Value] = {}
            inputs = set(graph.inputs)
            for name, value in list(graph.initializers.items()):
                held = g.constant_of(value)
                if held is None or value in inputs or g.is_output(value) or not value.uses:
                    continue
                key = self._key(held)
                first = kept.setdefault(key, value) if key is not None else value
                if first is not value:
                    for node, index in list(value.uses):
                        node.set_input(index, first)
                    del graph.initializers[name]
                    changes += 1
        return PassResult(changes > 0, (), changes)

    def _key(self, held: Tensor) -> tuple[object, ...] | None:
        if held.dtype is dtypes.STRING or held.nbytes > self.largest:
            return None
        try:
            data = bytes(held.raw())
        except (ValueError, OSError):
            return None
        digest = data if len(data) <= _SHORT else hashlib.blake2b(data, digest_size=20).digest()
        return (held.dtype, held.shape, len(data), digest)
