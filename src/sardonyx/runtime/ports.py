"""How a session describes its model: inputs and outputs, metadata, and who computes which node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from sardonyx.formats.program.description import Description
from sardonyx.ir.dims import Dim, fresh
from sardonyx.ir.graph import Model
from sardonyx.ir.types import OptionalType, SequenceType, SparseTensorType, TensorType, Type
from sardonyx.plan.ports import Port
from sardonyx.program.calls import HostNode
from sardonyx.records import dataclass

NO_VERSION: Final = (1 << 63) - 1  # what ONNX Runtime reports for a model that states no version
_DIM_PARAM: Final = "onnx.dim_param."


@dataclass(frozen=True)
class NodeArg:
    """An input or output of a model.

    `type` is ONNX Runtime's name for the type, as in tensor(float). `shape` has a number for a fixed size, a name for a
    symbolic one, None for an unknown one; it is empty for scalars, unknown ranks and values that are no tensors.
    """

    name: str
    type: str
    shape: list[int | str | None]

    @classmethod
    def of(cls, name: str, type: Type | None, metadata: Mapping[str, str] | None = None) -> NodeArg:
        """The description of a value of the graph; its metadata has the names of dimensions such as "?", which name nothing."""
        if type is None:
            return cls(name, "", [])
        inner: Type = type
        while isinstance(inner, (OptionalType, SequenceType)):
            inner = inner.element
        shaped = isinstance(type, (TensorType, SparseTensorType))
        dims = inner.shape if shaped and isinstance(inner, (TensorType, SparseTensorType)) else None
        named = metadata or {}
        return cls(name, type.ort, [_size(dim, named.get(f"{_DIM_PARAM}{axis}")) for axis, dim in enumerate(dims or ())])


def _size(dim: Dim, written: str | None) -> int | str | None:
    if isinstance(dim, int):
        return dim
    return written if dim.is_anonymous else str(dim)


def declared_type(declared: Type | None, inferred: Type | None) -> Type | None:
    """The type a model states for an output, made more precise by what was inferred.

    Its own names stay; where it contradicts the inference, in a size or the rank, nothing is known, as in ONNX Runtime.
    """
    if declared is None or inferred is None:
        return declared or inferred
    if not isinstance(declared, TensorType) or not isinstance(inferred, TensorType):
        return declared
    if declared.shape is None or inferred.shape is None:
        return declared if inferred.shape is None else inferred
    if len(declared.shape) != len(inferred.shape):
        return TensorType(declared.dtype)
    return TensorType(declared.dtype, tuple(map(_more_precise, declared.shape, inferred.shape)))


def _more_precise(declared: Dim, inferred: Dim) -> Dim:
    if isinstance(declared, int):
        return fresh() if isinstance(inferred, int) and inferred != declared else declared
    return inferred if isinstance(inferred, int) or declared.is_anonymous else declared


@dataclass(frozen=True)
class ModelMetadata:
    """What a model says about itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int  # NO_VERSION if the model states none (a stated 0 counts as none)
    custom_metadata_map: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model) -> ModelMetadata:
        """The metadata of a model as it was read."""
        graph = model.graph
        version = model.model_version or NO_VERSION
        return cls(model.producer_name, graph.name, model.domain, model.doc, graph.doc, version, dict(model.metadata))


@dataclass(frozen=True)
class ModelDescription:
    """How a model describes itself to the users of a session."""

    inputs: list[NodeArg]
    outputs: list[NodeArg]
    overridable: list[NodeArg]
    metadata: ModelMetadata

    @classmethod
    def of(
        cls,
        ports: tuple[Sequence[Port], Sequence[Port], Sequence[Port]],
        declared: Mapping[str, Type | None],
        written: Mapping[str, Mapping[str, str]],
        metadata: ModelMetadata,
    ) -> ModelDescription:
        """What is told of a program with these inputs, outputs and replaceable initializers.

        `declared` has the types that the model states of its outputs, `written` the metadata of inputs and outputs.
        """
        inputs, outputs, overridable = ports
        return cls(
            inputs=[NodeArg.of(port.name, port.type, written.get(port.name)) for port in inputs],
            outputs=[
                NodeArg.of(port.name, declared_type(declared.get(port.name), port.type), written.get(port.name))
                for port in outputs
            ],
            overridable=[NodeArg.of(port.name, port.type, written.get(port.name)) for port in overridable],
            metadata=metadata,
        )


def to_plain(ports: Sequence[Sequence[Port]], description: ModelDescription) -> Description:
    """Ports (inputs, outputs, overridable initializers) and a description as a program file holds them."""
    described = (description.inputs, description.outputs, description.overridable)
    data = description.metadata
    return Description(
        tuple([(port.name, port.type) for port in group] for group in ports),
        tuple([(each.name, each.type, each.shape) for each in group] for group in described),
        (data.producer_name, data.graph_name, data.domain, data.description, data.graph_description),
        data.version,
        data.custom_metadata_map,
    )


def from_plain(plain: Description) -> tuple[tuple[tuple[Port, ...], ...], ModelDescription]:
    """The ports and the description that a program file holds."""
    ports = tuple(tuple(Port(name, type) for name, type in group) for group in plain.typed)
    described = [[NodeArg(name, type, list(shape)) for name, type, shape in group] for group in plain.arguments]
    metadata = ModelMetadata(*plain.texts, plain.version, dict(plain.metadata))
    return ports, ModelDescription(described[0], described[1], described[2], metadata)


@dataclass(frozen=True)
class OrtEpAssignedNode:
    """A node and its operator."""

    name: str
    domain: str
    op_type: str


@dataclass(frozen=True)
class OrtEpAssignedSubgraph:
    """Nodes that one execution provider computes together."""

    ep_name: str
    nodes: tuple[OrtEpAssignedNode, ...]

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        """The nodes, in the order they run."""
        return list(self.nodes)

    @classmethod
    def of(cls, node: HostNode) -> OrtEpAssignedSubgraph:
        """The assignment of one node, or of the region it stands for."""
        return cls(node.provider, tuple(OrtEpAssignedNode(each.name, each.domain, each.op_type) for each in node.computes))
