"""The same names as `onnxruntime_pybind11_state`."""

from __future__ import annotations

from sardonyx.capi import onnxruntime_pybind11_state as _state
from sardonyx.capi.onnxruntime_pybind11_state import *  # noqa: F403

__all__ = list(_state.__all__)
