"""From a model with a loss to a training model and an evaluation model, both with their parameters as inputs.

    forward model                training model                                        evaluation model
    inputs: x, labels            x, labels, w, w_grad.accumulation.buffer, lazy_reset_grad    x, labels, w
    initializers: w       =>     loss, w_grad.accumulation.out                         loss
    outputs: loss

Gradients are added up in buffers: `InPlaceAccumulatorV2(buffer, w_grad, lazy_reset_grad)`, as in ONNX Runtime's training models.
In the evaluation model Dropout and BatchNormalization have no training mode. Running statistics of batch normalisation are
parameters that are not trained, but change: the training model gives them out (`NAME.running.out`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from sardonyx import dtypes, errors
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.ir.builder import make_attr
from sardonyx.ir.clone import Cloner
from sardonyx.ir.graph import Graph, Model, Node, Value
from sardonyx.ir.tensor import Tensor
from sardonyx.ir.types import TensorType
from sardonyx.records import dataclass
from sardonyx.training.differentiate import differentiate

Array = np.ndarray[Any, Any]

MICROSOFT: Final = "com.microsoft"
RESET: Final = "lazy_reset_grad"
GRADIENT: Final = "_grad"
BUFFER: Final = "_grad.accumulation.buffer"
ACCUMULATED: Final = "_grad.accumulation.out"
RUNNING: Final = ".running.out"
_STATISTICS: Final = (3, 4)  # the inputs of BatchNormalization that are running statistics; outputs 1 and 2 are the new ones


@dataclass(frozen=True)
class TrainingModels:
    """What training needs of a model. The parameters are arrays of the model they were taken from: read-only."""

    training: Model
    evaluation: Model
    trainable: Mapping[str, Array]
    frozen: Mapping[str, Array]


def copied(model: Model) -> Model:
    """A model whose graph may be changed; constants are shared."""
    return dataclasses.replace(model, graph=Cloner().graph(model.graph), opset_imports=dict(model.opset_imports))


def named_value(graph: Graph, name: str) -> Value | None:
    """The value of this name: an input, an initializer or what a node makes."""
    for value in (*graph.inputs, *graph.initializers.values()):
        if value.name == name:
            return value
    return next((value for node in graph.nodes for value in node.outputs if value.name == name), None)


def with_outputs(model: Model, names: Sequence[str]) -> Model:
    """The same model with these values as its outputs, all types inferred; LookupError if there is no such value."""
    made = copied(model)
    infer_shapes(made)
    values = []
    for name in names:
        value = named_value(made.graph, name)
        if value is None:
            raise LookupError(f"The provided name {name} is not a graph value info or a graph output.")
        values.append(value)
    made.graph.outputs[:] = values
    return made


def build_training_models(
    model: Model, trainable: Collection[str], frozen: Collection[str], *, statistics: bool = True
) -> TrainingModels:
    """Training and evaluation model of a model whose first output is the loss.

    `trainable` are the initializers (or inputs) that get gradients, `frozen` those that are parameters without; all others stay
    constants. `statistics`: running statistics of batch normalisation in training mode are frozen parameters, too.
    """
    whole = copied(model)
    graph = whole.graph
    if statistics:
        frozen = [*frozen, *(name for name in _running(graph) if name not in trainable and name not in frozen)]
    _check_names(graph, trainable, frozen)
    arrays = _to_inputs(graph, {*trainable, *frozen})
    infer_shapes(whole)
    evaluation = copied(whole)
    _leave_training_mode(evaluation.graph)
    _differentiate(whole, [value.name for value in graph.inputs if value.name in trainable])
    _give_statistics(graph, arrays)
    whole.opset_imports.update({MICROSOFT: 1, "sardonyx": 1})
    return TrainingModels(
        whole,
        evaluation,
        {name: array for name, array in arrays.items() if name in trainable},
        {name: array for name, array in arrays.items() if name not in trainable},
    )


def _check_names(graph: Graph, trainable: Collection[str], frozen: Collection[str]) -> None:
    known = {**graph.initializers, **{value.name: value for value in graph.inputs}}
    for name in (*trainable, *frozen):
        if name not in known:
            raise errors.InvalidArgument(
                f"the model has no parameter {name!r}",
                hint=f"its initializers are {', '.join(sorted(graph.initializers)) or 'none'}",
            )
    for name in trainable:
        type_ = known[name].type
        if isinstance(type_, TensorType) and not type_.dtype.is_float:
            raise errors.InvalidArgument(f"parameter {name!r} is {type_}: only floating-point parameters have gradients")


def _to_inputs(graph: Graph, names: Collection[str]) -> dict[str, Array]:
    """Make initializers inputs, in their order; their arrays."""
    arrays: dict[str, Array] = {}
    inputs = set(graph.inputs)
    for name, value in list(graph.initializers.items()):
        if name not in names:
            continue
        held = value.constant
        if not isinstance(held, Tensor):
            raise errors.InvalidArgument(f"parameter {name!r} is sparse, expected a dense tensor")
        arrays[name] = held.numpy()
        del graph.initializers[name]
        value.constant = None
        value.type = TensorType(held.dtype, held.shape)
        if value not in inputs:
            graph.inputs.append(value)
    return arrays


def _running(graph: Graph) -> list[str]:
    """The initializers that are running statistics of a batch normalisation in training mode."""
    found: dict[str, None] = {}
    for node in graph.nodes:
        if node.op_type == "BatchNormalization" and node.attr("training_mode", 0):
            values = [node.inputs[position] for position in _STATISTICS]
            found.update(dict.fromkeys(value.name for value in values if value is not None and value.name in graph.initializers))
    return list(found)


def _give_statistics(graph: Graph, parameters: Mapping[str, Array]) -> None:
    """Make the new running statistics outputs, behind all others."""
    for node in list(graph.nodes):
        if node.op_type != "BatchNormalization" or not node.attr("training_mode", 0):
            continue
        for position, output in zip(_STATISTICS, node.outputs[1:3]):
            value = node.inputs[position]
            if value is None or value.name not in parameters:
                continue
            copy = Value(f"{value.name}{RUNNING}", value.type)
            graph.append(Node("Identity", [output], [copy], version=node.version))
            graph.outputs.append(copy)


def _leave_training_mode(graph: Graph) -> None:
    for node in list(graph.nodes):
        if node.op_type == "Dropout" and len(node.inputs) > 2:
            node.set_input(2, None)
        elif node.op_type == "BatchNormalization" and node.attr("training_mode", 0):
            _normalise_by_statistics(graph, node)


def _normalise_by_statistics(graph: Graph, node: Node) -> None:
    used = [value.name for value in node.outputs[1:] if value.consumers or value in graph.outputs]
    if used:
        raise errors.InvalidArgument(
            f"{node.label}: its statistics {', '.join(used)} are read, and an evaluation model has none",
            hint="take them out of the model's outputs",
        )
    attrs = [make_attr("training_mode", 0) if attr.name == "training_mode" else attr for attr in node.attrs.values()]
    result = Value("", node.outputs[0].type)
    graph.insert_before(
        node,
        Node(node.op_type, list(node.inputs), [result], attrs=attrs, name=node.name, domain=node.domain, version=node.version),
    )
    old = node.outputs[0]
    graph.replace_uses(old, result)
    result.name, old.name = old.name, ""
    graph.remove(node)


def _differentiate(model: Model, names: Sequence[str]) -> None:
    """Add gradients of the first output, and accumulators of them."""
    graph = model.graph
    loss = graph.outputs[0]
    wanted = [value for name in names for value in graph.inputs if value.name == name]
    if not wanted:
        _add_reset(graph)
        return
    gradients = differentiate(graph, [loss], wanted, version=model.opset_imports.get("", 0))
    missing = [value.name for value, gradient in zip(wanted, gradients.inputs) if gradient is None]
    if missing:
        raise errors.InvalidArgument(
            f"the loss {loss.name!r} does not depend on {', '.join(missing)}, which require a gradient", hint="freeze them"
        )
    reset = Value(RESET, TensorType(dtypes.BOOL, (1,)))
    version = max((node.version for node in graph.nodes if not node.domain), default=13)
    for number, (value, gradient) in enumerate(zip(wanted, gradients.inputs)):
        assert gradient is not None
        named = Value(f"{value.name}{GRADIENT}", value.type)
        graph.append(Node("Identity", [gradient], [named], version=version))
        buffer, flag = (
            Value(f"{value.name}{BUFFER}", value.type),
            Value(f"{value.name}{ACCUMULATED}", TensorType(dtypes.BOOL, (1,))),
        )
        name = f"GradientAccumulator{number}"
        graph.append(Node("InPlaceAccumulatorV2", [buffer, named, reset], [flag], name=name, domain=MICROSOFT, version=1))
        graph.inputs.append(buffer)
        graph.outputs.append(flag)
    graph.inputs.append(reset)


def _add_reset(graph: Graph) -> None:
    graph.inputs.append(Value(RESET, TensorType(dtypes.BOOL, (1,))))
