"""What a result was measured on."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable
from importlib import metadata
from typing import Any

from sardonyx.runtime.pool import usable_cores
from sardonyx.target.machine import architecture, processor_name

_FLAGS = ("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8")
_PACKAGES = ("sardonyx", "onnxruntime", "openvino", "torch", "numpy", "llvmlite")


def machine_facts(packages: Iterable[str] = _PACKAGES) -> dict[str, Any]:
    """Processor, cores, how busy they have been in the last minute, system, versions of packages, and the date."""
    described = _processor()
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "processor": described.get("model name", processor_name()),
        "flags": [flag for flag in _FLAGS if flag in described.get("flags", "").split()],
        "cores": usable_cores(),
        "logical_processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "memory_bytes": _memory(),
        "system": f"{platform.system()} {platform.release()} {architecture()}",
        "python": platform.python_version(),
        "packages": {name: version for name in packages if (version := _version(name))},
    }


def _processor() -> dict[str, str]:
    """The description of the first processor, as Linux gives it."""
    found: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                key, _, value = line.partition(":")
                if not line.strip():
                    break
                found[key.strip()] = value.strip()
    except OSError:
        pass
    return found


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
