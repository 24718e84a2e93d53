"""Remove nodes that give out what they take.

    y = Identity(x)    y = Dropout(x)    y = Add(x, 0)    y = Transpose(x) {perm = [0, 1]}    ...     =>   readers of y read x

Needs shapes: a node is a no-op only if its result has the type and shape of its input. An output of the graph keeps its name;
where it cannot be given out under it without the node (it is an input, or given out under another name too), the node stays.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from sardonyx import dtypes
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.ops.registry import Trait, traits
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import Rewriter, attr_ints, dtype_of
from sardonyx.records import dataclass


class _Removal(Rule[Value]):
    """A node whose first output is one of its inputs; `match` gives that input."""

    def check(self, g: Rewriter, found: Value) -> Any:
        output = g.anchor.outputs[0]
        if any(value.uses or g.is_output(value) for value in g.anchor.outputs[1:]):
            return Reject("another output of it is used")
        if not g.can_replace(output, found):
            return Reject(f"{output.name!r} is an output of the graph and {found.name!r} cannot stand for it")
        return None

    def rewrite(self, g: Rewriter, found: Value, facts: Any) -> None:
        g.replace(g.anchor.outputs[0], found)


@dataclass(frozen=True)
class RemoveIdentity(_Removal):
    """Identity gives out its input."""

    name: ClassVar[str] = "RemoveIdentity"
    ort_names: ClassVar[tuple[str, ...]] = ("EliminateIdentity",)
    roots: ClassVar[frozenset[str]] = frozenset(("Identity",))

    def match(self, g: Rewriter, node: Node) -> Value | Reject | None:
        return node.inputs[0]


@dataclass(frozen=True)
class RemoveDropout(_Removal):
    """Dropout does nothing unless it is told to train; a mask that is used keeps it."""

    name: ClassVar[str] = "RemoveDropout"
    ort_names: ClassVar[tuple[str, ...]] = ("EliminateDropout",)
    roots: ClassVar[frozenset[str]] = frozenset(("Dropout",))

    def match(self, g: Rewriter, node: Node) -> Value | Reject | None:
        training = node.inputs[2] if len(node.inputs) > 2 else None
        if training is not None and g.number(training) != 0:
            return Reject("training_mode is not known to be false")
        return node.inputs[0]


# The number that changes nothing, by operator; only as the second operand unless the operator is commutative.
_NEUTRAL: Final = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0, "Pow": 1.0}
_FIXED_POINTS: Final = frozenset(("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"))  # if the scale is 1
_SAME_SHAPE: Final = frozenset(("Expand", "Tile"))  # if the shape does not change, neither do the contents


@dataclass(frozen=True)
class RemoveNoOps(_Removal):
    """Arithmetic with a neutral number, and movements that move nothing."""

    name: ClassVar[str] = "RemoveNoOps"
    ort_names: ClassVar[tuple[str, ...]] = (
        "NoopElimination", "EliminateSlice", "CastElimination", "ExpandElimination", "ConcatSliceElimination",
    )  # fmt: skip
    roots: ClassVar[frozenset[str]] = frozenset(
        (*_NEUTRAL, *_SAME_SHAPE, "Cast", "CastLike", "Transpose", "Slice", "Pad", "Concat", "Reshape", "Flatten", "Squeeze",
         "Unsqueeze", "Sum", "Max", "Min", "Mean", "Resize", "Upsample")
    )  # fmt: skip

    def match(self, g: Rewriter, node: Node) -> Value | Reject | None:
        x = self._unchanged(g, node)
        if x is None:
            return None
        output = node.outputs[0]
        if not isinstance(x.type, TensorType) or dtype_of(x) is not dtype_of(output):
            return None
        if x.shape is None or x.shape != output.shape:
            return None
        return x

    def _unchanged(self, g: Rewriter, node: Node) -> Value | None:
        """The input that the node gives out, if the shapes are the same."""
        inputs, op = node.inputs, node.op_type
        first = inputs[0] if inputs else None
        if op in _NEUTRAL:
            second = inputs[1]
            if g.number(second) == _NEUTRAL[op]:
                return first
            return second if op in ("Add", "Mul") and g.number(first) == _NEUTRAL[op] else None
        if op == "Transpose":
            perm = attr_ints(node, "perm")
            rank = len(first.shape) if first is not None and first.shape is not None else 0
            order = tuple(reversed(range(rank))) if perm is None else perm
            return first if order == tuple(range(rank)) else None
        if op in ("Concat", "Sum", "Max", "Min", "Mean"):
            return first if len(inputs) == 1 else None
        if op == "Pad":
            pads = g.ints(inputs[1]) if len(inputs) > 1 else attr_ints(node, "pads")
            return first if pads is not None and not any(pads) else None
        if op == "Slice":  # steps other than 1 could reverse, or repeat nothing: only plain ranges
            steps = g.ints(inputs[4]) if len(inputs) > 4 and inputs[4] is not None else (1,)
            return first if steps is not None and all(step == 1 for step in steps) else None
        if op in ("Resize", "Upsample"):
            return first if self._same_grid(g, node) else None
        if op == "Expand" and not _follows_from_sizes(g, inputs[1]):
            return None  # whether it fits is for the run to tell
        return first  # Cast, Reshape, Expand ...: the same type and shape suffice

    @staticmethod
    def _same_grid(g: Rewriter, node: Node) -> bool:
        """Whether a Resize maps every point to itself: scales of 1 and no cropping."""
        if node.attr("coordinate_transformation_mode", "half_pixel") not in _FIXED_POINTS:
            return False
        position = 2 if node.op_type == "Resize" and node.version >= 11 else 1
        scales = g.array(node.inputs[position]) if len(node.inputs) > position else None
        if scales is None:
            attr = node.attr("scales")
            return attr is not None and all(scale == 1 for scale in attr)
        return scales.size > 0 and bool((scales == 1).all())


def _follows_from_sizes(g: Rewriter, value: Value | None) -> bool:
    """Whether a value is made of constants and sizes alone, so that the checks of sizes tell all about it."""
    pending, seen = [value], set[Value]()
    while pending:
        each = pending.pop()
        if each is None or each in seen or g.constant_of(each) is not None:
            continue
        seen.add(each)
        maker = each.producer
        if maker is None or maker.attr("body") is not None or maker.op_type == "If":
            return False
        if Trait.MEASURES not in traits(maker):
            pending += maker.inputs
    return True


@dataclass(frozen=True)
class RemoveCastBeforeShape(Rule[Value]):
    """Shape and Size do not look at the elements: they may read what was cast."""

    name: ClassVar[str] = "RemoveCastBeforeShape"
    ort_names: ClassVar[tuple[str, ...]] = ("PreShapeNodeElimination",)
    roots: ClassVar[frozenset[str]] = frozenset(("Shape", "Size"))

    def match(self, g: Rewriter, node: Node) -> Value | Reject | None:
        value = node.inputs[0]
        maker = value.producer if value is not None else None
        return maker.inputs[0] if maker is not None and maker.op_type == "Cast" and dtype_of(maker.inputs[0]) else None

    def check(self, g: Rewriter, found: Value) -> Any:
        if dtype_of(found) is dtypes.STRING:
            return Reject("casts strings, whose type the reader may not take")
        return None

    def rewrite(self, g: Rewriter, found: Value, facts: Any) -> None:
        node = g.anchor
        cast = node.inputs[0]
        node.set_input(0, found)
        if cast is not None and cast.producer is not None:
            g.discard(cast.producer)
