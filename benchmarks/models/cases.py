"""How a model of the benchmark comes to be: made by a function here, or a file inside an installed package.

    Maker("vision", "picture_network", make="resnet50")    ->  benchmarks.models.vision.picture_network(make="resnet50")

A model is made once and kept in a folder; a changed architecture is noticed by the hash of its source.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import os
import re
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.models.kinds import KINDS
from benchmarks.ranked import ranked_difference
from sardonyx.benchmarking.comparing import largest_difference

Feeds = dict[str, Any]
Axes = Mapping[str, Mapping[int, str]]

SOURCES: Final = Path(__file__).parent
OPSET: Final = 17  # of the exporter that traces
FORM: Final = 2  # of what is kept; a new number makes every model anew


class Unavailable(Exception):
    """A model cannot be made here; the text says what is missing."""


@dataclass(frozen=True)
class Case:
    """A model with the inputs it is measured on."""

    name: str
    title: str
    kind: str  # of benchmarks.models.kinds: how tables and charts are ordered
    prepare: Callable[[Path], tuple[Path, Feeds]] = field(compare=False)
    goal: float = 0.0  # what onnxruntime's time over ours should be, if not what the kind says
    program: Callable[[Path], tuple[Any, Feeds]] | None = field(default=None, compare=False)  # the network in PyTorch
    ranked_by: int | None = None  # the output with scores, if results are rows in the order of these

    def difference(self, ours: Sequence[Any], theirs: Sequence[Any]) -> float:
        """How far our results are from theirs, as a share of the largest number in each."""
        if self.ranked_by is None:
            return largest_difference(ours, theirs)
        return ranked_difference(ours, theirs, self.ranked_by)

    @property
    def wanted(self) -> float:
        """The least that onnxruntime's time over ours should be."""
        return self.goal or KINDS[self.kind]

    def facts(self) -> dict[str, Any]:
        """What a result says about the model."""
        return {"title": self.title, "kind": self.kind, "goal": self.wanted}


class Maker:
    """A function of a module beside this one, and what it is called with: imported only when a model is made."""

    def __init__(self, module: str, function: str, **options: Any) -> None:
        self.module, self.function, self.options = module, function, options

    def __call__(self) -> Any:
        return getattr(importlib.import_module(f"benchmarks.models.{self.module}"), self.function)(**self.options)

    def version(self, *more: object) -> str:
        """Changes with the source, the options, and whatever else decides about the model."""
        text = f"{FORM} {self.function} {sorted(self.options.items())} {more} {_source(self.module)}"
        return hashlib.sha256(text.encode()).hexdigest()


@cache
def _source(module: str) -> str:
    """What a module and those beside it that it imports say, whatever their format and comments."""
    text = (SOURCES / f"{module}.py").read_text("utf-8")
    return ast.dump(ast.parse(text)) + "".join(
        _source(name) for name in sorted(set(re.findall(r"from benchmarks\.models\.(\w+) import", text)))
    )


def _is_kept(path: Path, version: str) -> bool:
    stamp = path.with_suffix(".version")
    return path.exists() and stamp.exists() and stamp.read_text() == version


def _keep(path: Path, version: str, write: Callable[[Path], None]) -> None:
    """Write a file so that it is there as a whole or not at all, and note what it was made from."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"part-{path.name}")
    write(beside)
    os.replace(beside, path)
    path.with_suffix(".version").write_text(version)


def exported(
    name: str,
    title: str,
    kind: str,
    maker: Maker,
    *,
    file: tuple[str, Maker] | None = None,
    axes: Axes | None = None,
    dynamo: bool = False,
    goal: float = 0.0,
    ranked_by: int | None = None,
) -> Case:
    """A network exported from PyTorch, by the exporter that traces or by the one that is built on Dynamo.

    `axes` names the dimensions that may vary; `file` is the folder of a model that several cases share, and what makes it.
    """
    home, model_maker = file or (name, maker)

    def prepare(folder: Path) -> tuple[Path, Feeds]:
        model, inputs = folder / home / "model.onnx", folder / name / "inputs.npz"
        version, feeds_version = model_maker.version(axes, dynamo), maker.version()
        if not _is_kept(model, version):
            _needs_torch(dynamo)
            module, feeds = model_maker()
            _keep(model, version, lambda path: _export(module, feeds, path, axes or {}, dynamo))
        if not _is_kept(inputs, feeds_version):
            _needs_torch(dynamo=False)
            arrays = {key: tensor.numpy() for key, tensor in maker()[1].items()}
            _keep(inputs, feeds_version, lambda path: np.savez(path, **arrays))
        with np.load(inputs) as kept:
            return model, {key: kept[key] for key in kept.files}

    def program(folder: Path) -> tuple[Any, Feeds]:
        """The network itself, for the comparison with PyTorch."""
        _needs_torch(dynamo=False)
        return model_maker()[0], prepare(folder)[1]

    return Case(name, title, kind, prepare, goal, program, ranked_by)


def _needs_torch(dynamo: bool) -> None:
    for package in ("torch", "onnxscript") if dynamo else ("torch",):
        if importlib.util.find_spec(package) is None:
            raise Unavailable(f"{package} is not installed; `make bench` installs it")


def _export(module: Any, feeds: Mapping[str, Any], path: Path, axes: Axes, dynamo: bool) -> None:
    import torch

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arguments, names = tuple(feeds.values()), list(feeds)
        if dynamo:
            dims = [dict.fromkeys(axes.get(name, {}), torch.export.Dim.AUTO) or None for name in names]
            shapes = tuple(dims) if axes else None
            program = torch.onnx.export(
                module, arguments, input_names=names, dynamic_shapes=shapes, dynamo=True, verbose=False, optimize=True
            )
            assert program is not None
            program.save(str(path))
            return
        varying = {key: dict(value) for key, value in axes.items()} or None
        torch.onnx.export(
            module, arguments, str(path), input_names=names, dynamic_axes=varying, opset_version=OPSET, dynamo=False
        )


def packaged(
    name: str, title: str, kind: str, package: str, file: str, feeds: Callable[[np.random.Generator], Mapping[str, Any]]
) -> Case:
    """A model inside an installed package, read as a file: the package itself is not imported."""

    def prepare(folder: Path) -> tuple[Path, Feeds]:
        found = importlib.util.find_spec(package)
        kept = folder / name / "model.onnx"
        if found is not None and found.origin is not None:
            source = Path(found.origin).parent / file
            if not kept.exists() or kept.stat().st_size != source.stat().st_size:
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, kept)
        if not kept.exists():
            raise Unavailable(f"the package {package} is not installed; `make bench` installs it")
        return kept, dict(feeds(np.random.default_rng(0)))

    return Case(name, title, kind, prepare)


def written(name: str, title: str, kind: str, maker: Maker, goal: float = 0.0) -> Case:
    """A model made node by node: the maker gives the file's content and what it is fed."""

    def prepare(folder: Path) -> tuple[Path, Feeds]:
        model = folder / name / "model.onnx"
        if not _is_kept(model, maker.version()):
            content: bytes = maker()[0]
            _keep(model, maker.version(), lambda path: _write_bytes(path, content))
        feeds: Feeds = maker()[1]
        return model, feeds

    return Case(name, title, kind, prepare, goal)


def _write_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def classical(make: str, title: str, kind: str, goals: Mapping[int, float]) -> list[Case]:
    """A model of classical machine learning, for so many rows at a time."""
    maker = Maker("classical", "make", name=make)

    def case(count: int, goal: float) -> Case:
        def prepare(folder: Path) -> tuple[Path, Feeds]:
            from benchmarks.models import classical

            model = folder / make / "model.onnx"
            if not _is_kept(model, maker.version()):
                lacking = classical.missing()
                if lacking:
                    raise Unavailable(f"{', '.join(lacking)} not installed; `make bench` installs all")
                content: bytes = maker()
                _keep(model, maker.version(), lambda path: _write_bytes(path, content))
            return model, classical.feeds(make, count)

        plural = "row" if count == 1 else "rows"
        return Case(f"{make}_{count}", f"{title}, {count:,} {plural}", kind, prepare, goal)

    return [case(count, goal) for count, goal in goals.items()]
