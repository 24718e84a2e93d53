"""TrainingModule: a PyTorch module whose forward and backward passes are compiled.

    model = TrainingModule(model)
    loss = model(inputs).loss
    loss.backward()                        gradients are in the parameters, as always

Everything but the call itself is the wrapped module's: parameters, buffers, state_dict, training mode, devices, its own methods
and attributes. An attribute set through the wrapper is set on the wrapped module, and makes the next call look at it anew.
"""

from __future__ import annotations

import functools
import logging
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import torch

from sardonyx.training.debug import DebugOptions, training_logger
from sardonyx.training.execution import CompiledModule, PlainModule
from sardonyx.training.fallback import (
    DEFAULT_POLICY,
    FallbackManager,
    ORTModuleFallbackException,
    ORTModuleTorchModelException,
    policy_of_environment,
    retry_of_environment,
)
from sardonyx.training.settings import constant_set_by_program

_Wrapper = TypeVar("_Wrapper", bound="TrainingModule")
_SHARED: Final = ("_modules", "_parameters", "_buffers", "_non_persistent_buffers_set")  # the wrapped module's own
_STATE: Final = "_is_initialized"


class TrainingModule(torch.nn.Module):
    """A module like the one it wraps, whose calls run as compiled programs, forward and backward.

    `debug_options` says what is logged and saved. What cannot be compiled runs in PyTorch, after a warning that says why; the
    environment's ORTMODULE_FALLBACK_POLICY may ask for errors instead (see docs/training.md).
    """

    def __init__(self, module: torch.nn.Module, debug_options: DebugOptions | None = None) -> None:
        self.__dict__[_STATE] = False
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"TrainingModule wraps a torch.nn.Module, not a {type(module).__name__}")
        super().__init__()
        self._wrap(module, debug_options or DebugOptions())
        self.__dict__[_STATE] = True

    def _wrap(self, module: torch.nn.Module, debug_options: DebugOptions) -> None:
        own = self.__dict__
        own["_debug_options"] = debug_options
        own["_logger"] = logger = training_logger(debug_options.logging.log_level)
        own["_fallback_manager"] = fallback = FallbackManager(
            module,
            policy_of_environment(constant_set_by_program("ORTMODULE_FALLBACK_POLICY", DEFAULT_POLICY)),
            retry_of_environment(constant_set_by_program("ORTMODULE_FALLBACK_RETRY", False)),
            logger,
        )
        own["training"] = module.training
        for name in _SHARED:
            own[name] = module.__dict__[name]
        try:
            own["_torch_module"] = CompiledModule(module, debug_options, fallback, logger)
        except ORTModuleFallbackException as error:
            fallback.handle_exception(error)
            fallback.warn(error)
            own["_torch_module"] = PlainModule(module)
        own["forward"] = self._forward_like(module)
        _bind_methods(self, module, logger)

    def _forward_like(self, module: torch.nn.Module) -> Callable[..., Any]:
        """A forward method with the signature of the wrapped one, which programs inspect."""

        @functools.wraps(module.forward)
        def forward(*args: Any, **kwargs: Any) -> Any:
            return self.__dict__["_torch_module"].forward(*args, **kwargs)

        return forward

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """One call of the wrapped module, compiled; takes and gives what the wrapped module's forward does."""
        return self._torch_module.forward(*args, **kwargs)

    @property
    def module(self) -> torch.nn.Module:
        """The wrapped module."""
        wrapped: torch.nn.Module = self.__dict__["_torch_module"].module
        return wrapped

    def _is_training(self) -> bool:
        return bool(self._torch_module.is_training())

    def _replicate_for_data_parallel(self) -> Any:
        raise NotImplementedError(
            "ORTModule is not compatible with torch.nn.DataParallel. "
            "Please use torch.nn.parallel.DistributedDataParallel instead."
        )

    # What follows is the wrapped module's: torch.nn.Module's interface, handed on.

    def add_module(self, name: str, module: torch.nn.Module | None) -> None:
        """Refused: add it to the wrapped module before it is wrapped."""
        raise ORTModuleTorchModelException("ORTModule does not support adding modules to it.")

    def train(self: _Wrapper, mode: bool = True) -> _Wrapper:
        """Set the training mode of the wrapped module."""
        self.__dict__["training"] = mode
        if "_torch_module" in self.__dict__:
            self.module.train(mode)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of the wrapped module's parameters, or make them zero."""
        if not set_to_none or type(self.module).zero_grad is not torch.nn.Module.zero_grad:
            self.module.zero_grad(set_to_none)
            return
        for parameter in self._torch_module.known_parameters():
            parameter.grad = None

    def _apply(self: _Wrapper, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> _Wrapper:
        self.module._apply(fn, recurse=recurse)
        return self

    def apply(self: _Wrapper, fn: Callable[[torch.nn.Module], Any]) -> _Wrapper:
        """Apply a function to the wrapped module and all its submodules."""
        self.module.apply(fn)
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The wrapped module's state."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load the wrapped module's state."""
        return self.module.load_state_dict(state_dict, strict=strict, assign=assign)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.module._load_from_state_dict(*args, **kwargs)

    def register_buffer(self, name: str, tensor: torch.Tensor | None, persistent: bool = True) -> None:
        """Add a buffer to the wrapped module."""
        self.module.register_buffer(name, tensor, persistent=persistent)

    def register_parameter(self, name: str, param: torch.nn.Parameter | None) -> None:
        """Add a parameter to the wrapped module."""
        self.module.register_parameter(name, param)

    def get_parameter(self, target: str) -> torch.nn.Parameter:
        """A parameter of the wrapped module."""
        return self.module.get_parameter(target)

    def get_buffer(self, target: str) -> torch.Tensor:
        """A buffer of the wrapped module."""
        return self.module.get_buffer(target)

    def get_submodule(self, target: str) -> torch.nn.Module:
        """A submodule of the wrapped module."""
        return self.module.get_submodule(target)

    def parameters(self, recurse: bool = True) -> Iterator[torch.nn.Parameter]:
        """The wrapped module's parameters."""
        yield from self.module.parameters(recurse=recurse)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """The wrapped module's parameters with their names, which are the same."""
        yield from self.module.named_parameters(*args, **kwargs)

    def buffers(self, recurse: bool = True) -> Iterator[torch.Tensor]:
        """The wrapped module's buffers."""
        yield from self.module.buffers(recurse=recurse)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """The wrapped module's buffers with their names, which are the same."""
        yield from self.module.named_buffers(*args, **kwargs)

    def children(self) -> Iterator[torch.nn.Module]:
        """The wrapped module's children."""
        yield from self.module.children()

    def named_children(self) -> Iterator[tuple[str, torch.nn.Module]]:
        """The wrapped module's children with their names."""
        yield from self.module.named_children()

    def modules(self) -> Iterator[torch.nn.Module]:
        """The wrapped module and all below it."""
        yield from self.module.modules()

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.nn.Module]]:
        """The wrapped module and all below it, with their names."""
        yield from self.module.named_modules(*args, **kwargs)

    # Attributes: the wrapper's own, or else the wrapped module's.

    def __getattr__(self, name: str) -> Any:
        if "_torch_module" in self.__dict__:
            return getattr(self.__dict__["_torch_module"].module, name)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if not self.__dict__.get(_STATE, False) or (name in self.__dict__ and name not in _SHARED):
            if self.__dict__.get(_STATE, False):
                self.__dict__[name] = value
            else:
                super().__setattr__(name, value)
            return
        module = self.module
        if getattr(module, name, _STATE) is not value:
            setattr(module, name, value)
            self._torch_module.signal_model_changed()

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__ and name not in _SHARED:
            del self.__dict__[name]
            return
        delattr(self.module, name)
        self._torch_module.signal_model_changed()

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self.module)})

    def __repr__(self) -> str:
        return f"{type(self).__name__}(\n  {repr(self.module).replace(chr(10), chr(10) + '  ')}\n)"

    # Copies and pickles hold the wrapped module; programs are compiled again.

    def __getstate__(self) -> dict[str, Any]:
        kept = {
            name: value
            for name, value in self.__dict__.items()
            if name not in (*_SHARED, "_torch_module", "_fallback_manager", "_logger", "forward")
            and not (isinstance(value, types.MethodType) and value.__self__ is self)
        }
        return {**kept, "wrapped": self.module}

    def __setstate__(self, state: dict[str, Any]) -> None:
        kept = dict(state)
        module = kept.pop("wrapped")
        self.__dict__.update(kept)
        self.__dict__[_STATE] = False
        self._wrap(module, kept["_debug_options"])
        self.__dict__[_STATE] = True


def _bind_methods(wrapper: TrainingModule, module: torch.nn.Module, logger: logging.Logger) -> None:
    """The user's own methods, bound to the wrapper, so that a call of `self(...)` in them is compiled."""
    of_torch = {**vars(torch.nn.Module), **vars(torch.nn.Module())}
    of_wrapper = {name for name in (*vars(TrainingModule), *wrapper.__dict__) if not name.startswith("__") and name != "forward"}
    for name in module.__dict__:
        if name in of_wrapper and name not in of_torch:
            _tell_collision(logger, name)
    for name, member in _static(type(module)):
        if name.startswith("__") or name == "forward" or of_torch.get(name) is member:
            continue
        if name in of_wrapper:
            # torch's own layers may define what they like; models of transformers have a train(), which ours calls
            if name != "train" and not str(getattr(member, "__module__", "")).startswith("torch."):
                _tell_collision(logger, name)
        elif name not in of_torch and isinstance(member, types.FunctionType):
            wrapper.__dict__[name] = types.MethodType(member, wrapper)


def _static(kind: type) -> list[tuple[str, Any]]:
    found = {name: value for base in reversed(kind.__mro__) for name, value in vars(base).items()}
    return sorted(found.items())


def _tell_collision(logger: logging.Logger, name: str) -> None:
    logger.warning(
        f"User Module's attribute name {name} collides with ORTModule's attribute name. "
        "Through the training module its own is found; the user's is that of its `module`."
    )
