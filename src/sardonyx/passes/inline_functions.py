"""Put the bodies of model-local functions in the place of their calls.

    function f(a) {alpha = 0.1} { b = LeakyRelu(a) {alpha = @alpha}; c = Neg(b) }
    y = f(x) {alpha = 0.5}         =>   f/b = LeakyRelu(x) {alpha = 0.5}; y = Neg(f/b)

Runs first: later passes meet operators only. A function that has the name of an operator takes its place. The nodes keep the
opset versions of their function. Refuses (InvalidGraph) functions that call themselves, calls with too many arguments, and
bodies that do not define an output the caller uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Final

from sardonyx.analysis.cycles import FunctionKey, find_recursion, function_key, function_text
from sardonyx.errors import InvalidGraph
from sardonyx.ir import dims
from sardonyx.ir.clone import Cloner
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import ONNX_DOMAIN, Attr, Function, Graph, Model, Node, Value, walk
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type
from sardonyx.passes.protocol import PassResult
from sardonyx.records import dataclass

_MOST_NODES: Final = 2_000_000  # a chain of functions that each call the next one twice grows without bound
_IDENTITY_VERSION: Final = 16  # the first Identity that takes values of every type


@dataclass(frozen=True)
class InlineFunctions:
    """Expand every call of a model-local function, those in subgraphs and function bodies included."""

    name: ClassVar[str] = "inline-functions"

    def run(self, model: Model) -> PassResult:
        """Change the model in place; it has no functions afterwards."""
        if not model.functions:
            return PassResult(False)
        calls = list(_calls(walk(model.graph), model.functions))
        circle = find_recursion(model.functions, dict.fromkeys(map(function_key, calls)))
        if circle:
            raise InvalidGraph(f"function {function_text(circle[0])} calls itself: {' -> '.join(map(function_text, circle))}")
        modified = bool(calls)
        _check_size(calls, model.functions)
        names = _Names(model.graph)
        added = 0
        while calls:
            call = calls.pop()
            inside = list(_with_subgraphs(_expand(call, model.functions[function_key(call)], names)))
            added += len(inside)
            _limit(added, call)  # graphs that are handed over as attributes multiply, too
            calls.extend(_calls(inside, model.functions))
        model.functions.clear()
        return PassResult(modified)


def _calls(nodes: Iterable[Node], functions: Mapping[FunctionKey, Function]) -> Iterator[Node]:
    return (node for node in nodes if function_key(node) in functions)


def _check_size(calls: Iterable[Node], functions: Mapping[FunctionKey, Function]) -> None:
    """Refuse calls that would become too many nodes; no function calls itself."""
    inside = {key: list(walk(function.graph)) for key, function in functions.items()}
    callees = {key: [function_key(call) for call in _calls(nodes, functions)] for key, nodes in inside.items()}
    sizes: dict[FunctionKey, int] = {}
    total = 0
    for call in calls:
        waiting = [function_key(call)]
        while waiting:
            key = waiting[-1]
            missing = [callee for callee in callees[key] if callee not in sizes]
            if key not in sizes and not missing:
                sizes[key] = len(inside[key]) + sum(sizes[callee] for callee in callees[key])
            if not missing:
                waiting.pop()
            waiting += missing
        total += sizes[function_key(call)]
        _limit(total, call)


def _limit(nodes: int, call: Node) -> None:
    if nodes > _MOST_NODES:
        raise InvalidGraph(f"{call.label}: the model's functions expand to more than {_MOST_NODES:,} nodes")


def _with_subgraphs(nodes: Iterable[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        for graph in node.subgraphs():
            yield from walk(graph)


class _Names:
    """Hands out names no value of the model has."""

    def __init__(self, graph: Graph) -> None:
        self._taken = {""}
        graphs = [graph]
        for node in walk(graph):
            self._taken.update(value.name for value in node.outputs)
            graphs.extend(node.subgraphs())
        for each in graphs:
            self._taken.update(value.name for value in each.inputs)
            self._taken.update(each.initializers)
        self._numbers: dict[str, int] = {}

    def free(self, name: str) -> str:
        chosen = name
        while chosen in self._taken:
            self._numbers[name] = self._numbers.get(name, 0) + 1
            chosen = f"{name}_{self._numbers[name]}"
        self._taken.add(chosen)
        return chosen


def _expand(call: Node, function: Function, names: _Names) -> list[Node]:
    """Replace a call by a copy of the function's body; the new nodes."""
    graph, body = call.graph, function.graph
    if graph is None:
        raise ValueError(f"{call.label} stands in no graph")
    for kind, given, formal in (("inputs", call.inputs, body.inputs), ("outputs", call.outputs, body.outputs)):
        if len(given) > len(formal):
            raise InvalidGraph(
                f"{call.label} has {len(given)} {kind}, function {function_text(function_key(call))} takes {len(formal)}"
            )
    cloner = _cloner(call, function, names)
    arguments = (*call.inputs, *[None] * (len(body.inputs) - len(call.inputs)))
    cloner.values.update(zip(body.inputs, arguments, strict=True))
    made_inside = {output for node in body.nodes for output in node.outputs}
    copies: list[tuple[Value, Value]] = []  # outputs that no node of the body makes for this call alone
    for inner, outer in zip(body.outputs, call.outputs, strict=False):
        if inner in made_inside and inner not in cloner.values and outer.name:
            cloner.values[inner] = outer
        else:
            copies.append((inner, outer))
    nodes: list[Node] = []
    for value in body.initializers.values():
        constant = cloner.value(value)
        graph.initializers[constant.name] = constant
    for node in body.nodes:
        try:
            nodes.append(cloner.node(node))
        except ValueError as error:
            raise InvalidGraph(f"{call.label}: {error}") from None
    for inner, outer in copies:
        source = cloner.values.get(inner)
        if source is not None:
            if outer.name:
                nodes.append(Node("Identity", [source], [outer], version=_identity_version(function)))
        elif outer.uses or outer in graph.outputs:
            raise InvalidGraph(
                f"{call.label}: function {function_text(function_key(call))} does not define its output {inner.name!r}"
            )
    for node in nodes:
        graph.insert_before(call, node)
    graph.detach(call)
    for gone in _with_subgraphs([call]):  # graphs given as attributes were copied too
        for index in range(len(gone.inputs)):
            gone.set_input(index, None)
    return nodes


def _cloner(call: Node, function: Function, names: _Names) -> Cloner:
    bindings = {attr.name: attr for attr in function.attribute_defaults} | call.attrs
    prefix = call.name or function.name
    symbols: dict[str, Dim] = {}

    def bound(attr: Attr) -> Attr | None:
        if not attr.ref:
            return attr
        given = bindings.get(attr.ref)
        return None if given is None else replace(given, name=attr.name, doc=attr.doc)

    return Cloner(
        name_of=lambda name: names.free(f"{prefix}/{name}"),
        node_name_of=lambda name: f"{prefix}/{name}",
        attr_of=bound,
        type_of=lambda type_: _with_own_symbols(type_, symbols),
    )


def _identity_version(function: Function) -> int:
    return max(function.opset_imports.get(ONNX_DOMAIN, 0), _IDENTITY_VERSION)


def _with_own_symbols(type_: Type, symbols: dict[str, Dim]) -> Type:
    """The type with new anonymous dimensions: the names in a function mean nothing outside of it. `symbols` keeps them."""
    if isinstance(type_, (TensorType, SparseTensorType)):
        if type_.shape is None:
            return type_
        for dim in type_.shape:
            for name in dims.symbols_of(dim):
                symbols.setdefault(name, dims.fresh())
        return replace(type_, shape=tuple(dims.substitute(dim, symbols) for dim in type_.shape))
    if isinstance(type_, MapType):
        return MapType(type_.key, _with_own_symbols(type_.value, symbols))
    if isinstance(type_, SequenceType):
        return SequenceType(_with_own_symbols(type_.element, symbols))
    return OptionalType(_with_own_symbols(type_.element, symbols))
