"""When a module cannot be compiled: which failures hand the call to PyTorch, and which reach the user.

    policy                             failures
    FALLBACK_DISABLE                   none: every failure reaches the user
    FALLBACK_FORCE_TORCH_FORWARD       all of them, whatever they are
    FALLBACK_FORCE_TORCH_BACKWARD      all that are raised as one of the classes below
    FALLBACK_UNSUPPORTED_DEVICE        ORTModuleDeviceException: parameters or inputs that are not on the CPU
    FALLBACK_UNSUPPORTED_DATA          ORTModuleIOError: inputs or outputs of types that have no schema
    FALLBACK_UNSUPPORTED_TORCH_MODEL   ORTModuleTorchModelException: modules that cannot be wrapped
    FALLBACK_UNSUPPORTED_ONNX_MODEL    ORTModuleONNXModelException: export, gradient or compilation failed
    FALLBACK_BAD_INITIALIZATION        ORTModuleInitException: what training needs is not there

Policies are combined with `|`. A call that falls back runs the wrapped module, after one warning that says why; so do the calls
after it, unless `retry` asks to try again every time, or the reason is a hook, which may be removed. Names are ONNX Runtime's,
since programs catch and set them.
"""

from __future__ import annotations

import enum
import logging
import os
from typing import Any, Final

import torch


class ORTModuleFallbackException(Exception):
    """A call, or a whole module, that PyTorch has to run."""


class ORTModuleInitException(ORTModuleFallbackException):
    """What training needs is not there, or of the wrong version."""


class ORTModuleDeviceException(ORTModuleFallbackException):
    """Parameters or inputs that are not where compiled code can read them."""


class ORTModuleIOError(ORTModuleFallbackException):
    """Inputs or outputs of types that cannot be flattened."""


class ORTModuleTorchModelException(ORTModuleFallbackException):
    """A module that cannot be wrapped."""


class ModuleHasHooks(ORTModuleTorchModelException):
    """A hook on a submodule, which a compiled graph would not call; calls are compiled again once it is removed."""


class ORTModuleONNXModelException(ORTModuleFallbackException):
    """A module that could not be exported, differentiated or compiled."""


class FallbackPolicy(enum.IntFlag):
    """Which failures PyTorch takes over; see the module's table."""

    FALLBACK_DISABLE = 1
    FALLBACK_FORCE_TORCH_FORWARD = 2
    FALLBACK_FORCE_TORCH_BACKWARD = 4
    FALLBACK_UNSUPPORTED_DEVICE = 8
    FALLBACK_UNSUPPORTED_DATA = 16
    FALLBACK_UNSUPPORTED_TORCH_MODEL = 32
    FALLBACK_UNSUPPORTED_ONNX_MODEL = 64
    FALLBACK_BAD_INITIALIZATION = 128

    def is_set(self, policy: FallbackPolicy) -> bool:
        """Whether a policy is part of this one, and falling back is not disabled altogether."""
        return not self.is_disabled() and policy in self

    def is_disabled(self) -> bool:
        """Whether nothing falls back."""
        return FallbackPolicy.FALLBACK_DISABLE in self


DEFAULT_POLICY: Final = (
    FallbackPolicy.FALLBACK_UNSUPPORTED_DEVICE
    | FallbackPolicy.FALLBACK_UNSUPPORTED_DATA
    | FallbackPolicy.FALLBACK_UNSUPPORTED_TORCH_MODEL
    | FallbackPolicy.FALLBACK_UNSUPPORTED_ONNX_MODEL
)
_ALL: Final = (ORTModuleDeviceException, ORTModuleIOError, ORTModuleTorchModelException, ORTModuleONNXModelException)
_HANDLED: Final[dict[FallbackPolicy, tuple[type[Exception], ...]]] = {
    FallbackPolicy.FALLBACK_FORCE_TORCH_FORWARD: (Exception,),
    FallbackPolicy.FALLBACK_FORCE_TORCH_BACKWARD: _ALL,
    FallbackPolicy.FALLBACK_UNSUPPORTED_DEVICE: (ORTModuleDeviceException,),
    FallbackPolicy.FALLBACK_UNSUPPORTED_DATA: (ORTModuleIOError,),
    FallbackPolicy.FALLBACK_UNSUPPORTED_TORCH_MODEL: (ORTModuleTorchModelException,),
    FallbackPolicy.FALLBACK_UNSUPPORTED_ONNX_MODEL: (ORTModuleONNXModelException,),
    FallbackPolicy.FALLBACK_BAD_INITIALIZATION: (ORTModuleInitException, ORTModuleTorchModelException),
}
POLICY_VARIABLE: Final = "ORTMODULE_FALLBACK_POLICY"
RETRY_VARIABLE: Final = "ORTMODULE_FALLBACK_RETRY"


def policy_of_environment(default: FallbackPolicy = DEFAULT_POLICY) -> FallbackPolicy:
    """The policy that ORTMODULE_FALLBACK_POLICY names (several with `|`), or the default."""
    text = os.environ.get(POLICY_VARIABLE)
    if not text:
        return default
    chosen = FallbackPolicy(0)
    for name in text.split("|"):
        if name.strip() not in FallbackPolicy.__members__:
            known = ", ".join(FallbackPolicy.__members__)
            raise ValueError(
                f"{POLICY_VARIABLE} is {text!r}: {name.strip()!r} is no policy; expected some of {known}, joined by '|'"
            )
        chosen |= FallbackPolicy[name.strip()]
    return chosen


def retry_of_environment(default: bool = False) -> bool:
    """Whether ORTMODULE_FALLBACK_RETRY asks to try again at every call, or the default."""
    return os.environ.get(RETRY_VARIABLE, str(default)).lower() in ("true", "1", "yes")


class FallbackManager:
    """Decides what becomes of a failure, and runs the module in PyTorch where that is the answer."""

    def __init__(self, module: torch.nn.Module, policy: FallbackPolicy, retry: bool, logger: logging.Logger) -> None:
        self._module = module
        self.policy = policy
        self.retry = retry
        self._logger = logger
        self._exception: Exception | None = None  # the failure that calls fall back for
        self._raised_fallback_exception = False  # whether the user was told
        self._hooks_were_reported = False

    def handles(self, exception: Exception) -> bool:
        """Whether the policy gives this failure to PyTorch."""
        if self.policy.is_disabled():
            return False
        return any(policy in self.policy and isinstance(exception, kinds) for policy, kinds in _HANDLED.items())

    def handle_exception(self, exception: Exception) -> None:
        """Note a failure that falls back; raise any other."""
        if not self.handles(exception):
            raise exception
        self._exception = exception

    def is_pending(self) -> bool:
        """Whether calls fall back."""
        return self._exception is not None

    def fallback(self, *inputs: Any, **kwargs: Any) -> Any:
        """Run the call in PyTorch, and say why, once.

        If PyTorch fails as well the call itself was wrong: its error is the user's, and the next call is tried anew.
        """
        failure = self._exception
        try:
            result = self._module(*inputs, **kwargs)
        except Exception:
            if not self._raised_fallback_exception:
                self._exception = None
            raise
        if not self._raised_fallback_exception and failure is not None:
            self.warn(failure)
        if self.retry or isinstance(failure, ModuleHasHooks):
            self._exception = None
            self._raised_fallback_exception = False
        return result

    def warn(self, failure: Exception) -> None:
        """Tell the user that PyTorch runs the module."""
        self._raised_fallback_exception = True
        if isinstance(failure, ModuleHasHooks):
            if self._hooks_were_reported:
                return
            self._hooks_were_reported = True
        again = "every call tries to compile again" if self.retry else "so do the calls that follow"
        if isinstance(failure, ModuleHasHooks):
            again = "so do the others until the hook is removed"
        self._logger.warning(
            f"Fallback to PyTorch due to exception {type(failure)} was triggered: this call of "
            f"{type(self._module).__name__} runs in PyTorch, and {again}. The reason:\n{failure}"
        )
