"""A compiled training step as one operation of torch's autograd.

    leaves of the inputs, parameters ──forward──> outputs            in torch's memory, no copies
    their gradients <──backward── gradients of the outputs           one tensor for each parameter: hooks and DDP see them

Tensors that the backward pass reads again (inputs, parameters, outputs) are saved with autograd, which notices if somebody
changes them in between. What the forward pass kept lives exactly as long as autograd keeps those: it goes when backward is done,
unless the graph is retained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from sardonyx import errors
from sardonyx.records import dataclass
from sardonyx.runtime.native_core import SizeConflict
from sardonyx.training.arrays import TensorMemory, array_of, lies_in_order, memory_of, tensor_of
from sardonyx.training.kept_memory import KeptBlock, KeptPool, block_at
from sardonyx.training.model_info import PostExportProcessedModelInfo
from sardonyx.training.step_profile import is_profiled
from sardonyx.training.step_program import InferenceProgram, SavedValues, TrainingProgram
from sardonyx.training.step_run import Allocate


class CompiledStep:
    """A training program for the inputs of a processed graph: all that is the same from call to call."""

    def __init__(self, program: TrainingProgram, info: PostExportProcessedModelInfo) -> None:
        self.program = program
        self.info = info
        names = [value.name for value in info.post_export_processed_model.graph.outputs[: info.output_count]]
        flows = dict(zip(program.request.outputs, program.differentiable_outputs, strict=True))
        self.outputs = info.output_count
        self.without_gradient = [position for position, name in enumerate(names) if not flows.get(name, False)]
        self.positions = [names.index(name) for name in program.request.outputs]  # of the outputs with gradients
        self.seeds = [position for position, name in zip(self.positions, program.request.outputs) if flows[name]]
        self.saved_inputs = [position for position in program.saved_inputs if position not in info.updated_positions]
        self.saved_outputs = [position for position in program.saved_outputs if position < info.output_count]
        self.copied = [position for position in program.saved_inputs if position in info.updated_positions]
        self.extra = int(program.is_random)  # inputs behind those of the model
        self.gradients = program.gradient_positions
        self.results = Allocate(TensorMemory().make, torch.Tensor.data_ptr)
        self._gradient_memory = TensorMemory()
        self.gradient_memory = Allocate(self._gradient_memory.make, torch.Tensor.data_ptr)

    def forward(self, values: Sequence[Any]) -> tuple[list[torch.Tensor], KeptBlock]:
        """All results of the forward pass, and the block of what backward needs."""
        run, drawn = self.program.run, _seed_for(self.program)
        seed = drawn or 0
        if run is not None and not is_profiled():
            if run.much_kept:
                # Gradients that are gone make room; backward, which comes to the first ones last, gives as much back until then.
                self._gradient_memory.give_back(run.much_kept)
            try:
                return run.forward(self.info.given(values, self.copied, self.extra), self.results, seed)
            except SizeConflict:
                pass  # NumPy computes it, or says what is wrong
        results, saved = self.program.forward(self.info.arrays(values), drawn)
        block = _NO_RUN.take(1)
        block.run = saved
        return [tensor_of(array) for array in results], block

    def backward(self, block: KeptBlock, given: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """The gradients of the inputs that want them, for those of all outputs."""
        saved = block.run
        if saved is None:
            raise RuntimeError(
                "what the forward pass of a TrainingModule kept is gone: a backward pass that was broken off has given it back; "
                "run the forward pass again, or give the first backward pass retain_graph=True"
            )
        if isinstance(saved, SavedValues):
            arrays = [None if (each := given[position]) is None else array_of(each) for position in self.positions]
            found = self.program.backward(saved, arrays)
            return [None if array is None else tensor_of(array) for array in found]
        run = self.program.run
        assert run is not None
        seeds = [self._seed(given[position], spec, position) for position, spec in zip(self.seeds, run.seeds_of(block))]
        made = run.backward(block, [seed.data_ptr() for seed in seeds], self.gradient_memory, is_last=not _is_retained())
        return [None if position is None else made[position] for position in self.gradients]

    def _seed(self, gradient: torch.Tensor | None, spec: tuple[tuple[int, ...], Any], position: int) -> torch.Tensor:
        shape, dtype = spec
        if gradient is None:
            return tensor_of(np.zeros(shape, dtype))
        if gradient.shape != shape:
            raise errors.InvalidArgument(
                f"the gradient of output {position} has shape {list(gradient.shape)}, expected {list(shape)}"
            )
        return gradient if lies_in_order(gradient) else memory_of(gradient)


def _always_retained() -> bool:
    return True


# Whether the graph that backward is running through may be run through again; if torch does not tell, it may.
_is_retained: Final = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", _always_retained)
_NO_RUN: Final = KeptPool()  # for forward passes that leave arrays of their own


@dataclass(slots=True)
class StepCall:
    """One forward pass: what is run, what it is given, and the new values of buffers that it gives back."""

    step: CompiledStep
    values: Sequence[Any]  # of all graph inputs: tensors, or numbers
    updates: list[torch.Tensor]


def _kept_by(keeper: torch.Tensor) -> KeptBlock:
    """The block whose memory a tensor shows. Checkpointing hands out the one that the forward pass made when it ran again."""
    found = block_at(keeper.data_ptr())
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
        step, values = call.step, call.values
        results, block = step.forward(values)
        outputs = tuple(results[: step.outputs])
        call.updates = results[step.outputs :]
        seen_again = [value for position in step.saved_inputs if isinstance(value := values[position], torch.Tensor)]
        seen_again += [outputs[position] for position in step.saved_outputs]
        ctx.save_for_backward(*seen_again, torch.from_numpy(block))
        ctx.step = step
        if step.without_gradient:
            ctx.mark_non_differentiable(*[outputs[position] for position in step.without_gradient])
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():  # somebody wants gradients of these gradients
            return _backward_once(ctx, *gradients)  # type: ignore[no-any-return]
        return _backward(ctx, *gradients)


def _seed_for(program: TrainingProgram | InferenceProgram) -> int | None:
    """A seed of torch's generator: torch.manual_seed decides, and checkpointing, which runs forward again, has the same masks."""
    return int(torch.empty((), dtype=torch.int64).random_()) if program.is_random else None


def _backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    # Raises if one was changed in place, or if the graph was freed by an earlier backward pass.
    block = _kept_by(ctx.saved_tensors[-1])
    return (None, *ctx.step.backward(block, gradients))


_backward_once = once_differentiable(_backward)
# What Function.apply comes to outside of torch.func's transformations; asking it for that costs more than the call.
_apply: Final[Any] = super(torch.autograd.Function, _ORTModuleFunction).apply


def run_step(program: TrainingProgram, info: PostExportProcessedModelInfo, values: Sequence[Any]) -> Sequence[torch.Tensor]:
    """The module's outputs, connected to the gradients of its inputs; buffers get their new values."""
    step = info.step
    if step is None or step.program is not program:
        step = info.step = CompiledStep(program, info)
    call = StepCall(step, values, [])
    apply = _ORTModuleFunction.apply if torch._C._are_functorch_transforms_active() else _apply
    outputs: tuple[torch.Tensor, ...] = apply(call, *[values[position] for position in info.gradient_positions])
    _update_buffers(info, call.updates)
    return outputs


def run_inference(program: InferenceProgram, info: PostExportProcessedModelInfo, values: Sequence[Any]) -> list[torch.Tensor]:
    """The module's outputs, without gradients; buffers get their new values."""
    results = [tensor_of(array) for array in program.run(info.arrays(values), _seed_for(program))]
    _update_buffers(info, results[info.output_count :])
    return results[: info.output_count]


def _update_buffers(info: PostExportProcessedModelInfo, updates: Sequence[torch.Tensor]) -> None:
    if not info.updated_buffers and not info.counted_buffers:
        return
    with torch.no_grad():
        for (owner, key), new in zip(info.updated_buffers, updates, strict=True):
            buffer = owner[key]
            if buffer is not None and buffer.shape == new.shape:
                buffer.copy_(new)
            else:
                owner[key] = new
        for owner, key, count in info.counted_buffers:
            counter = owner[key]
            if counter is not None:
                counter += count
