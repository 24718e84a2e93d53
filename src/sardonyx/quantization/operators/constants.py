"""Constants, whether a model has them as initializers or as nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sardonyx.ir.graph import Value
from sardonyx.quantization.models import dense


def constant_array(value: Value | None) -> NDArray[Any] | None:
    """The numbers of an initializer or a Constant node; None if the value is not known before the model runs."""
    held = dense(value)
    if held is not None:
        return held.numpy()
    node = None if value is None else value.producer
    if node is None or node.op_type != "Constant":
        return None
    for name, attr in node.attrs.items():
        if name == "value":
            found: NDArray[Any] = attr.value.numpy()
            return found
        if name in ("value_float", "value_floats"):
            return np.array(attr.value, np.float32)
        if name in ("value_int", "value_ints"):
            return np.array(attr.value, np.int64)
    return None
