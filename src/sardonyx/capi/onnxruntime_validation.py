"""What programs ask ONNX Runtime's package about itself; the answers are those of the release whose interface is offered."""

from __future__ import annotations

from sardonyx.as_onnxruntime import ONNXRUNTIME_VERSION


def check_distro_info() -> None:
    """Accepted for compatibility: Sardonyx runs on every system Python runs on."""


def get_package_name_and_version_info() -> tuple[str, str, str]:
    """The package's name, its version, and that of CUDA: there is none."""
    return "onnxruntime", ONNXRUNTIME_VERSION, ""


def check_training_module() -> tuple[bool, str, str, str]:
    """Whether there is a training package (no), and what `get_package_name_and_version_info` tells."""
    return False, *get_package_name_and_version_info()
