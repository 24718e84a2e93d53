"""Flatten and unflatten: any nesting comes back as it was; what cannot be flattened is named with its place."""

from __future__ import annotations

import collections
import copy
import dataclasses
import sys
import types
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sardonyx.training.flatten import (
    ConstantSchema,
    Leaf,
    ScalarSchema,
    TensorSchema,
    UnsupportedType,
    constants,
    fits,
    flatten,
    leaf_schemas,
    unflatten,
)
from sardonyx.training.module import TrainingModule


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Record:
    x: Any
    y: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any


@dataclasses.dataclass
class Output(collections.OrderedDict[str, Any]):
    """As transformers' ModelOutput: a dict of the fields that are not None, and a dataclass."""

    loss: Any = None
    logits: Any = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)


def leaves_and_schema(value: Any, *, numbers: bool = True) -> tuple[list[Leaf], Any]:
    leaves: list[Leaf] = []
    return leaves, flatten(value, leaves, numbers=numbers)


atoms = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3), st.integers(0, 3).map(torch.zeros)
)
nested = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.tuples(inner, inner).map(Pair._make),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.dictionaries(st.text(max_size=3), inner, max_size=3).map(collections.OrderedDict),
        st.builds(Record, inner, inner),
        st.builds(Frozen, inner),
    ),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one is other
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if dataclasses.is_dataclass(one):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one))
    return bool(one == other)


@given(nested, st.booleans())
def test_any_nesting_comes_back(value: Any, numbers: bool) -> None:
    leaves, schema = leaves_and_schema(value, numbers=numbers)
    assert same(unflatten(schema, leaves), value)
    assert len(list(leaf_schemas(schema, "x"))) == len(leaves)
    assert hash(schema) == hash(leaves_and_schema(value, numbers=numbers)[1])


def test_a_model_output_comes_back_with_the_fields_it_has() -> None:
    logits = torch.zeros(2)
    leaves, schema = leaves_and_schema(Output(logits=logits))
    result = unflatten(schema, leaves)
    assert type(result) is Output
    assert result.logits is logits
    assert result.loss is None
    assert list(result) == ["logits"]


def test_a_default_dict_comes_back_as_one() -> None:
    value = collections.defaultdict(list, a=torch.zeros(1))
    leaves, schema = leaves_and_schema(value)
    assert type(unflatten(schema, leaves)) is collections.defaultdict


def test_order_is_depth_first() -> None:
    a, b, c = (torch.zeros(1) for _ in range(3))
    leaves, _ = leaves_and_schema({"z": [a, (b,)], "y": c})
    assert [id(each) for each in leaves] == [id(each) for each in (a, b, c)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.zeros(1), torch.zeros(1, dtype=torch.float64)),
        (torch.zeros(1), torch.zeros(1, 1)),
        (torch.zeros(1), None),
        (True, False),
        (1, True),
        (1, 1.0),
        ("a", "b"),
        ([torch.zeros(1)], (torch.zeros(1),)),
        ({"a": torch.zeros(1)}, {"b": torch.zeros(1)}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ],
)
def test_schemas_differ(one: Any, other: Any) -> None:
    assert leaves_and_schema(one)[1] != leaves_and_schema(other)[1]


def test_sizes_and_numbers_make_no_difference() -> None:
    assert leaves_and_schema([torch.zeros(1, 2), 3])[1] == leaves_and_schema([torch.zeros(5, 7), 4])[1]
    assert leaves_and_schema(3, numbers=False)[1] != leaves_and_schema(4, numbers=False)[1]


def test_kinds_of_leaves() -> None:
    _, schema = leaves_and_schema({"t": torch.zeros(2, dtype=torch.int64), "n": 2, "f": None})
    assert schema.children == (TensorSchema(torch.int64, 1), ScalarSchema(int), ConstantSchema(type(None), None))


def test_names_follow_the_nesting() -> None:
    _, schema = leaves_and_schema({"a": [torch.zeros(1), Record(torch.zeros(1), "text")], "b": 1})
    assert [name for name, _ in leaf_schemas(schema, "batch")] == ["batch_a_0", "batch_a_1_x", "batch_b"]
    assert [(name, each.value) for name, each in constants(schema, "batch")] == [("batch_a_1_y", "text")]


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (object(), "the value is"),
        ([1, {"a": object()}], "the value[1]['a'] is"),
        (Record(torch.zeros(1), (object(),)), "the value.y[0] is"),
        (b"bytes", "the value is"),
        (range(3), "the value is"),
        ({1, 2}, "the value is"),
    ],
)
def test_what_cannot_be_flattened_is_named_with_its_place(value: Any, place: str) -> None:
    with pytest.raises(UnsupportedType) as error:
        leaves_and_schema(value)
    assert place in str(error.value)
    assert "make it a dataclass" in str(error.value)


def test_wrong_numbers_of_leaves_are_refused() -> None:
    leaves, schema = leaves_and_schema([torch.zeros(1), torch.zeros(1)])
    with pytest.raises(ValueError, match="fewer leaves"):
        unflatten(schema, leaves[:1])
    with pytest.raises(ValueError, match="2 leaves was given 3"):
        unflatten(schema, [*leaves, torch.zeros(1)])


@given(nested, nested, st.booleans())
def test_fits_says_what_flatten_would(one: Any, other: Any, numbers: bool) -> None:
    leaves: list[Any] = []
    schema = flatten(one, leaves, numbers=numbers)
    for value in (one, other):
        expected: list[Any] = []
        same = flatten(value, expected, numbers=numbers) == schema
        found: list[Any] = []
        assert fits(schema, value, found, numbers=numbers) is same
        if same:
            assert all(a is b for a, b in zip(found, expected, strict=True))


class _Layer:
    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.keys, self.values, self.is_initialized = keys, values, True


class _Cache:
    """As that of transformers: layers, and what they are made of."""

    def __init__(self) -> None:
        self.layers: list[_Layer] = []
        self.layer_class_to_replicate = _Layer


@pytest.fixture
def _caches(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("transformers.cache_utils")
    vars(module).update(Cache=_Cache, CacheLayerMixin=_Layer)
    monkeypatch.setitem(sys.modules, "transformers.cache_utils", module)


@pytest.mark.usefixtures("_caches")
def test_results_may_hold_caches_of_transformers() -> None:
    cache = _Cache()
    cache.layers = [_Layer(torch.ones(2), torch.zeros(3)), _Layer(torch.ones(4), torch.zeros(5))]
    leaves: list[Any] = []
    schema = flatten({"past": cache}, leaves, numbers=False, caches=True)
    assert [leaf.shape[0] for leaf in leaves] == [2, 3, 4, 5]
    again = unflatten(schema, leaves)["past"]
    assert type(again) is _Cache
    assert again.layer_class_to_replicate is _Layer
    assert again.layers[1].values is leaves[3]
    assert again.layers[0].is_initialized is True
    assert again is not cache


@pytest.mark.usefixtures("_caches")
def test_caches_that_are_passed_are_refused() -> None:
    with pytest.raises(UnsupportedType, match="_Cache"):
        flatten(((_Cache(),), {}), [])
    with pytest.raises(UnsupportedType, match="type"):
        flatten({"kind": _Layer}, [])


class _Caching(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 4)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        y, cache = self.layer(x), _Cache()
        cache.layers.append(_Layer(y[..., :2], y[..., 2:]))
        return {"loss": y.square().sum(), "past_key_values": cache}


@pytest.mark.usefixtures("_caches")
def test_a_module_that_gives_a_cache_back_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", "FALLBACK_DISABLE")
    torch.manual_seed(0)
    theirs = _Caching()
    ours = TrainingModule(copy.deepcopy(theirs))
    for rows in (2, 5):
        x = torch.randn(rows, 3)
        found, expected = ours(x), theirs(x)
        torch.testing.assert_close(found["past_key_values"].layers[0].values, expected["past_key_values"].layers[0].values)
        for module, result in ((ours, found), (theirs, expected)):
            module.zero_grad()
            (result["loss"] + result["past_key_values"].layers[0].keys.sum()).backward()
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
