"""Samplings -> LLVM: vectors of points, whose elements are gathered; what lies outside is masked."""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conversions import convert
from sardonyx.codegen.element_types import constant, intrinsic_suffix, memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import BITS
from sardonyx.kernel.sampling.sample import CHUNK, SampleKernel, SampleRowsKernel
from sardonyx.target.target import Target

_VECTORS = 4  # of channels at once


def emit_sample_kernel(kernel: SampleKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a sampling."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    a = Loaded(f, kernel.arguments)
    channels, points, elements, image_stride = a["channels"], a["points"], a["elements"], a["image_stride"]
    source, indices, result = a["source"], a["indices"], a["target"]
    weights = a["weights"] if kernel.weighted else ""
    chunks = f.let(f"udiv i64 {f.add(points, CHUNK - 1)}, {CHUNK}", "i")
    lanes = target.lanes_of(64)  # indices are 64 bits wide
    unit = f.loop("%begin", "%end")
    first = f.mul(f.let(f"urem i64 {unit.index}, {chunks}", "i"), CHUNK)
    plane = f.let(f"udiv i64 {unit.index}, {chunks}", "i")
    image = f.let(f"udiv i64 {plane}, {channels}", "i")
    stop = f.min(f.add(first, CHUNK), points)
    element = memory_type(kernel.source)
    channel = f.add(f.mul(image, image_stride), f.sub(plane, f.mul(image, channels)))
    pixels = f.element(source, element, f.mul(channel, elements))
    row = f.element(result, element, f.mul(plane, points))
    tables = f.mul(f.mul(image, kernel.taps), points)
    whole = f.add(first, f.let(f"and i64 {f.sub(stop, first)}, {-lanes}", "i"))
    for begin, end, width in ((first, whole, lanes), (whole, stop, 1)):
        e = VectorEmitter(f, width)
        loop = f.loop(begin, end, width)
        total = ""
        for tap in range(kernel.taps):
            at_tap = f.add(f.add(tables, f.mul(points, tap)), loop.index)
            value = _gathered(e, pixels, e.load(f.element(indices, "i64", at_tap), "i64"), kernel.source)
            if not kernel.weighted:
                total = value
                continue
            weight = e.load(f.element(weights, memory_type(kernel.compute), at_tap), kernel.compute)
            part = f.let(f"fmul {e.type(kernel.compute)} {convert(e, value, kernel.source, kernel.compute)}, {weight}")
            total = f.let(f"fadd {e.type(kernel.compute)} {total}, {part}") if total else part
        stored = convert(e, total, kernel.compute, kernel.source) if kernel.weighted else total
        e.store(f.element(row, element, loop.index), stored, kernel.source)
        f.end(loop)
    f.end(unit)
    return f


def emit_sample_rows_kernel(kernel: SampleRowsKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a sampling whose channels lie together.

    for point: for channels, some vectors at a time, then one: for tap: sums += weight * source[index]
    """
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    a = Loaded(f, kernel.arguments)
    channels, points = a["channels"], a["points"]
    e = VectorEmitter(f, target.lanes)
    kind, lanes = e.type("f32"), target.lanes
    unit = f.loop("%begin", "%end")
    region = f.let(f"udiv i64 {unit.index}, {points}", "i")
    tables = f.add(f.mul(region, f.mul(points, kernel.taps)), f.sub(unit.index, f.mul(region, points)))
    result = f.element(a["target"], "float", f.mul(unit.index, channels))
    wide = f.mul(f.let(f"udiv i64 {channels}, {_VECTORS * lanes}", "i"), _VECTORS * lanes)
    for begin, end, vectors in (("0", wide, _VECTORS), (wide, channels, 1)):
        channel = f.loop(begin, end, vectors * lanes)
        mask = e.mask_below(f.sub(channels, channel.index)) if vectors == 1 else None
        nothing = constant("f32", -0.0, lanes)  # added to a number it leaves that as it is, 0 too
        tap = f.loop(0, kernel.taps, carry=[(kind, nothing)] * vectors)
        at = f.add(tables, f.mul(tap.index, points))
        index = f.let(f"load i64, ptr {f.element(a['indices'], 'i64', at)}, align 8")
        row = f.element(f.element(a["source"], "float", f.mul(index, channels)), "float", channel.index)
        weight = e.load_scalar(f.element(a["weights"], "float", at), "f32")
        sums = []
        for number, before in enumerate(tap.carry):
            value = e.load(f.element(row, "float", number * lanes), "f32", mask)
            sums.append(f.let(f"fadd {kind} {before}, {f.let(f'fmul {kind} {value}, {weight}')}"))
        for number, total in enumerate(f.end(tap, sums)):
            e.store(f.element(result, "float", f.add(channel.index, number * lanes)), total, "f32", mask)
        f.end(channel)
    f.end(unit)
    return f


def _gathered(e: VectorEmitter, base: str, indices: str, kind: str) -> str:
    """The elements at some indices, 0 for those below zero."""
    f, element, lanes = e.f, memory_type(kind), e.lanes
    align = max(BITS[kind] // 8, 1)
    if lanes > 1:
        inside = f.let(f"icmp sge <{lanes} x i64> {indices}, zeroinitializer", "m")
        pointers = f.let(f"getelementptr {element}, ptr {base}, <{lanes} x i64> {indices}", "p")
        memory = f"<{lanes} x {element}>"
        name = f"llvm.masked.gather.{intrinsic_suffix(kind, lanes)}.v{lanes}p0"
        f.declarations.add(f"declare {memory} @{name}(<{lanes} x ptr>, <{lanes} x i1>, {memory})")
        given = f"<{lanes} x ptr> align {align} {pointers}, <{lanes} x i1> {inside}, {memory} zeroinitializer"
        return f.let(f"call {memory} @{name}({given})")
    found, there, after = f.block, f.fresh("there"), f.fresh("after")
    f.branch_if(f.let(f"icmp sge i64 {indices}, 0", "c"), there, after)
    f.label(there)
    value = f.let(f"load {element}, ptr {f.element(base, element, indices)}, align {align}")
    f.branch(after)
    f.label(after)
    zero = "0.0" if element in ("half", "float", "double") else "0"
    return f.let(f"phi {element} [ {zero}, %{found} ], [ {value}, {there} ]")
