"""The line on a terminal while a model is compiled."""

from __future__ import annotations

import io
import sys

import pytest

import sardonyx
from model_text import model
from sardonyx.session import progress
from sardonyx.session.progress import ProgressLine

MODEL = model("(float[N,3] x) => (float[N,3] y) { a = Mul(x, x)  y = Sub(a, x) }")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now


def test_there_is_no_line_in_the_first_second() -> None:
    stream, clock = io.StringIO(), Clock()
    line = ProgressLine(stream, "m.onnx", clock=clock)
    line.tell(0, 9)
    clock.now += 0.9
    line.tell(3, 9)
    line.end()
    assert stream.getvalue() == ""


def test_then_it_is_written_over_itself_and_taken_away() -> None:
    stream, clock = io.StringIO(), Clock()
    line = ProgressLine(stream, "m.onnx", clock=clock)
    clock.now += 1.5
    line.tell(3, 9)
    line.tell(4, 9)  # too soon after the one before
    clock.now += 0.5
    line.tell(5, 9)
    line.end()
    line.tell(6, 9)
    first, second = (f"\r\x1b[Ksardonyx: compiling m.onnx, {made} of 9 kernels" for made in (3, 5))
    assert stream.getvalue() == f"{first}{second}\r\x1b[K"


def test_a_name_commands_no_terminal() -> None:
    stream, clock = io.StringIO(), Clock()
    line = ProgressLine(stream, "a\x1b]0;b\x07.onnx", clock=clock)
    clock.now += 2
    line.tell(0, 1)
    assert "a?]0;b?.onnx" in stream.getvalue()


def test_a_terminal_that_is_gone_is_no_error() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError("gone")

    clock = Clock()
    line = ProgressLine(Gone(), "m.onnx", clock=clock)
    clock.now += 2
    line.tell(0, 1)
    line.end()


@pytest.mark.parametrize(
    ("kind", "entry", "expected"), [(Terminal, "1", True), (Terminal, "0", False), (io.StringIO, "1", False)]
)
def test_sessions_write_it_to_terminals_only(
    monkeypatch: pytest.MonkeyPatch, kind: type[io.StringIO], entry: str, expected: bool
) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", -1)
    monkeypatch.setenv("SARDONYX_CACHE_DIR", "")
    monkeypatch.setenv("TERM", "xterm")
    stream = kind()
    monkeypatch.setattr(sys, "stderr", stream)
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.show_progress", entry)
    sardonyx.InferenceSession(MODEL, options)
    written = stream.getvalue()
    assert ("sardonyx: compiling a model" in written) == expected
    assert written == "" or written.endswith("\r\x1b[K")
