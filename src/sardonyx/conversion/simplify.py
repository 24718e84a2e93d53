"""A model rewritten as far as a level of optimisation goes, as a model again, and what became of its nodes.

    simplify_model("model.onnx", "simpler.onnx", level="basic")

At level "basic" the result is made of ONNX operators alone: constants are folded, what does nothing is gone, batch norms are part
of convolutions. Higher levels fuse to operators of com.microsoft, which Sardonyx and ONNX Runtime know.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from sardonyx import errors
from sardonyx.compile.compiler import rewrite_model
from sardonyx.compile_options import CompileOptions
from sardonyx.conversion.convert import LEVELS
from sardonyx.formats import onnx
from sardonyx.formats.loading import load
from sardonyx.ir.graph import Model, walk
from sardonyx.options import SessionOptions
from sardonyx.records import dataclass
from sardonyx.session.saving import write_ort


@dataclass(frozen=True)
class Simplification:
    """What became of a model."""

    path: Path
    before: Mapping[str, int]  # how many nodes there were, by operator; bodies count
    after: Mapping[str, int]
    passes: Mapping[str, int]  # how many changes each pass made; those that made none are left out
    weight_bytes: tuple[int, int]  # of all initializers, before and after

    @property
    def operators(self) -> list[tuple[str, int, int]]:
        """Every operator with the number of its nodes before and after, those that changed most first."""
        names = sorted({*self.before, *self.after})
        rows = [(name, self.before.get(name, 0), self.after.get(name, 0)) for name in names]
        return sorted(rows, key=lambda row: (-abs(row[1] - row[2]), -row[1]))


def simplify_model(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    level: str = "basic",
    external_data: str | None = None,
    options: SessionOptions | None = None,
) -> Simplification:
    """Rewrite a model and write it, as ONNX or, if the name ends in `.ort`, in the ORT format.

    `external_data` names a file beside it for large weights. `options` may fix dimensions and leave passes out.
    """
    if level not in LEVELS:
        raise errors.InvalidArgument(f"the optimization level is {level!r}, expected {', '.join(LEVELS)}")
    path, source = Path(os.fspath(output)), load(model)
    is_ort = path.suffix.lower() == ".ort"
    if is_ort and external_data is not None:
        raise errors.InvalidArgument("external_data is given, but models in the ORT format have all data inside")
    settings = CompileOptions.of(options or SessionOptions(), initializers=source.graph.initializers)
    settings = dataclasses.replace(settings, optimization_level=LEVELS[level])
    before, bytes_before = _operators(source), _weight_bytes(source)
    found: list[tuple[Counter[str], int]] = []

    def write(optimised: Model) -> None:
        found.append((_operators(optimised), _weight_bytes(optimised)))
        if is_ort:
            write_ort(optimised, os.fspath(path))
        else:
            onnx.save(optimised, path, external_data=external_data)

    report = rewrite_model(source, settings, write)
    after, bytes_after = found[0]
    return Simplification(path, before, after, report.changes(), (bytes_before, bytes_after))


def _operators(model: Model) -> Counter[str]:
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    return Counter(f"{node.domain}.{node.op_type}" if node.domain else node.op_type for graph in graphs for node in walk(graph))


def _weight_bytes(model: Model) -> int:
    return sum(tensor.nbytes for _, tensor in onnx.dense_initializers(model))
