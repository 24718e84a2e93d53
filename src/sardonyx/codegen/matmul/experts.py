"""Choices of experts, and rows in the order of experts -> LLVM (see `kernel.matmul.experts`).

route:  for each expert, from the last to the first: insert its logit among the best so far; then exponentials of these
group:  count the rows of each expert; starts and tiles, expert by expert; then every pair takes the next row of its expert
"""

from __future__ import annotations

from typing import NamedTuple

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conversions import convert
from sardonyx.codegen.element_types import memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.rows.insertion import SortedEntries, insert_sorted
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel import math
from sardonyx.kernel.expr import load
from sardonyx.kernel.matmul.experts import TILE_ENTRIES, GroupRowsKernel, RouteKernel
from sardonyx.target.target import Target


class GroupedTile(NamedTuple):
    """What a tile of a product in groups is: names of numbers."""

    strip: str
    group: str
    row: str
    height: str


def grouped_tile(f: FunctionBuilder, table: str, unit: str, strips: str) -> GroupedTile:
    """The tile of a unit. All tiles of an expert take one strip of its weights before any of them takes the next."""
    at = _entry(f, table, f.let(f"udiv i64 {unit}, {strips}", "i"))
    first, count = _number(f, at, 3), _number(f, at, 4)
    within = f.sub(unit, f.mul(first, strips))
    strip = f.let(f"udiv i64 {within}, {count}", "i")
    own = _entry(f, table, f.add(first, f.sub(within, f.mul(strip, count))))
    return GroupedTile(strip, _number(f, own, 0), _number(f, own, 1), _number(f, own, 2))


def skip_empty(f: FunctionBuilder, tile: GroupedTile, following: str) -> None:
    """Go on with the next tile if this one has no rows."""
    some = f.fresh("some")
    f.branch_if(f.let(f"icmp eq i64 {tile.height}, 0", "c"), following, some)
    f.label(some)


def _entry(f: FunctionBuilder, table: str, tile: str) -> str:
    return f.element(table, "i64", f.mul(tile, TILE_ENTRIES))


def _number(f: FunctionBuilder, base: str, index: str | int) -> str:
    return f.let(f"load i64, ptr {f.element(base, 'i64', index)}, align 8", "n")


def _put(f: FunctionBuilder, base: str, index: str | int, value: str) -> None:
    f.line(f"store i64 {value}, ptr {f.element(base, 'i64', index)}, align 8")


def _float(f: FunctionBuilder, base: str, index: str) -> str:
    return f.let(f"load float, ptr {f.element(base, 'float', index)}, align 4")


def _put_float(f: FunctionBuilder, base: str, index: str, value: str) -> None:
    f.line(f"store float {value}, ptr {f.element(base, 'float', index)}, align 4")


def emit_route(kernel: RouteKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a choice of experts."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    one = VectorEmitter(f, 1)
    a = Loaded(f, kernel.arguments)
    experts, wanted = a["experts"], a["wanted"]
    logits, (logit_row, logit_step) = a.tensor("logits")
    given, (given_row, given_step) = a.tensor("given")
    element = memory_type(kernel.type)
    token = f.loop("%begin", "%end")
    row = f.element(logits, element, f.mul(token.index, logit_row))
    chosen = f.element(a["chosen"], "i64", f.mul(token.index, wanted))
    scores, weights = (f.element(a[name], "float", f.mul(token.index, wanted)) for name in ("scores", "weights"))

    def value_at(base: str, index: str, step: str) -> str:
        return convert(one, one.load(f.element(base, element, f.mul(index, step)), kernel.type), kernel.type, "f32")

    def exponential(value: str, largest: str) -> str:
        (result,) = one.emit([math.exp(load(0, "f32"))], {load(0, "f32"): f.let(f"fsub float {value}, {largest}")})
        return result

    each = f.loop(0, experts)
    expert = f.sub(f.sub(experts, 1), each.index)
    _insert(f, scores, chosen, each.index, f.sub(wanted, 1), expert, value_at(row, expert, logit_step))
    f.end(each)

    largest = _float(f, scores, "0")
    if kernel.weighting == "given":
        total = ""
    elif kernel.weighting == "best":
        summed = f.loop(0, wanted, 1, [("float", "0.0")])
        part = exponential(_float(f, scores, summed.index), largest)
        (total,) = f.end(summed, [f.let(f"fadd float {summed.carry[0]}, {part}")])
    else:
        summed = f.loop(0, experts, 1, [("float", "0.0")])
        part = exponential(value_at(row, summed.index, logit_step), largest)
        (total,) = f.end(summed, [f.let(f"fadd float {summed.carry[0]}, {part}")])
    choice = f.loop(0, wanted, 1, [("float", "0.0")])
    if kernel.weighting == "given":
        own = f.element(given, element, f.mul(token.index, given_row))
        weight = value_at(own, _number(f, chosen, choice.index), given_step)
    else:
        weight = f.let(f"fdiv float {exponential(_float(f, scores, choice.index), largest)}, {total}")
    _put_float(f, weights, choice.index, weight)
    (weight_sum,) = f.end(choice, [f.let(f"fadd float {choice.carry[0]}, {weight}")])
    if kernel.normalize:
        none = f.let(f"fcmp oeq float {weight_sum}, 0.0", "c")
        again = f.loop(0, wanted)
        share = f.let(f"fdiv float {_float(f, weights, again.index)}, {weight_sum}")
        _put_float(f, weights, again.index, f.let(f"select i1 {none}, float 0.0, float {share}"))
        f.end(again)
    f.end(token)
    return f


def _insert(f: FunctionBuilder, scores: str, chosen: str, seen: str, last: str, expert: str, value: str) -> None:
    """Put an expert among the best so far, if it is one of them; `seen` have been looked at before."""

    def is_better(other: str) -> str:
        more = f.let(f"fcmp ogt float {value}, {other}", "c")
        found = f.let(f"fcmp ord float {value}, 0.0", "c")
        missing = f.let(f"fcmp uno float {other}, 0.0", "c")
        return f.let(f"or i1 {more}, {f.let(f'and i1 {found}, {missing}', 'c')}", "c")

    def shift(position: str, above: str, previous: str) -> None:
        _put_float(f, scores, position, previous)
        _put(f, chosen, position, _number(f, chosen, above))

    def put(position: str) -> None:
        _put_float(f, scores, position, value)
        _put(f, chosen, position, expert)

    insert_sorted(f, SortedEntries(lambda position: _float(f, scores, position), is_better, shift, put), seen, last)


def emit_group_rows(kernel: GroupRowsKernel, name: str, target: Target) -> FunctionBuilder:
    """The function that puts rows in the order of experts."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    a = Loaded(f, kernel.arguments)
    pairs, experts, chosen, starts, table = a["pairs"], a["experts"], a["chosen"], a["starts"], a["table"]
    unit = f.loop("%begin", "%end")
    each = f.loop(0, experts)
    _put(f, starts, each.index, "0")
    f.end(each)
    each = f.loop(0, pairs)
    expert = _number(f, chosen, each.index)
    _put(f, starts, expert, f.add(_number(f, starts, expert), 1))
    f.end(each)

    group = f.loop(0, experts, 1, [("i64", "0"), ("i64", "0")])
    row, tile = group.carry
    count = _number(f, starts, group.index)
    _put(f, starts, group.index, row)
    parts = f.let(f"udiv i64 {f.add(count, kernel.height - 1)}, {kernel.height}", "i")
    part = f.loop(0, parts, 1, [("i64", row)])
    base = f.let(f"udiv i64 {count}, {parts}", "i")
    higher = f.let(f"icmp slt i64 {part.index}, {f.let(f'urem i64 {count}, {parts}', 'i')}", "c")
    height = f.add(base, f.let(f"zext i1 {higher} to i64", "i"))
    _write_tile(f, table, f.add(tile, part.index), group.index, part.carry[0], height, tile, parts)
    (after,) = f.end(part, [f.add(part.carry[0], height)])
    _, made = f.end(group, [after, f.add(tile, parts)])
    left = f.loop(made, a["tiles"])
    _write_tile(f, table, left.index, "0", "0", "0", left.index, "1")
    f.end(left)

    each = f.loop(0, pairs)
    expert = _number(f, chosen, each.index)
    slot = _number(f, starts, expert)
    _put(f, starts, expert, f.add(slot, 1))
    _put(f, a["slots"], each.index, slot)
    _put(f, a["tokens"], slot, f.let(f"udiv i64 {each.index}, {a['wanted']}", "i"))
    _put_float(f, a["factors"], slot, _float(f, a["weights"], each.index))
    f.end(each)
    f.end(unit)
    return f


def _write_tile(f: FunctionBuilder, table: str, tile: str, *entries: str) -> None:
    at = _entry(f, table, tile)
    for number, value in enumerate(entries):
        _put(f, at, number, value)
