"""Model files and folders of them, converted to the ORT format."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

from sardonyx import errors
from sardonyx.compile.compiler import rewrite_model
from sardonyx.compile_options import CompileOptions
from sardonyx.conversion.required_operators import RequiredOperators
from sardonyx.enums import GraphOptimizationLevel
from sardonyx.formats import onnx, ort
from sardonyx.formats.loading import load
from sardonyx.formats.shared.replacing import replacing
from sardonyx.ir.graph import Model
from sardonyx.options import SessionOptions
from sardonyx.records import dataclass
from sardonyx.session.saving import write_ort

LEVELS: Final = {
    "disable": GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "layout": GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
    "all": GraphOptimizationLevel.ORT_ENABLE_ALL,
}
STYLES: Final = ("fixed", "runtime")
PLATFORMS: Final = ("arm", "amd64")


@dataclass
class Conversion:
    """What one style of optimisation has made of a set of models."""

    style: str
    models: list[Path] = field(default_factory=list)  # the files written
    optimized: list[Path] = field(default_factory=list)  # the same models as ONNX, if that was asked for
    failures: dict[Path, str] = field(default_factory=dict)
    config: Path | None = None  # the operators that they need


def convert_models(
    source: str | os.PathLike[str],
    output_dir: str | os.PathLike[str] | None = None,
    *,
    styles: Sequence[str] = STYLES,
    level: str = "all",
    enable_type_reduction: bool = False,
    target_platform: str | None = None,
    save_optimized_onnx: bool = False,
    allow_failures: bool = False,
    on_model: Callable[[Path, Path], None] | None = None,
) -> list[Conversion]:
    """Convert a model, or all `.onnx` files of a folder and the folders in it; one result for each style.

    Files go beside the models, or to the same place below `output_dir`. `enable_type_reduction` adds the types that operators are
    used with to the configuration. `target_platform` says where the models will run: nothing that is written depends on the
    machine, so it is checked and changes nothing. With `allow_failures` a model that cannot be converted does not stop others.
    `on_model` is told of each model, and of the file it becomes, before it is converted.
    """
    path = Path(source).resolve()
    _check_choices(styles, level, target_platform)
    models = _models_in(path)
    folder = path if path.is_dir() else path.parent
    into = folder if output_dir is None else Path(output_dir).resolve()
    done = []
    for style in styles:
        ending = ("" if level == "all" else f".{level}") + (".with_runtime_opt" if style == "runtime" else "")
        conversion = Conversion(style)
        needed = RequiredOperators(with_types=enable_type_reduction)
        for model in models:
            target = _with_ending(into / model.relative_to(folder), f"{ending}.ort")
            if on_model is not None:
                on_model(model, target)
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                _convert(model, target, LEVELS[level], style, needed)
                if save_optimized_onnx:
                    optimized = _with_ending(into / model.relative_to(folder), f"{ending}.optimized.onnx")
                    _write_onnx(model, optimized, LEVELS[level], style)
                    conversion.optimized.append(optimized)
            except errors.SardonyxError as error:
                if not allow_failures:
                    raise
                conversion.failures[model] = error.message
                continue
            conversion.models.append(target)
        kind = "required_operators_and_types" if enable_type_reduction else "required_operators"
        name = f"{kind}{ending}.config" if path.is_dir() else f"{path.stem}.{kind}{ending}.config"
        conversion.config = into / name
        into.mkdir(parents=True, exist_ok=True)
        with replacing(os.fspath(conversion.config)) as file:
            file.write(needed.text(conversion.models).encode("utf-8", "surrogateescape"))
        done.append(conversion)
    return done


def _check_choices(styles: Sequence[str], level: str, platform: str | None) -> None:
    for what, given, known in (
        *(("an optimization style", style, STYLES) for style in styles),
        ("the optimization level", level, tuple(LEVELS)),
        *([("the target platform", platform, PLATFORMS)] if platform is not None else []),
    ):
        if given not in known:
            raise errors.InvalidArgument(f"{what} is {given!r}, expected {', '.join(known)}")


def _models_in(path: Path) -> list[Path]:
    """The model at a path, or those in a folder; what an earlier conversion has written there is none."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise errors.NoSuchFile(f"there is no model or folder {os.fspath(path)!r}")
    names = sorted(each for each in path.rglob("*") if each.name.lower().endswith(".onnx") and each.is_file())
    models = [each for each in names if not each.name.lower().endswith(".optimized.onnx")]
    if not models:
        raise errors.InvalidArgument(f"there are no .onnx files in {os.fspath(path)!r}")
    return models


def _with_ending(path: Path, ending: str) -> Path:
    return path.with_name(path.stem + ending)


def _convert(source: Path, target: Path, level: GraphOptimizationLevel, style: str, needed: RequiredOperators) -> None:
    if style == "fixed":
        _rewrite(source, level, lambda model: write_ort(model, os.fspath(target)))
        needed.add(ort.load(target))
        return
    basic = min(level, GraphOptimizationLevel.ORT_ENABLE_BASIC)
    is_extended = level > GraphOptimizationLevel.ORT_ENABLE_BASIC

    def write(model: Model) -> None:
        write_ort(model, os.fspath(target), "save" if is_extended else "")
        # What is written down may be made when the model is loaded, or not: the operators of both are needed.
        with tempfile.TemporaryDirectory(suffix=".without_runtime_opt") as folder:
            applied = os.path.join(folder, "applied.ort")
            write_ort(model, applied, "apply" if is_extended else "")
            needed.add(ort.load(applied))

    _rewrite(source, basic, write)
    needed.add(ort.load(target))


def _write_onnx(source: Path, target: Path, level: GraphOptimizationLevel, style: str) -> None:
    """The model as ONNX, rewritten as far as the converted one is."""
    chosen = min(level, GraphOptimizationLevel.ORT_ENABLE_BASIC) if style == "runtime" else level
    _rewrite(source, chosen, lambda model: onnx.save(model, target))


def _rewrite(source: Path, level: GraphOptimizationLevel, write: Callable[[Model], None]) -> None:
    model = load(source)
    settings = CompileOptions.of(SessionOptions(), initializers=model.graph.initializers)
    rewrite_model(model, dataclasses.replace(settings, optimization_level=level), write)
