"""Elements of rows at positions that a table says -> LLVM: a few at a time."""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.element_types import memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.kernel.sampling.nearest import PIECE, NearestKernel
from sardonyx.target.target import Target

_TOGETHER = 8  # points of a row


def emit_nearest_kernel(kernel: NearestKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a selection of points.

    for piece of a row in begin .. end:      (outer axes, piece)
      for point:  target[point] = source[indices[point]]
    """
    del target  # nothing of it decides
    f, element = FunctionBuilder(name, KERNEL_PARAMETERS), memory_type(kernel.type)
    a = Loaded(f, kernel.arguments)
    sizes, points = a.several("outer"), a["points"]
    (source, source_strides), (target_rows, target_strides) = a.tensor("source"), a.tensor("target")
    pieces = f.let(f"udiv i64 {f.add(points, PIECE - 1)}, {PIECE}", "i")
    unit = f.loop("%begin", "%end")
    start = f.mul(f.let(f"urem i64 {unit.index}, {pieces}", "i"), PIECE)
    stop = f.min(f.add(start, PIECE), points)
    rest = f.let(f"udiv i64 {unit.index}, {pieces}", "i")
    indices = f.indices(rest, sizes)
    written = f.offset(indices, target_strides)
    if kernel.lines:
        indices[-1] = f.let(f"load i64, ptr {f.element(a['lines'], 'i64', indices[-1])}, align 8", "i")
    read = f.offset(indices, source_strides)
    row, made = f.element(source, element, read), f.element(target_rows, element, written)

    def move(first: str, count: int) -> None:
        table = f.element(a["indices"], "i64", first)
        at = f.element(made, element, first)
        for number in range(count):
            index = f.let(f"load i64, ptr {f.element(table, 'i64', number)}, align 8", "i")
            value = f.let(f"load {element}, ptr {f.element(row, element, index)}, align 1")
            f.line(f"store {element} {value}, ptr {f.element(at, element, number)}, align 1")

    whole = f.add(start, f.let(f"and i64 {f.sub(stop, start)}, {-_TOGETHER}", "i"))
    several = f.loop(start, whole, _TOGETHER)
    move(several.index, _TOGETHER)
    f.end(several)
    single = f.loop(whole, stop)
    move(single.index, 1)
    f.end(single)
    f.end(unit)
    return f
