"""Calls ahead of the first native step that make numbers of feeds no native code reads: positions of texts, counts of words.

    feeds {"town": array of texts, "size": array of floats}
      -> TextPositions("town")          here: a lookup in a dictionary for each text
      -> native code on positions and sizes

With it, a program that looks texts up and then stays native is a single call, as one without texts is (see `executable`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sardonyx.program.segments import VALUE, Axes, BoundCall, CallSegment
from sardonyx.runtime.native_core import Array

if TYPE_CHECKING:
    from sardonyx.runtime.segment_runner import SegmentRunner
    from sardonyx.runtime.text_calls import NativeFunction, TextCall


Maker = Callable[[Mapping[str, Any], "NativeFunction"], "tuple[Callable[[Array], Array], TextCall | None]"]


def _lookup(attrs: Mapping[str, Any], native_function: NativeFunction) -> tuple[Callable[[Array], Array], TextCall | None]:
    from sardonyx.ops.ml.text_lookup import TextLookup  # lazy: few programs come here
    from sardonyx.runtime.text_calls import positions_call  # lazy: the same

    lookup = TextLookup(attrs["keys"])
    return lookup, positions_call(native_function, lookup.numbers)


def _counter(attrs: Mapping[str, Any], native_function: NativeFunction) -> tuple[Callable[[Array], Array], TextCall | None]:
    from sardonyx.ops.ml.token_counts import TokenCounter  # lazy: few programs come here
    from sardonyx.runtime.word_calls import word_counts_call  # lazy: the same

    given = attrs["characters"], attrs["least"], attrs["words"], attrs["columns"]
    counter = TokenCounter(*given, attrs.get("lengths") or (), attrs.get("case") or "")
    return counter, word_counts_call(native_function, counter.tables())


def _hasher(attrs: Mapping[str, Any], native_function: NativeFunction) -> tuple[Callable[[Array], Array], TextCall | None]:
    from sardonyx.ops.text.contrib_text import hashed_texts  # lazy: few programs come here
    from sardonyx.runtime.text_calls import hashes_call  # lazy: the same

    seed, kind = attrs["seed"], np.uint32 if attrs["positive"] else np.int32
    native = hashes_call(native_function, seed, is_positive=bool(attrs["positive"]))
    return lambda texts: hashed_texts(texts.reshape(-1), seed).view(kind).reshape(texts.shape), native


# What makes numbers of the texts of a node: by Python, which is right for all that it is given, and natively, if that can be.
_MAKERS: Final[Mapping[tuple[str, str], Maker]] = {
    ("sardonyx", "TextPositions"): _lookup,
    ("sardonyx", "TokenCounts"): _counter,
    ("com.microsoft", "MurmurHash3"): _hasher,
}


class FeedStart:
    """Makes numbers of texts, which native code reads like inputs."""

    def __init__(
        self,
        rows: Sequence[tuple[str, Callable[[Array], Array], TextCall | None]],
        buffers: Sequence[int],
        axes: Sequence[Axes],
    ) -> None:
        self._rows = rows  # the input's name, and what makes numbers of its texts
        self.buffers = buffers  # where native code reads them
        self.axes = axes
        self.names = frozenset(name for name, _, _ in rows)

    @classmethod
    def of(cls, runner: SegmentRunner) -> FeedStart | None:
        """What starts a program, if numbers of texts in its inputs are all that it makes before its native steps."""
        plan = runner.plan
        count = next((number for number, each in enumerate(plan.segments) if not isinstance(each, CallSegment)), 0)
        if not count:
            return None
        rows, buffers, axes = [], [], []
        for segment in runner.bound.segments[:count]:
            assert isinstance(segment, BoundCall)
            call: Any = runner.calls[segment.call]
            node = call.node if call.is_plain else None
            make = None if node is None else _MAKERS.get((node.domain, node.op_type))
            if node is None or make is None:
                return None
            (read,), ((_, buffer, shape),) = segment.inputs, segment.outputs
            if read.kind != VALUE or read.number >= len(plan.inputs) or plan.inputs[read.number].default >= 0 or shape is None:
                return None
            rows.append((plan.inputs[read.number].name, *make(node.attrs, runner.core.pool.native_function)))
            buffers.append(buffer)
            axes.append(shape)
        start = cls(rows, buffers, axes)
        native = {plan.inputs[value].name for value in plan.native_inputs}
        return start if native | start.names == {each.name for each in plan.inputs} else None

    def __call__(self, feeds: Mapping[str, Any]) -> list[Array] | None:
        """The numbers; None if a feed is no array of texts."""
        made = []
        for name, find, native in self._rows:
            texts = feeds.get(name)
            if type(texts) is not np.ndarray:
                return None
            found = None if native is None else native(texts)
            if found is None and native is not None and not texts.flags.c_contiguous:  # as the columns of a data frame
                found = native(texts.copy())
            if found is not None:
                made.append(found)
                continue
            kind = texts.dtype.kind
            if kind == "O":
                try:
                    positions = find(texts)
                except (TypeError, AttributeError):  # something that is no text, and no key of a dictionary
                    return None
                # What is no text may be one when it is converted, which is for others to do; there is no count of such.
                is_lookup = positions.dtype.kind == "i"
                if (
                    is_lookup
                    and positions.size
                    and positions.min() < 0
                    and not set(map(type, texts.reshape(-1).tolist())) <= {str}
                ):
                    return None
            elif kind == "U":
                positions = find(texts)
            else:
                return None
            made.append(positions)
        return made
