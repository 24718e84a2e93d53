"""Changes of layout -> LLVM: squares of channels times pixels are transposed in registers."""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conv.conv_tile import Counter
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.conv.layout import (
    LayoutKernel,
    ShiftKernel,
    SurroundKernel,
)
from sardonyx.target.target import Target


def transpose(f: FunctionBuilder, rows: list[str]) -> list[str]:
    """A square of float vectors with rows and columns exchanged: ever smaller squares off the diagonal change places."""
    size = len(rows)
    vector = f"<{size} x float>"
    rows = list(rows)
    step = size // 2
    while step:
        first = ", ".join(f"i32 {lane if not lane & step else lane - step + size}" for lane in range(size))
        second = ", ".join(f"i32 {lane + step if not lane & step else lane + size}" for lane in range(size))
        for number in range(size):
            if not number & step:
                a, b = rows[number], rows[number + step]
                rows[number] = f.let(f"shufflevector {vector} {a}, {vector} {b}, <{size} x i32> <{first}>")
                rows[number + step] = f.let(f"shufflevector {vector} {a}, {vector} {b}, <{size} x i32> <{second}>")
        step //= 2
    return rows


def emit_layout(kernel: LayoutKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a change of layout."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    a = Loaded(f, kernel.arguments)
    units = Counter(f, [a["chunks"], a["blocks"]])
    chunk, block, image = units.indices
    plain = f.add(f.mul(image, a["plain_batch"]), f.mul(f.mul(block, kernel.block), a["plain_channel"]))
    blocked = f.add(f.mul(image, a["blocked_batch"]), f.mul(block, a["blocked_block"]))
    pointers = f.element(a["plain"], "float", plain), f.element(a["blocked"], "float", blocked)
    begin = f.mul(chunk, a["chunk"])
    end = f.min(f.add(begin, a["chunk"]), a["pixels"])
    if kernel.tail == kernel.block:
        _pixels(kernel, f, a, pointers, begin, end, kernel.block)
    else:
        whole, part, after = f.fresh("whole"), f.fresh("part"), f.fresh("after")
        f.branch_if(f.let(f"icmp eq i64 {f.add(block, 1)}, {a['blocks']}", "c"), part, whole)
        for label, channels in ((whole, kernel.block), (part, kernel.tail)):
            f.label(label)
            _pixels(kernel, f, a, pointers, begin, end, channels)
            f.branch(after)
        f.label(after)
    units.end()
    return f


def _pixels(
    kernel: LayoutKernel, f: FunctionBuilder, a: Loaded, pointers: tuple[str, str], begin: str, end: str, channels: int
) -> None:
    whole = f.let(f"sdiv i64 {f.sub(end, begin)}, {kernel.block}", "i")
    edge = f.add(begin, f.mul(whole, kernel.block))
    loop = f.loop(begin, edge, kernel.block)
    _square(kernel, f, a, pointers, loop.index, channels)
    f.end(loop)
    rest = f.loop(edge, end)
    _pixel(kernel, f, a, pointers, rest.index, channels)
    f.end(rest)


def _square(kernel: LayoutKernel, f: FunctionBuilder, a: Loaded, pointers: tuple[str, str], pixel: str, channels: int) -> None:
    """One block of channels times as many pixels."""
    e = VectorEmitter(f, kernel.block)
    plain, blocked = f.element(pointers[0], "float", pixel), f.element(pointers[1], "float", f.mul(pixel, kernel.block))
    rows = [f.element(plain, "float", f.mul(channel, a["plain_channel"])) for channel in range(channels)]
    lines = [f.element(blocked, "float", number * kernel.block) for number in range(kernel.block)]
    if kernel.direction == "to":
        loaded = [*(e.load(row, "f32") for row in rows), *["zeroinitializer"] * (kernel.block - channels)]
        for line, value in zip(lines, transpose(f, loaded)):
            e.store(line, value, "f32")
    else:
        for row, value in zip(rows, transpose(f, [e.load(line, "f32") for line in lines])):
            e.store(row, value, "f32")


def _pixel(kernel: LayoutKernel, f: FunctionBuilder, a: Loaded, pointers: tuple[str, str], pixel: str, channels: int) -> None:
    """One block of channels of a pixel that has no square."""
    e = VectorEmitter(f, kernel.block)
    vector = e.type("f32")
    row, line = f.element(pointers[0], "float", pixel), f.element(pointers[1], "float", f.mul(pixel, kernel.block))
    value = "zeroinitializer" if kernel.direction == "to" else e.load(line, "f32")
    for channel in range(channels):
        if channel:
            row = f.element(row, "float", a["plain_channel"])
        if kernel.direction == "to":
            one = f.let(f"load float, ptr {row}, align 4")
            value = f.let(f"insertelement {vector} {value}, float {one}, i32 {channel}")
        else:
            one = f.let(f"extractelement {vector} {value}, i32 {channel}")
            f.line(f"store float {one}, ptr {row}, align 4")
    if kernel.direction == "to":
        e.store(line, value, "f32")


def emit_surround(kernel: SurroundKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a copy into the midst of zeros."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    a = Loaded(f, kernel.arguments)
    f.declarations.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    f.declarations.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")

    def clear(at: str, elements: str) -> None:
        f.line(f"call void @llvm.memset.p0.i64(ptr {at}, i8 0, i64 {f.mul(elements, 4)}, i1 false)")

    units = Counter(f, [a["high"], a["deep"]])
    row, plane, outer = units.indices
    number = f.add(f.mul(f.add(f.mul(outer, a["deep"]), plane), a["high"]), row)
    to = f.element(a["y"], "float", f.mul(number, a["wide"]))
    deep, high = f.sub(plane, a["front"]), f.sub(row, a["top"])
    deep_inside = f.let(f"icmp ult i64 {deep}, {a['depth']}", "c")
    high_inside = f.let(f"icmp ult i64 {high}, {a['height']}", "c")
    within = f.let(f"and i1 {deep_inside}, {high_inside}", "c")
    copy, empty, after = f.fresh("copy"), f.fresh("empty"), f.fresh("after")
    f.branch_if(within, copy, empty)
    f.label(copy)
    number = f.add(f.mul(f.add(f.mul(outer, a["depth"]), deep), a["height"]), high)
    source = f.element(a["x"], "float", f.mul(number, a["width"]))
    clear(to, a["left"])
    middle = f.element(to, "float", a["left"])
    f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {middle}, ptr {source}, i64 {f.mul(a['width'], 4)}, i1 false)")
    clear(f.element(middle, "float", a["width"]), f.sub(f.sub(a["wide"], a["left"]), a["width"]))
    f.branch(after)
    f.label(empty)
    clear(to, a["wide"])
    f.branch(after)
    f.label(after)
    units.end()
    return f


def emit_shift(kernel: ShiftKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a copy that moves channels to other lanes."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    a = Loaded(f, kernel.arguments)
    units = Counter(f, [a["chunks"], a["blocks"]])
    chunk, block, image = units.indices
    source = f.element(a["x"], "float", f.add(f.mul(image, a["x_batch"]), f.mul(block, a["x_block"])))
    target_block = f.element(a["y"], "float", f.add(f.mul(image, a["y_batch"]), f.mul(block, a["y_block"])))
    begin = f.mul(chunk, a["chunk"])
    end = f.min(f.add(begin, a["chunk"]), a["pixels"])
    if kernel.tail == kernel.block:
        _shifted(kernel, f, a, (source, target_block), begin, end, kernel.block)
    else:
        whole, part, after = f.fresh("whole"), f.fresh("part"), f.fresh("after")
        f.branch_if(f.let(f"icmp eq i64 {f.add(block, 1)}, {a['blocks']}", "c"), part, whole)
        for label, channels in ((whole, kernel.block), (part, kernel.tail)):
            f.label(label)
            _shifted(kernel, f, a, (source, target_block), begin, end, channels)
            f.branch(after)
        f.label(after)
    units.end()
    return f


def _shifted(
    kernel: ShiftKernel, f: FunctionBuilder, a: Loaded, pointers: tuple[str, str], begin: str, end: str, channels: int
) -> None:
    """The first channels of a block, at all pixels of a chunk: some go to this block of the result, the rest to the next."""
    e = VectorEmitter(f, kernel.block)
    size, shift = kernel.block, kernel.shift
    order = ", ".join(f"i32 {(lane - shift) % size}" for lane in range(size))
    here = [shift <= lane < shift + channels for lane in range(size)]
    there = [lane + size < shift + channels for lane in range(size)]
    loop = f.loop(begin, end)
    at = f.mul(loop.index, size)
    value = e.load(f.element(pointers[0], "float", at), "f32")
    if shift:
        value = f.let(f"shufflevector <{size} x float> {value}, <{size} x float> poison, <{size} x i32> <{order}>")
    to = f.element(pointers[1], "float", at)
    for lanes, pointer in ((here, to), (there, f.element(to, "float", a["y_block"]))):
        if any(lanes):
            mask = None if all(lanes) else f"<{', '.join(f'i1 {int(lane)}' for lane in lanes)}>"
            e.store(pointer, value, "f32", mask)
    f.end(loop)
