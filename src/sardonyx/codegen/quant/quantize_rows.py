"""Rows of floats -> integers in blocks (see `kernel.quant.block_product.QuantizeRowsKernel`).

for block in begin .. end:              (row, block by division and remainder)
  largest magnitude; what is no number makes the scale NaN
  levels = round(x * largest level / magnitude), their sum
"""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conversions import convert, rounded_integers
from sardonyx.codegen.element_types import constant, memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.quant.block_product import HALFWORDS, QuantizeRowsKernel
from sardonyx.target.target import Target

_INFINITY: Final = 0x7F800000  # the bits of infinity; those of NaN are more
_LEAST: Final = 2.0**-100  # a block of smaller numbers is a block of zeros: dividing by them would overflow


def emit_quantize_rows(kernel: QuantizeRowsKernel, name: str, target: Target) -> FunctionBuilder:
    """The function that quantizes rows."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    lanes = min(target.lanes, kernel.block)
    e = VectorEmitter(f, lanes)
    floats, integers = e.type("f32"), e.type("i32")
    a = Loaded(f, kernel.arguments)
    columns, blocks, between = a["columns"], a["blocks"], a["between"]
    source, (row_stride,) = a.tensor("source")
    levels, (level_stride,) = a.tensor("levels")
    most = float(kernel.largest)

    unit = f.loop("%begin", "%end")
    row = f.let(f"udiv i64 {unit.index}, {blocks}", "i")
    block = f.let(f"urem i64 {unit.index}, {blocks}", "i")
    column = f.mul(block, kernel.block)
    count = f.sub(columns, column)
    x = f.element(source, memory_type(kernel.type), f.add(f.mul(row, row_stride), column))

    vectors = []
    for start in range(0, kernel.block, lanes):
        mask = e.mask_below(f.sub(count, start))
        value = e.load(f.element(x, memory_type(kernel.type), start), kernel.type, mask)
        vectors.append(convert(e, value, kernel.type, "f32"))
    # Magnitudes are in the order of their bits, with infinity and NaN at the end.
    largest = constant("i32", 0, lanes)
    for value in vectors:
        bits = f.let(f"bitcast {floats} {value} to {integers}")
        magnitude = f.let(f"and {integers} {bits}, {constant('i32', 0x7FFFFFFF, lanes)}")
        largest = f.call(integers, f"llvm.umax.v{lanes}i32", (integers, largest), (integers, magnitude))
    peak_bits = f.call("i32", f"llvm.vector.reduce.umax.v{lanes}i32", (integers, largest))
    is_number = f.let(f"icmp ult i32 {peak_bits}, {constant('i32', _INFINITY, 1)}")
    peak = f.let(f"bitcast i32 {peak_bits} to float")
    least, highest = constant("f32", _LEAST, 1), constant("f32", most, 1)
    small = f.let(f"fcmp olt float {peak}, {least}")
    peak = f.let(f"select i1 {small}, float {least}, float {peak}")
    inverse = f.let(f"select i1 {is_number}, float {f.let(f'fdiv float {highest}, {peak}')}, float 0.0")
    scale = f.let(f"fdiv float {peak}, {highest}")
    scale = f.let(f"select i1 {is_number}, float {scale}, float {constant('f32', float('nan'), 1)}")
    factor = e.splat(inverse, "float")

    total = constant("i32", 0, lanes)
    level = f"i{kernel.level_bits}"
    target_levels = f.element(levels, level, f.add(f.mul(row, level_stride), column))
    for number, value in enumerate(vectors):
        scaled = f.let(f"fmul {floats} {value}, {factor}")
        whole = _rounded(e, scaled, target)
        total = f.let(f"add {integers} {total}, {whole}")
        if kernel.planes:
            _store_planes(e, whole, f.element(target_levels, level, number * lanes))
            continue
        if kernel.level_bits == 16:
            order = ", ".join(f"i32 {lane - lane % 4 + HALFWORDS[lane % 4]}" for lane in range(lanes))
            whole = f.let(f"shufflevector {integers} {whole}, {integers} poison, <{lanes} x i32> <{order}>")
        narrow = f.let(f"trunc {integers} {whole} to <{lanes} x {level}>")
        f.line(f"store <{lanes} x {level}> {narrow}, ptr {f.element(target_levels, level, number * lanes)}, align 1")
    summed = f.call("i32", f"llvm.vector.reduce.add.v{lanes}i32", (integers, total))
    entry = f.add(f.mul(block, between), row)
    f.line(f"store float {scale}, ptr {f.element(a['scales'], 'float', entry)}, align 4")
    correction = f.element(a["corrections"], "i32", entry)
    if kernel.middle:
        f.line(f"store i32 {f.let(f'mul i32 {summed}, {-kernel.middle}')}, ptr {correction}, align 4")
    else:
        product = f.let(f"fmul float {f.let(f'sitofp i32 {summed} to float')}, {f.let(f'fneg float {scale}')}")
        f.line(f"store float {product}, ptr {correction}, align 4")
    f.end(unit)
    return f


def _rounded(e: VectorEmitter, value: str, target: Target) -> str:
    """A float as the nearest integer; in a block with NaN as any."""
    if target.converts_to_nearest:
        return rounded_integers(e, value, "f32", "i32")
    floats = e.type("f32")
    return convert(e, e.f.call(floats, f"llvm.roundeven.v{e.lanes}f32", (floats, value)), "f32", "i32")


def _store_planes(e: VectorEmitter, whole: str, target: str) -> None:
    """Levels as 256 * high + low, both signed bytes: of every four the low ones, then the high ones."""
    f, lanes, integers = e.f, e.lanes, e.type("i32")
    shift = constant("i32", 24, lanes)
    low = f.let(f"ashr {integers} {f.let(f'shl {integers} {whole}, {shift}')}, {shift}")
    high = f.let(f"ashr {integers} {f.let(f'sub {integers} {whole}, {low}')}, {constant('i32', 8, lanes)}")
    bytes_ = f"<{lanes} x i8>"
    parts = [f.let(f"trunc {integers} {value} to {bytes_}") for value in (low, high)]
    order = ", ".join(
        f"i32 {four + byte + plane * lanes}" for four in range(0, lanes, 4) for plane in range(2) for byte in range(4)
    )
    both = f.let(f"shufflevector {bytes_} {parts[0]}, {bytes_} {parts[1]}, <{2 * lanes} x i32> <{order}>")
    f.line(f"store <{2 * lanes} x i8> {both}, ptr {target}, align 1")
