"""Coupling of pairs -> LLVM. The names are those of `ops.ml.ml_linear.coupled`."""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.element_types import constant
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.ml.coupling import ITERATIONS, CouplingKernel
from sardonyx.target.target import Target


def emit_coupling(kernel: CouplingKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of the iteration."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    a = Loaded(f, kernel.arguments)
    lanes = target.lanes
    e = VectorEmitter(f, lanes)
    floats, masks = e.type("f32"), e.type("bool")
    rows, classes = a["rows"], a["classes"]
    pairs, (down, along) = a.tensor("pairs")
    scratch, (size,) = a.tensor("scratch")
    q = f.own_part(scratch, "float", size)
    squared = f.mul(classes, classes)
    qp = f.element(q, "float", f.mul(squared, lanes))
    p = f.element(qp, "float", f.mul(classes, lanes))
    one, zero = constant("f32", 1.0, lanes), constant("f32", 0.0, lanes)

    def at(base: str, number: str) -> str:
        return f.element(base, "float", f.mul(number, lanes))

    def entry(row: str, column: str) -> str:
        return at(q, f.add(f.mul(row, classes), column))

    def load(address: str) -> str:
        return f.let(f"load {floats}, ptr {address}, align 4")

    def store(address: str, value: str) -> None:
        f.line(f"store {floats} {value}, ptr {address}, align 4")

    def compute(operation: str, left: str, right: str) -> str:
        return f.let(f"f{operation} {floats} {left}, {right}")

    def multiply_add(x: str, y: str, z: str) -> str:
        return compute("add", compute("mul", x, y), z)

    count_f32 = f.let(f"sitofp i64 {classes} to float")
    uniform = e.splat(f.let(f"fdiv float {constant('f32', 1.0, 1)}, {count_f32}"), "float")
    bound = e.splat(f.let(f"fdiv float {constant('f32', 0.005, 1)}, {count_f32}"), "float")

    unit = f.loop("%begin", "%end")
    first_row = f.mul(unit.index, lanes)
    count = f.min(f.sub(rows, first_row), lanes)
    source = f.element(pairs, "float", f.mul(first_row, down))

    each = f.loop(0, squared)
    store(at(q, each.index), zero)
    f.end(each)
    each = f.loop(0, classes)
    store(at(p, each.index), uniform)
    f.end(each)
    first = f.loop(0, classes, 1, [("i64", "0")])
    second = f.loop(f.add(first.index, 1), classes, 1, [("i64", first.carry[0])])
    likely = e.load_strided(f.element(source, "float", f.mul(second.carry[0], along)), down, "f32", count)
    unlikely = compute("sub", one, likely)
    both = f.let(f"fneg {floats} {compute('mul', likely, unlikely)}")
    store(entry(first.index, second.index), both)
    store(entry(second.index, first.index), both)
    for number, value in ((first.index, unlikely), (second.index, likely)):
        diagonal = entry(number, number)
        store(diagonal, multiply_add(value, value, load(diagonal)))
    (pair,) = f.end(second, [f.add(second.carry[0], 1)])
    f.end(first, [pair])

    head, body, done, before = f.fresh("head"), f.fresh("body"), f.fresh("done"), f.block
    f.branch(head)
    f.label(head)
    iteration, following, active = f.fresh("i"), f.fresh("i"), f.fresh("m")
    latch = f.fresh("latch")
    f.line(f"{iteration} = phi i64 [ 0, %{before} ], [ {following}, {latch} ]")
    f.line(f"{active} = phi {masks} [ {constant('bool', True, lanes)}, %{before} ], [ {active}next, {latch} ]")
    f.branch_if(f.let(f"icmp slt i64 {iteration}, {ITERATIONS}", "c"), body, done)
    f.label(body)
    outer = f.loop(0, classes, 1, [(floats, zero)])
    inner = f.loop(0, classes, 1, [(floats, zero)])
    (product,) = f.end(inner, [multiply_add(load(entry(outer.index, inner.index)), load(at(p, inner.index)), inner.carry[0])])
    store(at(qp, outer.index), product)
    (pqp,) = f.end(outer, [multiply_add(load(at(p, outer.index)), product, outer.carry[0])])
    errors = f.loop(0, classes, 1, [(masks, constant("bool", False, lanes))])
    distance = f.call(floats, f"llvm.fabs.v{lanes}f32", (floats, compute("sub", load(at(qp, errors.index)), pqp)))
    far = f.let(f"fcmp oge {floats} {distance}, {bound}")
    (going,) = f.end(errors, [f.let(f"or {masks} {errors.carry[0]}, {far}")])
    is_number = f.let(f"fcmp ord {floats} {pqp}, {pqp}")
    still = f.let(f"and {masks} {going}, {is_number}")
    f.line(f"{active}next = and {masks} {active}, {still}")
    f.branch_if(f.call("i1", f"llvm.vector.reduce.or.v{lanes}i1", (masks, f"{active}next")), latch + "steps", done)

    f.label(latch + "steps")
    steps = f.loop(0, classes, 1, [(floats, pqp)])
    own, diagonal = load(at(qp, steps.index)), load(entry(steps.index, steps.index))
    taken = compute("div", compute("sub", steps.carry[0], own), diagonal)
    step = f.let(f"select {masks} {active}next, {floats} {taken}, {floats} {zero}")  # a step of 0 changes nothing
    longer = compute("add", one, step)
    store(at(p, steps.index), compute("add", load(at(p, steps.index)), step))
    gain = multiply_add(step, diagonal, compute("mul", constant("f32", 2.0, lanes), own))
    next_pqp = compute("div", multiply_add(step, gain, steps.carry[0]), compute("mul", longer, longer))
    each = f.loop(0, classes)
    store(
        at(qp, each.index),
        compute("div", multiply_add(step, load(entry(steps.index, each.index)), load(at(qp, each.index))), longer),
    )
    store(at(p, each.index), compute("div", load(at(p, each.index)), longer))
    f.end(each)
    f.end(steps, [next_pqp])
    f.branch(latch)
    f.label(latch)
    f.line(f"{following} = add i64 {iteration}, 1")
    f.branch(head)
    f.label(done)
    each = f.loop(0, classes)
    target_row = f.element(a["probabilities"], "float", f.add(f.mul(first_row, classes), each.index))
    e.store_strided(target_row, classes, load(at(p, each.index)), "f32", count)
    f.end(each)
    f.end(unit)
    return f
