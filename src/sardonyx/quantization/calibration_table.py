"""Calibration tables, as TensorRT reads them: JSON, plain text, and a FlatBuffers file of keys and values.

The FlatBuffers schema is `table TrtTable { dict: [KeyValue]; }  table KeyValue { key: string; value: string; }`.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.quantization.tensors_data import CalibrationCacheEncoder, TensorData


def write_calibration_table(calibration_cache: Mapping[str, TensorData] | Any, dir: str | os.PathLike[str] = ".") -> None:
    """Write `calibration.json`, `calibration.flatbuffers` and `calibration.cache` into a folder."""
    folder = Path(dir)
    (folder / "calibration.json").write_text(json.dumps(calibration_cache, cls=CalibrationCacheEncoder))
    entries = {name: str(_greatest(calibration_cache[name])) for name in sorted(calibration_cache.keys())}
    (folder / "calibration.flatbuffers").write_bytes(_table(entries))
    (folder / "calibration.cache").write_text("".join(f"{name} {value}\n" for name, value in entries.items()))


def _greatest(data: TensorData) -> float:
    found = data.to_dict()
    return max(float(np.asarray(found.get(key, 0)).item()) for key in ("highest", "lowest"))


def _table(entries: Mapping[str, str]) -> bytes:
    """The FlatBuffers file; what refers comes before what is referred to, so that all offsets point forward."""
    # root offset, vtable of TrtTable (size, table size, offset of dict), padding, TrtTable (to its vtable, to the vector)
    head = struct.pack("<IHHHHiI", 12, 6, 8, 4, 0, 8, 4)
    vector_at = len(head)
    count = len(entries)
    # vtable of KeyValue, shared by all: behind the vector
    vtable_at = vector_at + 4 + 4 * count
    vtable = struct.pack("<HHHH", 8, 12, 4, 8)
    tables_at = vtable_at + len(vtable)
    texts_at = tables_at + 12 * count
    offsets, tables, texts = [], [], b""
    for index, (name, value) in enumerate(entries.items()):
        at = tables_at + 12 * index
        offsets.append(at - (vector_at + 4 + 4 * index))
        positions = []
        for text in (name, value):
            positions.append(texts_at + len(texts))
            encoded = text.encode()
            texts += struct.pack("<I", len(encoded)) + encoded + b"\0" * (4 - len(encoded) % 4)
        tables.append(struct.pack("<iII", at - vtable_at, positions[0] - (at + 4), positions[1] - (at + 8)))
    vector = struct.pack(f"<I{count}I", count, *offsets)
    return head + vector + vtable + b"".join(tables) + texts
