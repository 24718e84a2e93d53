"""What calibration found out about activations, and the file it is kept in.

ranges = TensorsData(CalibrationMethod.MinMax, {"x": TensorData(lowest=np.float32(-1), highest=np.float32(2))})
save_tensors_data(ranges, "ranges.json")
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from pathlib import Path
from typing import Any, Final

import numpy as np

from sardonyx.quantization.types import CalibrationMethod

_ARRAY: Final = "numpy.array"


class TensorData:
    """Statistics of one activation: `lowest` and `highest`, `avg` and `std`, or a histogram."""

    _allowed = frozenset(("avg", "std", "lowest", "highest", "hist", "hist_edges", "bins"))
    _floats = frozenset(("avg", "std", "lowest", "highest", "hist_edges"))

    def __init__(self, **kwargs: Any) -> None:
        self._attrs = list(kwargs)
        for key, value in kwargs.items():
            if key not in self._allowed:
                raise ValueError(f"Unexpected value {key!r} not in {sorted(self._allowed)}.")
            if key in self._floats:
                if not hasattr(value, "dtype"):
                    raise ValueError(f"Unexpected type {type(value)} for k={key!r}")
                if value.dtype not in (np.float16, np.float32):
                    raise ValueError(f"Unexpected dtype {value.dtype} for k={key!r}")
            setattr(self, key, value)

    def _pair(self, first: str, second: str) -> tuple[Any, Any]:
        missing = [name for name in (first, second) if not hasattr(self, name)]
        if missing:
            raise AttributeError(f"{' and '.join(missing)} missing; there are {', '.join(self._attrs) or 'no statistics'}")
        return getattr(self, first), getattr(self, second)

    @property
    def range_value(self) -> tuple[Any, Any]:
        """The least and the greatest value."""
        return self._pair("lowest", "highest")

    @property
    def avg_std(self) -> tuple[Any, Any]:
        """Average and standard deviation."""
        return self._pair("avg", "std")

    def to_dict(self) -> dict[str, Any]:
        """The statistics by name, for JSON."""
        return {**{key: getattr(self, key) for key in self._attrs}, "CLS": type(self).__name__}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> TensorData:
        """The statistics that `to_dict` gave, as JSON gives them back."""
        found = {}
        for key, value in d.items():
            if key == "CLS":
                continue
            if isinstance(value, dict) and value.get("CLS") == _ARRAY:
                found[key] = np.array(value["data"], np.dtype(value["dtype"]))
            elif key in cls._floats and isinstance(value, (int, float)):
                found[key] = np.array(value, np.float32)
            else:
                found[key] = value
        return cls(**found)


class TensorsData:
    """Statistics of all activations by name, and the method that found them."""

    def __init__(self, calibration_method: CalibrationMethod, data: Mapping[str, Any]) -> None:
        self.calibration_method = calibration_method
        self.data: dict[str, TensorData] = {}
        for name, given in data.items():
            if not isinstance(name, str):
                raise TypeError(f"Keys must be strings not {type(name)}.")
            self.data[name] = _as_tensor_data(name, given, calibration_method)

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __contains__(self, key: object) -> bool:
        return key in self.data

    def __getitem__(self, key: str) -> TensorData:
        return self.data[key]

    def __setitem__(self, key: str, value: TensorData) -> None:
        if key not in self.data:
            raise RuntimeError(f"Only an existing tensor can be modified, {key!r} is not.")
        self.data[key] = value

    def keys(self) -> KeysView[str]:
        """The names."""
        return self.data.keys()

    def values(self) -> ValuesView[TensorData]:
        """The statistics."""
        return self.data.values()

    def items(self) -> ItemsView[str, TensorData]:
        """Names and statistics."""
        return self.data.items()

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {"CLS": type(self).__name__, "data": self.data, "calibration_method": self.calibration_method}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> TensorsData:
        """What `to_dict` gave, as JSON gives it back."""
        method = d["calibration_method"]
        if isinstance(method, dict) and method.get("CLS") == CalibrationMethod.__name__:
            method = CalibrationMethod[method["value"].rpartition(".")[2]]
        return cls(method, {name: TensorData.from_dict(each) for name, each in d["data"].items()})


def _as_tensor_data(name: str, given: Any, method: CalibrationMethod) -> TensorData:
    if isinstance(given, TensorData):
        return given
    if not isinstance(given, tuple):
        raise TypeError(f"Values must be TensorData not {type(given)}.")
    if method is CalibrationMethod.MinMax and len(given) == 2:
        return TensorData(lowest=given[0], highest=given[1])
    if len(given) == 4:
        return TensorData(lowest=given[0], highest=given[1], hist=given[2], bins=given[3])
    raise TypeError(f"Unexpected tuple for {name!r}, it has {len(given)} elements: {given}.")


class CalibrationCacheEncoder(json.JSONEncoder):
    """Writes statistics, arrays and NumPy's numbers as JSON."""

    def default(self, o: Any) -> Any:
        """What JSON shall write for an object it does not know."""
        if isinstance(o, (TensorData, TensorsData)):
            return o.to_dict()
        if isinstance(o, np.ndarray):
            return {"data": o.tolist(), "dtype": str(o.dtype), "CLS": _ARRAY}
        if isinstance(o, CalibrationMethod):
            return {"CLS": type(o).__name__, "value": str(o)}
        if isinstance(o, (np.integer, np.floating)):
            return o.item()
        return super().default(o)


def save_tensors_data(tensors_data: TensorsData, path: str | Path, *, smooth_quant: bool = False) -> None:
    """Write statistics as JSON; the file appears complete or not at all. `smooth_quant` is written with them."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".calibration_", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump({**tensors_data.to_dict(), "smooth_quant": smooth_quant}, file, cls=CalibrationCacheEncoder)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def load_tensors_data(path: str | Path) -> TensorsData:
    """Read what `save_tensors_data` wrote."""
    return TensorsData.from_dict(read_cache(path))


def read_cache(path: str | Path) -> dict[str, Any]:
    """The JSON object in a file of statistics."""
    source = Path(path)
    if not source.exists():
        raise FileNotFoundError(f"Calibration cache not found: {source}")
    if not source.is_file():
        raise ValueError(f"Calibration cache path is not a file: {source}")
    try:
        found = json.loads(source.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{source} is no calibration cache: it is no JSON ({error})") from None
    if not isinstance(found, dict) or not {"data", "calibration_method"} <= set(found):
        raise ValueError(f"{source} is no calibration cache: 'data' or 'calibration_method' is missing")
    return found
