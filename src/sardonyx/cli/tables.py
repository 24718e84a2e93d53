"""Plain text for people: aligned columns, sizes and counts. No colour and no box drawing.

On a terminal long cells are cut so that a row stays on its line; pipes and files get everything.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence

UNLIMITED = 1 << 30  # the width of what is no terminal
NARROWEST = 16  # what a cut column keeps


def terminal_width() -> int:
    """Columns of the terminal standard output goes to."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else UNLIMITED


def cut(text: str, width: int) -> str:
    """The text, its end replaced by dots if it is longer."""
    return text if len(text) <= width else f"{text[: max(width - 3, 0)]}..."


def _fitted(widths: list[int], available: int) -> list[int]:
    """The widths of columns such that a row fits: the widest give way, down to some characters."""
    widths = list(widths)
    while sum(widths) > available and max(widths) > NARROWEST:
        widest = max(widths)
        second = max((width for width in widths if width < widest), default=NARROWEST)
        at = [index for index, width in enumerate(widths) if width == widest]
        surplus = sum(widths) - available
        lower = max(NARROWEST, second, widest - -(-surplus // len(at)))
        for index in at:
            widths[index] = lower
    return widths


def columns(rows: Iterable[Sequence[object]], *, header: Sequence[str] = (), indent: str = "  ", fit: bool = False) -> list[str]:
    """Lines with aligned columns; numbers stand right. Two spaces lie between columns, none at the end of a line.

    With `fit` long cells are cut, so that lines fit the terminal.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    numeric = [all(_is_number(row[at]) for row in cells) for at in range(len(cells[0]))] if cells else []
    if header:
        cells.insert(0, list(header))
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))] if cells else []
    if cells and fit:
        widths = _fitted(widths, terminal_width() - len(indent) - 2 * (len(widths) - 1))
        cells = [[cut(cell, width) for cell, width in zip(row, widths)] for row in cells]
    lines = []
    for row in cells:
        aligned = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric or [False] * len(widths))
        )
        lines.append((indent + "  ".join(aligned)).rstrip())
    return lines


def _is_number(text: str) -> bool:
    return text.removesuffix("%").replace(",", "").replace(".", "", 1).lstrip("-").isdigit()


def byte_size(count: int) -> str:
    """`1.5 MB`: powers of 1000, one decimal."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def duration(seconds: float) -> str:
    """`3.2 ms`: in the unit that leaves one to three digits before the point; microseconds with three digits in all."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds * 1e6:.{0 if seconds >= 1e-4 else 1 if seconds >= 1e-5 else 2}f} us"


def counted(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`, `1,200 nodes`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
