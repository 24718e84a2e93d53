"""`MatMulBnb4Quantizer`: weights as 4-bit floats (FP4) or normal floats (NF4), as bitsandbytes has them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import InvalidArgument
from sardonyx.ir.builder import make_attr
from sardonyx.ir.graph import Graph, Node, walk
from sardonyx.ir.tensor import Array
from sardonyx.quantization.arithmetic import block_count
from sardonyx.quantization.block_rewriting import home_of
from sardonyx.quantization.blocks import quantize_bnb4_into
from sardonyx.quantization.models import CONTRIB_OPERATORS, computed, dense, read_model, remove_unused_initializers
from sardonyx.quantization.onnx_model import ONNXModel

logger = logging.getLogger(__name__)


class MatMulBnb4Quantizer:
    """Quantizes the constant weights of MatMul of a model, a path or an onnx.ModelProto."""

    FP4 = 0
    NF4 = 1

    def __init__(self, model: Any, quant_type: int, block_size: int, nodes_to_exclude: Sequence[str] | None = None) -> None:
        if quant_type not in (self.FP4, self.NF4):
            raise InvalidArgument(f"quant_type is {quant_type}, expected 0 (FP4) or 1 (NF4)")
        if block_size < 1:
            raise InvalidArgument(f"block_size is {block_size}, expected 1 or more")
        self._ir = read_model(model)
        self._model: ONNXModel | None = None
        self.quant_type = quant_type
        self.block_size = block_size
        self.nodes_to_exclude = set(nodes_to_exclude or ())

    @property
    def model(self) -> ONNXModel:
        """The model as it is now."""
        if self._model is None:
            self._model = ONNXModel.of_ir(self._ir)
        return self._model

    def process(self) -> None:
        """Quantize the model."""
        for graph in (self._ir.graph, *(inner for node in walk(self._ir.graph) for inner in node.subgraphs())):
            for node in graph.nodes:
                if node.op_type == "MatMul" and not node.domain and node.name not in self.nodes_to_exclude:
                    self._rewrite(graph, node)
        remove_unused_initializers(self._ir.graph)
        self._ir.opset_imports.setdefault(CONTRIB_OPERATORS, 1)
        self._model = None

    def _rewrite(self, graph: Graph, node: Node) -> None:
        value = node.inputs[1]
        weight = dense(value)
        home = None if value is None else home_of(graph, value)
        if value is None or weight is None or home is None or len(weight.shape) != 2 or not weight.dtype.is_float:
            logger.debug("%s is not quantized: it has no constant matrix", node.label)
            return
        rows, columns = weight.shape
        count = rows * columns

        def parts(data: Array) -> tuple[Array, Array]:
            packed = np.zeros((count + 1) // 2, np.uint8)
            limits = np.zeros(block_count(count, self.block_size), data.dtype)
            flat = np.ascontiguousarray(data.T)
            quantize_bnb4_into(packed, flat, limits, self.block_size, self.quant_type, columns, rows)
            return packed, limits

        names = f"{value.name}_Bnb4", f"{value.name}_absmax"
        if names[0] not in home.initializers:
            shapes = ((count + 1) // 2,), (block_count(count, self.block_size),)
            home.add_initializer(names[0], computed(names[0], dtypes.UINT8, shapes[0], weight, lambda data: parts(data)[0]))
            home.add_initializer(names[1], computed(names[1], weight.dtype, shapes[1], weight, lambda data: parts(data)[1]))
        inputs = [node.inputs[0], *(home.initializers[name] for name in names)]
        settings = {"K": rows, "N": columns, "block_size": self.block_size, "quant_type": self.quant_type}
        attrs = [make_attr(name, number) for name, number in settings.items()]
        name = node.name and f"{node.name}_Bnb4"
        made = Node("MatMulBnb4", inputs, node.outputs, attrs, domain=CONTRIB_OPERATORS, version=1, name=name)
        graph.insert_before(node, made)
        for index in range(len(node.inputs)):
            node.set_input(index, None)
        graph.detach(node)
