"""Damaged models: whatever is done to the bytes of a valid file, only Sardonyx's own errors come out."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from sardonyx import dtypes
from sardonyx.errors import SardonyxError
from sardonyx.formats.onnx import load, load_value, to_bytes, value_to_bytes
from sardonyx.ir.graph import Model, SparseConstant, walk
from sardonyx.ir.tensor import Tensor, from_numpy
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type

TEXTS = (
    'g (float[N,3] x) => (float[N,3] y) <float[3] w = {1, 2, 3}> { t = Add(x, w)  y = Mul <a = 1, b = [1, 2], c = "s"> (t, t) }',
    """g (bool c, float[2] x, seq(int64[K]) s, optional(float[2]) o, map(string, float[]) m) => (float[2] y) {
        t = Abs(x)
        y = If (c) <then_branch = a () => (float[2] p) { p = Add(t, x) }, else_branch = b () => (float[2] p) { p = Neg(t) }>
    }""",
    """g (float[2] x) => (float[2] y) { y = local.F <alpha = 2.0> (x) }
    <domain: "local", opset_import: ["" : 18]>
    F <alpha, beta: float = 0.5> (a) => (b) { c = Constant <value_float: float = @alpha> ()  b = Mul(a, c) }""",
)


def tensor_model() -> ModelProto:
    """A model of constants of many types, in raw and typed fields."""
    tensors = [
        numpy_helper.from_array(np.zeros(3, dtype.numpy), dtype.name) for dtype in dtypes.ALL if dtype is not dtypes.STRING
    ]
    tensors.append(helper.make_tensor("strings", TensorProto.STRING, [2], [b"a", b"b"]))
    tensors.append(helper.make_tensor("floats", TensorProto.FLOAT, [40], np.arange(40.0)))
    tensors.append(helper.make_tensor("ints", TensorProto.INT64, [40], np.arange(40) * 1000))
    tensors.append(helper.make_tensor("halves", TensorProto.FLOAT16, [2], [1, 2]))
    external = TensorProto(name="external", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
    external.external_data.add(key="location", value="data")
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.ones(1, np.float32), "sparse"), numpy_helper.from_array(np.array([2]), "i"), [5]
    )
    graph = helper.make_graph([], "g", [], [], [*tensors, external], sparse_initializer=[sparse])
    return helper.make_model(graph)


SEEDS = [
    parser.parse_model('<ir_version: 10, opset_import: ["" : 21, "local" : 1]>\n' + text).SerializeToString() for text in TEXTS
]
SEEDS.append(tensor_model().SerializeToString())
FILES = {"data": bytes(8)}

ARRAY = np.arange(3, dtype=np.float32)
SPARSE = SparseConstant(from_numpy(ARRAY), from_numpy(np.array([0, 2, 5])), (2, 3))
F32 = TensorType(dtypes.FLOAT32)
VALUES: list[tuple[bytes, Type]] = [
    (value_to_bytes(ARRAY), F32),
    (value_to_bytes([ARRAY, ARRAY]), SequenceType(F32)),
    (value_to_bytes({"a": ARRAY, "b": ARRAY}), MapType(dtypes.STRING, F32)),
    (value_to_bytes(ARRAY, OptionalType(F32)), OptionalType(F32)),
    (value_to_bytes(SPARSE), SparseTensorType(dtypes.FLOAT32)),
]


def constants_of(model: Model) -> list[Tensor]:
    found: list[Tensor] = []
    for graph in (model.graph, *(subgraph for node in walk(model.graph) for subgraph in node.subgraphs())):
        for value in graph.initializers.values():
            if isinstance(value.constant, SparseConstant):
                found += [value.constant.values, value.constant.indices]
            elif value.constant is not None:
                found.append(value.constant)
    return found


def check(data: bytes) -> None:
    """Either a clean refusal, or a model whose constants can be read and which survives being written."""
    try:
        model = load(data, external_files=FILES)
    except SardonyxError:
        return
    for tensor in constants_of(model):
        assert tensor.numpy().shape == tensor.shape
    written = to_bytes(model)
    assert to_bytes(load(written)) == written


def mutate(data: bytes, rng: random.Random) -> bytes:
    """A few of: flipped bits, changed, removed, doubled or foreign bytes, a cut."""
    result = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if not result:
            break
        at, kind = rng.randrange(len(result)), rng.randrange(7)
        size = rng.randint(1, 16)
        if kind == 0:
            result[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            result[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 2:
            del result[at : at + size]
        elif kind == 3:
            result[at:at] = result[at : at + size] * rng.randint(1, 3)
        elif kind == 4:
            other = rng.choice(SEEDS)
            start = rng.randrange(len(other))
            result[at : at + size] = other[start : start + rng.randint(1, 60)]
        elif kind == 5:
            del result[at:]
        else:
            result[at : at + size] = rng.randbytes(size)
    return bytes(result)


def fields_of(message: Any) -> list[tuple[Any, Any]]:
    """Every field of a message and of those inside it, with the message it belongs to."""
    found: list[tuple[Any, Any]] = []
    pending = [message]
    while pending:
        each = pending.pop()
        for field, value in each.ListFields():
            found.append((each, field))
            if field.message_type is not None:
                pending.extend(value if isinstance(getattr(each, field.name), Sequence) else [value])
    return found


def rearrange(data: bytes, rng: random.Random) -> bytes:
    """A file whose messages are well-formed and make no sense: fields removed, doubled, exchanged or changed."""
    model = ModelProto.FromString(data)
    for _ in range(rng.randint(1, 3)):
        owner, field = rng.choice(fields_of(model))
        value = getattr(owner, field.name)
        if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            items = list(value)
            kind = rng.randrange(4)
            if kind == 0:
                rng.shuffle(items)
            elif kind == 1:
                items.append(rng.choice(items))
            elif kind == 2:
                items.remove(rng.choice(items))
            else:
                items[rng.randrange(len(items))] = rng.choice(items)
            items = [type(item).FromString(item.SerializeToString()) if field.message_type else item for item in items]
            owner.ClearField(field.name)
            getattr(owner, field.name).extend(items)
        elif field.message_type is not None or rng.random() < 0.3:
            owner.ClearField(field.name)
        elif isinstance(value, int):
            with contextlib.suppress(ValueError):  # an enumeration that has no such number
                setattr(owner, field.name, rng.choice((-1, 0, 1, 2, 7, 8, 21, 99)))
        elif isinstance(value, (str, bytes)):
            text = rng.choice(("", "x", "y", "t", "a", "b", "c", "local", "F", "Abs"))
            setattr(owner, field.name, text if isinstance(value, str) else text.encode())
    return bytes(model.SerializeToString())


FUZZ = settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))


@FUZZ
@given(st.sampled_from(SEEDS), st.integers(0, 1 << 62))
def test_damaged_models_are_refused_or_read(seed: bytes, number: int) -> None:
    check(mutate(seed, random.Random(number)))


@FUZZ
@given(st.sampled_from(SEEDS), st.integers(0, 1 << 62))
def test_rearranged_models_are_refused_or_read(seed: bytes, number: int) -> None:
    check(rearrange(seed, random.Random(number)))


@FUZZ
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_read(data: bytes) -> None:
    check(data)


@FUZZ
@given(st.sampled_from(SEEDS), st.sampled_from(SEEDS), st.data())
def test_spliced_models_are_refused_or_read(first: bytes, second: bytes, data: st.DataObject) -> None:
    check(first[: data.draw(st.integers(0, len(first)))] + second[data.draw(st.integers(0, len(second))) :])


@FUZZ
@given(st.sampled_from(VALUES), st.integers(0, 1 << 62))
def test_damaged_values_are_refused_or_read(seed: tuple[bytes, Type], number: int) -> None:
    data, type_ = seed
    with contextlib.suppress(SardonyxError):
        load_value(mutate(data, random.Random(number)), type_)


@pytest.mark.slow
def test_very_many_damaged_models_are_refused_or_read() -> None:
    rng = random.Random(20)
    for _ in range(50_000):
        check(mutate(rng.choice(SEEDS), rng))
        check(rearrange(rng.choice(SEEDS), rng))
