"""Scans -> LLVM: the running value stays in a register, or is the row before; a run that fills no vector is masked."""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.element_types import constant, memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import FLOATS, binary, load
from sardonyx.kernel.rows.scan import ScanKernel, lanes_of, run_lanes
from sardonyx.target.target import Target

_VECTORS_AT_ONCE: Final = 4


def emit_scan_kernel(kernel: ScanKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a scan."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    lanes = run_lanes(kernel, target)
    e = VectorEmitter(f, lanes)
    element = memory_type(kernel.type)
    a = Loaded(f, kernel.arguments)
    outer, steps, inner = a.several("outer"), a["steps"], a["inner"]
    sides = []
    for base, (*strides, step, inside) in (a.tensor("source"), a.tensor("target")):
        sides.append((base, strides, step, inside))
    runs = f.let(f"udiv i64 {f.add(inner, lanes - 1)}, {lanes}", "i")

    unit = f.loop("%begin", "%end")
    first = f.mul(f.let(f"urem i64 {unit.index}, {runs}", "i"), lanes)
    rest = f.let(f"udiv i64 {unit.index}, {runs}", "i")
    indices = f.indices(rest, outer)
    offsets = [f.offset(indices, side[1], f.mul(first, "1" if kernel.vectors else side[3])) for side in sides]
    source, result = (f.element(side[0], element, offset) for side, offset in zip(sides, offsets))
    if kernel.by_rows:
        count = f.min(f.sub(inner, first), lanes)
        _run_by_rows(f, kernel, target, steps, count, (source, sides[0][2]), (result, sides[1][2]))
        f.end(unit)
        return f
    full, ragged, done = f.fresh("full"), f.fresh("ragged"), f.fresh("scanned")
    count = f.sub(inner, first)
    f.branch_if(f.let(f"icmp sge i64 {count}, {lanes}", "c"), full, ragged)
    for label, masked in ((full, False), (ragged, True)):
        f.label(label)
        mask = e.mask_below(count) if masked and lanes > 1 else None
        _run(e, kernel, steps, (source, sides[0][2]), (result, sides[1][2]), mask)
        f.branch(done)
    f.label(done)
    f.end(unit)
    return f


def _run(
    e: VectorEmitter, kernel: ScanKernel, steps: str, source: tuple[str, str], target: tuple[str, str], mask: str | None
) -> None:
    f, element = e.f, memory_type(kernel.type)
    # Adding to -0.0 changes nothing, not even the sign of a zero.
    start = 1.0 if kernel.operation == "mul" else -0.0 if not kernel.exclusive and kernel.compute in FLOATS else 0.0
    total, value = load(0, kernel.compute), load(1, kernel.type).cast(kernel.compute)
    loop = f.loop(0, steps, 1, [(e.type(kernel.compute), constant(kernel.compute, start, e.lanes))])
    read = e.load(f.element(source[0], element, f.mul(loop.index, source[1])), kernel.type, mask)
    known = {total: loop.carry[0], load(1, kernel.type): read}
    rounded = load(2, kernel.compute).cast(kernel.type)
    (following,) = e.emit([binary(kernel.operation, total, value)], known)
    (stored,) = e.emit([rounded], {load(2, kernel.compute): loop.carry[0] if kernel.exclusive else following})
    e.store(f.element(target[0], element, f.mul(loop.index, target[1])), stored, kernel.type, mask)
    f.end(loop, [following])


def _run_by_rows(
    f: FunctionBuilder,
    kernel: ScanKernel,
    target: Target,
    steps: str,
    count: str,
    source: tuple[str, str],
    result: tuple[str, str],
) -> None:
    """The first row is a copy; each row after it adds to the one before, `count` elements of both."""
    element = memory_type(kernel.type)
    total, value = load(0, kernel.type), load(1, kernel.type)
    vector = lanes_of(kernel.compute, target)
    widths = (_VECTORS_AT_ONCE * vector, vector)
    for only_first in (True, False):
        start, stop = ("0", f.min(steps, 1)) if only_first else ("1", steps)
        step = f.loop(start, stop)
        read = f.element(source[0], element, f.mul(step.index, source[1]))
        written = f.element(result[0], element, f.mul(step.index, result[1]))
        before = f.element(result[0], element, f.mul(f.sub(step.index, 1), result[1]))
        done = "0"
        for lanes in (*widths, 0):  # whole vectors, and what is left of one
            e = VectorEmitter(f, lanes or vector)
            edge = f.mul(f.let(f"udiv i64 {count}, {lanes}", "i"), lanes) if lanes else count
            part = f.loop(done, edge, e.lanes)
            mask = None if lanes else e.mask_below(f.sub(count, part.index))
            made = e.load(f.element(read, element, part.index), kernel.type, mask)
            if not only_first:
                known = {total: e.load(f.element(before, element, part.index), kernel.type, mask), value: made}
                (made,) = e.emit([binary(kernel.operation, total, value)], known)
            e.store(f.element(written, element, part.index), made, kernel.type, mask)
            f.end(part)
            done = edge
        f.end(step)
