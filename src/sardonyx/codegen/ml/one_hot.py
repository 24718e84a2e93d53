"""One-hot encoding -> LLVM: an element is compared with a vector of categories at a time."""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.element_types import constant
from sardonyx.codegen.fault import report_unless
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.ml.one_hot import OneHotKernel
from sardonyx.target.target import Target


def emit_one_hot(kernel: OneHotKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of the encoding."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    a = Loaded(f, kernel.arguments)
    count, categories = a["count"], a["categories"]
    e = VectorEmitter(f, target.lanes_of(64))
    masks = e.type("bool")
    whole = f.mul(f.let(f"udiv i64 {count}, {e.lanes}", "i"), e.lanes)
    rest = e.mask_below(f.sub(count, whole))
    one, nothing = (constant("f32", value, e.lanes) for value in (1.0, 0.0))

    def compare(element: str, row: str, first: str, mask: str | None) -> str:
        found = e.load(f.element(categories, "i64", first), "i64", mask)
        same = f.let(f"icmp eq {e.type('i64')} {found}, {e.splat(element, 'i64')}", "m")
        if mask is not None:  # lanes behind the last category have read zeros
            same = f.let(f"and {masks} {same}, {mask}", "m")
        e.store(f.element(row, "float", first), e.choose(same, one, nothing, "f32"), "f32", mask)
        return same

    unit = f.loop("%begin", "%end")
    element = f.let(f"load i64, ptr {f.element(a['source'], 'i64', unit.index)}, align 8")
    row = f.element(a["target"], "float", f.mul(unit.index, count))
    each = f.loop(0, whole, e.lanes, [(masks, "zeroinitializer")])
    (seen,) = f.end(each, [f.let(f"or {masks} {each.carry[0]}, {compare(element, row, each.index, None)}", "m")])
    seen = f.let(f"or {masks} {seen}, {compare(element, row, whole, rest)}", "m")
    bits = f.let(f"bitcast {masks} {seen} to i{e.lanes}")
    is_known = f.let(f"icmp ne i{e.lanes} {bits}, 0", "c")
    report_unless(f, is_known, a["record"], a["code"], unit.index, element, count)
    f.end(unit)
    return f
