"""A graph as the file has it: names instead of links. `read` fills these, `link` turns them into the IR."""

from __future__ import annotations

from typing import Final, NamedTuple

from sardonyx.ir.graph import Attr, Node, SparseConstant
from sardonyx.ir.tensor import Tensor
from sardonyx.ir.types import Type

DENOTATION: Final = "onnx.denotation"  # metadata of values: see formats/onnx/types.py
DIM_PARAM: Final = "onnx.dim_param"


class ValueRecord(NamedTuple):
    """What a file says about a value: an input, an output, or a value_info entry."""

    name: str
    type: Type | None = None
    doc: str = ""
    metadata: dict[str, str] | None = None


class ConstantRecord(NamedTuple):
    """An initializer."""

    name: str
    constant: Tensor | SparseConstant
    doc: str = ""
    metadata: dict[str, str] | None = None


class NodeRecord:
    """An operator call; GRAPH attributes hold a GraphRecord, GRAPHS a tuple of them."""

    __slots__ = (
        "attrs", "doc", "domain", "has_subgraphs", "inputs", "linked", "metadata", "name", "op_type", "outputs", "overload",
        "since",
    )  # fmt: skip

    def __init__(self) -> None:
        self.op_type = ""
        self.domain = ""
        self.name = ""
        self.overload = ""
        self.doc = ""
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.attrs: list[Attr] = []
        self.metadata: dict[str, str] = {}
        self.has_subgraphs = False
        self.linked: Node | None = None  # what it has become
        self.since = 0  # the version of the operator's definition, in files that state it for each node

    @property
    def label(self) -> str:
        """How messages call this node; the same as ir.graph.Node.label."""
        op = f"{self.domain}::{self.op_type}" if self.domain else self.op_type
        name = self.name or next((f"-> {output}" for output in self.outputs if output), "")
        return f"{op} {name!r}" if name else op


class GraphRecord:
    """A graph, a subgraph, or the body of a function."""

    __slots__ = ("annotations", "doc", "infos", "initializers", "inputs", "metadata", "name", "nodes", "outputs")

    def __init__(self) -> None:
        self.name = ""
        self.doc = ""
        self.nodes: list[NodeRecord] = []
        self.inputs: list[ValueRecord] = []
        self.outputs: list[ValueRecord] = []
        self.infos: list[ValueRecord] = []
        self.initializers: list[ConstantRecord] = []
        self.metadata: dict[str, str] = {}
        self.annotations: dict[str, dict[str, str]] = {}  # tensor name: quantization parameters


class FunctionRecord:
    """A model-local function."""

    __slots__ = ("attributes", "body", "defaults", "doc", "domain", "imports", "metadata", "name", "overload")

    def __init__(self) -> None:
        self.domain = ""
        self.name = ""
        self.overload = ""
        self.doc = ""
        self.body = GraphRecord()
        self.attributes: list[str] = []
        self.defaults: list[Attr] = []
        self.imports: dict[str, int] = {}
        self.metadata: dict[str, str] = {}
