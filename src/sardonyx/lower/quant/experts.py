"""MoE and QMoE: tokens are routed to experts, sorted by them, and multiplied by the weights of the experts they go to.

    route      the best experts of each token, with weights
    group      all pairs of a token and an expert, sorted by expert; tiles of rows that have one expert
    gather     the tokens' rows in that order
    products   first layer (and gates), activation, second layer times the pair's weight; a tile reads its expert's weights only
    combine    each token's rows are looked up and added

Steps and sizes are the same for any choice of experts: what nobody chooses are tiles without rows. Weights lie packed, as those
of single products do: floats in strips, integers in blocks with scales, whose activations are quantized first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final, TypeAlias

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, dim_max, dim_min, product
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.kernel import math
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import Expr, clamp, load, maximum, minimum, reduced
from sardonyx.kernel.matmul.experts import TILE_ENTRIES, GroupRowsKernel, RouteKernel, Weighting, most_tiles
from sardonyx.kernel.matmul.matmul import MatMulKernel, is_deep, strip_vectors, vector_lanes
from sardonyx.kernel.matmul.matmul import tallest as tallest_tile
from sardonyx.kernel.quant.block_product import (
    WORD,
    BlockProductKernel,
    LevelBits,
    QuantizeRowsKernel,
    has_planes,
    level_bits_of,
    strips_of_tile,
    tallest,
)
from sardonyx.lower.derived import numbers
from sardonyx.lower.epilogue import GroupEpilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.indexing import given, out_of_range, take
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.matmul.weights import pack_strips
from sardonyx.lower.quant.block_product import BYTE_LEVEL, quantized_rows, shaped
from sardonyx.lower.quant.expert_weights import (
    pack_expert_points,
    pack_expert_row_points,
    pack_expert_scales,
    pack_expert_weights,
)
from sardonyx.lower.registry import template
from sardonyx.ops.matmul.contrib_experts import ExpertSizes, expert_sizes
from sardonyx.program.steps import Address, KernelStep, View
from sardonyx.records import dataclass
from sardonyx.target import cost

_BLOCKS: Final = (256, 128, 64, 32, 16)  # weights that kernels take together; a model's block is a multiple of one of them
_FLOATS: Final = (dtypes.FLOAT32, dtypes.FLOAT16, dtypes.BFLOAT16)
# Where weights, scales, bias and zero points of the three layers stand among the inputs.
_PLAIN: Final = ((2, None, 3, None), (4, None, 5, None), (6, None, 7, None))
_QUANTIZED: Final = ((2, 3, 4, 11), (5, 6, 7, 12), (8, 9, 10, 13))
_ROUTER_WEIGHTS: Final = 14
_BITS: Final = ("fc1_expert_weight_bits", "fc2_expert_weight_bits", "fc3_expert_weight_bits")
_ACTIVATIONS: Final[dict[str, Callable[[Expr], Expr]]] = {
    "relu": lambda x: maximum(x, 0.0),
    "gelu": math.gelu_tanh,
    "silu": math.silu,
    "identity": lambda x: x,
}


@dataclass(frozen=True)
class _Layer:
    """One layer of all experts; without `bits` its weights are floats."""

    weights: Value
    scales: Value | None
    bias: Value | None
    points: Value | None
    outputs: int
    inputs: int
    bits: int
    block: int  # that the kernel takes together
    own_blocks: int  # blocks of a row that have a scale each in the model


_Result: TypeAlias = Callable[[Expr, list[Expr]], Expr]  # of a sum with its bias, and of other operands


def _input(node: Node, position: int | None) -> Value | None:
    return node.inputs[position] if position is not None and position < len(node.inputs) else None


def _known(value: Value | None) -> tuple[int, ...] | None:
    """The shape of a value, if it is known; () for one that is left out."""
    shape = () if value is None else value.shape
    return None if shape is None or not all(isinstance(size, int) for size in shape) else numbers(shape)


def _is_float(value: Value | None) -> bool:
    return value is None or (isinstance(value.type, TensorType) and value.type.dtype in _FLOATS)


def _layers(node: Node) -> list[_Layer | None] | str:
    """First, second and third layer, or what no kernel takes."""
    attrs = attribute_values(node)
    quantized = node.op_type == "QMoE"
    found = [[_input(node, position) for position in layer] for layer in (_QUANTIZED if quantized else _PLAIN)]
    shapes = [[_known(value) for value in layer] for layer in found]
    x = node.inputs[0]
    if x is None or not x.shape or not isinstance(x.shape[-1], int) or any(shape is None for each in shapes for shape in each):
        return "sizes that are not known"
    bits = [int(attrs.get(name) or attrs["expert_weight_bits"]) if quantized else 0 for name in _BITS]
    if any(value is not None and value.constant is None for layer in found for value in (layer[0], layer[1], layer[3])):
        return "weights that are computed"
    plain = [[shape for shape in each if shape is not None] for each in shapes]
    try:
        sizes = expert_sizes(
            x.shape[-1],
            [shape[0] or None for shape in plain],
            [shape[2] or None for shape in plain],
            bits if quantized else None,
            str(attrs["activation_type"]),
            int(attrs["swiglu_fusion"]),
        )
    except ValueError as error:
        return str(error)
    router = node.inputs[1]
    if router is None or router.shape is None or len(router.shape) != 2 or router.shape[1] != sizes.experts:
        return "a router of another size"
    if not 1 <= int(attrs["k"]) <= sizes.experts or attrs["use_sparse_mixer"]:
        return f"the best {attrs['k']} of {sizes.experts} experts, use_sparse_mixer={attrs['use_sparse_mixer']}"
    made: list[_Layer | None] = []
    for number, (weights, scales, bias, points) in enumerate(found):
        if weights is None:
            made.append(None)
            continue
        outputs, inputs = sizes.layer(number)
        layer = _Layer(weights, scales, bias, points, outputs, inputs, bits[number], 0, 1)
        if quantized:
            blocked = _blocked(layer, sizes, plain[number], attrs.get("block_size"))
            if isinstance(blocked, str):
                return blocked
            layer = blocked
        elif not _is_float(weights):
            return f"weights {weights.type}"
        made.append(layer)
    return made


def _blocked(layer: _Layer, sizes: ExpertSizes, shapes: Sequence[tuple[int, ...]], block_size: int | None) -> _Layer | str:
    """The layer with the blocks that a kernel can take, or why there are none."""
    rows = sizes.experts * layer.outputs
    if layer.bits not in (2, 4, 8) or layer.scales is None or not _is_float(layer.scales):
        return f"weights of {layer.bits} bits with scales {layer.scales and layer.scales.type}"
    if layer.weights.type != TensorType(dtypes.UINT8, layer.weights.shape):
        return f"weights {layer.weights.type}"
    count, rest = divmod(prod(shapes[1]), rows)
    if rest or not count or (count > 1 and (not block_size or count * block_size != layer.inputs)):
        return f"scales {layer.scales.type} for rows of {layer.inputs} in blocks of {block_size}"
    length = layer.inputs // count
    block = next((each for each in _BLOCKS if length % each == 0), 0)
    if not block:
        return f"blocks of {length} weights"
    packed = sizes.experts * -(-layer.outputs * layer.bits // 8) if count == 1 else rows * -(-count * layer.bits // 8)
    if layer.points is not None and prod(shapes[3]) != packed:
        return f"zero points {layer.points.type}"
    return replace(layer, block=block, own_blocks=count)


def _accepts(node: Node) -> str:
    attrs = attribute_values(node)
    if node.op_type == "QMoE":
        if attrs["weights_prepacked"] == 1:
            return "weights in the layout of a GPU's kernels"
        if attrs["quant_type"] != "int" or any(value is not None for value in node.inputs[_ROUTER_WEIGHTS + 1 :]):
            return f"quant_type {attrs['quant_type']!r} or scales of activations"
        router_weights, router = _input(node, _ROUTER_WEIGHTS), node.inputs[1]
        if router_weights is not None and (router is None or router_weights.shape != router.shape):
            return "weights of the router of another size"
    layers = _layers(node)
    return layers if isinstance(layers, str) else ""


@template("MoE", "QMoE", domain="com.microsoft", accepts=_accepts)
def experts(ctx: LowerContext, group: Group) -> None:
    """The weighted sum of the best experts of each token."""
    _Experts(ctx, group).lower()


class _Experts:
    def __init__(self, ctx: LowerContext, group: Group) -> None:
        self.ctx, self.group, self.node = ctx, group, root_of(group)
        self.attrs: dict[str, Any] = dict(attribute_values(self.node))
        found = _layers(self.node)
        assert not isinstance(found, str), found
        self.first, self.second, self.third = found
        self.x = ctx.contiguous(given(self.node, 0))
        self.router = ctx.view(given(self.node, 1))
        self.hidden = self.x.shape[-1]
        self.tokens, self.experts = self.router.shape
        ctx.check_equal(product(self.x.shape[:-1]), self.tokens)
        self.wanted = int(self.attrs["k"])
        self.pairs = self.tokens * self.wanted
        self.fault = out_of_range(ctx, self.node, 0)  # never reported: the indices are our own
        self.nodes = (self.node.label,)
        layers = [layer for layer in found if layer is not None]
        self.height = min(self._tallest(layer) for layer in layers)

    def _tallest(self, layer: _Layer) -> int:
        target = self.ctx.target
        if layer.bits:
            return tallest(layer.bits, self._level_bits(layer), target, self._strips_of_tile(layer))
        return tallest_tile(target, strip_vectors(layer.outputs, "f32", target))

    def _strips_of_tile(self, layer: _Layer) -> int:
        return strips_of_tile(layer.bits, self.pairs, layer.outputs, self.ctx.target)

    def _level_bits(self, layer: _Layer) -> LevelBits:
        wants_bytes = self.attrs.get("accuracy_level") == BYTE_LEVEL
        return level_bits_of(layer.bits, self.ctx.target, wants_bytes=wants_bytes)

    def lower(self) -> None:
        """All steps."""
        ctx, first, second = self.ctx, self.first, self.second
        assert first is not None
        assert second is not None
        self._route()
        source = shaped(self.x, (self.tokens, self.hidden))
        rows = ctx.scratch(self.x.buffer.dtype, (self.pairs, self.hidden), "rows of experts")
        take(ctx, source, 0, self.token_of, rows, self.fault, self.group.label, trusted=True)
        given_rows = self._prepared(rows, [layer for layer in (first, self.third) if layer is not None])
        inner = self._inner(first, given_rows)
        results = ctx.scratch(dtypes.FLOAT32, (self.pairs, self.hidden), "results of experts")
        factors = View(self.factors.buffer, (self.experts, self.pairs, self.hidden), (0, 1, 0))
        self._product(second, self._prepared(inner, [second]), results, [factors], lambda value, loaded: value * loaded[0])
        self._combine(results)

    # Routing

    def _route(self) -> None:
        ctx, node = self.ctx, self.node
        router_weights = _input(node, _ROUTER_WEIGHTS) if node.op_type == "QMoE" else None
        weighting: Weighting = "all" if node.op_type == "MoE" else "best" if router_weights is None else "given"
        normalize = bool(self.attrs["normalize_routing_weights"]) and weighting != "best"
        chosen = ctx.scratch(dtypes.INT64, (self.tokens, self.wanted), "chosen experts")
        scores = ctx.scratch(dtypes.FLOAT32, (self.tokens, self.wanted), "scores of experts")
        weights = ctx.scratch(dtypes.FLOAT32, (self.tokens, self.wanted), "weights of experts")
        other = self.router if router_weights is None else ctx.view(router_weights)
        route = RouteKernel(type=self.router.buffer.dtype.name, weighting=weighting, normalize=normalize)
        arguments = route.arguments.entries(
            experts=self.experts,
            wanted=self.wanted,
            logits=(self.router.address, self.router.strides),
            given=(other.address, other.strides),
            chosen=Address(chosen.buffer),
            scores=Address(scores.buffer),
            weights=Address(weights.buffer),
        )
        made = (chosen.buffer, scores.buffer, weights.buffer)
        reads = tuple(dict.fromkeys((self.router.buffer, other.buffer)))
        work = self.tokens * self.experts * 10
        ctx.step(KernelStep(route, arguments, self.tokens, work, reads, made, "route", self.nodes))

        assert isinstance(self.experts, int)
        self.tiles = most_tiles(self.pairs, self.experts, self.height)
        starts = ctx.scratch(dtypes.INT64, (self.experts,), "rows of each expert")
        self.slots = ctx.scratch(dtypes.INT64, (self.tokens, self.wanted), "slots")
        self.token_of = ctx.scratch(dtypes.INT64, (self.pairs,), "tokens of rows")
        self.factors = ctx.scratch(dtypes.FLOAT32, (self.pairs,), "weights of rows")
        self.table = ctx.scratch(dtypes.INT64, (self.tiles, TILE_ENTRIES), "tiles")
        kernel = GroupRowsKernel(height=self.height)
        arguments = kernel.arguments.entries(
            pairs=self.pairs,
            wanted=self.wanted,
            experts=self.experts,
            tiles=self.tiles,
            chosen=Address(chosen.buffer),
            weights=Address(weights.buffer),
            starts=Address(starts.buffer),
            slots=Address(self.slots.buffer),
            tokens=Address(self.token_of.buffer),
            factors=Address(self.factors.buffer),
            table=Address(self.table.buffer),
        )
        written = tuple(view.buffer for view in (starts, self.slots, self.token_of, self.factors, self.table))
        work = self.pairs * 10 + self.experts
        ctx.step(KernelStep(kernel, arguments, 1, work, (chosen.buffer, weights.buffer), written, "group rows", self.nodes))

    # Layers

    def _inner(self, first: _Layer, rows: dict[int, list[View]]) -> View:
        """What the second layer multiplies: the activation of the first, times gates."""
        ctx, attrs, third = self.ctx, self.attrs, self.third
        assert self.second is not None
        inner = ctx.scratch(dtypes.FLOAT32, (self.pairs, self.second.inputs), "inner values of experts")
        is_gated = attrs["activation_type"] == "swiglu"
        if is_gated and third is None:
            both = ctx.scratch(dtypes.FLOAT32, (self.pairs, first.outputs), "gates of experts")
            self._product(first, rows, both, [], lambda value, loaded: value)
            width = self.second.inputs
            step, second = (2, 1) if attrs["swiglu_fusion"] == 1 else (1, width)
            parts = [View(both.buffer, inner.shape, (both.strides[0], step), start) for start in (0, second)]
            value = self._swiglu(load(0, "f32"), load(1, "f32"))
            ctx.step(
                loop_step(
                    inner.shape,
                    [*parts, inner],
                    ["f32"] * 3,
                    [(2, value)],
                    target=ctx.target,
                    label="gates of experts",
                    nodes=self.nodes,
                )
            )
            return inner
        activation = _ACTIVATIONS["identity" if is_gated else str(attrs["activation_type"])]
        if third is None:
            self._product(first, rows, inner, [], lambda value, loaded: activation(value))
            return inner
        gates = ctx.scratch(dtypes.FLOAT32, inner.shape, "gates of experts")
        self._product(third, rows, gates, [], lambda value, loaded: value)
        beside = View(gates.buffer, (self.experts, *inner.shape), (0, *gates.strides))
        if is_gated:
            self._product(first, rows, inner, [beside], lambda value, loaded: self._swiglu(value, loaded[0]))
        else:
            self._product(first, rows, inner, [beside], lambda value, loaded: activation(value) * loaded[0])
        return inner

    def _swiglu(self, gate: Expr, linear: Expr) -> Expr:
        limit = self.attrs.get("swiglu_limit")
        if limit is not None:
            gate, linear = minimum(gate, float(limit)), clamp(linear, -float(limit), float(limit))
        return gate * math.sigmoid(gate * float(self.attrs["activation_alpha"])) * (linear + float(self.attrs["activation_beta"]))

    def _prepared(self, rows: View, layers: Sequence[_Layer]) -> dict[int, list[View]]:
        """Rows as the kernels of layers read them: floats, or levels, by the layer's identity."""
        made: dict[QuantizeRowsKernel | None, list[View]] = {}
        found: dict[int, list[View]] = {}
        for layer in layers:
            middle = 0 if layer.points is not None else 1 << (layer.bits - 1) if layer.bits else 0
            kernel = None
            if layer.bits:
                level_bits = self._level_bits(layer)
                kernel = QuantizeRowsKernel(
                    type=rows.buffer.dtype.name,
                    level_bits=level_bits,
                    block=layer.block,
                    middle=middle,
                    planes=has_planes(layer.bits, level_bits, self.ctx.target),
                )
            if kernel not in made:
                blocks = layer.inputs // layer.block if kernel else 0
                made[kernel] = quantized_rows(self.ctx, self.group, rows, kernel, blocks) if kernel else [self._floats(rows)]
            found[id(layer)] = made[kernel]
        return found

    def _floats(self, rows: View) -> View:
        name = rows.buffer.dtype.name
        if name == "f32":
            return rows
        wide = self.ctx.scratch(dtypes.FLOAT32, rows.shape, "converted")
        stores = [(1, load(0, name).cast("f32"))]
        self.ctx.step(
            loop_step(rows.shape, [rows, wide], [name, "f32"], stores, target=self.ctx.target, label="convert", nodes=self.nodes)
        )
        return wide

    def _product(self, layer: _Layer, rows: dict[int, list[View]], result: View, others: list[View], value: _Result) -> None:
        """result := value(rows * weights + bias, others), each row with the weights of its expert."""
        ctx = self.ctx
        shape = (self.experts, self.pairs, layer.outputs)
        views = list(others)
        total = accumulator("f32")
        if layer.bias is not None:
            bias = ctx.contiguous(layer.bias)
            total = total + load(len(views), bias.buffer.dtype.name).cast("f32")
            views.append(View(bias.buffer, shape, (layer.outputs, 0, 1), bias.offset))
        stored = value(total, [load(number, view.buffer.dtype.name) for number, view in enumerate(others)])
        views.append(View(result.buffer, shape, (0, *result.strides)))
        epilogue = GroupEpilogue(tuple(views), ((len(views) - 1, stored),))
        if layer.bits:
            self._block_product(layer, rows[id(layer)], epilogue)
        else:
            self._float_product(layer, rows[id(layer)][0], epilogue)

    def _heights(self) -> tuple[int, ...]:
        """Of tiles that there is code for: an expert may have any number of rows."""
        most = max(min(self.pairs, self.height), 1) if isinstance(self.pairs, int) else self.height
        return tuple(sorted({most, *(1 << number for number in range(most.bit_length()))}))

    def _float_product(self, layer: _Layer, rows: View, epilogue: GroupEpilogue) -> None:
        ctx, experts_ = self.ctx, self.experts
        assert isinstance(experts_, int)
        vectors = strip_vectors(layer.outputs, "f32", ctx.target)
        strip = vectors * vector_lanes("f32", ctx.target)
        strips = -(-layer.outputs // strip)
        stored = shaped(ctx.view(layer.weights), (experts_, layer.outputs, layer.inputs))
        transposed = View(
            stored.buffer, (experts_, layer.inputs, layer.outputs), (stored.strides[0], 1, layer.inputs), stored.offset
        )
        dtype = stored.buffer.dtype
        packed = ctx.packed(pack_strips, (transposed,), strip, dtype=dtype, shape=(experts_, strips, layer.inputs, strip))
        kernel = MatMulKernel(
            type="f32",
            b_type=dtype.name,
            b="packed",
            batch=1,
            vectors=vectors,
            rows=self.height,
            heights=self._heights(),
            unit_depth=True,
            whole=layer.outputs % strip == 0,
            epilogue=epilogue.for_kernel([view.strides[-1] for view in epilogue.views]),
            deep=is_deep("f32", layer.inputs),
            grouped=True,
        )
        arguments = kernel.arguments.entries(
            batch=[experts_],
            rows=self.pairs,
            columns=layer.outputs,
            depth=layer.inputs,
            group=1,
            a=(rows.address, (0, layer.inputs, 1)),
            b=(packed.address, (packed.strides[0], packed.strides[1])),
            operands=[(view.address, view.strides) for view in epilogue.views],
            tiles=Address(self.table.buffer),
        )
        used = dim_min(self.pairs, experts_)
        slots = dim_max(self.pairs, used * 4) * layer.outputs * layer.inputs
        work = cost.matmul(slots, self.pairs * layer.outputs, kernel.epilogue.operations, double=False)
        self._step(kernel, arguments, self.tiles * strips, work, (rows, packed), epilogue, layer)

    def _block_product(self, layer: _Layer, rows: list[View], epilogue: GroupEpilogue) -> None:
        ctx, target, experts_, bits = self.ctx, self.ctx.target, self.experts, layer.bits
        assert isinstance(experts_, int)
        levels, scales, corrections = rows
        lanes, blocks = target.lanes, layer.inputs // layer.block
        strips = -(-layer.outputs // lanes)
        stored = shaped(ctx.view(layer.weights), (experts_, layer.outputs, blocks, layer.block * bits // 8))
        words = (experts_, strips, blocks, layer.block * bits // WORD, lanes)
        weights = ctx.packed(pack_expert_weights, (stored,), bits, lanes, dtype=dtypes.UINT32, shape=words)
        small = (experts_, strips, blocks, lanes)
        assert layer.scales is not None
        own = shaped(ctx.view(layer.scales), (experts_, layer.outputs, layer.own_blocks))
        weight_scales = ctx.packed(pack_expert_scales, (own,), blocks, lanes, dtype=dtypes.FLOAT32, shape=small)
        offsets = self._points(layer, blocks, small)
        kernel = BlockProductKernel(
            bits=bits,
            block=layer.block,
            level_bits=self._level_bits(layer),
            offsets="" if offsets is None else "u8",
            batch=1,
            rows=self.height,
            heights=self._heights(),
            epilogue=epilogue.for_kernel([view.strides[-1] for view in epilogue.views]),
            strips=self._strips_of_tile(layer),
            grouped=True,
        )
        arguments = kernel.arguments.entries(
            batch=[experts_],
            rows=self.pairs,
            columns=layer.outputs,
            blocks=blocks,
            levels=(Address(levels.buffer), (0, levels.strides[0])),
            scales=(Address(scales.buffer), (0, scales.strides[0])),
            corrections=(Address(corrections.buffer), (0, corrections.strides[0])),
            between=scales.strides[-1],
            weights=Address(weights.buffer),
            weight_scales=Address(weight_scales.buffer),
            offsets=Address((offsets or weight_scales).buffer),
            operands=[(view.address, view.strides) for view in epilogue.views],
            tiles=Address(self.table.buffer),
        )
        size = layer.outputs * layer.inputs
        work = cost.block_product(self.pairs, size, 0) + cost.block_product(0, dim_min(self.pairs, experts_) * size, bits)
        reads = (*rows, weights, weight_scales, *([offsets] if offsets else []))
        self._step(kernel, arguments, self.tiles * -(-strips // kernel.strips), work, reads, epilogue, layer)

    def _points(self, layer: _Layer, blocks: int, shape: Sequence[int]) -> View | None:
        """Zero points, if the model has them."""
        ctx, bits, lanes = self.ctx, layer.bits, shape[-1]
        if layer.points is None:
            return None
        points = ctx.view(layer.points)
        if layer.own_blocks == 1:
            points = shaped(points, (shape[0], -(-layer.outputs * bits // 8)))
            parameters = (bits, layer.outputs, blocks, lanes)
            return ctx.packed(pack_expert_row_points, (points,), *parameters, dtype=dtypes.UINT8, shape=shape)
        points = shaped(points, (shape[0], layer.outputs, -(-layer.own_blocks * bits // 8)))
        parameters = (bits, layer.own_blocks, blocks, lanes)
        return ctx.packed(pack_expert_points, (points,), *parameters, dtype=dtypes.UINT8, shape=shape)

    def _step(
        self,
        kernel: Any,
        arguments: tuple[Any, ...],
        units: Dim,
        work: Dim,
        reads: Sequence[View],
        epilogue: GroupEpilogue,
        layer: _Layer,
    ) -> None:
        read = (*(view.buffer for view in reads), self.table.buffer, *epilogue.reads)
        flops = 2 * self.pairs * layer.outputs * layer.inputs
        label = f"{self.group.label}: {layer.outputs} x {layer.inputs}"
        self.ctx.step(KernelStep(kernel, arguments, units, work, read, epilogue.writes, label, self.nodes, flops=flops))

    # Results

    def _combine(self, results: View) -> None:
        """Each token's rows are added up."""
        ctx = self.ctx
        target = shaped(ctx.output(self.node.outputs[0]), (self.tokens, self.hidden))
        found = ctx.scratch(dtypes.FLOAT32, (self.tokens, self.wanted, self.hidden), "rows of tokens")
        take(ctx, results, 0, self.slots, found, self.fault, self.group.label, trusted=True)
        name = target.buffer.dtype.name
        shape = (self.tokens, self.wanted, self.hidden)
        view = View(target.buffer, shape, (target.strides[0], 0, 1), target.offset)
        ctx.step(
            loop_step(
                shape,
                [found, view],
                ["f32", name],
                (),
                target=ctx.target,
                label="add results of experts",
                nodes=self.nodes,
                results=[(1, reduced("sum", load(0, "f32"), 1).cast(name))],
                reduce="middle",
            )
        )
