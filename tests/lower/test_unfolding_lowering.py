"""Col2Im and MaxUnpool natively against their NumPy meaning: sizes, strides, padding, indices that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guarded_session import guarded_feeds, guarded_memory
from model_text import model
from native_support import assert_native_agrees, compile_native, host_nodes, run_native, run_reference
from sardonyx import errors
from sardonyx.ir.tensor import Array


def numbers(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def check(content: bytes, feeds: dict[str, Any]) -> None:
    """Same results as NumPy, exactly, in guarded memory and on any number of workers."""
    assert_native_agrees(content, feeds, rtol=0.0, atol=0.0)
    wanted = run_reference(content, feeds)
    for workers, at_start in ((1, True), (3, False)):
        graph, compiled = compile_native(content, workers)
        with guarded_memory(at_start) as guard:
            found = run_native(graph, compiled, guarded_feeds(guard, feeds))
            for one, other in zip(found, wanted):
                np.testing.assert_array_equal(one, other)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_columns_of_any_windows_become_an_image(data: st.DataObject) -> None:
    draw = data.draw
    rank = draw(st.sampled_from((1, 2, 2, 3)))
    block = [draw(st.integers(1, 3)) for _ in range(rank)]
    strides, dilations = ([draw(st.integers(1, 2)) for _ in range(rank)] for _ in range(2))
    pads = [draw(st.integers(0, 2)) for _ in range(2 * rank)]
    image = []
    windows = 1
    for axis in range(rank):
        reach = dilations[axis] * (block[axis] - 1) + 1
        size = draw(st.integers(max(reach - pads[axis] - pads[rank + axis], 1), 9))
        image.append(size)
        windows *= (size + pads[axis] + pads[rank + axis] - reach) // strides[axis] + 1
    kind = draw(st.sampled_from(("float", "double")))
    batch, channels = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    constants = f"<int64[{rank}] s = {{{','.join(map(str, image))}}}, int64[{rank}] b = {{{','.join(map(str, block))}}}>"
    attrs = f"strides={strides}, dilations={dilations}, pads={pads}"
    columns = channels * int(np.prod(block))
    named = draw(st.booleans())
    shape = f"N,{columns},L" if named else f"{batch},{columns},{windows}"
    content = model(f"({kind}[{shape}] x) => ({kind}[z] y) {constants} {{ y = Col2Im<{attrs}>(x, s, b) }}")
    x = numbers(batch, columns, windows)
    check(content, {"x": x if kind == "float" else x.astype(np.float64)})


def test_columns_that_do_not_fit_are_refused() -> None:
    text = "(float[N,8,L] x) => (float[z] y) <int64[2] s = {4,4}, int64[2] b = {2,2}> { y = Col2Im(x, s, b) }"
    graph, compiled = compile_native(model(text))
    with pytest.raises(Exception, match="must agree"):
        run_native(graph, compiled, {"x": numbers(1, 8, 10)})


UNPOOL = "({kind}[N,C,H,W] x, int64[N,C,H,W] i) => ({kind}[z] y) {{ y = MaxUnpool<kernel_shape=[2,3], strides=[2,2]>(x, i) }}"


@pytest.mark.parametrize("kind", ["float", "double", "float16"])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 4, 5), (1, 16, 9, 7)])
def test_elements_go_where_their_indices_say(kind: str, shape: tuple[int, ...]) -> None:
    total = shape[0] * shape[1] * shape[2] * 2 * (shape[3] * 2 + 1)
    places = np.random.default_rng(1).integers(0, total, shape)  # some of them twice: the last one stays
    x = numbers(*shape).astype({"float": np.float32, "double": np.float64, "float16": np.float16}[kind])
    content = model(UNPOOL.format(kind=kind))
    assert not host_nodes(compile_native(content)[1])
    check(content, {"x": x, "i": places})


@pytest.mark.parametrize("bad", [-1, 80, 2**62, -(2**63)])
def test_an_index_outside_of_the_unpooled_tensor_is_an_error(bad: int) -> None:
    graph, compiled = compile_native(model(UNPOOL.format(kind="float")))
    places = np.arange(16).reshape(1, 1, 4, 4)
    places[0, 0, 2, 1] = bad
    feeds = {"x": numbers(1, 1, 4, 4), "i": places}
    with guarded_memory() as guard, pytest.raises(errors.InvalidArgument, match="tensor of 72 elements"):
        run_native(graph, compiled, guarded_feeds(guard, feeds))
    with pytest.raises(errors.InvalidArgument):
        run_reference(model(UNPOOL.format(kind="float")), feeds)
