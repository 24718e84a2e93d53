"""Pointwise convolutions that stand alone: a product of matrices takes less time than blocks and the ways there and back.

    y = Conv(x, w) {kernel_shape = [1, 1]}     =>   y = Reshape(MatMul(w as [O, C], Reshape(x, [0, C, pixels])), [0, O, ...])

Where neither the image nor anything that follows is in blocks, the layout costs a conversion before and one behind, and lanes of
channels that are not there (21 classes of a head take two vectors of 16). Both ways are estimated (`target.cost`), and the
faster one is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Tensor, origin_of
from sardonyx.ir.types import Shape, TensorType
from sardonyx.passes.layout_region import STANDARD_VERSION, Region, constant_data, is_elementwise
from sardonyx.target import cost
from sardonyx.target.target import Target

_FEW_PIXELS: Final = 3  # up to which a product is a sum along the channels for each


def is_faster_as_product(region: Region, node: Node, x: Value, weights: tuple[int, ...], carries: Callable[[Node], bool]) -> bool:
    """Whether a convolution of these weights is a product that saves time; `carries`: nodes that compute in blocks."""
    pixels = _pixels(x)
    if not pixels or x in region.known or not _is_pointwise(node, weights) or _leads_on(node, carries):
        return False
    if any(constant_data(region.graph, value) is None for value in node.inputs[1:] if value is not None):
        return False
    return product_time(pixels, weights, region.target) < blocked_time(pixels, weights, region.target)


def product_time(pixels: int, weights: tuple[int, ...], target: Target) -> int:
    """Nanoseconds of the product, about: pixels are its columns, which fill whole vectors unless there are very few."""
    columns = pixels if pixels <= _FEW_PIXELS else -(-pixels // target.lanes) * target.lanes
    return _number(cost.conv(2 * columns * weights[0] * weights[1], target))


def blocked_time(pixels: int, weights: tuple[int, ...], target: Target) -> int:
    """Nanoseconds in the blocked layout: there (few channels are read as they are), all lanes of the convolution, and back."""
    block = target.lanes
    outputs, inputs = (-(-count // block) for count in weights[:2])
    before = 0 if 2 * weights[1] <= block else inputs
    moved = cost.to_blocks((before + outputs) * pixels, block)
    return _number(moved) + _number(cost.conv(2 * pixels * weights[1] * outputs * block, target))


def write_product(region: Region, node: Node, x: Value, weights: tuple[int, ...], shape: Shape) -> None:
    """Put the product where the convolution is."""
    outputs, inputs = weights[:2]
    pixels, batch = prod(int(str(size)) for size in shape[2:]), shape[0]
    name = node.outputs[0].name

    def add(op_type: str, operands: list[Value | None], sizes: Shape, what: str) -> Value:
        made = Value(region.free_name(f"{name}:{what}"), TensorType(dtypes.FLOAT32, sizes))
        region.graph.insert_before(node, Node(op_type, operands, [made], version=STANDARD_VERSION, name=node.name))
        return made

    def reshaped(position: int, sizes: tuple[int, ...], what: str) -> Value:
        tensor = constant_data(region.graph, node.inputs[position])
        assert tensor is not None
        same = Tensor(tensor.dtype, sizes, tensor.raw, origin=origin_of("reshape", [tensor], sizes))
        return region.graph.add_initializer(region.free_name(f"{name}:{what}"), same)

    columns = region.constant(f"{name}:columns", np.array([0, inputs, pixels], np.int64))
    flat = add("Reshape", [x, columns], (batch, inputs, pixels), "flat")
    result = add("MatMul", [reshaped(1, (outputs, inputs), "matrix"), flat], (batch, outputs, pixels), "product")
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        result = add("Add", [result, reshaped(2, (outputs, 1), "bias")], (batch, outputs, pixels), "sum")
    image = region.constant(f"{name}:image", np.array([0, *(int(str(size)) for size in shape[1:])], np.int64))
    region.put(node, Node("Reshape", [result, image], [node.outputs[0]], version=STANDARD_VERSION, name=node.name))


def _pixels(x: Value) -> int | None:
    """The pixels of an image; None if their number is not known."""
    if x.shape is None or any(not isinstance(size, int) for size in x.shape[2:]):
        return None
    return prod(int(str(size)) for size in x.shape[2:])


def _is_pointwise(node: Node, weights: tuple[int, ...]) -> bool:
    if node.attr("group", 1) != 1 or prod(weights[2:]) != 1:
        return False
    return not any(node.attr("pads") or ()) and all(step == 1 for step in node.attr("strides") or ())


def _leads_on(node: Node, carries: Callable[[Node], bool]) -> bool:
    """Whether what reads the result, by way of elementwise nodes or not, computes in blocks."""
    pending, seen = [node], {node}
    while pending:
        for reader in (reader for output in pending.pop().outputs for reader, _ in output.uses):
            if carries(reader):
                return True
            if reader not in seen and is_elementwise(reader):
                seen.add(reader)
                pending.append(reader)
    return False


def _number(time: object) -> int:
    assert isinstance(time, int)
    return time
