"""The memory of a training step as an SVG picture: bytes in use from step to step, forward and backward side by side.

MB │        ▁▃▅▇█│█▇▆▆▅▄▃▂▁      gradients
   │   ▁▃▅▇██████│█████████▇     within the pass
   │▁▃▅██████████│██████████     kept between the passes
   └─ forward ───┴─ backward ──
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final

from sardonyx.pictures import svg
from sardonyx.records import dataclass

_WIDTH: Final = 900
_LEFT: Final = 84
_RIGHT: Final = 20
_TOP: Final = 84
_HEIGHT: Final = 260
_FOOT: Final = 40
_LINES: Final = 4  # of the grid
_LIGHT: Final = {
    ".between": "stroke: #57606a; stroke-width: 1; stroke-dasharray: 4 3",
    ".kept": "fill: #2f6fb0",
    ".arena": "fill: #8fbce6",
    ".results": "fill: #d9843b",
}
_DARK: Final = {".between": "stroke: #9aa4af"}
_LAYERS: Final = (
    ("kept", "kept between the passes"),
    ("arena", "within a pass"),
    ("results", "outputs and gradients"),
)


@dataclass(frozen=True)
class TimelinePart:
    """One pass: for each step the bytes kept between the passes, in the arena, and in results."""

    name: str
    kept: Sequence[int]
    arena: Sequence[int]
    results: Sequence[int]

    @property
    def layers(self) -> tuple[Sequence[int], ...]:
        """What lies on top of each other, from below."""
        return self.kept, self.arena, self.results

    @property
    def totals(self) -> list[int]:
        """All bytes in use at each step."""
        return [sum(at) for at in zip(*self.layers)]


def timeline_picture(parts: Sequence[TimelinePart]) -> str:
    """The picture of all parts, one after the other on one scale."""
    count = sum(len(part.totals) for part in parts)
    peak = max(chain.from_iterable(part.totals for part in parts), default=0)
    top, bottom, right = peak or 1, _TOP + _HEIGHT, _WIDTH - _RIGHT
    wide = (right - _LEFT) / max(count, 1)

    def y_of(value: float) -> float:
        return bottom - value / top * _HEIGHT

    lines = ['<text class="title" x="16" y="26">Memory of a training step</text>']
    for number, (name, label) in enumerate(_LAYERS):
        left = _LEFT + 220 * number
        lines.append(f'<rect class="{name}" x="{left}" y="42" width="13" height="13"/>')
        lines.append(f'<text x="{left + 19}" y="53">{label}</text>')
    lines.append(f'<text class="tick" text-anchor="end" x="{right}" y="26">peak {peak / 1e6:.1f} MB</text>')
    for line in range(_LINES + 1):
        value = top * line / _LINES
        y = y_of(value)
        lines.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text class="tick" text-anchor="end" x="{_LEFT - 8}" y="{y + 4:.1f}">{value / 1e6:.1f} MB</text>')
    start = 0
    for part in parts:
        steps = len(part.totals)
        x = _LEFT + start * wide
        below = [0.0] * steps
        for (name, _), values in zip(_LAYERS, part.layers):
            above = [low + value for low, value in zip(below, values)]
            if any(values):
                lines.append(f'<path class="{name}" d="{_band(below, above, x, wide, y_of)}"/>')
            below = above
        if start:
            lines.append(f'<line class="between" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 12}" y2="{bottom}"/>')
        middle = x + steps * wide / 2
        label = f"{part.name}, {steps} steps"
        lines.append(f'<text text-anchor="middle" x="{middle:.1f}" y="{bottom + 24}">{label}</text>')
        start += steps
    return svg(_WIDTH, bottom + _FOOT, lines, _LIGHT, _DARK)


def _band(below: Sequence[float], above: Sequence[float], x: float, wide: float, y_of: Callable[[float], float]) -> str:
    """The outline of what lies between two heights at each step."""
    count = len(above)
    upper = [f"V{y_of(value):.1f}H{x + (number + 1) * wide:.2f}" for number, value in enumerate(above)]
    lower = [f"V{y_of(below[number]):.1f}H{x + number * wide:.2f}" for number in range(count - 1, -1, -1)]
    return f"M{x:.2f} {y_of(below[0]):.1f}{''.join(upper)}{''.join(lower)}Z"
