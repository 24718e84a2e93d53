"""Every gradient rule, against finite differences in float64, PyTorch, and the compiled program."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gradient_records import RECORDS, Record, causal_with_past
from gradient_support import (
    NAMES,
    arrays_of,
    compiled,
    narrowed,
    output_of,
    rule_gradients,
    slope_along,
    torch_gradients,
)
from sardonyx.training.gradients.rules import differentiable_operators

# Operators whose gradients, or which themselves, NumPy computes.
_HOST: tuple[str, ...] = ()
ids = [record.name for record in RECORDS]


@pytest.mark.parametrize("record", RECORDS, ids=ids)
def test_rule_agrees_with_finite_differences(record: Record) -> None:
    feeds = arrays_of(record)
    rng = np.random.default_rng(1)
    y = output_of(record, feeds)
    dy = np.asarray(rng.standard_normal(y.shape))
    gradients = rule_gradients(record, feeds, dy)
    for name in NAMES[: len(record.shapes)]:
        gradient = gradients[name]
        if gradient is None:
            continue
        assert gradient.shape == feeds[name].shape
        direction = np.asarray(rng.standard_normal(feeds[name].shape))
        expected = slope_along(record, feeds, dy, name, direction)
        scale = float(np.abs(gradient * direction).sum()) + 1e-3
        tolerance = 1e-2 if "to=1" in record.nodes else 1e-6  # float32 in between has few digits for differences
        assert abs(float((gradient * direction).sum()) - expected) <= tolerance * scale, name


@pytest.mark.parametrize("record", [record for record in RECORDS if record.torch], ids=[r.name for r in RECORDS if r.torch])
def test_rule_agrees_with_pytorch(record: Record) -> None:
    feeds = arrays_of(record)
    y = output_of(record, feeds)
    dy = np.asarray(np.random.default_rng(1).standard_normal(y.shape))
    found, expected = torch_gradients(record, feeds, dy)
    np.testing.assert_allclose(y, found, rtol=1e-6, atol=1e-6)
    gradients = rule_gradients(record, feeds, dy)
    for name, wanted in expected.items():
        gradient = gradients[name]
        if wanted is None:
            assert gradient is None or not gradient.any()
            continue
        assert gradient is not None, name
        np.testing.assert_allclose(gradient, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("record", RECORDS, ids=ids)
def test_compiled_program_agrees_with_rule(record: Record) -> None:
    feeds = arrays_of(record)
    y = output_of(record, feeds)
    dy = np.asarray(np.random.default_rng(1).standard_normal(y.shape))
    gradients = rule_gradients(record, feeds, dy)
    program = compiled(record, record.symbolic)
    outputs, saved = program.forward([narrowed(array) for array in feeds.values()])
    np.testing.assert_allclose(outputs[0], y, rtol=1e-4, atol=1e-5)
    found = program.backward(saved, [dy.astype(np.float32)])
    for name, gradient in zip(program.request.inputs, found):
        wanted = gradients[name]
        assert (gradient is None) == (wanted is None), name
        if gradient is not None and wanted is not None:
            scale = max(float(np.abs(wanted).max(initial=0)), 1.0)
            np.testing.assert_allclose(gradient, wanted, rtol=2e-4, atol=2e-5 * scale)
    if record.native and not any(name in record.nodes for name in _HOST):
        assert program.is_native, program.host_nodes


def test_the_sum_that_a_skip_norm_gives_out_has_a_gradient() -> None:
    nodes = "n, m, i, s = com.microsoft.SkipLayerNormalization <epsilon=0.00001> (a, b, c, d, e) y = Mul(n, s)"
    record = Record("sum", nodes, ((2, 3, 4), (2, 3, 4), (4,), (4,), (4,)), symbolic=False)
    feeds = {name: narrowed(array) for name, array in arrays_of(record).items()}
    program = compiled(record, symbolic=False)
    (y,), saved = program.forward(list(feeds.values()))
    dy = np.asarray(np.random.default_rng(1).standard_normal(y.shape), np.float32)
    a, b, c, d, e = leaves = [torch.tensor(array, requires_grad=True) for array in feeds.values()]
    expected = torch.nn.functional.layer_norm(a + b + e, (4,), c, d) * (a + b + e)
    expected.backward(torch.tensor(dy))
    np.testing.assert_allclose(y, expected.detach().numpy(), rtol=1e-5, atol=1e-5)
    for gradient, leaf in zip(program.backward(saved, [dy]), leaves, strict=True):
        assert gradient is not None
        assert leaf.grad is not None
        np.testing.assert_allclose(gradient, leaf.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rotates", ["y = RotaryEmbedding <num_heads=2> (a, b, c)",
                                     "y = com.microsoft.RotaryEmbedding <num_heads=2> (a, p, b, c)"])  # fmt: skip
def test_a_rotation_is_turned_back(rotates: str) -> None:
    """Rotations are defined for no type that finite differences could be taken in."""
    positions = {"p": np.arange(3)[None].repeat(2, 0)}
    caches = ((2, 3, 2), (2, 3, 2)) if "p" not in rotates.split("(")[1] else ((4, 2), (4, 2))
    record = Record("rotary", rotates, ((2, 3, 8), *caches), integers=positions, opset=23, symbolic=False)
    feeds = {name: narrowed(array) for name, array in arrays_of(record).items()}
    angles = np.asarray(np.random.default_rng(2).uniform(0, 6, feeds["b"].shape), np.float32)
    feeds["b"], feeds["c"] = np.cos(angles), np.sin(angles)
    program = compiled(record, symbolic=False)
    (y,), saved = program.forward(list(feeds.values()))
    gradient, of_cosine, of_sine = program.backward(saved, [y])
    assert of_cosine is None
    assert of_sine is None
    assert gradient is not None
    np.testing.assert_allclose(gradient, feeds["a"], rtol=1e-4, atol=1e-5)


def _packed_in_numbers(*all: torch.Tensor) -> torch.Tensor:
    y, present = causal_with_past(*all)
    return y + (present * present).sum()


def _many_heads(*all: torch.Tensor) -> torch.Tensor:
    q, k, v = (part.unflatten(2, (2, -1)).transpose(1, 2) for part in all[:3])
    keys, values = torch.cat((all[3], k), 2), torch.cat((all[4], v), 2)
    y = torch.nn.functional.scaled_dot_product_attention(q, keys, values).transpose(1, 2).flatten(2)
    return y + (keys * keys).sum() + values.sum()


_HANDED_ON = "r = ReduceSumSquare <keepdims=0> (k) s = ReduceSum <keepdims=0> (v) t = Add(r, s) y = Add(z, t)"


@pytest.mark.parametrize(
    "record",
    [
        Record("Attention", "z, k = com.microsoft.Attention <num_heads=2, unidirectional=1> (a, b, c, , d) "
               "r = ReduceSumSquare <keepdims=0> (k) y = Add(z, r)", ((2, 3, 5), (5, 24), (24,), (2, 2, 2, 3, 4)),
               _packed_in_numbers, symbolic=False),
        Record("MultiHeadAttention",
               "z, k, v = com.microsoft.MultiHeadAttention <num_heads=2> (a, b, c, , , , d, e) " + _HANDED_ON,
               ((2, 3, 4), (2, 3, 4), (2, 3, 4), (2, 2, 2, 2), (2, 2, 2, 2)), _many_heads, symbolic=False),
    ],
    ids=lambda record: record.name,
)  # fmt: skip
def test_keys_and_values_that_are_handed_on_have_gradients(record: Record) -> None:
    """In float32 against PyTorch in float64: types of these outputs are not known for numbers that the operators do not take."""
    feeds = {name: array.astype(np.float32).astype(np.float64) for name, array in arrays_of(record).items()}
    program = compiled(record, symbolic=False)
    (y,), saved = program.forward([narrowed(array) for array in feeds.values()])
    dy = np.asarray(np.random.default_rng(1).standard_normal(y.shape), np.float32)
    expected_y, expected = torch_gradients(record, feeds, dy.astype(np.float64))
    np.testing.assert_allclose(y, expected_y, rtol=1e-4, atol=1e-5)
    for name, gradient in zip(program.request.inputs, program.backward(saved, [dy])):
        wanted = expected[name]
        assert gradient is not None
        assert wanted is not None
        np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=2e-5 * float(np.abs(wanted).max()), err_msg=name)


def test_every_rule_has_a_record() -> None:
    text = " ".join(record.nodes for record in RECORDS) + " RotaryEmbedding "  # which has a test of its own
    missing = [name for _, name in differentiable_operators() if f"{name}(" not in text and f"{name} " not in text]
    assert missing == []
