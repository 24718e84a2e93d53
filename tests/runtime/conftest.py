"""Fixtures of the runtime's tests."""

from __future__ import annotations

import pytest

import sardonyx
from model_text import model
from sardonyx.runtime.pool import Pool


@pytest.fixture(scope="module")
def pool() -> Pool:
    """A pool of one worker."""
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = 1
    session = sardonyx.InferenceSession(model("(float[N] x) => (float[N] y) { y = Neg(x) }", 13), options)
    found = session._opened.program.short_program(["y"])
    assert found is not None
    made = found.core.pool
    assert isinstance(made, Pool)
    return made
