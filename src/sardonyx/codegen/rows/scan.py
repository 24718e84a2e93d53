"""Scans -> LLVM: the running value stays in a register; a run that fills no vector is masked."""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.element_types import constant, memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import FLOATS, binary, load
from sardonyx.kernel.rows.scan import ScanKernel, run_lanes
from sardonyx.target.target import Target


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
    offsets = [f.mul(first, "1" if kernel.vectors else side[3]) for side in sides]
    for axis in range(kernel.outer - 1, -1, -1):
        index = rest if axis == 0 else f.let(f"urem i64 {rest}, {outer[axis]}", "i")
        if axis:
            rest = f.let(f"udiv i64 {rest}, {outer[axis]}", "i")
        offsets = [f.add(offset, f.mul(index, side[1][axis])) for offset, side in zip(offsets, sides)]
    source, result = (f.element(side[0], element, offset) for side, offset in zip(sides, offsets))
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
