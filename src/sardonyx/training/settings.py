"""Settings of a training module that the environment may change, by ONNX Runtime's names.

    ORTMODULE_ONNX_OPSET_VERSION    the opset of exported graphs (17)
    ORTMODULE_SKIPCHECK_POLICY      what is not looked at before each call, once there is a graph (nothing)
    ORTMODULE_CACHE_DIR             a folder in which exported graphs are kept for programs that start again (none)
    ORTMODULE_MEMORY_OPT_LEVEL      what is computed again in the backward pass: 1 layers, 2 what is light, 0 the choices (0)
    ORTMODULE_MEMORY_OPT_CONFIG     the choices, "Op+Op+:strategy:count" separated by commas, or a JSON file with a list of them
    ORTMODULE_FALLBACK_POLICY, ORTMODULE_FALLBACK_RETRY      see fallback.py
    ORTMODULE_LOG_LEVEL, ORTMODULE_SAVE_ONNX_PATH            see debug.py

In ONNX Runtime nothing is looked at after the first call unless SKIP_CHECK_DISABLED is set; here everything is, unless one of the
other flags is set: looking costs microseconds.
"""

from __future__ import annotations

import enum
import os
import sys
from typing import Any, Final

from sardonyx.records import dataclass
from sardonyx.training.recompute import RecomputeOptions

DEFAULT_OPSET: Final = 17
OPSETS: Final = range(12, 21)  # that the exporter and the gradient rules know
OPSET_VARIABLE: Final = "ORTMODULE_ONNX_OPSET_VERSION"
LEVEL_VARIABLE: Final = "ORTMODULE_MEMORY_OPT_LEVEL"
CONFIG_VARIABLE: Final = "ORTMODULE_MEMORY_OPT_CONFIG"
SKIP_VARIABLE: Final = "ORTMODULE_SKIPCHECK_POLICY"


class SkipCheck(enum.IntFlag):
    """Which checks are left out once there is a graph."""

    SKIP_CHECK_DISABLED = 1
    SKIP_CHECK_DEVICE = 2
    SKIP_CHECK_BUILD_GRADIENT = 4
    SKIP_CHECK_EXECUTION_AGENT = 8

    def is_set(self, check: SkipCheck) -> bool:
        """Whether a check is left out."""
        return not self.is_disabled() and check in self

    def is_disabled(self) -> bool:
        """Whether everything is checked."""
        return SkipCheck.SKIP_CHECK_DISABLED in self


@dataclass
class RuntimeOptions:
    """The settings of one manager."""

    onnx_opset_version: int = DEFAULT_OPSET
    skip_check: SkipCheck = SkipCheck.SKIP_CHECK_DISABLED
    ortmodule_cache_dir: str = ""
    memory_optimization_level: int = 0
    memory_optimizer_config_file_path: str = ""

    @property
    def recompute(self) -> RecomputeOptions:
        """What is computed again; InvalidArgument if the level or the choices make no sense."""
        return RecomputeOptions.of(self.memory_optimization_level, self.memory_optimizer_config_file_path)

    def memory_optimizer_is_enabled(self) -> bool:
        """Whether anything is computed again that is not cheap."""
        return self.recompute.is_enabled

    @property
    def skips_checks(self) -> bool:
        """Whether a graph is used without looking whether it still fits."""
        return self.skip_check.is_set(SkipCheck.SKIP_CHECK_BUILD_GRADIENT)

    @staticmethod
    def from_environment() -> RuntimeOptions:
        """The settings, with what the environment says."""
        found = RuntimeOptions(
            _opset(), _skipped(), os.environ.get("ORTMODULE_CACHE_DIR", ""), _level(), os.environ.get(CONFIG_VARIABLE, "")
        )
        found.recompute  # noqa: B018 - what makes no sense is said where the module is wrapped
        return found


def constant_set_by_program(name: str, default: Any) -> Any:
    """A constant of `onnxruntime.training.ortmodule`, which programs set there before they wrap a module."""
    for module in ("onnxruntime.training.ortmodule", "sardonyx.training.ortmodule"):
        loaded = sys.modules.get(module)
        if loaded is not None and name in vars(loaded):
            return vars(loaded)[name]
    return default


def _opset() -> int:
    text = os.environ.get(OPSET_VARIABLE, str(constant_set_by_program("ONNX_OPSET_VERSION", DEFAULT_OPSET)))
    if not text.isdecimal() or int(text) not in OPSETS:
        raise ValueError(f"{OPSET_VARIABLE} is {text!r}, expected a number from {OPSETS.start} to {OPSETS.stop - 1}")
    return int(text)


def _level() -> int:
    text = os.environ.get(LEVEL_VARIABLE, "0")
    if text not in ("0", "1", "2"):
        raise ValueError(f"{LEVEL_VARIABLE} is {text!r}, expected 0, 1 or 2")
    return int(text)


def _skipped() -> SkipCheck:
    text = os.environ.get(SKIP_VARIABLE, "")
    chosen = SkipCheck(0)
    for name in (each.strip() for each in text.split("|") if each.strip()):
        if name not in SkipCheck.__members__:
            raise ValueError(f"{SKIP_VARIABLE} is {text!r}: {name!r} is none of {', '.join(SkipCheck.__members__)}")
        chosen |= SkipCheck[name]
    return chosen or SkipCheck.SKIP_CHECK_DISABLED
