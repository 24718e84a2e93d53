"""SVG pictures in one style, on light and on dark pages.

    svg(860, 300, ['<text class="title" x="16" y="26">Memory</text>', ...], {".live": "fill: #2f6fb0"})

What every picture has is styled here: text, `title`, `note` and `tick` (smaller), `grid` lines. Other classes a picture brings
along.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_LIGHT = {
    "text": "font: 13px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #24292f",
    ".title": "font-size: 16px; font-weight: 600",
    ".note, .tick": "fill: #57606a; font-size: 12px",
    ".grid": "stroke: #d0d7de; stroke-width: 1",
}
_DARK = {"text": "fill: #e6edf3", ".note, .tick": "fill: #9aa4af", ".grid": "stroke: #3d444d"}


def svg(
    width: float,
    height: float,
    parts: Iterable[str],
    light: Mapping[str, str] | None = None,
    dark: Mapping[str, str] | None = None,
    *,
    label: str = "",
) -> str:
    """A picture of these elements. `light` and `dark` style its own classes, by CSS selector; `label` says what it shows."""
    spoken = f' role="img" aria-label="{label}"' if label else ""
    rules = _rules({**_LIGHT, **(light or {})}, "  ")
    night = _rules({**_DARK, **(dark or {})}, "    ")
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}"{spoken}>\n'
        f"<style>\n{rules}  @media (prefers-color-scheme: dark) {{\n{night}  }}\n</style>\n{body}\n</svg>\n"
    )


def _rules(styles: Mapping[str, str], indent: str) -> str:
    return "".join(f"{indent}{selector} {{ {style}; }}\n" for selector, style in styles.items())
