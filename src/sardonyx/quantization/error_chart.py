"""The errors of layers as a picture: an SVG file with a bar for each output, and a mark for each weight.

conv1  Conv   ████████████████████████|██   38.2 dB
gemm   Gemm   █████████████                 24.9 dB        longer is better
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from sardonyx.pictures import svg
from sardonyx.quantization.error_report import LayerError

_ROW: Final = 20
_LABEL: Final = 300  # pixels for names
_PLOT: Final = 520
_VALUE: Final = 80
_TOP: Final = 76
_MOST: Final = 80  # rows; of more layers the worst are drawn
_LONGEST: Final = 34  # characters of a name
_CLASSES: Final = ((20.0, "bad"), (30.0, "fair"), (math.inf, "good"))  # below this many decibels
_LIGHT: Final = {
    ".bad": "fill: #b4532a",
    ".fair": "fill: #c69026",
    ".good": "fill: #2f6f9f",
    ".weight": "stroke: #24292f; stroke-width: 3",
}
_DARK: Final = {".weight": "stroke: #e6edf3"}


def write_chart(layers: Sequence[LayerError], path: str | Path, title: str) -> None:
    """Draw the layers, in the order of the model."""
    Path(path).write_text(chart(layers, title), "utf-8")


def chart(layers: Sequence[LayerError], title: str) -> str:
    """The picture as text."""
    drawn = list(layers)
    if len(drawn) > _MOST:
        worst = {id(layer) for layer in sorted(drawn, key=_least)[:_MOST]}
        drawn = [layer for layer in drawn if id(layer) in worst]
    finite = [value for layer in drawn for value in (layer.weight, layer.output) if value is not None and math.isfinite(value)]
    limit = max(10.0, 10 * math.ceil(max(finite, default=10.0) / 10))
    width, height = _LABEL + _PLOT + _VALUE, _TOP + _ROW * len(drawn) + 34
    bottom = _TOP + _ROW * len(drawn)
    note = f"the worst {_MOST} of {len(layers)} layers" if len(layers) > len(drawn) else f"{len(layers)} layers"
    parts = [
        f'<text class="title" x="12" y="24">{escape(title)}</text>',
        f'<text class="note" x="12" y="44">{note}; signal-to-quantization-noise ratio in dB, longer is better</text>',
        *_legend(),
    ]
    for step in range(0, int(limit) + 1, 10):
        x = _LABEL + _PLOT * step / limit
        parts.append(f'<line x1="{x:.1f}" y1="{_TOP - 4}" x2="{x:.1f}" y2="{bottom}" class="grid"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{step}</text>')
    for index, layer in enumerate(drawn):
        parts += _row(layer, _TOP + _ROW * index, limit)
    return svg(width, height, parts, _LIGHT, _DARK)


def _legend() -> list[str]:
    x, y = _LABEL, _TOP - 18
    return [
        f'<rect x="{x}" y="{y}" width="22" height="9" class="{_CLASSES[-1][1]}"/>',
        f'<text x="{x + 28}" y="{y + 9}">output</text>',
        f'<line x1="{x + 94}" y1="{y - 2}" x2="{x + 94}" y2="{y + 11}" class="weight"/>',
        f'<text x="{x + 102}" y="{y + 9}">weight</text>',
    ]


def _least(layer: LayerError) -> float:
    return min((value for value in (layer.output, layer.weight) if value is not None), default=math.inf)


def _row(layer: LayerError, y: int, limit: float) -> list[str]:
    """One layer: name, operator, bar, mark and number."""
    name = layer.name if len(layer.name) <= _LONGEST else "…" + layer.name[1 - _LONGEST :]
    middle = y + _ROW / 2
    parts = [
        f'<text x="12" y="{middle + 4}">{escape(name)}</text>',
        f'<text x="{_LABEL - 8}" y="{middle + 4}" text-anchor="end" class="note">{escape(layer.op_type[:18])}</text>',
    ]
    if layer.output is not None:
        length = _PLOT * min(max(layer.output, 0.0), limit) / limit
        shade = next(name for below, name in _CLASSES if layer.output < below or below == math.inf)
        parts.append(f'<rect x="{_LABEL}" y="{y + 4}" width="{max(length, 1):.1f}" height="{_ROW - 8}" class="{shade}"/>')
    if layer.weight is not None:
        x = _LABEL + _PLOT * min(max(layer.weight, 0.0), limit) / limit
        parts.append(f'<line x1="{x:.1f}" y1="{y + 2}" x2="{x:.1f}" y2="{y + _ROW - 2}" class="weight"/>')
    shown = layer.output if layer.output is not None else layer.weight
    text = "" if shown is None else "exact" if math.isinf(shown) else f"{shown:.1f} dB"
    parts.append(f'<text x="{_LABEL + _PLOT + 10}" y="{middle + 4}">{text}</text>')
    return parts
