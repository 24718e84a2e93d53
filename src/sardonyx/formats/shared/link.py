"""Records to linked graphs: every name becomes the value it stands for.

A name belongs to the graph that defines it, wherever in that graph's order it is defined; a subgraph sees the names of the graphs
around it unless it defines them itself. Nodes need not come in an order in which they can be computed: they are sorted, each as
close to its place in the file as possible. Everything that makes no sense is noted, and reported in one error.
"""

from __future__ import annotations

import heapq
from typing import Final

from sardonyx.formats.shared.constants import dense_type, settle_constants
from sardonyx.formats.shared.problems import ProblemList
from sardonyx.formats.shared.records import FunctionRecord, GraphRecord, NodeRecord, ValueRecord
from sardonyx.ir.graph import UNKNOWN_VERSION, Attr, AttrKind, Function, Graph, Node, Value, walk

QUANTIZATION: Final = "onnx.quantization."
FunctionKey = tuple[str, str, str]

# Domains that need no import: ONNX Runtime takes the newest version it has, so models without the import are around. Newer
# versions than those it knows must not change what such a model means.
_IMPLIED_VERSIONS: Final = {
    "": 26, "ai.onnx.ml": 5, "ai.onnx.preview.training": 1, "com.microsoft": 1, "com.microsoft.nchwc": 1,
    "com.ms.internal.nhwc": 1, "org.pytorch.aten": 1,
}  # fmt: skip


def link_model(
    ctx: ProblemList, graph: GraphRecord, functions: list[FunctionRecord], imports: dict[str, int]
) -> tuple[Graph, dict[FunctionKey, Function]]:
    """The graph and the functions of a model; InvalidGraph with all problems found so far, if there are any."""
    callable_domains = {function.domain for function in functions}
    linked: dict[FunctionKey, Function] = {}
    for record in functions:
        key = record.domain, record.name, record.overload
        if key in linked:
            ctx.problem(f"function {_function_name(key)} is defined twice")
            continue
        linker = _Linker(ctx, {**imports, **record.imports}, callable_domains, in_function=True)
        where = f" in function {_function_name(key)}"
        linked[key] = Function(
            record.domain,
            record.name,
            record.overload,
            linker.graph(record.body, None, where)[0],
            tuple(record.attributes),
            tuple(linker.attr(attr, None, where)[0] for attr in record.defaults),
            record.imports,
            record.doc,
            record.metadata,
        )
    main = _Linker(ctx, imports, callable_domains, in_function=False).graph(graph, None, "")[0]
    _check_recursion(ctx, linked)
    ctx.raise_problems()
    return main, linked


def _function_name(key: FunctionKey) -> str:
    domain, name, overload = key
    return f"{domain}::{name}" + (f":{overload}" if overload else "")


class _Scope:
    """The names one graph defines; `captured` collects those it takes from the graphs around it."""

    __slots__ = ("captured", "parent", "undefined", "values")

    def __init__(self, parent: _Scope | None) -> None:
        self.parent = parent
        self.values: dict[str, Value] = {}
        self.captured: dict[str, None] = {}
        self.undefined: dict[str, Value] = {}  # names that are read and that nothing defines

    def find(self, name: str) -> Value | None:
        value = self.values.get(name)
        if value is None and self.parent is not None:
            value = self.parent.find(name)
            if value is not None:
                self.captured[name] = None
        return value


class _Linker:
    """Links the graphs that share one set of opset imports: those of the model, or those of one function."""

    def __init__(self, ctx: ProblemList, imports: dict[str, int], callable_domains: set[str], *, in_function: bool) -> None:
        self._ctx = ctx
        self._imports = imports
        self._versions = {**_IMPLIED_VERSIONS, **dict.fromkeys(callable_domains, 1), **imports}
        self._in_function = in_function

    def graph(self, record: GraphRecord, parent: _Scope | None, where: str) -> tuple[Graph, dict[str, None]]:
        """The linked graph, and the names it takes from the graphs around it. `where` places it in messages."""
        graph = Graph(record.name)
        graph.doc = record.doc
        graph.metadata = record.metadata
        scope = _Scope(parent)
        if not self._in_function:
            settle_constants(self._ctx, record, where)
        self._define_inputs(record, graph, scope, where)
        self._define_constants(record, graph, scope, where)
        made_at = self._define_results(record, scope, where)
        nodes, needs = [], []
        in_order = True
        for index, each in enumerate(record.nodes):
            node, captured = self._node(each, scope, where)
            earlier = {made_at[name] for name in (*each.inputs, *captured) if name in made_at}
            in_order = in_order and (not earlier or max(earlier) < index)
            nodes.append(node)
            needs.append(earlier)
        for index in range(len(nodes)) if in_order else self._sorted(nodes, needs, where):
            graph.append(nodes[index])
        for info in record.outputs:
            output = scope.find(info.name)
            if output is None:
                if info.name not in self._ctx.refused:
                    self._ctx.problem(f"graph output {info.name!r}{where} is never produced")
            else:
                graph.outputs.append(output)
                if info.name in scope.values:
                    _describe(output, info)
        for info in record.infos:
            known = scope.values.get(info.name)
            if known is not None:
                _describe(known, info)
        for name, parameters in record.annotations.items():
            known = scope.values.get(name)
            if known is not None:
                known.metadata.update((QUANTIZATION + key, value) for key, value in parameters.items())
        return graph, scope.captured

    def _define_inputs(self, record: GraphRecord, graph: Graph, scope: _Scope, where: str) -> None:
        for info in record.inputs:
            if info.name in scope.values:
                self._ctx.problem(f"two graph inputs{where} are called {info.name!r}")
                continue
            value = scope.values[info.name] = Value(info.name)
            _describe(value, info)
            graph.inputs.append(value)

    def _define_constants(self, record: GraphRecord, graph: Graph, scope: _Scope, where: str) -> None:
        for each in record.initializers:
            if each.name in graph.initializers:
                self._ctx.problem(f"two initializers{where} are called {each.name!r}")
                continue
            value = scope.values.get(each.name)
            if value is None:
                value = scope.values[each.name] = Value(each.name)
            if value.type is None:
                value.type = dense_type(each.constant)
            value.constant = each.constant
            _describe(value, ValueRecord(each.name, None, each.doc, each.metadata))
            graph.initializers[each.name] = value

    def _define_results(self, record: GraphRecord, scope: _Scope, where: str) -> dict[str, int]:
        """Values for all results of nodes; returns which node makes which name."""
        values = scope.values
        made_at: dict[str, int] = {}
        for index, node in enumerate(record.nodes):
            for name in node.outputs:
                if not name:
                    continue
                if name in made_at:
                    first = record.nodes[made_at[name]].label
                    self._ctx.problem(f"{node.label}{where}: output {name!r} is also an output of {first}")
                elif name in values:
                    role = "a graph input" if values[name].constant is None else "an initializer"
                    self._ctx.problem(f"{node.label}{where}: output {name!r} is also {role}")
                else:
                    made_at[name] = index
                    values[name] = Value(name)
        return made_at

    def _node(self, record: NodeRecord, scope: _Scope, where: str) -> tuple[Node, dict[str, None]]:
        """The node, and the names its subgraphs take from this graph or those around it."""
        values = scope.values
        inputs: list[Value | None] = []
        for index, name in enumerate(record.inputs):
            value = values.get(name) if name else None
            if value is None and name:
                value = scope.find(name)
                if value is None:
                    value = scope.undefined.setdefault(name, Value(name))
                    if name not in self._ctx.refused:
                        self._ctx.problem(f"{record.label}{where}: input {index} is {name!r}, which nothing produces")
            inputs.append(value)
        outputs = []
        for name in record.outputs:
            made = values[name] if name else Value("")
            # A name with two makers has been noted; the node must not take the value from its first maker.
            outputs.append(made if made.producer is None else Value(name))
        captured: dict[str, None] = {}
        attrs: list[Attr] = record.attrs
        if record.has_subgraphs:
            attrs = []
            for attr in record.attrs:
                linked, names = self.attr(attr, scope, f" in {record.label}{where}")
                attrs.append(linked)
                captured.update(names)
        if not self._in_function:
            for attr in attrs:
                if attr.ref:
                    self._ctx.problem(
                        f"{record.label}{where}: attribute {attr.name!r} refers to the function attribute {attr.ref!r}, "
                        "but it is not in a function"
                    )
        node = Node(
            record.op_type,
            inputs,
            outputs,
            attrs,
            domain=record.domain,
            version=self._version(record, where),
            name=record.name,
            overload=record.overload,
        )
        node.doc = record.doc
        node.metadata = record.metadata
        record.linked = node
        return node, captured

    def attr(self, attr: Attr, scope: _Scope | None, where: str) -> tuple[Attr, dict[str, None]]:
        """The attribute with its graphs linked, and the names they take from outside."""
        if attr.ref or attr.kind not in (AttrKind.GRAPH, AttrKind.GRAPHS):
            return attr, {}
        records = [attr.value] if attr.kind is AttrKind.GRAPH else attr.value
        linked = [self.graph(record, scope, f" in {attr.name}{where}") for record in records]
        graphs = tuple(graph for graph, _ in linked)
        captured = {name: None for _, names in linked for name in names}
        return Attr(attr.name, attr.kind, graphs[0] if attr.kind is AttrKind.GRAPH else graphs, "", attr.doc), captured

    def _version(self, record: NodeRecord, where: str) -> int:
        version = self._versions.get(record.domain)
        if record.since and (version is None or version < record.since):
            return record.since  # an operator that a runtime put in, of a version that the model itself does not import
        if version is None:
            imported = ", ".join(f"{domain or 'ai.onnx'} {number}" for domain, number in self._imports.items()) or "none"
            domain = record.domain or "ai.onnx"
            self._ctx.problem(f"{record.label}{where}: its domain {domain!r} is not in the opset imports ({imported})")
            return UNKNOWN_VERSION
        return version

    def _sorted(self, nodes: list[Node], needs: list[set[int]], where: str) -> list[int]:
        """An order in which every node comes after those it needs, the earliest in the file first."""
        waiting = [len(each) for each in needs]
        readers: list[list[int]] = [[] for _ in nodes]
        for index, each in enumerate(needs):
            for maker in each:
                readers[maker].append(index)
        ready = [index for index, count in enumerate(waiting) if not count]
        order: list[int] = []
        while ready:
            index = heapq.heappop(ready)
            order.append(index)
            for reader in readers[index]:
                waiting[reader] -= 1
                if not waiting[reader]:
                    heapq.heappush(ready, reader)
        if len(order) < len(nodes):
            cycle = _find_cycle({index: needs[index] for index, count in enumerate(waiting) if count})
            names = " -> ".join(nodes[index].label for index in (*cycle[:_SHOWN], cycle[0]))
            more = f" (and {len(cycle) - _SHOWN} more)" if len(cycle) > _SHOWN else ""
            self._ctx.problem(f"the nodes{where} form a cycle: {names}{more}")
            order += sorted(set(range(len(nodes))).difference(order))
        return order


_SHOWN: Final = 10  # nodes of a cycle that a message lists


def _find_cycle(needs: dict[int, set[int]]) -> list[int]:
    """A cycle among nodes that all wait for another of them, in the order of the data's flow."""
    index = next(iter(needs))
    path: dict[int, int] = {}
    while index not in path:
        path[index] = len(path)
        index = min(maker for maker in needs[index] if maker in needs)
    return list(path)[path[index] :][::-1]


def _describe(value: Value, info: ValueRecord) -> None:
    """Take over what is said about a value, as far as it is not known."""
    if value.type is None:
        value.type = info.type
    if info.doc and not value.doc:
        value.doc = info.doc
    if info.metadata:
        value.metadata = {**info.metadata, **value.metadata}


def _check_recursion(ctx: ProblemList, functions: dict[FunctionKey, Function]) -> None:
    """Note functions that call themselves, directly or through others: expanding them would never end."""
    calls = {
        key: sorted({(node.domain, node.op_type, node.overload) for node in walk(function.graph)} & functions.keys())
        for key, function in functions.items()
    }
    finished: set[FunctionKey] = set()
    for first in functions:
        path: dict[FunctionKey, None] = {}  # the functions being expanded, outermost first
        steps = [(first, False)]
        while steps:
            key, leaving = steps.pop()
            if leaving:
                path.popitem()
                finished.add(key)
            elif key in path:
                names = [_function_name(each) for each in path]
                cycle = " -> ".join((*names[names.index(_function_name(key)) :], _function_name(key)))
                ctx.problem(f"function {_function_name(key)} calls itself: {cycle}")
            elif key not in finished:
                path[key] = None
                steps.append((key, True))
                steps.extend((callee, False) for callee in calls[key])
