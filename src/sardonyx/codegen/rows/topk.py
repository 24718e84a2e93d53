"""Selections of the first k -> LLVM: insertion into the sorted result."""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.rows.insertion import SortedEntries, insert_sorted
from sardonyx.codegen.vector import VectorEmitter, memory_type
from sardonyx.kernel.expr import BITS, FLOATS, Expr, load, unary
from sardonyx.kernel.rows.topk import TopKKernel
from sardonyx.target.target import Target

_VECTORS: Final = 2  # looked at together


def _better(kernel: TopKKernel) -> Expr:
    """Whether element 0 comes before element 1."""
    kind = "f32" if kernel.type in ("f16", "bf16") else "u8" if kernel.type == "bool" else kernel.type
    mine, other = (load(number, kernel.type).cast(kind) for number in (0, 1))
    if kind not in FLOATS:
        return mine > other if kernel.largest else mine < other
    if kernel.largest:
        return (mine > other) | (unary("isnan", mine) & ~unary("isnan", other))
    return (mine < other) | (unary("isnan", other) & ~unary("isnan", mine))


def emit_topk_kernel(kernel: TopKKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a selection."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    one = VectorEmitter(f, 1)
    kind, element = kernel.type, memory_type(kernel.type)
    a = Loaded(f, kernel.arguments)
    outer, length, wanted = a.several("outer"), a["length"], a["wanted"]
    sides = []
    for base, (*strides, along) in (a.tensor("rows"), a.tensor("values"), a.tensor("indices")):
        sides.append((base, strides, along))
    comes_first = _better(kernel)

    def better(e: VectorEmitter, value: str, other: str) -> str:
        (result,) = e.emit([comes_first], {load(0, kind): value, load(1, kind): other})
        return result

    unit = f.loop("%begin", "%end")
    rest = unit.index
    offsets = ["0"] * 3
    for axis in range(kernel.outer - 1, -1, -1):
        index = rest if axis == 0 else f.let(f"urem i64 {rest}, {outer[axis]}", "i")
        if axis:
            rest = f.let(f"udiv i64 {rest}, {outer[axis]}", "i")
        offsets = [f.add(offset, f.mul(index, side[1][axis])) for offset, side in zip(offsets, sides)]
    kinds = (element, element, "i64")
    row, values, indices = (f.element(side[0], one_kind, offset) for side, one_kind, offset in zip(sides, kinds, offsets))
    axis_strides = [side[2] for side in sides]

    def value_at(position: str) -> str:
        return f.element(values, element, f.mul(position, axis_strides[1]))

    def index_at(position: str) -> str:
        return f.element(indices, "i64", f.mul(position, axis_strides[2]))

    def offer(index: str) -> None:
        """Put an element among the best, if it is one of them."""
        value = one.load(f.element(row, element, f.mul(index, axis_strides[0])), kind)

        def shift(position: str, above: str, previous: str) -> None:
            one.store(value_at(position), previous, kind)
            moved = f.let(f"load i64, ptr {index_at(above)}, align 8")
            f.line(f"store i64 {moved}, ptr {index_at(position)}, align 8")

        def put(position: str) -> None:
            one.store(value_at(position), value, kind)
            f.line(f"store i64 {index}, ptr {index_at(position)}, align 8")

        entries = SortedEntries(
            value=lambda position: one.load(value_at(position), kind),
            comes_first=lambda other: better(one, value, other),
            shift=shift,
            put=put,
        )
        insert_sorted(f, entries, index, last)

    some, none = f.fresh("some"), f.fresh("none")
    f.branch_if(f.let(f"icmp sgt i64 {wanted}, 0", "c"), some, none)
    f.label(some)
    last = f.sub(wanted, 1)
    first = f.loop(0, wanted if kernel.unit else length)
    offer(first.index)
    f.end(first)
    if kernel.unit:
        lanes = _VECTORS * target.lanes_of(max(BITS[kind], 16))
        wide = VectorEmitter(f, lanes)
        whole = f.add(wanted, f.let(f"and i64 {f.sub(length, wanted)}, {-lanes}", "i"))
        block = f.loop(wanted, whole, lanes)
        values_here = wide.load(f.element(row, element, block.index), kind)
        beaten = better(wide, values_here, wide.load_scalar(value_at(last), kind))
        look_at, passed = f.fresh("offer"), f.fresh("passed")
        f.branch_if(f.call("i1", f"llvm.vector.reduce.or.v{lanes}i1", (f"<{lanes} x i1>", beaten)), look_at, passed)
        f.label(look_at)
        each = f.loop(block.index, f.add(block.index, lanes))
        offer(each.index)
        f.end(each)
        f.branch(passed)
        f.label(passed)
        f.end(block)
        rest_of_row = f.loop(whole, length)
        offer(rest_of_row.index)
        f.end(rest_of_row)
    f.branch(none)
    f.label(none)
    f.end(unit)
    return f
