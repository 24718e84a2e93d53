"""Programs that use onnxruntime, as their users write them; run as a script, it prints one answer as JSON.

python clients.py rapidocr                                     on onnxruntime
python -m sardonyx.as_onnxruntime clients.py rapidocr          on Sardonyx, unchanged
"""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tool_clients
import transformer_clients


def picture(text: str, size: tuple[int, int]) -> Any:
    """Black text on white."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).text((15, 20), text, fill="black", font=ImageFont.load_default(40))
    return image


def speech(rate: int = 16000, seconds: int = 4) -> Any:
    """Something a detector takes for a voice: a buzz through three formants, with pauses."""
    from scipy.signal import lfilter

    time = np.arange(rate * seconds) / rate
    phase = 2 * np.pi * np.cumsum(120 + 15 * np.sin(2 * np.pi * 3 * time)) / rate
    sound = sum(np.sin(k * phase) / k for k in range(1, 30))
    for centre, width in ((700, 110), (1220, 120), (2600, 160)):
        radius = np.exp(-np.pi * width / rate)
        sound = lfilter([1 - radius], [1, -2 * radius * np.cos(2 * np.pi * centre / rate), radius**2], sound)
    talking = ((time % 2) > 0.5) & ((time % 2) < 1.6)
    sound = sound / np.abs(sound).max() * talking * (0.55 + 0.45 * np.sin(2 * np.pi * 4 * time))
    return (0.6 * sound + 0.001 * np.random.default_rng(0).standard_normal(len(time))).astype(np.float32)


def rapidocr_onnxruntime() -> Any:
    """Reads text from a picture."""
    from rapidocr_onnxruntime import RapidOCR

    found, _ = RapidOCR()(np.array(picture("Sardonyx 2026", (420, 90))))
    return [[text, round(float(score), 3)] for _, text, score in found]


def rapidocr() -> Any:
    """Reads text from a picture, with newer models."""
    from rapidocr import RapidOCR

    found = RapidOCR()(np.array(picture("Sardonyx 2026", (420, 90))))
    return [list(found.txts), [round(float(score), 3) for score in found.scores]]


def magika() -> Any:
    """Names the type of three files."""
    from magika import Magika

    files = [
        b"import os\n\ndef main():\n    print(os.getcwd())\n\nif __name__ == '__main__':\n    main()\n" * 3,
        b'{"a": [1, 2, 3], "b": {"c": null}}',
        b"<html><body><p>hello</p></body></html>",
    ]
    results = [Magika().identify_bytes(content) for content in files]
    return [[str(result.output.label), round(float(result.score), 3)] for result in results]


def silero_vad() -> Any:
    """Finds when somebody speaks."""
    import torch
    from silero_vad import get_speech_timestamps, load_silero_vad

    return get_speech_timestamps(torch.from_numpy(speech()), load_silero_vad(onnx=True), sampling_rate=16000)


def nudenet() -> Any:
    """Finds a face in a photograph."""
    import importlib.util

    from nudenet import NudeDetector

    spec = importlib.util.find_spec("matplotlib")
    assert spec is not None
    assert spec.origin is not None
    photograph = Path(spec.origin).parent / "mpl-data/sample_data/grace_hopper.jpg"
    found = NudeDetector().detect(str(photograph))
    return [[item["class"], round(float(item["score"]), 3), item["box"]] for item in found]


def ddddocr() -> Any:
    """Reads a captcha."""
    import ddddocr as reader

    buffer = io.BytesIO()
    picture("7A2K", (160, 64)).save(buffer, "PNG")
    content = buffer.getvalue()
    readers = [reader.DdddOcr(show_ad=False), reader.DdddOcr(show_ad=False, old=True)]
    detector = reader.DdddOcr(det=True, ocr=False, show_ad=False)
    return [*(each.classification(content) for each in readers), detector.detection(content)]


def openwakeword() -> Any:
    """Listens for wake words."""
    from openwakeword.model import Model

    np.random.seed(0)
    model = Model(inference_framework="onnx", vad_threshold=0.5)
    sound = (speech() * 20000).astype(np.int16)
    frames = [model.predict(sound[start : start + 1280]) for start in range(0, len(sound) - 1280, 1280)]
    return {name: round(float(max(frame[name] for frame in frames)), 3) for name in frames[0]}


def piper() -> Any:
    """Adds vowel signs to Arabic and Hebrew text."""
    from piper.hebrew import NakdimonDiacritizer
    from piper.tashkeel import TashkeelDiacritizer

    return [TashkeelDiacritizer().diacritize("بسم الله الرحمن الرحيم"), NakdimonDiacritizer().diacritize("שלום עולם")]


def faster_whisper() -> Any:
    """Finds when somebody speaks, with the detector of another package."""
    from faster_whisper.vad import get_speech_timestamps

    return get_speech_timestamps(speech())


CLIENTS = {
    client.__name__: client
    for client in (
        *(rapidocr_onnxruntime, rapidocr, magika, silero_vad, nudenet, ddddocr, openwakeword, piper, faster_whisper),
        *transformer_clients.CLIENTS,
        *tool_clients.CLIENTS,
    )
}
PACKAGES = {**transformer_clients.PACKAGES, **tool_clients.PACKAGES}  # of clients that are not named after their package

if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is to be looked for elsewhere
    answer = CLIENTS[sys.argv[1]]()
    import onnxruntime

    engine = (
        "sardonyx" if "sardonyx" in sys.modules and "sardonyx" in getattr(onnxruntime, "__file__", "sardonyx") else "onnxruntime"
    )
    print("ANSWER " + json.dumps([engine, answer], default=str))
