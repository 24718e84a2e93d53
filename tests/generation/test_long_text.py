"""Five hundred tokens: the text of a loop over onnxruntime, memory that stays as it is, nothing compiled on the way."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks.models.decoders import DecoderShape, write_decoder
from small_decoders import greedy_by_hand

from sardonyx.compile import native_model
from sardonyx.generation import Decoder, stream

COUNT, SETTLED = 512, 16
SHAPE = DecoderShape(context=1024)  # the sizes of the small decoders, with room for the text
PROMPT = [1, 5, 9, 33]
ALLOWED = 4 << 20  # bytes: what Python's own allocator may take meanwhile


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux how much memory the process has")
@pytest.mark.parametrize("form", ["grouped", "plain"])
def test_a_long_text(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_decoder(tmp_path / "decoder.onnx", SHAPE, form=form)  # type: ignore[arg-type]
    decoder = Decoder(path, room=len(PROMPT) + COUNT)
    compiled: list[object] = []
    monkeypatch.setattr(native_model, "compile_graph", lambda *given: compiled.append(given))
    made: list[int] = []
    settled = 0
    for step in stream(decoder, PROMPT, max_new_tokens=COUNT):
        made.append(int(step.tokens[0]))
        if len(made) == SETTLED:
            settled = resident()
    assert resident() - settled < ALLOWED
    assert compiled == []
    assert made == greedy_by_hand(path, PROMPT, COUNT)
