"""What a pass is: a frozen dataclass whose fields are its options and whose `run` changes a model in place.

The model is valid before and after `run`, and its values have types; in between anything goes. A pass has no state: what it
finds out about a model lives in local variables. Most passes are rules: for every node that can be the last one of a pattern,
`match` looks whether the rest is there, `check` whether the change is right, and `rewrite` makes it from what the check found.

    match -> None              nothing of the kind: not worth a word
    check -> Reject(reason)    it looked like work, but must stay as it is; the reason is kept for `explain`
    rewrite                    changes the graph
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from sardonyx.ir.graph import ONNX_DOMAIN, Model, Node, Value
from sardonyx.passes.rewriter import Rewriter, all_graphs
from sardonyx.records import dataclass

M = TypeVar("M")
OLDEST: Final = 7  # before, binary operators had attributes for broadcasting; such nodes are left alone


@dataclass(frozen=True, slots=True)
class PassResult:
    """Whether the model is another now; `reasons` says why something that looked like work was left as it is."""

    modified: bool
    reasons: tuple[str, ...] = ()
    changes: int = 0  # how many times something was rewritten


class Pass(Protocol):
    """A change of a model. `name` is what the command line and reports call it."""

    @property
    def name(self) -> str: ...

    def run(self, model: Model) -> PassResult:
        """Change the model in place."""
        ...


class Optimization(Pass, Protocol):
    """A pass that may be left out; `ort_names` are what ONNX Runtime calls the same thing, for `disabled_optimizers`."""

    @property
    def ort_names(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Reject:
    """Why a change that suggested itself is not made."""

    reason: str


class Rule(Generic[M]):
    """A pass that rewrites one match at a time. `roots` names the operators (of ONNX, or of `domains`) a pattern can end with.

    `needs` names operators of which each pattern has one besides; none if that cannot be said.
    """

    name: ClassVar[str]
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]]
    needs: ClassVar[frozenset[str]] = frozenset()
    domains: ClassVar[frozenset[str]] = frozenset((ONNX_DOMAIN,))  # of the roots
    expands: ClassVar[bool] = False  # whether it takes a node of the model apart
    rounds: ClassVar[int] = 1  # walks over the graph while there are changes

    def match(self, g: Rewriter, node: Node) -> M | Reject | None:
        """What was found if the pattern ends with this node."""
        raise NotImplementedError

    def check(self, g: Rewriter, found: M) -> Any:
        """A Reject, or what `rewrite` needs to know."""
        return None

    def rewrite(self, g: Rewriter, found: M, facts: Any) -> None:
        """Make the change. New nodes are inserted before the node that matched."""
        raise NotImplementedError

    def _is_root(self, node: Node) -> bool:
        return node.domain in self.domains and (node.domain != ONNX_DOMAIN or is_standard(node))

    def run(self, model: Model) -> PassResult:
        """Apply the rule wherever it matches, in subgraphs too."""
        graphs = all_graphs(model)
        if not any(node.op_type in self.roots for graph in graphs for node in graph.nodes):
            return PassResult(False)
        g = Rewriter(model, graphs)
        changes = 0
        reasons: dict[str, None] = {}
        for _ in range(self.rounds):
            before = changes
            reasons.clear()
            for graph in g.graphs():
                for node in graph.nodes:
                    if node.op_type not in self.roots or not self._is_root(node):
                        continue
                    found = self.match(g.at(node, expands=self.expands), node)
                    if found is None:
                        continue
                    facts = found if isinstance(found, Reject) else self.check(g, found)
                    if isinstance(facts, Reject) or isinstance(found, Reject):
                        reasons[f"{node.label}: {facts.reason}"] = None
                        continue
                    self.rewrite(g, found, facts)
                    g.discard(node)
                    changes += 1
            if changes == before:
                break
        return PassResult(changes > 0, tuple(reasons), changes)


def is_standard(node: Node) -> bool:
    """Whether the node is an ONNX operator of a version whose forms the passes know."""
    return node.domain == ONNX_DOMAIN and node.version >= OLDEST


def exchange_node(g: Rewriter, node: Node, made: Value | Reject, reasons: dict[str, None]) -> bool:
    """Put a value in the place of a node with one result; where there is none, note the reason. Whether anything changed."""
    if isinstance(made, Reject):
        reasons[f"{node.label}: {made.reason}"] = None
        return False
    g.replace(node.outputs[0], made)
    g.discard(node)
    return True
