"""Matrix products and what else NumPy's library of linear algebra computes; the process does not fork meanwhile.

OpenBLAS shares larger products with threads of its own, and ends them when the process forks: a product under way in another
thread would wait for them for ever, and the fork for it. Whatever operators multiply goes through these functions, hence
(`tests/ops/test_products.py` looks for others).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from sardonyx.forks import importing

_F = TypeVar("_F", bound=Callable[..., Any])


def _undivided(function: _F) -> _F:
    def call(*args: Any, **named: Any) -> Any:
        with importing:
            return function(*args, **named)

    return call  # type: ignore[return-value]


matmul = _undivided(np.matmul)
einsum = _undivided(np.einsum)
tensordot = _undivided(np.tensordot)
det = _undivided(np.linalg.det)
inv = _undivided(np.linalg.inv)
