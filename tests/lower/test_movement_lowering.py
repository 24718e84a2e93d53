"""Views, copies and joins against the NumPy meaning of the operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_text import model
from native_support import assert_native_agrees, compile_native, run_native, run_reference
from sardonyx.kernel.indexing.transpose import TransposeKernel

TYPES = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint64": np.uint64,
    "bool": np.bool_,
}


def data(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray[Any, Any]:
    """Different numbers, so that an element in the wrong place is seen; with NaN and infinities among floats."""
    count = int(np.prod(shape))
    flat = (np.arange(count) * 7 + seed) % 251
    array = flat.astype(dtype)
    if np.dtype(dtype).kind == "f" and count > 3:
        array[1], array[2], array[3] = np.nan, np.inf, -np.inf
    return array.reshape(shape)


def steps(content: bytes) -> list[str]:
    """The labels of the steps of a model."""
    _, compiled = compile_native(content)
    return [getattr(step, "label", "host") for step in compiled.lowered.steps]


def agrees(graph: str, opset: int = 24, **feeds: Any) -> None:
    assert_native_agrees(model(graph, opset), feeds, rtol=0, atol=0)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(list(TYPES)),
    st.lists(st.sampled_from([0, 1, 2, 3, 7, 8, 9, 16, 17, 33, 70]), min_size=0, max_size=4).filter(lambda s: np.prod(s) < 2e5),
    st.randoms(use_true_random=False),
)
def test_every_transposition_of_every_type(kind: str, shape: list[int], random: Any) -> None:
    perm = list(range(len(shape)))
    random.shuffle(perm)
    named = ",".join(random.choice([str(size), f"D{axis}"]) for axis, size in enumerate(shape))
    attribute = f"<perm=[{','.join(map(str, perm))}]>" if perm else ""
    declared = f"{kind}[{named}]" if shape else kind
    agrees(f"({declared} x) => ({kind}[a] y) {{ y = Transpose{attribute}(x) }}", x=data(tuple(shape), TYPES[kind]))


def test_a_large_transposition_uses_the_turning_kernel() -> None:
    _, compiled = compile_native(model("(float[64,96] x) => (float[a,b] y) { y = Transpose<perm=[1,0]>(x) }"))
    (step,) = compiled.lowered.steps
    assert isinstance(getattr(step, "kernel", None), TransposeKernel)


@pytest.mark.parametrize("shape", [(2, 12, 5), (2, 0, 5), (1, 12, 1)])
def test_views_need_no_steps_but_the_last(shape: tuple[int, ...]) -> None:
    graph = """(float[N,A,B] x) => (float[a] y) {
        flat = Flatten<axis=1>(x)
        ones = Constant<value_ints=[0,2]>()
        wide = Unsqueeze(flat, ones)
        turned = Transpose<perm=[2,0,1,3]>(wide)
        shape = Constant<value_ints=[-1]>()
        back = Reshape(turned, shape)
        y = Relu(back)
    }"""
    assert steps(model(graph)) == ["Relu"]
    agrees(graph, x=data(shape, np.float32))


def test_a_loop_over_a_large_transposed_view_turns_it_first() -> None:
    graph = "(float[64,80] x) => (float[a] y, float[b] z) { t = Transpose<perm=[1,0]>(x) y = Neg(t) z = Abs(t) }"
    assert steps(model(graph)) == ["copy", "Neg", "Abs"]
    agrees(graph, x=data((64, 80), np.float32))


def test_a_reshape_of_a_transposed_view_copies_once_for_all_readers() -> None:
    graph = """(float[3,4,5] x) => (float[a] y, float[b] z) {
        t = Transpose<perm=[2,0,1]>(x)
        s = Constant<value_ints=[-1]>()
        u = Constant<value_ints=[4,15]>()
        a = Reshape(t, s)
        b = Reshape(t, u)
        y = Neg(a)
        z = Neg(b)
    }"""
    assert steps(model(graph)) == ["copy", "Neg", "Neg"]
    agrees(graph, x=data((3, 4, 5), np.float32))


def test_a_reshape_that_keeps_what_is_apart_apart_is_a_view() -> None:
    graph = """(float[2,6,4,5] x) => (float[a] y) {
        t = Transpose<perm=[2,1,0,3]>(x)
        s = Constant<value_ints=[4,2,3,2,5]>()
        v = Reshape(t, s)
        y = Neg(v)
    }"""
    assert steps(model(graph)) == ["Neg"]
    agrees(graph, x=data((2, 6, 4, 5), np.float32))


def test_a_size_that_does_not_divide_is_refused_at_run_time() -> None:
    content = model("(float[N] x) => (float[a,b] y) { s = Constant<value_ints=[-1,4]>() r = Reshape(x, s) y = Neg(r) }")
    graph, compiled = compile_native(content)
    with pytest.raises(Exception, match="must agree"):
        run_native(graph, compiled, {"x": np.zeros(7, np.float32)})


def test_shape_chains_leave_no_steps() -> None:
    graph = """(float[N,S,768] x) => (float[a] y) {
        s = Shape(x)
        zero = Constant<value_int=0>()
        one = Constant<value_int=1>()
        axis = Constant<value_ints=[0]>()
        n = Gather(s, zero)
        m = Gather(s, one)
        nn = Unsqueeze(n, axis)
        mm = Unsqueeze(m, axis)
        heads = Constant<value_ints=[12,64]>()
        target = Concat<axis=0>(nn, mm, heads)
        r = Reshape(x, target)
        t = Transpose<perm=[0,2,1,3]>(r)
        y = Neg(t)
    }"""
    assert steps(model(graph)) == ["Neg"]
    agrees(graph, x=data((2, 3, 768), np.float32))


def test_sizes_somebody_reads_are_written() -> None:
    graph = "(float[N,M] x) => (int64[2] s, int64 c, float[2] f) { s = Shape(x) c = Size(x) f = Cast<to=1>(s) }"
    agrees(graph, x=data((3, 5), np.float32))


def test_a_value_is_not_stored_for_a_reader_that_only_wants_its_shape() -> None:
    graph = "(float[N,4] x) => (float[a] y) { a = Neg(x) s = Shape(a) b = Relu(a) y = Reshape(b, s) }"
    _, compiled = compile_native(model(graph))
    assert [len(step.writes) for step in compiled.lowered.steps] == [1]
    agrees(graph, x=data((3, 4), np.float32))


@pytest.mark.parametrize("kind", ["float", "uint8", "int64", "bool", "float16"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_concat_along_every_axis(kind: str, axis: int) -> None:
    shapes = [[3, 4, 5] for _ in range(3)]
    for number, shape in enumerate(shapes):
        shape[axis] = number  # one of them empty
    names = ["a", "b", "c"]
    declared = ", ".join(f"{kind}[{','.join(map(str, shape))}] {name}" for name, shape in zip(names, shapes))
    feeds: dict[str, Any] = {name: data(tuple(shape), TYPES[kind], seed) for seed, (name, shape) in enumerate(zip(names, shapes))}
    agrees(f"({declared}) => ({kind}[z] y) {{ y = Concat<axis={axis}>(a, b, c, a) }}", **feeds)


def test_producers_write_straight_into_a_concat_of_a_concat() -> None:
    graph = """(float[N,4] x, float[N,3] y) => (float[a] z) {
        a = Neg(x)
        b = Abs(y)
        inner = Concat<axis=1>(a, b)
        c = Relu(x)
        z = Concat<axis=1>(c, inner)
    }"""
    assert "Concat" not in steps(model(graph))
    agrees(graph, x=data((5, 4), np.float32), y=data((5, 3), np.float32))


def test_what_a_split_cuts_and_a_concat_joins_again_is_never_copied() -> None:
    graph = """(float[1,8,5] x) => (float[a] z) {
        whole = Neg(x)
        p, q = Split<axis=1, num_outputs=2>(whole)
        r = Abs(q)
        z = Concat<axis=1>(p, q, r)
    }"""
    assert steps(model(graph)) == ["Neg", "Abs"]
    agrees(graph, x=data((1, 8, 5), np.float32))
    other_order = graph.replace("(p, q, r)", "(q, p, r)")
    assert steps(model(other_order)) == ["Neg", "Abs", "Concat", "Concat"]
    agrees(other_order, x=data((1, 8, 5), np.float32))


@pytest.mark.parametrize("sizes", ["2,3,4", "N,3,T"])
def test_stacked_tensors_that_lie_in_the_stack_are_not_copied_onto_themselves(sizes: str) -> None:
    """Keys and values behind a past, which the present holds one above the other, and which are read besides."""
    graph = f"""(float[{sizes}] past, float[{sizes}] key, float[{sizes}] value) => (float[a] z, float[b] w) {{
        axes = Constant<value_ints=[0]>()
        k = Concat<axis=2>(past, key)
        v = Concat<axis=2>(past, value)
        uk = Unsqueeze(k, axes)
        uv = Unsqueeze(v, axes)
        z = Concat<axis=0>(uk, uv)
        w = Add(k, v)
    }}"""
    assert steps(model(graph)).count("Concat") == 4  # of both pasts, the key and the value
    past = data((2, 3, 4), np.float32)
    agrees(graph, past=past, key=past + 1, value=past + 2)


def test_a_part_that_is_read_elsewhere_or_twice_is_right_everywhere() -> None:
    graph = """(float[N,4] x) => (float[a] z, float[b] w, float[c] v) {
        a = Neg(x)
        z = Concat<axis=0>(a, x, a)
        w = Exp(a)
        v = Concat<axis=1>(a, w)
    }"""
    assert_native_agrees(model(graph), {"x": np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)})


def test_a_product_writes_into_a_part_of_a_concat_and_through_a_reshape() -> None:
    graph = """(float[6,8] x, float[8,5] w, float[6,5] r) => (float[a] y, float[b] z) {
        m = MatMul(x, w)
        y = Concat<axis=1>(r, m)
        n = Gemm(x, w)
        s = Constant<value_ints=[2,15]>()
        z = Reshape(n, s)
    }"""
    labels = steps(model(graph))
    assert "Concat" in labels
    assert not any(label.startswith("copy") for label in labels)
    x, w, r = (np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((6, 8), (8, 5), (6, 5)))
    assert_native_agrees(model(graph), {"x": x, "w": w, "r": r})


def test_sizes_of_a_concat_that_contradict_each_other_are_refused() -> None:
    content = model("(float[N,A] x, float[M,A] y) => (float[a] z) { z = Concat<axis=1>(x, y) }")
    graph, compiled = compile_native(content)
    with pytest.raises(Exception, match="must agree"):
        run_native(graph, compiled, {"x": np.zeros((2, 3), np.float32), "y": np.zeros((4, 3), np.float32)})


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_split_gives_views(opset: int) -> None:
    parts = "<axis=1, num_outputs=3>" if opset >= 18 else "<axis=1>"
    graph = (
        f"(float[N,6] x) => (float[a] p, float[b] q, float[c] r) {{ u, v, w = Split{parts}(x) p = Neg(u) q = Neg(v) r = Neg(w) }}"
    )
    assert steps(model(graph, opset)) == ["Neg"] * 3
    agrees(graph, opset, x=data((4, 6), np.float32))


def test_uneven_and_symbolic_splits() -> None:
    agrees("(float[N,7] x) => (float[a] p, float[b] q) { p, q = Split<axis=0, num_outputs=2>(x) }", x=data((5, 7), np.float32))
    graph = "(int64[N,7] x) => (int64[a] p, int64[b] q) { s = Constant<value_ints=[2,5]>() p, q = Split<axis=1>(x, s) }"
    agrees(graph, x=data((5, 7), np.int64))


def test_expand_is_a_view_and_checks_its_sizes() -> None:
    graph = "(float[N,1,M] x) => (float[a] y) { s = Constant<value_ints=[2,1,3,1]>() e = Expand(x, s) y = Neg(e) }"
    assert steps(model(graph)) == ["Neg"]
    agrees(graph, x=data((1, 1, 4), np.float32))
    agrees(graph, x=data((5, 1, 1), np.float32))


@pytest.mark.parametrize(
    ("shape", "repeats"), [((2, 3), (2, 2)), ((2, 3), (0, 1)), ((), ()), ((0, 3), (2, 2)), ((1, 33, 4), (3, 1, 2))]
)
def test_tile(shape: tuple[int, ...], repeats: tuple[int, ...]) -> None:
    for kind in ("float", "uint8"):
        sizes = f"[{','.join(map(str, shape))}]" if shape else ""
        counts = f"int64[{len(repeats)}] {{{','.join(map(str, repeats))}}}"
        agrees(
            f"({kind}{sizes} x) => ({kind}[a] y) {{ r = Constant<value = {counts}>() y = Tile(x, r) }}",
            x=data(shape, TYPES[kind]),
        )


@pytest.mark.parametrize(("mode", "op"), [("DCR", "DepthToSpace"), ("CRD", "DepthToSpace"), ("DCR", "SpaceToDepth")])
def test_blocks_between_depth_and_space(mode: str, op: str) -> None:
    given_mode = f', mode="{mode}"' if op == "DepthToSpace" else ""
    for x in (data((2, 8, 6, 4), np.float32), data((2, 8, 6, 4), np.int8)):
        kind = "float" if x.dtype == np.float32 else "int8"
        agrees(f"({kind}[N,8,H,W] x) => ({kind}[a] y) {{ y = {op}<blocksize=2{given_mode}>(x) }}", x=x)


@pytest.mark.parametrize(("batch", "time"), [(0, 1), (1, 0)])
def test_reverse_sequence(batch: int, time: int) -> None:
    graph = f"(float[A,B,3] x, int64[C] l) => (float[a] y) {{ y = ReverseSequence<batch_axis={batch}, time_axis={time}>(x, l) }}"
    lengths = np.array([0, 4, 1] if batch == 0 else [0, 3, 1, 2])
    agrees(graph, x=data((3, 4, 3), np.float32), l=lengths)
    compiled_graph, compiled = compile_native(model(graph))
    with pytest.raises(ValueError, match="sequence_lens"):
        run_native(compiled_graph, compiled, {"x": data((3, 4, 3), np.float32), "l": lengths - 1})


@pytest.mark.parametrize("opset", [7, 10, 12, 22])
def test_the_mask_of_dropout_in_inference_is_onnxruntimes(opset: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    kind = "float" if opset < 10 else "bool"
    content = model(f"(float[N,4] x) => (float[a] y, {kind}[b] m) {{ d, m = Dropout(x) y = Neg(d) }}", opset)
    feeds = {"x": np.arange(8, dtype=np.float32).reshape(2, 4)}
    assert_native_agrees(content, feeds)
    expected = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feeds)
    for actual, wanted in zip(run_reference(content, feeds), expected):
        assert actual.dtype == wanted.dtype
        np.testing.assert_array_equal(actual, wanted)


def test_dropout_in_inference_is_its_input() -> None:
    graph = "(float[N,4] x) => (float[a] y, bool[b] m) { d, m = Dropout(x) y = Neg(d) }"
    assert steps(model(graph)) == ["Neg", "copy to output"]
    agrees(graph, x=data((3, 4), np.float32))
