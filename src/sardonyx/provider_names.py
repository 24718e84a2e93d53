"""Execution providers by name: those built in, those a program registers, and those of installed packages.

register_provider("TorchExecutionProvider", TorchProvider)      a factory: options -> provider

[project.entry-points."sardonyx.providers"]                     of another package; looked up when a name is asked for that
TorchExecutionProvider = "torch_provider:TorchProvider"         is neither built in nor registered
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from sardonyx import errors

CPU_PROVIDER: Final = "CPUExecutionProvider"
REFERENCE_PROVIDER: Final = "SardonyxReferenceExecutionProvider"
BUILT_IN_PROVIDERS: Final = (CPU_PROVIDER, REFERENCE_PROVIDER)  # by default priority
# Names ONNX Runtime knows: asking for one of them on a machine without it is no mistake in the program.
KNOWN_PROVIDERS: Final = (
    "NvTensorRTRTXExecutionProvider", "TensorrtExecutionProvider", "CUDAExecutionProvider", "MIGraphXExecutionProvider",
    "OpenVINOExecutionProvider", "DnnlExecutionProvider", "VitisAIExecutionProvider", "QNNExecutionProvider",
    "NnapiExecutionProvider", "VSINPUExecutionProvider", "JsExecutionProvider", "CoreMLExecutionProvider",
    "ACLExecutionProvider", "DmlExecutionProvider", "RknpuExecutionProvider", "WebNNExecutionProvider",
    "WebGpuExecutionProvider", "XnnpackExecutionProvider", "CANNExecutionProvider", "AzureExecutionProvider",
    "ROCMExecutionProvider", "TvmExecutionProvider", "ArmNNExecutionProvider", "SNPEExecutionProvider", REFERENCE_PROVIDER,
    CPU_PROVIDER,  # the last: programs take it for what is left when nothing else fits
)  # fmt: skip
ENTRY_POINT_GROUP: Final = "sardonyx.providers"

Factory = Callable[[Mapping[str, str]], Any]

_registered: dict[str, Factory] = {}
_installed: dict[str, Any] | None = None  # entry points by name, once they were looked for


def register_provider(name: str, factory: Factory) -> None:
    """Make an execution provider available under a name; `factory` gets its options and returns an `ExecutionProvider`.

    A name that was registered before stands for the new provider from now on; sessions that are open keep theirs.
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"the name of an execution provider is a string, got {name!r}")
    if name in BUILT_IN_PROVIDERS:
        raise ValueError(f"{name} is built in: a provider of your own needs another name")
    if not callable(factory):
        raise TypeError(f"the factory of {name} is called with a dictionary of options, got {factory!r}")
    _registered[name] = factory


def unregister_provider(name: str) -> None:
    """Forget a provider that was registered; sessions that are open keep theirs."""
    if _registered.pop(name, None) is None:
        raise ValueError(f"no execution provider was registered as {name!r}")


def usable_providers(asked: Collection[str]) -> tuple[str, ...]:
    """The available providers, for a program that asks for these names: other packages are searched only for one not at hand."""
    if all(name in BUILT_IN_PROVIDERS or name in _registered for name in asked):
        return (*_registered, *BUILT_IN_PROVIDERS)
    return available_providers()


def available_providers() -> tuple[str, ...]:
    """The providers that can be used, by falling default priority: what the built-in ones take, no other gets."""
    return tuple(dict.fromkeys((*_registered, *_entry_points(), *BUILT_IN_PROVIDERS)))


def known_providers() -> tuple[str, ...]:
    """All names that are no mistake, the CPU last."""
    *others, last = KNOWN_PROVIDERS
    return tuple(dict.fromkeys((*(name for name in available_providers() if name != last), *others, last)))


def factory_of(name: str) -> Factory:
    """The factory of a provider that is not built in."""
    found = _registered.get(name)
    if found is not None:
        return found
    point = _entry_points().get(name)
    if point is None:
        raise errors.InvalidArgument(
            f"there is no execution provider {name!r}; available: {', '.join(available_providers())}",
            hint="sardonyx.register_provider makes one available",
        )
    try:
        loaded = point.load()
    except Exception as error:
        raise errors.EPFail(f"{name} of {point.value} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(loaded):
        raise errors.EPFail(f"{name}: {point.value} is no factory of providers, but {loaded!r}")
    factory: Factory = loaded
    return factory


def _entry_points() -> Mapping[str, Any]:
    global _installed
    if _installed is None:
        from importlib.metadata import entry_points  # lazy: it reads the metadata of all installed packages

        _installed = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    return _installed
