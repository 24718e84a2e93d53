"""The chart of ratios as an SVG picture: one bar a model, from 1 to the right where we are faster, to the left where not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import groupby
from typing import Any
from xml.sax.saxutils import escape

from sardonyx.pictures import svg

PEER = "onnxruntime"
WIDTH, LABELS, MARGIN = 960, 350, 56
ROW, BAR, HEAD, FOOT, GAP = 18, 12, 64, 34, 30
LIGHT = {
    ".group": "fill: #57606a; font-size: 12px; font-weight: 600",
    ".one": "stroke: #57606a; stroke-width: 1.5",
    ".faster": "fill: #1a7f5a",
    ".slower": "fill: #c2601c",
}
DARK = {".group": "fill: #9aa4af", ".one": "stroke: #9aa4af", ".faster": "fill: #3fb98a", ".slower": "fill: #e08b4f"}


def ratio_chart(results: Mapping[str, Any]) -> str:
    """The picture for all models that were compared, by kind."""
    rows = [
        (record["kind"], record["title"], float(record["ratio"][PEER]["best"]))
        for record in results["models"].values()
        if (record.get("ratio") or {}).get(PEER, {}).get("best")
    ]
    ticks = _ticks([ratio for _, _, ratio in rows])
    left, right = LABELS, WIDTH - MARGIN
    low, high = math.log(ticks[0]), math.log(ticks[-1])

    def x_of(ratio: float) -> float:
        return left + (math.log(ratio) - low) / (high - low) * (right - left)

    groups = [(group, [row[1:] for row in each]) for group, each in groupby(rows, key=lambda row: row[0])]
    bottom = HEAD + len(rows) * ROW + len(groups) * GAP
    parts = [
        f'<text class="title" x="16" y="26">Speed against onnxruntime {escape(_version(results))}</text>',
        f'<text class="note" x="16" y="46">{escape(_note(results))}</text>',
    ]
    for tick in ticks:
        x = x_of(tick)
        parts.append(
            f'<line class="{"one" if tick == 1 else "grid"}" x1="{x:.1f}" x2="{x:.1f}" y1="{HEAD - 6}" y2="{bottom + 2}"/>'
        )
        parts.append(f'<text class="tick" text-anchor="middle" x="{x:.1f}" y="{bottom + 18}">{_tick_text(tick)}</text>')
    y = float(HEAD)
    for kind, members in groups:
        y += GAP
        parts.append(f'<text class="group" x="16" y="{y - 8:.1f}">{escape(kind)}</text>')
        for title, ratio in members:
            parts += _bar(title, ratio, y, x_of)
            y += ROW
    return svg(WIDTH, bottom + FOOT, parts, LIGHT, DARK, label="Speed of Sardonyx against onnxruntime")


def _bar(title: str, ratio: float, y: float, x_of: Any) -> list[str]:
    one, end = x_of(1.0), x_of(ratio)
    middle = y + ROW / 2
    kind = "faster" if ratio >= 1 else "slower"
    number_at, anchor = (end + 6, "start") if ratio >= 1 else (end - 6, "end")
    return [
        f'<text text-anchor="end" x="{LABELS - 30}" y="{middle + 4:.1f}">{escape(title)}</text>',
        f'<rect class="{kind}" x="{min(one, end):.1f}" y="{middle - BAR / 2:.1f}" width="{max(abs(end - one), 1):.1f}" '
        f'height="{BAR}" rx="2"/>',
        f'<text class="tick" text-anchor="{anchor}" x="{number_at:.1f}" y="{middle + 4:.1f}">{ratio:.2f}</text>',
    ]


def _ticks(values: list[float]) -> list[float]:
    """Powers of two around 1 that reach beyond all values."""
    lowest = min((math.floor(math.log2(value * 0.95)) for value in values), default=-1)
    highest = max((math.ceil(math.log2(value * 1.05)) for value in values), default=1)
    step = 2 if max(highest, 1) - min(lowest, -1) > 7 else 1
    down = -(-max(-lowest, 1) // step) * step
    up = -(-max(highest, 1) // step) * step
    return [2.0**power for power in range(-down, up + 1, step)]


def _tick_text(tick: float) -> str:
    return f"{tick:g}" if tick >= 1 else f"1/{1 / tick:g}"


def _version(results: Mapping[str, Any]) -> str:
    return str(results["machine"]["packages"].get(PEER, ""))


def _note(results: Mapping[str, Any]) -> str:
    machine = results["machine"]
    return (
        f"onnxruntime time / Sardonyx time, best of many interleaved runs, {results['threads']} threads each, "
        f"{machine['processor']}, {machine['date']}"
    )
