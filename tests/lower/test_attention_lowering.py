"""Attention, of ONNX and of com.microsoft, as native steps, against the NumPy meaning of the operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from guarded import guarded
from native_support import assert_native_agrees, compile_native, run_native, run_reference
from sardonyx import errors
from sardonyx.compile import assemble
from sardonyx.ir.tensor import Array
from sardonyx.kernel.attention.attention import NO_LIMIT
from sardonyx.kernel.attention.transposed import TransposedAttentionKernel
from sardonyx.kernel.matmul.pack import PackKernel
from sardonyx.lower.attention import attend as lowering
from sardonyx.program.steps import KernelStep
from targets import here, library_for

TOLERANCE = {"float32": 2e-5, "float64": 1e-11, "float16": 3e-3}


def numbers(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def model(
    op: str,
    inputs: dict[str, Array | None],
    outputs: list[str],
    shapes: dict[str, list[Any]] | None = None,
    *,
    domain: str = "",
    version: int = 25,
    **attrs: Any,
) -> tuple[bytes, dict[str, Array]]:
    """A model of one node whose inputs are all fed; `shapes` are declared instead of the actual ones."""
    feeds = {name: array for name, array in inputs.items() if array is not None}
    names = [name if array is not None else "" for name, array in inputs.items()]
    while not names[-1]:
        names.pop()
    code = helper.np_dtype_to_tensor_dtype(next(iter(feeds.values())).dtype)
    graph = helper.make_graph(
        [helper.make_node(op, names, outputs, domain=domain, **attrs)],
        "attention",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), (shapes or {}).get(name, list(array.shape))
            )
            for name, array in feeds.items()
        ],
        [helper.make_tensor_value_info(name, code, None) for name in outputs if name],
    )
    opsets = [helper.make_opsetid("", version), helper.make_opsetid("com.microsoft", 1)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return content, {name: guarded(array) for name, array in feeds.items()}


def check(
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Array | None = None,
    past: tuple[Array, Array] | None = None,
    lengths: Array | None = None,
    outputs: tuple[str, ...] = ("Y",),
    symbolic: bool = False,
    **attrs: Any,
) -> None:
    inputs = {
        "q": q,
        "k": k,
        "v": v,
        "mask": mask,
        "past_key": None if past is None else past[0],
        "past_value": None if past is None else past[1],
        "lengths": lengths,
    }
    shapes: dict[str, list[Any]] = {}
    if symbolic:
        time = 1 if q.ndim == 3 else 2
        for name, symbol in (("q", "queries"), ("k", "keys"), ("v", "keys"), ("past_key", "past"), ("past_value", "past")):
            array = inputs[name]
            if array is not None:
                shapes[name] = list(array.shape)
                shapes[name][time if name in "qkv" else 2] = symbol
        if mask is not None:
            shapes["mask"] = [*mask.shape[:-2], "queries", "reach"]
    content, feeds = model("Attention", inputs, list(outputs), shapes, **attrs)
    tolerance = TOLERANCE[q.dtype.name]
    assert_native_agrees(content, feeds, rtol=tolerance, atol=tolerance)


SIZES = st.tuples(st.integers(1, 60), st.integers(1, 600), st.integers(1, 70), st.integers(1, 70))


@pytest.mark.parametrize("causal", [0, 1])
@settings(max_examples=12, deadline=None)
@given(SIZES)
def test_heads_of_any_size_agree(causal: int, sizes: tuple[int, int, int, int]) -> None:
    queries, keys, size, columns = sizes
    q, k, v = numbers(2, 3, queries, size), numbers(2, 3, keys, size), numbers(2, 3, keys, columns)
    check(q, k, v, symbolic=True, is_causal=causal)


@pytest.mark.parametrize(("queries", "keys"), [(1, 9), (5, 257), (6, 256), (25, 40), (128, 300)])
def test_known_numbers_of_queries_agree(queries: int, keys: int) -> None:
    check(numbers(1, 2, queries, 33), numbers(1, 2, keys, 33), numbers(1, 2, keys, 50))


def is_transposed(content: bytes) -> bool:
    """Whether K is read as it lies, for whole blocks of queries."""
    steps = compile_native(content)[1].lowered.steps
    return any(isinstance(step, KernelStep) and isinstance(step.kernel, TransposedAttentionKernel) for step in steps)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 10), st.integers(1, 400), st.integers(1, 70), st.integers(1, 70), st.booleans())
def test_queries_that_fill_vectors_agree(tens: int, keys: int, size: int, columns: int, masked: bool) -> None:
    lanes = here().lanes
    queries = max(tens * 16 - tens % 3, lanes - 1)
    q, k, v = numbers(2, 4, queries, size), numbers(2, 2, keys, size), numbers(2, 2, keys, columns)
    mask = None
    if masked:
        mask = numbers(2, 1, 1, keys, seed=1)
        mask[..., keys - keys // 3 :] = -10000.0
        mask[1] = np.where(np.arange(keys) % 5 == 1, -np.inf, mask[1])
    check(q, k, v, mask=mask)


@pytest.mark.parametrize(("queries", "mask"), [(64, None), (60, (1, 1, 1, 90)), (32, (2, 4, 1, 90))])
def test_few_queries_do_not_pack_the_keys(queries: int, mask: tuple[int, ...] | None) -> None:
    arrays = {"q": numbers(2, 4, queries, 64), "k": numbers(2, 4, 90, 64), "v": numbers(2, 4, 90, 64)}
    if mask is not None:
        arrays["mask"] = numbers(*mask)
    assert is_transposed(model("Attention", dict(arrays), ["Y"])[0])
    assert not is_transposed(model("Attention", dict(arrays), ["Y"], is_causal=1)[0])


def packs(content: bytes, lanes: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many of K and V are packed for vectors of some lanes."""
    library = library_for(here(lanes))
    monkeypatch.setattr(assemble, "library", lambda *_: library)
    steps = compile_native(content)[1].lowered.steps
    return sum(isinstance(step, KernelStep) and isinstance(step.kernel, PackKernel) for step in steps)


@pytest.mark.parametrize(
    ("queries", "heads", "columns", "expected"),
    [(200, 4, 64, 2), (50, 8, 64, 2), (50, 4, 64, 1), (90, 4, 64, 2), (200, 4, 16, 1)],
)
def test_values_whose_rows_are_read_line_by_line_are_packed_for_many_queries(
    queries: int, heads: int, columns: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays: dict[str, Array | None] = {
        "q": numbers(1, heads, queries, 32),
        "k": numbers(1, 4, 90, 32),
        "v": numbers(1, 4, 90, columns),
    }
    assert packs(model("Attention", arrays, ["Y"], is_causal=1)[0], 8, monkeypatch) == expected


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([(6, 30), (31, 300), (50, 257)]),
    st.integers(1, 70),
    st.sampled_from(["", "causal", "mask", "lengths"]),
    st.sampled_from([None, np.nan, np.inf]),
)
def test_packed_values_give_the_same_bits(sizes: tuple[int, int], columns: int, kind: str, bad: float | None) -> None:
    queries, keys = sizes
    q, k, v = numbers(2, 4, queries, 20), numbers(2, 2, keys, 20), numbers(2, 2, keys, columns)
    if bad is not None:
        v[1, 1, keys // 2, columns // 2] = bad
    mask = numbers(2, 1, queries, keys, seed=1)
    mask[..., keys - keys // 3 :] = -10000.0
    arrays: dict[str, Array | None] = {"q": q, "k": k, "v": v, "mask": mask if kind == "mask" else None, "past_key": None}
    arrays |= {"past_value": None, "lengths": np.array([keys, keys // 2]) if kind == "lengths" else None}
    content, feeds = model("Attention", arrays, ["Y"], is_causal=int(kind == "causal"))
    results = []
    for least in (1, NO_LIMIT):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lowering, "_PACKS_VALUES", least)
            patch.setattr(lowering, "_COPIES_VALUES", least)
            patch.setattr(lowering, "CACHE_LINE", 256 if least == 1 else 0)
            graph, compiled = compile_native(content)
            results.append(run_native(graph, compiled, feeds)[0])
    np.testing.assert_array_equal(*results)
    if bad is None:
        assert_native_agrees(content, feeds, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("queries", [3, 30, 64])
@pytest.mark.parametrize("kind", ["keys", "pairs"])
def test_values_of_keys_without_probability_count_only_where_they_are_not_finite(queries: int, kind: str) -> None:
    q, k, v = (numbers(1, 8, length, 32, seed=length) for length in (queries, 300, 300))
    mask = np.zeros((1, 1, 1 if kind == "keys" else queries, 300), np.float32)
    mask[..., 211:] = -10000.0
    for place in (None, 210, 211, 260, 299):
        spoiled = v.copy()
        if place is not None:
            spoiled[0, 3, place, 5] = np.inf
        check(q, k, spoiled, mask=mask)
    for value in (np.nan, -np.inf):
        spoiled = v.copy()
        spoiled[0, 0, 299, 31] = value
        check(q, k, spoiled, mask=mask)


@pytest.mark.parametrize("queries", [20, 64])
def test_a_mask_over_pairs_that_leaves_a_triangle_agrees(queries: int) -> None:
    q, k, v = (numbers(1, 8, length, 32, seed=length) for length in (queries, 600, 600))
    seen = np.tril(np.ones((1, 1, queries, 600), bool), 37)
    check(q, k, v, mask=seen)
    check(q, k, v, mask=np.where(seen, np.float32(0), np.float32(-np.inf)))
    check(q, k, v, mask=seen[..., ::-1].copy())


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_types_agree(dtype: str) -> None:
    q, k, v = (numbers(2, 2, length, 24, seed=length, dtype=dtype) for length in (9, 300, 300))
    check(q, k, v, is_causal=1)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("queries", [2, 30])
def test_query_heads_share_key_heads_behind_a_past(queries: int, symbolic: bool) -> None:
    q, k, v = numbers(2, 6, queries, 16), numbers(2, 2, queries, 16, seed=1), numbers(2, 2, queries, 12, seed=2)
    past = (numbers(2, 2, 7, 16, seed=3), numbers(2, 2, 7, 12, seed=4))
    outputs = ("Y", "present_key", "present_value")
    check(q, k, v, past=past, outputs=outputs, symbolic=symbolic, is_causal=1, softcap=2.0, scale=0.3)


@pytest.mark.parametrize("queries", [3, 40])
def test_packed_heads_agree(queries: int) -> None:
    q, k, v = numbers(2, queries, 48), numbers(2, 20, 24), numbers(2, 20, 20)
    check(q, k, v, q_num_heads=4, kv_num_heads=2, outputs=("Y", "", "present_value"))


MASKS = {
    "of queries and keys": (12, 70),
    "of heads": (3, 1, 70),
    "of all": (2, 3, 12, 70),
    "too short": (2, 1, 12, 50),
    "one key": (12, 1),
}


@pytest.mark.parametrize("shape", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("causal", [0, 1])
def test_boolean_masks_agree(shape: tuple[int, ...], causal: int) -> None:
    mask = np.random.default_rng(5).random(shape) < 0.5
    check(numbers(2, 3, 12, 16), numbers(2, 3, 70, 16), numbers(2, 3, 70, 8), mask=mask, is_causal=causal)


@pytest.mark.parametrize("shape", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("symbolic", [False, True])
def test_added_masks_agree(shape: tuple[int, ...], symbolic: bool) -> None:
    mask = np.where(np.random.default_rng(5).random(shape) < 0.5, -np.inf, numbers(*shape)).astype(np.float32)
    symbolic = symbolic and shape[-2] == 12
    check(numbers(2, 3, 12, 16), numbers(2, 3, 70, 16), numbers(2, 3, 70, 8), mask=mask, symbolic=symbolic)


@pytest.mark.parametrize("queries", [2, 9])
def test_rows_without_any_key_give_zeros(queries: int) -> None:
    mask = np.zeros((queries, 300), np.bool_)
    mask[1] = True
    content, feeds = model(
        "Attention",
        {"q": numbers(1, 2, queries, 8), "k": numbers(1, 2, 300, 8), "v": numbers(1, 2, 300, 8), "mask": mask},
        ["Y"],
    )
    graph, compiled = compile_native(content)
    (result,) = run_native(graph, compiled, feeds)
    assert not result[:, :, 0].any()
    assert result[:, :, 1].all()
    np.testing.assert_allclose(result, run_reference(content, feeds)[0], rtol=2e-5, atol=2e-5)


def test_nan_in_a_mask_spoils_its_row_only() -> None:
    mask = np.zeros((20, 30), np.float32)
    mask[3, 5], mask[4, 6] = np.nan, np.inf
    check(numbers(1, 2, 20, 8), numbers(1, 2, 30, 8), numbers(1, 2, 30, 8), mask=mask)


def test_no_keys_at_all_give_zeros() -> None:
    check(numbers(2, 3, 4, 8), numbers(2, 3, 0, 8), numbers(2, 3, 0, 8))
    check(numbers(2, 3, 40, 8), numbers(2, 3, 0, 8), numbers(2, 3, 0, 8), symbolic=True)


def test_no_queries_give_an_empty_result() -> None:
    check(numbers(2, 3, 0, 8), numbers(2, 3, 5, 8), numbers(2, 3, 5, 8), symbolic=True)


@pytest.mark.parametrize("causal", [0, 1])
def test_lengths_of_keys_agree(causal: int) -> None:
    lengths = np.array([300, 17, 0], np.int64)
    check(numbers(3, 2, 10, 8), numbers(3, 2, 300, 8), numbers(3, 2, 300, 8), lengths=lengths, is_causal=causal)


@pytest.mark.parametrize(("left", "right"), [(20, -1), (-1, 3), (5, 0), (0, 0), (300, 300)])
def test_windows_agree(left: int, right: int) -> None:
    q, k = numbers(1, 2, 50, 16), numbers(1, 2, 700, 16)
    check(q, k, k, left_window_size=left, right_window_size=right, past=(k[:, :, :600], k[:, :, :600]))


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    q, k = numbers(2, 4, 90, 32), numbers(2, 4, 400, 32)
    content, feeds = model("Attention", {"q": q, "k": k, "v": k}, ["Y"], is_causal=1)
    results = []
    for workers in (1, 2, 3):
        graph, compiled = compile_native(content, workers)
        results.append(run_native(graph, compiled, feeds)[0])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("lanes", [4, 8])
def test_machines_with_narrower_vectors_agree(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    library = library_for(here(lanes))
    monkeypatch.setattr(assemble, "library", lambda *_: library)
    check(numbers(1, 2, 31, 20), numbers(1, 2, 300, 20), numbers(1, 2, 300, 27), symbolic=True)
    check(numbers(1, 2, 3, 20), numbers(1, 2, 300, 20), numbers(1, 2, 300, 27))
    for queries in (16, 31, 64, 80):
        check(numbers(1, 8, queries, 20), numbers(1, 8, 300, 20), numbers(1, 8, 300, 27), mask=numbers(1, 1, 1, 300))


# com.microsoft


def check_microsoft(op: str, inputs: dict[str, Array | None], outputs: list[str], **attrs: Any) -> None:
    content, feeds = model(op, inputs, outputs, domain="com.microsoft", **attrs)
    assert_native_agrees(content, feeds, rtol=2e-5, atol=2e-5)


HIDDEN = 4 * 12


def packings(queries: int, keys: int) -> dict[str, tuple[Array, Array | None, Array | None]]:
    return {
        "apart": (numbers(2, queries, HIDDEN), numbers(2, keys, HIDDEN, seed=1), numbers(2, keys, HIDDEN, seed=2)),
        "in one": (numbers(2, queries, 4, 3, 12), None, None),
        "keys with values": (numbers(2, queries, HIDDEN), numbers(2, keys, 4, 2, 12), None),
        "by heads": (numbers(2, queries, HIDDEN), numbers(2, 4, keys, 12), numbers(2, 4, keys, 12, seed=3)),
    }


@pytest.mark.parametrize("packing", packings(1, 1))
@pytest.mark.parametrize("bias", [False, True])
def test_multi_head_attention_takes_every_packing(packing: str, bias: bool) -> None:
    q, k, v = packings(9, 14)[packing]
    added = numbers(3 * HIDDEN, seed=9) if bias else None
    outputs = ["Y"] if packing == "by heads" else ["Y", "present_key", "present_value"]
    check_microsoft("MultiHeadAttention", {"q": q, "k": k, "v": v, "bias": added}, outputs, num_heads=4)


@pytest.mark.parametrize("form", ["lengths", "keys", "queries"])
@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention_takes_masks(form: str, causal: int) -> None:
    rng = np.random.default_rng(3)
    masks = {
        "lengths": np.array([3, 11], np.int32),
        "keys": (rng.random((2, 11)) < 0.7).astype(np.int32),
        "queries": (rng.random((2, 11, 11)) < 0.7).astype(np.int32),
    }
    q, k, v = packings(11, 11)["apart"]
    inputs = {"q": q, "k": k, "v": v, "bias": None, "mask": masks[form], "added": numbers(1, 4, 11, 11)}
    check_microsoft("MultiHeadAttention", inputs, ["Y"], num_heads=4, unidirectional=causal, mask_filter_value=-500.0)


@pytest.mark.parametrize("queries", [1, 8])
def test_multi_head_attention_appends_to_a_past(queries: int) -> None:
    q, k, v = packings(queries, queries)["apart"]
    past = {"past_key": numbers(2, 4, 5, 12), "past_value": numbers(2, 4, 5, 12, seed=5)}
    inputs = {"q": q, "k": k, "v": v, "bias": None, "mask": None, "added": None, **past}
    check_microsoft("MultiHeadAttention", inputs, ["Y", "present_key", "present_value"], num_heads=4, unidirectional=1)


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention_with_its_projection_agrees(past: bool, causal: int) -> None:
    inputs = {
        "x": numbers(2, 7, 20),
        "w": numbers(20, 3 * HIDDEN) * np.float32(0.3),
        "b": numbers(3 * HIDDEN),
        "mask": None if past else np.array([[1] * 7, [1] * 4 + [0] * 3], np.int32),
        "past": numbers(2, 2, 4, 5, 12) if past else None,
    }
    check_microsoft("Attention", inputs, ["Y", "present"], num_heads=4, unidirectional=causal)
    check_microsoft("Attention", {**inputs, "b": None}, ["Y"], num_heads=4, unidirectional=causal)


def test_attention_with_values_of_another_size_agrees() -> None:
    inputs: dict[str, Array | None] = {"x": numbers(2, 7, 20), "w": numbers(20, 24 + 24 + 40), "b": numbers(88)}
    check_microsoft("Attention", inputs, ["Y"], num_heads=4, qkv_hidden_sizes=[24, 24, 40])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize(
    ("queries", "room", "lengths", "total"),
    [(5, 0, [5, 5], 5), (5, 0, [5, 3], 5), (5, 12, [5, 4], 5), (1, 12, [8, 3], 8), (3, 7, [10, 6], 10), (30, 64, [50, 31], 50)],
    ids=["prompt", "padded prompt", "prompt with room", "one more", "growing", "many more"],
)
def test_grouped_queries_behind_a_cache_agree(
    queries: int, room: int, lengths: list[int], total: int, rotated: bool, packed: bool
) -> None:
    key, value = numbers(2, queries, 2 * 16, seed=1), numbers(2, queries, 2 * 16, seed=2)
    query = numbers(2, queries, (4 + 2 * 2 if packed else 4) * 16)
    inputs: dict[str, Array | None] = {
        "query": query,
        "key": None if packed else key,
        "value": None if packed else value,
        "past_key": numbers(2, 2, room, 16, seed=3) if room else None,
        "past_value": numbers(2, 2, room, 16, seed=4) if room else None,
        "seqlens_k": np.array(lengths, np.int32) - 1,
        "cos": numbers(100, 6, seed=5) if rotated else None,
        "sin": numbers(100, 6, seed=6) if rotated else None,
    }
    names = [name if array is not None else "" for name, array in inputs.items()]
    names.insert(6, "total")
    feeds = {name: array for name, array in inputs.items() if array is not None}
    node = helper.make_node(
        "GroupQueryAttention", names, ["Y", "present_key", "present_value"], domain="com.microsoft", num_heads=4, kv_num_heads=2,
        do_rotary=int(rotated), rotary_interleaved=int(packed), local_window_size=4 if rotated else -1, softcap=3.0,
    )  # fmt: skip
    graph = helper.make_graph(
        [node],
        "grouped",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ],
        [helper.make_tensor_value_info(name, 1, None) for name in ("Y", "present_key", "present_value")],
        [helper.make_tensor("total", 6, [1], [total])],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    assert_native_agrees(content, {name: guarded(array) for name, array in feeds.items()}, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rotary_embeddings_agree(interleaved: int, dtype: str) -> None:
    x, caches = numbers(2, 3, 5, 20, dtype=dtype), [numbers(9, 10, seed=seed, dtype=dtype) for seed in (1, 2)]
    positions = np.array([[0, 1, 2, 3, 4], [8, 0, 3, 3, 1]], np.int64)
    tolerance = TOLERANCE[dtype]
    inputs: dict[str, Array | None] = {"x": x, "cos": caches[0], "sin": caches[1], "positions": positions}
    content, feeds = model("RotaryEmbedding", inputs, ["Y"], version=23, interleaved=interleaved)
    assert_native_agrees(content, feeds, rtol=tolerance, atol=tolerance)
    given_: dict[str, Array | None] = {
        "x": x.transpose(0, 2, 1, 3).reshape(2, 5, 60),
        "cos": caches[0][positions, :4],
        "sin": caches[1][positions, :4],
    }
    attrs: dict[str, Any] = {"interleaved": interleaved, "num_heads": 3, "rotary_embedding_dim": 8}
    content, feeds = model("RotaryEmbedding", given_, ["Y"], version=23, **attrs)
    assert_native_agrees(content, feeds, rtol=tolerance, atol=tolerance)
    for place in (positions, np.array([4], np.int64)):
        contrib: dict[str, Array | None] = {"x": x, "positions": place, "cos": caches[0], "sin": caches[1]}
        content, feeds = model("RotaryEmbedding", contrib, ["Y"], domain="com.microsoft", interleaved=interleaved)
        assert_native_agrees(content, feeds, rtol=tolerance, atol=tolerance)


def test_a_position_the_caches_do_not_hold_is_an_error() -> None:
    inputs: dict[str, Array | None] = {
        "x": numbers(1, 2, 3, 8),
        "positions": np.array([[0, 1, 9]], np.int64),
        "cos": numbers(9, 4),
        "sin": numbers(9, 4),
    }
    content, feeds = model("RotaryEmbedding", inputs, ["Y"], domain="com.microsoft")
    graph, compiled = compile_native(content)
    with pytest.raises(errors.InvalidArgument, match="a position is not one of the 9 that the caches hold"):
        run_native(graph, compiled, feeds)
