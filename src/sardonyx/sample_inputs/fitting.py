"""Inputs that a model accepts, found by looking at its graph and, if a run is to be had, by trying.

fitted = fitting_inputs("detector.onnx", lambda feeds: session.run(None, feeds))
fitted.shapes   {"images": (1, 3, 320, 320)}
fitted.result   what the run gave
"""

from __future__ import annotations

import itertools
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

import numpy as np

from sardonyx import dtypes, errors
from sardonyx.formats.loading import load
from sardonyx.ir.clone import Cloner
from sardonyx.ir.graph import Model, Value
from sardonyx.ir.types import OptionalType, SequenceType, SparseTensorType, TensorType, Type
from sardonyx.passes.inline_functions import InlineFunctions
from sardonyx.records import dataclass
from sardonyx.runtime.ports import NodeArg
from sardonyx.sample_inputs.contents import Content, demanded_contents
from sardonyx.sample_inputs.random_values import make_up, named_sizes, random_tensor
from sardonyx.sample_inputs.sizes import SizeSearch

Result = TypeVar("Result")
_MOST_RUNS: Final = 24
_PATIENCE: Final = 20.0  # seconds after which no further run is tried
_SAME_ERROR: Final = 4  # runs with one and the same error, after which it is not the inputs' fault
_SHOWN: Final = 3
_MOST_BYTES: Final = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 if hasattr(os, "sysconf") else 1 << 34
_QUOTED: Final = re.compile(r"'([^']*)'")


@dataclass(frozen=True)
class Fitted(Generic[Result]):
    """Made-up inputs, their shapes, and the result of the run that accepted them, with all inputs that were tried in vain."""

    feeds: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    result: Result
    refused: tuple[dict[str, tuple[int, ...]], ...] = ()


def fitting_inputs(
    source: Any,
    run: Callable[[dict[str, Any]], Result],
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    given: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Fitted[Result]:
    """Made-up values for the inputs of a model that are not `given`, with which `run` succeeds; `run` gets both.

    `shapes` is as for `random_inputs`. If no inputs fit, the error of the first run is raised; its hint says what was tried.
    """
    maker = _Maker(_prepared(source), dict(shapes or {}), dict(given or {}), seed)
    refused: list[dict[str, tuple[int, ...]]] = []
    messages: Counter[str] = Counter()
    first: errors.SardonyxError | None = None
    failed_at: list[str] = []
    end = time.monotonic() + _PATIENCE
    for sizes, plain in itertools.islice(maker.proposals(failed_at), _MOST_RUNS):
        feeds = maker.feeds(sizes, plain)
        made_up = {name: np.shape(value) for name, value in feeds.items() if isinstance(value, np.ndarray)}
        try:
            result = run({**maker.given, **feeds})
        except errors.SardonyxError as error:
            first = first or error
            refused.append(made_up)
            failed_at[:] = _QUOTED.findall(error.message)[:1]
            messages[error.message] += 1
            if messages[error.message] > _SAME_ERROR or time.monotonic() > end:
                break
            continue
        return Fitted(feeds, made_up, result, tuple(refused))
    if first is None:
        raise errors.InvalidArgument("no inputs can be made up for the model")
    fitting = _fitting_otherwise(source, run, given, seed) if shapes else None
    if fitting or not first.hint:
        first.hint = _failure_hint(refused, fitting)
    raise first


def _fitting_otherwise(
    source: Any, run: Callable[[dict[str, Any]], Result], given: Mapping[str, Any] | None, seed: int
) -> dict[str, tuple[int, ...]] | None:
    """Shapes with which a run succeeds, if nobody asks for others."""
    try:
        return fitting_inputs(source, run, given=given, seed=seed).shapes
    except errors.SardonyxError:
        return None


def _failure_hint(refused: Sequence[Mapping[str, Sequence[int]]], fitting: Mapping[str, Sequence[int]] | None) -> str:
    if fitting:
        return f"the model runs with {_shapes_text(fitting)}"
    tried = list(dict.fromkeys(map(_shapes_text, refused)))
    more = f" and {len(tried) - _SHOWN} more" if len(tried) > _SHOWN else ""
    return f"inputs were made up, and none of these fits: {'; '.join(tried[:_SHOWN])}{more}" if any(tried) else ""


def _shapes_text(shapes: Mapping[str, Sequence[int]]) -> str:
    """Shapes as the command line takes them: `--shape x=1x3 --shape y=2`."""
    return " ".join(f"--shape {name}={'x'.join(map(str, shape))}" for name, shape in shapes.items())


def fitting_shapes(source: Any, shapes: Mapping[str, Sequence[int]] | None = None) -> dict[str, tuple[int, ...]]:
    """The shapes `fitting_inputs` tries first: those the graph accepts, as far as shape inference can tell."""
    maker = _Maker(_prepared(source), dict(shapes or {}), {}, 0)
    sizes, _ = next(maker.proposals([]))
    return maker.shapes(sizes)


def _prepared(source: Any) -> Model:
    """A model of one's own, without calls of functions."""
    model = source if isinstance(source, Model) else load(source)
    if model is source:
        model = replace(model, graph=Cloner().graph(model.graph), functions=dict(model.functions))
    InlineFunctions().run(model)
    return model


class _Maker:
    """Makes feeds for one model."""

    def __init__(self, model: Model, shapes: dict[str, Sequence[int]], given: dict[str, Any], seed: int) -> None:
        self.given = given
        self._seed = seed
        arguments = [NodeArg.of(value.name, value.type) for value in model.graph.inputs if value.constant is None]
        known = {name: np.shape(value) for name, value in given.items() if isinstance(value, np.ndarray)}
        inputs = {argument.name for argument in arguments}
        shapes = {**shapes, **{name: shape for name, shape in known.items() if name in inputs}}
        named = named_sizes(arguments, shapes)
        self._search = SizeSearch(model, {name: shape for name, shape in shapes.items() if name in inputs}, named)

    def proposals(self, failed_at: list[str]) -> Iterator[tuple[dict[str, int], bool]]:
        """Sizes, and whether the contents shall be zeros alone; `failed_at` names the node that refused the last proposal."""
        search = self._search
        fits = search.fits()
        best = next(fits)
        yield best, False
        refusing = search.node_named(failed_at[0] if failed_at else "")
        for other in itertools.islice(search.improve(best, refusing), _MOST_RUNS // 2):
            yield other, False
        yield best, True
        for other in fits:
            yield other, False

    def shapes(self, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        found = {value.name: self._search.shape(value, sizes) for value in self._made_up()}
        return {name: shape for name, shape in found.items() if shape is not None}

    def feeds(self, sizes: Mapping[str, int], plain: bool) -> dict[str, Any]:
        """Values for all inputs that are not given."""
        generator = np.random.default_rng(self._seed)
        made_up = self._made_up()
        contents = demanded_contents(made_up, self._search.report(sizes))
        feeds: dict[str, Any] = {}
        for value in made_up:
            shape = self._search.shape(value, sizes)
            _check_size(value, shape or ())
            if shape is None or not isinstance(value.type, TensorType):
                feeds[value.name] = make_up(NodeArg.of(value.name, value.type), _inner_shape(value.type), generator)
            elif plain:
                feeds[value.name] = _plain_tensor(value.type.dtype, shape)
            else:
                feeds[value.name] = _tensor(value.name, value.type.dtype, shape, generator, contents.get(value.name))
        return feeds

    def _made_up(self) -> list[Value]:
        return [value for value in self._search.inputs if value.name not in self.given]


def _inner_shape(type_: Type | None) -> tuple[int, ...]:
    """The shape of the tensors in a sequence or optional, open sizes as 1."""
    while isinstance(type_, (SequenceType, OptionalType)):
        type_ = type_.element
    shape = type_.shape if isinstance(type_, (TensorType, SparseTensorType)) else None
    return tuple(dim if isinstance(dim, int) else 1 for dim in shape or ())


def _check_size(value: Value, shape: Sequence[int]) -> None:
    """Refuse what no memory holds, before anybody tries to fill it."""
    bits = value.type.dtype.bits if isinstance(value.type, TensorType) and value.type.dtype.bits else 64
    needed = math.prod(shape) * bits // 8
    if needed > _MOST_BYTES:
        text = "x".join(map(str, shape))
        raise errors.InvalidArgument(
            f"input {value.name!r} of shape {text} would need {needed / 1e9:,.1f} GB", hint="give it smaller sizes"
        )


def _plain_tensor(dtype: dtypes.DType, shape: tuple[int, ...]) -> Any:
    """Zeros: valid as index everywhere."""
    return np.full(shape, "", object) if dtype is dtypes.STRING else np.zeros(shape, dtype.numpy)


def _tensor(
    name: str, dtype: dtypes.DType, shape: tuple[int, ...], generator: np.random.Generator, content: Content | None
) -> Any:
    """Random values that are as their readers demand."""
    if content is not None and content.columns and len(shape) == 2:
        whole = _tensor(name, dtype, shape, generator, replace(content, columns={}))
        for column, inner in content.columns.items():
            if -shape[1] <= column < shape[1]:
                whole[:, column] = _tensor(name, dtype, shape[:1], generator, inner)
        return whole
    if content is not None and content.exact is not None and len(content.exact) == int(np.prod(shape)):
        return np.array(content.exact, dtype.numpy).reshape(shape)
    if content is not None and content.choices:
        is_text = isinstance(content.choices[0], str)
        if is_text == (dtype is dtypes.STRING):
            picked = generator.integers(0, len(content.choices), shape)
            chosen = np.array(content.choices, object if is_text else None)[picked]
            return np.asarray(chosen, object if is_text else dtype.numpy)
    if "mask" in name.lower() and (dtype.is_integer or dtype is dtypes.BOOL):
        return np.ones(shape, dtype.numpy)
    if content is not None and content.below and dtype is not dtypes.STRING and dtype is not dtypes.BOOL:
        return np.asarray(generator.integers(0, min(content.below, _largest(dtype)), shape), dtype.numpy)
    return random_tensor(dtype, shape, generator)


def _largest(dtype: dtypes.DType) -> int:
    return 1 << max(dtype.bits - 1, 1) if dtype.is_integer else 1 << 11
