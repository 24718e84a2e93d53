"""Takes operators of training apart into ones that have kernels, once gradients are in the graph.

    y, m, v = BatchNormalization(x, s, b, mean, var) {training_mode = 1}     sums over the batch, and elementwise operators
    y = ConvTranspose(x, w)                                                  ConvGradData, if the weights are no constant
    l, p = SoftmaxCrossEntropyLoss(x, t)                                     LogSoftmax, and a Gather of the labels' rows
    y, k = Dropout(x, ratio, true)                                           RandomMask of a seed, and a Where
    l, g = CTCLoss(x, labels, lengths, lengths)                              two Scans over time (`sequence_loss.py`)

Sub-expressions are written as the gradient rules write them, so that both share what is equal: the mean and the centred values
of a batch norm are computed once. The mask of a Dropout is a function of a seed and the position of an element: the backward
pass computes it again instead of keeping it.
"""

from __future__ import annotations

import numpy as np

from sardonyx.analysis.attributes import attribute_values
from sardonyx.dtypes import BOOL, INT64
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.graph import Graph, Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.training.gradients.losses import label_weights, labels_without_ignored, without_ignored
from sardonyx.training.gradients.norms import channel_statistics, of_channels
from sardonyx.training.gradients.rules import DOMAIN, Backward, Term, dtype_of
from sardonyx.training.sequence_loss import ways_of_sequences

SEED = "random_seed"  # the input that random operators read: one 64-bit integer


def expand_training_operators(graph: Graph, version: int) -> bool:
    """Rewrite a graph in place; whether it has an input for random seeds now, which is its last one."""
    seed: Value | None = None
    for node in list(graph.nodes):
        if node.domain == DOMAIN and node.op_type == "CTCLoss":
            b = _at(graph, node, version)
            _replace(b, ways_of_sequences(b))
        if node.domain:
            continue
        if node.op_type == "BatchNormalization" and node.version >= 14 and node.attr("training_mode", 0):
            _batch_normalization(_at(graph, node, version))
        elif node.op_type in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"):
            _loss(_at(graph, node, version))
        elif node.op_type == "ConvTranspose":
            _conv_transpose(_at(graph, node, version))
        elif node.op_type == "Dropout" and node.version >= 12 and len(node.inputs) > 2 and node.inputs[2] is not None:
            b = _at(graph, node, version)
            trains = b.constant(2)
            if trains is None or not bool(trains):
                continue
            if seed is None:
                seed = Value(b.g.fresh_name(SEED), TensorType(INT64, ()))
                graph.inputs.append(seed)
            _dropout(b, seed, sum(each.op_type == "RandomMask" for each in graph.nodes))
    return seed is not None


def _at(graph: Graph, node: Node, version: int) -> Backward:
    """A builder that puts nodes before this one."""
    return Backward(GraphBuilder(graph, version, before=node), node, [], [])


def _replace(b: Backward, results: list[Value | None]) -> None:
    """The node's outputs are these from now on."""
    graph, node = b.g.graph, b.node
    for old, new in zip(list(node.outputs), results):
        if new is None:
            continue
        made = b.Identity(new) if new.producer is None or new in graph.outputs else new
        made.type = old.type
        graph.replace_uses(old, made)
    graph.remove(node)


def _batch_normalization(b: Backward) -> None:
    rank, momentum = b.rank(b.x()), float(b.attr("momentum"))
    found = channel_statistics(b)
    scale, bias = of_channels(b, b.x(1), rank), of_channels(b, b.x(2), rank)
    y = found.centred * found.inverse * scale + bias
    axes = b.ints(0, *range(2, rank))
    results: list[Value | None] = [y.value]
    for index, batch in ((3, found.mean), (4, found.variance)):
        if len(b.node.outputs) <= index - 2:
            break
        now = Term(b, b.Squeeze(batch.value, axes), batch.dtype)
        kept = b.t(b.x(index))
        if kept.dtype is not now.dtype:
            now = Term(b, b.Cast(now.value, to=kept.dtype.onnx), kept.dtype)
        results.append((kept * momentum + now * (1 - momentum)).value)
    _replace(b, results)


def _loss(b: Backward) -> None:
    """The labels' logarithms by GatherElements, which refuses labels that are out of range."""
    logarithms = b.t(b.x())
    if b.node.op_type == "SoftmaxCrossEntropyLoss":
        logarithms = logarithms.apply("LogSoftmax", axis=1)
    labels, weights = labels_without_ignored(b, b.x(1)), label_weights(b)
    picked = b.GatherElements(logarithms.value, b.Unsqueeze(labels, b.ints(1)), axis=1)
    loss = without_ignored(b, -(Term(b, b.Squeeze(picked, b.ints(1)), logarithms.dtype) * weights))
    if attribute_values(b.node)["reduction"] != "none":
        loss = loss.apply("ReduceSum", keepdims=0)
        if attribute_values(b.node)["reduction"] == "mean":
            loss = loss / weights.apply("ReduceSum", keepdims=0)
    _replace(b, [loss.value, logarithms.value])


def _conv_transpose(b: Backward) -> None:
    """A transposed convolution is the gradient of a convolution, whose input has the shape of its result."""
    shape, attrs = b.shape(b.x()), attribute_values(b.node)
    kernel = b.shape(b.x(1))[2:]
    known = all(isinstance(size, int) for size in kernel)
    if (
        b.constant(1) is not None
        or attrs.get("output_shape")
        or not known
        or attrs.get("auto_pad") not in (None, "NOTSET", "VALID")
    ):
        return
    rank = len(shape) - 2
    pads = [0] * (2 * rank) if attrs.get("auto_pad") == "VALID" else list(attrs.get("pads") or [0] * (2 * rank))
    strides, dilations = list(attrs.get("strides") or [1] * rank), list(attrs.get("dilations") or [1] * rank)
    more, group = list(attrs.get("output_padding") or [0] * rank), int(attrs["group"])
    reach = [
        (int(str(size)) - 1) * dilations[axis] + 1 + more[axis] - pads[axis] - pads[axis + rank] - strides[axis]
        for axis, size in enumerate(kernel)
    ]
    sizes = b.Add(b.Mul(b.sizes(b.x(), *range(2, rank + 2)), b.ints(*strides)), b.ints(*reach))
    channels = b.Mul(b.sizes(b.x(1), 1), b.ints(group))
    whole = b.Concat(b.sizes(b.x(), 0), channels, sizes, axis=0)
    made = b.own("ConvGradData", b.x(), b.x(1), whole, group=group, pads=pads, strides=strides, dilations=dilations)
    if b.has(2):
        made = b.Add(made, of_channels(b, b.x(2), rank + 2).value)
    _replace(b, [made])


def _dropout(b: Backward, seed: Value, number: int) -> None:
    x, dtype = b.t(b.x()), dtype_of(b.x())
    given = b.constant(1)
    ratio: Value | np.ndarray[tuple[int, ...], np.dtype[np.float32]]
    if not b.has(1) or given is not None:
        share = 0.5 if given is None else float(given.reshape(()))
        scaled = x * (1 / (1 - share)) if share < 1 else x
        ratio = np.array(share, np.float32)
    else:
        kept = b.Cast(b.Sub(np.ones((), dtype_of(b.x(1)).numpy), b.x(1)), to=dtype.onnx)
        scaled = x / Term(b, kept, dtype)
        ratio = b.Cast(b.x(1), to=1)
    mask = b.own("RandomMask", b.Shape(b.x()), seed, ratio, stream=number)
    mask.type = TensorType(BOOL, b.x().shape)
    results: list[Value | None] = [scaled.select(mask).value]
    if len(b.node.outputs) > 1:
        results.append(mask)
    _replace(b, results)
