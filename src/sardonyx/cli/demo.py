"""The demonstration: a handwritten digit, drawn as characters, and what the shipped model says it is."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.cli.results import is_distribution, label

SHADES = " .:-=+*#%@"


def demo_files() -> tuple[Path, Path]:
    """The model that ships with the package, and its picture."""
    folder = Path(str(resources.files("sardonyx").joinpath("data")))
    return folder / "digits.onnx", folder / "seven.npy"


def picture_lines(picture: np.ndarray[Any, Any]) -> list[str]:
    """A grey picture as text: each pixel two characters wide, darker characters for larger values."""
    flat = picture.reshape(picture.shape[-2:])
    scale = (len(SHADES) - 1) / max(float(flat.max()), 1e-6)
    shades = np.rint(flat * scale).astype(int)
    return ["  " + "".join(SHADES[shade] * 2 for shade in row) for row in shades]


def answer(scores: np.ndarray[Any, Any], labels: Sequence[str]) -> str:
    """The model's opinion as a sentence."""
    row = scores.reshape(-1).astype(np.float64)
    best = int(row.argmax())
    name = label(labels, best)
    article = "an" if name[:1] in "aeiou" and name != "one" else "a"
    sure = f" ({row[best]:.1%} sure)" if is_distribution(row[None]) else ""
    return f"This is {article} {name}{sure}."
