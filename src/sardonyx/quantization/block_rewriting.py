"""Weights of MatMul and Gather in blocks of few bits: the nodes that stand for them.

    MatMul(a, w)    ->  MatMulNBits(a, w_Q4, w_scales, w_zero_points)                        QOperator
                    ->  MatMul(a, DequantizeLinear(w_DQ_Q4, w_DQ_scales, w_DQ_zero_points))  QDQ
    Gather(t, i)    ->  GatherBlockQuantized(t_Q4, i, t_scales, t_zero_points)

A weight is quantized when its bytes are written. What belongs together is computed together, and the last weight is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.errors import InvalidArgument
from sardonyx.ir import tensor
from sardonyx.ir.builder import make_attr
from sardonyx.ir.graph import Graph, Node, Value
from sardonyx.ir.tensor import Array, Tensor
from sardonyx.mapped_file import release_range
from sardonyx.quantization import blocks
from sardonyx.quantization.arithmetic import block_count
from sardonyx.quantization.models import CONTRIB_OPERATORS, dense
from sardonyx.records import dataclass

logger = logging.getLogger(__name__)
_WEIGHTS: Final = (dtypes.FLOAT32, dtypes.FLOAT16, dtypes.BFLOAT16)


@dataclass(frozen=True)
class BlockSettings:
    """How weights are cut into blocks."""

    bits: int = 4
    block_size: int = 128
    symmetric: bool = False
    method: str = "round"
    is_qdq: bool = False
    accuracy_level: int = 0
    ratio: float = 1.0  # of the range of a block that is represented
    by_channel: bool = False  # one block a column; for QDQ only
    gather_axis: int = 1
    endings: tuple[str, str, str] = ("_Q{bits}", "_scales", "_zero_points")  # of the names of constants


class _Together:
    """Several constants that one computation makes of a weight; the results of the last one asked for are kept."""

    latest: tuple[_Together, tuple[Array, ...]] | None = None

    def __init__(self, source: Tensor, compute: Callable[[Array], tuple[Array, ...]]) -> None:
        self._source = source
        self._compute = compute

    def part(self, index: int, name: str, dtype: DType, shape: Sequence[int]) -> Tensor:
        """One of them."""

        def load() -> Any:
            if _Together.latest is None or _Together.latest[0] is not self:
                data = self._source.numpy()
                _Together.latest = (self, self._compute(data))
                release_range(data)
            return np.ascontiguousarray(_Together.latest[1][index]).reshape(-1).view(np.uint8).data

        return Tensor(dtype, shape, load, name=name)


def home_of(graph: Graph | None, value: Value) -> Graph | None:
    """The graph, this one or one around it, that a constant belongs to."""
    while graph is not None and graph.initializers.get(value.name) is not value:
        graph = graph.parent_node.graph if graph.parent_node is not None else None
    return graph


def _constant(home: Graph, name: str, make: Callable[[], Tensor]) -> Value:
    return home.initializers[name] if name in home.initializers else home.add_initializer(name, make())


def rewrite_matmul(graph: Graph, node: Node, settings: BlockSettings, version: int) -> bool:
    """Replace a product with a constant; False if the node has none that can be quantized."""
    value = node.inputs[1] if len(node.inputs) > 1 else None
    weight = dense(value)
    home = None if value is None else home_of(graph, value)
    if value is None or weight is None or home is None:
        logger.info("%s is not quantized: it has no constant weight", node.label)
        return False
    if weight.dtype not in _WEIGHTS:
        logger.info("%s is not quantized: its weight is %s", node.label, weight.dtype.ort)
        return False
    if len(weight.shape) < 2 or any(size != 1 for size in weight.shape[:-2]):
        logger.info("%s is not quantized: its weight has shape %s", node.label, list(weight.shape))
        return False
    rows, columns = weight.shape[-2:]
    if rows == 0 or columns == 0:
        return False
    if not (settings.is_qdq and settings.by_channel):
        blocks.check_block_size(settings.bits, settings.block_size, f"{node.label}: ")
    rewrite = _as_qdq if settings.is_qdq else _as_operator
    result = node.outputs[0]
    given = node.inputs[0]
    known = None if given is None or given.shape is None else len(given.shape)
    flat = result
    if len(weight.shape) > 2 and (known is None or known < len(weight.shape)):
        flat = Value(f"{result.name}_pre_reshape")
    name = rewrite(graph, home, node, value, weight, (rows, columns), settings, version, flat)
    if flat is not result:
        _restore_shape(graph, home, node, weight.shape, name or value.name, flat, version)
    for index in range(len(node.inputs)):
        node.set_input(index, None)
    graph.detach(node)
    return True


def _as_operator(
    graph: Graph, home: Graph, node: Node, value: Value, weight: Tensor, shape: tuple[int, int], settings: BlockSettings,
    version: int, result: Value,
) -> str:  # fmt: skip
    """MatMulNBits."""
    rows, columns = shape
    bits, size = settings.bits, settings.block_size
    count = block_count(rows, size)
    real = weight.dtype

    def compute(data: Array) -> tuple[Array, ...]:
        matrix = data.reshape(rows, columns)
        found = blocks.quantize_blocks(matrix, bits, size, settings.symmetric, settings.method, settings.ratio)
        scales = found.scales.astype(real.numpy)
        if found.zeros is None:
            return blocks.packed_codes(found, bits), scales
        zeros = found.zeros if found.zeros.dtype == np.uint8 else found.zeros.astype(real.numpy)
        return blocks.packed_codes(found, bits), scales, blocks.packed_zeros(zeros, bits)

    together = _Together(weight, compute)
    code_name, scale_name, zero_name = (value.name + each.format(bits=bits, block=size) for each in settings.endings)
    packed = (columns, count, size * bits // 8)
    inputs = [
        node.inputs[0],
        _constant(home, code_name, lambda: together.part(0, code_name, dtypes.UINT8, packed)),
        _constant(home, scale_name, lambda: together.part(1, scale_name, real, (columns, count))),
    ]
    if settings.method == "hqq":
        inputs.append(_constant(home, zero_name, lambda: together.part(2, zero_name, real, (columns * count,))))
    elif not settings.symmetric or settings.method != "round":
        zero_shape = (columns, block_count(count * bits, 8))
        inputs.append(_constant(home, zero_name, lambda: together.part(2, zero_name, dtypes.UINT8, zero_shape)))
    attrs = [make_attr("K", rows), make_attr("N", columns), make_attr("bits", bits), make_attr("block_size", size)]
    if settings.accuracy_level:
        attrs.append(make_attr("accuracy_level", settings.accuracy_level))
    name = node.name and f"{node.name}_Q{bits}"
    graph.insert_before(node, Node("MatMulNBits", inputs, [result], attrs, domain=CONTRIB_OPERATORS, version=1, name=name))
    return name


def _as_qdq(
    graph: Graph, home: Graph, node: Node, value: Value, weight: Tensor, shape: tuple[int, int], settings: BlockSettings,
    version: int, result: Value,
) -> str:  # fmt: skip
    """DequantizeLinear of 4-bit elements, and MatMul."""
    if settings.bits != 4:
        raise InvalidArgument(f"{node.label}: bits is {settings.bits}, but QuantFormat.QDQ has 4 bits only", hint="use QOperator")
    rows, columns = shape
    size = rows if settings.by_channel else settings.block_size
    count = block_count(rows, size)
    transposed = settings.by_channel and settings.symmetric  # as neural processors like it
    dtype = dtypes.INT4 if settings.symmetric else dtypes.UINT4
    real = weight.dtype

    def compute(data: Array) -> tuple[Array, ...]:
        found = blocks.quantize_blocks(data.reshape(rows, columns), 4, size, settings.symmetric, settings.method)
        codes, _ = blocks.row_codes(found, rows, settings.symmetric)
        scales = found.scales.astype(real.numpy)
        codes = codes.T if transposed else codes
        parts = (tensor.pack(np.ascontiguousarray(codes), dtype), scales if transposed else scales.T)
        return parts if found.zeros is None else (*parts, tensor.pack(np.ascontiguousarray(found.zeros.T), dtype))

    together = _Together(weight, compute)
    code_name, scale_name, zero_name = (f"{value.name}_DQ{each}" for each in ("_Q4", "_scales", "_zero_points"))
    code_shape, scale_shape = ((columns, rows), (columns, 1)) if transposed else ((rows, columns), (count, columns))
    inputs = [
        _constant(home, code_name, lambda: together.part(0, code_name, dtype, code_shape)),
        _constant(home, scale_name, lambda: together.part(1, scale_name, real, scale_shape)),
    ]
    if not settings.symmetric:
        inputs.append(_constant(home, zero_name, lambda: together.part(2, zero_name, dtype, scale_shape)))
    attrs = [make_attr("axis", 1 if transposed else 0), make_attr("block_size", size)]
    matrix = Value(f"{code_name}_output")
    name = node.name and f"{node.name}_DQ_Q4"
    graph.insert_before(node, Node("DequantizeLinear", inputs, [matrix], attrs, version=version, name=name))
    if transposed:
        transposed_matrix = Value(f"{matrix.name}_transposed")
        graph.insert_before(node, Node("Transpose", [matrix], [transposed_matrix], [make_attr("perm", [1, 0])], version=version))
        matrix = transposed_matrix
    product = node.name and f"{node.name}_matmul_Q4"
    graph.insert_before(node, Node("MatMul", [node.inputs[0], matrix], [result], version=version, name=product))
    return name


def _restore_shape(graph: Graph, home: Graph, node: Node, shape: Sequence[int], name: str, flat: Value, version: int) -> None:
    """Give a product the leading ones that a weight of more than two dimensions brings with it.

    The shape is [1] * max(rank of weight - max(rank of input, 2), 0) + input.shape[:-1] + [N], whatever the input's rank is.
    """
    result = node.outputs[0]
    prefix = f"{name}_{result.name}"

    def number(ending: str, data: Any) -> Value:
        return home.add_initializer(f"{prefix}_{ending}", tensor.from_numpy(np.array(data, np.int64)))

    def step(op_type: str, inputs: Sequence[Value | None], ending: str, **attrs: Any) -> Value:
        made = Value(f"{prefix}_{ending}")
        kept = [make_attr(key, each) for key, each in attrs.items()]
        graph.insert_before(node, Node(op_type, inputs, [made], kept, version=version, name=f"{made.name}_node"))
        return made

    one = number("one_vec", [1])
    zero, zeros = number("zero", 0), number("zero_vec", [0])
    sizes = step("Shape", [node.inputs[0]], "a_shape")
    rank = step("Gather", [step("Shape", [sizes], "a_shape_of_shape"), zero], "a_rank")
    missing = step("Sub", [number("rank_b", len(shape)), step("Max", [rank, number("two", 2)], "a_rank_eff")], "extra_raw")
    count = step("Reshape", [step("Max", [missing, zero], "extra_count"), one], "extra_count_vec")
    ones = step("ConstantOfShape", [count], "extra_ones", value=np.array([1], np.int64))
    last = step("Reshape", [step("Sub", [rank, number("one", 1)], "a_rank_m1"), one], "a_rank_m1_vec")
    kept = step("Slice", [sizes, zeros, last, zeros], "a_prefix_shape")
    target = step("Concat", [ones, kept, number("n_vec", [shape[-1]])], "target_shape", axis=0)
    graph.insert_before(node, Node("Reshape", [flat, target], [result], version=version, name=f"{prefix}_reshape_out"))


def rewrite_gather(graph: Graph, node: Node, settings: BlockSettings) -> bool:
    """Replace a Gather out of a constant table; False if it has none that can be quantized."""
    value = node.inputs[0]
    table = dense(value)
    home = None if value is None else home_of(graph, value)
    if value is None or table is None or home is None or table.dtype not in _WEIGHTS[:2]:
        logger.info("%s is not quantized: it has no constant table of floats", node.label)
        return False
    if settings.is_qdq:
        raise InvalidArgument(f"{node.label}: a Gather can be quantized with QuantFormat.QOperator only")
    if settings.bits != 4:
        logger.error("%s is not quantized: bits is %d, but Gather has 4 bits only", node.label, settings.bits)
        return False
    rank = len(table.shape)
    if not -rank <= settings.gather_axis < rank:
        raise InvalidArgument(
            f"{node.label}: quant_axes has axis {settings.gather_axis} for Gather, but its table has rank {rank}"
        )
    blocks.check_block_size(4, settings.block_size, f"{node.label}: ")
    axis, size = settings.gather_axis % rank, settings.block_size
    dtype = dtypes.INT4 if settings.symmetric else dtypes.UINT4
    scale_shape = list(table.shape)
    scale_shape[axis] = block_count(scale_shape[axis], size)

    def compute(data: Array) -> tuple[Array, ...]:
        moved = np.moveaxis(data.astype(np.float32), axis, 0)
        found = blocks.quantize_blocks(moved.reshape(moved.shape[0], -1), 4, size, settings.symmetric)
        codes, _ = blocks.row_codes(found, moved.shape[0], settings.symmetric)

        def back(part: Array) -> Array:
            return np.ascontiguousarray(np.moveaxis(part.reshape(-1, *moved.shape[1:]), 0, axis))

        parts = (tensor.pack(back(codes), dtype), back(found.scales.T).astype(data.dtype))
        return parts if found.zeros is None else (*parts, tensor.pack(back(found.zeros.T), dtype))

    together = _Together(table, compute)
    code_name, scale_name, zero_name = (f"{value.name}{each}" for each in ("_Q4", "_scales", "_zero_points"))
    inputs = [
        _constant(home, code_name, lambda: together.part(0, code_name, dtype, table.shape)),
        node.inputs[1],
        _constant(home, scale_name, lambda: together.part(1, scale_name, table.dtype, scale_shape)),
    ]
    if not settings.symmetric:
        inputs.append(_constant(home, zero_name, lambda: together.part(2, zero_name, dtype, scale_shape)))
    attrs = [
        make_attr("gather_axis", node.attr("axis", 0)),
        make_attr("quantize_axis", axis),
        make_attr("block_size", size),
    ]
    name = node.name and f"{node.name}_Q4"
    made = Node("GatherBlockQuantized", inputs, node.outputs, attrs, domain=CONTRIB_OPERATORS, version=1, name=name)
    graph.insert_before(node, made)
    for index in range(len(node.inputs)):
        node.set_input(index, None)
    graph.detach(node)
    return True
