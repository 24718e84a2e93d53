"""What must hold of the sizes of a node's inputs so that its kernels stay inside their memory.

The shape rule of an operator states it (`InferContext.expect_equal` ...). Here the rule is asked again, with the types the node
has when it is lowered. What is known to be wrong keeps the node from native code: NumPy finds the error. What only a run can tell
is checked before the run (`LowerContext.check_equal`), for every template and view alike: no lowering rule has to think of it.
Nodes that are not computed, because only their shape is read, are asked as well (`left_behind`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, Expectation, symbols_of
from sardonyx.ir.graph import Graph, Node
from sardonyx.ir.tensor import Array, Tensor
from sardonyx.ir.types import Shape, Type
from sardonyx.ops import registry
from sardonyx.ops.infer import NEVER, InferContext, not_negative

if TYPE_CHECKING:
    from sardonyx.lower.shape_values import KnownValues


def expectations(node: Node, known: KnownValues | None, symbols: Collection[str]) -> tuple[list[Expectation], str]:
    """What a node expects of the sizes of its inputs, and why that cannot hold, or "". Only these `symbols` have a meaning."""
    found, contradiction = _stated(node, known)
    return ([], contradiction) if contradiction else ([each for each in found if _symbols(each) <= set(symbols)], "")


def left_behind(node: Node, known: KnownValues, symbols: Collection[str]) -> list[Expectation] | None:
    """What must hold of sizes because of a node of which only the shape is read; None if only its run tells."""
    found, contradiction = _stated(node, known)
    if contradiction:
        return [NEVER]
    found += [each for value in node.outputs for each in not_negative(value.shape)]
    return found if all(_symbols(each) <= set(symbols) for each in found) else None


def still_open(expected: Iterable[Expectation], symbols: Collection[str]) -> list[Expectation]:
    """What only a run can tell, of sizes made of these symbols; what can never hold is among it."""
    found, contradiction = _sifted(expected)
    return [NEVER] if contradiction else [each for each in found if _symbols(each) <= set(symbols)]


def _stated(node: Node, known: KnownValues | None) -> tuple[list[Expectation], str]:
    """What a node's shape rule states and only a run can tell, or why it cannot hold."""
    definition = registry.lookup(node.domain, node.op_type, node.version)
    if definition is None or definition.infer is None or any(True for _ in node.subgraphs()):
        return [], ""

    def value_of(index: int) -> tuple[tuple[Dim, ...], Shape] | None:
        value = node.inputs[index]
        elements = None if known is None else known.elements(value)
        return None if elements is None or value is None or value.shape is None else (elements, value.shape)

    def constant_of(index: int) -> Array | None:
        value = node.inputs[index]
        if known is not None:
            return known.array(value)
        return value.constant.numpy() if value is not None and isinstance(value.constant, Tensor) else None

    def infer_graph(graph: Graph, inputs: object) -> list[Type | None]:
        raise AssertionError("nodes with subgraphs have no lowering rules")

    types = [None if value is None else value.type for value in node.inputs]
    context = InferContext(node, types, attribute_values(node), value_of, constant_of, infer_graph)
    try:
        definition.infer(context)
    except ValueError as error:
        return [], str(error)
    except Exception as error:  # a rule that fails states nothing: the host computes the node
        return [], f"its shape rule fails: {type(error).__name__}: {error}"
    return _sifted(context.expectations)


def _sifted(expected: Iterable[Expectation]) -> tuple[list[Expectation], str]:
    """What only a run can tell, each once; or what can never hold."""
    found: list[Expectation] = []
    for kind, size, other in dict.fromkeys(expected):
        if not isinstance(size, int) or not isinstance(other, int):
            found.append((kind, size, other))
        elif size != other and not (kind == "broadcast" and size == 1) and not (kind == "filled" and size > other):
            return [], f"sizes {size} and {other} contradict each other"
    return found, ""


def _symbols(expected: Expectation) -> frozenset[str]:
    _, size, other = expected
    return symbols_of(size) | symbols_of(other)
