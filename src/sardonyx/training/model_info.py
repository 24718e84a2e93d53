"""What is known of a module in each state: the inputs of an export, its graph, and what a program is compiled from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import torch

from sardonyx.ir.graph import Model
from sardonyx.records import dataclass
from sardonyx.training.arrays import Array, TensorArrays, array_of, memory_of
from sardonyx.training.fallback import (
    ORTModuleTorchModelException,
)
from sardonyx.training.flatten import (
    Leaf,
    Schema,
    flatten,
    unflatten,
)
from sardonyx.training.frontend.exported import ExportedGraph
from sardonyx.training.frontend.torchscript import CallInputs
from sardonyx.training.model_view import ModelView
from sardonyx.training.step_run import Given


@dataclass(frozen=True, slots=True)
class ModelInfoForExport:
    """The inputs of a call, as an export sees them."""

    inputs: CallInputs
    onnx_graph_input_names: tuple[str, ...]
    onnx_graph_input_names_require_grad: list[str]
    onnx_graph_input_dynamic_axes_map: dict[str, dict[int, str]]


@dataclass(frozen=True, slots=True)
class ExportedModelInfo:
    """A graph, and the schemas of inputs and outputs that it belongs to."""

    graph: ExportedGraph
    call: ModelInfoForExport
    module_forward_args_schema: Schema
    module_forward_kwargs_schema: Schema
    module_forward_output_schema: Schema

    @property
    def exported_model(self) -> ModelView:
        """The graph, as ONNX's message shows it."""
        return ModelView(self.graph.model)

    @property
    def onnx_graph_input_names(self) -> tuple[str, ...]:
        """All graph inputs."""
        return tuple(each.name for each in self.graph.inputs)


@dataclass(slots=True, eq=False)
class PostExportProcessedModelInfo:
    """What is needed to run a graph: inputs by source, those with gradients, and how arguments and results are read."""

    onnx_graph_input_names: tuple[str, ...]
    onnx_graph_input_names_require_grad: tuple[str, ...]
    onnx_graph_input_names_user_defined: tuple[str, ...]
    onnx_graph_input_names_require_grad_user_defined: tuple[str, ...]
    onnx_graph_input_dynamic_axes_map: Mapping[str, Mapping[int, str]]
    module_forward_output_schema: Schema
    post_export_processed_model: Model
    output_count: int  # of the user; new values of buffers follow
    updated_buffers: tuple[tuple[dict[str, torch.Tensor | None], str], ...]
    counted_buffers: tuple[tuple[dict[str, torch.Tensor | None], str, int], ...]
    needs_gradients: bool
    gradient_positions: tuple[int, ...]  # graph inputs that want gradients, by position
    updated_positions: frozenset[int]  # graph inputs that are buffers the run gives new values
    _sources: tuple[tuple[int, dict[str, torch.Tensor | None] | None, str], ...]  # leaf, or the slot of a parameter or buffer
    _numbers: bool
    _leaf_types: tuple[torch.dtype | None, ...]  # of numbers: the type they are fed in
    _passed: tuple[int, ...]  # graph inputs whose memory differs from call to call
    _lasting: tuple[int, ...]  # those whose memory stays, as that of parameters
    _arrays: TensorArrays
    program: Any = field(default=None)
    step: Any = field(default=None)  # what `autograd` keeps from call to call

    def construct_inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """The tensors of all graph inputs, in order, for the arguments of a call; the module's are those it has now."""
        leaves: list[Leaf] = []
        flatten((tuple(args), dict(kwargs)), leaves, numbers=self._numbers)
        return [
            tensor if isinstance(tensor, torch.Tensor) else torch.tensor(tensor, dtype=self._leaf_types[index])
            for index, tensor in enumerate(self.tensors(leaves))
        ]

    def tensors(self, leaves: Sequence[Leaf]) -> list[Any]:
        """The values of all graph inputs, for the leaves of a call; numbers are left as they are."""
        found = [leaves[leaf] if owner is None else owner[key] for leaf, owner, key in self._sources]
        for value, (_, _, key) in zip(found, self._sources):
            if value is None:
                raise ORTModuleTorchModelException(f"parameter or buffer {key!r} is None, but the graph reads it")
        return found

    def arrays(self, values: Sequence[Any]) -> list[Array]:
        """The same as arrays in the tensors' own memory."""
        lasting = dict(zip(self._lasting, self._arrays.arrays(values)))
        found: list[Array] = []
        for position, value in enumerate(values):
            if position in lasting:
                array = lasting[position]
                found.append(array.copy() if position in self.updated_positions and self.needs_gradients else array)
            else:
                found.append(array_of(self._fed(position, value)))
        return found

    def given(self, values: Sequence[Any], copied: Sequence[int], extra: int) -> Given:
        """The same by address: those at `copied` as copies, and `extra` places for inputs that nobody passes."""
        others = [(position, memory_of(self._fed(position, values[position]))) for position in self._passed]
        found = self._arrays.given(values, others, extra)
        if not copied:
            return found
        copies = [(position, memory_of(values[position]).clone()) for position in copied]
        for position, copy in copies:
            found.addresses[position] = copy.data_ptr()
        return found._replace(keeps=(found.keeps, copies))

    def _fed(self, position: int, value: Any) -> torch.Tensor:
        """A value that the user passes, as a tensor."""
        if isinstance(value, torch.Tensor):
            return value
        return torch.tensor(value, dtype=self._leaf_types[position])

    def restore_outputs(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The module's result, made of its tensors."""
        return unflatten(self.module_forward_output_schema, tensors)
