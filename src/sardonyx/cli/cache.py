"""`sardonyx cache`: the compiled kernels and whole programs on disk."""

from __future__ import annotations

import argparse
import json
import time

import sardonyx
from sardonyx.cli.tables import byte_size, columns, counted
from sardonyx.cli.usage import UsageError

DAY = 86_400


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """Describe the subcommand to the parser."""
    parser = commands.add_parser(
        "cache",
        parents=[shared],
        help="show or clear what was compiled, on disk",
        description="Show, clear or locate the folder of compiled kernels and programs. It may be deleted at any time: what is missing is "
        "compiled again. The environment variable SARDONYX_CACHE_DIR names another folder, or none if it is empty.",
    )
    parser.add_argument("action", nargs="?", choices=("show", "clear", "path"), default="show", help="default: show")
    parser.add_argument("--json", action="store_true", help="the same as one JSON object")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    cache = sardonyx.object_cache()
    if cache is None:
        raise UsageError("the cache is off: SARDONYX_CACHE_DIR is empty", "unset it, or let it name a folder")
    if args.action == "path":
        print(json.dumps({"folder": str(cache.folder)}) if args.json else cache.folder)
        return 0
    entries, programs = cache.entries(), cache.programs()
    size, program_size = (sum(each[1] for each in found) for found in (entries, programs))
    if args.action == "clear":
        removed = cache.clear()
        freed = {"folder": str(cache.folder), "removed": removed, "bytes": size + program_size}
        what = f"{counted(len(entries), 'kernel')} and {counted(len(programs), 'program')}, {byte_size(size + program_size)}"
        print(json.dumps(freed) if args.json else f"removed {what}, from {cache.folder}")
        return 0
    facts = {"folder": str(cache.folder), "entries": len(entries), "bytes": size, "limit_bytes": cache.limit_bytes}
    facts |= {"programs": len(programs), "program_bytes": program_size}
    if args.json:
        facts["oldest_use"], facts["newest_use"] = (entries[0][2], entries[-1][2]) if entries else (None, None)
        print(json.dumps(facts))
        return 0
    rows = [
        ("folder", str(cache.folder)),
        ("kernels", f"{len(entries):,}"),
        ("size", f"{byte_size(size)} of at most {byte_size(cache.limit_bytes)}"),
    ]
    if programs:
        rows.append(("programs", f"{len(programs):,}, {byte_size(program_size)}"))
    if entries:
        rows.append(("last use", f"{_age(entries[-1][2])} (newest), {_age(entries[0][2])} (oldest)"))
    print("\n".join(columns(rows, indent="")))
    return 0


def _age(moment: float) -> str:
    days = int((time.time() - moment) / DAY)
    return f"{counted(days, 'day')} ago" if days >= 1 else "today"
