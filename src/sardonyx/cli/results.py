"""The outputs of `sardonyx run`: described in a line each, the best classes by name, saved as files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.cli.tables import columns

SHOWN_ROWS = 3  # of a batch of class scores
SHOWN_ITEMS = 8  # elements of small results that are shown whole


def describe(name: str, value: Any) -> tuple[str, ...]:
    """One row: name, type, shape, and the range of the numbers or the first items."""
    if isinstance(value, np.ndarray):
        return name, value.dtype.name if value.dtype != object else "string", _shape_text(value.shape), _content(value)
    if isinstance(value, list):
        inner = describe("", value[0])[1] if value else "nothing"
        return name, f"sequence of {inner}", str(len(value)), _items(value)
    if isinstance(value, dict):
        return name, "map", str(len(value)), _items([f"{key}: {item}" for key, item in value.items()])
    return name, type(value).__name__, "", "" if value is None else str(value)


def class_lines(value: Any, labels: Sequence[str], top: int) -> Iterator[str]:
    """The best classes of each row of a score tensor; nothing if it does not look like one.

    It does if its rows are probabilities, or if there is a label for each column.
    """
    rows = _score_rows(value, len(labels))
    if rows is None:
        return
    probable = is_distribution(rows)
    for number, row in enumerate(rows[:SHOWN_ROWS]):
        if len(rows) > 1:
            yield f"  row {number}:"
        best = np.argsort(row, kind="stable")[::-1][:top]
        yield from columns(
            [(label(labels, int(at)), f"{row[at]:.1%}" if probable else f"{row[at]:.6g}") for at in best], indent="    "
        )
    if len(rows) > SHOWN_ROWS:
        yield f"  ... and {len(rows) - SHOWN_ROWS} more rows"


def has_columns(value: Any, count: int) -> bool:
    """Whether a result has this many columns."""
    return isinstance(value, np.ndarray) and value.ndim > 0 and value.shape[-1] == count


def is_distribution(rows: np.ndarray[Any, Any]) -> bool:
    """Whether each row consists of probabilities that add up to one."""
    return bool(np.all(rows >= 0) and np.allclose(rows.sum(axis=1), 1, atol=1e-2))


def save(folder: Path, name: str, value: Any) -> list[Path]:
    """Write a result: arrays as .npy, sequences as one file per item, maps as .json. Returns the files."""
    stem = re.sub(r"[^\w.-]", "_", name)
    if isinstance(value, list):
        return [file for number, item in enumerate(value) for file in save(folder, f"{name}.{number}", item)]
    if isinstance(value, np.ndarray):
        path = folder / f"{stem}.npy"
        np.save(path, _portable(value), allow_pickle=False)
    else:
        path = folder / f"{stem}.json"
        plain = {str(key): _plain(item) for key, item in value.items()} if isinstance(value, dict) else _plain(value)
        path.write_text(json.dumps(plain, indent=1), "utf-8")
    return [path]


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _portable(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array in a dtype every NumPy reads: strings as fixed-width text, small floats and integers as the next wider type."""
    if value.dtype == object:
        return value.astype(str)
    if value.dtype.isbuiltin != 1:
        return value.astype(np.int8 if "int" in value.dtype.name else np.float32)
    return value


def _shape_text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) if shape else "scalar"


def _content(value: np.ndarray[Any, Any]) -> str:
    if value.size == 0:
        return "empty"
    if value.size <= SHOWN_ITEMS or value.dtype == object or value.dtype == bool:
        return _items([_item_text(item) for item in value.reshape(-1)[: SHOWN_ITEMS + 1].tolist()], value.size)
    if np.iscomplexobj(value):
        return f"magnitude {_range(np.abs(value))}"
    return _range(value)


def _range(value: np.ndarray[Any, Any]) -> str:
    wide = value.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    if finite.size == 0:
        return "no finite number"
    text = f"min {finite.min():.6g}, mean {finite.mean():.6g}, max {finite.max():.6g}"
    return text if finite.size == wide.size else f"{text}, {wide.size - finite.size} not finite"


def _item_text(item: Any) -> str:
    if isinstance(item, str):
        return repr(item)
    return f"{item:.6g}" if isinstance(item, float) else str(item)


def _items(items: Sequence[Any], total: int | None = None) -> str:
    shown = ", ".join(" ".join(str(item).split()) for item in items[:SHOWN_ITEMS])
    return f"{shown}, ..." if (len(items) if total is None else total) > SHOWN_ITEMS else shown


def _score_rows(value: Any, labels: int) -> np.ndarray[Any, Any] | None:
    if not isinstance(value, np.ndarray) or value.ndim not in (1, 2) or value.size == 0 or value.shape[-1] < 2:
        return None
    if value.dtype.kind in "iubcO":
        return None
    rows = value.reshape(-1, value.shape[-1]).astype(np.float64)
    return rows if labels == rows.shape[1] or is_distribution(rows) else None


def label(labels: Sequence[str], at: int) -> str:
    """The name of a class; its number, where there is none."""
    return labels[at] if at < len(labels) else f"class {at}"
