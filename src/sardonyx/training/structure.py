"""What a graph took from a module, watched cheaply: its submodules, parameters, buffers, and their flags.

A graph belongs to the tree of modules it was exported from. Before each call the tree is compared with what it was: the same
children, as many parameters and buffers, shared ones still shared. Parameters are found through the dictionaries they live in,
so that one that was replaced by another of the same kind is simply read from there.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

_Tensors = dict[str, torch.Tensor | None]


class ModuleStructure:
    """The tree of a module at one time."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._modules = list(module.modules())
        self._children = [(each._modules, tuple(each._modules.items())) for each in self._modules if each._modules]
        self._leaves = [each._modules for each in self._modules if not each._modules]
        self._counts = [(each._parameters, len(each._parameters), each._buffers, len(each._buffers)) for each in self._modules]
        self._slots: dict[str, tuple[_Tensors, str]] = {}
        first: dict[int, tuple[_Tensors, str]] = {}
        self._shared: list[tuple[tuple[_Tensors, str], tuple[_Tensors, str]]] = []
        self.parameters: list[tuple[_Tensors, str]] = []  # each parameter once
        for name, slot, is_parameter in _slots(module):
            tensor = slot[0][slot[1]]
            self._slots[name] = slot
            if tensor is None:
                continue
            if id(tensor) in first:
                self._shared.append((first[id(tensor)], slot))
            else:
                first[id(tensor)] = slot
                if is_parameter:
                    self.parameters.append(slot)

    def holds(self) -> bool:
        """Whether the module still has this tree."""
        for owner, children in self._children:
            if len(owner) != len(children):
                return False
            for name, child in children:
                if owner.get(name) is not child:
                    return False
        for owner in self._leaves:
            if owner:
                return False
        for parameters, parameter_count, buffers, buffer_count in self._counts:
            if len(parameters) != parameter_count or len(buffers) != buffer_count:
                return False
        return all(one[name] is other[alias] for (one, name), (other, alias) in self._shared)

    def training_flags(self) -> tuple[bool, ...]:
        """Which submodules are in training mode."""
        return tuple([each.training for each in self._modules])

    def parameter_flags(self) -> tuple[tuple[torch.dtype | None, ...], tuple[bool, ...]]:
        """Of all parameters: element types, and whether each requires a gradient."""
        types: list[torch.dtype | None] = []
        gradients: list[bool] = []
        for owner, name in self.parameters:
            tensor = owner[name]
            types.append(None if tensor is None else tensor.dtype)
            gradients.append(tensor is not None and tensor.requires_grad)
        return tuple(types), tuple(gradients)

    def slot(self, name: str) -> tuple[_Tensors, str]:
        """Where a parameter or buffer lives, by its name in the module."""
        return self._slots[name]


def _slots(module: torch.nn.Module) -> Iterator[tuple[str, tuple[_Tensors, str], bool]]:
    for prefix, owner in module.named_modules(remove_duplicate=False):
        for tensors, is_parameter in ((owner._parameters, True), (owner._buffers, False)):
            for key in tensors:
                yield (f"{prefix}.{key}" if prefix else key), (tensors, key), is_parameter
