"""What is the same in every iteration of a Loop or Scan is computed once, before it.

    y = Loop(n, c, x) <body (i, c, s) => (c, Add(s, MatMul(a, b)))>    =>    w = MatMul(a, b)
                                                                            y = Loop(n, c, x) <body (i, c, s) => (c, Add(s, w))>

Decoders multiply what they attend to by the same weights in every step. Runs after CaptureInvariants, which lets bodies read from
outside what never changes. Leaves in the body: what costs nothing or only makes values larger, as views and Expand do, unless
something else that moves needs it; results of the body; nodes that may refuse data, if the loop may have no iteration.
"""

from __future__ import annotations

from typing import ClassVar, Final

from sardonyx.analysis.loop_body import LoopBody, loop_body_of
from sardonyx.ir.graph import Graph, Model, Node, Value
from sardonyx.ops.registry import Trait, traits
from sardonyx.passes.form_scan_outputs import is_always_true
from sardonyx.passes.protocol import PassResult, is_standard
from sardonyx.passes.rewriter import Rewriter
from sardonyx.records import dataclass

_NEVER: Final = Trait.RANDOM | Trait.CONTROL_FLOW
_FREE: Final = Trait.VIEW | Trait.MEASURES
# These read less than they give.
_GROWING: Final = frozenset(("Cast", "CastLike", "Constant", "ConstantOfShape", "Expand", "Range", "Tile"))


@dataclass(frozen=True)
class HoistInvariants:
    """Ensures: no loop computes anything twice that depends on nothing it carries or counts."""

    name: ClassVar[str] = "HoistInvariants"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(("Loop", "Scan"))

    def run(self, model: Model) -> PassResult:
        """One walk over all loops, inner ones first: what leaves one may leave the loop around it, too."""
        g = Rewriter(model)
        changes = 0
        for graph in reversed(list(g.graphs())):
            for node in list(graph.nodes):
                loop = loop_body_of(node) if is_standard(node) else None
                if loop is None:
                    continue
                moving = _movable(g.at(node), node, loop)
                for each in moving:
                    loop.body.detach(each)
                    for value in each.outputs:
                        if value.name:
                            value.name = g.fresh_name(value.name)
                    graph.insert_before(node, each)
                changes += len(moving)
        return PassResult(changes > 0, (), changes)


def _movable(g: Rewriter, node: Node, loop: LoopBody) -> list[Node]:
    """The nodes of a body that are worth moving, in order."""
    body, inside = loop.body, _variable(loop.body)
    begins = _has_iteration(g, node)
    moving: list[Node] = []
    for each in body.nodes:
        read = [value for value in each.inputs if value is not None]
        is_movable = bool(read) and inside.isdisjoint((*read, *each.outputs)) and _may_move(each, begins=begins)
        if is_movable:
            moving.append(each)
        else:
            inside.update(each.outputs)
    worth: dict[Node, None] = {}
    needed: set[Value | None] = set()
    for each in reversed(moving):
        cheap = _FREE & traits(each) or each.op_type in _GROWING
        if not cheap or not needed.isdisjoint(each.outputs):
            worth[each] = None
            needed.update(each.inputs)
    return list(reversed(worth))


def _may_move(node: Node, *, begins: bool) -> bool:
    """Whether a node gives the same wherever it stands; `begins` says that it will be computed in any case."""
    has = traits(node)
    if _NEVER & has or node.is_kept or node.subgraphs() or not is_standard(node):
        return False
    return begins or Trait.REFUSES not in has


def _variable(body: Graph) -> set[Value]:
    """Values of a body that are not the same outside or in another iteration, or that must be made inside: its results."""
    return {*body.inputs, *body.outputs, *body.initializers.values()}


def _has_iteration(g: Rewriter, node: Node) -> bool:
    """Whether a Loop runs its body at least once."""
    if node.op_type != "Loop":
        return False
    limit, going = (*node.inputs, None, None)[:2]
    trips = g.number(limit)
    return (limit is None or (trips is not None and trips >= 1)) and is_always_true(g, going)
