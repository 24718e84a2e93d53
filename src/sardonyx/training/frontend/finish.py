"""The exporter's graph made ready for training: inputs by their sources, outputs of their own, running statistics as outputs.

    y = BatchNormalization(x, scale, bias, mean, var; training_mode=1, momentum=0.9)
 =>
    y, batch_mean, batch_var = BatchNormalization(x, scale, bias, mean, var; training_mode=1, momentum=0)
    updated mean = 0.9 * mean + 0.1 * batch_mean
    updated var  = 0.9 * var  + 0.1 * batch_var * n / (n - 1)         torch's running variance is that of a sample

A layer that is called twice updates its statistics twice, one after the other. A layer without momentum (an average over all
batches) weighs a batch by 1 / (number of batches so far).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch

from sardonyx import dtypes
from sardonyx.ir.builder import GraphBuilder, make_attr
from sardonyx.ir.graph import Graph, Model, Node, Value, max_version, needed_nodes, walk
from sardonyx.ir.types import TensorType
from sardonyx.training.flatten import Schema
from sardonyx.training.frontend.exported import ExportedGraph, ExportError, GraphInput, InputSource
from sardonyx.training.gradients.rules import STOP_GRADIENT
from sardonyx.training.size_guards import SizeGuards
from sardonyx.training.training_graph import copied

_WIDER_TYPES: Final = frozenset(  # operators that opset 22 gave bfloat16
    {
        "AveragePool", "Conv", "ConvTranspose", "Elu", "GlobalAveragePool", "GlobalMaxPool", "GRU", "HardSigmoid", "HardSwish",
        "InstanceNormalization", "LpNormalization", "LpPool", "LSTM", "MaxPool", "Mish", "RNN", "Selu", "Softplus", "Softsign",
        "ThresholdedRelu", "Cos", "Sin", "Tan", "Acos", "Asin", "Atan", "Round", "EyeLike",
    }
)  # fmt: skip
_COUNTER: Final = "num_batches_tracked"


def finished_graph(
    model: Model,
    *,
    module: torch.nn.Module,
    prefix: str,
    user_inputs: Sequence[str],
    output_schema: Schema,
    output_count: int,
    written_buffers: Sequence[str],
    changed_buffers: Sequence[str],
    fixed_by_sizes: tuple[str, ...],
    decisions: Sequence[Any] = (),
) -> ExportedGraph:
    """The graph with what is needed to call it; `prefix` starts the exporter's names of parameters and buffers."""
    graph = model.graph
    expected = output_count + len(written_buffers) + len(decisions)
    if len(graph.outputs) != expected:
        raise ExportError(f"the exporter gave {len(graph.outputs)} outputs, expected {expected}")
    _take_own_operators(graph)
    _resize_to_sizes(graph)
    _take_bfloat16(graph)
    guards = _guards(model, expected - len(decisions), decisions, prefix) if decisions else None
    sources = _Sources(graph, module, prefix, user_inputs)
    traced = dict(zip(written_buffers, graph.outputs[output_count:], strict=True))
    del graph.outputs[output_count:]
    statistics = _RunningStatistics(graph, sources, module)
    updates = dict(statistics.updates)
    counters = {name: count for name, count in statistics.counters.items() if name in traced}
    for name in (*traced, *changed_buffers):
        if name in updates or name in counters:
            continue
        value = traced.get(name)
        if value is None or value is sources.values.get(name):
            raise ExportError(
                f"the module changes its buffer {name!r} in a way that the exporter cannot see: compute the new value with "
                "tensor operations and copy it into the buffer"
            )
        updates[name] = value
    graph.outputs.extend(updates.values())
    _separate_outputs(graph, output_count)
    _remove_unneeded_nodes(graph)
    return ExportedGraph(
        model,
        sources.used(),
        output_schema,
        output_count,
        tuple(updates),
        tuple(counters.items()),
        fixed_by_sizes,
        guards,
    )


def _guards(model: Model, first: int, decisions: Sequence[Any], prefix: str) -> SizeGuards:
    """Takes what sizes decided out of a graph, the outputs from `first` on, as a model of its own."""
    own = copied(model)
    del own.graph.outputs[:first]
    del model.graph.outputs[first:]
    _separate_outputs(own.graph, 0)
    _remove_unneeded_nodes(own.graph)
    outputs = set(own.graph.outputs)
    own.graph.inputs = [value for value in own.graph.inputs if value.uses or value in outputs]
    for value in own.graph.inputs:
        value.name = value.name.removeprefix(prefix)
    return SizeGuards(own, decisions)


def _take_own_operators(graph: Graph) -> None:
    """Nodes of our own domain (see symbolics.py) as ONNX's; StopGradient is an Identity, with a mark."""
    for node in walk(graph):
        if node.domain != "sardonyx":
            continue
        if node.op_type == "StopGradient":
            node.domain, node.op_type, node.version = "", "Identity", max_version(graph)
            node.metadata[STOP_GRADIENT] = "1"
        elif node.op_type.startswith("Bitwise"):
            node.domain, node.version = "", max(max_version(graph), 18)
        elif node.op_type == "GridSample":
            node.domain, node.version = "", max(max_version(graph), 20)


def _take_bfloat16(graph: Graph) -> None:
    """Layers that take bfloat16 since opset 22 and mean the same since long are written as of then, if something is of it."""
    codes = [node.attr("to", 0) for node in walk(graph) if node.op_type == "Cast"]
    types = [value.type.dtype for value in graph.inputs if isinstance(value.type, TensorType)]
    if dtypes.BFLOAT16.onnx not in codes and dtypes.BFLOAT16 not in types:
        return
    for node in walk(graph):
        if not node.domain and node.op_type in _WIDER_TYPES:
            node.version = max(node.version, 22)


def _resize_to_sizes(graph: Graph) -> None:
    """With aligned corners torch measures by the rounded size of the result, ONNX by the scale: Resize is given the sizes."""
    for node in list(graph.nodes):
        if node.op_type != "Resize" or node.attr("coordinate_transformation_mode", "") != "align_corners":
            continue
        x, scales = node.inputs[0], node.inputs[2] if len(node.inputs) > 2 else None
        if x is None or scales is None or (len(node.inputs) > 3 and node.inputs[3] is not None):
            continue
        g = GraphBuilder(graph, max_version(graph), before=node)
        pixels = np.array([2]), np.array([np.iinfo(np.int64).max]), np.array([0])  # of a shape, behind batch and channels
        scaled = g.Mul(g.Cast(g.Slice(g.Shape(x), *pixels), to=dtypes.FLOAT32.onnx), g.Slice(scales, *pixels))
        images = g.Slice(g.Shape(x), np.array([0]), np.array([2]), np.array([0]))
        sizes = g.Concat(images, g.Cast(g.Floor(scaled), to=dtypes.INT64.onnx), axis=0)
        attrs = {name: attr.value for name, attr in node.attrs.items()}
        made = g.op("Resize", x, None, None, sizes, version=node.version, **attrs)
        made.type = node.outputs[0].type
        graph.replace_uses(node.outputs[0], made)
        graph.remove(node)


class _Sources:
    """The graph inputs by what they stand for; names lose the exporter's prefix."""

    def __init__(self, graph: Graph, module: torch.nn.Module, prefix: str, user_inputs: Sequence[str]) -> None:
        self._graph = graph
        self._parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
        self._leaves = {name: index for index, name in enumerate(user_inputs)}
        self._inputs: dict[Value, GraphInput] = {}
        self.values: dict[str, Value] = {}  # of parameters and buffers, by name
        for value in graph.inputs:
            if value.name in self._leaves:
                self._inputs[value] = GraphInput(value.name, InputSource.USER, value.name, self._leaves[value.name])
            elif value.name.startswith(prefix):
                origin = value.name.removeprefix(prefix)
                if origin not in self._leaves:
                    value.name = origin
                self._add(value, origin)
            else:
                raise ExportError(f"the exporter's graph has an input {value.name!r} that is neither an input nor a parameter")

    def _add(self, value: Value, origin: str) -> None:
        source = InputSource.PARAMETER if origin in self._parameters else InputSource.BUFFER
        self._inputs[value] = GraphInput(value.name, source, origin)
        self.values[origin] = value

    def origin_of_buffer(self, value: Value | None) -> str | None:
        """The name of the buffer that a value is, if it is one."""
        found = self._inputs.get(value) if value is not None else None
        return found.origin if found is not None and found.source is InputSource.BUFFER else None

    def buffer(self, name: str, tensor: torch.Tensor) -> Value:
        """The graph input of a buffer, added if the module's own graph does not read it."""
        if name not in self.values:
            value = Value(name, TensorType(dtypes.INT64, tuple(tensor.shape)))
            self._graph.inputs.append(value)
            self._add(value, name)
        return self.values[name]

    def used(self) -> tuple[GraphInput, ...]:
        """The inputs that something reads, in the graph's order; the others are taken out."""
        outputs = set(self._graph.outputs)
        self._graph.inputs = [value for value in self._graph.inputs if value.uses or value in outputs]
        return tuple(self._inputs[value] for value in self._graph.inputs)


class _RunningStatistics:
    """Makes the new running statistics of batch normalization values of the graph."""

    def __init__(self, graph: Graph, sources: _Sources, module: torch.nn.Module) -> None:
        self.updates: dict[str, Value] = {}  # buffer -> its new value
        self.counters: dict[str, int] = {}  # counter -> number of calls
        self._sources = sources
        self._module = module
        nodes = [
            node
            for node in walk(graph)
            if node.op_type == "BatchNormalization" and not node.domain and node.attr("training_mode", 0)
        ]
        if nodes:
            self._g = GraphBuilder(graph, max_version(graph))
        for node in nodes:
            mean, variance = (sources.origin_of_buffer(node.inputs[index]) for index in (3, 4))
            if mean is not None and variance is not None and node.graph is graph:
                self._update(node, mean, variance)

    def _update(self, node: Node, mean: str, variance: str) -> None:
        x, old_mean, old_variance = node.inputs[0], node.inputs[3], node.inputs[4]
        assert x is not None
        assert old_mean is not None
        assert old_variance is not None
        g = self._g
        dtype = old_mean.type.dtype if isinstance(old_mean.type, TensorType) else dtypes.FLOAT32
        momentum = float(node.attr("momentum", 0.9))
        node.attrs["momentum"] = make_attr("momentum", 0.0)
        while len(node.outputs) < 3:
            extra = Value(g.fresh_name(f"{node.outputs[0].name}_statistic"))
            extra.producer, extra.index = node, len(node.outputs)
            node.outputs.append(extra)
        for each in node.outputs[1:3]:
            each.type = old_mean.type
            if not each.name:
                each.name = g.fresh_name(f"{node.outputs[0].name}_statistic")
        new_weight: Any = np.asarray(1 - momentum, dtype.numpy)
        old_weight: Any = np.asarray(momentum, dtype.numpy)
        one = np.asarray(1, dtype.numpy)
        owner, _, _ = mean.rpartition(".")
        layer = self._module.get_submodule(owner)
        counter = f"{owner}.{_COUNTER}" if owner else _COUNTER
        self.counters[counter] = self.counters.get(counter, 0) + 1
        if getattr(layer, "momentum", 0.0) is None:
            tracked = self._sources.buffer(counter, getattr(layer, _COUNTER))
            calls = np.asarray(self.counters[counter], dtype.numpy)
            new_weight = g.Div(one, g.Add(g.Cast(tracked, to=dtype.onnx), calls))
            old_weight = g.Sub(one, new_weight)
        count = g.Div(g.Cast(g.Size(x), to=dtype.onnx), g.Cast(g.Size(old_mean), to=dtype.onnx))
        sample_weight = g.Mul(new_weight, g.Div(count, g.Sub(count, one)))
        for name, old, batch, weight in (
            (mean, old_mean, node.outputs[1], new_weight),
            (variance, old_variance, node.outputs[2], sample_weight),
        ):
            self.updates[name] = g.Add(g.Mul(self.updates.get(name, old), old_weight), g.Mul(batch, weight))


def _separate_outputs(graph: Graph, count: int) -> None:
    """Each output is the result of a node, and of no other output: inputs, constants and repetitions get an Identity."""
    g = GraphBuilder(graph, max_version(graph))
    seen: set[Value] = set()
    for index, value in enumerate(graph.outputs):
        if value.producer is None or value in seen:
            graph.outputs[index] = g.Identity(value)
            graph.outputs[index].type = value.type
        seen.add(graph.outputs[index])
    for index, value in enumerate(graph.outputs[:count]):
        value.name = g.fresh_name(f"output-{index}")


def _remove_unneeded_nodes(graph: Graph) -> None:
    nodes = list(graph.nodes)
    needed = set(needed_nodes(nodes, graph.outputs))
    for node in reversed(nodes):
        if node not in needed:
            graph.remove(node)
