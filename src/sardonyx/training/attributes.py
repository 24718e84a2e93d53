"""Python attributes of a module and all below it: those a graph has taken up, and those that a forward pass writes.

    module.dropout.p = 0.0          a graph has the old number: `WatchedAttributes.hold` is false, and the module is exported anew
    self.last = hidden              in forward: a graph would not do it, so `AttributeValues.changed` names it

Watched are plain values (numbers, truth values, text, None, tuples of them) and tensors that are neither parameters nor buffers,
which a graph holds as constants. Looking costs well under a microsecond a submodule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, Final

import torch

_OF_TORCH: Final = frozenset(vars(torch.nn.Module()))  # what every module has
_PLAIN: Final = (bool, int, float, str, type(None), torch.dtype)
_CONTAINERS: Final = (list, dict, set)
_MISSING: Final = object()


def is_plain(value: Any) -> bool:
    """Whether equality says all about two of such values."""
    return isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(map(is_plain, value)))


class WatchedAttributes:
    """The plain values and tensors that modules hold as attributes, at one time."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        self._readers: list[tuple[Callable[[Any], Any], dict[str, Any]]] = []
        self._tensors: list[tuple[dict[str, Any], str, Any, int]] = []
        for module in modules:
            own = module.__dict__
            plain = [name for name, value in own.items() if name not in _OF_TORCH and is_plain(value)]
            if plain:
                self._readers.append((itemgetter(*plain), own))
            for name, value in own.items():
                if isinstance(value, torch.Tensor) and not value.is_inference():
                    self._tensors.append((own, name, value, value._version))
        self.values = self._now()

    def _now(self) -> list[Any]:
        return [read(own) for read, own in self._readers]

    def hold(self) -> bool:
        """Whether all are what they were."""
        try:
            if self._now() != self.values:
                return False
        except (KeyError, ValueError, RuntimeError):  # one is gone, or holds tensors now
            return False
        return all(tensor._version == version and own.get(name) is tensor for own, name, tensor, version in self._tensors)


class AttributeValues:
    """All attributes of modules before a forward pass, to find and undo what it writes."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._kept: list[tuple[str, torch.nn.Module, dict[str, Any], dict[str, Any]]] = []
        for path, each in module.named_modules():
            own = {name: value for name, value in each.__dict__.items() if name not in _OF_TORCH}
            contents = {name: _copied(value) for name, value in own.items() if type(value) in _CONTAINERS}
            self._kept.append((path, each, own, contents))

    def changed(self) -> list[str]:
        """The attributes that have other values now, by their paths. Weights that torch's own hooks compute are none of them."""
        found = []
        for path, module, own, contents in self._kept:
            if module._forward_pre_hooks:
                continue
            for name in (*own, *(name for name in module.__dict__ if name not in own and name not in _OF_TORCH)):
                before, now = own.get(name, _MISSING), module.__dict__.get(name, _MISSING)
                if not _same(before, now) or (name in contents and not _same_contents(contents[name], now)):
                    found.append(f"{path}.{name}" if path else name)
        return found

    def put_back(self) -> None:
        """Give every attribute the value it had."""
        for _, module, own, contents in self._kept:
            for name in [name for name in module.__dict__ if name not in own and name not in _OF_TORCH]:
                del module.__dict__[name]
            module.__dict__.update(own)
            for name, content in contents.items():
                held = own[name]
                if isinstance(held, list):
                    held[:] = content
                else:
                    held.clear()
                    held.update(content)


def _same(before: Any, now: Any) -> bool:
    return before is now or (is_plain(before) and type(before) is type(now) and bool(before == now))


def _copied(value: Any) -> Any:
    return value.copy()


def _same_contents(before: Any, now: Any) -> bool:
    if len(before) != len(now):
        return False
    if isinstance(before, dict):
        return all(name in now and _same(value, now[name]) for name, value in before.items())
    if isinstance(before, list):
        return all(map(_same, before, now))
    return bool(before == now)
