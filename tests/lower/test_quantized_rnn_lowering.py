"""DynamicQuantizeLSTM as native steps, against its NumPy meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from guarded import guarded
from native_support import host_nodes, in_order, prepared, run_native, run_reference
from sardonyx import errors
from sardonyx.compile.assemble import NativeSettings, compile_graph
from sardonyx.ir.tensor import Array
from targets import here_and_less

TARGETS = [target.name for target in here_and_less()]
# A sum that lies between two bytes may be rounded to either: then a result is off by a step of the hidden state times a weight.
STEP, ROUNDING = 2e-2, 1e-5


def model(
    steps: int = 4,
    batch: int = 2,
    inputs: int = 6,
    hidden: int = 7,
    *,
    direction: str = "forward",
    kind: Any = np.int8,
    by_column: bool = False,
    is_centred: bool = True,
    lengths: bool = False,
    initial: bool = False,
    peepholes: bool = False,
    computed: bool = False,
    **attrs: Any,
) -> tuple[bytes, dict[str, Array]]:
    """A layer with random weights, and its feeds in guarded memory."""
    rng = np.random.default_rng(steps + hidden)
    directions = 2 if direction == "bidirectional" else 1
    parameters = (directions, 4 * hidden) if by_column else (directions,)
    limits = np.iinfo(kind)

    def bytes_(*shape: int) -> Array:
        return rng.integers(limits.min, limits.max + 1, shape).astype(kind)

    def points() -> Array:
        return np.full(parameters, limits.max // 2 + 1 if kind == np.uint8 else 0, kind) if is_centred else bytes_(*parameters)

    def scales() -> Array:
        return rng.uniform(0.5, 1, parameters).astype(np.float32) / np.float32(100 * max(hidden, 9) ** 0.5)

    constants = {
        "W": bytes_(directions, inputs, 4 * hidden), "R": bytes_(directions, hidden, 4 * hidden),
        "B": rng.standard_normal((directions, 8 * hidden)).astype(np.float32) * np.float32(0.1),
        "W_scale": scales(), "W_zero_point": points(), "R_scale": scales(), "R_zero_point": points(),
    }  # fmt: skip
    feeds: dict[str, Array] = {"X": rng.standard_normal((steps, batch, inputs)).astype(np.float32)}
    if lengths:
        feeds["lengths"] = rng.integers(0, steps + 1, batch).astype(np.int32)
    if initial:
        feeds.update({name: rng.uniform(-1, 1, (directions, batch, hidden)).astype(np.float32) for name in ("h", "c")})
    if peepholes:
        constants["P"] = rng.standard_normal((directions, 3 * hidden)).astype(np.float32) * np.float32(0.1)
    if computed:
        feeds["R"] = constants.pop("R")
    names = [
        "X", "W", "R", "B", "lengths" if lengths else "", *(("h", "c") if initial else ("", "")), "P" if peepholes else "",
        "W_scale", "W_zero_point", "R_scale", "R_zero_point",
    ]  # fmt: skip
    outputs = ["Y", "Y_h", "Y_c"]
    node = helper.make_node(
        "DynamicQuantizeLSTM", names, outputs, domain="com.microsoft", direction=direction, hidden_size=hidden, **attrs
    )
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    results = [helper.make_tensor_value_info(name, 1, None) for name in outputs]
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "lstm", infos, results, held)
    content: bytes = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    return content, {name: guarded(array) for name, array in feeds.items()}


def check(content: bytes, feeds: dict[str, Array], target: str = "", workers: int = 1) -> list[Array]:
    graph = prepared(content)
    compiled = compile_graph(graph, graph.outputs, in_order(graph), in_order, NativeSettings(workers=workers, target=target))
    assert not host_nodes(compiled), list(compiled.grouping.refusals.values())
    found, expected = run_native(graph, compiled, feeds), run_reference(content, feeds)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=STEP)
        if ours.size:
            assert np.median(np.abs(ours - theirs)) < ROUNDING
    return [np.asarray(each) for each in found]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("is_centred", [True, False])
def test_every_target_agrees(target: str, kind: Any, is_centred: bool) -> None:
    check(*model(direction="bidirectional", kind=kind, is_centred=is_centred, by_column=not is_centred), target)
    check(*model(hidden=33, batch=1, kind=kind, is_centred=is_centred), target)


@settings(max_examples=20)
@given(
    steps=st.integers(0, 5), batch=st.integers(0, 11), inputs=st.integers(1, 9), hidden=st.integers(1, 40),
    direction=st.sampled_from(["forward", "reverse", "bidirectional"]), lengths=st.booleans(), initial=st.booleans(),
)  # fmt: skip
def test_layers_of_any_size_agree(steps: int, batch: int, inputs: int, hidden: int, **form: Any) -> None:
    check(*model(steps, batch, inputs, hidden, **form))


def test_peepholes_and_other_activations_agree() -> None:
    check(*model(peepholes=True, clip=0.7, input_forget=1))
    check(*model(activations=["HardSigmoid", "Softsign", "Relu"], initial=True))


def test_results_do_not_depend_on_threads() -> None:
    content, feeds = model(batch=5, hidden=20, direction="bidirectional")
    whole = check(content, feeds)
    for ours, again in zip(whole, check(content, feeds, workers=2)):
        np.testing.assert_array_equal(ours, again)


@pytest.mark.parametrize(("hidden", "direction"), [(184, "forward"), (190, "reverse"), (440, "bidirectional")])
@settings(max_examples=6, deadline=None)
@given(steps=st.integers(0, 5), batch=st.integers(0, 9), lengths=st.booleans(), initial=st.booleans())
def test_workers_share_the_hidden_units(hidden: int, direction: str, steps: int, batch: int, **form: Any) -> None:
    content, feeds = model(steps, batch, 6, hidden, direction=direction, **form)
    whole = check(content, feeds)
    for workers in (2, 3):
        for ours, again in zip(whole, check(content, feeds, workers=workers)):
            np.testing.assert_array_equal(ours, again)


def test_infinite_states_stay_in_bounds() -> None:
    content, feeds = model(initial=True, activations=["Sigmoid", "Relu", "Relu"])
    feeds["h"][0, 0, 0] = np.inf
    feeds["c"][0, 1, 0] = np.nan
    graph = prepared(content)
    compiled = compile_graph(graph, graph.outputs, in_order(graph), in_order, NativeSettings(workers=1))
    assert run_native(graph, compiled, feeds)[0].shape == (4, 1, 2, 7)


def test_a_sequence_that_is_too_long_is_refused() -> None:
    content, feeds = model(lengths=True)
    feeds["lengths"][0] = 5
    graph = prepared(content)
    compiled = compile_graph(graph, graph.outputs, in_order(graph), in_order, NativeSettings(workers=1))
    with pytest.raises(errors.SardonyxError, match="sequence_lens holds 5"):
        run_native(graph, compiled, feeds)


def test_weights_that_are_computed_are_left_to_numpy() -> None:
    content, _ = model(computed=True)
    graph = prepared(content)
    compiled = compile_graph(graph, graph.outputs, in_order(graph), in_order, NativeSettings(workers=1))
    assert "weights that are computed" in str(list(compiled.grouping.refusals.values()))
