"""Operators of optimizer models: their NumPy definitions against PyTorch and formulas, and what they refuse."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from sardonyx.ops import registry

SHAPES = [(3, 4), (), (7,)]


def call(name: str, inputs: list[Any], attributes: dict[str, Any] | None = None, outputs: int = 1) -> Any:
    definition = registry.lookup("com.microsoft", name, 1)
    assert definition is not None
    ctx = registry.EvalContext(version=1, outputs=(True,) * outputs)
    return registry.call(definition, inputs, attributes or {}, ctx)


def tensors(seed: int, dtype: Any = np.float32) -> list[Any]:
    random = np.random.default_rng(seed)
    return [np.asarray(random.normal(size=shape), dtype) for shape in SHAPES]


ADAM = {"adam_mode": 0, "alpha": 0.9, "beta": 0.999, "correct_bias": 1, "epsilon": 1e-8, "weight_decay": 0.01}


def test_adamw_follows_pytorch() -> None:
    weights = tensors(1)
    parameters = [torch.nn.Parameter(torch.from_numpy(each.copy())) for each in weights]
    optimizer = torch.optim.AdamW(parameters, lr=0.1)
    first, second = ([np.zeros_like(each) for each in weights] for _ in range(2))
    for step in (1, 2, 3):
        gradients = tensors(10 + step)
        rate = np.array([0.1], np.float32)
        flag, weights, first, second = call(
            "AdamWOptimizer", [rate, np.array([step]), weights, gradients, first, second], ADAM, outputs=4
        )
        assert flag.tolist() == [True]
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = torch.from_numpy(gradient)
        optimizer.step()
    for found, parameter in zip(weights, parameters):
        np.testing.assert_allclose(found, parameter.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_adamw_of_transformers_decays_after_the_update() -> None:
    w, g = np.array([2.0]), np.array([0.5])
    rate, zero = np.array([0.1], np.float32), [np.zeros(1)]
    attributes = {**ADAM, "adam_mode": 1, "epsilon": 1e-6}
    _, (found,), (m,), (v,) = call("AdamWOptimizer", [rate, np.array([1]), [w], [g], zero, zero], attributes, outputs=4)
    lr = float(np.float32(0.1))
    moved = w - lr * np.sqrt(1 - 0.999) / (1 - 0.9) * (0.1 * g) / (np.sqrt(0.001 * g * g) + 1e-6)
    np.testing.assert_allclose(found, moved - lr * 0.01 * moved, rtol=1e-12)
    np.testing.assert_allclose((m, v), (0.1 * g, 0.001 * g * g), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_sgd_moves_against_the_gradient(dtype: Any) -> None:
    weights, gradients = tensors(1, dtype), tensors(2, dtype)
    flag, updated = call("SGDOptimizerV2", [np.array([0.5], np.float32), weights, gradients], outputs=2)
    assert flag.tolist() == [True]
    for found, weight, gradient in zip(updated, weights, gradients):
        assert found.dtype == dtype
        np.testing.assert_allclose(found, weight - dtype(0.5) * gradient, rtol=1e-3)


def test_a_signal_skips_the_update() -> None:
    weights = tensors(1)
    flag, updated = call("SGDOptimizerV2", [np.array([0.5], np.float32), weights, tensors(2), np.array([False])], outputs=2)
    assert flag.tolist() == [False]
    assert all(np.array_equal(one, other) for one, other in zip(updated, weights))


@pytest.mark.parametrize("bound", [0.5, 100.0])
def test_gradients_are_clipped_as_pytorch_does(bound: float) -> None:
    gradients = tensors(3)
    parameters = [torch.nn.Parameter(torch.zeros(each.shape)) for each in gradients]
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = torch.from_numpy(gradient.copy())
    torch.nn.utils.clip_grad_norm_(parameters, bound)
    (clipped,) = call("InplaceClipGradNorm", [gradients], {"max_norm": bound, "norm_type": "fro"})
    for found, parameter in zip(clipped, parameters):
        assert parameter.grad is not None
        np.testing.assert_allclose(found, parameter.grad.numpy(), rtol=1e-5)


def test_the_norm_of_all_tensors() -> None:
    values = tensors(4)
    (found,) = call("ReduceAllL2", values)
    assert found.dtype == np.float32
    assert found.shape == ()
    np.testing.assert_allclose(found, np.sqrt(sum((each.astype(np.float64) ** 2).sum() for each in values)), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "function"), [("ReluGrad", torch.relu), ("SigmoidGrad", torch.sigmoid), ("TanhGrad", torch.tanh)]
)
def test_gradients_of_activations_are_those_of_pytorch(name: str, function: Any) -> None:
    x = torch.linspace(-2, 2, 12).reshape(3, 4).requires_grad_()
    y, dy = function(x), torch.linspace(1, 2, 12).reshape(3, 4)
    y.backward(dy)
    (found,) = call(name, [dy.numpy(), y.detach().numpy()])
    assert x.grad is not None
    np.testing.assert_allclose(found, x.grad.numpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_of_cross_entropy_is_that_of_pytorch(reduction: str, weighted: bool) -> None:
    random = np.random.default_rng(5)
    logits = torch.from_numpy(random.normal(size=(6, 4, 3)).astype(np.float32)).requires_grad_()
    labels = random.integers(0, 4, (6, 3))
    weight = np.array([1.0, 2.0, 0.5, 3.0], np.float32) if weighted else None
    scale = None if weight is None else torch.from_numpy(weight)
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels), scale, reduction=reduction, ignore_index=2)
    dy = torch.full(loss.shape, 2.0)
    loss.backward(dy)
    logarithms = torch.log_softmax(logits.detach(), 1).numpy()
    attributes = {"ignore_index": 2, "reduction": reduction}
    (found,) = call("SoftmaxCrossEntropyLossGrad", [dy.numpy(), logarithms, labels, weight], attributes)
    assert logits.grad is not None
    np.testing.assert_allclose(found, logits.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "inputs", "attributes", "text"),
    [
        ("SGDOptimizerV2", [np.ones(2, np.float32), [], []], {}, "the learning rate has shape (2,), expected one element"),
        (
            "SGDOptimizerV2",
            [np.ones(1, np.float32), tensors(1), []],
            {},
            "the sequences hold 3, 0 tensors, expected equally many",
        ),
        ("SGDOptimizerV2", [np.ones(1, np.float32), [np.ones(2)], [np.ones(3)]], {}, "tensors 0 have shapes (2,), (3,)"),
        ("InplaceClipGradNorm", [tensors(1)], {"max_norm": 1.0, "norm_type": "inf"}, "norm_type is 'inf', expected 'fro'"),
        ("ReluGrad", [np.ones(2), np.ones(3)], {}, "the gradient has shape (2,), the value (3,)"),
        (
            "SoftmaxCrossEntropyLossGrad",
            [np.ones(()), np.ones((2, 3)), np.ones(3, np.int64)],
            {"ignore_index": None, "reduction": "mean"},
            "the labels have shape (3,), the logarithms (2, 3)",
        ),
        ("InPlaceAccumulatorV2", [np.ones(2), np.ones(3)], {}, "the buffer has shape (2,), the value (3,)"),
        ("AdamWOptimizer", [np.ones(1), np.ones(1), [], [], [], []], {**ADAM, "adam_mode": 7}, "adam_mode is 7, expected 0"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, inputs: list[Any], attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        call(name, inputs, attributes)
