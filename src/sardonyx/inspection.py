"""Looking at models and operators without running anything: what `sardonyx inspect`, `check` and `ops` show.

load_model(source)       -> Model              the graph, weights still in the file
check_model(source)      -> list[Problem]      all that is wrong or doubtful, by node
summarize_model(source)  -> ModelSummary       inputs, outputs, sizes, operator histogram
operators(domain)        -> list[OperatorInfo] what is known about each operator, from the one table
object_cache()           -> ObjectCache | None the compiled kernels on disk
program_cache()          -> CacheFolder | None the compiled models on disk
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias, Union

from sardonyx import dtypes, errors
from sardonyx.analysis.check import check_model as _check
from sardonyx.analysis.problems import Problem
from sardonyx.cache_folder import CacheFolder
from sardonyx.codegen.object_cache import ObjectCache
from sardonyx.formats.loading import load as _load
from sardonyx.formats.loading import load_with_problems as _load_with_problems
from sardonyx.formats.onnx import load_value as _load_value
from sardonyx.ir.graph import UNKNOWN_VERSION, Graph, Model, SparseConstant, Value, walk
from sardonyx.ir.tensor import Tensor
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type
from sardonyx.lower import registry as lowering
from sardonyx.ops import registry, signature
from sardonyx.ops.registry import OpDef, Trait
from sardonyx.options import environment
from sardonyx.passes.assign_layout import has_layout_rule
from sardonyx.passes.pipeline import is_expanded
from sardonyx.records import dataclass
from sardonyx.runtime.saved import programs

Source: TypeAlias = Union[str, "os.PathLike[str]", bytes, Model, Any]
Execution: TypeAlias = Literal["native", "host", "known", "control", "function", "missing"]
NEWEST: Final = 1 << 30  # an opset version no domain reaches


@dataclass(frozen=True, slots=True)
class OperatorInfo:
    """What Sardonyx knows about one operator."""

    domain: str  # "ai.onnx" is written out
    name: str
    versions: tuple[int, ...]  # opset versions that introduced or changed it
    deprecated: bool  # in its newest version
    inputs: tuple[str, ...]  # of the newest version, as the signature tables write them: `X: T`, `B?: T`
    outputs: tuple[str, ...]
    attributes: tuple[str, ...]
    types: dict[str, tuple[str, ...]]  # type variable -> types it may stand for
    execution: Execution  # what computes it where types and shapes allow: "native" code, or Python ("host")
    evaluated_from: int | None  # the oldest opset version whose meaning is defined; None if it is missing
    has_shape_rule: bool


@dataclass(frozen=True, slots=True)
class OperatorUse:
    """How often a model calls an operator, nodes of subgraphs and functions included."""

    domain: str
    name: str
    version: int  # 0 if the model does not import the domain
    count: int
    execution: Execution


@dataclass(frozen=True, slots=True)
class PortInfo:
    """An input or output of a model."""

    name: str
    type: str  # our short form, f32[N,3]
    onnx_type: str  # tensor(float)
    doc: str = ""


@dataclass(frozen=True, slots=True)
class WeightInfo:
    """A constant tensor in a model."""

    name: str
    type: str
    elements: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """What a model is made of."""

    path: str
    file_bytes: int | None  # of the model file itself, external data not counted
    name: str
    doc: str
    producer: str
    domain: str
    model_version: int
    ir_version: int
    opsets: dict[str, int]
    metadata: dict[str, str]
    inputs: tuple[PortInfo, ...]
    outputs: tuple[PortInfo, ...]
    overridable: tuple[PortInfo, ...]  # initializers that are inputs too
    nodes: int
    subgraphs: int
    functions: tuple[str, ...]
    parameters: int  # elements in all constant tensors
    weight_bytes: int
    weights_by_type: dict[str, int]  # element type -> elements
    largest_weights: tuple[WeightInfo, ...]
    operators: tuple[OperatorUse, ...]  # most used first
    problems: tuple[str, ...] = ()  # for which a session would refuse to read it


def load_model(source: Source) -> Model:
    """Read a model from a path, bytes, a file object or an object with `SerializeToString`; weights stay in the file."""
    return source if isinstance(source, Model) else _load(source)


def load_value(source: Any, onnx_type: str = "tensor(float)") -> Any:
    """The value in a file as ONNX's test data has them (`input_0.pb`): an array, list or dict, or None for an absent optional.

    The file does not say whether it holds a tensor, a sequence, a map or an optional; `onnx_type`, as in `NodeArg.type`, does.
    """
    return _load_value(source, _parse_type(onnx_type))


def check_model(source: Source) -> list[Problem]:
    """Everything wrong or doubtful about a model, errors first. A file that cannot be read raises as `load_model` does."""
    order = {"error": 0, "warning": 1, "info": 2}
    model, refused = (source, ()) if isinstance(source, Model) else _load_with_problems(source)
    problems = [Problem("error", "", text) for text in refused]
    problems += _check(model, is_linked=model is not source)
    return sorted(problems, key=lambda problem: order[problem.severity])


def operators(domain: str | None = None) -> list[OperatorInfo]:
    """All operators with a signature or a definition, by domain and name; `domain` picks one ("ai.onnx" or "" is ONNX's own)."""
    defined: dict[tuple[str, str], list[OpDef]] = {}
    for definition in registry.definitions():
        defined.setdefault((definition.domain, definition.name), []).append(definition)
    listed = {("" if each == "ai.onnx" else each, name) for each in signature.DOMAINS for name in signature.names(each)}
    wanted = "" if domain == "ai.onnx" else domain
    return [_operator(key, defined.get(key, [])) for key in sorted(listed | set(defined)) if wanted is None or key[0] == wanted]


def object_cache() -> ObjectCache | None:
    """The compiled kernels on disk, in the folder SARDONYX_CACHE_DIR names; None if it is empty, which turns the cache off."""
    settings = environment()
    return None if settings.cache_folder is None else ObjectCache(settings.cache_folder, trusted=settings.cache_trusted)


def program_cache() -> CacheFolder | None:
    """The models on disk that are kept compiled as a whole, in the same folder; None if the cache is off."""
    folder = environment().cache_folder
    return None if folder is None else programs(folder)


def summarize_model(source: Source, largest: int = 5) -> ModelSummary:
    """Count what a model contains, without computing anything and without reading its weights; a broken one as far as it goes."""
    model, problems = (source, ()) if isinstance(source, Model) else _load_with_problems(source)
    graph = model.graph
    graphs = list(_all_graphs(model))
    weights = [weight for each in graphs for weight in _weights(each)]
    by_type: Counter[str] = Counter()
    for weight in weights:
        by_type[weight.type.partition("[")[0]] += weight.elements
    functions = {(domain, name) for domain, name, _ in model.functions}
    uses = Counter((node.domain, node.op_type, node.version) for each in _top_graphs(model) for node in walk(each))
    producer = f"{model.producer_name} {model.producer_version}".strip()
    return ModelSummary(
        path=model.path,
        file_bytes=os.path.getsize(model.path) if model.path else None,
        name=graph.name,
        doc=model.doc or graph.doc,
        producer=producer,
        domain=model.domain,
        model_version=model.model_version,
        ir_version=model.ir_version,
        opsets={_shown(domain): version for domain, version in sorted(model.opset_imports.items())},
        metadata=dict(model.metadata),
        inputs=tuple(_port(value) for value in graph.inputs if value.constant is None),
        outputs=tuple(_port(value) for value in graph.outputs),
        overridable=tuple(_port(value) for value in graph.inputs if value.constant is not None and model.ir_version >= 4),
        nodes=sum(uses.values()),
        subgraphs=len(graphs) - 1 - len(model.functions),
        functions=tuple("::".join(part for part in key if part) for key in model.functions),
        parameters=sum(weight.elements for weight in weights),
        weight_bytes=sum(weight.bytes for weight in weights),
        weights_by_type=dict(by_type.most_common()),
        largest_weights=tuple(sorted(weights, key=lambda weight: -weight.bytes)[:largest]),
        operators=tuple(
            OperatorUse(
                _shown(domain),
                name,
                version % UNKNOWN_VERSION,
                count,
                _execution(domain, name, version, (domain, name) in functions),
            )
            for (domain, name, version), count in sorted(uses.items(), key=lambda item: (-item[1], item[0]))
        ),
        problems=problems,
    )


def _parse_type(text: str) -> Type:
    """A type in ONNX Runtime's words: `tensor(float)`, `seq(map(int64,tensor(float)))`."""
    head, opened, rest = text.strip().partition("(")
    inner = rest[:-1]
    if head == "tensor":
        return TensorType(dtypes.from_ort(inner))
    if head == "sparse_tensor":
        return SparseTensorType(dtypes.from_ort(inner))
    if head == "seq":
        return SequenceType(_parse_type(inner))
    if head == "optional":
        return OptionalType(_parse_type(inner))
    if head == "map":
        key, _, value = inner.partition(",")
        return MapType(dtypes.from_ort(key.strip()), _parse_type(value))
    if not opened:  # a map to scalars is written without tensor(...)
        return TensorType(dtypes.from_ort(head))
    raise errors.InvalidArgument(
        f"{text!r} is not a type", hint="tensor(float), seq(tensor(int64)), map(string,tensor(float)) ..."
    )


def _shown(domain: str) -> str:
    return domain or "ai.onnx"


def _execution(domain: str, name: str, version: int, is_function: bool = False) -> Execution:
    if is_function:
        return "function"
    definition = registry.lookup(domain, name, version)
    if definition is None:
        return "missing"
    if Trait.MEASURES in definition.traits or (not domain and name == "Constant"):
        return "known"  # no run computes it: it follows from the model and its sizes
    if Trait.CONTROL_FLOW in definition.traits:
        return "control"  # the nodes of its bodies run as they would elsewhere
    is_native = lowering.has_rule(domain, name, version) or has_layout_rule(domain, name) or is_expanded(domain, name)
    return "native" if is_native else "host"


def _operator(key: tuple[str, str], definitions: list[OpDef]) -> OperatorInfo:
    domain, name = key
    newest = signature.signature(domain, name, NEWEST)
    return OperatorInfo(
        domain=_shown(domain),
        name=name,
        versions=signature.versions(domain, name) or tuple(definition.since for definition in definitions),
        deprecated=newest is not None and newest.deprecated,
        inputs=tuple(map(_parameter_text, newest.inputs)) if newest else (),
        outputs=tuple(map(_parameter_text, newest.outputs)) if newest else (),
        attributes=tuple(newest.attributes) if newest else (),
        types=dict(newest.types) if newest else {},
        execution=_execution(domain, name, NEWEST) if definitions else "missing",
        evaluated_from=definitions[0].since if definitions else None,
        has_shape_rule=bool(definitions) and definitions[-1].infer is not None,
    )


def _parameter_text(parameter: signature.Parameter) -> str:
    mark = "?" if parameter.optional else "*" if parameter.variadic else ""
    return f"{parameter.name}{mark}: {parameter.type}"


def _port(value: Value) -> PortInfo:
    type_ = value.type
    return PortInfo(value.name, "unknown" if type_ is None else str(type_), "" if type_ is None else type_.ort, value.doc)


def _top_graphs(model: Model) -> Iterator[Graph]:
    yield model.graph
    for function in model.functions.values():
        yield function.graph


def _all_graphs(model: Model) -> Iterator[Graph]:
    for graph in _top_graphs(model):
        yield graph
        for node in walk(graph):
            yield from node.subgraphs()


def _weights(graph: Graph) -> Iterator[WeightInfo]:
    """The initializers of a graph, and the tensors of its Constant nodes: exporters use both."""
    for value in graph.initializers.values():
        yield _weight(value.name, value.constant)
    for node in graph.nodes:
        if node.op_type == "Constant" and not node.domain:
            for name in ("value", "sparse_value"):
                if node.attr(name) is not None:
                    yield _weight(node.outputs[0].name, node.attr(name))


def _weight(name: str, constant: Tensor | SparseConstant | None) -> WeightInfo:
    if isinstance(constant, SparseConstant):
        text = f"{constant.values.dtype.name}[{','.join(map(str, constant.shape))}] sparse"
        return WeightInfo(name, text, constant.values.size, constant.values.nbytes + constant.indices.nbytes)
    if constant is None:
        return WeightInfo(name, "unknown", 0, 0)
    text = f"{constant.dtype.name}[{','.join(map(str, constant.shape))}]"
    return WeightInfo(name, text, constant.size, constant.nbytes)
