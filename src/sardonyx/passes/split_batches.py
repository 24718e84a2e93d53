"""Chains of layers whose batch does not fit the caches go through it part by part.

    a = BlockedConv(x: f32[8,...], v)            =>   x0, x1, ... = Split(x) {axis = 0}
    b = BlockedConv(a, w)                             b0 = BlockedConv(BlockedConv(x0, v), w);  b1 = ...
                                                      b = Concat(b0, b1, ...) {axis = 0}

The wide first layers of a net write and read tens of megabytes for a batch of eight; one image of them stays in the caches, and
the arena needs room for one. Parts are views of the batch, and written where they stay, so nothing is copied. Runs after
AssignLayout, on neighbouring nodes that compute every image by itself. Leaves alone: batches of unknown size, chains of a layer
or two, layers with more weights than images, which would be read for every part, and chains most of whose values are read
elsewhere, too (those of a training step are, by the gradients).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar, Final

import numpy as np

from sardonyx.ir.builder import make_attr
from sardonyx.ir.graph import Graph, Model, Node, Value, is_constant
from sardonyx.ir.types import TensorType
from sardonyx.ops.indexing.layout import DOMAIN
from sardonyx.passes.layout_region import STANDARD_VERSION, is_elementwise
from sardonyx.passes.protocol import PassResult
from sardonyx.passes.rewriter import Rewriter
from sardonyx.records import dataclass
from sardonyx.target.levels import generic
from sardonyx.target.target import Target

_LAYERS: Final = frozenset(("BlockedConv", "BlockedConvTranspose", "BlockedPool", "BlockedResize"))
_OF_ONE_IMAGE: Final = _LAYERS | frozenset(("BlockedGlobalPool", "FromBlocked", "ToBlocked"))  # other inputs are no images
_OF_ALL_IMAGES: Final = frozenset(("BlockedConcat",))
_FEWEST_LAYERS: Final = 3  # of a chain that something stays in the caches for
_MOST_PARTS: Final = 16
_MOST_NODES: Final = 1000  # that a chain becomes: each is lowered by itself
_SHARE: Final = 8  # of the last cache, which other cores use, too, and weights: what a layer may read and write of a part


@dataclass(frozen=True)
class SplitBatches:
    """Ensures: no chain of layers writes and reads a batch that does not fit the caches where a part of it would."""

    target: Target = generic("x86-64-v3")  # the pipeline sets it to what code is made for
    name: ClassVar[str] = "SplitBatches"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = _LAYERS

    def run(self, model: Model) -> PassResult:
        """Change the model in place; its types must be inferred."""
        g = Rewriter(model)
        changes = 0
        caches = self.target.caches
        for run in _runs(model.graph, caches.l2 // 16):
            chain = _chain(g, run, caches.l3 // _SHARE)
            if chain is not None:
                _divide(g, model.graph, chain)
                changes += 1
        return PassResult(changes > 0, (), changes)


@dataclass(frozen=True)
class _Chain:
    """Neighbouring nodes, and the images of each part."""

    nodes: tuple[Node, ...]
    images: tuple[int, ...]


def _runs(graph: Graph, few_weights: int) -> list[list[Node]]:
    """The longest runs of nodes that compute every image of one batch by itself, with weights that may be read for each."""
    runs: list[list[Node]] = []
    batch = 0
    for node in graph.nodes:
        own = _batch(graph, node)
        if own and _weights(graph, node) > max(few_weights, _bytes(node) // own):
            own = 0
        if own and own == batch:
            runs[-1].append(node)
        elif own:
            runs.append([node])
        batch = own
    return runs


def _batch(graph: Graph, node: Node) -> int:
    """The number of images that a node computes one by one; 0 if it does not."""
    read = [value for value in node.inputs if value is not None and not is_constant(value, graph)]
    if node.is_kept or not _is_image_by_image(node, read):
        return 0
    shapes = [value.shape for value in (*read, *node.outputs)]
    if any(not shape or any(not isinstance(size, int) for size in shape) for shape in shapes):
        return 0
    batches = {int(str(shape[0])) for shape in shapes if shape}
    if len(batches) > 1 or 1 in batches or 0 in batches:
        return 0
    if node.domain != DOMAIN:  # operands are broadcast from their last axes on
        rank = len(node.outputs[0].shape or ())
        constants = [value.shape for value in node.inputs if value is not None and is_constant(value, graph)]
        if any(len(value.shape or ()) != rank for value in read):
            return 0
        if any(shape is None or (len(shape) == rank and shape[0] != 1) for shape in constants):
            return 0
    return batches.pop() if batches else 0


def _is_image_by_image(node: Node, read: Sequence[Value]) -> bool:
    """Whether a node works on images, and these inputs, which are not constant, are all images."""
    if node.domain != DOMAIN:
        return is_elementwise(node)
    return node.op_type in _OF_ALL_IMAGES or (node.op_type in _OF_ONE_IMAGE and read == [node.inputs[0]])


def _chain(g: Rewriter, run: Sequence[Node], room: int) -> _Chain | None:
    """The part of a run that is worth dividing."""
    large = [number for number, node in enumerate(run) if _is_layer(node) and _bytes(node) > room]
    if not large:
        return None
    first, last = large[0], large[-1]
    while last + 1 < len(run) and is_elementwise(run[last + 1]):  # they are computed together with the layer
        last += 1
    nodes = tuple(run[first : last + 1])
    inside = set(nodes)
    leaving = {value for node in nodes for value in node.outputs if _leaves(g, value, inside)}
    staying = sum(_size(node.outputs[0]) for node in nodes if _is_layer(node) and node.outputs[0] not in leaving)
    if sum(map(_is_layer, nodes)) < _FEWEST_LAYERS or staying <= sum(map(_size, leaving)):
        return None
    shape = nodes[0].outputs[0].shape
    assert shape is not None
    batch = int(str(shape[0]))
    wanted = -(-max(_bytes(node) for node in nodes if _is_layer(node)) // room)
    parts = min(batch, wanted, _MOST_PARTS, _MOST_NODES // len(nodes))
    if parts < 2:
        return None
    return _Chain(nodes, tuple(batch * (part + 1) // parts - batch * part // parts for part in range(parts)))


def _leaves(g: Rewriter, value: Value, inside: set[Node]) -> bool:
    """Whether others than these nodes read a value."""
    return g.is_output(value) or any(reader not in inside for reader, _ in value.uses)


def _is_layer(node: Node) -> bool:
    return node.domain == DOMAIN and node.op_type in _LAYERS


def _bytes(node: Node) -> int:
    """What a layer reads and writes of the whole batch."""
    return sum(_size(value) for value in (node.inputs[0], *node.outputs) if value is not None)


def _weights(graph: Graph, node: Node) -> int:
    """The bytes of a layer's constants."""
    return sum(_size(value) for value in node.inputs if value is not None and is_constant(value, graph))


def _size(value: Value) -> int:
    assert isinstance(value.type, TensorType)
    return value.type.dtype.nbytes(prod(int(str(size)) for size in value.shape or ()))


def _divide(g: Rewriter, graph: Graph, chain: _Chain) -> None:
    """Write the nodes of a chain once for every part."""
    g.at(chain.nodes[0])
    made = {output for node in chain.nodes for output in node.outputs}
    read = dict.fromkeys(value for node in chain.nodes for value in node.inputs if value is not None)
    parts: list[dict[Value, Value]] = [{} for _ in chain.images]
    for value in read:
        if value not in made and not is_constant(value, graph):
            for part, view in zip(parts, _divided(g, value, chain.images), strict=True):
                part[value] = view
    for part in parts:
        for node in chain.nodes:
            inputs = [None if value is None else part.get(value, value) for value in node.inputs]
            part.update(zip(node.outputs, g.clone(node, inputs), strict=True))
    inside = set(chain.nodes)
    for value in [output for node in chain.nodes for output in node.outputs]:
        if _leaves(g, value, inside):
            g.replace(value, _joined(g, value, [part[value] for part in parts]))
    for node in reversed(chain.nodes):
        g.discard(node)


def _divided(g: Rewriter, value: Value, images: Sequence[int]) -> list[Value]:
    """The parts of a batch."""
    assert isinstance(value.type, TensorType)
    assert value.shape is not None
    types = [TensorType(value.type.dtype, (count, *value.shape[1:])) for count in images]
    views = [Value(g.fresh_name(f"{value.name}:part"), each) for each in types]
    sizes = g.constant(np.array(images, np.int64), "images")
    g.graph.insert_before(g.anchor, Node("Split", [value, sizes], views, [make_attr("axis", 0)], version=STANDARD_VERSION))
    return views


def _joined(g: Rewriter, value: Value, parts: Sequence[Value]) -> Value:
    """The batch that parts make."""
    whole = Value(g.fresh_name(f"{value.name}:batch"), value.type)
    g.graph.insert_before(g.anchor, Node("Concat", parts, [whole], [make_attr("axis", 0)], version=STANDARD_VERSION))
    return whole
