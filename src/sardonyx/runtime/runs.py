"""What every run of a program has: somebody who watches and stops it, and values that belong to others.

Feeds and constants enter as read-only arrays. Whatever leaves a program and is still read-only is therefore another's memory
(an input or a weight passed through) and is copied; so is the second of two results that share memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sardonyx import errors
from sardonyx.runtime.native_core import address_of, new_array

if TYPE_CHECKING:
    from sardonyx.runtime.node_timing import NodeTiming
    from sardonyx.runtime.reused_memory import ReusedMemory

NOTHING_SHARED: Final[Mapping[int, str]] = MappingProxyType({})


def never() -> bool:
    """Nobody wants a run to stop."""
    return False


class RunControl:
    """How a run can be watched and stopped from outside."""

    __slots__ = ("memory", "on_node", "shared", "targets", "terminate")

    def __init__(
        self,
        terminate: Callable[[], bool] = never,
        on_node: Callable[[NodeTiming], None] | None = None,
        targets: Sequence[np.ndarray[Any, Any] | None] = (),
        shared: Mapping[int, str] = NOTHING_SHARED,
        memory: ReusedMemory | None = None,
    ) -> None:
        self.terminate = terminate  # asked before each node
        self.on_node = on_node  # told after each node of the top-level graph and of bodies
        # For each fetched value the array it shall be written to, if that can be done without a copy; None: one of its own.
        self.targets = targets
        # Targets, by position, that are the memory of the feed of that name: for programs that say they append to it in place.
        self.shared = shared
        self.memory = memory  # where large results come from; None: from the C library, each time

    def new_array(self, purpose: Hashable, shape: Sequence[int], dtype: Any) -> np.ndarray[Any, Any]:
        """Memory for a result; `purpose` names it among all that runs with this control make."""
        return new_array(shape, dtype) if self.memory is None else self.memory.array(purpose, shape, dtype)

    def stop_if_asked(self, before: str = "") -> None:
        """Raise Fail if somebody wants the run to end; `before` names the node that would come next."""
        if self.terminate():
            hint = f"the next node was {before}" if before else ""
            raise errors.Fail("Exiting due to terminate flag being set to true.", hint=hint)


def borrowed(value: Any) -> Any:
    """A fed value as the program sees it: arrays become read-only views."""
    if isinstance(value, np.ndarray):
        view = value.view()
        view.flags.writeable = False
        return view
    if isinstance(value, list):
        return [borrowed(item) for item in value]
    return value


def owned(results: list[Any], others: Sequence[np.ndarray[Any, Any]] = ()) -> list[Any]:
    """Results that share no memory with feeds, weights, each other, or arrays of others that are not read-only."""
    seen = _Claims()
    for array in others:
        seen.add(array)
    return [_own(value, seen) for value in results]


class _Claims:
    """Parts of memory that do not overlap, in order: a sequence may have thousands of tensors."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self._maps: set[int] = set()

    def claimed_maps(self, maps: list[dict[Any, Any]]) -> list[dict[Any, Any]]:
        """Maps without arrays (`ir.types.PlainMaps`), or a copy if another result has them."""
        if id(maps) in self._maps:
            return type(maps)(map(dict.copy, maps))
        self._maps.add(id(maps))
        return maps

    def add(self, array: np.ndarray[Any, Any]) -> bool:
        """Claim the memory of an array; False if part of it is claimed."""
        start = end = address_of(array)
        for size, stride in zip(array.shape, array.strides):
            if not size:
                return True
            start += min(0, (size - 1) * stride)
            end += max(0, (size - 1) * stride)
        end += array.itemsize
        at = bisect_right(self.starts, start)
        if (at and self.ends[at - 1] > start) or (at < len(self.starts) and self.starts[at] < end):
            return False
        self.starts.insert(at, start)
        self.ends.insert(at, end)
        return True


def _own(value: Any, seen: _Claims) -> Any:
    # No function inside `owned`: one that calls itself is a cycle, which would keep all arrays until garbage is collected.
    if isinstance(value, np.ndarray):
        if not value.flags.writeable or not seen.add(value):
            value = value.copy()
            seen.add(value)
        return value
    if type(value) is list:
        return [_own(item, seen) for item in value]
    return seen.claimed_maps(value) if isinstance(value, list) else value
