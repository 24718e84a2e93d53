"""Plain text for people: aligned columns, sizes and counts. No colour and no box drawing, so that pipes get the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def columns(rows: Iterable[Sequence[object]], *, header: Sequence[str] = (), indent: str = "  ") -> list[str]:
    """Lines with aligned columns; numbers stand right. Two spaces lie between columns, none at the end of a line."""
    cells = [[str(cell) for cell in row] for row in rows]
    numeric = [all(_is_number(row[at]) for row in cells) for at in range(len(cells[0]))] if cells else []
    if header:
        cells.insert(0, list(header))
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))] if cells else []
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
