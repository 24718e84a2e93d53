"""A compiled training step as one operation of torch's autograd.

    leaves of the inputs, parameters ──forward──> outputs            numpy views of torch's memory, no copies
    their gradients <──backward── gradients of the outputs           one tensor for each parameter: hooks and DDP see them

Tensors that the backward pass reads again (inputs, parameters, outputs) are saved with autograd, which notices if somebody
changes them in between. What the forward pass kept lives exactly as long as autograd keeps those: it goes when backward is done,
unless the graph is retained.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from sardonyx.records import dataclass
from sardonyx.training.arrays import array_of, tensor_of
from sardonyx.training.step_program import InferenceProgram, SavedValues, TrainingProgram
from sardonyx.training.transition import PostExportProcessedModelInfo


@dataclass(slots=True)
class StepCall:
    """One forward pass: the program, what it is given, and the new values of buffers that it gives back."""

    program: TrainingProgram
    info: PostExportProcessedModelInfo
    values: Sequence[Any]  # of all graph inputs: tensors, or numbers
    updates: list[Any]


class _Keeper(np.ndarray[Any, Any]):
    """An array that keeps an object alive: autograd saves its tensor, and lets go of it when the graph is done."""

    kept: Any = None


_kept: Final[weakref.WeakValueDictionary[int, SavedValues]] = weakref.WeakValueDictionary()  # by the address of their keepers


def _keeper_of(saved: SavedValues) -> torch.Tensor:
    array = np.zeros(1, np.uint8).view(_Keeper)
    array.kept = saved
    tensor = torch.from_numpy(array)
    _kept[tensor.data_ptr()] = saved
    return tensor


def _kept_by(keeper: torch.Tensor) -> SavedValues:
    """What a keeper keeps. Checkpointing hands out the one that the forward pass made when it ran again."""
    found = _kept.get(keeper.data_ptr())
    if found is None:
        raise RuntimeError(
            "what the forward pass of a TrainingModule kept is gone: hooks on saved tensors (as "
            "torch.autograd.graph.save_on_cpu) have replaced its tensors by copies; run the module outside of them"
        )
    return found


class _ORTModuleFunction(torch.autograd.Function):
    """Forward and backward of a training program; its name, which tensors show as their grad_fn, is ONNX Runtime's."""

    @staticmethod
    def forward(ctx: Any, call: StepCall, *differentiable: torch.Tensor) -> tuple[torch.Tensor, ...]:
        info, program = call.info, call.program
        results, saved = program.forward(info.arrays(call.values), _seed_for(program))
        outputs = tuple(tensor_of(array) for array in results[: info.output_count])
        call.updates = results[info.output_count :]
        seen_again = [
            value
            for position in program.saved_inputs
            if isinstance(value := call.values[position], torch.Tensor) and position not in info.updated_positions
        ]
        seen_again += [outputs[position] for position in program.saved_outputs if position < info.output_count]
        ctx.save_for_backward(*seen_again, _keeper_of(saved))
        ctx.program = program
        flows = dict(zip(program.request.outputs, program.differentiable_outputs, strict=True))
        names = [value.name for value in info.post_export_processed_model.graph.outputs[: info.output_count]]
        ctx.positions = [names.index(name) for name in program.request.outputs]
        ctx.mark_non_differentiable(*(output for name, output in zip(names, outputs, strict=True) if not flows.get(name, False)))
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        # Raises if one was changed in place, or if the graph was freed by an earlier backward pass.
        saved = _kept_by(ctx.saved_tensors[-1])
        given = [gradients[position] for position in ctx.positions]
        found = ctx.program.backward(saved, [None if each is None else array_of(each) for each in given])
        return (None, *(None if array is None else tensor_of(array) for array in found))


def _seed_for(program: TrainingProgram | InferenceProgram) -> int | None:
    """A seed of torch's generator: torch.manual_seed decides, and checkpointing, which runs forward again, has the same masks."""
    return int(torch.empty((), dtype=torch.int64).random_()) if program.is_random else None


def run_step(program: TrainingProgram, info: PostExportProcessedModelInfo, values: Sequence[Any]) -> list[torch.Tensor]:
    """The module's outputs, connected to the gradients of its inputs; buffers get their new values."""
    call = StepCall(program, info, values, [])
    outputs = _ORTModuleFunction.apply(call, *(values[position] for position in info.gradient_positions))
    _update_buffers(info, call.updates)
    return list(outputs)


def run_inference(program: InferenceProgram, info: PostExportProcessedModelInfo, values: Sequence[Any]) -> list[torch.Tensor]:
    """The module's outputs, without gradients; buffers get their new values."""
    results = program.run(info.arrays(values), _seed_for(program))
    _update_buffers(info, results[info.output_count :])
    return [tensor_of(array) for array in results[: info.output_count]]


def _update_buffers(info: PostExportProcessedModelInfo, updates: Sequence[Any]) -> None:
    if not info.updated_buffers and not info.counted_buffers:
        return
    with torch.no_grad():
        for (owner, key), array in zip(info.updated_buffers, updates, strict=True):
            buffer, new = owner[key], tensor_of(array)
            if buffer is not None and buffer.shape == new.shape:
                buffer.copy_(new)
            else:
                owner[key] = new
        for owner, key, count in info.counted_buffers:
            counter = owner[key]
            if counter is not None:
                counter += count
