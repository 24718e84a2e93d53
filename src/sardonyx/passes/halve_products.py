"""Products with constant matrices whose rows belong together may be computed in halves, by Strassen's algorithm.

    y = MatMul(x: f32[N,L,768], w: f32[768,3072])   =>   y = MatMul(x, w) {_halves = 1}

It adds rows to each other, whose results then depend on each other by their rounding: rows of one sequence may be paired, the
sequences of a batch may not. Rows of a matrix could be samples of anything, unless it is a reshaped tensor. Runs late: others
make products. Lowering has the rest of the say (`lower.matmul.strassen`). Refuses: graphs that quantize numbers on the way, where
a last bit may become a whole step.
"""

from __future__ import annotations

from typing import ClassVar, Final

from sardonyx import dtypes
from sardonyx.ir.builder import make_attr
from sardonyx.ir.graph import Graph, Model, Node, Value
from sardonyx.passes.protocol import PassResult
from sardonyx.passes.rewriter import all_graphs, dtype_of
from sardonyx.records import dataclass

HALVES: Final = "_halves"  # lowering knows the attribute by this name
_QUANTIZES: Final = frozenset(("DynamicQuantizeLinear", "QuantizeLinear"))
_TENSOR_RANK: Final = 3  # from which on rows have something around them


@dataclass(frozen=True)
class HalveProducts:
    """Ensures: products that may be computed in halves say so."""

    exact: bool = False  # products add up what their definition says
    name: ClassVar[str] = "HalveProducts"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(("FusedMatMul", "Gemm", "MatMul"))

    def run(self, model: Model) -> PassResult:
        """Change the model in place; its types must be inferred."""
        exact = self.exact or any(node.op_type in _QUANTIZES for graph in all_graphs(model) for node in graph.nodes)
        changes = 0 if exact else sum(_mark(graph) for graph in all_graphs(model))
        return PassResult(changes > 0, (), changes)


def _mark(graph: Graph) -> int:
    """Mark the products of a graph; how many there were."""
    found = [node for node in graph.nodes if node.op_type in HalveProducts.roots and HALVES not in node.attrs and _is_fit(node)]
    for node in found:
        node.attrs[HALVES] = make_attr(HALVES, 1)
    return len(found)


def _is_fit(node: Node) -> bool:
    a, b = node.inputs[:2]
    if a is None or b is None or a.shape is None or b.shape is None or b.constant is None:
        return False
    if dtype_of(a) is not dtypes.FLOAT32 or len(b.shape) != 2:
        return False
    return len(a.shape) >= _TENSOR_RANK or _rows_of(a) is not None


def _rows_of(matrix: Value) -> Value | None:
    """The tensor whose rows a matrix has, if it is a reshaped one."""
    producer = matrix.producer
    if producer is None or producer.op_type != "Reshape":
        return None
    source = producer.inputs[0]
    if source is None or not source.shape or not matrix.shape or len(source.shape) < _TENSOR_RANK:
        return None
    return source if source.shape[-1] == matrix.shape[-1] else None
