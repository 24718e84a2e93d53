"""Gradients of pools -> LLVM.

for unit in begin .. end:                       (image, block of channels)
  dx = 0
  for output row, column:
    for tap inside the image:
      max       dx[tap] += dy where x[tap] is y and no tap before it was
      average   dx[tap] += dy / number of elements
"""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conv.conv_tile import Counter, inside
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.kernel.pool.pool_grad import PoolGradKernel
from sardonyx.target.target import Target


def emit_pool_grad(kernel: PoolGradKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a pool's gradient."""
    k, f = kernel, FunctionBuilder(name, KERNEL_PARAMETERS)
    a = Loaded(f, kernel.arguments)
    vector, mask = f"<{k.block} x float>", f"<{k.block} x i1>"
    names = ("dy", "dx", "x", "y") if k.kind == "max" else ("dy", "dx")
    units = Counter(f, [a["blocks"]])
    block, image = units.indices
    bases, rows = {}, {}
    for each in names:
        base, (batch, of_block, row_stride) = a.tensor(each)
        bases[each] = f.element(base, "float", f.add(f.mul(image, batch), f.mul(block, of_block)))
        rows[each] = row_stride

    lines = f.loop(0, a["height"])
    line = f.element(bases["dx"], "float", f.mul(lines.index, rows["dx"]))
    pixels = f.loop(0, a["width"])
    f.line(f"store {vector} zeroinitializer, ptr {f.element(line, 'float', f.mul(pixels.index, k.block))}, align 4")
    f.end(pixels)
    f.end(lines)

    row = f.loop(0, a["rows"])
    first_row = f.sub(f.mul(row.index, a["row_stride"]), a["top"])
    kernel_rows = inside(f, first_row, a["row_dilation"], a["height"], a["kernel_rows"])
    column = f.loop(0, a["columns"])
    first_column = f.sub(f.mul(column.index, a["column_stride"]), a["left"])
    kernel_columns = inside(f, first_column, a["column_dilation"], a["width"], a["kernel_columns"])

    def at(each: str) -> str:
        return f.element(bases[each], "float", f.add(f.mul(row.index, rows[each]), f.mul(column.index, k.block)))

    d = f.let(f"load {vector}, ptr {at('dy')}, align 4")
    y, nan = "", ""
    if k.kind == "max":
        y = f.let(f"load {vector}, ptr {at('y')}, align 4")
        nan = f.let(f"fcmp uno {vector} {y}, {y}")
    else:
        counts = []
        for first, dilation, size, low, high, count, end in (
            (first_row, "row_dilation", "height", *kernel_rows, "kernel_rows", "bottom"),
            (first_column, "column_dilation", "width", *kernel_columns, "kernel_columns", "right"),
        ):
            if k.padded:  # windows may reach past the padding
                counts.append(inside(f, "0", a[dilation], f.sub(f.add(a[size], a[end]), first), a[count])[1])
            else:
                counts.append(f.sub(high, low))
        number = f.let(f"sitofp i64 {f.mul(*counts)} to float")
        one = f.let(f"insertelement {vector} poison, float {number}, i64 0")
        wide = f.let(f"shufflevector {vector} {one}, {vector} poison, <{k.block} x i32> zeroinitializer")
        d = f.let(f"fdiv {vector} {d}, {wide}")
    carry = [(mask, "zeroinitializer")] if k.kind == "max" else []
    tap_row = f.loop(*kernel_rows, 1, carry)
    source_row = f.add(first_row, f.mul(tap_row.index, a["row_dilation"]))
    tap_column = f.loop(*kernel_columns, 1, [(mask, taken) for taken in tap_row.carry])
    pixel = f.mul(f.add(first_column, f.mul(tap_column.index, a["column_dilation"])), k.block)
    into = f.element(bases["dx"], "float", f.add(f.mul(source_row, rows["dx"]), pixel))
    added, following = d, []
    if k.kind == "max":
        x = f.let(f"load {vector}, ptr {f.element(bases['x'], 'float', f.add(f.mul(source_row, rows['x']), pixel))}, align 4")
        equal = f.let(f"fcmp oeq {vector} {x}, {y}")
        both = f.let(f"and {mask} {nan}, {f.let(f'fcmp uno {vector} {x}, {x}')}")
        found = f.let(f"or {mask} {equal}, {both}")
        free = f.let(f"xor {mask} {tap_column.carry[0]}, splat (i1 true)")
        hit = f.let(f"and {mask} {found}, {free}")
        added = f.let(f"select {mask} {hit}, {vector} {d}, {vector} zeroinitializer")
        following = [f.let(f"or {mask} {tap_column.carry[0]}, {found}")]
    old = f.let(f"load {vector}, ptr {into}, align 4")
    f.line(f"store {vector} {f.let(f'fadd {vector} {old}, {added}')}, ptr {into}, align 4")
    f.end(tap_row, f.end(tap_column, following))
    f.end(column)
    f.end(row)
    units.end()
    return f
