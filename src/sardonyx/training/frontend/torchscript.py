"""Export through torch's TorchScript exporter: the module runs once, traced, on a copy of the inputs.

The exporter sees a module whose inputs and outputs are flat lists of tensors. Parameters and buffers are graph inputs, sizes of
the user's tensors are named dimensions, and each submodule keeps its own training mode. What the run would change (buffers,
random state) is put back; the values that it gives buffers become outputs of the graph.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from sardonyx.formats.onnx import load
from sardonyx.ir.graph import Model
from sardonyx.records import dataclass
from sardonyx.training.attributes import AttributeValues
from sardonyx.training.flatten import Leaf, ScalarSchema, Schema, UnsupportedType, flatten, leaf_schemas, unflatten
from sardonyx.training.frontend.exported import ExportedGraph, ExportError
from sardonyx.training.frontend.finish import finished_graph
from sardonyx.training.frontend.patches import NumberNeeded, PythonValues, exporter_patches, python_values_watched

MODULE: Final = "_original_module"  # how the traced module holds the user's: the prefix of all its names
DEFAULT_OPSET: Final = 17
REQUIRED: Final = frozenset(  # what the caller may not say, since the rest relies on it
    [
        "model",
        "args",
        "f",
        "input_names",
        "output_names",
        "dynamic_axes",
        "training",
        "export_params",
        "verbose",
        "do_constant_folding",
        "keep_initializers_as_inputs",
        "dynamo",
    ]
)


@dataclass(frozen=True, slots=True)
class CallInputs:
    """The inputs of one call: leaves, and the schemas of its arguments with the names of the parameters they are for."""

    schema: Schema  # of (args, kwargs)
    leaves: tuple[Leaf, ...]
    names: tuple[str, ...]  # of the leaves


def export_module(
    module: torch.nn.Module,
    inputs: CallInputs,
    *,
    opset: int = DEFAULT_OPSET,
    extra: Mapping[str, Any] | None = None,
) -> ExportedGraph:
    """The graph of a module as it stands (its training flags included), for inputs of this schema.

    `extra` are further arguments of torch.onnx.export. Raises NumberNeeded if a number that is a leaf must be a constant,
    ExportError for a module that cannot become a graph.
    """
    overlap = REQUIRED & set(extra or ())
    if overlap:
        raise ExportError(
            f"The following PyTorch exporter arguments cannot be specified: '{set(overlap)}'. The export sets them itself"
        )
    before = AttributeValues(module)
    try:
        data, traced, changed = _traced(module, inputs, opset, extra or {})
        written = before.changed()
        if written:  # a cache that the first call fills is no loss; what every call writes would be
            again = AttributeValues(module)
            data, traced, changed = _traced(module, inputs, opset, extra or {})
            written = again.changed()
        if written:
            raise ExportError(
                f"the module's forward sets {', '.join(map(repr, written))}, which a graph would not do: return the values, "
                "or hold them in buffers"
            )
    except BaseException:
        before.put_back()
        raise
    if traced.output_schema is None:
        raise ExportError("the exporter has not called the module")
    return finished_graph(
        _read(data),
        module=module,
        prefix=f"{MODULE}.",
        user_inputs=inputs.names,
        output_schema=traced.output_schema,
        output_count=traced.output_count,
        written_buffers=traced.written,
        changed_buffers=changed,
        fixed_by_sizes=tuple(traced.watch.decided_by_sizes),
        decisions=traced.decisions,
    )


def _traced(
    module: torch.nn.Module, inputs: CallInputs, opset: int, extra: Mapping[str, Any]
) -> tuple[bytes, _TracedModule, list[str]]:
    """The exporter's model, the module it ran, and the names of buffers that have other data."""
    buffers = _buffers(module)
    traced = _TracedModule(module, inputs, buffers)
    examples = tuple(_example(leaf) for leaf in inputs.leaves)
    with _put_back(module, buffers) as changed, exporter_patches():
        data = _export(traced, examples, inputs.names, opset, extra)
    return data, traced, changed


def result_schema(module: torch.nn.Module, inputs: CallInputs) -> tuple[Schema, int]:
    """The schema of a module's result and the number of its tensors, by a run in PyTorch that leaves nothing behind."""
    args, kwargs = unflatten(
        inputs.schema, [_example(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in inputs.leaves]
    )
    tensors: list[Any] = []
    with _put_back(module, _buffers(module)), torch.no_grad():
        schema = flatten(module(*args, **kwargs), tensors, numbers=False, caches=True, path="the module's result")
    return schema, len(tensors)


def _read(data: bytes) -> Model:
    return load(data)


def _export(
    traced: _TracedModule, examples: tuple[torch.Tensor, ...], names: Sequence[str], opset: int, extra: Mapping[str, Any]
) -> bytes:
    file = io.BytesIO()
    try:
        with warnings.catch_warnings(), torch.enable_grad(), python_values_watched(traced.watch), _unwatched():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                traced,
                examples,
                file,
                dynamo=False,
                input_names=list(names),
                dynamic_axes={
                    name: {axis: f"{name}_dim{axis}" for axis in range(example.ndim)}
                    for name, example in zip(names, examples, strict=True)
                    if example.ndim
                },
                training=torch.onnx.TrainingMode.PRESERVE,
                export_params=False,
                keep_initializers_as_inputs=True,
                do_constant_folding=False,
                **{"opset_version": opset, **extra},
            )
    except (NumberNeeded, ExportError, UnsupportedType):
        raise
    except Exception as error:
        raise ExportError(_first_lines(error)) from error
    return file.getvalue()


def _first_lines(error: Exception) -> str:
    text = str(error).strip().split("[Caused by", maxsplit=1)[0].strip()  # behind it: the exporter's whole graph
    return f"{type(error).__name__}: {text[:2000]}"


class _TracedModule(torch.nn.Module):
    """Takes the leaves of the inputs, gives the tensors of the outputs, then the new values of buffers that were written."""

    def __init__(self, module: torch.nn.Module, inputs: CallInputs, buffers: Sequence[_Buffer]) -> None:
        super().__init__()
        self._modules[MODULE] = module
        self.training = module.training
        self._inputs = inputs
        self._buffer_list = buffers
        self.watch = PythonValues()
        self.output_schema: Schema | None = None
        self.output_count = 0
        self.written: list[str] = []
        self.decisions: list[Any] = []  # what sizes decided, whose values are the last outputs

    def forward(self, *leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
        for leaf, (_, schema) in zip(leaves, leaf_schemas(self._inputs.schema, ""), strict=True):
            if isinstance(schema, ScalarSchema):
                self.watch.numbers.add(torch._C._get_value_trace(leaf).unique())
        for each in self._buffer_list:
            if each.key == "num_batches_tracked":
                self.watch.counters.add(torch._C._get_value_trace(each.tensor).unique())
        args, kwargs = unflatten(self._inputs.schema, leaves)
        versions = [_version_of(leaf) for leaf in leaves]
        result = self._modules[MODULE](*args, **kwargs)
        for name, leaf, version in zip(self._inputs.names, leaves, versions, strict=True):
            if _version_of(leaf) != version:
                raise ExportError(
                    f"the module changes its input {name!r} in place, which a graph would not do: have it change a copy, and "
                    "return that"
                )
        tensors: list[Any] = []
        self.output_schema = flatten(result, tensors, numbers=False, caches=True, path="the module's result")
        self.output_count = len(tensors)
        for each in self._buffer_list:
            now = each.owner[each.key]
            if now is not None and (now is not each.tensor or now._version != each.version):
                self.written.append(each.name)
                tensors.append(now)
        asked = list(self.watch.sizes.values())
        with torch._C.DisableTorchFunction():
            self.decisions = [each.detach().numpy().copy() for each in asked]
            tensors += [each.clone() for each in asked]
        return tuple(tensors)


def _version_of(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


@dataclass(frozen=True, slots=True)
class _Buffer:
    """A buffer before the module ran: where it hangs, and its version."""

    name: str
    owner: dict[str, torch.Tensor | None]
    key: str
    tensor: torch.Tensor
    version: int


def _buffers(module: torch.nn.Module) -> list[_Buffer]:
    found: dict[int, _Buffer] = {}
    for prefix, owner in module.named_modules():
        for key, tensor in owner._buffers.items():
            if tensor is not None:
                name = f"{prefix}.{key}" if prefix else key
                found.setdefault(id(tensor), _Buffer(name, owner._buffers, key, tensor, tensor._version))
    return list(found.values())


@contextlib.contextmanager
def _put_back(module: torch.nn.Module, buffers: Sequence[_Buffer]) -> Iterator[list[str]]:
    """Restores what a run of the module changes: buffers, random states; and makes all buffers graph inputs for its time.

    The list has, afterwards, the names of buffers that had other data.
    """
    copies = [each.tensor.detach().clone() for each in buffers]
    hidden = [(owner, owner._non_persistent_buffers_set) for owner in module.modules() if owner._non_persistent_buffers_set]
    for owner, _ in hidden:
        owner._non_persistent_buffers_set = set()  # the exporter takes a module's state, to which these do not belong
    random_state = torch.get_rng_state()
    changed: list[str] = []
    try:
        yield changed
    finally:
        torch.set_rng_state(random_state)
        for owner, names in hidden:
            owner._non_persistent_buffers_set = names
        with torch.no_grad():
            for each, copy in zip(buffers, copies, strict=True):
                each.owner[each.key] = each.tensor
                if not torch.equal(each.tensor, copy):  # batch_norm changes statistics without a new version
                    changed.append(each.name)
                    each.tensor.copy_(copy)


@contextlib.contextmanager
def _unwatched() -> Iterator[None]:
    """No casts from before the trace, which it would take for constants; nothing is saved for backward, which never comes."""
    kept = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        with torch.autograd.graph.saved_tensors_hooks(_save_nothing, _read_nothing):
            yield
    finally:
        torch.set_autocast_cache_enabled(kept)


def _save_nothing(tensor: torch.Tensor) -> None:
    """Instead of a tensor that the traced run would save for backward. The tensor itself would keep its own history alive."""


def _read_nothing(nothing: None) -> torch.Tensor:
    raise ExportError("the module computes gradients in its forward pass, which a graph would not do")


def _example(leaf: Leaf) -> torch.Tensor:
    if not isinstance(leaf, torch.Tensor):
        return torch.tensor(leaf)
    return leaf.detach().requires_grad_(leaf.requires_grad).clone()  # no leaf for autograd: the module may write into it
