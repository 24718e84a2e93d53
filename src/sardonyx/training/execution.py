"""Runs a module's calls: graphs from the transition manager, programs compiled from them, PyTorch where that fails.

A training module has two execution managers, one for calls in training mode with gradients and one for all others: ONNX
Runtime's own division. Each has its own transition manager, so that going back and forth between training and evaluation makes
neither start again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import torch

from sardonyx.codegen.resident_code import release_compiler_code
from sardonyx.compile_options import CompileOptions
from sardonyx.errors import SardonyxError
from sardonyx.forks import ForkSafeLock
from sardonyx.ir.graph import Model
from sardonyx.ir.types import TensorType
from sardonyx.records import dataclass
from sardonyx.runtime.arena import give_back_freed_memory
from sardonyx.training.autograd import run_inference, run_step
from sardonyx.training.debug import DebugOptions
from sardonyx.training.fallback import (
    FallbackManager,
    ORTModuleDeviceException,
    ORTModuleFallbackException,
    ORTModuleONNXModelException,
    ORTModuleTorchModelException,
)
from sardonyx.training.model_info import PostExportProcessedModelInfo
from sardonyx.training.model_view import ModelView
from sardonyx.training.recompute import MemoryLevel, savings_table
from sardonyx.training.settings import RuntimeOptions
from sardonyx.training.step_program import GradientRequest, InferenceProgram, TrainingOptions, TrainingProgram
from sardonyx.training.transition import GraphTransitionManager


class ExecutionManager:
    """Runs the calls of one kind: with gradients in training mode, or others."""

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        is_training: bool,
        debug_options: DebugOptions,
        fallback: FallbackManager,
        logger: logging.Logger,
        settings: RuntimeOptions,
    ) -> None:
        self._module = module
        self._is_training = is_training
        self._debug_options = debug_options
        self._fallback_manager = fallback
        self._logger = logger
        self._runtime_options = settings
        self._graph_transition_manager = GraphTransitionManager(
            module,
            is_training=is_training,
            debug_options=debug_options,
            logger=logger,
            opset=settings.onnx_opset_version,
            skip_checks=settings.skips_checks,
            cache_dir=settings.ortmodule_cache_dir,
        )
        self._execution_agent: TrainingProgram | InferenceProgram | None = None  # of the last call
        self._lock = ForkSafeLock(reentrant=True)  # held while programs are compiled
        self._onnx_models = CompiledGraphs()
        self._export_mode = torch.onnx.TrainingMode.TRAINING if is_training else torch.onnx.TrainingMode.EVAL
        self._device = device_of(module)

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One call of the module."""
        if self._fallback_manager.is_pending():
            return self._fallback_manager.fallback(*args, **kwargs)
        try:
            return self._run(args, kwargs)
        except ORTModuleFallbackException as error:
            self._fallback_manager.handle_exception(error)
        except Exception as error:
            if not self._fallback_manager.handles(error):
                raise
            self._fallback_manager.handle_exception(error)
        return self._fallback_manager.fallback(*args, **kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        _, info, leaves = self._graph_transition_manager.get_post_processed_model(args, kwargs)
        program = info.program
        if program is None:
            with self._lock:
                program = info.program
                if program is None:  # no other thread has compiled it in the meantime
                    program = info.program = self._compile(info)
                    give_back_freed_memory()
                    release_compiler_code()
        self._execution_agent = program
        values = info.tensors(leaves)
        if info.needs_gradients:
            outputs = run_step(program, info, values)
        else:
            outputs = run_inference(program, info, values)
        return info.restore_outputs(outputs)

    def _compile(self, info: PostExportProcessedModelInfo) -> TrainingProgram | InferenceProgram:
        model = info.post_export_processed_model
        self._device = device_of(self._module)
        self._graph_transition_manager.counters.compilations += 1
        options = TrainingOptions(
            compile=CompileOptions(
                intra_op_num_threads=torch.get_num_threads(), deterministic=torch.are_deterministic_algorithms_enabled()
            ),
            recompute=self._runtime_options.recompute,
        )
        try:
            if not info.needs_gradients:
                self._save_optimized(model)
                return InferenceProgram(model, options)
            floats = tuple(
                value.name
                for value in model.graph.outputs[: info.output_count]
                if not isinstance(value.type, TensorType) or value.type.dtype.is_float
            )
            request = GradientRequest(outputs=floats, inputs=info.onnx_graph_input_names_require_grad)
            program = TrainingProgram(model, request, options)
            self._log_recompute(program)
            self._save_optimized(program.executed)
        except SardonyxError as error:
            raise ORTModuleONNXModelException(f"the module's graph could not be compiled for training: {error}") from error
        return program

    def _log_recompute(self, program: TrainingProgram) -> None:
        """Say what is computed again, and what other choices would save."""
        if not self._logger.isEnabledFor(logging.INFO):
            return
        if program.recompute.options.level is MemoryLevel.TRANSFORMER_LAYERWISE_RECOMPUTE:
            layers = len(program.recompute.layers) - 1
            self._logger.info("Layer-wise memory optimization is enabled: %d layers are computed again", layers)
        self._logger.info("%s", "\n".join(savings_table(program.recompute.savings({}))))

    def _save_optimized(self, model: Model) -> None:
        self._onnx_models.optimized_model = ModelView(model)
        for stage in ("optimized", "execution_model"):
            self._debug_options.save_stage(model, stage, is_training=self._is_training)

    @property
    def _graph_builder(self) -> Any:
        """What the last call ran; ONNX Runtime's programs compare it to see whether gradients were built anew."""
        return self._execution_agent


@dataclass(slots=True)
class CompiledGraphs:
    """The graph that the last compilation was of: forward and backward in one, if there are gradients."""

    optimized_model: ModelView | None = None


class ExecutionManagers:
    """The two managers of a module; called with whether a call is in training mode with gradients, it gives the one for it."""

    def __init__(
        self, module: torch.nn.Module, debug_options: DebugOptions, fallback: FallbackManager, logger: logging.Logger
    ) -> None:
        def manager(is_training: bool) -> ExecutionManager:
            return ExecutionManager(
                module,
                is_training=is_training,
                debug_options=debug_options,
                fallback=fallback,
                logger=logger,
                settings=RuntimeOptions.from_environment(),
            )

        self._training_manager = manager(True)
        self._inference_manager = manager(False)

    def __call__(self, is_training: bool) -> ExecutionManager:
        return self._training_manager if is_training else self._inference_manager


class CompiledModule:
    """A module together with what runs it; ONNX Runtime calls it the torch module of an ORTModule."""

    def __init__(
        self, module: torch.nn.Module, debug_options: DebugOptions, fallback: FallbackManager, logger: logging.Logger
    ) -> None:
        if isinstance(module, torch.nn.DataParallel):
            raise ORTModuleTorchModelException(
                "ORTModule is not compatible with torch.nn.DataParallel. Use torch.nn.parallel.DistributedDataParallel instead, "
                "around the wrapped module"
            )
        devices = {each.device for each in (*module.parameters(), *module.buffers())}
        if len(devices) > 1:
            raise ORTModuleDeviceException("ORTModule supports a single device per model")
        self._original_module = module
        self._execution_manager = ExecutionManagers(module, debug_options, fallback, logger)
        self._training_manager, self._inference_manager = self._execution_manager(True), self._execution_manager(False)

    @property
    def module(self) -> torch.nn.Module:
        """The user's module."""
        return self._original_module

    def is_training(self) -> bool:
        """Whether a call now is in training mode, with gradients."""
        return bool(self._original_module.training and torch.is_grad_enabled())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """One call; inside a module that is being exported the wrapped module runs, to become part of its graph."""
        if torch._C._is_tracing():
            return self._original_module(*args, **kwargs)
        if torch.compiler.is_dynamo_compiling():
            return _outside_of_torch_compile(self.forward, args, kwargs)
        is_training = self._original_module.training and torch.is_grad_enabled()
        return (self._training_manager if is_training else self._inference_manager).forward(args, kwargs)

    def known_parameters(self) -> Iterable[torch.nn.Parameter]:
        """The module's parameters: those that the last call found, if the module is still what it was."""
        for manager in (self._training_manager, self._inference_manager):
            found = manager._graph_transition_manager.known_parameters()
            if found is not None:
                return found
        return list(self._original_module.parameters())

    def signal_model_changed(self) -> None:
        """The module is not what it was: graphs are made anew."""
        for is_training in (True, False):
            self._execution_manager(is_training)._graph_transition_manager.signal_model_changed()


class PlainModule:
    """A module that PyTorch runs, since it could not be wrapped."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._original_module = module

    @property
    def module(self) -> torch.nn.Module:
        """The user's module."""
        return self._original_module

    def is_training(self) -> bool:
        """Whether a call now is in training mode, with gradients."""
        return bool(self._original_module.training and torch.is_grad_enabled())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """One call."""
        return self._original_module(*args, **kwargs)

    def known_parameters(self) -> Iterable[torch.nn.Parameter]:
        """The module's parameters."""
        return list(self._original_module.parameters())

    def signal_model_changed(self) -> None:
        """Nothing depends on what the module was."""


def device_of(module: torch.nn.Module) -> torch.device:
    """The device of a module's parameters and buffers; the CPU, if it has none."""
    for each in (*module.parameters(), *module.buffers()):
        return each.device
    return torch.device("cpu")


def _outside_of_torch_compile(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call from what torch.compile compiles: it must not follow the call into our own compiler."""
    return torch.compiler.disable(forward)(*args, **kwargs)
