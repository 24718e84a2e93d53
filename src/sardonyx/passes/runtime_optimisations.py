"""Rewritings that a converted model can leave for whoever loads it: found here for saving, and replayed from a file.

    ConvActivationFusion           Conv, then Relu, Clip, ...            =>   com.microsoft.FusedConv
    MatMulNBitsFusion              MatMulNBits, then Add of a bias       =>   MatMulNBits with that bias
    QDQSelectorActionTransformer   DequantizeLinear, op, QuantizeLinear  =>   the operator on quantized values

The names of optimisers and actions are ONNX Runtime's, so that either engine replays what the other has found. A record is
passed over if one of its nodes is gone, or is not what the action is about; an action that nobody knows is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import Fail
from sardonyx.ir.graph import Model, Node, Value
from sardonyx.ir.saved_optimisation import SavedOptimisation
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, all_graphs, dtype_of

_CONV: Final = "ConvActivationFusion"
_NBITS: Final = "MatMulNBitsFusion"
_QDQ: Final = "QDQSelectorActionTransformer"
_ACTIVATIONS: Final = ("Clip", "HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh")
_QUANTIZED: Final = (dtypes.INT8, dtypes.UINT8)

# Operator -> action, how many inputs are dequantized (-1: all of them), identifier of what it makes
_QDQ_ACTIONS: Final = {
    "Add": ("2DQ", 2, "com.microsoft:QLinearAdd:1"),
    "AveragePool": ("1DQ", 1, "com.microsoft:QLinearAveragePool:1"),
    "Concat": ("*DQ", -1, "com.microsoft:QLinearConcat:1"),
    "Conv": ("Conv", 3, ":QLinearConv:10"),
    "DepthToSpace": ("drop", 1, ""),
    "Expand": ("drop", 1, ""),
    "Flatten": ("drop", 1, ""),
    "Gather": ("drop", 1, ""),
    "GatherElements": ("drop", 1, ""),
    "Gemm": ("Gemm", 3, "com.microsoft:QGemm:1"),
    "GlobalAveragePool": ("1DQ", 1, "com.microsoft:QLinearGlobalAveragePool:1"),
    "LeakyRelu": ("1DQ_CPU", 1, "com.microsoft:QLinearLeakyRelu:1"),
    "MatMul": ("MatMul", 2, ":QLinearMatMul:10"),
    "MaxPool": ("drop_no_int16_support_and_positive_scale", 1, ""),
    "Mul": ("2DQ", 2, "com.microsoft:QLinearMul:1"),
    "Reshape": ("drop", 1, ""),
    "Sigmoid": ("1DQ", 1, "com.microsoft:QLinearSigmoid:1"),
    "Slice": ("drop", 1, ""),
    "Softmax": ("1DQ_CPU", 1, "com.microsoft:QLinearSoftmax:1"),
    "Squeeze": ("drop", 1, ""),
    "Tile": ("drop", 1, ""),
    "Transpose": ("drop", 1, ""),
    "Unsqueeze": ("drop", 1, ""),
}


def find_optimisations(model: Model) -> list[SavedOptimisation]:
    """What could be rewritten in a model, each node in one place at most."""
    g = Rewriter(model)
    found: list[SavedOptimisation] = []
    taken: set[Node] = set()
    for search in (_quantized, _convolutions, _products):
        for graph in g.graphs():
            for node in graph.nodes:
                for record in search(g, node) if node not in taken else ():
                    targets = [each for each in record.nodes[record.input_count :] if each is not None]
                    if taken.isdisjoint(targets):
                        taken.update(targets)
                        found.append(record)
    return found


def _follower(g: Rewriter, node: Node, operators: Sequence[str]) -> Node | None:
    """The only reader of a node's only output, if it is one of these operators."""
    if len(node.outputs) != 1 or not g.is_private(node.outputs[0]):
        return None
    (reader,) = node.outputs[0].consumers
    is_one = reader.op_type in operators and not reader.domain and reader.graph is node.graph
    return reader if is_one and reader.inputs[0] is node.outputs[0] else None


def _convolutions(g: Rewriter, node: Node) -> Iterator[SavedOptimisation]:
    if node.op_type == "Conv" and not node.domain and dtype_of(node.outputs[0]) is dtypes.FLOAT32:
        activation = _follower(g, node, _ACTIVATIONS)
        if activation is not None and _activation_parameters(g, activation) is not None:
            yield SavedOptimisation(_CONV, "ConvAct", (node, activation), 0, 1, produced=("com.microsoft:FusedConv:1",))


def _products(g: Rewriter, node: Node) -> Iterator[SavedOptimisation]:
    if node.op_type == "MatMulNBits" and node.domain == MICROSOFT:
        add = _follower(g, node, ("Add",))
        if add is not None and _bias(g, node, add) is not None:
            yield SavedOptimisation(_NBITS, "FuseBias", (node, add), 0, 1)


def _quantized(g: Rewriter, node: Node) -> Iterator[SavedOptimisation]:
    action, count, produced = _QDQ_ACTIONS.get(node.op_type, ("", 0, ""))
    if not action or node.domain:
        return
    count = len(node.inputs) if count < 0 else count
    sources = [_producer(value) for value in node.inputs[:count]]
    sources += [None] * (count - len(sources))
    optional = 1 if node.op_type in ("Conv", "Gemm") else 0
    if any(each is None for each in sources[: count - optional]):
        return
    if optional and sources[-1] is None and len(node.inputs) >= count:  # a bias that is not quantized
        return
    if any(each is not None and dtype_of(each.inputs[0]) not in _QUANTIZED for each in sources[: count - optional]):
        return
    if optional and sources[-1] is not None and dtype_of(sources[-1].inputs[0]) is not dtypes.INT32:
        return
    sink = _follower(g, node, ("QuantizeLinear",))
    if sink is None or dtype_of(sink.outputs[0]) not in _QUANTIZED:
        return
    first = sources[0]
    assert first is not None
    if action.startswith("drop") and not _same_quantization(g, first, sink):
        return
    is_variadic = action == "*DQ"
    yield SavedOptimisation(
        _QDQ,
        action,
        (*sources, node, sink),
        1 if is_variadic else count,
        1,
        num_variadic_inputs=count if is_variadic else 0,
        has_variadic_input=is_variadic,
        produced=(produced,) if produced else (),
    )


def _producer(value: Value | None) -> Node | None:
    node = None if value is None else value.producer
    is_one = node is not None and node.op_type == "DequantizeLinear" and not node.domain and len(node.inputs) == 3
    return node if is_one else None


def _same_quantization(g: Rewriter, source: Node, sink: Node) -> bool:
    if dtype_of(source.inputs[0]) is not dtype_of(sink.outputs[0]) or len(sink.inputs) != 3:
        return False
    pairs = [(g.array(a), g.array(b)) for a, b in zip(source.inputs[1:], sink.inputs[1:])]
    return all(a is not None and b is not None and a.shape == b.shape == () and bool(a == b) for a, b in pairs)


def replay_optimisations(model: Model, records: Sequence[SavedOptimisation]) -> int:
    """Rewrite a model as records say; how many of them applied."""
    applied = 0
    g = Rewriter(model)
    graphs = set(map(id, all_graphs(model)))
    for record in records:
        action = _REPLAY.get((record.optimiser, record.action))
        if action is None:
            raise Fail(f"the model has a saved optimisation {record.action!r} of {record.optimiser}, which is not known")
        target = record.nodes[record.input_count]
        expected = [each for each in record.nodes if each is not None]
        if target is None or any(each.graph is None or id(each.graph) not in graphs for each in expected):
            continue
        before, after = record.nodes[: record.input_count], record.nodes[record.input_count + 1 :]
        if not _fits(record, target, before, after):
            continue
        if action(g.at(after[-1] or target if after else target), target, before, after):
            applied += 1
    return applied


def _fits(record: SavedOptimisation, target: Node, before: Sequence[Node | None], after: Sequence[Node | None]) -> bool:
    """Whether the nodes are those that the action is about, connected as they were."""
    if record.optimiser == _QDQ:
        shift = 1 if target.op_type == "Where" else 0
        for index, source in enumerate(before):
            if source is not None and (
                source.op_type != "DequantizeLinear"
                or len(source.inputs) != 3
                or len(target.inputs) <= index + shift
                or target.inputs[index + shift] is not source.outputs[0]
            ):
                return False
        for sink, output in zip(after, target.outputs):
            if sink is None or sink.op_type != "QuantizeLinear" or len(sink.inputs) != 3 or sink.inputs[0] is not output:
                return False
            if len(output.uses) != 1:
                return False
        return True
    return all(each is not None and len(target.outputs[0].uses) == 1 and target.outputs[0] in each.inputs for each in after)


def _finish(g: Rewriter, made: Sequence[Value], outputs: Sequence[Value], gone: Sequence[Node | None]) -> bool:
    for new, old in zip(made, outputs):
        g.replace(old, new)
    for node in gone:
        if node is not None and node.graph is not None and not any(value.uses or g.is_output(value) for value in node.outputs):
            g.discard(node)
    return True


def _attrs(node: Node) -> dict[str, Any]:
    return {name: attr.value for name, attr in node.attrs.items() if attr.value is not None}


def _triple(source: Node) -> tuple[Value | None, ...]:
    """A quantized value with its scale and zero point."""
    return source.inputs[:3]


def _activation_parameters(g: Rewriter, node: Node) -> list[float] | None:
    """What FusedConv wants to know of an activation; None: it cannot be told."""
    if node.op_type == "LeakyRelu":
        return [float(node.attr("alpha", 0.01))]
    if node.op_type == "HardSigmoid":
        return [float(node.attr("alpha", 0.2)), float(node.attr("beta", 0.5))]
    if node.op_type == "Clip":
        lowest = float(np.finfo(np.float32).min)
        if node.version < 11:
            return [float(node.attr("min", lowest)), float(node.attr("max", -lowest))]
        bounds = [lowest, -lowest]
        for index, value in enumerate(node.inputs[1:3]):
            if value is not None:
                number = g.number(value)
                if number is None:
                    return None
                bounds[index] = number
        return bounds
    return []


def _replay_conv(g: Rewriter, target: Node, before: Sequence[Node | None], after: Sequence[Node | None]) -> bool:
    (activation,) = after
    assert activation is not None
    parameters = _activation_parameters(g, activation)
    if target.op_type != "Conv" or activation.op_type not in _ACTIVATIONS or parameters is None:
        return False
    more: dict[str, Any] = {"activation_params": parameters} if parameters else {}
    made = g.op("FusedConv", *target.inputs, domain=MICROSOFT, activation=activation.op_type, **_attrs(target), **more)
    return _finish(g, [made], activation.outputs, [activation, target])


def _bias(g: Rewriter, node: Node, add: Node) -> Value | None:
    other = add.inputs[1] if add.inputs[0] is node.outputs[0] else add.inputs[0]
    held = g.constant_of(other)
    has_bias = len(node.inputs) > 5 and node.inputs[5] is not None
    fits = held is not None and held.shape == (node.attr("N"),) and not has_bias
    return other if fits else None


def _replay_bias(g: Rewriter, target: Node, before: Sequence[Node | None], after: Sequence[Node | None]) -> bool:
    (add,) = after
    assert add is not None
    bias = _bias(g, target, add) if target.op_type == "MatMulNBits" and add.op_type == "Add" else None
    if bias is None:
        return False
    inputs = [*target.inputs[:5], *[None] * (5 - len(target.inputs)), bias]
    made = g.op("MatMulNBits", *inputs, domain=MICROSOFT, **_attrs(target))
    return _finish(g, [made], add.outputs, [add, target])


def _replay_drop(g: Rewriter, target: Node, before: Sequence[Node | None], after: Sequence[Node | None]) -> bool:
    (source,) = before
    assert source is not None
    made = g.clone(target, [source.inputs[0], *target.inputs[1:]])
    outputs = [sink.outputs[0] for sink in after if sink is not None] if after else target.outputs
    return _finish(g, made, outputs, [*after, target, source])


def _replay_linear(g: Rewriter, target: Node, before: Sequence[Node | None], after: Sequence[Node | None]) -> bool:
    """One or two quantized inputs: X, its scale and zero point, ..., scale and zero point of the result."""
    sink = after[0]
    assert sink is not None
    triples = [value for source in before if source is not None for value in _triple(source)]
    attrs = _attrs(target)
    if target.op_type == "Softmax":
        attrs["opset"] = target.version
    made = g.op(f"QLinear{target.op_type}", *triples, *sink.inputs[1:3], domain=MICROSOFT, **attrs)
    return _finish(g, [made], sink.outputs, [sink, target, *before])


def _replay_concat(g: Rewriter, target: Node, before: Sequence[Node | None], after: Sequence[Node | None]) -> bool:
    sink = after[0]
    assert sink is not None
    triples = [value for source in before if source is not None for value in _triple(source)]
    made = g.op("QLinearConcat", *sink.inputs[1:3], *triples, domain=MICROSOFT, **_attrs(target))
    return _finish(g, [made], sink.outputs, [sink, target, *before])


def _replay_qconv(g: Rewriter, target: Node, before: Sequence[Node | None], after: Sequence[Node | None]) -> bool:
    x, w, bias = before
    sink = after[0]
    assert x is not None
    assert w is not None
    assert sink is not None
    inputs = [*_triple(x), *_triple(w), *sink.inputs[1:3], *([] if bias is None else bias.inputs[:1])]
    made = g.op("QLinearConv", *inputs, **_attrs(target))
    return _finish(g, [made], sink.outputs, [sink, target, *before])


def _replay_matmul(g: Rewriter, target: Node, before: Sequence[Node | None], after: Sequence[Node | None]) -> bool:
    a, b = before
    assert a is not None
    assert b is not None
    if after:
        sink = after[0]
        assert sink is not None
        made = g.op("QLinearMatMul", *_triple(a), *_triple(b), *sink.inputs[1:3])
        return _finish(g, [made], sink.outputs, [sink, target, a, b])
    inputs = (a.inputs[0], b.inputs[0], a.inputs[1], b.inputs[1], a.inputs[2], b.inputs[2])
    made = g.op("MatMulIntegerToFloat", *inputs, domain=MICROSOFT)
    return _finish(g, [made], target.outputs, [target, a, b])


def _replay_gemm(g: Rewriter, target: Node, before: Sequence[Node | None], after: Sequence[Node | None]) -> bool:
    a, b, c = before
    assert a is not None
    assert b is not None
    scale = after[0].inputs[1:3] if after and after[0] is not None else ()
    inputs: list[Value | None] = [*_triple(a), *_triple(b), None if c is None else c.inputs[0], *scale]
    while inputs and inputs[-1] is None:
        inputs.pop()
    attrs = {name: value for name, value in _attrs(target).items() if name != "beta"}
    made = g.op("QGemm", *inputs, domain=MICROSOFT, **attrs)
    outputs = after[0].outputs if after and after[0] is not None else target.outputs
    return _finish(g, [made], outputs, [*after, target, *before])


def _replay_where(g: Rewriter, target: Node, before: Sequence[Node | None], after: Sequence[Node | None]) -> bool:
    sink = after[0]
    assert sink is not None
    triples = [value for source in before if source is not None for value in _triple(source)]
    made = g.op("QLinearWhere", target.inputs[0], *triples, *sink.inputs[1:3], domain=MICROSOFT)
    return _finish(g, [made], sink.outputs, [sink, target, *before])


_Replay = Callable[[Rewriter, Node, Sequence["Node | None"], Sequence["Node | None"]], bool]
_REPLAY: Final[dict[tuple[str, str], _Replay]] = {
    (_CONV, "ConvAct"): _replay_conv,
    (_NBITS, "FuseBias"): _replay_bias,
    (_QDQ, "drop"): _replay_drop,
    (_QDQ, "drop_no_int16_support"): _replay_drop,
    (_QDQ, "drop_no_int16_support_and_positive_scale"): _replay_drop,
    (_QDQ, "dropDQ"): _replay_drop,
    (_QDQ, "dropSplitQDQ"): _replay_drop,
    (_QDQ, "1DQ"): _replay_linear,
    (_QDQ, "1DQ_CPU"): _replay_linear,
    (_QDQ, "2DQ"): _replay_linear,
    (_QDQ, "*DQ"): _replay_concat,
    (_QDQ, "Conv"): _replay_qconv,
    (_QDQ, "MatMul"): _replay_matmul,
    (_QDQ, "Gemm"): _replay_gemm,
    (_QDQ, "Where"): _replay_where,
}
