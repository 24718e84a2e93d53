"""Remove what no output depends on: nodes, initializers, and the names of outputs nobody reads.

Every operator may go: none has an effect beside its outputs. Inputs of the graph stay, used or not; so do initializers that are
inputs too. Nodes of subgraphs go by the same rule; the outputs of a subgraph are given and stay.
"""

from __future__ import annotations

from typing import ClassVar

from sardonyx.ir.graph import Graph, Model, Value
from sardonyx.passes.protocol import PassResult
from sardonyx.passes.rewriter import all_graphs
from sardonyx.records import dataclass


@dataclass(frozen=True)
class RemoveUnused:
    """Dead nodes and constants. Runs last of all, and after passes that leave some behind."""

    name: ClassVar[str] = "RemoveUnused"
    ort_names: ClassVar[tuple[str, ...]] = ()

    def run(self, model: Model) -> PassResult:
        """One walk backwards over each graph, inner graphs after the nodes they hang on."""
        graphs = all_graphs(model)
        given = {value for graph in graphs for value in graph.outputs}
        removed = 0
        for graph in reversed(graphs):  # inner ones first: what they read is then known to be needed
            for node in reversed(list(graph.nodes)):
                if not node.is_kept and not any(value.uses or value in given for value in node.outputs):
                    graph.remove(node)
                    removed += 1
            removed += _drop_constants(graph, given)
        return PassResult(removed > 0, (), removed)


def _drop_constants(graph: Graph, given: set[Value]) -> int:
    inputs = set(graph.inputs)
    unused = [name for name, value in graph.initializers.items() if not value.uses and value not in given and value not in inputs]
    for name in unused:
        del graph.initializers[name]
    return len(unused)
