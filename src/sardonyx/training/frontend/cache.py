"""Exported graphs kept in a folder, so that a program that starts again need not export (ORTMODULE_CACHE_DIR).

A file is named after all that a graph depends on: the module's classes with their source, its structure, training flags, the
types and shapes of its parameters and buffers, the schema of the inputs, the opset, torch's version and the source of this front
end; and after the process of a process group. What the graph's inputs stand for is written into the file's metadata. The
result's structure cannot be: it is found by running the module once, in PyTorch.
"""

from __future__ import annotations

import inspect
import json
import os
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from sardonyx.formats.onnx import load, save
from sardonyx.ir.graph import Model
from sardonyx.sources import contents_of
from sardonyx.training.arrays import array_of
from sardonyx.training.attributes import WatchedAttributes
from sardonyx.training.frontend.exported import ExportedGraph, GraphInput, InputSource
from sardonyx.training.frontend.torchscript import CallInputs, export_module, result_schema
from sardonyx.training.size_guards import SizeGuards

_GUARDS: Final = ".guards"  # of the file with what sizes decided
_KEY: Final = "sardonyx.training.exported"


def cached_export(folder: str, module: torch.nn.Module, inputs: CallInputs, *, opset: int) -> tuple[ExportedGraph, bool]:
    """The graph of a module, from the folder if it is there, and whether it had to be exported."""
    path = Path(folder) / f"{_digest(module, inputs, opset)}_{_rank()}.onnx"
    if path.is_file():
        found = _read(path, module, inputs)
        if found is not None and _fits(found, module, inputs):
            return found, False
    graph = export_module(module, inputs, opset=opset)
    _write(path, graph)
    return graph, True


def _digest(module: torch.nn.Module, inputs: CallInputs, opset: int) -> str:
    kinds = {type(each) for each in module.modules() if not type(each).__module__.startswith("torch.")}
    facts = [
        torch.__version__,
        opset,
        repr(module),
        [each.training for each in module.modules()],
        WatchedAttributes(module.modules()).values,
        [(name, str(each.dtype), list(each.shape)) for name, each in (*module.named_parameters(), *module.named_buffers())],
        repr(inputs.schema),
        inputs.names,
        sorted(_source(kind) for kind in kinds),
        str(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else "",
    ]
    digest = blake2b(repr(facts).encode("utf-8", "surrogatepass"), digest_size=20)
    for content in contents_of("training/frontend"):
        digest.update(content)
    return digest.hexdigest()


def _source(kind: type) -> str:
    try:
        return f"{kind.__module__}.{kind.__qualname__}\n{inspect.getsource(kind)}"
    except (OSError, TypeError):  # made at run time: its name is all there is
        return f"{kind.__module__}.{kind.__qualname__}"


def _rank() -> int:
    distributed = torch.distributed
    return int(distributed.get_rank()) if distributed.is_available() and distributed.is_initialized() else 0


def _write(path: Path, graph: ExportedGraph) -> None:
    facts: dict[str, Any] = {
        "inputs": [[each.name, each.source.value, each.origin, each.leaf] for each in graph.inputs],
        "output_count": graph.output_count,
        "updated_buffers": graph.updated_buffers,
        "counted_buffers": graph.counted_buffers,
        "fixed_by_sizes": graph.fixed_by_sizes,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    if graph.guards is not None:
        facts["decisions"] = [np.asarray(each).tolist() for each in graph.guards.expected]
        _save(graph.guards.model, path.with_suffix(_GUARDS))
    graph.model.metadata[_KEY] = json.dumps(facts)
    _save(graph.model, path)


def _save(model: Model, path: Path) -> None:
    temporary = path.with_suffix(f".{os.getpid()}")
    save(model, temporary)
    temporary.replace(path)  # another process sees the whole file or none


def _fits(graph: ExportedGraph, module: torch.nn.Module, inputs: CallInputs) -> bool:
    """Whether the sizes of a call decide what those that the graph was made for did."""
    guards = graph.guards
    if guards is None:
        return True
    tensors = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers(remove_duplicate=False))}
    given = dict(zip(inputs.names, inputs.leaves, strict=True))
    return guards.hold(
        tuple(tuple(leaf.shape) for leaf in inputs.leaves if isinstance(leaf, torch.Tensor)),
        lambda: [array_of(torch.as_tensor(given.get(name, tensors.get(name)))) for name in guards.input_names],
    )


def _read(path: Path, module: torch.nn.Module, inputs: CallInputs) -> ExportedGraph | None:
    """The graph of a file; None if it is not what this module and version write."""
    model = load(path)
    if _KEY not in model.metadata:
        return None
    facts = json.loads(model.metadata[_KEY])
    guards = None
    if "decisions" in facts:
        if not path.with_suffix(_GUARDS).is_file():
            return None
        guards = SizeGuards(load(path.with_suffix(_GUARDS)), [np.asarray(each) for each in facts["decisions"]])
    schema, count = result_schema(module, inputs)
    sources = tuple(GraphInput(name, InputSource(source), origin, leaf) for name, source, origin, leaf in facts["inputs"])
    if count != facts["output_count"] or [value.name for value in model.graph.inputs] != [each.name for each in sources]:
        return None
    return ExportedGraph(
        model,
        sources,
        schema,
        count,
        tuple(facts["updated_buffers"]),
        tuple((name, number) for name, number in facts["counted_buffers"]),
        tuple(facts["fixed_by_sizes"]),
        guards,
    )
