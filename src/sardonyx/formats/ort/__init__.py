"""Models in the ORT format (.ort): FlatBuffers files with all types written out, which need no operator table to be run.

model = load("model.ort")        the file is mapped; weights stay where they are
save(model, "out.ort", facts)    `facts` is what the operator table knows of the model's operators
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from sardonyx.formats.ort.read import read_file
from sardonyx.formats.ort.schema import IDENTIFIER
from sardonyx.formats.ort.write import OperatorFacts, model_parts, save_model
from sardonyx.formats.shared.source import open_source
from sardonyx.ir.graph import Model
from sardonyx.ir.saved_optimisation import SavedOptimisation

__all__ = ["IDENTIFIER", "OperatorFacts", "load", "save", "to_bytes"]


def load(source: Any, *, least_version: int = 1) -> Model:
    """Read a model from a path, bytes, a memoryview or a binary file.

    Raises Fail for bytes that are no ORT model or one older than `least_version`, InvalidGraph (with all problems) for a model
    that makes no sense, NoSuchFile for a file that is not there.
    """
    opened = open_source(source)
    model = read_file(opened, least_version=least_version)
    model.path = opened.path
    return model


def save(
    model: Model,
    path: str | os.PathLike[str],
    facts: OperatorFacts,
    optimisations: Sequence[SavedOptimisation] = (),
) -> None:
    """Write a model, whose values all have types and which has no functions, to a file that appears complete or not at all."""
    save_model(model, os.fsdecode(path), facts, optimisations)


def to_bytes(model: Model, facts: OperatorFacts, optimisations: Sequence[SavedOptimisation] = ()) -> bytes:
    """The same as bytes."""
    return b"".join(model_parts(model, facts, optimisations))
