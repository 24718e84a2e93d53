"""The most this machine can do: multiply-adds per second and bytes per second, measured by kernels of our own code generator."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import cache

import numpy as np

from sardonyx.codegen import llvm
from sardonyx.codegen.element_types import constant, intrinsic_suffix
from sardonyx.codegen.function import FunctionBuilder, module
from sardonyx.codegen.host import host
from sardonyx.codegen.loader import load
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.matmul.int8 import QuadProducts
from sardonyx.codegen.quant.integer_dots import dot_halfwords
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.matmul.int8 import element_depth, takes_pairs
from sardonyx.target.target import Target

_CHAINS = 12  # independent sums: enough to hide the latency of a multiply-add on every machine we know
CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def best_time(run: Callable[[], object], seconds: float = 0.5) -> float:
    """The shortest of many runs: on a shared machine the only figure that means something."""
    run()
    shortest = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest


def _multiply_add_ir(kind: str, target: Target) -> str:
    """A loop of nothing but multiply-adds in registers."""
    f = FunctionBuilder("peak", KERNEL_PARAMETERS)
    lanes = target.lanes if kind == "f32" else target.lanes // 2
    e = VectorEmitter(f, lanes)
    vector = e.type(kind)
    base = f.argument("%args", 0, "ptr")
    a, b = e.load(base, kind), e.load(f.element(base, vector, 1), kind)
    loop = f.loop("%begin", "%end", 1, [(vector, constant(kind, 0.0, lanes))] * _CHAINS)
    name = f"llvm.fmuladd.{intrinsic_suffix(kind, lanes)}"
    sums = loop.carry
    for _ in range(4):
        sums = [f.call(vector, name, (vector, a), (vector, b), (vector, one)) for one in sums]
    for number, total in enumerate(f.end(loop, sums)):
        e.store(f.element(base, vector, 2 + number), total, kind)
    return module(f)


@cache
def multiply_add_peak(kind: str = "f32") -> float:
    """Floating point operations per second of one core."""
    target = host()
    code = load(llvm.compile_to_object(_multiply_add_ir(kind, target), target), target.runtime)
    kernel = CALL(code.functions["peak"])
    memory = np.zeros(64 * (_CHAINS + 4), np.uint8)
    start = -(-memory.ctypes.data // 64) * 64
    args = np.array([start], np.int64)
    iterations = 20_000
    lanes = target.lanes if kind == "f32" else target.lanes // 2
    shortest = best_time(lambda: kernel(args.ctypes.data, 0, iterations, 0))
    return 2.0 * 4 * _CHAINS * lanes * iterations / shortest


def _byte_product_ir(target: Target) -> str:
    """A loop of nothing but sums of products of bytes in registers."""
    f = FunctionBuilder("peak", KERNEL_PARAMETERS)
    e = VectorEmitter(f, target.lanes)
    vector = e.type("i32")
    base = f.argument("%args", 0, "ptr")
    a, b = e.load(base, "i32"), e.load(f.element(base, vector, 1), "i32")

    def add(total: str) -> str:
        """As `codegen.matmul.int8` multiplies elements; a product of pairs that is always the same would leave the loop."""
        return dot_halfwords(e, total, total, b, target) if takes_pairs(target) else QuadProducts(e, target).add(total, a, b)

    loop = f.loop("%begin", "%end", 1, [(vector, constant("i32", 0, target.lanes))] * _CHAINS)
    sums = loop.carry
    for _ in range(4):
        sums = [add(one) for one in sums]
    for number, total in enumerate(f.end(loop, sums)):
        e.store(f.element(base, vector, 2 + number), total, "i32")
    return module(f)


@cache
def byte_product_peak() -> float:
    """Operations (a multiplication and an addition are two) on bytes per second of one core."""
    target = host()
    code = load(llvm.compile_to_object(_byte_product_ir(target), target), target.runtime)
    kernel = CALL(code.functions["peak"])
    memory = np.zeros(64 * (_CHAINS + 4), np.uint8)
    args = np.array([-(-memory.ctypes.data // 64) * 64], np.int64)
    rounds = 20_000
    shortest = best_time(lambda: kernel(args.ctypes.data, 0, rounds, 0))
    return 2.0 * 4 * _CHAINS * element_depth(target) * target.lanes * rounds / shortest


def _copy_ir(target: Target) -> str:
    """Copies a block again and again, four vectors at a time."""
    f = FunctionBuilder("copy", KERNEL_PARAMETERS)
    e = VectorEmitter(f, target.lanes)
    source, destination = f.argument("%args", 0, "ptr"), f.argument("%args", 1, "ptr")
    iteration = f.loop("%begin", "%end", 1)
    block = f.loop(0, f.argument("%args", 2), 4 * target.lanes)
    offsets = [f.add(block.index, number * target.lanes) for number in range(4)]
    for offset, loaded in [(offset, e.load(f.element(source, "float", offset), "f32")) for offset in offsets]:
        e.store(f.element(destination, "float", offset), loaded, "f32")
    f.end(block)
    f.end(iteration)
    return module(f)


@cache
def copy_peak(block: int) -> float:
    """Bytes per second, read and written, of one core that copies a block of so many bytes."""
    target = host()
    code = load(llvm.compile_to_object(_copy_ir(target), target), target.runtime)
    kernel = CALL(code.functions["copy"])
    unit = 16 * target.lanes
    size = max(block // unit, 1) * unit
    memory = np.zeros(2 * size + 256, np.uint8)
    source = -(-memory.ctypes.data // 64) * 64
    args = np.array([source, source + -(-size // 64) * 64, size // 4], np.int64)
    iterations = max(1, (1 << 20) // size)
    return 2.0 * size * iterations / best_time(lambda: kernel(args.ctypes.data, 0, iterations, 0), 0.2)


def main() -> None:
    """Print the peaks."""
    for kind in ("f32", "f64"):
        print(f"{kind}: {multiply_add_peak(kind) / 1e9:.1f} GFLOP/s on one core")
    print(f"bytes: {byte_product_peak() / 1e9:.1f} GOP/s on one core")
    for block in (8 << 10, 256 << 10, 4 << 20, 128 << 20):
        print(f"copy of {block >> 10} KiB: {copy_peak(block) / 1e9:.1f} GB/s read and written on one core")


if __name__ == "__main__":
    main()
