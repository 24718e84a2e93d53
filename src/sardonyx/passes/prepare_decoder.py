"""Bring a decoder with past and present into the form the decoder loop runs: caches with room, fixed switches, the last logits.

    past: f32[B,N,P,H] (input)                             past: f32[B,N,room,H] (input), filled: bool[P] (input)
    present = Concat(past, new) (axis 2, output)     =>    present, all = sardonyx::AppendToCache(past, new, filled)
    ... = ...(present) ...                                 ... = ...(all) ...

    y = If(use_cache_branch) {...} {...}             =>    one of the branches, where the caller has fixed the input
    logits = MatMul(h: f32[B,S,D], w)                =>    logits = MatMul(Gather(Reshape(h), rows: i64[B,1]), w)

Runs before everything else, where the session's configuration entries ask for it: it changes what the model takes and gives.
Caches of keys and values in one tensor are divided first (`unpack_caches`), those that attention appends to are written out
(`write_out_caches`). GroupQueryAttention has a cache with room by
itself and stays. A past that other nodes than its Concat compute with stays, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from sardonyx import dtypes, errors
from sardonyx.ir.dims import Dim, symbol
from sardonyx.ir.graph import ONNX_DOMAIN, Graph, Model, Node, Value, walk
from sardonyx.ir.tensor import Tensor, from_numpy
from sardonyx.ir.types import TensorType
from sardonyx.options import CACHES_KEY, FIXED_KEY, LAST_KEY
from sardonyx.passes.fold_constants import inline_branch
from sardonyx.passes.inline_functions import InlineFunctions
from sardonyx.passes.rewriter import MICROSOFT, Rewriter
from sardonyx.passes.unpack_caches import unpack_caches
from sardonyx.passes.write_out_caches import write_out_caches

FILLED: Final = "sardonyx.filled"  # bool[P]: its length is how many positions of the caches are filled
ROWS: Final = "sardonyx.rows"  # i64[B,1]: rows of the flattened batch whose logits are wanted
ROOM: Final = "sardonyx.room"

# What may stand between the product with the vocabulary and the logits: elementwise, with constants of one element.
_AFTER_PRODUCT: Final = frozenset(("Cast", "Div", "Mul", "Tanh", "Identity"))


def prepare_decoder(model: Model, entries: Mapping[str, str]) -> None:
    """Change the model as the configuration entries of a session ask for."""
    fixed, caches, last = (entries.get(key, "") for key in (FIXED_KEY, CACHES_KEY, LAST_KEY))
    if not (fixed or last or caches == "1"):
        return
    InlineFunctions().run(model)
    if fixed:
        _fix_inputs(model, fixed)
    if caches == "1":
        _give_room(model)
    if last:
        _compute_last(model, last)


def _fix_inputs(model: Model, text: str) -> None:
    """Turn inputs into constants, and take the branches that they choose."""
    graph = model.graph
    for item in text.split(","):
        name, _, number = item.partition("=")
        value = next((each for each in graph.inputs if each.name == name), None)
        if value is None or not isinstance(value.type, TensorType):
            raise errors.InvalidArgument(f"{FIXED_KEY}: the model has no input {name!r}")
        sizes = [size if isinstance(size, int) else 1 for size in value.type.shape or ()]
        data = np.full(sizes, float(number or 0)).astype(value.type.dtype.numpy)
        graph.inputs.remove(value)
        graph.replace_uses(value, graph.add_initializer(f"{name} is {number}", from_numpy(data)))
    while True:
        g = Rewriter(model)
        found = [node for node in walk(graph) if node.op_type == "If" and node.domain == ONNX_DOMAIN]
        if not any(inline_branch(g.at(node), node) for node in found):
            break
    # What only the other branch reads or gives: an empty constant stands for keys and values that do not change.
    graph.outputs[:] = [value for value in graph.outputs if not _is_constant(value)]
    graph.inputs[:] = [value for value in graph.inputs if value.uses or value in graph.outputs]


def _is_constant(value: Value) -> bool:
    return value.constant is not None or (value.producer is not None and value.producer.op_type == "Constant")


def _give_room(model: Model) -> None:
    graph = model.graph
    g = Rewriter(model)
    unpack_caches(g)
    write_out_caches(g)
    filled: dict[str, Value] = {}  # by the symbol of the filled length
    for past in list(graph.inputs):
        concat = _append_of(graph, past)
        if concat is None:
            continue
        assert isinstance(past.type, TensorType)
        batch, heads, length, size = past.type.shape or ()
        marker = filled.get(str(length))
        if marker is None:
            name = FILLED if not filled else f"{FILLED}.{len(filled)}"
            marker = filled[str(length)] = Value(name, TensorType(dtypes.BOOL, (length,)))
            graph.inputs.append(marker)
        past.type = TensorType(past.type.dtype, (batch, heads, symbol(ROOM), size))
        _append(g, past, concat, marker)


def _append_of(graph: Graph, past: Value) -> Node | None:
    """The Concat that puts new positions behind this past and gives the result out, if nothing else computes with either."""
    if not isinstance(past.type, TensorType) or past.constant is not None or len(past.type.shape or ()) != 4:
        return None
    if isinstance((past.type.shape or ())[2], int):
        return None
    concats = [node for node, _ in past.uses if node.op_type == "Concat" and node.domain == ONNX_DOMAIN]
    if len(concats) != 1 or any(node.op_type not in ("Concat", "Shape") for node, _ in past.uses) or past in graph.outputs:
        return None
    node = concats[0]
    fits = node.graph is graph and len(node.inputs) == 2 and node.inputs[0] is past and node.attr("axis") in (2, -2)
    return node if fits and node.inputs[1] is not past and _given_out(graph, node.outputs[0]) is not None else None


def _given_out(graph: Graph, value: Value) -> Value | None:
    """The output of the graph that is this value, or another name of it."""
    names = [value, *(node.outputs[0] for node, _ in value.uses if node.op_type == "Identity" and node.graph is graph)]
    found = [name for name in names if name in graph.outputs]
    return found[0] if len(found) == 1 and graph.outputs.count(found[0]) == 1 else None


def _append(g: Rewriter, past: Value, concat: Node, filled: Value) -> None:
    graph = g.model.graph
    old = concat.outputs[0]
    present, every = g.at(concat).node("AppendToCache", (past, concat.inputs[1], filled), 2, domain="sardonyx")
    for node in [node for node, _ in past.uses if node.op_type == "Shape"]:
        g.at(node)
        zero, axis = (g.constant(np.array([number], np.int64)) for number in (0, 2))
        part = g.op("Slice", past, zero, g.op("Shape", filled), axis)
        node.set_input(0, part)
    given = _given_out(graph, old)
    assert given is not None
    position = graph.outputs.index(given)
    graph.outputs[position] = present
    for value in {given, old}:
        graph.replace_uses(value, every)
    graph.outputs[position] = present
    present.name, given.name = given.name, present.name
    if given is not old and given.producer is not None:
        graph.remove(given.producer)
    graph.remove(concat)


def _compute_last(model: Model, name: str) -> None:
    """Compute an output for the rows that a new input names; a model in another form gives all of them, as before."""
    graph = model.graph
    logits = next((value for value in graph.outputs if value.name == name), None)
    if logits is None:
        raise errors.InvalidArgument(f"{LAST_KEY}: the model has no output {name!r}")
    node = logits.producer
    while node is not None and node.op_type in _AFTER_PRODUCT and node.domain == ONNX_DOMAIN and _reads_numbers(node):
        first = node.inputs[0]
        node = None if first is None else first.producer
    if node is None or node.graph is not graph:
        return
    depth = _depth(node)
    hidden = node.inputs[0]
    batch = _batch(graph)
    if depth is None or hidden is None or batch is None:
        return
    rows = Value(ROWS, TensorType(dtypes.INT64, (batch, 1)))
    graph.inputs.append(rows)
    g = Rewriter(model).at(node)
    flat = g.op("Reshape", hidden, g.constant(np.array([-1, depth], np.int64), "flat"))
    node.set_input(0, g.op("Gather", flat, rows, axis=0))
    for value in (logits, *node.outputs):
        value.type = None


def _reads_numbers(node: Node) -> bool:
    given = [value.constant for value in node.inputs[1:] if value is not None]
    return all(isinstance(held, Tensor) and held.size == 1 for held in given)


def _depth(node: Node) -> int | None:
    """The depth of a product whose second operand is a constant."""
    if node.op_type == "MatMulNBits" and node.domain == MICROSOFT:
        return int(node.attr("K"))
    weight = node.inputs[1] if node.op_type == "MatMul" and node.domain == ONNX_DOMAIN else None
    while weight is not None and weight.constant is None:
        maker = weight.producer
        if maker is None or maker.op_type not in ("Transpose", "Cast", "DequantizeLinear"):
            return None
        shape = weight.shape
        if shape is not None and len(shape) == 2 and isinstance(shape[0], int):
            return shape[0]
        if maker.op_type == "Transpose":
            inner = maker.inputs[0]
            known = None if inner is None else inner.shape if inner.constant is None else inner.constant.shape
            return known[1] if known is not None and len(known) == 2 and isinstance(known[1], int) else None
        weight = maker.inputs[0]
    shape = None if weight is None or weight.constant is None else weight.constant.shape
    return int(shape[0]) if shape is not None and len(shape) == 2 else None


def _batch(graph: Graph) -> Dim | None:
    for value in graph.inputs:
        if value.name in ("input_ids", "inputs_embeds") and value.shape is not None and len(value.shape) >= 2:
            return value.shape[0]
    return None
