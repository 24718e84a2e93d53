"""What nodes expect of sizes holds, whether a pass leaves them in the graph or not.

    y = Shape(MatMul(a: f32[M,K], b: f32[L,N]))      =>   y = Concat(Shape(a)[0], Shape(b)[1]), and the graph remembers: K equal L

Passes take nodes out of which only the shape is read, and put others in the place of some. What the shape rules of those that are
gone have stated about the sizes of inputs becomes the graph's (`Graph.size_checks`), and a check of the program made of it. Only
nodes count that the outputs depend on: what nobody reads refuses nothing, here as in ONNX Runtime.

Some operators refuse more than sizes that contradict each other, an index out of range for example. Of such nodes the shape is
known, too, but whether there is a result only their run tells: they are kept (`Node.is_kept`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sardonyx.analysis.shapes import ShapeReport
from sardonyx.ir.dims import Expectation
from sardonyx.ir.graph import Graph, Model, Node, Value, captured_values, needed_nodes
from sardonyx.ops.infer import NEVER, not_negative
from sardonyx.ops.registry import Trait, traits
from sardonyx.passes.rewriter import all_graphs
from sardonyx.records import dataclass


@dataclass(frozen=True)
class SizeContract:
    """The nodes that the outputs of a model's graphs depend on before passes change it, and what is known about them."""

    # Each graph with the node and the graph around it and the nodes its outputs depend on; outer graphs first.
    graphs: tuple[tuple[Graph, Node | None, Graph | None, list[Node]], ...]
    report: ShapeReport

    @staticmethod
    def of(model: Model, report: ShapeReport) -> SizeContract:
        """The contract of a model whose types have been inferred just now."""
        made = []
        for graph in all_graphs(model):
            around = graph.parent_node if graph is not model.graph else None
            nodes = needed_nodes(list(graph.nodes), graph.outputs)
            _keep_refusing(nodes, graph.outputs, report)
            made.append((graph, around, None if around is None else around.graph, nodes))
        return SizeContract(tuple(made), report)

    def leave_checks(self) -> None:
        """Give every graph what those of its nodes expected that are gone by now."""
        found: dict[Graph, dict[Expectation, None]] = {graph: {} for graph, *_ in self.graphs}
        for graph, around, outer, nodes in reversed(self.graphs):
            # An If whose condition is known is replaced by the nodes of the branch that is taken.
            home = outer if around is not None and around.graph is None and outer is not None else graph
            found[home].update((each, None) for node in nodes if node.graph is None for each in self._expected(node))
            if home is not graph:
                found[home].update(found.pop(graph))
        for graph, checks in found.items():
            graph.size_checks = tuple(checks)

    def _expected(self, node: Node) -> Iterator[Expectation]:
        if node in self.report.refusals:
            yield NEVER
        yield from self.report.expectations.get(node, ())
        for value in node.outputs:
            yield from not_negative(value.shape)


def _keep_refusing(nodes: Sequence[Node], outputs: Sequence[Value], report: ShapeReport) -> None:
    """Mark those nodes of a graph that must run for what they may refuse, although only the shapes of their results are read."""
    read = set(outputs)
    for node in reversed(nodes):
        if read.isdisjoint(node.outputs):
            refuses = Trait.REFUSES | Trait.CONTROL_FLOW
            if not refuses & traits(node) or any(report.values.known_of(value) is not None for value in node.outputs):
                continue
            node.is_kept = True
        if Trait.MEASURES not in traits(node):
            read.update(value for value in node.inputs if value is not None)
        read.update(value for graph in node.subgraphs() for value in captured_values(graph))
