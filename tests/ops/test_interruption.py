"""Runs are stopped inside of nodes that take long, by whatever thread sets `terminate`."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

import sardonyx
from model_text import model
from sardonyx.ops.interruption import interruptible, stop_if_asked
from sardonyx.runtime.runs import RunControl

GRAPHS: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "recurrent cells": (
        "(float[S,1,4] x, float[1,8,4] w, float[1,8,2] r) => (float[S,1,1,2] y) { y, h, c = LSTM<hidden_size=2>(x, w, r) }",
        {"x": (50, 1, 4), "w": (1, 8, 4), "r": (1, 8, 2)},
    ),
    "blocks of elements": ("(float[N] x) => (float[N] y) { y = Erf(x) }", {"x": (1 << 20,)}),
    "deformed windows": (
        "(float[1,1,9,9] x, float[1,1,3,3] w, float[1,18,7,7] o) => (float[1,1,7,7] y) { y = DeformConv(x, w, o) }",
        {"x": (1, 1, 9, 9), "w": (1, 1, 3, 3), "o": (1, 18, 7, 7)},
    ),
}


@pytest.mark.parametrize("name", list(GRAPHS))
def test_a_long_node_is_stopped(name: str) -> None:
    text, shapes = GRAPHS[name]
    session = sardonyx.InferenceSession(model(text, 19), providers=["SardonyxReferenceExecutionProvider"])
    feeds = {key: np.zeros(shape, np.float32) for key, shape in shapes.items()}
    asked = itertools.count()
    with pytest.raises(sardonyx.Fail, match="Exiting due to terminate flag being set to true"):
        session._opened.program.run(feeds, ["y"], RunControl(terminate=lambda: next(asked) >= 1))  # the first is before the node
    stop_if_asked()  # nobody asks any longer


def test_who_asks_is_the_innermost_and_of_this_thread() -> None:
    asked: list[str] = []
    with interruptible(lambda: asked.append("outer")):
        with interruptible(lambda: asked.append("inner")):
            stop_if_asked()
        stop_if_asked()
        thread = threading.Thread(target=stop_if_asked)
        thread.start()
        thread.join()
    stop_if_asked()
    assert asked == ["inner", "outer"]
