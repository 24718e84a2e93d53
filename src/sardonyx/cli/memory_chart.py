"""The memory of a model in each execution order as an SVG picture: bytes in use over the steps, one panel an order."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

import sardonyx
from sardonyx.cli.tables import byte_size
from sardonyx.pictures import svg

WIDTH, LEFT, RIGHT = 860, 84, 24
PANEL, HEAD, GAP, FOOT = 120, 62, 46, 34
LIGHT = {".live": "fill: #2f6fb0; fill-opacity: 0.75", ".peak": "stroke: #c2601c; stroke-width: 1.5; stroke-dasharray: 5 3"}
DARK = {".live": "fill: #6ea8dc", ".peak": "stroke: #e08b4f"}


def memory_chart(name: str, orders: Sequence[sardonyx.OrderMemory]) -> str:
    """The picture: all panels have the same scale, so that orders can be compared by eye."""
    top = max((each.arena_bytes for each in orders), default=0) or 1
    parts = [
        f'<text class="title" x="16" y="26">Memory of {escape(name)} by execution order</text>',
        '<text class="note" x="16" y="46">bytes in use at each step; dashed: the size of the planned arena</text>',
    ]
    y = float(HEAD)
    for each in orders:
        parts += _panel(each, top, y)
        y += PANEL + GAP
    return svg(WIDTH, y - GAP + FOOT, parts, LIGHT, DARK)


def _panel(order: sardonyx.OrderMemory, top: int, y: float) -> list[str]:
    label, bottom, right = y + 12, y + 20 + PANEL - 20, WIDTH - RIGHT
    span = bottom - (y + 20)

    def y_of(value: float) -> float:
        return bottom - value / top * span

    parts = [f'<text x="{LEFT}" y="{label:.0f}">{escape(order.order)}: {byte_size(order.arena_bytes)}</text>']
    for share in (0.0, 0.5, 1.0):
        at = y_of(share * top)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(
            f'<text class="tick" text-anchor="end" x="{LEFT - 8}" y="{at + 4:.1f}">{byte_size(round(share * top))}</text>'
        )
    count = len(order.live)
    if count:
        each = (right - LEFT) / count
        path = [f"M{LEFT} {bottom:.1f}"]
        for number, live in enumerate(order.live):
            path.append(f"L{LEFT + number * each:.2f} {y_of(live):.2f}H{LEFT + (number + 1) * each:.2f}")
        parts.append(f'<path class="live" d="{"".join(path)}V{bottom:.1f}Z"/>')
        parts.append(f'<text class="tick" x="{LEFT}" y="{bottom + 16:.1f}">0</text>')
        parts.append(f'<text class="tick" text-anchor="end" x="{right}" y="{bottom + 16:.1f}">step {count - 1}</text>')
    peak = y_of(order.arena_bytes)
    parts.append(f'<line class="peak" x1="{LEFT}" x2="{right}" y1="{peak:.1f}" y2="{peak:.1f}"/>')
    return parts
