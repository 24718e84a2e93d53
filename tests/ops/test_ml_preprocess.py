"""Feature preparation and label operators of ai.onnx.ml against onnxruntime and by example."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contrib_oracle import evaluate, infer
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_oracle import ML, Array, agree

from sardonyx import dtypes
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.types import MapType, SequenceType, TensorType
from sardonyx.ops import registry
from sardonyx.ops.infer import InferContext

quick = settings(max_examples=20, deadline=None)
seeds = st.integers(0, 2**32 - 1)


def text(*items: str) -> Array:
    result = np.empty(len(items), object)
    result[:] = items
    return result


def one(name: str, *inputs: Any, version: int = 1, **attrs: Any) -> Any:
    return evaluate(name, list(inputs), domain=ML, version=version, **attrs)[0]


def test_label_encoder_1_maps_strings_to_numbers_and_back() -> None:
    classes = ["red", "green", "blue"]
    (numbers,) = agree("LabelEncoder", text("green", "pink", "blue"), version=1, classes_strings=classes, default_int64=-7)
    assert numbers.tolist() == [1, -7, 2]
    (names,) = agree("LabelEncoder", np.array([[2, 9], [-1, 0]], np.int64), version=1, classes_strings=classes)
    assert names.tolist() == [["blue", "_Unused"], ["_Unused", "red"]]


KEYS = {"strings": ["a", "b", "a"], "int64s": [3, -1, 3], "floats": [0.5, 2.0, 0.5]}
DATA = {
    "strings": text("b", "a", "zz"),
    "int64s": np.array([3, 4, -1], np.int64),
    "floats": np.array([2, 0.5, np.nan], np.float32),
}


@pytest.mark.parametrize(
    ("version", "keys", "values"),
    [(version, keys, values) for version in (2, 4) for keys in KEYS for values in KEYS if version == 4 or keys != values],
)
def test_label_encoder_maps_every_kind_to_every_kind(version: int, keys: str, values: str) -> None:
    different: dict[str, list[Any]] = {"strings": ["x", "y", "z"], "int64s": [7, 8, 9], "floats": [0.25, -1.0, 3.0]}
    attrs: dict[str, Any] = {f"keys_{keys}": KEYS[keys], f"values_{values}": different[values]}
    agree("LabelEncoder", DATA[keys], version=version, **attrs)


def test_label_encoder_4_takes_tensors_of_any_type_and_knows_nan() -> None:
    keys, values = np.array([np.nan, 1.5, 0.0]), np.array([10, 20, 30], np.int16)
    x = np.array([[1.5, np.nan], [-0.0, 7.0]])
    result = one("LabelEncoder", x, version=4, keys_tensor=keys, values_tensor=values, default_tensor=np.array([-5], np.int16))
    assert result.dtype == np.int16
    assert result.tolist() == [[20, 10], [30, -5]]
    (found,) = infer("LabelEncoder", [x], domain=ML, version=4, keys_tensor=keys, values_tensor=values)
    assert str(found) == "i16[2,2]"


def test_label_encoder_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="there are 1 keys and 2 values: they must agree"):
        one("LabelEncoder", text("a"), version=2, keys_strings=["a"], values_int64s=[1, 2])
    with pytest.raises(ValueError, match="the input is str but the keys are i64: they must agree"):
        one("LabelEncoder", text("a"), version=2, keys_int64s=[1], values_int64s=[1])
    with pytest.raises(ValueError, match="there are no values: set one of values_strings"):
        one("LabelEncoder", text("a"), version=2, keys_strings=["a"])


def test_category_mapper_works_both_ways() -> None:
    attrs: dict[str, Any] = {"cats_int64s": [4, 5], "cats_strings": ["cat", "dog"]}
    agree("CategoryMapper", text("dog", "cow"), version=1, **attrs)
    agree("CategoryMapper", np.array([4, 0], np.int64), version=1, default_string="?", **attrs)
    with pytest.raises(ValueError, match="cats_int64s has 1 entries and cats_strings 0"):
        one("CategoryMapper", text("dog"), cats_int64s=[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_one_hot_encoder_truncates_numbers(dtype: Any) -> None:
    x = np.array([[1.0, 2.0], [9.0, -1.0]]).astype(dtype)
    (result,) = agree("OneHotEncoder", x, version=1, cats_int64s=[2, -1, 1])
    assert result.tolist() == [[[0, 0, 1], [1, 0, 0]], [[0, 0, 0], [0, 1, 0]]]


def test_one_hot_encoder_of_strings() -> None:
    agree("OneHotEncoder", text("b", "zz"), version=1, cats_strings=["a", "b"])
    with pytest.raises(ValueError, match="'zz' is not a category, and zeros is 0"):
        one("OneHotEncoder", text("b", "zz"), cats_strings=["a", "b"], zeros=0)
    with pytest.raises(ValueError, match="the input is str but there is no cats_strings"):
        one("OneHotEncoder", text("b"), cats_int64s=[1])


@quick
@given(seed=seeds, rank=st.integers(1, 3), dtype=st.sampled_from((np.float32, np.float64, np.int32, np.int64)))
def test_array_feature_extractor_selects_on_the_last_axis(seed: int, rank: int, dtype: Any) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 9, tuple(rng.integers(1, 4, rank))).astype(dtype)
    agree("ArrayFeatureExtractor", x, rng.integers(0, x.shape[-1], 3), version=1)


def test_array_feature_extractor_checks_its_indices() -> None:
    with pytest.raises(IndexError, match="indices 0 to 4 are out of range for 3 features"):
        one("ArrayFeatureExtractor", np.zeros((2, 3)), np.array([0, 4]))


def test_binarizer_compares_with_the_threshold() -> None:
    agree("Binarizer", np.array([[-1, 0.5, 0.6]], np.float32), version=1, threshold=0.5)
    assert one("Binarizer", np.array([0, 1, 2], np.int32), threshold=1.0).tolist() == [0, 0, 1]


@pytest.mark.parametrize("values", [[5.0], [5.0, 6.0, 7.0]])
@pytest.mark.parametrize("replaced", [float("nan"), 0.0])
def test_imputer_replaces_missing_floats(values: list[float], replaced: float) -> None:
    x = np.array([[np.nan, 0, 1], [0, np.nan, -2]], np.float32)
    agree("Imputer", x, version=1, imputed_value_floats=values, replaced_value_float=replaced)


def test_imputer_replaces_missing_integers() -> None:
    agree("Imputer", np.array([[3, 0], [1, 3]], np.int64), version=1, imputed_value_int64s=[8, 9], replaced_value_int64=3)


@pytest.mark.parametrize("features", [1, 2, 3, 5])
def test_an_imputer_with_another_number_of_values_takes_the_first(features: int) -> None:
    x = np.full((2, features), np.nan, np.float32)
    agree("Imputer", x, version=1, imputed_value_floats=[5.0, 6.0, 7.0, 8.0], replaced_value_float=float("nan"))
    agree("Imputer", x[0], version=1, imputed_value_floats=[5.0, 6.0, 7.0, 8.0], replaced_value_float=float("nan"))
    agree("Imputer", np.zeros((2, features), np.int64), version=1, imputed_value_int64s=[5, 6, 7, 8], replaced_value_int64=0)
    with pytest.raises(
        ValueError, match=r"imputed_value_floats is empty; expected one value, or one for each feature of the inp"
    ):
        one("Imputer", x, imputed_value_int64s=[1])


@quick
@given(seed=seeds, dtype=st.sampled_from((np.float32, np.float64, np.int32, np.int64)), each=st.booleans())
def test_scaler_agrees_with_onnxruntime(seed: int, dtype: Any, each: bool) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=(4, 3)) * 5).astype(dtype)
    attrs = {key: rng.normal(size=3 if each else 1).astype(np.float32).tolist() for key in ("offset", "scale")}
    agree("Scaler", x, version=1, **attrs)


@quick
@given(
    seed=seeds, norm=st.sampled_from(("MAX", "L1", "L2")), dtype=st.sampled_from((np.float32, np.float64, np.int32, np.int64)),
    rank=st.integers(1, 2),
)  # fmt: skip
def test_normalizer_agrees_with_onnxruntime(seed: int, norm: str, dtype: Any, rank: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.asarray(rng.integers(-3, 4, (4, 3)).astype(dtype))
    x[0] = 0
    agree("Normalizer", x if rank == 2 else x[int(rng.integers(4))], version=1, norm=norm)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("width", [1, 2, 7, 33])
def test_what_trees_compare_with_thresholds_has_the_same_bits(dtype: Any, width: int) -> None:
    rng = np.random.default_rng(width)
    x = (rng.normal(size=(200, width)) * 50).astype(dtype)
    for norm in ("MAX", "L1", "L2"):
        agree("Normalizer", x, version=1, tolerance=0.0, norm=norm)
    attrs = {key: rng.normal(size=width).astype(np.float32).tolist() for key in ("offset", "scale")}
    agree("Scaler", x, version=1, tolerance=0.0, **attrs)


def test_normalizer_knows_three_norms() -> None:
    with pytest.raises(ValueError, match="norm is 'L3'; expected MAX, L1 or L2"):
        one("Normalizer", np.zeros((1, 1), np.float32), norm="L3")


def test_feature_vectorizer_cuts_and_pads() -> None:
    inputs: list[Any] = [np.array([[1, 2, 3], [4, 5, 6]], np.float32), np.array([[7], [8]], np.int64)]
    (result,) = agree("FeatureVectorizer", inputs[0], version=1, inputdimensions=[2])
    assert result.tolist() == [[1, 2], [4, 5]]
    result = one("FeatureVectorizer", *inputs, inputdimensions=[2, 3])
    assert result.dtype == np.float32
    assert result.tolist() == [[1, 2, 7, 0, 0], [4, 5, 8, 0, 0]]
    assert one("FeatureVectorizer", *inputs).tolist() == [[1, 2, 3, 7], [4, 5, 6, 8]]
    with pytest.raises(ValueError, match="the inputs have 2, 1 rows: they must agree"):
        one("FeatureVectorizer", inputs[0], np.zeros(2))


def test_cast_map_is_dense_or_sparse() -> None:
    values = {5: 2.5, 1: -3.0}
    assert one("CastMap", values).tolist() == [[-3.0, 2.5]]
    assert one("CastMap", values, map_form="SPARSE", max_map=4, cast_to="TO_INT64").tolist() == [[0, -3, 0, 0]]
    assert one("CastMap", values, cast_to="TO_STRING").tolist() == [["-3.000000", "2.500000"]]
    assert one("CastMap", {0: "7"}, cast_to="TO_INT64").tolist() == [[7]]
    assert one("CastMap", {0: "7.5"}).dtype == np.float32
    with pytest.raises(ValueError, match="the map has the key -1"):
        one("CastMap", {-1: 1.0}, map_form="SPARSE")
    with pytest.raises(ValueError, match="cast_to is 'TO_BOOL'; expected TO_FLOAT, TO_INT64, TO_STRING"):
        one("CastMap", values, cast_to="TO_BOOL")
    with pytest.raises(ValueError, match="map_form is 'THIN'; expected DENSE or SPARSE"):
        one("CastMap", values, map_form="THIN")


def test_dict_vectorizer_has_a_column_for_each_word() -> None:
    result = one("DictVectorizer", {"b": 2.0, "z": 3.0}, string_vocabulary=["a", "b"])
    assert (result.dtype, result.tolist()) == (np.float32, [[0.0, 2.0]])
    result = one("DictVectorizer", {"b": 2}, string_vocabulary=["a", "b"])
    assert (result.dtype, result.tolist()) == (np.int64, [[0, 2]])
    assert one("DictVectorizer", {3: "x"}, int64_vocabulary=[3, 4]).tolist() == [["x", ""]]
    assert one("DictVectorizer", {3: np.float64(1)}, int64_vocabulary=[3]).dtype == np.float64


def inferred(name: str, type_: Any, **attrs: Any) -> Any:
    definition = registry.lookup(ML, name, 1)
    assert definition is not None
    assert definition.infer is not None
    node = Node(name, [Value("x")], [Value("y")], domain=ML, version=1)
    return definition.infer(InferContext(node, [type_], attrs, lambda index: None, lambda index: None, lambda graph, given: []))


def test_maps_have_types() -> None:
    found = inferred("DictVectorizer", MapType(dtypes.STRING, TensorType(dtypes.FLOAT64, ())), string_vocabulary=("a", "b"))
    assert str(found) == "f64[1,2]"
    sparse = inferred(
        "CastMap", MapType(dtypes.INT64, TensorType(dtypes.FLOAT32, ())), map_form="SPARSE", max_map=4, cast_to="TO_INT64"
    )
    assert str(sparse) == "i64[1,4]"
    zipped = inferred("ZipMap", TensorType(dtypes.FLOAT32, (3, 2)), classlabels_strings=("a", "b"))
    assert isinstance(zipped, SequenceType)
    assert str(zipped.element).startswith("map(str,")


def test_zip_map_names_the_columns() -> None:
    x = np.array([[0.25, 0.75], [1, 0]], np.float32)
    assert one("ZipMap", x, classlabels_strings=["no", "yes"]) == [{"no": 0.25, "yes": 0.75}, {"no": 1.0, "yes": 0.0}]
    assert one("ZipMap", x[0], classlabels_int64s=[3, 5]) == [{3: 0.25, 5: 0.75}]
    with pytest.raises(ValueError, match="the input has 2 columns but there are 1 class labels"):
        one("ZipMap", x, classlabels_int64s=[3])
