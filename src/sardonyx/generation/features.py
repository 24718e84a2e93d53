"""Sound as models of speech hear it: the logarithm of its power in bands as wide as hearing takes them (log-mel), frame by frame.

A frame is a window of samples, `hop` after the one before; its spectrum is summed by overlapping triangles. Their corners lie
evenly on the mel scale of Slaney: linear up to 1 kHz, logarithmic above.
"""

from __future__ import annotations

import os
import wave
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

import numpy as np

from sardonyx.errors import InvalidArgument
from sardonyx.records import dataclass

Array = np.ndarray[Any, Any]

_LINEAR_UP_TO: Final = 1000.0
_PER_MEL: Final = 200.0 / 3  # hertz, in the linear part
_GROWTH: Final = np.log(6.4) / 27  # for each mel above it
_RANGE: Final = 8.0  # powers of ten below the loudest band that are told apart


@dataclass(frozen=True)
class SpeechSettings:
    """How sound becomes features, and which tokens say what is to be written."""

    rate: int = 16000  # samples a second
    window: int = 400
    hop: int = 160
    bands: int = 80
    seconds: int = 30  # what the model hears at a time
    languages: Mapping[str, int] = field(default_factory=dict)  # "en" -> the token <|en|>
    tasks: Mapping[str, int] = field(default_factory=dict)  # "transcribe", "translate"
    no_timestamps: int | None = None


def read_settings(prepared: Mapping[str, Any], settings: Mapping[str, Any]) -> SpeechSettings:
    """The settings of preprocessor_config.json and generation_config.json."""
    languages = {name.strip("<|>"): int(token) for name, token in (settings.get("lang_to_id") or {}).items()}
    return SpeechSettings(
        int(prepared.get("sampling_rate", 16000)),
        int(prepared.get("n_fft", 400)),
        int(prepared.get("hop_length", 160)),
        int(prepared.get("feature_size", 80)),
        int(prepared.get("chunk_length", 30)),
        languages if settings.get("is_multilingual", bool(languages)) else {},
        {name: int(token) for name, token in (settings.get("task_to_id") or {}).items()},
        settings.get("no_timestamps_token_id"),
    )


def log_mel(samples: Any, settings: SpeechSettings | None = None) -> Array:
    """Features [1, bands, frames] of a piece of sound, which is made as long as the model hears: by silence, or by cutting."""
    how = settings or SpeechSettings()
    given = np.asarray(samples, np.float64)
    if given.ndim != 1 or not np.isfinite(given).all():
        raise InvalidArgument(f"sound has the shape {list(given.shape)}: expected finite samples, one after the other")
    length = how.seconds * how.rate
    sound = np.zeros(length)
    sound[: min(length, len(given))] = given[:length]
    padded = np.pad(sound, how.window // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, how.window)[:: how.hop][: length // how.hop]
    bell = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(how.window) / how.window)
    power = np.abs(np.fft.rfft(frames * bell, axis=1)) ** 2
    bands = np.log10(np.maximum(power @ _triangles(how), 1e-10)).T
    bands = np.maximum(bands, bands.max() - _RANGE)
    made: Array = ((bands + 4) / 4).astype(np.float32)[None]
    return made


def _triangles(how: SpeechSettings) -> Array:
    """Weights [frequencies, bands]: triangles of the same area, each from the peak before it to the one behind it."""
    top = min(8000.0, how.rate / 2)
    corners = _hertz(np.linspace(0.0, _mel(top), how.bands + 2))
    frequencies = np.linspace(0.0, how.rate / 2, how.window // 2 + 1)[:, None]
    left, peak, right = corners[:-2], corners[1:-1], corners[2:]
    rising, falling = (frequencies - left) / (peak - left), (right - frequencies) / (right - peak)
    weights: Array = np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (right - left))
    return weights


def _mel(hertz: float) -> float:
    if hertz < _LINEAR_UP_TO:
        return hertz / _PER_MEL
    return _LINEAR_UP_TO / _PER_MEL + float(np.log(hertz / _LINEAR_UP_TO)) / float(_GROWTH)


def _hertz(mels: Array) -> Array:
    above = mels - _LINEAR_UP_TO / _PER_MEL
    return np.where(above > 0, _LINEAR_UP_TO * np.exp(np.maximum(above, 0) * _GROWTH), mels * _PER_MEL)


def read_sound(path: str | os.PathLike[str], rate: int = 16000) -> Array:
    """The samples of a WAV file (PCM of 8, 16, 24 or 32 bits), its channels mixed; another rate by straight lines."""
    try:
        with wave.open(os.fspath(path), "rb") as file:
            found, channels, width = file.getframerate(), file.getnchannels(), file.getsampwidth()
            data = np.frombuffer(file.readframes(file.getnframes()), np.uint8)
    except (wave.Error, EOFError) as error:
        raise InvalidArgument(f"{os.fspath(path)}: {error}", hint="give a WAV file with PCM samples") from None
    rows = data[: len(data) // (width * channels) * width * channels].reshape(-1, width)
    if width == 1:
        samples = rows[:, 0].astype(np.float64) / 128 - 1
    else:
        wide = np.zeros((len(rows), 4), np.uint8)
        wide[:, 4 - width :] = rows  # little-endian: the low bytes are missing
        samples = wide.reshape(-1).view("<i4").astype(np.float64) / 2.0**31
    mixed = samples.reshape(-1, channels).mean(axis=1)
    if found != rate and len(mixed):
        where = np.arange(int(len(mixed) * rate / found)) * (found / rate)
        mixed = np.interp(where, np.arange(len(mixed)), mixed)
    made: Array = mixed.astype(np.float32)
    return made
