"""Conversions of float16 on a machine without instructions for them: every float16, and every kind of float32."""

from __future__ import annotations

import numpy as np
import pytest

from model_text import model
from native_support import assert_native_agrees
from targets import here, here_and_less

NAMES = sorted({target.name for target in here_and_less() if not target.has_f16_conversion})


def test_some_level_of_this_machine_has_none() -> None:
    if here().architecture == "x86_64":
        assert "x86-64-v2" in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_float16_becomes_the_same_float32(name: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    assert_native_agrees(model("(float16[N] x) => (float[N] y) { y = Cast<to = 1>(x) }"), {"x": x}, rtol=0, atol=0, target=name)


@pytest.mark.parametrize("name", NAMES)
def test_float32_are_rounded_once(name: str) -> None:
    rng = np.random.default_rng(0)
    limits = [65504.0, 65519.996, 65520.0, 65536.0, 2.0**-14, 2.0**-24, 2.0**-25, 2.0**-25 * 1.0001, np.inf, np.nan, 0.0]
    parts = (
        rng.integers(0, 1 << 32, 100_000, np.uint32).view(np.float32),
        np.linspace(-70_000, 70_000, 50_000),
        np.linspace(-1e-4, 1e-4, 50_000),
        np.linspace(-2e-7, 2e-7, 5_000),
        limits,
        np.negative(limits),
    )
    x = np.concatenate([np.asarray(part, np.float32) for part in parts])
    with np.errstate(over="ignore", invalid="ignore"):
        assert_native_agrees(
            model("(float[N] x) => (float16[N] y) { y = Cast<to = 10>(x) }"), {"x": x}, rtol=0, atol=0, target=name
        )


@pytest.mark.parametrize("name", NAMES)
def test_layers_in_float16_are_native(name: str) -> None:
    rng = np.random.default_rng(1)
    text = """(float16[N,40] x, float16[40,24] w) => (float16[N,24] y) {
      a = MatMul(x, w)
      b = Relu(a)
      y = Softmax<axis = 1>(b)
    }"""
    feeds = {"x": rng.standard_normal((7, 40)).astype(np.float16), "w": rng.standard_normal((40, 24)).astype(np.float16)}
    assert_native_agrees(model(text), feeds, rtol=2e-2, atol=2e-3, target=name)
