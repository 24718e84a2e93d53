"""What a graph took from a module, watched cheaply: its submodules, parameters, buffers, and their flags.

A graph belongs to the tree of modules it was exported from. Before each call the tree is compared with what it was: the same
children, as many parameters and buffers, shared ones still shared. Parameters are found through the dictionaries they live in,
so that one that was replaced by another of the same kind is simply read from there. Attributes are watched by their values.

Hooks on the module and on submodules are Python that a graph would not run. Those by which torch itself computes weights
(weight_norm, spectral_norm, pruning) consist of tensor operations, which the trace of the module has; all others are found here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any, Final

import torch
from torch.nn.modules import module as global_hooks

from sardonyx.training.attributes import WatchedAttributes

_Tensors = dict[str, torch.Tensor | None]
_HOOKS: Final = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")  # of a module
_TRACED_HOOKS: Final = ("torch.nn.utils.", "torch.ao.")  # by the modules that define them: tensor operations only

_training, _dtype, _requires_grad = attrgetter("training"), attrgetter("dtype"), attrgetter("requires_grad")


class ModuleStructure:
    """The tree of a module at one time."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._modules = list(module.modules())
        self._children = [(each._modules, tuple(each._modules.items())) for each in self._modules if each._modules]
        self._hooks: list[Mapping[Any, Any]] = [getattr(each, name) for each in self._modules for name in _HOOKS]
        self._hooks += [getattr(global_hooks, f"_global{name}") for name in _HOOKS]
        self._attributes = WatchedAttributes(self._modules)
        self._owned: list[Mapping[str, Any]] = []
        for each in self._modules:
            self._owned += [each._modules, each._parameters, each._buffers]
        self._counts = list(map(len, self._owned))
        self._slots: dict[str, tuple[_Tensors, str]] = {}
        first: dict[int, tuple[_Tensors, str]] = {}
        self._shared: list[tuple[tuple[_Tensors, str], tuple[_Tensors, str]]] = []
        self.parameters: list[tuple[_Tensors, str]] = []  # each parameter once
        self._absent: list[tuple[_Tensors, str]] = []  # places of tensors that are None
        for name, slot, is_parameter in _slots(module):
            tensor = slot[0][slot[1]]
            self._slots[name] = slot
            if tensor is None:
                self._absent.append(slot)
                continue
            if id(tensor) in first:
                self._shared.append((first[id(tensor)], slot))
            else:
                first[id(tensor)] = slot
                if is_parameter:
                    self.parameters.append(slot)

    def holds(self) -> bool:
        """Whether the module still has this tree, and its attributes their values."""
        return self.holds_tree() and self._attributes.hold()

    def holds_tree(self) -> bool:
        """Whether the module still has this tree."""
        if list(map(len, self._owned)) != self._counts:  # in one go: this is done before every call
            return False
        for owner, children in self._children:
            for name, child in children:
                if owner.get(name) is not child:
                    return False
        if self._absent and any(owner[name] is not None for owner, name in self._absent):
            return False
        return not self._shared or all(one[name] is other[alias] for (one, name), (other, alias) in self._shared)

    def present_parameters(self) -> list[Any]:
        """The parameters that are there now, each once."""
        return [tensor for owner, name in self.parameters if (tensor := owner[name]) is not None]

    def look_again(self) -> None:
        """Attributes are what they are now: an export may have filled a cache of the module."""
        self._attributes = WatchedAttributes(self._modules)

    def hook(self) -> str | None:
        """The first hook that a graph of the module would not call, as a text; None if there is none."""
        if not any(self._hooks):
            return None
        for index, hooks in enumerate(self._hooks):
            for each in hooks.values():
                if not _defined_in(each).startswith(_TRACED_HOOKS):
                    owner, kind = divmod(index, len(_HOOKS))
                    module = type(self._modules[owner]).__name__ if owner < len(self._modules) else "every module"
                    return f"{_HOOKS[kind].strip('_').removesuffix('s').replace('_', ' ')} {_name_of(each)} on {module}"
        return None

    def training_flags(self) -> tuple[bool, ...]:
        """Which submodules are in training mode."""
        return tuple(map(_training, self._modules))

    def parameter_flags(self) -> tuple[tuple[torch.dtype | None, ...], tuple[bool, ...]]:
        """Of all parameters: element types, and whether each requires a gradient."""
        tensors = [owner[name] for owner, name in self.parameters]
        try:
            return tuple(map(_dtype, tensors)), tuple(map(_requires_grad, tensors))
        except AttributeError:  # one is None now
            pass
        types = tuple(None if tensor is None else tensor.dtype for tensor in tensors)
        return types, tuple(tensor is not None and tensor.requires_grad for tensor in tensors)

    def slot(self, name: str) -> tuple[_Tensors, str]:
        """Where a parameter or buffer lives, by its name in the module."""
        return self._slots[name]


def _defined_in(hook: Any) -> str:
    while isinstance(hook, functools.partial):
        hook = hook.func
    name = hook.__module__ if hasattr(hook, "__qualname__") else type(hook).__module__
    return f"{name}."


def _name_of(hook: Any) -> str:
    return str(getattr(hook, "__qualname__", None) or type(hook).__qualname__)


def _slots(module: torch.nn.Module) -> Iterator[tuple[str, tuple[_Tensors, str], bool]]:
    for prefix, owner in module.named_modules(remove_duplicate=False):
        for tensors, is_parameter in ((owner._parameters, True), (owner._buffers, False)):
            for key in tensors:
                yield (f"{prefix}.{key}" if prefix else key), (tensors, key), is_parameter
