"""What this installation is and can do, and settings that hold for the whole process."""

from __future__ import annotations

import operator
from typing import Any

from sardonyx import __version__
from sardonyx.provider_names import available_providers, known_providers
from sardonyx.target.machine import architecture


def get_available_providers() -> list[str]:
    """Execution providers that can be used here, by falling default priority."""
    return list(available_providers())


def get_all_providers() -> list[str]:
    """Execution providers whose names are known; those not available are left out when a session asks for them."""
    return list(known_providers())


def get_device() -> str:
    """The kind of device that computes: CPU."""
    return "CPU"


def get_version_string() -> str:
    """The version of Sardonyx."""
    return __version__


def get_build_info() -> str:
    """The version and the libraries it runs with, on one line."""
    import platform  # lazy: only asked for when something is reported

    import numpy as np

    python = platform.python_version()
    return f"Sardonyx Build Info: version={__version__}, python={python}, numpy={np.__version__}, machine={architecture()}"


def has_collective_ops() -> bool:
    """Whether operators that talk to other machines are there: no."""
    return False


def print_debug_info() -> None:
    """Print what a bug report should say about this installation."""
    import platform  # lazy: only asked for when something is reported
    import sys

    print(f"sardonyx version: {__version__}")
    print("platform:", platform.platform())
    print("python:", sys.version.replace("\n", " "), "at", sys.executable)
    print(get_build_info())
    print("providers:", ", ".join(available_providers()))


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: Any = None) -> None:
    """Accepted for compatibility: there are no GPU libraries to load."""


def enable_telemetry_events() -> None:
    """Accepted for compatibility: nothing is ever sent anywhere."""


def disable_telemetry_events() -> None:
    """Accepted for compatibility: nothing is ever sent anywhere."""


def set_seed(seed: int) -> None:
    """Seed of random operators that carry none of their own."""
    from sardonyx.ops.creation import random  # lazy: loads the operator's family

    random.set_seed(operator.index(seed) % (1 << 64))
