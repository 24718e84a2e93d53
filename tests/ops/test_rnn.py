"""Recurrent layers against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_case import Array, by_onnxruntime, f32, known_shape, random_array, run, seeds

from sardonyx.ir.dims import symbol

quick = settings(max_examples=25, deadline=None)
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
directions = st.sampled_from(["forward", "reverse", "bidirectional"])


def inputs(
    name: str, seed: int, direction: str, *, dtype: Any = np.float32, lengths: bool = False, full: bool = True
) -> list[Array | None]:
    rng = np.random.default_rng(seed)
    steps, batch, width, hidden = (int(size) for size in rng.integers(1, 5, 4))
    count, gates = 2 if direction == "bidirectional" else 1, GATES[name]

    def data(*shape: int) -> Array:
        return (rng.standard_normal(shape) * 0.7).astype(dtype)

    given_: list[Array | None] = [
        data(steps, batch, width),
        data(count, gates * hidden, width),
        data(count, gates * hidden, hidden),
    ]
    given_.append(data(count, 2 * gates * hidden) if full else None)
    given_.append(rng.integers(1, steps + 1, batch).astype(np.int32) if lengths else None)
    given_.append(data(count, batch, hidden) if full else None)
    if name == "LSTM":
        given_.append(data(count, batch, hidden) if full else None)
        given_.append(data(count, 3 * hidden) if full else None)
    while given_[-1] is None:
        given_.pop()
    return given_


def compare(name: str, given_: list[Array | None], version: int = 14, **attrs: Any) -> None:
    outputs = 3 if name == "LSTM" else 2
    hidden = int(given_[2].shape[2])  # type: ignore[union-attr]
    expected = by_onnxruntime(name, *given_, like=[given_[0]] * outputs, version=version, hidden_size=hidden, **attrs)  # type: ignore[list-item]
    for ours, theirs in zip(
        run(name, *given_, outputs=outputs, version=version, hidden_size=hidden, **attrs), expected, strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", GATES)
@quick
@given(seed=seeds, direction=directions, lengths=st.booleans(), full=st.booleans())
def test_layers_are_onnxruntimes(name: str, seed: int, direction: str, lengths: bool, full: bool) -> None:
    compare(name, inputs(name, seed, direction, lengths=lengths, full=full), direction=direction)


@quick
@given(seed=seeds, direction=directions, lengths=st.booleans())
def test_a_linear_step_before_the_reset_is_onnxruntimes(seed: int, direction: str, lengths: bool) -> None:
    compare("GRU", inputs("GRU", seed, direction, lengths=lengths), direction=direction, linear_before_reset=1)


@quick
@given(seed=seeds, direction=directions)
def test_coupled_gates_are_onnxruntimes(seed: int, direction: str) -> None:
    compare("LSTM", inputs("LSTM", seed, direction), direction=direction, input_forget=1)


@pytest.mark.parametrize("name", GATES)
@quick
@given(seed=seeds, clip=st.sampled_from([0.2, 1.0]))
def test_clipping_is_onnxruntimes(name: str, seed: int, clip: float) -> None:
    compare(name, inputs(name, seed, "forward"), clip=clip)


FUNCTIONS = [
    "Relu",
    "Tanh",
    "Sigmoid",
    "Affine",
    "LeakyRelu",
    "ThresholdedRelu",
    "ScaledTanh",
    "HardSigmoid",
    "Elu",
    "Softsign",
    "Softplus",
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_activation_is_onnxruntimes(function: str) -> None:
    takes_both = function in ("Affine", "ScaledTanh", "HardSigmoid")
    takes_one = takes_both or function in ("LeakyRelu", "ThresholdedRelu", "Elu")
    attrs: dict[str, Any] = {"activations": ("Sigmoid", function, function)}
    if takes_one:
        attrs["activation_alpha"] = (0.3, 0.6)
    if takes_both:
        attrs["activation_beta"] = (0.4, 0.5)
    attrs["activations"] = ["Sigmoid", function, function]
    compare("LSTM", inputs("LSTM", 5, "forward", full=False), **attrs)


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_batch_first_layout_only_moves_axes(name: str, direction: str) -> None:
    given_ = inputs(name, 7, direction, lengths=True)
    plain = run(name, *given_, outputs=2, direction=direction)
    moved = [array if array is None or index not in (0, 5, 6) else array.swapaxes(0, 1) for index, array in enumerate(given_)]
    y, y_h = run(name, *moved, outputs=2, direction=direction, layout=1)
    np.testing.assert_allclose(y, plain[0].transpose(2, 0, 1, 3), rtol=1e-6)
    np.testing.assert_allclose(y_h, plain[1].swapaxes(0, 1), rtol=1e-6)


@pytest.mark.parametrize("name", GATES)
def test_half_precision_is_rounded_once_at_the_end(name: str) -> None:
    half = inputs(name, 3, "bidirectional", dtype=np.float16)
    wide = [None if array is None else array.astype(np.float32) for array in half]
    for ours, exact in zip(
        run(name, *half, outputs=2, direction="bidirectional"),
        run(name, *wide, outputs=2, direction="bidirectional"),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, exact.astype(np.float16))


@pytest.mark.parametrize("name", GATES)
def test_no_time_and_no_batch_give_empty_results_and_the_initial_state(name: str) -> None:
    x, w, r, *rest = inputs(name, 9, "forward")
    assert x is not None
    y, y_h = run(name, x[:0], w, r, *rest, outputs=2)
    assert y.shape[0] == 0
    np.testing.assert_array_equal(y_h, rest[2])
    y, y_h = run(name, x[:, :0], w, r, outputs=2)
    assert y.shape[2] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"direction": "sideways"}, "direction is 'sideways'"),
        ({"activations": ("Tanh", "Tanh")}, "are too few: expected 3 for each of 1 directions"),
        ({"activations": ("Magic", "Tanh", "Tanh")}, "activation 'Magic' is not known"),
    ],
)
def test_what_an_lstm_cannot_do_is_named(change: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run("LSTM", *inputs("LSTM", 1, "forward"), **change)


def test_wrong_shapes_are_named() -> None:
    x, w, r = np.zeros((2, 1, 3), np.float32), np.zeros((1, 8, 3), np.float32), np.zeros((1, 8, 2), np.float32)
    with pytest.raises(ValueError, match=r"W has shape \(1, 8, 2\), expected \(1, 8, 3\)"):
        run("LSTM", x, w[:, :, :2], r)
    with pytest.raises(ValueError, match=r"B has shape \(1, 8\), expected \(1, 16\)"):
        run("LSTM", x, w, r, np.zeros((1, 8), np.float32))
    with pytest.raises(ValueError, match=r"sequence_lens \[3\] must hold 1 lengths from 0 to 2"):
        run("LSTM", x, w, r, None, np.array([3], np.int32))


def test_layers_keep_symbols() -> None:
    t, n = symbol("T"), symbol("N")
    shapes = known_shape("LSTM", [f32("T", "N", 8), f32(2, 64, 8), f32(2, 64, 16)], outputs=3, direction="bidirectional")
    assert shapes == [[t, 2, n, 16], [2, n, 16], [2, n, 16]]


def test_long_sequences_agree_with_a_step_by_step_run() -> None:
    x = random_array(1, (6, 2, 3), np.float32, special=False)
    w, r = random_array(2, (1, 12, 3), np.float32, special=False), random_array(3, (1, 12, 4), np.float32, special=False)
    w, r = w[:, :12], r[:, :12]
    whole, last = run("GRU", x, w, r, outputs=2)
    state = np.zeros((1, 2, 4), np.float32)
    for time in range(6):
        y, state = run("GRU", x[time : time + 1], w, r, None, None, state, outputs=2)
        np.testing.assert_allclose(y[0], whole[time], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state, last, rtol=1e-5, atol=1e-6)
