"""A graph with the attributes of ONNX's messages, for programs that look at one through ONNX Runtime's interface.

    view.opset_import[0].version      view.graph.node[0].op_type      view.graph.input[0].type.tensor_type.shape.dim[0].dim_param

`onnx.load_model_from_string(view.SerializeToString())` gives the message itself.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sardonyx.formats.onnx import to_bytes
from sardonyx.ir.graph import Model, Node, Value
from sardonyx.ir.types import TensorType


class ModelView:
    """A model as ONNX's ModelProto shows it; nothing can be changed through it."""

    def __init__(self, model: Model) -> None:
        self.model = model

    @property
    def opset_import(self) -> list[Any]:
        """The operator sets, the default domain first."""
        imports = sorted(self.model.opset_imports.items(), key=lambda item: item[0])
        return [SimpleNamespace(domain=domain, version=version) for domain, version in imports]

    @property
    def graph(self) -> Any:
        """The graph: its nodes, inputs and outputs."""
        graph = self.model.graph
        return SimpleNamespace(
            name=graph.name,
            node=[_node(node) for node in graph.nodes],
            input=[_value(value) for value in graph.inputs],
            output=[_value(value) for value in graph.outputs],
        )

    def SerializeToString(self) -> bytes:  # noqa: N802 - the name that readers of models call
        """The model's bytes."""
        return to_bytes(self.model)


def _node(node: Node) -> Any:
    return SimpleNamespace(
        op_type=node.op_type,
        domain=node.domain,
        name=node.name,
        input=["" if value is None else value.name for value in node.inputs],
        output=[value.name for value in node.outputs],
    )


def _value(value: Value) -> Any:
    dims = value.shape or ()
    shape = SimpleNamespace(dim=[SimpleNamespace(dim_param="" if isinstance(dim, int) else str(dim)) for dim in dims])
    code = value.type.dtype.onnx if isinstance(value.type, TensorType) else 0
    return SimpleNamespace(name=value.name, type=SimpleNamespace(tensor_type=SimpleNamespace(elem_type=code, shape=shape)))
