"""Updates the parameters of a module by their gradients, in place: one native call for all of them.

An optimizer model is read for what it says: a node AdamWOptimizer or SGDOptimizerV2, and perhaps InplaceClipGradNorm before it.
"""

from __future__ import annotations

import os
from functools import partial
from math import sqrt
from typing import Any, Final

import numpy as np

from sardonyx import dtypes, errors
from sardonyx.analysis.attributes import attribute_values
from sardonyx.formats.loading import load
from sardonyx.formats.ort.checkpoint import OptimizerGroupState
from sardonyx.ir.graph import Graph, Node
from sardonyx.kernel.optimizers import adam, sgd
from sardonyx.training.api.checkpoint_state import Array
from sardonyx.training.api.module import Module
from sardonyx.training.update_plan import StepSettings, TensorRow, UpdatePlan, UpdateRule

_GROUP: Final = "group0"
_MOMENTS: Final = {"AdamWOptimizer": ("momentum0", "momentum1"), "SGDOptimizerV2": ()}
_CLIP: Final = "InplaceClipGradNorm"
_NOT_LOADED = "Please load the model parameters first."


class Optimizer:
    """An optimizer for the trainable parameters of a module. It goes on where the module's checkpoint was saved."""

    def __init__(self, optimizer_uri: str | os.PathLike[str], module: Module) -> None:
        model = load(os.fspath(optimizer_uri))
        self._node, bound = _read(model.graph)
        self._attributes = attribute_values(self._node)
        self._state = module._state
        self._settings = StepSettings(bound=bound, workers=module._options.intra_op_num_threads)
        self._plan: UpdatePlan | None = None
        groups = self._state.content.groups
        self._group = groups.setdefault(_GROUP, OptimizerGroupState())
        self._rate = _single(self._group.initial_learning_rate)
        if self._node.op_type == "AdamWOptimizer":
            a = self._attributes
            rule = UpdateRule(partial(adam), ("adam",))
            if a["adam_mode"] not in (0, 1):
                raise errors.InvalidArgument(f"{self._node.label}: adam_mode is {a['adam_mode']}, expected 0 or 1")
        else:
            rule = UpdateRule(partial(sgd), ("sgd",))
        self._rule = rule

    @property
    def step_count(self) -> int:
        """How many steps have been made, those before the checkpoint included."""
        return self._group.step

    def step(self) -> None:
        """Update the parameters."""
        if self._state.is_nominal:
            raise errors.InvalidArgument(_NOT_LOADED, hint="call Module.copy_buffer_to_parameters with all parameters")
        self._group.step += 1
        names = [name for name, array in self._state.content.trainable.items() if array.size]
        arrays = [array for name in names for array in self._arrays(name)]
        if names:
            rows = [self._row(name) for name in names]
            if self._plan is None:
                self._plan = UpdatePlan(rows, [self._rule], self._settings)
            self._plan.bind([array.ctypes.data for array in arrays])
            self._plan.run([self._scalars()], self._settings)

    def _moments(self, name: str) -> list[Array]:
        held, parameter = self._group.parameters.setdefault(name, {}), self._state.content.trainable[name]
        for kind in _MOMENTS[self._node.op_type]:
            found = held.get(kind)
            if found is None:
                held[kind] = np.zeros_like(parameter)
            elif found.shape != parameter.shape or found.dtype != parameter.dtype:
                raise errors.InvalidArgument(
                    f"the optimizer state {kind} of {name!r} is {found.dtype}{list(found.shape)}, the parameter "
                    f"{parameter.dtype}{list(parameter.shape)}",
                    hint="use a checkpoint of the same model",
                )
        return [held[kind] for kind in _MOMENTS[self._node.op_type]]

    def _arrays(self, name: str) -> list[Array]:
        """Parameter, gradient and moments, as the kernel takes them."""
        parameter, gradient = self._state.content.trainable[name], self._state.gradients.get(name)
        if gradient is None or gradient.shape != parameter.shape or gradient.dtype != parameter.dtype:
            raise errors.InvalidArgument(f"parameter {name!r} has no gradient", hint="run a training step before")
        return [parameter, gradient, *self._moments(name)]

    def _row(self, name: str) -> TensorRow:
        array = self._state.content.trainable[name]
        kind = dtypes.from_numpy(array.dtype).name
        return TensorRow(array.size, (kind, kind, *[kind] * len(_MOMENTS[self._node.op_type])), 0, 0)

    def _scalars(self) -> dict[str, float]:
        if self._node.op_type == "SGDOptimizerV2":
            return {"step": self._rate}
        a: Any = self._attributes
        count, decay = self._group.step, 1 - self._rate * a["weight_decay"]
        first, second = (1 - a["alpha"] ** count, 1 - a["beta"] ** count) if a["correct_bias"] else (1.0, 1.0)
        as_pytorch = a["adam_mode"] == 0
        return {
            "beta1_rest": 1 - a["alpha"],
            "beta2": a["beta"],
            "beta2_rest": 1 - a["beta"],
            "epsilon": a["epsilon"],
            "root_scale": 1 / sqrt(second) if as_pytorch else 1.0,
            "step": self._rate / first if as_pytorch else self._rate * sqrt(second) / first,
            "before": decay if as_pytorch else 1.0,
            "after": 1.0 if as_pytorch else decay,
        }

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the learning rate of the steps to come."""
        self._rate = _single(learning_rate)

    def get_learning_rate(self) -> float:
        """The learning rate of the next step."""
        return self._rate

    def set_initial_learning_rate(self, learning_rate: float) -> None:
        """Set the rate that schedulers scale; a checkpoint keeps it."""
        self._group.initial_learning_rate = self._rate = _single(learning_rate)


def _single(number: float) -> float:
    """A number as a checkpoint keeps it, in 32 bits: a training that is saved goes on as if it had not been."""
    return float(np.float32(number))


def _read(graph: Graph) -> tuple[Node, float | None]:
    """The optimizer's node, and the bound of the norm if gradients are clipped before."""
    nodes = list(graph.nodes)
    found = [node for node in nodes if node.op_type in _MOMENTS]
    others = [node for node in nodes if node not in found]
    clips = [node for node in others if node.op_type == _CLIP]
    if len(found) != 1 or len(others) > 1 or len(clips) != len(others):
        raise errors.NotImplemented(
            f"the optimizer model is made of {', '.join(node.op_type for node in nodes) or 'no nodes'}",
            hint=f"expected one of {', '.join(_MOMENTS)}, and at most {_CLIP} before it",
        )
    if not clips:
        return found[0], None
    attributes = attribute_values(clips[0])
    if attributes["norm_type"] != "fro":
        raise errors.NotImplemented(f"{clips[0].label}: norm_type is {attributes['norm_type']!r}, expected 'fro'")
    return found[0], float(attributes["max_norm"])
