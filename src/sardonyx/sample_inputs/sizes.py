"""Sizes for the dimensions a model leaves open, such that its nodes accept them.

    images: f32[batch,3,height,width]     with a Concat of two strides   ->  batch = 1, height = width = 224

A dimension has a kind, by its name or its position (batch, side of a picture, sequence, past, features, channels), with usual
sizes. Shape inference over the whole graph with sizes put in says which node refuses them first; then the sizes this node depends
on are changed until it accepts them, dimensions of one kind together before each alone. Candidates are the usual sizes, the sizes
that constants of the model have, and small numbers.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, Literal, TypeAlias

from sardonyx.analysis.shapes import ShapeReport, report_shapes
from sardonyx.ir.dims import Dim, symbols_of
from sardonyx.ir.graph import Model, Node, Value, walk
from sardonyx.ir.tensor import Tensor
from sardonyx.ir.types import TensorType, Type
from sardonyx.records import dataclass
from sardonyx.sample_inputs.features import feature_count

Kind: TypeAlias = Literal["batch", "past", "side", "sequence", "channels", "features"]
Sizes: TypeAlias = Mapping[str, int]  # key of an open dimension -> its size

_USUAL: Final[dict[Kind, tuple[int, ...]]] = {
    "batch": (1, 2, 4, 8),
    "past": (0, 1, 8),
    "side": (224, 256, 320, 640, 512, 384, 299, 128, 96, 64, 48, 32, 28, 1024),
    "sequence": (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384),
    "channels": (3, 1, 4, 2),
    "features": (1, 2, 4, 8, 16, 32, 64, 128, 256),
}
_ORDER: Final[tuple[Kind, ...]] = ("features", "channels", "side", "sequence", "past", "batch")
_SMALL: Final = (*range(1, 65), *range(72, 513, 8), *range(576, 1025, 64))
_NAMES: Final[tuple[tuple[str, Kind], ...]] = (
    (r"past|cache", "past"),
    (r"batch|^bsz?$", "batch"),
    (r"height|width|image_size|imgsz", "side"),
    (r"chan", "channels"),
    (r"feat|hidden|embed", "features"),
    (r"seq|len|time|token|frame|step|sample", "sequence"),
)
_EXPECTED: Final = re.compile(r"input (\d+)[^\[]* is \[([^\]]*)\], expected \[([^\]]*)\]")
_FURTHEST: Final = 1 << 40  # the number of a node behind all others
_NODES_VISITED: Final = 200_000  # by one search, all inferences together
_FEW: Final = 16  # inferences
_LARGEST: Final = 1 << 16  # a size worth trying, out of the shape of a constant
_MOST_SPATIAL: Final = 5  # axes of a batch of volumes; with more the axes mean something else
_RANKS: Final = (2, 1, 3, 4, 0)  # tried in this order for an input of unknown rank


@dataclass(frozen=True)
class OpenSize:
    """A dimension of the inputs that has no size yet."""

    key: str  # its name, or `input[axis]` where nobody named it
    kind: Kind
    first: tuple[int, ...] = ()  # sizes to try before the usual ones of its kind


@dataclass(frozen=True, order=True)
class Verdict:
    """How well sizes fit; the larger the better. `first` and `conditional` number the first node that refuses them."""

    first: int
    inside: int  # how far this node's checks got
    conditional: int  # inside a branch or body, which may not be run for these sizes
    empty: int  # minus the number of nodes that make an empty result out of full ones, or read outside of their input

    @property
    def is_perfect(self) -> bool:
        return self.first == self.conditional == _FURTHEST and not self.empty


@dataclass
class SizeSearch:
    """The open sizes of one model. `shapes` has the shapes of inputs that are given, `named` the sizes of dimensions that are."""

    model: Model  # without calls of functions
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    named: Sizes = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.inputs = [value for value in self.model.graph.inputs if value.constant is None]
        self._numbers = {node: number for number, node in enumerate(walk(self.model.graph))}
        self._inferences = max(40, _NODES_VISITED // max(len(self._numbers), 1))
        self._verdicts: dict[tuple[int, ...], tuple[Verdict, Node | None]] = {}
        self._symbolic: ShapeReport | None = None
        self._demanded = tuple(sorted(set(_constant_sizes(self._numbers))))
        self.ranks = self._guess_ranks()
        self.open = list(self._open_sizes())

    def shape(self, value: Value, sizes: Sizes) -> tuple[int, ...] | None:
        """The shape of an input under these sizes; None if it is no tensor."""
        if value.name in self.shapes:
            return tuple(self.shapes[value.name])
        dims = self._dims(value)
        if dims is None:
            return None
        return tuple(dim if isinstance(dim, int) else self._size(_key(value, axis, dim), sizes) for axis, dim in enumerate(dims))

    def report(self, sizes: Sizes) -> ShapeReport:
        """Types of all values under these sizes."""
        return report_shapes(self.model, self._types(sizes))

    def fits(self) -> Iterator[dict[str, int]]:
        """Assignments of sizes, the best first; those after it fit as well and differ in one kind of dimension."""
        best = self._search()
        yield best
        wanted, _ = self._judge(best)
        for kind in dict.fromkeys(size.kind for size in self.open):
            group = [size for size in self.open if size.kind == kind]
            for candidate in self._candidates(group, None)[: len(_USUAL[kind])]:
                other = {**best, **{size.key: candidate for size in group}}
                if other != best and self._judge(other)[0] >= wanted:
                    yield other

    def related(self, node: Node | None) -> list[OpenSize]:
        """The open sizes that the shapes of a node's inputs depend on; all if that cannot be told."""
        if node is None:
            return self.open
        if self._symbolic is None:
            self._symbolic = report_shapes(self.model)
        texts: set[str] = set()
        for value in node.inputs:
            type_ = None if value is None else self._symbolic.types.get(value)
            known = None if value is None else self._symbolic.values.known_of(value)
            dims: list[Dim] = [] if known is None else list(known.reshape(-1).tolist())
            if isinstance(type_, TensorType):
                dims += type_.shape or ()
            for dim in dims:
                texts |= symbols_of(dim)
        keys = {self._keys_by_symbol.get(text, text) for text in texts}
        found = [size for size in self.open if size.key in keys]
        return found or self.open

    def node_named(self, name: str) -> Node | None:
        """The node of this name."""
        return next((node for node in self._numbers if node.name == name), None) if name else None

    def improve(self, sizes: Sizes, node: Node | None) -> Iterator[dict[str, int]]:
        """Other sizes for what a node depends on that refused these in a run."""
        for group in _groups(self.related(node)):
            for candidate in self._candidates(group, node):
                other = {**sizes, **{size.key: candidate for size in group}}
                if other != sizes and self._judge(other)[0] >= self._judge(sizes)[0]:
                    yield other

    def _search(self) -> dict[str, int]:
        best = {size.key: self._candidates([size], None)[0] for size in self.open}
        verdict, node = self._judge(best)
        while not verdict.is_perfect and len(self._verdicts) < self._inferences:
            better = self._step(best, verdict, node)
            if better is None:
                break
            best, verdict, node = better
        return best

    def _step(
        self, sizes: dict[str, int], verdict: Verdict, node: Node | None
    ) -> tuple[dict[str, int], Verdict, Node | None] | None:
        """Sizes that get further, for the first group of dimensions with which that is possible."""
        groups = list(_groups(self.related(node)))
        # What only branches refuse, and empty results, are not worth a long search.
        most = self._inferences if verdict.first < _FURTHEST else min(self._inferences, len(self._verdicts) + _FEW)
        for likely in (True, False):
            for group in groups:
                for candidate in self._candidates(group, node, likely=likely):
                    if len(self._verdicts) >= most:
                        return None
                    other = {**sizes, **{size.key: candidate for size in group}}
                    judged, stopped = self._judge(other)
                    if judged > verdict:
                        return other, judged, stopped
        return None

    def _judge(self, sizes: Sizes) -> tuple[Verdict, Node | None]:
        """How well sizes fit, and the first node that refuses them."""
        key = tuple(sizes[size.key] for size in self.open)
        found = self._verdicts.get(key)
        if found is None:
            found = self._verdicts[key] = self._inferred(sizes)
        return found

    def _inferred(self, sizes: Sizes) -> tuple[Verdict, Node | None]:
        report = self.report(sizes)
        refused = sorted((node for node in report.refusals if node in self._numbers), key=self._numbers.__getitem__)
        certain = [node for node in refused if node.graph is self.model.graph]
        conditional = [node for node in refused if node.graph is not self.model.graph]
        emptied = [node for node in self._numbers if _makes_empty(node, report) or _reads_outside(node, report)]
        first = self._numbers[certain[0]] if certain else _FURTHEST
        inside = self._numbers[conditional[0]] if conditional else _FURTHEST
        progress = _progress(report.refusals[certain[0]]) if certain else 0
        return Verdict(first, progress, inside, -len(emptied)), next(iter((*certain, *conditional, *emptied)), None)

    def _candidates(self, group: Sequence[OpenSize], node: Node | None, *, likely: bool = True) -> list[int]:
        """Sizes to try for these dimensions; `node` refused others. Unlikely are small numbers and the sizes of all constants."""
        if not likely:
            return list(dict.fromkeys((*_SMALL, *self._demanded)))
        kind = group[0].kind
        first, usual = [number for size in group for number in size.first], _USUAL[kind]
        if node is None:
            return list(dict.fromkeys((*first, *usual)))
        own = tuple(_constant_sizes([node]))
        if node.op_type == "Gather":  # there are more positions than the table has
            return list(dict.fromkeys((*own, 4, 2, 1)))
        if kind in ("side", "sequence"):  # what a node demands has been made smaller on the way to it, most often by halves
            sides = (math.isqrt(size) for size in own) if kind == "side" else ()
            own = tuple(size * factor for size in (*own, *sides) for factor in (1, 2, 4, 8, 16, 32) if size * factor <= _LARGEST)
        ordered = (*own, *usual) if kind == "features" else (*usual, *own)
        return list(dict.fromkeys((*first, *ordered)))

    def _types(self, sizes: Sizes) -> dict[str, Type]:
        types: dict[str, Type] = {}
        for value in self.inputs:
            shape = self.shape(value, sizes)
            if shape is not None and isinstance(value.type, TensorType):
                types[value.name] = TensorType(value.type.dtype, shape)
        return types

    def _dims(self, value: Value) -> tuple[Dim | None, ...] | None:
        """The declared dimensions; None stands for one of an input whose rank was guessed."""
        if not isinstance(value.type, TensorType):
            return None
        return value.type.shape if value.type.shape is not None else (None,) * self.ranks.get(value.name, 0)

    def _size(self, key: str, sizes: Sizes) -> int:
        size = sizes.get(key, self.named.get(key))
        if size is not None:
            return size
        parts = [part.strip() for part in key.split("+")]  # `past_sequence_length + sequence_length`
        return sum(int(part) if part.isdigit() else sizes.get(part, self.named.get(part, 1)) for part in parts)

    def _guess_ranks(self) -> dict[str, int]:
        """Ranks of inputs that have none: those for which the first refusal comes last."""
        unknown = [
            value.name
            for value in self.inputs
            if isinstance(value.type, TensorType) and value.type.shape is None and value.name not in self.shapes
        ]
        if not unknown:
            return {}

        def judged(rank: int) -> Verdict:
            self.ranks = dict.fromkeys(unknown, rank)
            self.open = list(self._open_sizes())
            return self._inferred({size.key: self._candidates([size], None)[0] for size in self.open})[0]

        return dict.fromkeys(unknown, max(_RANKS, key=judged))

    def _open_sizes(self) -> Iterator[OpenSize]:
        self._keys_by_symbol: dict[str, str] = {}
        seen = set(self.named)
        image_size = _image_size(self.model.metadata)
        for value in self.inputs:
            dims = self._dims(value)
            if dims is None or value.name in self.shapes:
                continue
            for axis, dim in enumerate(dims):
                key = "" if isinstance(dim, int) else _key(value, axis, dim)
                if dim is not None:
                    self._keys_by_symbol[str(dim)] = key
                if not key or key in seen or _is_sum(key, self.inputs):
                    continue
                seen.add(key)
                kind = _kind(value, dims, axis, key)
                first: tuple[int, ...] = ()
                if kind == "side" and image_size:
                    first = (image_size[min(len(image_size) - 1, 1 if axis == len(dims) - 1 else 0)],)
                elif kind == "side" and len(dims) == _MOST_SPATIAL:
                    first = (32,)
                elif kind == "features":
                    count = feature_count(value)
                    first = (count,) if count else ()
                yield OpenSize(key, kind, first)


def _groups(sizes: Sequence[OpenSize]) -> Iterator[list[OpenSize]]:
    """All dimensions of one kind together, then each alone; those first whose usual sizes are least certain."""
    for kind in _ORDER:
        same = [size for size in sizes if size.kind == kind]
        if len(same) > 1:
            yield same
    for size in sorted(sizes, key=lambda size: _ORDER.index(size.kind)):
        yield [size]


def _key(value: Value, axis: int, dim: Dim | None) -> str:
    return f"{value.name}[{axis}]" if dim is None or isinstance(dim, int) or dim.is_anonymous else str(dim)


def _is_sum(key: str, inputs: Iterable[Value]) -> bool:
    """Whether a name is a sum of the names of other dimensions, as exporters write them."""
    parts = [part.strip() for part in key.split("+")]
    names = {str(dim) for value in inputs for dim in value.shape or ()}
    return len(parts) > 1 and all(part.isdigit() or part in names for part in parts)


def _kind(value: Value, dims: Sequence[Dim | None], axis: int, key: str) -> Kind:
    """What a dimension is, by its name if it has one that says so, else by its position."""
    if not key.endswith("]"):
        for pattern, kind in _NAMES:
            if re.search(pattern, key.lower()):
                return kind
    if axis == 0 and len(dims) > 1:
        return "batch"
    if len(dims) == 3 and axis == 1 and re.search(r"state|hidden|^[hc]\d?n?$", value.name.lower()):
        return "batch"  # of a recurrent layer: directions, batch, units
    if re.search(r"past|cache", value.name.lower()):
        return "past" if axis == len(dims) - 2 else "features"
    is_float = isinstance(value.type, TensorType) and value.type.dtype.is_float
    if len(dims) > _MOST_SPATIAL:
        return "batch"
    if len(dims) >= 4:
        channels_last = isinstance(dims[-1], int) and dims[-1] in (1, 3, 4) and not isinstance(dims[1], int)
        channel_axis = len(dims) - 1 if channels_last else 1
        return "channels" if axis == channel_axis else "side"
    if (len(dims) == 2 and is_float) or (len(dims) == 3 and axis == 2):
        return "features"
    return "sequence"


def _image_size(metadata: Mapping[str, str]) -> tuple[int, ...]:
    """The size of pictures a model was trained for, if it says so: `imgsz: [320, 320]`."""
    try:
        found = ast.literal_eval(metadata.get("imgsz", ""))
    except (ValueError, SyntaxError):
        return ()
    sizes = (found,) if isinstance(found, int) else found
    return (
        tuple(sizes)
        if isinstance(sizes, (list, tuple)) and sizes and all(isinstance(each, int) and each > 0 for each in sizes)
        else ()
    )


def _constant_sizes(nodes: Iterable[Node]) -> Iterator[int]:
    """Sizes that shapes of constants and declared shapes have, and small numbers in constants that are shapes themselves."""
    for node in nodes:
        for value in node.inputs:
            if value is None:
                continue
            yield from (size for size in value.shape or () if isinstance(size, int) and 0 < size <= _LARGEST)
            if not isinstance(value.constant, Tensor):
                continue
            yield from (size for size in value.constant.shape if 0 < size <= _LARGEST)
            if node.op_type in ("Reshape", "Expand", "Resize") and value.constant.size <= 8 and value.constant.dtype.is_integer:
                yield from (int(size) for size in value.constant.numpy().reshape(-1) if 0 < size <= _LARGEST)


def _progress(refusal: str) -> int:
    """How far a node's checks got: they look at one input after the other, and at each the more sizes are right, the better."""
    match = _EXPECTED.match(refusal)
    if match is None:
        return 0
    number, found, expected = match.groups()
    right = sum(have == want for have, want in zip(found.split(","), expected.split(",")))
    return 100 * int(number) + int(right)


def _makes_empty(node: Node, report: ShapeReport) -> bool:
    """Whether nothing is left of a picture or sequence here: a window that is larger than its input, a slice beyond the end."""

    def is_empty(value: Value | None) -> bool:
        type_ = None if value is None else report.types.get(value)
        return isinstance(type_, TensorType) and type_.shape is not None and len(type_.shape) > 2 and 0 in type_.shape

    return any(map(is_empty, node.outputs)) and not any(map(is_empty, node.inputs))


def _reads_outside(node: Node, report: ShapeReport) -> bool:
    """Whether a Gather with known indices, positions in a table above all, reads beyond the end."""
    if node.op_type != "Gather" or node.domain or len(node.inputs) < 2 or node.inputs[0] is None or node.inputs[1] is None:
        return False
    type_, indices = report.types.get(node.inputs[0]), report.values.known_of(node.inputs[1])
    axis = node.attr("axis", 0)
    shape = type_.shape if isinstance(type_, TensorType) else None
    if shape is None or indices is None or not -len(shape) <= axis < len(shape):
        return False
    size = shape[axis]
    return isinstance(size, int) and any(isinstance(at, int) and not -size <= at < size for at in indices.reshape(-1).tolist())
