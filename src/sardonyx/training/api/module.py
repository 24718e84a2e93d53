"""A model that trains: one call computes the loss and adds up the gradients, in compiled code.

The training model is one program: user inputs, parameters and gradient buffers go in, outputs and the new buffers come out.
Parameters are handed over as they are, and an Optimizer changes them in place.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx import errors
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.compile_options import CompileOptions
from sardonyx.forks import cached_property
from sardonyx.formats import onnx as onnx_format
from sardonyx.formats.loading import load
from sardonyx.ir.graph import Model, Value, needed_nodes
from sardonyx.ir.tensor import from_numpy
from sardonyx.ir.types import TensorType
from sardonyx.options import SessionOptions
from sardonyx.runtime import feeds
from sardonyx.runtime.values import OrtValue
from sardonyx.training.api.checkpoint_state import Array, CheckpointState, TrainingState
from sardonyx.training.differentiate import LEAST_VERSION
from sardonyx.training.expand import expand_training_operators
from sardonyx.training.step_program import InferenceProgram, TrainingOptions
from sardonyx.training.training_graph import ACCUMULATED, BUFFER, MICROSOFT, RESET, RUNNING, copied, with_outputs

_NOT_LOADED = "Please load the model parameters first."
_BUFFER_HINT = "call copy_buffer_to_parameters with all parameters"


class _ModelProgram:
    """A training or evaluation model, compiled when it is first run. Inputs are the user's, parameters and gradient buffers."""

    def __init__(self, model: Model, state: TrainingState, options: CompileOptions) -> None:
        self._model = model
        self._options = options
        self._random: np.random.Generator | None = None  # draws the seeds of dropout, if there is any
        names = [value.name for value in model.graph.inputs]
        self.parameters = [name for name in names if state.find(name) is not None]
        self.trained = [name.removesuffix(BUFFER) for name in names if name.endswith(BUFFER)]
        known = {*self.parameters, RESET}
        self.inputs = [value for value in model.graph.inputs if value.name not in known and not value.name.endswith(BUFFER)]
        self.outputs = [v for v in model.graph.outputs if not v.name.endswith((ACCUMULATED, RUNNING))]
        self.running = [v.name.removesuffix(RUNNING) for v in model.graph.outputs if v.name.endswith(RUNNING)]
        for name in self.trained:
            if name in self.parameters and name not in state.content.trainable:
                raise errors.InvalidArgument(f"the training model trains {name!r}, which the checkpoint has as frozen")

    @cached_property
    def _program(self) -> InferenceProgram:
        model = copied(self._model)
        graph = model.graph
        flags = {value.name: value for value in graph.outputs}
        results = [flags[value.name] for value in self.outputs]
        for name in self.trained:
            node = flags[f"{name}{ACCUMULATED}"].producer
            if node is None or node.op_type != "InPlaceAccumulatorV2" or node.domain != MICROSOFT:
                raise errors.InvalidArgument(f"the gradient of {name!r} is not accumulated: this is no training model")
            if len(node.outputs) < 2:
                total = Value(f"{name}{BUFFER}.new", node.inputs[0].type if node.inputs[0] is not None else None)
                total.producer, total.index = node, 1
                node.outputs.append(total)
            results.append(node.outputs[1])
        results += [flags[f"{name}{RUNNING}"] for name in self.running]
        graph.outputs[:] = results
        infer_shapes(model)
        # Losses, batch normalisation and dropout of training have no kernels, but the operators they are made of have.
        if expand_training_operators(graph, max(model.opset_imports.get("", 0), LEAST_VERSION)):
            self._random = np.random.default_rng()
        model.opset_imports.setdefault("sardonyx", 1)
        return InferenceProgram(model, TrainingOptions(compile=self._options))

    def run(self, user_inputs: Sequence[Any], state: TrainingState, reset: bool) -> list[Any]:
        """Outputs, new gradient buffers and new running statistics."""
        if len(user_inputs) != len(self.inputs):
            names = ", ".join(value.name for value in self.inputs)
            raise errors.InvalidArgument(f"{len(user_inputs)} inputs were given, the model takes {len(self.inputs)}: {names}")
        given = {
            value.name: feeds.convert(value.name, each.value if isinstance(each, OrtValue) else each, value.type)
            for value, each in zip(self.inputs, user_inputs)
        }
        given[RESET] = np.array([reset])
        for name in self.parameters:
            given[name] = state.find(name)
        for name in self.trained:
            given[f"{name}{BUFFER}"] = state.gradients[name]
        program = self._program
        arrays = [given[value.name] for value in self._model.graph.inputs]
        if self._random is not None:
            arrays.append(np.array(self._random.integers(1 << 62)))
        return program.run(arrays)


class Module:
    """A model with its parameters, in training mode at first."""

    training: bool

    def __init__(
        self,
        train_model_uri: str | os.PathLike[str],
        state: CheckpointState,
        eval_model_uri: str | os.PathLike[str] | None = None,
        device: str = "cpu",
        session_options: SessionOptions | None = None,
    ) -> None:
        kind, _, number = device.partition(":")
        if kind != "cpu" or number not in ("", "0"):
            raise errors.InvalidArgument(
                f"device {device!r} is not there: training without PyTorch runs on the CPU", hint="use 'cpu'"
            )
        self.training = True
        self._options = CompileOptions.of(session_options or SessionOptions())
        self._checkpoint = state
        self._state = state._state
        training = load(os.fspath(train_model_uri))
        self._train = _ModelProgram(training, self._state, self._options)
        self._types = {value.name: value.type for value in training.graph.inputs}
        self._check_parameters()
        self._eval_model = None if eval_model_uri is None else load(os.fspath(eval_model_uri))
        self._eval = None if self._eval_model is None else _ModelProgram(self._eval_model, self._state, self._options)
        self._resets = False
        for name in self._train.trained:
            if not self._state.is_nominal and name not in self._state.gradients:
                parameter = self._state.find(name)
                shape, dtype = self._shape(name) if parameter is None else (parameter.shape, parameter.dtype)
                self._state.gradients[name] = np.zeros(shape, dtype)

    def _shape(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        type_ = self._types.get(name)
        if not isinstance(type_, TensorType) or type_.shape is None or not all(isinstance(size, int) for size in type_.shape):
            raise errors.InvalidArgument(f"{name!r} is {type_} in the training model, expected a tensor of known sizes")
        return tuple(int(str(size)) for size in type_.shape), type_.dtype.numpy

    def _check_parameters(self) -> None:
        """Parameters of the checkpoint are those of the model; those without values get memory."""
        for name in self._train.parameters:
            shape, dtype = self._shape(name)
            found = self._state.find(name)
            assert found is not None
            if self._state.is_nominal:
                self._state.replace(name, np.zeros(shape, dtype))
            elif found.shape != shape or found.dtype != dtype:
                held = f"{found.dtype}{list(found.shape)}"
                raise errors.InvalidArgument(
                    f"parameter {name!r} is {held} in the checkpoint and {dtype}{list(shape)} in the model",
                    hint="use a checkpoint of the same model",
                )
        missing = sorted(set(self._state.content.trainable) - set(self._train.trained))
        if missing:
            raise errors.InvalidArgument(f"the training model does not train {', '.join(missing)}, which the checkpoint has")

    def __call__(self, *user_inputs: Any) -> Any:
        """A training or evaluation step. OrtValues give OrtValues, arrays give arrays; a single output is no tuple."""
        self._need_parameters()
        program = self._train if self.training else self._eval
        if program is None:
            raise errors.InvalidArgument("there is no evaluation model", hint="give eval_model_uri when the module is made")
        results = program.run(user_inputs, self._state, self._resets)
        count = len(program.outputs)
        if self.training:
            self._resets = False
            gradients, statistics = results[count : count + len(program.trained)], results[count + len(program.trained) :]
            self._state.gradients.update(zip(program.trained, gradients))
            for name, value in zip(program.running, statistics):
                self._state.write(name, value)
        outputs = [feeds.present(value, port.type) for value, port in zip(results[:count], program.outputs)]
        if not any(isinstance(each, np.ndarray) for each in user_inputs):
            outputs = [OrtValue.of(value, port.type) for value, port in zip(outputs, program.outputs)]
        return outputs[0] if count == 1 else tuple(outputs)

    def _need_parameters(self) -> None:
        if self._state.is_nominal:
            raise errors.InvalidArgument(_NOT_LOADED, hint=_BUFFER_HINT)

    def train(self, mode: bool = True) -> Module:
        """Set training mode, or evaluation mode."""
        self.training = mode
        return self

    def eval(self) -> Module:
        """Set evaluation mode."""
        return self.train(False)

    def lazy_reset_grad(self) -> None:
        """Have the next training step put its gradients in place of those added up so far."""
        self._resets = True

    def _ordered(self, trainable_only: bool) -> list[str]:
        chosen = self._state.content.trainable
        return [name for name in self._train.parameters if name in chosen or not trainable_only]

    def get_parameters_size(self, trainable_only: bool = True) -> int:
        """How many elements the parameters have."""
        return sum(int(np.prod(self._shape(name)[0], dtype=np.int64)) for name in self._ordered(trainable_only))

    def get_contiguous_parameters(self, trainable_only: bool = False) -> OrtValue:
        """A copy of all parameters, one after the other in the order of the training model's inputs."""
        self._need_parameters()
        arrays = [self._array(name) for name in self._ordered(trainable_only)]
        if any(array.dtype != np.float32 for array in arrays):
            raise errors.InvalidArgument("parameters are copied into one buffer of float32, and some have another type")
        return OrtValue.of(np.concatenate([array.reshape(-1) for array in arrays]) if arrays else np.zeros(0, np.float32))

    def _array(self, name: str) -> Array:
        found = self._state.find(name)
        assert found is not None
        return found

    def copy_buffer_to_parameters(self, buffer: Any, trainable_only: bool = True) -> None:
        """Copy such a buffer back. A nominal checkpoint is complete once it has been given all its parameters."""
        names = self._ordered(trainable_only)
        given = np.asarray(buffer.numpy() if isinstance(buffer, OrtValue) else buffer)
        wanted = self.get_parameters_size(trainable_only)
        if given.dtype != np.float32 or given.shape != (wanted,):
            raise errors.InvalidArgument(f"the buffer is {given.dtype}{list(given.shape)}, the parameters are float32[{wanted}]")
        position = 0
        for name in names:
            target = self._array(name)
            target[...] = given[position : position + target.size].reshape(target.shape)
            position += target.size
        if self._state.is_nominal:
            if len(names) < len(self._train.parameters):
                raise errors.InvalidArgument("a nominal checkpoint needs all its parameters", hint="pass trainable_only=False")
            self._state.content.is_nominal = False
            self._state.gradients.update({name: np.zeros_like(self._array(name)) for name in self._train.trained})

    def export_model_for_inferencing(
        self, inference_model_uri: str | os.PathLike[str], graph_output_names: Sequence[str]
    ) -> None:
        """Write a model that computes the named outputs, with the parameters of now as its initializers."""
        self._need_parameters()
        if self._eval_model is None:
            raise errors.InvalidArgument(
                "there is no evaluation model to export", hint="give eval_model_uri when the module is made"
            )
        model = with_outputs(self._eval_model, graph_output_names)
        graph = model.graph
        for value in list(graph.inputs):
            found = self._state.find(value.name)
            if found is not None:
                graph.inputs.remove(value)
                value.constant = from_numpy(found.copy())
                graph.initializers[value.name] = value
        needed = set(needed_nodes(list(graph.nodes), graph.outputs))
        for node in reversed(list(graph.nodes)):
            if node not in needed:
                graph.remove(node)
        used = set(graph.outputs)
        graph.inputs[:] = [value for value in graph.inputs if value.uses or value in used]
        for name, value in list(graph.initializers.items()):
            if not value.uses and value not in used:
                del graph.initializers[name]
        onnx_format.save(model, os.fspath(inference_model_uri))

    def _mode(self) -> _ModelProgram:
        if not self.training and self._eval is None:
            raise errors.InvalidArgument("there is no evaluation model", hint="give eval_model_uri when the module is made")
        return self._train if self.training or self._eval is None else self._eval

    def input_names(self) -> list[str]:
        """The inputs that a call takes."""
        return [value.name for value in self._mode().inputs]

    def output_names(self) -> list[str]:
        """The outputs that a call gives."""
        return [value.name for value in self._mode().outputs]
