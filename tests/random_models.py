"""Random models: typed graphs of many operators that fit together, with feeds of several sizes.

Every value is computed by the NumPy definitions while the graph grows, for several sizes of the symbolic dimensions at once,
so that a node that would fail is left out and static sizes are told from dynamic ones. A value knows whether it is `exact`: only
those may go where a rounding error would become a jump (comparisons, casts to integers, indices).

    made = random_model(seed=7, steps=20)      the same seed with fewer steps is the same graph, cut off
    session = InferenceSession(made.content)
    session.run(None, made.feeds(N=3, S=5))
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from native_support import in_order
from sardonyx import dtypes
from sardonyx.compile.providers import reference_model
from sardonyx.errors import SardonyxError
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.dims import Dim, symbol
from sardonyx.ir.graph import Graph, Value
from sardonyx.ir.types import TensorType

Array = NDArray[Any]
Sizes = dict[str, int]

VERSION = 22
SYMBOLS = ("N", "S", "T")
GROWN_WITH: tuple[Sizes, ...] = ({"N": 2, "S": 5, "T": 3}, {"N": 3, "S": 1, "T": 4})  # what a graph must be able to do
LARGEST = 300.0  # numbers beyond that are not computed with: rounding errors would grow too large to compare

FLOATS = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
INTEGERS = tuple(np.dtype(name) for name in ("int64", "int32", "int8", "uint8"))
BOOL = np.dtype(np.bool_)
CAST_TARGETS = (*FLOATS, *INTEGERS, BOOL)


@dataclass(frozen=True)
class Item:
    """A value with what it is for each of the sizes the graph is grown with."""

    value: Value
    arrays: tuple[Array, ...]
    exact: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.arrays[0].dtype

    @property
    def rank(self) -> int:
        return self.arrays[0].ndim

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def is_integer(self) -> bool:
        return self.dtype in INTEGERS

    def static(self, axis: int) -> bool:
        """Whether a dimension is the same for all sizes."""
        return len({array.shape[axis] for array in self.arrays}) == 1

    def size(self, axis: int) -> int:
        """The smallest size of a dimension."""
        return min(int(array.shape[axis]) for array in self.arrays)

    @property
    def is_small(self) -> bool:
        return all(array.size <= 20_000 for array in self.arrays)


@dataclass(frozen=True)
class Input:
    """How an input is made for given sizes."""

    name: str
    shape: tuple[int | str, ...]
    dtype: np.dtype[Any]
    seed: int

    def array(self, sizes: Sizes, special: bool) -> Array:
        shape = tuple(sizes[size] if isinstance(size, str) else size for size in self.shape)
        generator = np.random.default_rng(self.seed)
        if self.dtype == BOOL:
            return generator.integers(0, 2, shape).astype(BOOL)
        if self.dtype in INTEGERS:
            return generator.integers(0 if self.dtype.kind == "u" else -4, 5, shape).astype(self.dtype)
        made = np.round(generator.standard_normal(shape), 2)
        if special and made.size:
            flat = made.reshape(-1)
            places = generator.integers(0, flat.size, 3)
            flat[places] = generator.choice([np.nan, np.inf, -np.inf, 1e-42, 0.0, -0.0], 3)
            made = flat.reshape(shape)
        return np.asarray(made.astype(self.dtype))


@dataclass
class RandomModel:
    """A model and its inputs."""

    graph: Graph
    inputs: list[Input]
    content: bytes = b""

    @property
    def loosest(self) -> str:
        """The narrowest float type among the values: no result can be expected to be better than that."""
        casts = [dtypes.from_onnx(node.attr("to")).numpy for node in self.graph.nodes if node.op_type == "Cast"]
        names = {np.dtype(kind).name for kind in (*casts, *(each.dtype for each in self.inputs))}
        return next((name for name in ("bfloat16", "float16", "float32") if name in names), "float64")

    def feeds(self, sizes: Sizes, special: bool = False) -> dict[str, Array]:
        return {each.name: each.array(sizes, special) for each in self.inputs}


@dataclass
class Grower:
    """A graph that grows by one random node after the other."""

    random: random.Random
    symbolic: bool
    builder: GraphBuilder = field(default_factory=lambda: GraphBuilder(Graph("main"), VERSION))
    pool: list[Item] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)

    # Drawing

    def chance(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    def pick(self, accept: Callable[[Item], bool] = lambda item: True) -> Item:
        """One of the values that fit, mostly a late one; StopIteration if there is none."""
        fitting = [item for item in self.pool if accept(item)]
        if not fitting:
            raise StopIteration
        late = fitting[-4:] if self.random.random() < 0.7 else fitting
        return self.random.choice(late)

    def floats(self, accept: Callable[[Item], bool] = lambda item: True) -> Item:
        """A float value that can be computed with."""
        return self.pick(lambda item: item.is_float and item.is_small and accept(item))

    def weights(self, dtype: np.dtype[Any], *shape: int) -> Array:
        generator = np.random.default_rng(self.random.randrange(1 << 30))
        return np.asarray(np.round(generator.standard_normal(shape), 2).astype(dtype))

    def axis(self, item: Item, *, negative: bool = True) -> int:
        axis = self.random.randrange(item.rank) if item.rank else 0
        return axis - item.rank if negative and self.chance(3) else axis

    # Growing

    def put(
        self, op_type: str, *inputs: Any, count: int = 1, exact: bool | None = None, domain: str = "", **attrs: Any
    ) -> list[Item]:
        """Add a node and compute it. What NumPy refuses, or what is too large to compare, is left out again."""
        exact = all(each.exact for each in inputs if isinstance(each, Item)) if exact is None else exact
        operands = [each.value if isinstance(each, Item) else each for each in inputs]
        outputs = self.builder.node(op_type, operands, count, attrs=attrs, domain=domain, version=1 if domain else None)
        node = outputs[0].producer
        assert node is not None
        try:
            made = [Item(output, tuple(arrays), exact) for output, arrays in zip(outputs, self.compute(outputs))]
            usable = all(_is_usable(array) for item in made for array in item.arrays)
        except SardonyxError:
            usable = False
        if not usable:
            self.builder.graph.remove(node)
            raise StopIteration
        self.pool.extend(made)
        return made

    def compute(self, outputs: Sequence[Value]) -> list[list[Array]]:
        """The values for all sizes the graph is grown with; what was computed before is an input."""
        program = reference_model(self.builder.graph, in_order)
        results = []
        for sizes in GROWN_WITH:
            feeds = {each.name: each.array(sizes, False) for each in self.inputs}
            results.append(program.run(feeds, [output.name for output in outputs]))
        return [list(arrays) for arrays in zip(*results)]

    def add_input(self, shape: Sequence[int | str], dtype: Any) -> None:
        name = f"in{len(self.inputs)}"
        made = Input(name, tuple(shape), np.dtype(dtype), self.random.randrange(1 << 30))
        self.inputs.append(made)
        base = GROWN_WITH[0]
        dims: list[Dim] = [(symbol(size) if self.symbolic else base[size]) if isinstance(size, str) else size for size in shape]
        if not self.symbolic:
            self.inputs[-1] = Input(name, tuple(base[s] if isinstance(s, str) else s for s in shape), made.dtype, made.seed)
        value = self.builder.input(name, TensorType(dtypes.from_numpy(made.dtype), tuple(dims)))
        arrays = tuple(self.inputs[-1].array(sizes, False) for sizes in GROWN_WITH)
        self.pool.append(Item(value, arrays, True))


def _is_usable(array: Any) -> bool:
    if not isinstance(array, np.ndarray) or array.size > 60_000:
        return False
    if array.dtype in FLOATS:
        wide = array.astype(np.float64)
        return bool(np.isfinite(wide).all() and (np.abs(wide) <= LARGEST).all())
    return True
