"""Loop kernels against NumPy: every kind of reduction, masks, strides, all types, guard pages, any division of the work."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guarded import guarded
from loop_runner import NUMPY, Array, run
from sardonyx.kernel.expr import FLOATS, INTEGERS, TYPES, Expr, const, fma, index, load, reduced, select, size, sqrt
from sardonyx.kernel.loops import Inner, LoopKernel, Operand, Walk, may_overwrite, units, walks
from sardonyx.kernel.math import exp_not_positive
from sardonyx.target.target import Target
from targets import described, here_and_less

LENGTHS = (0, 1, 2, 7, 15, 16, 17, 31, 64, 65, 200)


def values(kind: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    random = np.random.default_rng(seed)
    dtype = NUMPY[kind]
    if kind == "bool":
        return random.integers(0, 2, shape).astype(np.bool_)
    if kind in FLOATS:
        return np.asarray(random.standard_normal(shape)).astype(dtype)
    limits = np.iinfo(dtype)
    return random.integers(max(limits.min, -100), min(limits.max, 100), shape).astype(dtype)


def wide(kind: str) -> str:
    return "f32" if kind in ("f16", "bf16") else kind


def loaded(number: int, kind: str) -> Expr:
    return load(number, kind).cast(wide(kind))


def close(actual: Array, expected: Array) -> None:
    if actual.dtype.kind in "fV" or actual.dtype == ml_dtypes.bfloat16:
        tolerance = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-5}.get(actual.dtype.name, 1e-12)
        np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", TYPES)
def test_an_elementwise_loop_computes_every_element_and_no_other(kind: str, length: int) -> None:
    a, b = guarded(values(kind, (length,), 1)), guarded(values(kind, (length,), 2))
    result = guarded(np.zeros(length, NUMPY[kind]))
    value = loaded(0, kind) ^ loaded(1, kind) if kind == "bool" else loaded(0, kind) + loaded(1, kind)
    kernel = LoopKernel(axes=1, operands=(Operand(kind, "unit"),) * 3, stores=((2, value.cast(kind)),))
    run(kernel, [length], [a, b, result], pieces=2)
    if kind == "bool":
        expected = a ^ b
    else:
        expected = (a.astype(NUMPY[wide(kind)]) + b.astype(NUMPY[wide(kind)])).astype(a.dtype)
    close(result, expected)


@given(
    shape=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_a_loop_walks_through_any_strides(shape: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    steps = data.draw(st.lists(st.integers(1, 3), min_size=len(shape), max_size=len(shape)))
    base = values("f32", tuple(shape[axis] * step for axis, step in zip(order, steps)), 3)
    view = base[tuple(slice(None, None, step) for step in steps)].transpose(np.argsort(order))
    repeated = values("f32", tuple(n if data.draw(st.booleans()) else 1 for n in shape), 4)
    result = np.zeros(shape, np.float32)

    def inner(array: Array) -> Inner:
        step = 0 if array.shape[-1] == 1 and shape[-1] != 1 else array.strides[-1] // 4
        is_known = data.draw(st.booleans())  # else it turns out when the kernel runs
        return "any" if not is_known or step > 1 else "unit" if step == 1 else "zero"

    kernel = LoopKernel(
        axes=len(shape),
        operands=(Operand("f32", inner(view)), Operand("f32", inner(repeated)), Operand("f32", "unit")),
        stores=((2, load(0, "f32") * load(1, "f32") + index(0).cast("f32")),),
    )
    run(kernel, shape, [view, repeated, result], pieces=data.draw(st.integers(1, 3)))
    places = np.arange(shape[0], dtype=np.float32).reshape(-1, *(1,) * (len(shape) - 1))
    np.testing.assert_allclose(result, view * repeated + places, rtol=1e-6)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", TYPES)
def test_a_stride_that_turns_out_to_be_one_or_zero(kind: str, length: int) -> None:
    rows, once = guarded(values(kind, (2, length), 7)), guarded(values(kind, (2, 1), 8))
    result = guarded(np.zeros((2, length), NUMPY[kind]))
    kernel = LoopKernel(
        axes=2,
        operands=(Operand(kind, "any"), Operand(kind, "any"), Operand(kind, "unit")),
        stores=((2, select(loaded(0, kind).eq(loaded(1, kind)), load(0, kind), load(1, kind))),),
    )
    run(kernel, [2, length], [rows, once, result])
    np.testing.assert_array_equal(result, np.where(rows == once, rows, once))


def reduction_cases() -> list[tuple[str, str]]:
    kinds = ("sum", "prod", "max", "min", "argmax", "argmin", "argmax_last", "argmin_last")
    cases = [(kind, of) for kind in kinds for of in (*FLOATS[2:], *INTEGERS)]
    return [*cases, ("max", "bool"), ("min", "bool"), ("maxnum", "f32"), ("minnum", "f64")]


def by_numpy(kind: str, x: Array, axis: int) -> Any:
    if kind.startswith("arg"):
        find = np.argmax if "max" in kind else np.argmin
        return x.shape[axis] - 1 - find(np.flip(x, axis), axis) if kind.endswith("_last") else find(x, axis)
    if kind == "sum":
        return x.sum(axis, dtype=x.dtype)
    if kind == "prod":
        return x.prod(axis, dtype=x.dtype)
    return {"max": np.max, "min": np.min, "maxnum": np.nanmax, "minnum": np.nanmin}[kind](x, axis)


def small(kind: str, shape: tuple[int, ...]) -> Array:
    """Few different values, so that extremes are equal to each other, and products do not overflow."""
    random = np.random.default_rng(5)
    if kind == "bool":
        return random.integers(0, 2, shape).astype(np.bool_)
    return random.integers(0 if kind.startswith("u") else -2, 3, shape).astype(NUMPY[kind])


@pytest.mark.parametrize("length", [1, 5, 16, 100])
@pytest.mark.parametrize(("kind", "of"), reduction_cases())
def test_a_row_is_reduced(kind: str, of: str, length: int) -> None:
    x = guarded(small(of, (3, length)))
    out = "i64" if kind.startswith("arg") else of
    result = guarded(np.zeros((3, 1), NUMPY[out]))
    kernel = LoopKernel(
        axes=2,
        operands=(Operand(of, "unit"), Operand(out, "zero")),
        stores=(),
        results=((1, reduced(kind, load(0, of), 1)),),
        reduce="inner",
    )
    run(kernel, [3, length], [x, result], pieces=2)
    close(result[:, 0], by_numpy(kind, x, 1))


@pytest.mark.parametrize("kept", [1, 16, 40, 70])
@pytest.mark.parametrize(("kind", "of"), reduction_cases())
def test_a_middle_axis_is_reduced(kind: str, of: str, kept: int) -> None:
    x = guarded(small(of, (2, 9, kept)))
    out = "i64" if kind.startswith("arg") else of
    result = guarded(np.zeros((2, 1, kept), NUMPY[out]))
    kernel = LoopKernel(
        axes=3,
        operands=(Operand(of, "unit"), Operand(out, "unit")),
        stores=(),
        results=((1, reduced(kind, load(0, of), 1)),),
        reduce="middle",
    )
    run(kernel, [2, 9, kept], [x, result], pieces=2)
    close(result[:, 0], by_numpy(kind, x, 1))


@pytest.mark.parametrize("reduce", ["inner", "middle"])
@pytest.mark.parametrize("length", [3, 16, 50])
def test_nan_wins_every_extreme_except_those_of_numbers(reduce: Any, length: int) -> None:
    for place in (0, length // 2, length - 1):
        x = values("f32", (length, length))
        x[place] = x[:, place] = np.nan
        for kind in ("max", "min", "maxnum", "minnum", "argmax", "argmin"):
            out = "i64" if kind.startswith("arg") else "f32"
            inner: Inner = "zero" if reduce == "inner" else "unit"
            result = np.zeros((length, 1) if reduce == "inner" else (1, length), NUMPY[out])
            kernel = LoopKernel(
                axes=2,
                operands=(Operand("f32", "unit"), Operand(out, inner)),
                stores=(),
                results=((1, reduced(kind, load(0, "f32"), 1)),),
                reduce=reduce,
            )
            run(kernel, [length, length], [x, result])
            rows = np.delete(x, place, 0) if reduce == "inner" else np.delete(x, place, 1)
            actual = np.delete(result.reshape(-1), place)
            np.testing.assert_array_equal(actual, by_numpy(kind, rows, 1 if reduce == "inner" else 0))


def softmax_kernel(reduce: Any, stash: bool) -> LoopKernel:
    x = load(0, "f32")
    weight = exp_not_positive(x - reduced("maxnum", x, 1))
    value = weight / reduced("sum", weight, 2)
    return LoopKernel(
        axes=2,
        operands=(Operand("f32", "unit"),) * 2,
        stores=((1, value),),
        results=(),
        reduce=reduce,
        stash=((1, weight),) if stash else (),
    )


@pytest.mark.parametrize("stash", [False, True])
@pytest.mark.parametrize("shape", [(4, 1), (4, 16), (5, 37), (3, 300), (0, 5), (5, 0)])
@pytest.mark.parametrize("reduce", ["inner", "middle"])
def test_reductions_that_depend_on_each_other_walk_a_row_again(reduce: Any, shape: tuple[int, int], stash: bool) -> None:
    x = guarded(values("f32", shape) * 10)
    result = guarded(np.zeros(shape, np.float32))
    run(softmax_kernel(reduce, stash), shape, [x, result], pieces=2)
    axis = 1 if reduce == "inner" else 0
    if x.size:
        weights = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
        np.testing.assert_allclose(result, weights / weights.sum(axis, keepdims=True), rtol=1e-5, atol=1e-9)


def test_a_result_does_not_depend_on_how_the_work_is_divided() -> None:
    x = values("f32", (7, 1003))
    kernel = softmax_kernel("inner", stash=True)
    results = []
    for pieces in (1, 2, 4, 7):
        result = np.zeros_like(x)
        run(kernel, x.shape, [x, result], pieces=pieces)
        results.append(result.tobytes())
    assert len(set(results)) == 1


def test_a_kernel_may_store_elements_and_results_of_a_row_at_once() -> None:
    x, bias = values("f32", (6, 45)), values("f32", (6, 1), 2)
    mean = reduced("sum", load(0, "f32"), 1) / size(-1).cast("f32")
    distance = load(0, "f32") - mean
    operands = (Operand("f32", "unit"), Operand("f32", "zero"), Operand("f32", "unit"), Operand("f32", "zero"))
    variance = reduced("sum", distance * distance, 2)
    kernel = LoopKernel(
        axes=2,
        operands=operands,
        stores=((2, distance + load(1, "f32")),),
        results=((3, variance + load(1, "f32")),),
        reduce="inner",
    )
    centred, total = np.zeros_like(x), np.zeros((6, 1), np.float32)
    run(kernel, x.shape, [x, bias, centred, total])
    expected = x - x.mean(1, keepdims=True)
    np.testing.assert_allclose(centred, expected + bias, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(total, (expected**2).sum(1, keepdims=True) + bias, rtol=1e-4)


@pytest.mark.parametrize("reduce", ["inner", "middle"])
def test_the_place_on_the_reduced_axis_can_be_compared_with_a_result(reduce: Any) -> None:
    x = values("f32", (20, 20))
    axis = -1 if reduce == "inner" else -2
    hit = index(axis).eq(reduced("argmax", load(0, "f32"), 1))
    kernel = LoopKernel(
        axes=2,
        operands=(Operand("f32", "unit"),) * 2,
        stores=((1, select(hit, const(1, "f32"), const(0, "f32"))),),
        results=(),
        reduce=reduce,
    )
    result = np.zeros_like(x)
    run(kernel, x.shape, [x, result])
    expected = x == x.max(axis, keepdims=True)
    np.testing.assert_array_equal(result, expected.astype(np.float32))


def test_stashed_values_are_computed_by_one_walk_and_read_by_the_next() -> None:
    kernel = softmax_kernel("inner", stash=True)
    first, second, last = walks(kernel)
    assert [node.param[0] for node in first.reductions] == ["maxnum"]
    assert second.stash[0][0] == 1
    assert isinstance(last, Walk)
    assert not any(node.op == "load" and node.param == 0 for node in last.values[0].args)
    assert may_overwrite(kernel, 0, 1)


def test_an_operand_that_a_later_walk_reads_may_not_be_overwritten() -> None:
    x, y = load(0, "f32"), load(1, "f32")
    total = x + y
    value = total - reduced("sum", total, 1) + y
    kernel = LoopKernel(
        axes=2, operands=(Operand("f32", "unit"),) * 3, stores=((2, value),), results=(), reduce="inner", stash=((2, total),)
    )
    assert may_overwrite(kernel, 0, 2)
    assert not may_overwrite(kernel, 1, 2)


def test_units_count_rows_chunks_or_blocks() -> None:
    flat = LoopKernel(axes=1, operands=(Operand("f32", "unit"),) * 2, stores=((1, load(0, "f32")),))
    assert units(flat, [10_000], described(16)) == 3
    assert units(softmax_kernel("inner", stash=False), [12, 5], described(16)) == 12
    assert units(softmax_kernel("middle", stash=False), [12, 100], described(16)) == 2


def test_a_kernel_whose_reductions_do_not_fit_its_form_is_refused() -> None:
    with pytest.raises(ValueError, match="reduce='none' does not fit 1 reductions"):
        LoopKernel(axes=1, operands=(Operand("f32", "unit"),), stores=(), results=((0, reduced("sum", load(0, "f32"), 1)),))
    with pytest.raises(ValueError, match="needs 2 axes, has 1"):
        LoopKernel(
            axes=1,
            operands=(Operand("f32", "unit"),),
            stores=(),
            results=((0, reduced("sum", load(0, "f32"), 1)),),
            reduce="middle",
        )


def deviations_kernel(kind: str, reduce: Any = "inner", axes: int = 2) -> LoopKernel:
    """Sum and squared deviations of every row, and the distances from its mean over the deviation, scaled and moved."""
    x = load(0, kind)
    length = (size(-2) * size(-1) if reduce == "parts" else size(-1)).cast(kind)
    total, deviations = reduced("sum", x, 1), reduced("squared_deviations", x, 2)
    value = fma((x - total / length) / sqrt(deviations / length), load(1, kind), load(2, kind))
    inner: Inner = "unit" if reduce == "inner" else "zero"
    beside = Operand(kind, inner, reduce == "inner")
    operands = (Operand(kind, "unit"), beside, beside, Operand(kind, "unit"), Operand(kind, "zero"), Operand(kind, "zero"))
    return LoopKernel(axes=axes, operands=operands, stores=((3, value),), results=((4, total), (5, deviations)), reduce=reduce)


ROWS = (1, 2, 3, 4, 7)
DEVIATION_LENGTHS = (1, 2, 15, 16, 17, 64, 127, 128, 129, 200, 1279, 1280, 1281, 3000)


@pytest.mark.parametrize("target", here_and_less(), ids=lambda target: target.name)
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("length", DEVIATION_LENGTHS)
def test_sum_and_squared_deviations_of_rows(length: int, kind: str, target: Target) -> None:
    rows = 7
    x = guarded(values(kind, (rows, length)))
    scale, shift = guarded(values(kind, (1, length), 1)), guarded(values(kind, (1, length), 2))
    results = []
    for pieces in (1, 2, 3, 7):
        made = guarded(np.zeros_like(x))
        total, deviations = (guarded(np.zeros((rows, 1), x.dtype)) for _ in range(2))
        run(deviations_kernel(kind), x.shape, [x, scale, shift, made, total, deviations], pieces, target)
        results.append((made.tobytes(), total.tobytes(), deviations.tobytes()))
    assert len(set(results)) == 1
    wide_x = x.astype(np.longdouble)
    distance = wide_x - wide_x.mean(1, keepdims=True)
    squares = (distance**2).sum(1, keepdims=True)
    tolerance = 1e-6 if kind == "f32" else 1e-14
    close_to = 3e-6 if kind == "f32" else 3e-14
    rounding = 2 * float(np.finfo(x.dtype).eps) * np.abs(wide_x).sum(1, keepdims=True)
    assert (np.abs(total - wide_x.sum(1, keepdims=True)) <= rounding).all()
    np.testing.assert_allclose(deviations, squares, rtol=tolerance, atol=0)
    if length > 1:
        expected = distance / np.sqrt(squares / length) * scale + shift
        np.testing.assert_allclose(made, expected, rtol=close_to, atol=close_to)


@pytest.mark.parametrize("length", [16, 100, 768, 5000])
@pytest.mark.parametrize("start", ["usual", "far", "far at first", "rising"])
def test_squared_deviations_in_one_walk_are_as_good_as_in_two(start: str, length: int) -> None:
    """Within the rounding of the data: far from 0, with outliers at the place one would take for the mean, along a slope."""
    rows = 6
    x = values("f32", (rows, length)).astype(np.float64)
    if start == "far":
        x += 1000
    elif start == "far at first":
        x[:, : max(length // 50, 1)] += 1000
    elif start == "rising":
        x += np.arange(length) * 3
    x = x.astype(np.float32)
    ones = np.ones((1, length), np.float32)
    made, total, deviations = np.zeros_like(x), np.zeros((rows, 1), np.float32), np.zeros((rows, 1), np.float32)
    run(deviations_kernel("f32"), x.shape, [x, ones, 0 * ones, made, total, deviations])
    mean = x.mean(1, keepdims=True, dtype=np.float32)
    by_two_walks = ((x - mean) ** 2).sum(1, keepdims=True, dtype=np.float32)
    exact = ((x - x.mean(1, keepdims=True, dtype=np.float64)) ** 2).sum(1, keepdims=True)
    own, other = (np.abs(found / exact - 1).max() for found in (deviations, by_two_walks))
    assert own <= max(2 * other, 1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_makes_the_squared_deviations_of_its_row_nan(bad: float) -> None:
    x = values("f32", (5, 300))
    x[1, 0] = x[2, 150] = x[4, 299] = bad
    ones = np.ones((1, 300), np.float32)
    made, total, deviations = np.zeros_like(x), np.zeros((5, 1), np.float32), np.zeros((5, 1), np.float32)
    run(deviations_kernel("f32"), x.shape, [x, ones, ones, made, total, deviations])
    np.testing.assert_array_equal(np.isnan(deviations[:, 0]), [False, True, True, False, True])
    np.testing.assert_array_equal(total[[1, 2, 4], 0], [bad] * 3)


@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 300)),
    gap=st.integers(0, 3),
    kind=st.sampled_from(["f32", "f64"]),
    pieces=st.integers(1, 3),
)
@settings(max_examples=40, deadline=None)
def test_rows_may_be_made_of_parts(sizes: tuple[int, int, int], gap: int, kind: str, pieces: int) -> None:
    rows, parts, length = sizes
    dtype = NUMPY[kind]
    x = guarded(values(kind, (rows, parts, length + gap)))[:, :, :length]
    scale, shift = guarded(values(kind, (rows, parts, 1), 1)), guarded(values(kind, (rows, parts, 1), 2))
    made, total, deviations = guarded(np.zeros(sizes, dtype)), np.zeros((rows, 1, 1), dtype), np.zeros((rows, 1, 1), dtype)
    run(deviations_kernel(kind, "parts", 3), sizes, [x, scale, shift, made, total, deviations], pieces)
    wide_x = x.astype(np.longdouble)
    distance = wide_x - wide_x.mean((1, 2), keepdims=True)
    squares = (distance**2).sum((1, 2), keepdims=True)
    tolerance = 3e-6 if kind == "f32" else 3e-14
    np.testing.assert_allclose(deviations, squares, rtol=tolerance, atol=0)
    if parts * length > 1:
        expected = distance / np.sqrt(squares / (parts * length)) * scale + shift
        np.testing.assert_allclose(made, expected, rtol=tolerance, atol=tolerance)


@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 150)),
    kind=st.sampled_from(["f32", "f64", "i32"]),
    pieces=st.integers(1, 3),
)
@settings(max_examples=40, deadline=None)
def test_every_reduction_may_go_on_from_part_to_part(sizes: tuple[int, int, int], kind: str, pieces: int) -> None:
    x = guarded(small(kind, sizes))
    factor = guarded(small(kind, (sizes[0], sizes[1], 1)))
    made, low = guarded(np.zeros(sizes, NUMPY[kind])), np.zeros((sizes[0], 1, 1), NUMPY[kind])
    value = load(0, kind) * load(1, kind)
    largest, least = reduced("max", value, 1), reduced("min", value, 2)
    total = reduced("sum", value - largest, 3)
    operands = (Operand(kind, "unit"), Operand(kind, "zero"), Operand(kind, "unit"), Operand(kind, "zero"))
    kernel = LoopKernel(
        axes=3, operands=operands, stores=((2, value - total),), results=((3, least),), reduce="parts", stash=((2, value),)
    )
    run(kernel, sizes, [x, factor, made, low], pieces)
    product = x * factor
    largest_of_row = product.max((1, 2), keepdims=True)
    np.testing.assert_array_equal(low, product.min((1, 2), keepdims=True))
    np.testing.assert_allclose(made, product - (product - largest_of_row).sum((1, 2), keepdims=True), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("length", [1, 16, 37, 200, 1281])
def test_rows_that_share_what_they_read(rows: int, length: int) -> None:
    x, bias = guarded(values("f32", (rows, length))), guarded(values("f32", (1, length), 1))
    made = guarded(np.zeros_like(x))
    operands = (Operand("f32", "unit"), Operand("f32", "unit", True), Operand("f32", "unit"))
    kernel = LoopKernel(axes=2, operands=operands, stores=((2, load(0, "f32") + load(1, "f32")),))
    run(kernel, x.shape, [x, bias, made], pieces=2)
    np.testing.assert_array_equal(made, x + bias)


def test_squared_deviations_stand_alone_with_their_sum() -> None:
    x = load(0, "f32")
    deviations = reduced("squared_deviations", x, 1)
    for other in (reduced("max", x, 2), reduced("sum", x + 1.0, 2)):
        with pytest.raises(ValueError, match="squared deviations are computed along rows"):
            LoopKernel(
                axes=2, operands=(Operand("f32", "unit"),) * 2, stores=(), results=((1, deviations + other),), reduce="inner"
            )
    with pytest.raises(ValueError, match="squared deviations are computed along rows"):
        LoopKernel(axes=2, operands=(Operand("f32", "unit"),) * 2, stores=(), results=((1, deviations),), reduce="middle")
