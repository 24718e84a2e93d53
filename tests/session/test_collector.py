"""Python's collector of cycles while models are opened: off, and then as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

import sardonyx
from model_text import model
from sardonyx.codegen.library import KernelLibrary

MODEL = model("(float[N,3] x) => (float[N,3] y) { a = Mul(x, x)  y = Sub(a, x) }")


@pytest.fixture(autouse=True)
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", "")
    yield
    gc.enable()


@pytest.mark.parametrize("is_on", [True, False])
def test_it_is_as_it_was_behind_an_opening(is_on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    prepare = KernelLibrary.prepare

    def looking(self: KernelLibrary, *args: Any) -> None:
        seen.append(gc.isenabled())
        prepare(self, *args)

    monkeypatch.setattr(KernelLibrary, "prepare", looking)
    if not is_on:
        gc.disable()
    sardonyx.InferenceSession(MODEL)
    assert seen == [False]
    assert gc.isenabled() == is_on


def test_it_is_on_again_behind_one_that_failed() -> None:
    with pytest.raises(sardonyx.errors.SardonyxError):
        sardonyx.InferenceSession(b"no model")
    assert gc.isenabled()
