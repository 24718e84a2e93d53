"""What code is generated for: instruction set, vector width, registers.

Kernels ask the target for its vector width and register count and never for its name, so that a new machine is a new
`Target`, not new kernels.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Final

from sardonyx.cache_folder import CacheFolder
from sardonyx.codegen.machine import machine_fingerprint

_NOTES_LIMIT: Final = 1 << 20  # bytes of descriptions of machines that are kept


@dataclass(frozen=True, slots=True)
class Target:
    """A machine. `lanes` is how many float32 a vector holds; `registers` how many vectors the machine keeps."""

    triple: str
    cpu: str
    features: str
    lanes: int
    registers: int

    @property
    def key(self) -> str:
        """Names this target in cache keys."""
        return hashlib.sha256(f"{self.triple}|{self.cpu}|{self.features}|{self.lanes}".encode()).hexdigest()[:16]

    def has(self, feature: str) -> bool:
        """Whether the machine has an instruction set extension, by LLVM's name."""
        return f"+{feature}" in self.features.split(",")


def describe(triple: str, cpu: str, features: str) -> Target:
    """The target for LLVM's description of a machine."""
    has = set(features.split(","))
    if triple.startswith("x86_64"):
        wide = {"+avx512f", "+avx512vl", "+avx512bw", "+avx512dq"} <= has
        if wide:
            return Target(triple, cpu, features, 16, 32)
        return Target(triple, cpu, features, 8 if "+avx2" in has and "+fma" in has else 4, 16)
    return Target(triple, cpu, features, 4, 32 if triple.startswith("aarch64") else 16)


def narrow(target: Target, lanes: int) -> Target:
    """The same machine, using vectors of fewer lanes."""
    return Target(target.triple, target.cpu, target.features, lanes, target.registers)


@cache
def host(cache_folder: Path | None = None, trusted: bool = False) -> Target:
    """The machine this runs on; remembered in the cache folder, so that a warm start need not load LLVM."""
    import json  # only a session that compiles gets here

    notes = CacheFolder(cache_folder, ".target", _NOTES_LIMIT, trusted) if cache_folder is not None else None
    content = None if notes is None else notes.read(machine_fingerprint())
    if content is not None:
        try:
            return Target(**json.loads(content))
        except (ValueError, TypeError):
            pass  # damaged: it is made again below
    from sardonyx.codegen import llvm  # lazy: LLVM is loaded only when something must be compiled

    target = describe(*llvm.host_description())
    if notes is not None:
        notes.write(machine_fingerprint(), json.dumps(asdict(target)).encode())
        notes.make_room()
    return target
