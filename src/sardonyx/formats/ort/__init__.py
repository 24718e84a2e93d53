"""Models in the ORT format (.ort): FlatBuffers files with all types written out, which need no operator table to be run.

model = load("model.ort")        the file is mapped; weights stay where they are
save(model, "out.ort", facts)    `facts` is what the operator table knows of the model's operators
"""

from __future__ import annotations

import os
from typing import Any

from sardonyx.formats.ort.read import OrtFile, SavedOptimisation, read_file
from sardonyx.formats.ort.schema import IDENTIFIER
from sardonyx.formats.ort.write import OperatorFacts, Optimisations, model_parts, save_model
from sardonyx.formats.shared.source import open_source
from sardonyx.ir.graph import Model

__all__ = ["IDENTIFIER", "OperatorFacts", "OrtFile", "SavedOptimisation", "load", "open_file", "save", "to_bytes"]


def load(source: Any) -> Model:
    """Read a model from a path, bytes, a memoryview or a binary file.

    Raises Fail for bytes that are no ORT model, InvalidGraph (with all problems) for a model that makes no sense, NoSuchFile for
    a file that is not there.
    """
    return open_file(source).model


def open_file(source: Any, *, least_version: int = 1) -> OrtFile:
    """The same with all that the file holds; one older than `least_version` is refused."""
    opened = open_source(source)
    found = read_file(opened, least_version=least_version)
    found.model.path = opened.path
    return found


def save(model: Model, path: str | os.PathLike[str], facts: OperatorFacts, optimisations: Optimisations | None = None) -> None:
    """Write a model, whose values all have types and which has no functions, to a file that appears complete or not at all."""
    save_model(model, os.fsdecode(path), facts, optimisations)


def to_bytes(model: Model, facts: OperatorFacts, optimisations: Optimisations | None = None) -> bytes:
    """The same as bytes."""
    return b"".join(model_parts(model, facts, optimisations))
