"""The state of a training: parameters, their gradients, what the optimizer remembers, properties of the user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from sardonyx import errors
from sardonyx.formats.ort import checkpoint as format_
from sardonyx.formats.ort.checkpoint import Checkpoint, Property

Array = np.ndarray[Any, Any]

_NOT_LOADED = "Please load the parameter states first: this is a nominal checkpoint, whose parameters have no values yet"
_NOT_ALL_LOADED = "Please load all the parameter states first: this is a nominal checkpoint, whose parameters have no values yet"


class TrainingState:
    """What a training changes. Parameters are arrays that are updated in place; a Module adds their gradients."""

    def __init__(self, content: Checkpoint) -> None:
        self.content = content
        self.gradients: dict[str, Array] = {}  # of trainable parameters, once a module has been made for the state

    @property
    def is_nominal(self) -> bool:
        """Whether the parameters have no values yet."""
        return self.content.is_nominal

    def names(self) -> list[str]:
        """The names of all parameters, in alphabetical order."""
        return sorted([*self.content.trainable, *self.content.frozen])

    def find(self, name: str) -> Array | None:
        """The array of a parameter, or None."""
        found = self.content.trainable.get(name)
        return self.content.frozen.get(name) if found is None else found

    def replace(self, name: str, array: Array) -> None:
        """Give a parameter another array: only for those that had none."""
        (self.content.trainable if name in self.content.trainable else self.content.frozen)[name] = array

    def write(self, name: str, value: Any) -> None:
        """Copy a value into a parameter."""
        target = self.find(name)
        if target is None:
            raise KeyError(f"Parameter {name} not found.")
        if self.is_nominal:
            raise errors.InvalidArgument(_NOT_ALL_LOADED, hint="call Module.copy_buffer_to_parameters")
        given = np.asarray(value)
        if given.shape != target.shape or given.dtype != target.dtype:
            found, wanted = f"{given.dtype}{list(given.shape)}", f"{target.dtype}{list(target.shape)}"
            raise errors.InvalidArgument(f"parameter {name!r} is {wanted}, the value for it {found}")
        target[...] = given


class TrainingParameter:
    """A parameter of the model, as a CheckpointState gives it."""

    def __init__(self, name: str, state: TrainingState) -> None:
        self._name = name
        self._state = state

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def data(self) -> Array:
        """A copy of its value; assigning changes it."""
        found = self._state.find(self._name)
        assert found is not None
        return found.copy()

    @data.setter
    def data(self, value: Array) -> None:
        self._state.write(self._name, value)

    @property
    def grad(self) -> Array | None:
        """A copy of its gradient; None if it has none."""
        found = self._state.gradients.get(self._name)
        return None if found is None else found.copy()

    @property
    def requires_grad(self) -> bool:
        """Whether it is trained."""
        return self._name in self._state.content.trainable

    def __repr__(self) -> str:
        return f"Parameter(name={self.name}, requires_grad={self.requires_grad})"


Parameter = TrainingParameter  # ONNX Runtime's name


class TrainingParameters:
    """All parameters, by name."""

    def __init__(self, state: TrainingState) -> None:
        self._state = state

    def __getitem__(self, name: str) -> TrainingParameter:
        if name not in self:
            raise KeyError(f"Parameter {name} not found.")
        if self._state.is_nominal:
            raise errors.InvalidArgument(_NOT_LOADED, hint="call Module.copy_buffer_to_parameters")
        return TrainingParameter(name, self._state)

    def __setitem__(self, name: str, value: Array) -> None:
        self._state.write(name, value)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._state.find(name) is not None

    def __iter__(self) -> Iterator[tuple[str, TrainingParameter]]:
        for name in self._state.names():
            yield name, self[name]

    def __len__(self) -> int:
        return len(self._state.names())

    def __repr__(self) -> str:
        return f"Parameters({', '.join(self._state.names())})"


Parameters = TrainingParameters


class Properties:
    """Whole numbers, numbers and texts that a user keeps with a checkpoint, by name."""

    def __init__(self, state: TrainingState) -> None:
        self._state = state

    def __getitem__(self, name: str) -> Property:
        if name not in self:
            raise KeyError(f"Property {name} not found.")
        return self._state.content.properties[name]

    def __setitem__(self, name: str, value: Property) -> None:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise errors.InvalidArgument(f"property {name!r} is a {type(value).__name__}, expected int, float or str")
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise errors.InvalidArgument(f"property {name!r} is {value}, which does not fit 64 bits")
        # A checkpoint has floats of 32 bits: what is set is what will be read.
        self._state.content.properties[name] = float(np.float32(value)) if isinstance(value, float) else value

    def __contains__(self, name: object) -> bool:
        return name in self._state.content.properties

    def __iter__(self) -> Iterator[tuple[str, Property]]:
        yield from sorted(self._state.content.properties.items())

    def __len__(self) -> int:
        return len(self._state.content.properties)

    def __repr__(self) -> str:
        return f"Properties({', '.join(sorted(self._state.content.properties))})"


class CheckpointState:
    """The state of a training, read from a checkpoint. A Module and an Optimizer that are given it change it in place."""

    def __init__(self, state: TrainingState) -> None:
        if not isinstance(state, TrainingState):
            raise TypeError(f"Invalid argument for CheckpointState received {type(state)}")
        self._state = state
        self._parameters = TrainingParameters(state)
        self._properties = Properties(state)

    @classmethod
    def load_checkpoint(cls, checkpoint_uri: str | os.PathLike[str]) -> CheckpointState:
        """Read a checkpoint, a nominal one as well."""
        return cls(TrainingState(format_.load_checkpoint(os.fspath(checkpoint_uri))))

    @classmethod
    def save_checkpoint(
        cls, state: CheckpointState, checkpoint_uri: str | os.PathLike[str], include_optimizer_state: bool = False
    ) -> None:
        """Write the state to a file, with what the optimizer remembers if that is wanted."""
        held = state._state.content
        groups = held.groups if include_optimizer_state else {}
        made = Checkpoint(held.trainable, held.frozen, held.is_nominal, groups, held.properties)
        format_.save_checkpoint(made, os.fspath(checkpoint_uri))

    @property
    def parameters(self) -> TrainingParameters:
        """The parameters of the model."""
        return self._parameters

    @property
    def properties(self) -> Properties:
        """What the user keeps with the checkpoint."""
        return self._properties
