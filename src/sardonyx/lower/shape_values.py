"""Values that are known before a run, at least in terms of the sizes of the inputs: their nodes need not run at all.

    Reshape(x, Concat(Shape(x)[0], -1, 64))     nothing is computed for the second input: its elements are (N, -1, 64)

Most readers of such values are shape operands, whose meaning is in the inferred shapes already. Where somebody really reads the
elements, `LowerContext.view` makes memory for them: a constant, or a step that writes the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from sardonyx.analysis.attributes import attribute_values
from sardonyx.analysis.values import ValueTable
from sardonyx.ir.dims import Dim, DimExpr, symbols_of
from sardonyx.ir.graph import Node, Value, captured_values
from sardonyx.ir.tensor import Array, Tensor
from sardonyx.lower.groups import is_native


class KnownValues:
    """What is known about the contents of a graph's values."""

    def __init__(self, inputs: Sequence[Value], nodes: Sequence[Node]) -> None:
        self._table = ValueTable(lambda value: value.type, frozenset(inputs))
        self._loaders: dict[Value, Callable[[], Array]] = {}
        self._binders: dict[str, Value | None] = {name: None for value in inputs for name in _symbols(value)}
        for node in nodes:
            for output in node.outputs:
                for name in _symbols(output):
                    self._binders.setdefault(name, output)
            self._table.visit(node, attribute_values(node))
            tensor = node.attr("value") if node.op_type == "Constant" and node.domain == "" else None
            if tensor is not None:
                self._loaders[node.outputs[0]] = tensor.numpy

    def elements(self, value: Value | None) -> tuple[Dim, ...] | None:
        """The elements of a small tensor of whole numbers in order; None if they are not known."""
        known = None if value is None else self._table.known_of(value)
        return None if known is None else tuple(known.reshape(-1).tolist())

    def array(self, value: Value | None) -> Array | None:
        """The data of a value that is the same in every run; None if it is not, or too much to compute ahead."""
        if value is None:
            return None
        loader = self._loaders.get(value)
        return loader() if loader is not None else self._table.constant_of(value)

    def is_known(self, value: Value) -> bool:
        """Whether the value need not be computed by its node.

        The result of some operators can be computed ahead, but its shape not inferred (NonZero): the run must tell the sizes.
        """
        if not is_native(value) or any(not isinstance(dim, int) for dim in value.shape or ()):
            return False
        if isinstance(value.constant, Tensor) and value.constant.derivation is not None:
            return True  # it would be made only to see that it can be
        return value in self._loaders or self.elements(value) is not None or self.array(value) is not None

    def needed(self, nodes: Sequence[Node], outputs: Sequence[Value]) -> list[Node]:
        """The nodes some outputs depend on, in the given order, without those all of whose results are known."""
        wanted: set[Value] = set()
        self._want(wanted, outputs)
        kept = []
        for node in reversed(nodes):
            if node.is_kept or wanted.intersection(node.outputs):
                kept.append(node)
                self._want(wanted, [value for value in node.inputs if value is not None])
                for graph in node.subgraphs():  # the results of a side whose nodes are in the list, too
                    self._want(wanted, [*captured_values(graph), *graph.outputs])
        return kept[::-1]

    def dropped(self, nodes: Sequence[Node], kept: Collection[Node]) -> list[Node]:
        """The nodes that are not kept and whose contents are not known either: only their shapes are."""
        return [node for node in nodes if node not in kept and not all(map(self.is_known, node.outputs))]

    def bound_sizes(self, kept: Collection[Node]) -> set[str]:
        """The sizes that shapes of inputs determine, or nodes that are kept."""
        return {name for name, value in self._binders.items() if value is None or value.producer in kept}

    def _want(self, wanted: set[Value], values: Sequence[Value]) -> None:
        """Add the values that must be computed so that these are there: for known ones, those that tell sizes in them."""
        for value in values:
            if not self.is_known(value):
                wanted.add(value)
                continue
            for name in {name for dim in self.elements(value) or () for name in symbols_of(dim)}:
                binder = self._binders.get(name)
                if binder is not None:
                    wanted.add(binder)


def _symbols(value: Value) -> set[str]:
    """The sizes that are known when the value is there."""
    shape = value.shape if is_native(value) else None
    return {str(dim) for dim in shape or () if isinstance(dim, DimExpr) and dim.is_symbol}
