"""Overrides of types, completed: an operator wants one type for all it reads and gives, so types are converted between operators.

{"op4_out": 16 bits}   with   op2 -> op4 -> op5 -> op6   becomes

op2_out   8 bits, converted to 16 for op4
op4_out   16 bits
op5_out   16 bits, converted to 8 for op6
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from sardonyx.ir.graph import Node
from sardonyx.ir.types import TensorType
from sardonyx.quantization.base_quantizer import REAL
from sardonyx.quantization.models import dense, read_model
from sardonyx.quantization.tensor_quant_overrides import QuantTypeInfo, TensorQuantOverridesHelper
from sardonyx.quantization.types import QuantType
from sardonyx.records import dataclass

logger = logging.getLogger(__name__)


@dataclass
class TensorTypeRequest:
    """The types a tensor is wanted with: by the node that gives it, and by nodes that read it."""

    producer: QuantTypeInfo | None = None
    consumed: QuantTypeInfo | None = None
    readers: set[str] = field(default_factory=set)


class MixedPrecisionTensorQuantOverridesFixer:
    """Completes overrides in place."""

    def __init__(
        self,
        overrides: TensorQuantOverridesHelper,
        producers: Mapping[str, Node],
        consumers: Mapping[str, Sequence[Node]],
        types: Mapping[str, Any],
        initializers: Mapping[str, Any],
    ) -> None:
        self.overrides = overrides
        self.producers = producers
        self.consumers = consumers
        self.types = types
        self.initializers = initializers

    @staticmethod
    def create_from_model(
        overrides: TensorQuantOverridesHelper, model: Any, default_activation_qtype: QuantType
    ) -> MixedPrecisionTensorQuantOverridesFixer:
        """One for a model, a path or an onnx.ModelProto; ValueError if the overrides do not fit it."""
        graph = read_model(model).graph
        consumers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for value in node.inputs:
                if value is not None:
                    consumers.setdefault(value.name, []).append(node)
        producers = {value.name: node for node in graph.nodes for value in node.outputs}
        values = (*graph.inputs, *(value for node in graph.nodes for value in node.outputs))
        initializers = {name: held for name, value in graph.initializers.items() if (held := dense(value)) is not None}
        fixer = MixedPrecisionTensorQuantOverridesFixer(
            overrides, producers, consumers, {value.name: value.type for value in values}, initializers
        )
        fixer._check("Provided", default_activation_qtype)
        return fixer

    def _check(self, what: str, default: QuantType) -> None:
        is_valid, complaint = self.overrides.is_valid(self.initializers, set(self.types), default)
        if not is_valid:
            logger.error("%s invalid tensor quantization overrides:\n%s", what, self.overrides.pprint_str(indent=4))
            raise ValueError(complaint)

    def _is_quantizable(self, name: str) -> bool:
        type_ = self.types.get(name)
        return name not in self.initializers and isinstance(type_, TensorType) and type_.dtype in REAL

    def apply(self, default_activation_qtype: QuantType, default_activation_symmetric: bool) -> None:
        """Complete the overrides."""
        default = QuantTypeInfo(default_activation_qtype)
        requests = self.get_desired_tensor_types(default_activation_qtype, default_activation_symmetric)
        for name, request in requests.items():
            readers = {node.name for node in self.consumers.get(name, ())}
            given, wanted = request.producer, request.consumed
            if given is not None and wanted is None:
                self._convert(name, given, default, readers)
            elif given is None and wanted is not None:
                given = self.overrides.get_node_output_qtype_info(name, default_activation_qtype)
                if given != wanted:
                    self._convert(name, given, wanted, request.readers)
                elif not self._reads_original(name, request.readers):
                    raise ValueError(f"Tensor override for '{name}' converts the type for consumers that need the original type.")
            elif given is not None and wanted is not None and given != wanted:
                self._convert(name, given, wanted, request.readers)
            elif given is not None:
                others = readers - request.readers
                if others:
                    self._convert(name, given, default, others)
                elif name not in self.overrides:
                    self.overrides[name] = [{}]
                    given.save_to_dict(self.overrides[name][0])
        self._check("Generated", default_activation_qtype)

    def get_desired_tensor_types(
        self, default_activation_qtype: QuantType, default_activation_symmetric: bool
    ) -> dict[str, TensorTypeRequest]:
        """The types that follow from the overrides, by tensor."""
        requests: dict[str, TensorTypeRequest] = {}
        default = QuantTypeInfo(default_activation_qtype, default_activation_symmetric)
        for name, given in self.overrides.items():
            if not self._is_quantizable(name) or len(given) != 1 or "convert" in given[0]:
                continue
            wanted = QuantTypeInfo.load_from_dict(given[0], default.quant_type)
            if wanted == default:
                continue
            producer = self.producers.get(name)
            for node in (*([] if producer is None else [producer]), *self.consumers.get(name, ())):
                self._request(requests, wanted, node)
        return requests

    def _request(self, requests: dict[str, TensorTypeRequest], wanted: QuantTypeInfo, node: Node) -> None:
        """Want one type for all that a node reads and gives."""
        for value in node.outputs:
            if self._is_quantizable(value.name):
                request = requests.setdefault(value.name, TensorTypeRequest())
                if request.producer is not None and request.producer != wanted:
                    raise ValueError(f"Tensor {value.name} has multiple types.")
                request.producer = wanted
        for given in node.inputs:
            if given is None or not self._is_quantizable(given.name):
                continue
            request = requests.setdefault(given.name, TensorTypeRequest())
            if request.consumed is not None and request.consumed != wanted:
                raise ValueError(f"Tensor {given.name} has consumers requesting different types.")
            if not node.name:
                raise ValueError(f"{node.label} does not have a name!")
            request.consumed = wanted
            request.readers.add(node.name)

    def _convert(self, name: str, given: QuantTypeInfo, wanted: QuantTypeInfo, readers: set[str]) -> None:
        """Let these nodes read a tensor with another type than the one it is given out with."""
        if not self.overrides.get(name):
            self.overrides[name] = [{}]
            given.save_to_dict(self.overrides[name][0])
        override = self.overrides[name][0]
        if given != QuantTypeInfo.load_from_dict(override):
            raise ValueError(f"Desired producer quant_type for {name} doesn't match existing type.")
        if not readers:
            return
        if "convert" not in override:
            override["convert"] = {}
            wanted.save_to_dict(override["convert"])
        if wanted != QuantTypeInfo.load_from_dict(override["convert"]):
            raise ValueError(f"Desired consumer quant_type for {name} doesn't match existing type.")
        override["convert"].setdefault("recv_nodes", set()).update(readers)

    def _reads_original(self, name: str, nodes: set[str]) -> bool:
        """Whether none of these nodes reads a tensor converted."""
        given = self.overrides.get(name)
        if not given or "convert" not in given[0]:
            return True
        readers = given[0]["convert"].get("recv_nodes")
        return readers is not None and not readers & nodes
