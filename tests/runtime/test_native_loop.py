"""Loops whose iterations follow each other in native code: same results as iteration by iteration, on any number of threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto
from onnx.helper import np_dtype_to_tensor_dtype

import sardonyx
from guarded import guarded
from native_support import compile_native, run_native, run_reference
from sardonyx.runtime import native_loop
from sardonyx.runtime.native_loop import NativeLoop

Array = np.ndarray[Any, Any]
F32 = np.float32
quick = settings(max_examples=40, deadline=None)


def model(graph: str, opset: int = 19) -> bytes:
    text = f'<ir_version: 9, opset_import: ["" : {opset}]> {graph}'
    content: bytes = onnx.parser.parse_model(text).SerializeToString()
    return content


class Watch:
    """Counts the loops that ran natively and those that did not."""

    def __init__(self) -> None:
        self.native = self.by_iterations = 0


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    seen = Watch()
    original = NativeLoop.run

    def run(self: NativeLoop, *args: Any) -> Any:
        results = original(self, *args)
        seen.native += results is not None
        seen.by_iterations += results is None
        return results

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NativeLoop, "run", run)
        yield seen


def assert_same(content: bytes, feeds: dict[str, Any], *, exact: bool = True) -> list[Any]:
    graph, compiled = compile_native(content)
    actual = run_native(graph, compiled, feeds)
    expected = run_reference(content, feeds)
    assert len(actual) == len(expected)
    for mine, other in zip(actual, expected):
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        if exact:
            np.testing.assert_array_equal(mine, other)
        else:
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
    return actual


def onnx_name(dtype: Any) -> str:
    return str(TensorProto.DataType.Name(np_dtype_to_tensor_dtype(np.dtype(dtype)))).lower()


def made(dtype: Any, shape: tuple[int, ...], seed: int) -> Array:
    return np.asarray(np.random.default_rng(seed).integers(-4, 5, shape)).astype(dtype)


DTYPES = (np.float32, np.float64, np.float16, np.int8, np.int32, np.int64, np.uint8)
SHAPES = ((), (0,), (1,), (3,), (2, 5), (2, 0, 3), (67,))

# Every kind of value an iteration can hand on: computed, taken over from another, passed on, stacked as well, the same twice.
LOOP = """g (INPUTS float[2] w, TYPE[SHAPE] a, TYPE[SHAPE] x, TYPE[SHAPE] y, int64 last)
  => (TYPE p, TYPE q, float[2] r, TYPE s, TYPE stacked, TYPE other, int64 numbers, TYPE again) {
  p, q, r, s, stacked, other, numbers, again = Loop(LIMIT, START, x, y, w, y) <body =
    turn (int64 i, bool c, TYPE[SHAPE] u, TYPE[SHAPE] v, float[2] k, TYPE[SHAPE] z)
      => (bool goes, TYPE[SHAPE] u2, TYPE[SHAPE] u, float[2] k, TYPE[SHAPE] z2,
          TYPE[SHAPE] u2, TYPE[SHAPE] t, int64 i, TYPE[SHAPE] t) {
      goes = Less(i, last)
      u2 = Add(u, a)
      z2 = Sub(v, z)
      t = Mul(v, u2)
    }>
}"""


def loop_model(dtype: Any, shape: tuple[int, ...], limited: bool, conditional: bool) -> bytes:
    given = ("int64 limit, " if limited else "") + ("bool start, " if conditional else "")
    text = LOOP.replace("INPUTS", given).replace("TYPE[SHAPE]", f"{onnx_name(dtype)}[{','.join(map(str, shape))}]")
    text = text.replace("TYPE", onnx_name(dtype)).replace("[]", "")
    return model(text.replace("LIMIT", "limit" if limited else "").replace("START", "start" if conditional else ""))


@quick
@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.sampled_from(SHAPES),
    limit=st.none() | st.integers(-1, 20),
    start=st.none() | st.booleans(),
    last=st.integers(-1, 25),
    seed=st.integers(0, 1000),
)
def test_a_loop_is_what_its_turns_are(
    watch: Watch, dtype: Any, shape: tuple[int, ...], limit: int | None, start: bool | None, last: int, seed: int
) -> None:
    feeds: dict[str, Any] = {name: made(dtype, shape, seed + number) for number, name in enumerate(("a", "x", "y"))}
    feeds |= {"w": made(F32, (2,), seed), "last": np.array(last)}
    if limit is not None:
        feeds["limit"] = np.array(limit)
    if start is not None:
        feeds["start"] = np.array(start)
    before = watch.native
    assert_same(loop_model(dtype, shape, limit is not None, start is not None), feeds)
    assert watch.native == before + (start is not False and (limit is None or limit > 0))


@quick
@given(
    shape=st.sampled_from([(), (0,), (3,), (2, 5), (70, 80)]),
    limits=st.lists(st.integers(-1, 40), min_size=2, max_size=6),
    lasts=st.lists(st.integers(-1, 45), min_size=6, max_size=6),
    seed=st.integers(0, 1000),
)
def test_calls_of_the_same_shapes_begin_as_the_one_before(
    shape: tuple[int, ...], limits: list[int], lasts: list[int], seed: int
) -> None:
    """Results of earlier calls stay what they were: what a loop keeps for later calls is never handed out."""
    content = loop_model(F32, shape, True, False)
    graph, compiled = compile_native(content)
    earlier: list[tuple[list[Any], list[Any]]] = []
    for number, (limit, last) in enumerate(zip(limits, lasts)):
        feeds: dict[str, Any] = {name: made(F32, shape, seed + number + at) for at, name in enumerate(("a", "x", "y"))}
        feeds |= {"w": made(F32, (2,), seed), "last": np.array(last), "limit": np.array(limit)}
        results = run_native(graph, compiled, feeds)
        for mine, other in zip(results, run_reference(content, feeds), strict=True):
            assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
            np.testing.assert_array_equal(mine, other)
        earlier.append((results, [np.array(each) for each in results]))
    for results, copies in earlier:
        for mine, copy in zip(results, copies, strict=True):
            np.testing.assert_array_equal(mine, copy)


@pytest.mark.parametrize("backwards", [0, 1])
def test_scans_of_the_same_shapes(backwards: int) -> None:
    content = model(f"""g (float[3] s, float[n,3] x) => (float[3] y, float[n,3] all) {{
      y, all = Scan <num_scan_inputs = 1, scan_input_directions = [{backwards}], scan_output_directions = [{backwards}],
        body = turn (float[3] u, float[3] v) => (float[3] w, float[3] w2) {{ w = Sub(v, u) w2 = Tanh(w) }}> (s, x)
    }}""")
    graph, compiled = compile_native(content)
    for number in (20, 20, 20, 33, 20):
        feeds = {"s": made(F32, (3,), number), "x": np.random.default_rng(number).standard_normal((number, 3)).astype(F32)}
        for mine, other in zip(run_native(graph, compiled, feeds), run_reference(content, feeds), strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-6, atol=1e-6)


def test_what_loops_hand_out_is_the_callers() -> None:
    """Feeds that a loop passes on, or that it does not touch as it has no iteration, are copied."""
    content = model("""g (int64 n, float[2] a, float[2] b) => (float[2] p, float[2] q, float[2] r) {
      p, q = Loop(n, , a, b) <body = turn (int64 i, bool c, float[2] u, float[2] v) => (bool c, float[2] w, float[2] v) {
        w = Add(u, v) }>
      r = Identity(a)
    }""")
    session = sardonyx.InferenceSession(content)
    for trips in (50, 50, 0, 50, 0, 50):
        a, b = np.ones(2, F32), np.full(2, 2, F32)
        results = session.run(None, {"n": np.array(trips), "a": a, "b": b})
        np.testing.assert_array_equal(results[0], np.full(2, 1 + 2 * trips))
        for result in results:
            assert result.flags.writeable
            result[:] = 7
        assert a.tolist() == [1, 1]
        assert b.tolist() == [2, 2]
        for one in results:
            assert not any(np.shares_memory(one, other) for other in (a, b, *results) if other is not one)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.bool_])
def test_types_that_few_operators_have(watch: Watch, dtype: Any) -> None:
    content = model(
        """g (TYPE[5] x, TYPE[5] a) => (TYPE[5] y, TYPE[t,5] all) {
      n = Constant<value = int64 {9}>()
      y, all = Loop(n, , x) <body = turn (int64 i, bool c, TYPE[5] u) => (bool c, TYPE[5] v, TYPE[5] v) { v = OP(u, a) }>
    }""".replace("TYPE", onnx_name(dtype)).replace("OP", "Xor" if dtype is np.bool_ else "Add")
    )
    before = watch.native
    assert_same(content, {"x": made(dtype, (5,), 0), "a": made(dtype, (5,), 1)})
    assert watch.native == before + 1


SCAN = """g (TYPE[A] h, TYPE first, TYPE second) => (TYPE final, TYPE one, TYPE two) {
  final, one, two = Scan(h, first, second) <num_scan_inputs = 2, ATTRS, body =
    turn (TYPE[A] s, TYPE[A] u, TYPE[A,B] v) => (TYPE[A] s2, TYPE[A] s2, TYPE[A,B] w) {
      s1 = Add(s, u)
      s2 = Sub(s1, h)
      w = Mul(v, v)
    }>
}"""


@quick
@given(
    dtype=st.sampled_from(DTYPES),
    length=st.integers(0, 9),
    sizes=st.tuples(st.integers(0, 5), st.integers(0, 4)),
    axes=st.tuples(st.integers(-2, 1), st.integers(-3, 2), st.integers(-2, 1), st.integers(-3, 2)),
    directions=st.tuples(*[st.integers(0, 1)] * 4),
    seed=st.integers(0, 1000),
)
def test_a_scan_is_what_its_turns_are(
    watch: Watch,
    dtype: Any,
    length: int,
    sizes: tuple[int, int],
    axes: tuple[int, int, int, int],
    directions: tuple[int, int, int, int],
    seed: int,
) -> None:
    a, b = sizes
    attrs = (
        f"scan_input_axes = [{axes[0]}, {axes[1]}], scan_output_axes = [{axes[2]}, {axes[3]}], "
        f"scan_input_directions = [{directions[0]}, {directions[1]}], scan_output_directions = [{directions[2]}, {directions[3]}]"
    )
    ranks = {"first": (a,), "second": (a, b)}
    shapes: dict[str, tuple[int, ...]] = {}
    for (name, shape), axis in zip(ranks.items(), axes):
        at = axis % (len(shape) + 1)
        shapes[name] = (*shape[:at], length, *shape[at:])
    text = SCAN.replace("ATTRS", attrs).replace("[A]", f"[{a}]").replace("[A,B]", f"[{a},{b}]")
    for name in ranks:
        text = text.replace(f"TYPE {name}", f"TYPE[{','.join(map(str, shapes[name]))}] {name}", 1)
    feeds = {"h": made(dtype, (a,), seed), **{name: made(dtype, shape, seed + 1) for name, shape in shapes.items()}}
    before = watch.native
    assert_same(model(text.replace("TYPE", onnx_name(dtype))), feeds)
    assert watch.native == before + (length > 0)


def test_sizes_may_be_names(watch: Watch) -> None:
    content = model("""g (float[b] h, float[t,b] xs) => (float[b] final, float[t,b] all) {
      final, all = Scan(h, xs) <num_scan_inputs = 1, body = turn (float[b] s, float[b] x) => (float[b] s2, float[b] o) {
        s2 = Add(s, x)
        o = Mul(s2, x)
      }>
    }""")
    session = sardonyx.InferenceSession(content, disabled_optimizers=["UnrollLoops"])  # some are that short
    before = watch.native
    for length, width in ((3, 4), (5, 4), (1, 9), (5, 4)):
        xs = np.random.default_rng(0).standard_normal((length, width)).astype(F32)
        final, every = session.run(None, {"h": np.zeros(width, F32), "xs": xs})
        np.testing.assert_allclose(final, xs.sum(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(every, np.cumsum(xs, 0) * xs, rtol=1e-5, atol=1e-6)
    assert watch.native == before + 4


COUNT_DOWN = """g (float[3] x, int64 last) => (float[3] y, float[n,3] all, float[n] firsts) {
  y, all, firsts = Loop(, , x) <body =
    turn (int64 i, bool c, float[3] u) => (bool goes, float[3] v, float[3] v, float w) {
      goes = Less(i, last)
      one = Constant<value = float {1.0}>()
      v = Add(u, one)
      zero = Constant<value = int64 {0}>()
      w = Gather(v, zero)
    }>
}"""


@pytest.mark.parametrize("last", [0, 1, 2, 3, 100, 1000])
def test_results_of_unknown_length_grow(watch: Watch, monkeypatch: pytest.MonkeyPatch, last: int) -> None:
    monkeypatch.setattr(native_loop, "_AT_ONCE", 0)
    monkeypatch.setattr(native_loop, "_FIRST", 24)
    before = watch.native
    y, every, firsts = assert_same(model(COUNT_DOWN), {"x": np.arange(3, dtype=F32), "last": np.array(last)})
    assert watch.native == before + 1
    assert every.shape == (last + 1, 3)
    assert y[0] == last + 1 == firsts[-1]


def test_turns_touch_nothing_but_their_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_loop, "_memory", lambda shape, dtype: guarded(np.zeros(shape, dtype)))
    content = model("""g (float[3,7] h, float[7,5,3] xs) => (float[3,7] final, float[5,3,7] all) {
      final, all = Scan(h, xs) <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
        scan_output_directions = [1], body = turn (float[3,7] s, float[7,3] x) => (float[3,7] s2, float[3,7] o) {
        t = Transpose(x)
        s2 = Add(s, t)
        o = Tanh(s2)
      }>
    }""")
    rng = np.random.default_rng(0)
    feeds = {"h": guarded(rng.standard_normal((3, 7)).astype(F32)), "xs": guarded(rng.standard_normal((7, 5, 3)).astype(F32))}
    assert_same(content, feeds, exact=False)


RECURRENT = """g (float[B,N] h, float[t,B,N] xs, float[N,N] w) => (float[B,N] final, float[t,B,N] all) {
  final, all = Scan(h, xs) <num_scan_inputs = 1, body = turn (float[B,N] s, float[B,N] x) => (float[B,N] s2, float[B,N] o) {
    p = MatMul(s, w)
    a = Add(p, x)
    s2 = Tanh(a)
    o = Softmax(s2)
  }>
}"""


def test_any_number_of_threads_gives_the_same_bits(watch: Watch) -> None:
    rng = np.random.default_rng(0)
    content = model(RECURRENT.replace("B,", "48,").replace("N,N", "160,160").replace("N]", "160]"))
    feeds = {
        "h": rng.standard_normal((48, 160)).astype(F32),
        "xs": rng.standard_normal((40, 48, 160)).astype(F32),
        "w": (rng.standard_normal((160, 160)) / 12).astype(F32),
    }
    expected = run_reference(content, feeds)
    results = []
    before = watch.native
    for threads in (1, 2, 4):
        options = sardonyx.SessionOptions()
        options.intra_op_num_threads = threads
        session = sardonyx.InferenceSession(content, options)
        results += [session.run(None, feeds) for _ in range(3)]
    assert watch.native == before + 9
    for result in results:
        for mine, first, other in zip(result, results[0], expected):
            assert mine.tobytes() == first.tobytes()
            np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


def test_many_callers_at_once() -> None:
    rng = np.random.default_rng(0)
    content = model(RECURRENT.replace("B,", "48,").replace("N,N", "160,160").replace("N]", "160]"))
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = 2
    session = sardonyx.InferenceSession(content, options)
    weights = (rng.standard_normal((160, 160)) / 12).astype(F32)
    feeds = [
        {
            "h": rng.standard_normal((48, 160)).astype(F32),
            "xs": rng.standard_normal((10, 48, 160)).astype(F32),
            "w": weights,
        }
        for _ in range(6)
    ]
    alone = [session.run(None, each) for each in feeds]
    with ThreadPoolExecutor(4) as callers:
        together = list(callers.map(lambda each: session.run(None, each), feeds * 5))
    for number, result in enumerate(together):
        for mine, other in zip(result, alone[number % len(feeds)]):
            assert mine.tobytes() == other.tobytes()


ENDLESS = """g (float[4] x) => (float[4] y) {
  y = Loop(, , x) <body = turn (int64 i, bool c, float[4] u) => (bool c, float[4] v) { v = Neg(u) }>
}"""


def test_an_endless_loop_can_be_stopped() -> None:
    session = sardonyx.InferenceSession(model(ENDLESS))
    options = sardonyx.RunOptions()
    timer = threading.Timer(0.2, lambda: setattr(options, "terminate", True))
    timer.start()
    start = time.perf_counter()
    with pytest.raises(sardonyx.Fail, match="terminate flag"):
        session.run(None, {"x": np.ones(4, F32)}, options)
    assert time.perf_counter() - start < 5
    timer.join()


def test_bad_data_names_the_node_the_loop_and_the_iteration(watch: Watch) -> None:
    content = model("""g (float[9] table, int64 n) => (float[t] found) {
      found = Loop(n) <body = turn (int64 i, bool c) => (bool c, float f) { f = Gather(table, i) }>
    }""")
    session = sardonyx.InferenceSession(content)
    table = np.arange(9, dtype=F32)
    before = watch.native
    for _ in range(2):
        with pytest.raises(sardonyx.InvalidArgument, match=r"Loop '-> found': iteration 9: Gather '-> f'.*9"):
            session.run(None, {"table": table, "n": np.array(12)})
        (found,) = session.run(None, {"table": table, "n": np.array(9)})
        np.testing.assert_array_equal(found, table)
    assert watch.native == before + 2


def test_bad_data_on_several_threads() -> None:
    content = model("""g (float[300,256] table, int64[4,256] start, int64 n) => (float[256,256] sum) {
      zero = Constant<value = float[1,1] {0.0}>()
      shape = Constant<value = int64[2] {256, 256}>()
      none = Expand(zero, shape)
      sum = Loop(n, , none) <body = turn (int64 i, bool c, float[256,256] u) => (bool c, float[256,256] v) {
        row = Gather(start, i)
        f = Gather(table, row)
        v = Add(u, f)
      }>
    }""")
    start = np.zeros((4, 256), np.int64)
    start[2, 100] = 300
    table = np.ones((300, 256), F32)
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = 4
    session = sardonyx.InferenceSession(content, options)
    for _ in range(3):
        with pytest.raises(sardonyx.InvalidArgument, match=r"iteration 2: .*300"):
            session.run(None, {"table": table, "start": start, "n": np.array(4)})
        (total,) = session.run(None, {"table": table, "start": start, "n": np.array(2)})
        assert (total == 2).all()


def test_loops_inside_loops(watch: Watch) -> None:
    content = model("""g (float[3] x, int64 n, int64 k) => (float[3] y, float[n,3] all) {
      y, all = Loop(n, , x) <body = outer (int64 i, bool c, float[3] u) => (bool c, float[3] v, float[3] w) {
        v = Loop(k, , u) <body = inner (int64 j, bool d, float[3] s) => (bool d, float[3] t) { e = Mul(s, x) t = Sub(e, u) }>
        w = Neg(v)
      }>
    }""")
    before = watch.native
    assert_same(content, {"x": np.array([0.5, -1, 2], F32), "n": np.array(4), "k": np.array(3)})
    assert watch.native == before + 4


def test_a_condition_that_never_holds_again_ends_after_one_turn() -> None:
    content = model("""g (float[3] x, int64 n) => (float[3] y) {
      y = Loop(n, , x) <body = turn (int64 i, bool c, float[3] u) => (bool stop, float[3] v) {
        stop = Constant<value = bool {0}>()
        v = Add(u, u)
      }>
    }""")
    (y,) = sardonyx.InferenceSession(content).run(None, {"x": np.ones(3, F32), "n": np.array(9)})
    assert y.tolist() == [2, 2, 2]


def test_feeds_are_left_alone_and_results_are_the_callers() -> None:
    content = model("""g (float[3] x, float[3] k, int64 n) => (float[3] y, float[3] z) {
      y, z = Loop(n, , x, k) <body = turn (int64 i, bool c, float[3] u, float[3] w) => (bool c, float[3] v, float[3] w) {
        v = Add(u, w)
      }>
    }""")
    session = sardonyx.InferenceSession(content)
    x, k = np.ones(3, F32), np.full(3, 2, F32)
    first = session.run(None, {"x": x, "k": k, "n": np.array(4)})
    second = session.run(None, {"x": x, "k": k, "n": np.array(7)})
    assert first[0].tolist() == [9, 9, 9]
    assert second[0].tolist() == [15, 15, 15]
    assert x.tolist() == [1, 1, 1]
    first[1][:] = 0
    assert k.tolist() == [2, 2, 2]


def test_a_profile_has_the_nodes_of_the_body(tmp_path: Any) -> None:
    options = sardonyx.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = sardonyx.InferenceSession(model(ENDLESS.replace("Loop(,", "Loop(n,").replace("x) =>", "x, int64 n) =>")), options)
    (y,) = session.run(None, {"x": np.ones(4, F32), "n": np.array(3)})
    assert y.tolist() == [-1, -1, -1, -1]
    with open(session.end_profiling(), encoding="utf-8") as file:
        assert file.read().count("Neg") >= 3
