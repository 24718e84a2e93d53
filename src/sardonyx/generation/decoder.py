"""A decoder: an ONNX model with past and present, and the keys and values of what it has read.

    decoder = Decoder("model.onnx")
    logits = decoder.begin([[1, 15, 7], [1, 9]])      prompts of any lengths; the scores [rows, vocabulary] of what comes next
    logits = decoder.extend(tokens)                   one more token for each row
    decoder.reorder([1, 1])                           go on with these rows

Keys and values stay where they are: a cache is one buffer, past and present at once, with room that grows by half when it is
full (`room=` gives it all at the start). Four forms of decoders are known:

    plain       present = Concat(past, new) and the like: rows begin at different positions (padding on the left)
    grouped     com.microsoft::GroupQueryAttention: every row has its own length (padding on the right)
    packed      keys and values in one past [2, rows, heads, positions, size], as GPT-2 has them: divided into two, then plain
    merged      an If on use_cache_branch: its two branches become two programs that share weights and caches

A past that is in none of these forms is fed with what the model gave out as present. A model without any reads everything anew
for each token. Keys and values of what an encoder gave (past_key_values.0.encoder.key) are computed with the prompt and stay.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Final

import numpy as np

from sardonyx import errors
from sardonyx.dtypes import from_ort
from sardonyx.formats.loading import load
from sardonyx.ir.graph import Graph, walk
from sardonyx.options import CACHES_KEY, FIXED_KEY, LAST_KEY, SessionOptions
from sardonyx.passes.prepare_decoder import FILLED, ROOM, ROWS
from sardonyx.passes.unpack_caches import PARTS
from sardonyx.runtime.ports import NodeArg
from sardonyx.runtime.runs import RunControl
from sardonyx.session.inference_session import InferenceSession

Array = np.ndarray[Any, Any]

_SWITCH: Final = "use_cache_branch"
_PROMPT, _STEP = "prompt", "step"  # programs; most models have one for both
_GROWTH: Final = 1.5
_LEAST_ROOM: Final = 64


class Cache:
    """The keys or values of one layer: past and present of a model, in one buffer if the model appends to it."""

    def __init__(
        self, past: str, present: str, dtype: np.dtype[Any], heads: int, size: int, *, has_room: bool, is_cross: bool = False
    ) -> None:
        self.past, self.present = past, present
        self.has_room = has_room
        self.is_cross = is_cross  # of what an encoder gave: whole after the prompt
        self._dtype, self._heads, self._size = dtype, heads, size
        self.array: Array = np.zeros((0, heads, 0, size), dtype)

    def empty(self, rows: int, room: int) -> None:
        """Begin anew."""
        wanted = (rows, self._heads, room if self.has_room else 0, self._size)
        if self.array.shape != wanted:
            self.array = np.zeros(wanted, self._dtype)

    def take(self, present: Array) -> None:
        """Keep what a model gave out, whole."""
        if self.is_cross:
            self.array = np.array(present)  # read by every step: of our own
        elif self.has_room:
            self.array[:, :, : present.shape[2]] = present
        else:
            self.array = present

    def grow(self, room: int, filled: int) -> None:
        """Make room for so many positions; the first ones are kept."""
        old = self.array
        self.array = np.zeros((*old.shape[:2], room, old.shape[3]), old.dtype)
        self.array[:, :, :filled] = old[:, :, :filled]

    def reorder(self, rows: Array, filled: int) -> None:
        """Go on with these rows."""
        if not self.has_room:
            self.array = np.ascontiguousarray(self.array[rows])
            return
        if len(rows) == len(self.array):
            self.array[:, :, :filled] = self.array[rows][:, :, :filled] if filled else 0
            return
        new = np.zeros((len(rows), *self.array.shape[1:]), self.array.dtype)
        new[:, :, :filled] = self.array[rows][:, :, :filled]
        self.array = new


class Decoder:
    """See the module. `model` is a path or the bytes of a model; `options` are those of its session.

    `caches` names the present of each past where the usual names do not tell; `room` is how many positions caches have at first.
    `prompt_model` reads prompts, where another model does that. `sizes` gives heads and sizes of heads
    ({"num_key_value_heads": 2, "head_dim": 64}) where the model leaves them open.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        options: SessionOptions | None = None,
        *,
        caches: Mapping[str, str] | None = None,
        room: int = 0,
        sizes: Mapping[str, int] | None = None,
        prompt_model: str | os.PathLike[str] | bytes | None = None,
        providers: Sequence[Any] | None = None,
    ) -> None:
        if room < 0:
            raise errors.InvalidArgument(f"room is {room}: expected a number of positions, 0 for as many as are needed")
        graph = load(model).graph
        self._inputs = {value.name: value for value in graph.inputs if value.constant is None}
        outputs = [value.name for value in graph.outputs]
        if "input_ids" not in self._inputs:
            raise errors.InvalidArgument(
                f"the model has no input 'input_ids', only {', '.join(self._inputs)}: it is no decoder of tokens"
            )
        self._logits = "logits" if "logits" in outputs else outputs[0]
        given_first = [] if prompt_model is None else [value.name for value in load(prompt_model).graph.outputs]
        self._pairs = dict(caches) if caches is not None else paired(self._inputs, [*outputs, *given_first])
        self.is_grouped = any(node.op_type == "GroupQueryAttention" for node in walk(graph))
        self._vocabulary = _vocabulary(graph)
        self._room = room
        options = SessionOptions() if options is None else options.copy()
        options.add_session_config_entry(CACHES_KEY, "1")
        options.add_session_config_entry(LAST_KEY, self._logits)
        is_merged = _SWITCH in self._inputs
        sessions = {_STEP: _open(model, options, "1" if is_merged else "", providers)}
        if is_merged or prompt_model is not None:
            sessions[_PROMPT] = _open(model if is_merged else prompt_model, options, "0" if is_merged else "", providers)
        self._pairs = _divided(self._pairs, {each.name for each in sessions[_STEP].get_inputs()})
        self._programs = {
            kind: _Program(session, self._logits, self._pairs, is_grouped=self.is_grouped) for kind, session in sessions.items()
        }
        self._caches = [self._cache(past, present, sizes or {}) for past, present in self._pairs.items()]
        self._lengths: Array = np.zeros(0, np.int64)  # tokens of each row
        self._filled = 0  # positions of the caches, padding included
        self._padding: Array = np.zeros(0, np.int64)  # of each row, on the left
        self._tokens: list[Array] = []  # of models without a past: all they have read
        self._context: dict[str, Array] = {}  # inputs that stay the same, a row each: what an encoder gave

    @property
    def session(self) -> InferenceSession:
        """The session that runs single tokens."""
        return self._programs[_STEP].session

    @property
    def cache_bytes(self) -> int:
        """How much memory keys and values have."""
        return sum(cache.array.nbytes for cache in self._caches)

    def _cache(self, past: str, present: str, sizes: Mapping[str, int]) -> Cache:
        value = next((each for each in self.session.get_inputs() if each.name == past), None)
        if value is None:
            raise errors.InvalidArgument(
                f"cache {past!r}: the model has no such input", hint=f"inputs: {', '.join(self._inputs)}"
            )
        shape = value.shape
        if len(shape) != 4:
            raise errors.InvalidArgument(
                f"cache {past!r} has the shape {shape}: expected [rows, heads, positions, size of a head]"
            )
        heads, size = (
            found if isinstance(found, int) else sizes.get(name)
            for found, name in ((shape[1], "num_key_value_heads"), (shape[3], "head_dim"))
        )
        if heads is None or size is None:
            raise errors.InvalidArgument(
                f"cache {past!r} has the shape {shape}: heads and their size are not known",
                hint="give them as sizes={'num_key_value_heads': ..., 'head_dim': ...}",
            )
        is_cross = reads_encoder(past)
        has_room = (shape[2] == ROOM or self.is_grouped) and not is_cross
        return Cache(past, present, element_type(value), heads, size, has_room=has_room, is_cross=is_cross)

    # What the loop asks for

    def begin(self, prompts: Sequence[Any]) -> Array:
        """Forget everything and read these prompts."""
        rows = [np.asarray(prompt, np.int64) for prompt in prompts]
        self._check_tokens(rows)
        self._lengths = np.array([len(row) for row in rows], np.int64)
        longest = int(self._lengths.max())
        self._padding = np.zeros(len(rows), np.int64) if self.is_grouped else longest - self._lengths
        self._filled = 0
        if not self._caches:
            self._tokens = rows
            return self._read_all()
        room = max(self._room, longest + 1, _LEAST_ROOM)
        for cache in self._caches:
            cache.empty(len(rows), room)
        ids = np.zeros((len(rows), longest), np.int64)
        for row, start, prompt in zip(ids, self._padding, rows):
            row[start : start + len(prompt)] = prompt
        return self._run(ids, self._lengths if self.is_grouped else np.full(len(rows), longest), _PROMPT)

    def extend(self, tokens: Any) -> Array:
        """Read one more token for each row."""
        ids = np.asarray(tokens, np.int64).reshape(-1, 1)
        if len(ids) != len(self._lengths):
            raise errors.InvalidArgument(f"{len(ids)} tokens were given for {len(self._lengths)} rows")
        self._check_tokens(ids)
        self._lengths = self._lengths + 1
        if not self._caches:
            self._tokens = [np.append(row, token) for row, token in zip(self._tokens, ids)]
            return self._read_all()
        return self._run(ids, np.ones(len(ids), np.int64), _STEP)

    def reorder(self, rows: Any) -> None:
        """Go on with these rows."""
        order = np.asarray(rows, np.int64)
        if order.ndim != 1 or (order.size and (int(order.min()) < 0 or int(order.max()) >= len(self._lengths))):
            raise errors.InvalidArgument(f"rows {order.tolist()} to go on with: expected some of 0 to {len(self._lengths) - 1}")
        for cache in self._caches:
            if not cache.is_cross:
                cache.reorder(order, self._filled)
        self._reorder_context(order)
        self._lengths, self._padding = self._lengths[order], self._padding[order]
        self._tokens = [self._tokens[row] for row in order] if self._tokens else []

    def _reorder_context(self, order: Array) -> None:
        """Rows of what an encoder gave, and of the keys and values of it."""
        for cache in self._caches:
            if cache.is_cross:
                cache.reorder(order, 0)
        self._context = {name: np.ascontiguousarray(array[order]) for name, array in self._context.items()}

    def _check_tokens(self, rows: Iterable[Array]) -> None:
        for number, row in enumerate(rows):
            limit = self._vocabulary
            if row.size and (int(row.min()) < 0 or (limit is not None and int(row.max()) >= limit)):
                bad = int(row[(row < 0) | (row >= (limit or 1 << 62))][0])
                known = f"from 0 to {limit - 1}" if limit else "0 or more"
                raise errors.InvalidArgument(f"input_ids: row {number} has the token {bad}, the model knows those {known}")

    def _read_all(self) -> Array:
        """The scores of a model without a past."""
        longest = int(self._lengths.max())
        ids = np.zeros((len(self._tokens), longest), np.int64)
        self._padding = longest - self._lengths
        for row, start, tokens in zip(ids, self._padding, self._tokens):
            row[start:] = tokens
        self._filled = 0
        return self._run(ids, np.full(len(ids), longest), _PROMPT)

    def _run(self, ids: Array, counts: Array, kind: str) -> Array:
        """Read tokens [rows, new]; `counts` says how many of each row, counted from the left, are no padding on the right."""
        program = self._programs.get(kind) or self._programs[_STEP]
        new = ids.shape[1]
        total = int(self._lengths.max()) if self.is_grouped else self._filled + new
        room = next((cache.array.shape[2] for cache in self._caches if cache.has_room), total)
        if total > room:
            for cache in self._caches:
                if cache.has_room:
                    cache.grow(max(total, int(room * _GROWTH)), self._filled)
        feeds = self._feeds(program, ids, counts, total)
        last = np.arange(len(ids)) * new + counts - 1
        logits = program.run(feeds, self._caches, last.reshape(-1, 1), self._filled)
        self._filled = total
        found: Array = logits[:, -1] if logits.shape[1] == 1 else logits[np.arange(len(ids)), counts - 1]
        return found.astype(np.float32, copy=False)

    def _feeds(self, program: _Program, ids: Array, counts: Array, total: int) -> dict[str, Array]:
        new = ids.shape[1]
        positions = np.arange(total)
        if self.is_grouped:
            mask = positions < self._lengths[:, None]
            where = (self._lengths - counts)[:, None] + np.arange(new)
        else:
            mask = positions >= self._padding[:, None]
            where = np.maximum(np.arange(total - new, total) - self._padding[:, None], 0)
        made: dict[str, Any] = {
            "input_ids": ids,
            "attention_mask": mask,
            "position_ids": where,
            "cache_position": np.arange(total - new, total),
            "token_type_ids": np.zeros_like(ids),
            "num_logits_to_keep": np.ones((), np.int64),
            _SWITCH: np.array([self._filled > 0]),
            **self._context,
        }
        for name in program.markers:
            made[name] = np.zeros(self._filled, bool)
        feeds: dict[str, Array] = {}
        for name, dtype in program.types.items():
            if name not in made:
                raise errors.InvalidArgument(
                    f"the model has an input {name!r}, which the decoder loop does not know", hint=f"known: {', '.join(made)}"
                )
            feeds[name] = np.ascontiguousarray(made[name]).astype(dtype, copy=False)
        return feeds


class _Program:
    """A session, run with caches in place."""

    def __init__(self, session: InferenceSession, logits: str, pairs: Mapping[str, str], *, is_grouped: bool) -> None:
        self.session = session
        ports = {each.name: each for each in session.get_inputs()}
        self.markers = [name for name in ports if name == FILLED or name.startswith(f"{FILLED}.")]
        self._has_rows = ROWS in ports
        self.types = {name: element_type(each) for name, each in ports.items() if name not in pairs and name != ROWS}
        self._reads = {past for past in pairs if past in ports}
        # Keys and values of an encoder are given out by the program that computes them, which does not read them.
        self._gives = {past for past in pairs if not (reads_encoder(past) and past in ports)}
        self._fetches = [logits, *(present for past, present in pairs.items() if past in self._gives)]
        # Caches that are one buffer, by their past; of others the model gives out the whole present.
        self.appends_to = {
            past for past in self._reads if (is_grouped or ports[past].shape[2] == ROOM) and not reads_encoder(past)
        }

    def run(self, feeds: dict[str, Array], caches: Sequence[Cache], rows: Array, filled: int) -> Array:
        """The logits; caches are read and written in place, where the program can do that."""
        targets: list[Array | None] = [None]
        shared: dict[int, str] = {}
        given = [cache for cache in caches if cache.past in self._gives]
        for position, cache in enumerate(given, 1):
            is_one_buffer = cache.past in self.appends_to
            targets.append(cache.array if is_one_buffer else None)
            if is_one_buffer:
                shared[position] = cache.past
        for cache in caches:
            if cache.past in self._reads:
                is_whole = cache.is_cross or cache.past in self.appends_to
                feeds[cache.past] = cache.array if is_whole else cache.array[:, :, :filled].copy()
        if self._has_rows:
            feeds[ROWS] = rows
        control = RunControl(targets=targets, shared=shared)
        logits, *presents = self.session._opened.program.run(feeds, self._fetches, control)
        for cache, present in zip(given, presents):
            if present is not cache.array:
                cache.take(present)
        found: Array = logits
        return found


def reads_encoder(past: str) -> bool:
    """Whether a cache, by its name, has keys or values of what an encoder gave."""
    return "encoder" in past.split(".") or "_cross_" in past


def element_type(port: NodeArg) -> np.dtype[Any]:
    """The NumPy type of an input."""
    return from_ort(port.type.removeprefix("tensor(").removesuffix(")")).numpy


def _open(model: Any, options: SessionOptions, switch: str, providers: Sequence[Any] | None) -> InferenceSession:
    chosen = options.copy()
    if switch:
        chosen.add_session_config_entry(FIXED_KEY, f"{_SWITCH}={switch}")
    return InferenceSession(os.fspath(model) if isinstance(model, os.PathLike) else model, chosen, providers)


def paired(inputs: Iterable[str], outputs: Sequence[str]) -> dict[str, str]:
    """The present of every past, by their names: past_key_values.0.key and present.0.key, past_0 and present_0, and so on."""
    found: dict[str, str] = {}
    known = set(outputs)
    for name in inputs:
        if not name.startswith("past"):
            continue
        for old, new in (("past_key_values", "present"), ("past", "present"), ("past", "present_key_values")):
            if name.replace(old, new, 1) in known:
                found[name] = name.replace(old, new, 1)
                break
        else:
            raise errors.InvalidArgument(
                f"input {name!r}: no output is its present; outputs: {', '.join(outputs)}",
                hint="name it: Decoder(model, caches={past: present, ...})",
            )
    return found


def _divided(pairs: Mapping[str, str], inputs: Set[str]) -> dict[str, str]:
    """The pairs as a session takes and gives them: a past that holds keys and values together may have become two."""
    found: dict[str, str] = {}
    for past, present in pairs.items():
        parts = {f"{past}.{part}": f"{present}.{part}" for part in PARTS}
        found |= parts if past not in inputs and inputs >= parts.keys() else {past: present}
    return found


def _vocabulary(graph: Graph) -> int | None:
    """How many tokens the model knows: the rows of the table that input_ids are looked up in."""
    ids = next((value for value in graph.inputs if value.name == "input_ids"), None)
    pending = [ids] if ids is not None else []
    seen = set(pending)
    while pending:
        value = pending.pop()
        for node, position in value.uses:
            if node.op_type in ("Gather", "GatherBlockQuantized") and position == 1:
                table = node.inputs[0]
                shape = None if table is None else table.shape
                if shape and isinstance(shape[0], int):
                    return shape[0]
            if node.op_type in ("Cast", "Reshape", "Identity") and position == 0 and node.outputs[0] not in seen:
                seen.add(node.outputs[0])
                pending.append(node.outputs[0])
    return None
