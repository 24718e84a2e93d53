"""Losses of classifiers are native and give what their definitions give, refusals included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import sardonyx
from sardonyx import errors
from sardonyx.explanation import explain_model

REFERENCE = ["SardonyxReferenceExecutionProvider"]
few = settings(max_examples=25, deadline=None)


def model_of(op: str, feeds: dict[str, Any], outputs: int, *, version: int = 13, **attrs: Any) -> bytes:
    names = [f"y{number}" for number in range(outputs)]
    inputs = []
    for name, value in feeds.items():
        shape: list[Any] = [f"{name}{axis}" for axis in range(value.ndim)]
        if name == "x":
            shape[1] = value.shape[1]
        inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), shape))
    kind = helper.np_dtype_to_tensor_dtype(feeds["x"].dtype)
    results = [helper.make_tensor_value_info(name, kind, None) for name in names]
    graph = helper.make_graph([helper.make_node(op, list(feeds), names, name="loss", **attrs)], "g", inputs, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    return model.SerializeToString()  # type: ignore[no-any-return]


@few
@given(
    seed=st.integers(0, 2**32 - 1), inner=st.lists(st.integers(0, 3), max_size=2), rows=st.integers(0, 5),
    classes=st.integers(1, 20),
    reduction=st.sampled_from(["none", "sum", "mean"]), ignore=st.sampled_from([None, 0, -1, 300]), weighted=st.booleans(),
    kind=st.sampled_from(["float32", "float64"]), labels=st.sampled_from(["int32", "int64"]), entropy=st.booleans(),
    special=st.booleans(),
)  # fmt: skip
def test_losses_agree_with_their_definition(
    seed: int, inner: list[int], rows: int, classes: int, reduction: str, ignore: int | None, weighted: bool, kind: str,
    labels: str, entropy: bool, special: bool,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, classes, *inner)).astype(kind)
    if special and x.size:
        x.reshape(-1)[rng.integers(x.size, size=2)] = [np.inf, np.nan]
    t = rng.integers(0, classes, (rows, *inner)).astype(labels)
    if ignore is not None:
        t[rng.random(t.shape) < 0.3] = ignore
    feeds = {"x": x, "t": t} | ({"w": rng.random(classes).astype(kind)} if weighted else {})
    attrs: dict[str, Any] = {"reduction": reduction} | ({} if ignore is None else {"ignore_index": ignore})
    op = "SoftmaxCrossEntropyLoss" if entropy else "NegativeLogLikelihoodLoss"
    content = model_of(op, feeds, 2 if entropy else 1, **attrs)
    assert not explain_model(content).host_steps
    found = sardonyx.InferenceSession(content).run(None, feeds)
    for one, other in zip(found, sardonyx.InferenceSession(content, providers=REFERENCE).run(None, feeds)):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("label", [-1, 3, -4, 2**31])
def test_labels_out_of_range_are_refused(label: int) -> None:
    feeds = {"x": np.zeros((2, 3), np.float32), "t": np.array([1, label])}
    session = sardonyx.InferenceSession(model_of("SoftmaxCrossEntropyLoss", feeds, 1))
    with pytest.raises(errors.SardonyxError, match="out of"):
        session.run(None, feeds)


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 1)])
def test_labels_of_other_sizes_are_refused(shape: tuple[int, ...]) -> None:
    fitting = {"x": np.zeros((2, 3), np.float32), "t": np.zeros(2, np.int64)}
    session = sardonyx.InferenceSession(model_of("NegativeLogLikelihoodLoss", fitting, 1))
    with pytest.raises(errors.SardonyxError):
        session.run(None, fitting | {"t": np.zeros(shape, np.int64)})


def test_narrow_floats_are_left_whole() -> None:
    feeds = {"x": np.zeros((2, 3), np.float16), "t": np.zeros(2, np.int64)}
    content = model_of("SoftmaxCrossEntropyLoss", feeds, 1)
    assert sardonyx.InferenceSession(content).run(None, feeds)[0].dtype == np.float16
