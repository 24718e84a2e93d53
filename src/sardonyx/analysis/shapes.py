"""The type and shape of every value, from the types of the inputs.

    x: f32[N,3,224,224]
    y = Conv(x, w: f32[64,3,7,7]) {strides = [2, 2], pads = [3, 3, 3, 3]}     ->  y: f32[N,64,112,112]

Walks the nodes in order: the signature gives the element types, the operator's shape rule the shapes, `values` the contents of
small tensors that steer shapes. What a model declares about a value is merged in; where it contradicts what follows from the
inputs, that is reported and the inferred type stands. A model is never refused here: problems are collected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sardonyx.analysis.attributes import attribute_values
from sardonyx.analysis.constraints import bind_types, operator_text, output_types
from sardonyx.analysis.merge import TypeConflict, merge_types
from sardonyx.analysis.node_faults import node_faults
from sardonyx.analysis.problems import Problem, Severity
from sardonyx.analysis.values import ValueTable
from sardonyx.errors import InvalidGraph
from sardonyx.ir.dims import Dim, DimExpr, Expectation
from sardonyx.ir.graph import Attr, Function, Graph, Model, Node, SparseConstant, Value
from sardonyx.ir.region import DOMAIN, region_of
from sardonyx.ir.tensor import Tensor
from sardonyx.ir.types import Shape, SparseTensorType, TensorType, Type
from sardonyx.ops import registry
from sardonyx.ops.infer import InferContext
from sardonyx.ops.signature import Signature, signature
from sardonyx.records import dataclass

_DEEPEST: Final = 60  # nested subgraphs and function calls; each level costs several Python frames
_MOST_VISITS: Final = 200_000  # nodes visited inside subgraphs and functions, which rules may walk several times


@dataclass(frozen=True)
class ShapeReport:
    """What inference found out: the types, the contents that are known, and what is wrong."""

    findings: list[Problem]
    types: dict[Value, Type | None] = field(repr=False)
    values: ValueTable = field(repr=False)
    refusals: dict[Node, str] = field(default_factory=dict, repr=False)  # nodes whose inputs contradict each other
    expectations: dict[Node, list[Expectation]] = field(default_factory=dict, repr=False)  # what the others state of sizes
    follows_from_inputs: bool = False  # whether nothing that the model claims of other values has added to it

    @property
    def problems(self) -> list[str]:
        """The findings as text, one line each."""
        return [str(finding) for finding in self.findings]


def infer_shapes(model: Model | Graph, *, strict: bool = False, input_types: Mapping[str, Type] | None = None) -> ShapeReport:
    """Set the type of every value of a graph, its subgraphs included.

    `input_types` replaces the declared types of inputs, by name. With `strict` problems raise InvalidGraph, and no type is set.
    The outputs of the graph keep the dimension names they were declared with.
    """
    report = report_shapes(model, input_types)
    if strict and report.findings:
        problems = tuple(report.problems)
        raise InvalidGraph("types and shapes do not fit:\n" + "\n".join(problems), problems=problems)
    for value, type_ in report.types.items():
        if type_ is not None:
            value.type = type_
    return report


def report_shapes(model: Model | Graph, input_types: Mapping[str, Type] | None = None) -> ShapeReport:
    """What `infer_shapes` would set and say; the model stays as it is."""
    graph = model.graph if isinstance(model, Model) else model
    functions = model.functions if isinstance(model, Model) else {}
    replaceable = not isinstance(model, Model) or model.ir_version >= 4  # before, initializers had to be listed as inputs
    variable = {value for value in graph.inputs if value.constant is not None} if replaceable else set()
    inference = _Inference(functions, variable)
    inference.run_graph(graph, [(input_types or {}).get(value.name) for value in graph.inputs])
    follows = inference.follows_from_inputs
    for value in graph.outputs:
        inferred = inference.type_of(value)
        inference.types[value] = _as_declared(value.type, inferred)
        follows = follows and inference.types[value] == inferred
    return ShapeReport(inference.findings, inference.types, inference.values, inference.refusals, inference.expectations, follows)


@dataclass
class _Effort:
    """What has been spent on walks that may repeat; shared by all parts of one inference."""

    depth: int = 0
    visits: int = 0


class _Inference:
    """Types of one graph with its subgraphs, or of one call of a function."""

    def __init__(
        self,
        functions: Mapping[tuple[str, str, str], Function],
        variable: set[Value],
        bindings: Mapping[str, Attr] | None = None,
        effort: _Effort | None = None,
    ) -> None:
        self.types: dict[Value, Type | None] = {}
        self.values = ValueTable(self.type_of, variable)
        self._functions = functions
        self._bindings = bindings
        self._effort = effort or _Effort()
        self._findings: dict[Node | Value, list[Problem]] = {}
        self.refusals: dict[Node, str] = {}
        self.expectations: dict[Node, list[Expectation]] = {}
        self._walked: set[Graph] = set()  # subgraphs of the node at hand that its rule has asked for
        self.follows_from_inputs = True  # so far; what calls and subgraphs rest on is not looked at

    @property
    def findings(self) -> list[Problem]:
        return list(dict.fromkeys(problem for problems in self._findings.values() for problem in problems))

    def type_of(self, value: Value) -> Type | None:
        """The type as far as it is known at this point of the walk."""
        found = self.types.get(value)
        if found is not None:
            return found
        if value.type is None and value.constant is not None:
            return _constant_type(value.constant)
        return value.type

    def run_graph(self, graph: Graph, inputs: Sequence[Type | None]) -> list[Type | None]:
        """Infer a graph for these input types (None: as declared); the types of its outputs."""
        for position, value in enumerate(graph.inputs):
            self._findings.pop(value, None)
            given = inputs[position] if position < len(inputs) else None
            self.types[value] = self._merged(value, given, value, value.name)
        for value in graph.initializers.values():
            if value.constant is not None and value not in self.types:
                self.types[value] = self._merged(value, _constant_type(value.constant), value, value.name)
        for node in graph.nodes:
            self._run_node(node)
        return [self.type_of(value) for value in graph.outputs]

    def _run_node(self, node: Node) -> None:
        self._findings.pop(node, None)
        self.refusals.pop(node, None)
        self.expectations.pop(node, None)
        self.values.forget(node)
        inputs = [None if value is None else self.type_of(value) for value in node.inputs]
        function = self._functions.get((node.domain, node.op_type, node.overload)) if self._functions else None
        if node.domain == DOMAIN and (region := region_of(node)) is not None and region.function is not None:
            function = region.function
        if function is not None:
            self.follows_from_inputs = False
            self._set_outputs(node, self._call(function, node, inputs))
            return
        attrs = self._attributes(node)
        by_signature, sound = self._check_signature(node, inputs)
        outer, self._walked = self._walked, set()
        self._set_outputs(node, self._apply_rule(node, inputs, attrs, by_signature) if sound else by_signature)
        for graph in node.subgraphs():
            self.follows_from_inputs = False
            if graph not in self._walked:
                self._infer_subgraph(graph, ())
        self._walked = outer
        if sound:
            self._learn_contents(node, attrs)

    def _set_outputs(self, node: Node, inferred: list[Type | None]) -> None:
        for position, (output, type_) in enumerate(zip(node.outputs, inferred, strict=True)):
            merged = self._merged(output, type_, node, node.label, f"output {position} ({output.name}): ")
            if merged is not type_ and merged != type_:
                self.follows_from_inputs = False
            self.types[output] = merged

    def _learn_contents(self, node: Node, attrs: dict[str, Any]) -> None:
        self.values.visit(node, attrs)
        for output in node.outputs:
            known, type_ = self.values.known_of(output), self.types[output]
            if known is not None and isinstance(type_, TensorType) and type_.shape != known.shape:
                self.types[output] = TensorType(type_.dtype, known.shape)

    def _attributes(self, node: Node) -> dict[str, Any]:
        try:
            return attribute_values(node, self._bindings)
        except (ValueError, TypeError, AttributeError, OSError) as error:  # data that cannot be had, values that are no data
            self._report(node, node.label, "warning", f"an attribute cannot be read: {error}")
            return {}

    def _check_signature(self, node: Node, inputs: list[Type | None]) -> tuple[list[Type | None], bool]:
        """The output types that follow from the signature, and whether the node is as it says."""
        sig = signature(node.domain, node.op_type, node.version)
        if sig is None:
            return [None] * len(node.outputs), True
        bound, misfits = bind_types(sig, inputs)
        for misfit in misfits:
            self._report(node, node.label, "error", f"{misfit} ({operator_text(node)})")
        return list(output_types(sig, bound, len(node.outputs))), not misfits and _is_complete(node, sig)

    def _apply_rule(
        self, node: Node, inputs: list[Type | None], attrs: dict[str, Any], by_signature: list[Type | None]
    ) -> list[Type | None]:
        definition = registry.lookup(node.domain, node.op_type, node.version)
        if definition is None or definition.infer is None:
            return by_signature
        context = InferContext(node, inputs, attrs, *self._lookups(node), self._infer_subgraph)
        faults = node_faults(context)
        if faults:
            self._refuse(node, faults)
            return by_signature
        try:
            found = _normalise(definition.infer(context), by_signature, node)
            if context.expectations:
                self.expectations[node] = context.expectations
            return found
        except ValueError as error:
            self._refuse(node, [str(error)])
        except Exception as error:  # a rule that fails is no reason to refuse the model: it may well run
            self._report(node, node.label, "warning", f"shape inference failed with {type(error).__name__}: {error}")
        return by_signature

    def _refuse(self, node: Node, reasons: Sequence[str]) -> None:
        """Report why a node cannot work on its inputs."""
        self.refusals[node] = reasons[0]
        # A branch may hold a Squeeze that fits only the shapes for which it is taken: the run will tell.
        conditional = node.graph is not None and node.graph.parent_node is not None
        for reason in reasons:
            self._report(node, node.label, "warning" if conditional else "error", reason)

    def _lookups(self, node: Node) -> tuple[Any, Any]:
        """The functions by which a rule asks for the contents of the node's inputs."""
        inputs = node.inputs

        def value_of(index: int) -> tuple[tuple[Dim, ...], Shape] | None:
            value = inputs[index]
            known = None if value is None else self.values.known_of(value)
            return None if known is None else (tuple(known.reshape(-1).tolist()), known.shape)

        def constant_of(index: int) -> NDArray[Any] | None:
            value = inputs[index]
            return None if value is None else self.values.constant_of(value)

        return value_of, constant_of

    def _infer_subgraph(self, graph: Graph, inputs: Sequence[Type | None]) -> list[Type | None]:
        self._walked.add(graph)
        if not self._enter(len(graph)):
            return [value.type for value in graph.outputs]
        try:
            return self.run_graph(graph, inputs)
        finally:
            self._effort.depth -= 1

    def _enter(self, nodes: int) -> bool:
        """Whether there is room for one more level; the caller lowers the depth again."""
        effort = self._effort
        if effort.depth >= _DEEPEST or effort.visits + nodes > _MOST_VISITS:
            return False
        effort.depth += 1
        effort.visits += nodes
        return True

    def _call(self, function: Function, node: Node, inputs: list[Type | None]) -> list[Type | None]:
        """The output types of a call of a model-local function: its body is walked with the types of the arguments."""
        unknown: list[Type | None] = [None] * len(node.outputs)
        if not self._enter(len(function.graph)):
            return unknown
        bindings = {attr.name: attr for attr in function.attribute_defaults}
        for attr in node.attrs.values():
            source = (self._bindings or {}).get(attr.ref) if attr.ref else attr
            if source is not None:
                bindings[attr.name] = source
        body = _Inference(self._functions, set(), bindings, self._effort)
        for parameter, argument in zip(function.graph.inputs, node.inputs, strict=False):
            if argument is not None:
                body.values.alias(parameter, self.values, argument)
        try:
            results = body.run_graph(function.graph, inputs)
        finally:
            self._effort.depth -= 1
        for finding in body.findings:
            self._report(node, f"{node.label} > {finding.where}", finding.severity, finding.text)
        for output, inner in zip(node.outputs, function.graph.outputs, strict=False):
            self.values.alias(output, body.values, inner)
        return [results[index] if index < len(results) else None for index in range(len(node.outputs))]

    def _merged(self, value: Value, inferred: Type | None, owner: Node | Value, where: str, what: str = "") -> Type | None:
        """The inferred type with what the model declares about the value added; a contradiction is reported under `owner`."""
        declared = value.type
        if inferred is None or declared is None:
            return declared if inferred is None else inferred
        try:
            return merge_types(inferred, declared)
        except TypeConflict as error:
            self._report(owner, where, "error", f"{what}{error}")
        except ValueError as error:
            self._report(owner, where, "warning", f"{what}inferred {inferred}, but the model declares {declared}: {error}")
        self.follows_from_inputs = False  # there is something to say about a claim
        return inferred

    def _report(self, owner: Node | Value, where: str, severity: Severity, text: str) -> None:
        self._findings.setdefault(owner, []).append(Problem(severity, where, text))


def _as_declared(declared: Type | None, inferred: Type | None) -> Type | None:
    """The inferred type under the names that people gave its dimensions."""
    if declared is None or inferred is None:
        return inferred
    try:
        return merge_types(declared, inferred)
    except ValueError:
        return inferred


def _constant_type(constant: Tensor | SparseConstant) -> Type:
    """The type as nodes see it: what is sparse in the file is dense for them."""
    return TensorType(constant.dtype if isinstance(constant, Tensor) else constant.values.dtype, constant.shape)


def _is_complete(node: Node, sig: Signature) -> bool:
    """Whether the inputs and attributes a rule relies on are there and of the right kind; if not, `check` says so."""
    inputs = node.inputs
    if len(inputs) < sig.fewest_inputs:
        return False
    for index, value in enumerate(inputs):
        parameter = sig.input_at(index)
        if value is None and parameter is not None and not (parameter.optional or parameter.variadic):
            return False
    for name, formal in sig.attributes.items():
        attr = node.attrs.get(name)
        if formal.required if attr is None else attr.kind is not formal.kind:
            return False
    return True


def _normalise(result: Any, by_signature: list[Type | None], node: Node) -> list[Type | None]:
    """What a rule returned, as one type per output of the node."""
    results = result if isinstance(result, list) else [result]
    types: list[Type | None] = []
    for index, (from_signature, output) in enumerate(zip(by_signature, node.outputs, strict=True)):
        one = results[index] if index < len(results) else None
        if one is None:
            types.append(from_signature)
        elif isinstance(one, tuple):
            types.append(_with_shape(from_signature or output.type, tuple(_plain_dims(one))))
        elif isinstance(one, TensorType) and one.shape is not None:
            types.append(TensorType(one.dtype, tuple(_plain_dims(one.shape))))
        else:
            types.append(one)
    return types


def _with_shape(type_: Type | None, shape: Shape) -> Type | None:
    """The type with this shape; a shape says nothing about a sequence, or where the element type is unknown."""
    if isinstance(type_, TensorType):
        return TensorType(type_.dtype, shape)
    if isinstance(type_, SparseTensorType):
        return SparseTensorType(type_.dtype, shape)
    return type_


def _plain_dims(shape: tuple[Any, ...]) -> Iterator[Dim]:
    for dim in shape:
        if isinstance(dim, DimExpr):
            yield dim
        elif isinstance(dim, (int, np.integer)) and not isinstance(dim, bool):
            if dim < 0:
                raise ValueError(f"a dimension of the output would be {dim}")
            yield int(dim)
        else:
            raise TypeError(f"the shape rule gave {dim!r} as a dimension")
