"""Tensor, image and text operators of com.microsoft, and the experimental ones of ai.onnx, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contrib_oracle import check, evaluate, infer, normal
from hypothesis import given, settings
from hypothesis import strategies as st
from op_case import Array

from sardonyx.ir.dims import symbol
from sardonyx.ops import signature
from sardonyx.ops.text.contrib_text import hashed_texts


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inverse(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x = normal(rng, 2, 3, 4, 4, dtype=dtype) + 4 * np.eye(4, dtype=dtype)
    check("Inverse", [x])
    assert np.isinf(evaluate("Inverse", [np.zeros((2, 2), dtype)])[0]).all()
    with pytest.raises(ValueError, match="expected square matrices"):
        evaluate("Inverse", [np.zeros((2, 3), dtype)])


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cdist(metric: str, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    check("CDist", [normal(rng, 4, 6, dtype=dtype), normal(rng, 5, 6, dtype=dtype)], metric=metric)


def test_trilu() -> None:
    x = normal(np.random.default_rng(2), 2, 4, 5)
    for upper in (0, 1):
        check("Trilu", [x, np.array(1)], upper=upper)
        check("Trilu", [x], upper=upper)


def test_unique_keeps_the_order_of_appearance() -> None:
    check("Unique", [np.array([2, 1, 1, 3, 4, 3, 2], np.float32)], outputs=3)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_expand_dims(axis: int) -> None:
    check("ExpandDims", [normal(np.random.default_rng(3), 2, 3), np.array(axis, np.int32)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.int32, np.int64])
def test_range_with_and_without_step(dtype: Any) -> None:
    check("Range", [np.array(1, dtype), np.array(9, dtype), np.array(3, dtype)])
    check("Range", [np.array(1, dtype), np.array(4, dtype)])
    check("Range", [np.array(9, dtype), np.array(1, dtype), np.array(-3, dtype)])


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad(mode: str) -> None:
    x = normal(np.random.default_rng(4), 3, 4)
    check("Pad", [x, np.array([1, 0, 2, 2]), np.array([1.5], np.float32)], mode=mode)


def test_gather_nd_and_sample_op() -> None:
    rng = np.random.default_rng(5)
    x = normal(rng, 3, 4, 5)
    check("GatherND", [x, np.array([[0, 1], [2, 3]], np.int64)])
    check("SampleOp", [x])


@pytest.mark.parametrize(("dim", "size", "step"), [(-1, 3, 1), (1, 2, 2), (0, 3, 1)])
def test_unfold_tensor(dim: int, size: int, step: int) -> None:
    check("UnfoldTensor", [normal(np.random.default_rng(6), 3, 4, 7)], dim=dim, size=size, step=step)


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 999))
@settings(max_examples=25, deadline=None)
def test_dynamic_time_warping(rows: int, columns: int, seed: int) -> None:
    costs = np.random.default_rng(seed).integers(0, 4, (rows, columns)).astype(np.float32)
    check("DynamicTimeWarping", [costs])


def test_is_all_finite() -> None:
    x, bad = np.ones(3, np.float32), np.array([1, np.inf], np.float32)
    for inputs, attrs, expected in (
        ([x, x], {}, True),
        ([x, bad], {}, False),
        ([bad], {"isnan_only": 1}, True),
        ([bad], {"isinf_only": 1}, False),
    ):
        settings_: dict[str, Any] = dict(attrs)
        assert evaluate("IsAllFinite", inputs, **settings_)[0].item() is expected


def test_products_of_complex_pairs() -> None:
    rng = np.random.default_rng(7)
    a, b = normal(rng, 3, 2), normal(rng, 3, 2)
    first, second = a[:, 0] + 1j * a[:, 1], b[:, 0] + 1j * b[:, 1]
    for name, expected in (("ComplexMul", first * second), ("ComplexMulConj", first * second.conj())):
        y = evaluate(name, [a, b])[0]
        np.testing.assert_allclose(y[:, 0] + 1j * y[:, 1], expected, rtol=1e-5)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
def test_grid_sample(mode: str, padding_mode: str) -> None:
    rng = np.random.default_rng(8)
    grid = (rng.random((1, 4, 5, 2)) * 2.4 - 1.2).astype(np.float32)
    check("GridSample", [normal(rng, 1, 2, 5, 6), grid], mode=mode, padding_mode=padding_mode, tolerance=1e-4)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(3, 4), (1, 1), (5, 2)])
def test_crop_and_resize(mode: str, size: tuple[int, int]) -> None:
    rng = np.random.default_rng(9)
    rois = np.array([[0.1, 0.2, 0.9, 0.8], [0, 0, 1, 1], [-0.5, 0.5, 0.5, 1.4]], np.float32)
    inputs = [normal(rng, 2, 3, 6, 7), rois, np.array([0, 1, 1], np.int32), np.array(size, np.int32)]
    check("CropAndResize", inputs, mode=mode, extrapolation_value=0.25)


@pytest.mark.parametrize("spatial", [(9,), (6, 7), (4, 5, 6)])
def test_maxpool_with_mask(spatial: tuple[int, ...]) -> None:
    rng = np.random.default_rng(10)
    x = normal(rng, 2, 3, *spatial)
    mask = rng.integers(0, 4, (1, 1, *spatial)).clip(0, 1).astype(np.int32)
    rank = len(spatial)
    check("MaxpoolWithMask", [x, mask], kernel_shape=[3] * rank, strides=[2] * rank)


def test_conv_transpose_with_dynamic_pads() -> None:
    rng = np.random.default_rng(11)
    inputs = [normal(rng, 1, 3, 4, 5), normal(rng, 3, 2, 3, 3), np.array([1, 0, 1, 1]), normal(rng, 2)]
    check("ConvTransposeWithDynamicPads", inputs, strides=[2, 2], output_padding=[1, 0])


def text(*items: str) -> Array:
    return np.array(items, object)


@pytest.mark.parametrize("mark", [0, 1])
@pytest.mark.parametrize(
    "attrs",
    [
        {"separators": [""], "mincharnum": 1},
        {"tokenexp": ".", "mincharnum": 1},
        {"separators": [" ", ","], "mincharnum": 1},
        {"separators": ["[ ;]+"], "mincharnum": 2},
        {"tokenexp": "[a-z]+", "mincharnum": 2},
        {"tokenexp": "[^ ]*", "mincharnum": 1},
        {"separators": ["x"], "mincharnum": 50},
    ],
    ids=lambda attrs: ",".join(f"{key}={value}" for key, value in attrs.items()),
)
def test_tokenizer(mark: int, attrs: dict[str, Any]) -> None:
    for x in (text("one two, three", "", "a;b ccc", "äöü ßß"), text("ab cd", "ef").reshape(1, 2)):
        check("Tokenizer", [x], mark=mark, pad_value="#", **attrs)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.text("ab-, é", max_size=12), min_size=1, max_size=4),
    separators=st.lists(st.text("a-, é", min_size=1, max_size=2), min_size=1, max_size=2),
    least=st.integers(1, 3), mark=st.integers(0, 1),
)  # fmt: skip
def test_separators_that_stand_for_themselves_cut_as_patterns_do(
    texts: list[str], separators: list[str], least: int, mark: int
) -> None:
    x = np.array(texts, object)
    others: dict[str, Any] = {"mark": mark, "mincharnum": least, "pad_value": "#"}
    (plain,) = evaluate("Tokenizer", [x], separators=tuple(separators), **others)
    (pattern,) = evaluate("Tokenizer", [x], separators=tuple(f"(?:{each})" for each in separators), **others)
    assert plain.tolist() == pattern.tolist()


def test_tokenizer_needs_a_rule() -> None:
    with pytest.raises(ValueError, match="one of separators and tokenexp is required"):
        evaluate("Tokenizer", [text("a")], mark=0, pad_value="#", mincharnum=1)


@pytest.mark.parametrize("positive", [0, 1])
@pytest.mark.parametrize("seed", [0, 42])
def test_murmur_hash_of_every_type(positive: int, seed: int) -> None:
    rng = np.random.default_rng(12)
    numbers = rng.integers(0, 2**31, (2, 3))
    for dtype in (np.uint32, np.int32, np.uint64, np.int64, np.float32, np.float64):
        check("MurmurHash3", [numbers.astype(dtype)], positive=positive, seed=seed)
    few = ("", "a", "ab", "abc", "abcd", "abcdefghi", "größe", "a\0b")
    check("MurmurHash3", [text(*few)], positive=positive, seed=seed)
    many = [*few, *(word * count for word in few for count in range(9))]
    check("MurmurHash3", [text(*many)], positive=positive, seed=seed)
    for most in (3, 16, 40, 64):
        short = [each for each in many if len(each.encode()) <= most]
        check("MurmurHash3", [text(*short)], positive=positive, seed=seed)
        longer = [each for each in short if len(each) > 7]
        check("MurmurHash3", [text(*longer, *["eight or more"] * 16)], positive=positive, seed=seed)
    wanted = evaluate("MurmurHash3", [text(*many)], positive=positive, seed=seed)[0]
    alone = [evaluate("MurmurHash3", [text(each)], positive=positive, seed=seed)[0][0] for each in many]
    assert wanted.tolist() == [each.item() for each in alone]
    for chosen in (many, [each for each in many if each.isascii()]):
        own = [each for each in chosen if not each.endswith("\0")]
        found = hashed_texts(np.array(own), seed)
        assert found.tolist() == hashed_texts(text(*own), seed).tolist()


@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_ngram_repeat_block(size: int) -> None:
    rng = np.random.default_rng(13)
    check("NGramRepeatBlock", [rng.integers(0, 3, (4, 7)), normal(rng, 4, 3)], ngram_size=size)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=8), st.lists(st.integers(0, 2), min_size=1, max_size=4), st.data())
@settings(max_examples=40, deadline=None)
def test_bifurcation_detector(source: list[int], current: list[int], data: st.DataObject) -> None:
    inputs: list[Array | None] = [np.array(source), np.array(current), np.array([0])]
    check("BifurcationDetector", inputs, outputs=2)
    matched = data.draw(st.integers(0, len(source)))
    length = len(source) + 1 - matched
    predicted = data.draw(st.lists(st.integers(0, 2), min_size=length, max_size=length))
    check("BifurcationDetector", [np.array(source), np.array(current), np.array([matched]), np.array(predicted)], outputs=2)


def test_word_conv_embedding() -> None:
    rng = np.random.default_rng(14)
    sequence = np.array([[1, 2, 3, 4, 0], [5, 0, 0, 0, 0], [2, 2, 2, 2, 2]], np.int32)
    inputs = [sequence, normal(rng, 4, 1, 2, 3), normal(rng, 4), normal(rng, 6, 3)]
    check("WordConvEmbedding", inputs)


EXPERIMENTAL: list[tuple[str, list[Array], dict[str, Any]]] = [
    ("Affine", [normal(np.random.default_rng(0), 2, 3)], {"alpha": 2.0, "beta": 0.5}),
    ("Scale", [normal(np.random.default_rng(0), 2, 3)], {"scale": 3.0}),
    ("ScaledTanh", [normal(np.random.default_rng(0), 2, 3)], {"alpha": 1.5, "beta": 0.5}),
    ("ParametricSoftplus", [normal(np.random.default_rng(0), 2, 3)], {"alpha": 1.5, "beta": 0.5}),
    ("ThresholdedRelu", [normal(np.random.default_rng(0), 2, 3)], {"alpha": 0.2}),
    ("ImageScaler", [normal(np.random.default_rng(0), 1, 3, 2, 2)], {"bias": [1.0, 2.0, 3.0], "scale": 2.0}),
    ("Crop", [normal(np.random.default_rng(0), 1, 2, 6, 7)], {"border": [1, 2, 3, 1]}),
    ("Crop", [normal(np.random.default_rng(0), 1, 2, 6, 7)], {"border": [1, 2, 0, 0], "scale": [3, 4]}),
    ("DynamicSlice", [normal(np.random.default_rng(0), 4, 5), np.array([1, -3]), np.array([3, 99])], {}),
    ("DynamicSlice", [normal(np.random.default_rng(0), 4, 5), np.array([1]), np.array([3]), np.array([1])], {}),
    ("MeanVarianceNormalization", [normal(np.random.default_rng(0), 2, 3, 4, 5)], {}),
    ("MeanVarianceNormalization", [normal(np.random.default_rng(0), 2, 3, 4, 5)], {"across_channels": 1}),
    ("MeanVarianceNormalization", [normal(np.random.default_rng(0), 2, 3, 4, 5)], {"normalize_variance": 0}),
]


@pytest.mark.parametrize(("name", "inputs", "attrs"), EXPERIMENTAL, ids=lambda value: value if isinstance(value, str) else "")
def test_experimental_operators_run_as_in_onnxruntime(name: str, inputs: list[Array], attrs: dict[str, Any]) -> None:
    check(name, inputs, domain="", version=8, **attrs)


def test_extra_signatures_extend_the_standard_table() -> None:
    assert signature.versions("", "LayerNormalization")[:2] == (1, 17)
    form = signature.signature("", "Affine", 11)
    assert form is not None
    assert form.deprecated
    assert signature.signature("", "LayerNormalization", 21) is signature.signature("", "LayerNormalization", 21)


def test_shapes_stay_symbolic() -> None:
    n = symbol("N")

    class Shaped:
        def __init__(self, *shape: Any) -> None:
            self.shape, self.dtype, self.size = shape, np.dtype(np.float32), 99

    inputs: list[Any] = [Shaped(n, 3, 7)]
    assert infer("UnfoldTensor", inputs, dim=0, size=2, step=1) == [(n - 1, 3, 7, 2)]
    images: list[Any] = [Shaped(n, 3, 6, 7)]
    assert infer("Crop", images, domain="", version=1, border=[1, 2, 3, 1]) == [(n, 3, 3, 3)]


def test_copies_between_devices_are_the_value_itself() -> None:
    x = normal(np.random.default_rng(15), 2, 3)
    for name in ("MemcpyFromHost", "MemcpyToHost"):
        assert evaluate(name, [x], domain="", version=13)[0] is x
        assert infer(name, [x], domain="", version=13)[0].shape == (2, 3)
