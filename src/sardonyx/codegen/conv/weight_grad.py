"""Gradients of convolution kernels -> LLVM.

    for unit in begin .. end:                       (blocks of output and of input channels)
      for kernel row r, kernel column s:
        acc[c] = 0
        for image, output row and column whose window has this tap inside:
          acc[c] += dy * x[c]                       x[c] in every lane
        w[o, c, r, s] = lane o of acc[c]

Pixels are added up in stretches, and their sums to totals on the stack: one chain of a million additions would lose three of
seven digits. Which rows and columns have a tap inside is two numbers each, so the inner loop has no conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conv.conv_tile import Counter, maximum
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.kernel.conv.weight_grad import DepthwiseGradKernel, WeightGradKernel
from sardonyx.target.target import Target

_STRETCH: Final = 1024  # pixels, at least, that are added up before their sums go to the totals


def _outputs_with(
    f: FunctionBuilder, tap: str, dilation: str, stride: str, before: str, size: str, count: str
) -> tuple[str, str]:
    """The outputs i, from one number up to another, whose tap is inside: 0 <= i * stride + tap * dilation - before < size."""
    first = f.sub(before, f.mul(tap, dilation))
    low = maximum(f, f.let(f"sdiv i64 {f.add(first, f.sub(stride, '1'))}, {stride}", "i"), 0)
    last = f.add(f.add(size, first), "-1")
    high = f.min(f.let(f"sdiv i64 {f.add(last, stride)}, {stride}", "i"), count)
    return low, maximum(f, high, low)


def _multiply_add(f: FunctionBuilder, lanes: int, a: str, b: str, total: str) -> str:
    vector = f"<{lanes} x float>"
    return f.call(vector, f"llvm.fmuladd.v{lanes}f32", (vector, a), (vector, b), (vector, total))


def _load(f: FunctionBuilder, lanes: int, at: str) -> str:
    return f.let(f"load <{lanes} x float>, ptr {at}, align 4")


class _Walk:
    """Loops over images, output rows and stretches of columns, carrying sums; what they come to is added to totals."""

    def __init__(self, f: FunctionBuilder, a: Loaded, lanes: int, most: int) -> None:
        """To be made where the function begins: totals of at most so many sums lie on its stack."""
        self.f, self.a, self.vector = f, a, f"<{lanes} x float>"
        self._totals = f.let(f"alloca [{most} x {self.vector}], align 64")

    def run(
        self,
        rows: tuple[str, str],
        columns: tuple[str, str],
        count: int,
        stretch: Callable[[str, str, str, str, list[str]], list[str]],
        rest: Callable[[str, str, list[str]], list[str]] | None = None,
    ) -> list[str]:
        """The totals.

        `stretch(image, row, begin, end, sums)` gives the sums after some columns of a row, `rest(image, row, sums)` those after
        the few that lie outside of `columns`.
        """
        f = self.f
        for number in range(count):
            f.line(f"store {self.vector} zeroinitializer, ptr {self._at(number)}, align 64")
        start = [("i64", "0"), *[(self.vector, "zeroinitializer")] * count]
        images = f.loop(0, self.a["batch"], 1, start)
        lines = f.loop(rows[0], rows[1], 1, self._carried(images.carry))
        parts = f.loop(columns[0], columns[1], _STRETCH, self._carried(lines.carry))
        begin, end = parts.index, f.min(f.add(parts.index, _STRETCH), columns[1])
        sums = stretch(images.index, lines.index, begin, end, parts.carry[1:])
        after = f.end(parts, self._settled(f.add(parts.carry[0], f.sub(end, begin)), sums))
        if rest is not None:
            after = [after[0], *rest(images.index, lines.index, after[1:])]
        _, *sums = f.end(images, f.end(lines, after))
        return [
            f.let(f"fadd {self.vector} {f.let(f'load {self.vector}, ptr {self._at(number)}, align 64')}, {each}")
            for number, each in enumerate(sums)
        ]

    def _carried(self, values: Sequence[str]) -> list[tuple[str, str]]:
        return [("i64", values[0]), *((self.vector, each) for each in values[1:])]

    def _at(self, number: int) -> str:
        return self.f.element(self._totals, self.vector, number)

    def _settled(self, pixels: str, sums: Sequence[str]) -> list[str]:
        """How many pixels are in the sums, and the sums: nothing, if there were enough to add them to the totals."""
        f, before = self.f, self.f.block
        enough, after = f.fresh("enough"), f.fresh("after")
        f.branch_if(f.let(f"icmp sge i64 {pixels}, {_STRETCH}", "c"), enough, after)
        f.label(enough)
        added = f.block
        for number, each in enumerate(sums):
            total = f.let(f"load {self.vector}, ptr {self._at(number)}, align 64")
            f.line(f"store {self.vector} {f.let(f'fadd {self.vector} {total}, {each}')}, ptr {self._at(number)}, align 64")
        f.branch(after)
        f.label(after)
        left = f.let(f"phi i64 [ {pixels}, %{before} ], [ 0, %{added} ]", "i")
        return [
            left,
            *(f.let(f"phi {self.vector} [ {each}, %{before} ], [ zeroinitializer, %{added} ]", "r") for each in sums),
        ]


def emit_weight_grad(kernel: WeightGradKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a convolution's weight gradient."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    stack = f.let(f"alloca [{kernel.block} x <{kernel.block} x float>], align 64")
    a = Loaded(f, kernel.arguments)
    walk = _Walk(f, a, kernel.block, kernel.inputs * kernel.sums)
    units = Counter(f, [a["input_blocks"], a["output_blocks"]])
    position = units.indices
    if kernel.last_inputs == kernel.inputs:
        _unit(kernel, f, a, walk, stack, position, kernel.inputs)
    else:
        whole, part, after = f.fresh("whole"), f.fresh("part"), f.fresh("after")
        f.branch_if(f.let(f"icmp eq i64 {f.add(position[0], 1)}, {a['input_blocks']}", "c"), part, whole)
        for label, channels in ((whole, kernel.inputs), (part, kernel.last_inputs)):
            f.label(label)
            _unit(kernel, f, a, walk, stack, position, channels)
            f.branch(after)
        f.label(after)
    units.end()
    return f


def _unit(
    k: WeightGradKernel, f: FunctionBuilder, a: Loaded, walk: _Walk, stack: str, position: Sequence[str], channels: int
) -> None:
    inputs, outputs, group = position
    x, (x_batch, x_group, x_block, x_channel, x_row, x_column) = a.tensor("x")
    dy, (dy_batch, dy_group, dy_block, dy_row) = a.tensor("dy")
    w, (w_output, w_input, w_row, w_column) = a.tensor("w")
    if k.blocked:
        x_channel, x_column = "1", str(k.block)
    x = f.element(x, "float", f.add(f.mul(group, x_group), f.mul(inputs, x_block)))
    dy = f.element(dy, "float", f.add(f.mul(group, dy_group), f.mul(outputs, dy_block)))
    first = f.mul(outputs, k.block)
    all_first = f.add(f.mul(group, a["outputs"]), first)
    target = f.add(f.mul(all_first, w_output), f.mul(f.mul(inputs, k.inputs), w_input))
    lanes = f.min(f.sub(a["outputs"], first), k.block)
    kernel_row = f.loop(0, a["kernel_rows"])
    rows = _outputs_with(f, kernel_row.index, a["row_dilation"], a["row_stride"], a["top"], a["height"], a["rows"])
    kernel_column = f.loop(0, a["kernel_columns"])
    low, high = _outputs_with(
        f, kernel_column.index, a["column_dilation"], a["column_stride"], a["left"], a["width"], a["columns"]
    )
    row_shift = f.sub(f.mul(kernel_row.index, a["row_dilation"]), a["top"])
    column_shift = f.sub(f.mul(kernel_column.index, a["column_dilation"]), a["left"])
    step = f.mul(a["column_stride"], x_column)

    def stretch(image: str, row: str, begin: str, end: str, sums: list[str]) -> list[str]:
        line = f.add(f.mul(row, a["row_stride"]), row_shift)
        at = f.add(f.mul(image, x_batch), f.add(f.mul(line, x_row), f.mul(column_shift, x_column)))
        source = f.element(x, "float", at)
        bases = [f.element(source, "float", f.mul(channel, x_channel)) for channel in range(channels)]
        gradients = f.element(dy, "float", f.add(f.mul(image, dy_batch), f.mul(row, dy_row)))
        edge = begin
        if k.sums > 1:
            edge = f.add(begin, f.mul(f.let(f"sdiv i64 {f.sub(end, begin)}, {k.sums}", "i"), k.sums))
            loop = f.loop(begin, edge, k.sums, [(walk.vector, each) for each in sums])
            sums = f.end(loop, _pixels(k, f, bases, gradients, loop.index, step, loop.carry, k.sums))
        loop = f.loop(edge, end, 1, [(walk.vector, each) for each in sums])
        return f.end(loop, _pixels(k, f, bases, gradients, loop.index, step, loop.carry, 1))

    sums = walk.run(rows, (low, high), channels * k.sums, stretch)
    for channel in range(channels):
        total = sums[channel * k.sums]
        for part in range(1, k.sums):
            total = f.let(f"fadd {walk.vector} {total}, {sums[channel * k.sums + part]}")
        f.line(f"store {walk.vector} {total}, ptr {f.element(stack, walk.vector, channel)}, align 64")
    tap = f.add(f.mul(kernel_row.index, w_row), f.mul(kernel_column.index, w_column))
    lane = f.loop(0, lanes)
    made = f.element(w, "float", f.add(f.add(target, tap), f.mul(lane.index, w_output)))
    for channel in range(channels):
        value = f.let(f"load float, ptr {f.element(stack, 'float', f.add(lane.index, channel * k.block))}, align 4")
        f.line(f"store float {value}, ptr {f.element(made, 'float', f.mul(channel, w_input))}, align 4")
    f.end(lane)
    f.end(kernel_column)
    f.end(kernel_row)


def _pixels(
    k: WeightGradKernel, f: FunctionBuilder, bases: list[str], gradients: str, column: str, step: str, sums: list[str], count: int
) -> list[str]:
    """Add so many neighbouring pixels to the sums, each to its own."""
    sums = list(sums)
    vector = f"<{k.block} x float>"
    offset = f.mul(column, step)
    for pixel in range(count):
        d = _load(f, k.block, f.element(gradients, "float", f.mul(f.add(column, pixel), k.block)))
        here = f.add(offset, f.mul(pixel, step))
        for channel, base in enumerate(bases):
            value = f.let(f"load float, ptr {f.element(base, 'float', here)}, align 4")
            one = f.let(f"insertelement {vector} poison, float {value}, i64 0")
            wide = f.let(f"shufflevector {vector} {one}, {vector} poison, <{k.block} x i32> zeroinitializer")
            at = channel * k.sums + pixel
            sums[at] = _multiply_add(f, k.block, d, wide, sums[at])
    return sums


def emit_depthwise_grad(kernel: DepthwiseGradKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a depthwise convolution's weight gradient: all columns of a kernel row at once."""
    k, f = kernel, FunctionBuilder(name, KERNEL_PARAMETERS)
    stack = f.let(f"alloca [{k.taps} x <{k.block} x float>], align 64")
    a = Loaded(f, kernel.arguments)
    x, (x_batch, x_block, x_row) = a.tensor("x")
    dy, (dy_batch, dy_block, dy_row) = a.tensor("dy")
    w, (w_channel, w_row, w_column) = a.tensor("w")
    walk = _Walk(f, a, k.block, k.taps)
    units = Counter(f, [a["kernel_rows"]])
    kernel_row, block = units.indices
    rows = _outputs_with(f, kernel_row, a["row_dilation"], a["row_stride"], a["top"], a["height"], a["rows"])
    ranges = [
        _outputs_with(f, str(tap), a["column_dilation"], a["column_stride"], a["left"], a["width"], a["columns"])
        for tap in range(k.taps)
    ]
    low, high = ranges[0]
    for first, last in ranges[1:]:
        low, high = maximum(f, low, first), f.min(high, last)
    high = maximum(f, high, low)
    row_shift = f.sub(f.mul(kernel_row, a["row_dilation"]), a["top"])
    step = f.mul(a["column_stride"], k.block)
    apart = f.mul(a["column_dilation"], k.block)

    def added(image: str, row: str, begin: str, end: str, taps: Sequence[int], sums: list[str]) -> list[str]:
        """The sums after some columns of a row, of which these taps are inside."""
        line = f.add(f.mul(row, a["row_stride"]), row_shift)
        at = f.add(f.add(f.mul(block, x_block), f.mul(image, x_batch)), f.mul(line, x_row))
        source = f.element(x, "float", f.sub(at, f.mul(a["left"], k.block)))
        at = f.add(f.add(f.mul(block, dy_block), f.mul(image, dy_batch)), f.mul(row, dy_row))
        gradients = f.element(dy, "float", at)
        loop = f.loop(begin, end, 1, [(walk.vector, sums[tap]) for tap in taps])
        d = _load(f, k.block, f.element(gradients, "float", f.mul(loop.index, k.block)))
        here = f.element(source, "float", f.mul(loop.index, step))
        made = []
        for carried, tap in zip(loop.carry, taps):
            value = _load(f, k.block, f.element(here, "float", f.mul(tap, apart)))
            made.append(_multiply_add(f, k.block, d, value, carried))
        found = list(sums)
        for tap, after in zip(taps, f.end(loop, made)):
            found[tap] = after
        return found

    def stretch(image: str, row: str, begin: str, end: str, sums: list[str]) -> list[str]:
        return added(image, row, begin, end, range(k.taps), sums)

    def rest(image: str, row: str, sums: list[str]) -> list[str]:
        """Pixels that not all taps have."""
        for tap, (begin, end) in enumerate(ranges):
            sums = added(image, row, begin, f.min(low, end), [tap], sums)
            sums = added(image, row, maximum(f, high, begin), end, [tap], sums)
        return sums

    sums = walk.run(rows, (low, high), k.taps, stretch, rest)
    for tap, total in enumerate(sums):
        f.line(f"store {walk.vector} {total}, ptr {f.element(stack, walk.vector, tap)}, align 64")
    first = f.mul(block, k.block)
    lane = f.loop(0, f.min(f.sub(a["outputs"], first), k.block))
    at = f.add(f.mul(f.add(first, lane.index), w_channel), f.mul(kernel_row, w_row))
    for tap in range(k.taps):
        value = f.let(f"load float, ptr {f.element(stack, 'float', f.add(lane.index, tap * k.block))}, align 4")
        f.line(f"store float {value}, ptr {f.element(w, 'float', f.add(at, f.mul(tap, w_column)))}, align 4")
    f.end(lane)
    units.end()
    return f
