"""One Reshape for several changes of shape in a row.

    y = Squeeze(Reshape(x: f32[2,3,4], [6, 1, 4]), [1])      =>   y = Reshape(x, [6, 4])
    y = Transpose(x: f32[N,64,1,1]) {perm = [0, 2, 3, 1]}    =>   y = Reshape(x, [0, 1, 1, 64])

None of these moves data, so the first one may go on serving others. A Transpose that moves dimensions of size 1 only is a
Reshape. Refuses: results whose shape cannot be written down with the sizes known when the model is compiled; a Reshape by
computed sizes that may be zero, because zero means the size of the input.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from sardonyx.ir.graph import Node, Value
from sardonyx.ops.registry import Trait, traits
from sardonyx.passes.fold_shape_values import literal_shape, may_mean_another
from sardonyx.passes.protocol import Reject, Rule, is_standard
from sardonyx.passes.rewriter import Rewriter, attr_ints
from sardonyx.records import dataclass


class _ToReshape(Rule[Value]):
    """A node that gives the elements of a value in order; `match` finds the value."""

    def check(self, g: Rewriter, found: Value) -> Any:
        shape = g.anchor.outputs[0].shape
        if shape is None or found.shape is None:
            return Reject("a rank is not known")
        return literal_shape(found.shape, shape)

    def rewrite(self, g: Rewriter, found: Value, facts: Any) -> None:
        shape = g.constant(np.array(facts, np.int64), "shape")
        g.replace(g.anchor.outputs[0], g.op("Reshape", found, shape))


@dataclass(frozen=True)
class MergeReshapes(_ToReshape):
    """Reshape, Flatten, Squeeze and Unsqueeze after one another."""

    name: ClassVar[str] = "MergeReshapes"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze"))

    def match(self, g: Rewriter, node: Node) -> Value | Reject | None:
        first = node.inputs[0].producer if node.inputs[0] is not None else None
        if first is None or Trait.VIEW not in traits(first) or not is_standard(first):
            return None
        if _depends_on_zeros(g, first) or _depends_on_zeros(g, node):
            return Reject("a size may turn out to be zero, which means the size of the input")
        return first.inputs[0]


def _depends_on_zeros(g: Rewriter, node: Node) -> bool:
    """Whether a Reshape by a computed shape is another one where a size of that is zero."""
    if node.op_type != "Reshape" or len(node.inputs) < 2 or g.ints(node.inputs[1]) is not None or node.attr("allowzero", 0):
        return False
    given, made = node.inputs[0], node.outputs[0].shape
    return given is None or given.shape is None or made is None or may_mean_another(given.shape, made)


@dataclass(frozen=True)
class ReshapeInsteadOfTranspose(_ToReshape):
    """A Transpose that keeps the order of all dimensions larger than 1."""

    name: ClassVar[str] = "ReshapeInsteadOfTranspose"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(("Transpose",))

    def match(self, g: Rewriter, node: Node) -> Value | Reject | None:
        value = node.inputs[0]
        if value is None or value.shape is None:
            return None
        shape = value.shape
        perm = attr_ints(node, "perm") or tuple(reversed(range(len(shape))))
        if sorted(perm) != list(range(len(shape))):
            return None
        moved = [axis for axis in perm if shape[axis] != 1]
        return value if moved == sorted(moved) and perm != tuple(range(len(shape))) else None
