"""The inputs of `sardonyx run`: from files, from literals, and made up where nothing is given.

--input image=cat.npy      one array                 --input all.npz        arrays by name
--input ids=input_0.pb     an ONNX TensorProto       --input scale=0.5      a JSON literal, in the type of the input
--shape image=1x3x224x224  shape of a made-up input  --shape N=4            size of a named dimension
"""

from __future__ import annotations

import json
import shlex
import zipfile
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import sardonyx
from sardonyx.cli.usage import UsageError

Result = TypeVar("Result")
COMPILED = ".sdx"  # what a compiled model's name ends in
SUFFIXES = (".npy", ".npz", ".pb")


def given_feeds(session: sardonyx.InferenceSession, inputs: Sequence[str]) -> dict[str, Any]:
    """The values that the command line gives, by the name of the input."""
    required = {argument.name: argument for argument in session.get_inputs()}
    overridable = {argument.name: argument for argument in session.get_overridable_initializers()}
    given: dict[str, Any] = {}
    for text in inputs:
        for name, value in _given(text, required, {**required, **overridable}).items():
            if name in given:
                raise UsageError(f"input {name!r} is given twice")
            given[name] = value
    return given


def given_shapes(shapes: Sequence[str], given: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes that the command line gives, by the name of an input or dimension."""
    wanted = dict(map(parse_shape, shapes))
    useless = sorted(set(wanted) & set(given))
    if useless:
        raise UsageError(f"input {useless[0]!r} has both a value and a shape: the shape is for a made-up value")
    return wanted


def fit(
    session: sardonyx.InferenceSession,
    model: Any,
    run: Callable[[dict[str, Any]], Result],
    given: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
    seed: int,
) -> sardonyx.Fitted[Result]:
    """Run with the given inputs; those that are not given are made up, such that the model accepts them."""
    if all(argument.name in given for argument in session.get_inputs()):
        if shapes:
            raise UsageError(f"--shape {next(iter(shapes))}: all inputs are given, none is made up")
        return sardonyx.Fitted({}, {}, run(dict(given)))
    if str(model).endswith(COMPILED):  # there is no graph to look at
        missing = [argument for argument in session.get_inputs() if argument.name not in given]
        feeds = sardonyx.random_inputs(missing, shapes=shapes, seed=seed)
        made = {name: np.shape(value) for name, value in feeds.items()}
        return sardonyx.Fitted(feeds, made, run({**given, **feeds}))
    return sardonyx.fitting_inputs(model, run, shapes=shapes, given=given, seed=seed)


def is_open(session: sardonyx.InferenceSession) -> bool:
    """Whether the model leaves sizes of inputs open."""
    return any(not isinstance(dim, int) for argument in session.get_inputs() for dim in argument.shape)


def shape_options(shapes: Mapping[str, Sequence[int]]) -> str:
    """Shapes as this command line takes them."""
    return " ".join(f"--shape {shlex.quote(f'{name}={_joined(shape)}')}" for name, shape in shapes.items() if shape)


def _joined(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """`image=1x3x224x224` -> ("image", (1, 3, 224, 224)); `scalar=` is a shape without dimensions."""
    name, equals, shape = text.rpartition("=")
    parts = shape.replace(",", "x").split("x") if shape else []
    if not equals or not name or not all(part.strip().isdigit() for part in parts):
        raise UsageError(f"--shape {text!r} is not NAME=NUMBERxNUMBERx...", "for example --shape image=1x3x224x224")
    return name, tuple(int(part) for part in parts)


def _given(text: str, required: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The values one --input stands for."""
    name, equals, source = text.partition("=")
    while equals and name not in known and "=" in source:  # names may contain "=" themselves
        more, _, source = source.partition("=")
        name = f"{name}={more}"
    if not equals or (name not in known and Path(text).suffix in SUFFIXES and Path(text).exists()):
        return _unnamed(text, required)
    if name not in known:
        near = get_close_matches(name, known, n=1)
        listing = f"its inputs are: {', '.join(known)}"
        raise UsageError(f"the model has no input {name!r}", f"did you mean {near[0]!r}? {listing}" if near else listing)
    if Path(source).suffix not in SUFFIXES:
        return {name: _literal(name, source, known[name].type)}
    value = _read(source, known[name].type)
    if source.endswith(".npz"):
        if name not in value:
            raise UsageError(f"{source} holds no array {name!r}", f"it holds: {', '.join(value)}")
        value = value[name]
    return {name: value}


def _unnamed(source: str, required: Mapping[str, Any]) -> dict[str, Any]:
    """A file without an input name: an .npz names its arrays, anything else goes to the only input."""
    if Path(source).suffix not in SUFFIXES:
        raise UsageError(f"--input {source!r} is not NAME=VALUE", f"the inputs are: {', '.join(required)}")
    if source.endswith(".npz"):
        arrays: dict[str, Any] = _read(source, "")
        return arrays
    if len(required) != 1:
        raise UsageError(f"--input {source!r} does not say for which input", f"the inputs are: {', '.join(required)}")
    [(name, argument)] = required.items()
    return {name: _read(source, argument.type)}


def _read(source: str, type_: str) -> Any:
    """The content of a file; `type_` says what a .pb file holds."""
    if not Path(source).is_file():
        raise UsageError(f"{source}: no such file")
    if source.endswith(".pb"):
        return sardonyx.load_value(source, type_)
    try:
        loaded = np.load(source, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = "it holds Python objects, or is something else" if "pickle" in str(error) else error
        raise UsageError(f"{source} is not a NumPy file: {reason}") from None
    if isinstance(loaded, np.lib.npyio.NpzFile):
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    return loaded


def _literal(name: str, text: str, type_: str) -> Any:
    """A JSON literal in the element type of the input; text that is no JSON is a string for string inputs."""
    wants_text = "string" in type_
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if wants_text:
            return np.array(text, dtype=object)
        raise UsageError(
            f"--input {name}={text}: neither a .npy, .npz or .pb file nor JSON ({error.msg})", f"the input is a {type_}"
        ) from None
    if not type_.startswith("tensor("):
        return value
    if wants_text:
        return np.array(value, dtype=object)
    template = sardonyx.random_inputs([_Scalar(name, type_)])[name]
    try:
        given = np.array(value)
        with np.errstate(all="ignore"):
            converted = given.astype(template.dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise UsageError(f"--input {name}={text}: {error}", f"the input is a {type_}") from None
    if ("int" in type_ or "bool" in type_) and not np.array_equal(converted.astype(object), given.astype(object)):
        raise UsageError(
            f"--input {name}={text}: the input is a {type_}, which cannot hold this", "round it yourself, if that is meant"
        )
    return converted


class _Scalar:
    """An input without dimensions: its made-up value has the dtype a literal must get."""

    def __init__(self, name: str, type_: str) -> None:
        self.name = name
        self.type = type_
        self.shape: tuple[int, ...] = ()
