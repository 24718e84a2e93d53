"""All that is wrong with a model, at once: every node against its operator's signature, every type and shape.

Used by `sardonyx check` (everything) and when a session opens a model (errors only).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from sardonyx.analysis.constraints import supported_types
from sardonyx.analysis.cycles import FunctionKey, find_cycle, find_recursion, function_key, function_text
from sardonyx.analysis.problems import Problem, Severity
from sardonyx.analysis.shapes import ShapeReport, report_shapes
from sardonyx.ir.graph import ONNX_DOMAIN, UNKNOWN_VERSION, Attr, Function, Graph, Model, Node, Value, walk
from sardonyx.ops import registry, signature
from sardonyx.ops.signature import Parameter, Signature
from sardonyx.records import dataclass

__all__ = ["Problem", "Severity", "check_model", "supported_types"]

_SHOWN = 8  # names listed in one message


def check_model(
    model: Model, report: ShapeReport | None = None, *, is_linked: bool = False, is_extended: bool = False
) -> list[Problem]:
    """Every problem of a model, in the order of its nodes. `report` saves inferring the shapes again.

    `is_linked` says that a reader has linked the graph, and told of names nothing defines, cycles and recursion. `is_extended`
    says that somebody else may know operators that are not known here: see `unknown_operators`.
    """
    problems = [Problem("warning", "", note) for note in model.notes]
    problems += _check_opsets(model)
    if not is_linked:
        problems += [*_check_recursion(model), *_check_definitions(model.graph, "")]
    problems += _check_nodes(model.graph, model.functions, None, is_extended)
    for key, function in model.functions.items():
        where = f"function {function_text(key)}"
        inside = [] if is_linked else list(_check_definitions(function.graph, where))
        inside += _check_nodes(function.graph, model.functions, function)
        problems += [Problem(each.severity, f"{where} > {each.where}", each.text, each.hint) for each in inside]
    report = report or report_shapes(model)
    problems += report.findings
    faulty = {problem.where for problem in problems if problem.severity == "error"}
    problems += _check_graph_outputs(model.graph, report, faulty)
    problems += _check_initializers(model.graph)
    return problems


@cache
def newest_version(domain: str) -> int:
    """The newest opset version of a domain that the signature tables know; 0 for an unknown domain."""
    return max((signature.versions(domain, name)[-1] for name in signature.names(domain)), default=0)


def _check_opsets(model: Model) -> Iterator[Problem]:
    for domain, version in model.opset_imports.items():
        newest, name = newest_version(domain), domain or "ai.onnx"
        if newest and version > newest:
            text = f"the model imports opset {version} of {name}, the newest known is {newest}: "
            yield Problem("info", "", text + "operators that changed since are taken as they were")
    assumed = next((node.version for node in walk(model.graph) if node.domain == ONNX_DOMAIN), None)
    if model.opset_imports and ONNX_DOMAIN not in model.opset_imports and assumed is not None:
        yield Problem(
            "warning", "", f"ai.onnx is not in the opset imports: its operators are taken as those of version {assumed}"
        )


def _check_recursion(model: Model) -> Iterator[Problem]:
    circle = find_recursion(model.functions, model.functions)
    if circle:
        text = f"calls itself: {' -> '.join(map(function_text, circle))}"
        yield Problem("error", f"function {function_text(circle[0])}", text)


def _check_definitions(graph: Graph, location: str) -> Iterator[Problem]:
    """Values nobody defines, nodes out of order and circles, in a graph and its subgraphs."""
    defined: set[Value] = set()
    early: list[str] = []
    pending: list[Graph | Node] = [graph]
    while pending:
        item = pending.pop()
        if isinstance(item, Graph):
            defined.update(item.inputs, item.initializers.values())
            pending.extend(reversed(list(item.nodes)))
            continue
        for index, value in enumerate(item.inputs):
            if value is None or value in defined or value.constant is not None:
                continue
            if value.producer is None:
                yield Problem("error", item.label, f"input {index} is {value.name!r}, which nothing defines")
            else:
                early.append(f"{item.label} reads {value.name!r}")
        defined.update(item.outputs)
        pending.extend(item.subgraphs())
    for value in graph.outputs:
        if value not in defined and value.producer is None and value.constant is None:
            yield Problem("error", value.name, "is an output of the graph, but nothing defines it")
    if early:
        cycle = find_cycle(graph)
        if cycle:
            chain = ", ".join(node.label for node in cycle[:_SHOWN])
            yield Problem("error", location, f"the graph is not acyclic: {len(cycle)} nodes wait for each other: {chain}")
        else:
            yield Problem("warning", location, f"the nodes are out of order: {_listed(early)} before it is made")


def _listed(names: list[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _check_nodes(
    graph: Graph, functions: Mapping[FunctionKey, Function], inside: Function | None, is_extended: bool = False
) -> Iterator[Problem]:
    known_refs = None if inside is None else {*inside.attributes, *(attr.name for attr in inside.attribute_defaults)}
    for node in walk(graph):
        yield from _check_references(node, known_refs)
        function = functions.get(function_key(node))
        if function is not None:
            yield from _check_call(node, function)
            continue
        sig = signature.signature(node.domain, node.op_type, node.version)
        if sig is not None:
            yield from _NodeCheck(node, sig).problems()
        elif not is_extended and _is_unknown(node):
            yield _unknown_operator(node)


def unknown_operators(graph: Graph) -> list[Problem]:
    """The nodes of a graph and its subgraphs whose operator nothing defines; functions must have been inlined."""
    return [_unknown_operator(node) for node in walk(graph) if _is_unknown(node)]


def _is_unknown(node: Node) -> bool:
    if signature.signature(node.domain, node.op_type, node.version) is not None or node.version == UNKNOWN_VERSION:
        return False
    return registry.lookup(node.domain, node.op_type, node.version) is None


def _check_references(node: Node, known: set[str] | None) -> Iterator[Problem]:
    for attr in node.attrs.values():
        if not attr.ref:
            continue
        if known is None:
            text = f"attribute {attr.name!r} refers to an attribute {attr.ref!r} of a function, but stands outside of one"
            yield Problem("error", node.label, text)
        elif attr.ref not in known:
            text = f"attribute {attr.name!r} refers to {attr.ref!r}, which is no attribute of the function"
            yield Problem("error", node.label, text)


def _check_call(node: Node, function: Function) -> Iterator[Problem]:
    formal = function.graph
    for kind, given, known in (("inputs", node.inputs, formal.inputs), ("outputs", node.outputs, formal.outputs)):
        if len(given) > len(known):
            yield Problem("error", node.label, f"has {len(given)} {kind}, the function takes {len(known)}")
    for name in function.attributes:
        if name not in node.attrs:
            yield Problem("error", node.label, f"attribute {name!r} is missing; the function has no default for it")


def _unknown_operator(node: Node) -> Problem:
    """Why there is no operator of this name, domain and version."""
    domain = node.domain or "ai.onnx"
    same_domain = signature.names(node.domain)
    if not same_domain:
        known = ", ".join(signature.DOMAINS)
        text = f"operator {node.op_type} of domain {domain} is not known: there is no such domain"
        return Problem("error", node.label, text, f"known domains are {known}, and those of the model's own functions")
    introduced = signature.versions(node.domain, node.op_type)
    if introduced and node.version == 0:
        return Problem("error", node.label, f"the model uses {domain} {node.op_type}, but imports no opset of {domain}")
    if introduced:
        text = f"{domain} has {node.op_type} since opset {introduced[0]}, but the model imports opset {node.version}"
        return Problem("error", node.label, text)
    text = f"{domain} has no operator {node.op_type} (opset {node.version})"
    elsewhere = [each for each in signature.DOMAINS if node.op_type in signature.names(each)]
    if elsewhere:
        return Problem("error", node.label, text, f"{elsewhere[0]} has an operator of that name")
    from difflib import get_close_matches  # lazy: only what is wrong is compared

    close = get_close_matches(node.op_type, same_domain, n=3)
    return Problem("error", node.label, text, f"similar: {', '.join(close)}" if close else "")


@dataclass(frozen=True)
class _NodeCheck:
    """One node against its signature."""

    node: Node
    sig: Signature

    def problems(self) -> Iterator[Problem]:
        if registry.lookup(self.node.domain, self.node.op_type, self.node.version) is None:
            version = f"version {self.sig.since} (opset {self.node.version})"
            yield Problem("warning", self.node.label, f"{self.sig.name} {version} is a known operator that nothing here computes")
        elif self.sig.deprecated:
            yield Problem("info", self.node.label, f"{self.sig.name} is deprecated since opset {self.sig.since}")
        yield from self._attributes()
        yield from self._inputs()
        yield from self._outputs()

    def _error(self, text: str, hint: str = "") -> Problem:
        return Problem("error", self.node.label, text, hint)

    @property
    def _operator(self) -> str:
        return f"{self.sig.domain or 'ai.onnx'} {self.sig.name}-{self.sig.since}"

    def _attributes(self) -> Iterator[Problem]:
        formal = self.sig.attributes
        for attr in self.node.attrs.values():
            if attr.name in formal:
                yield from self._attribute_kind(attr)
            elif not attr.name.startswith("_"):  # frameworks mark nodes with names of this form
                from difflib import get_close_matches  # lazy: only what is wrong is compared

                close = get_close_matches(attr.name, formal, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(formal)}" if formal else "it has none"
                yield Problem("warning", self.node.label, f"{self._operator} has no attribute {attr.name!r}, it is ignored", hint)
        for name, attribute in formal.items():
            if attribute.required and name not in self.node.attrs:
                yield self._error(f"attribute {name!r} ({attribute.kind.name.lower()}) is missing; {self._operator} needs it")

    def _attribute_kind(self, attr: Attr) -> Iterator[Problem]:
        wanted = self.sig.attributes[attr.name].kind
        if attr.kind is not wanted:
            text = f"attribute {attr.name!r} is of kind {attr.kind.name.lower()}, {self._operator} takes {wanted.name.lower()}"
            yield self._error(text)

    def _inputs(self) -> Iterator[Problem]:
        inputs = list(self.node.inputs)
        while inputs and inputs[-1] is None:
            inputs.pop()
        fewest = self.sig.fewest_inputs
        if len(inputs) < fewest:
            names = ", ".join(parameter.name for parameter in self.sig.inputs[len(inputs) : fewest])
            yield self._error(f"has {_count(len(inputs), 'input')}, {self._operator} takes at least {fewest}; missing: {names}")
        elif len(inputs) > _most(self.sig.inputs):
            yield self._error(f"has {_count(len(inputs), 'input')}, {self._operator} takes at most {len(self.sig.inputs)}")
        for index, value in enumerate(inputs):
            parameter = self.sig.input_at(index)
            if value is None and parameter is not None and not (parameter.optional or parameter.variadic):
                yield self._error(f"input {index} ({parameter.name}) is left out; {self._operator} needs it")

    def _outputs(self) -> Iterator[Problem]:
        given = len(self.node.outputs)
        fewest = max(
            (index + 1 for index, each in enumerate(self.sig.outputs) if not (each.optional or each.variadic)), default=0
        )
        if given > _most(self.sig.outputs):
            yield self._error(f"has {_count(given, 'output')}, {self._operator} gives at most {len(self.sig.outputs)}")
        elif given < fewest:
            names = ", ".join(parameter.name for parameter in self.sig.outputs[given:fewest])
            yield self._error(f"has {_count(given, 'output')}, {self._operator} gives at least {fewest}; missing: {names}")


def _most(parameters: tuple[Parameter, ...]) -> float:
    return float("inf") if parameters and parameters[-1].variadic else len(parameters)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _check_graph_outputs(graph: Graph, report: ShapeReport, faulty: set[str]) -> Iterator[Problem]:
    """Outputs of unknown type, but for those whose node has been found faulty: that is why."""
    for value in graph.outputs:
        if report.types.get(value) is None and (value.producer is None or value.producer.label not in faulty):
            yield Problem("warning", value.name, "is an output of the graph whose type is neither declared nor known")


def _check_initializers(graph: Graph) -> Iterator[Problem]:
    graphs: list[Graph] = [graph]
    used: set[Value | None] = set()
    for node in walk(graph):
        graphs.extend(node.subgraphs())
        used.update(node.inputs)
    for each in graphs:
        used.update(each.outputs)
    for each in graphs:
        unused = [name for name, value in each.initializers.items() if value not in used]
        if unused:
            verb = "initializer is" if len(unused) == 1 else "initializers are"
            location = f"graph {each.name}" if each is not graph and each.name else ""
            yield Problem("info", location, f"{len(unused)} {verb} never used: {_listed(unused)}")
