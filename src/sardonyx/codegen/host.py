"""The target that this process compiles for: the machine it runs on, or the level of it that was asked for."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Final

from sardonyx.cache_folder import CacheFolder
from sardonyx.target.levels import level_of
from sardonyx.target.machine import cache_bytes, machine_fingerprint
from sardonyx.target.target import NATIVE, Caches, Target, describe

_NOTES_LIMIT: Final = 1 << 20  # bytes of descriptions of machines that are kept


@cache
def host(cache_folder: str | None = None, trusted: bool = False, name: str = NATIVE, runtime: str = "") -> Target:
    """The machine this runs on, or a level of it. It is remembered in the cache folder, so that LLVM need not be loaded."""
    if runtime and runtime != (whole := host(cache_folder, trusted, name)).runtime:
        return replace(whole, runtime=runtime)
    if name != NATIVE:
        return level_of(host(cache_folder, trusted), name)
    import json  # only a session that compiles gets here

    notes = CacheFolder(cache_folder, ".target", _NOTES_LIMIT, trusted) if cache_folder is not None else None
    content = None if notes is None else notes.read(machine_fingerprint())
    if content is not None:
        try:
            triple, cpu, features, *caches = json.loads(content)
            if all(isinstance(text, str) for text in (triple, cpu, features)):
                return describe(triple, cpu, features, Caches(*map(int, caches)))
        except (ValueError, TypeError):
            pass  # damaged: it is made again below
    from sardonyx.codegen import llvm  # lazy: LLVM is loaded only when something must be compiled

    description, sizes, usual = llvm.host_description(), cache_bytes(), Caches()
    found = Caches(*(sizes.get(level, size) for level, size in enumerate(usual, 1)))
    if notes is not None:
        notes.write(machine_fingerprint(), json.dumps([*description, *found]).encode())
        notes.make_room()
    return describe(*description, found)
