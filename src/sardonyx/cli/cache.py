"""`sardonyx cache`: compiled kernels and whole models on disk."""

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
        help="show or clear the compiled kernels and models on disk",
        description="Show, clear or locate the folder of compiled kernels and models. It may be deleted at any time: what is "
        "missing is compiled again. The environment variable SARDONYX_CACHE_DIR names another folder, or none if it is empty; "
        "with SARDONYX_CACHE_TRUSTED=1 it is read whoever owns it, as one that came with a container's image.",
    )
    parser.add_argument("action", nargs="?", choices=("show", "clear", "path"), default="show", help="default: show")
    parser.add_argument("--json", action="store_true", help="the same as one JSON object")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    kernels, models = sardonyx.object_cache(), sardonyx.program_cache()
    if kernels is None or models is None:
        reason = "the cache is off: SARDONYX_CACHE_DIR is empty, or there is no home folder"
        raise UsageError(reason, "let SARDONYX_CACHE_DIR name a folder")
    folder = str(kernels.folder)
    if args.action == "path":
        print(json.dumps({"folder": folder}) if args.json else folder)
        return 0
    kinds = {"kernels": kernels, "models": models}
    entries = {kind: cache.entries() for kind, cache in kinds.items()}
    sizes = {kind: sum(entry.size for entry in found) for kind, found in entries.items()}
    if args.action == "clear":
        removed = {kind: cache.clear() for kind, cache in kinds.items()}
        if args.json:
            print(json.dumps({"folder": folder, **removed, "bytes": sum(sizes.values())}))
        else:
            what = f"{counted(removed['kernels'], 'kernel')} and {counted(removed['models'], 'model')}"
            print(f"removed {what}, {byte_size(sum(sizes.values()))}, from {folder}")
        return 0
    if args.json:
        facts = {
            kind: {
                "entries": len(found),
                "bytes": sizes[kind],
                "limit_bytes": kinds[kind].limit_bytes,
                "oldest_use": found[0].last_use if found else None,
                "newest_use": found[-1].last_use if found else None,
            }
            for kind, found in entries.items()
        }
        print(json.dumps({"folder": folder, "problem": kernels.problem(), **facts}))
        return 0
    rows = [("folder", folder)]
    if kernels.problem():
        rows.append(("not used", kernels.problem()))
    for kind, found in entries.items():
        used = f", last used {_age(found[-1].last_use)} (newest), {_age(found[0].last_use)} (oldest)" if found else ""
        rows.append((kind, f"{len(found):,}: {byte_size(sizes[kind])} of at most {byte_size(kinds[kind].limit_bytes)}{used}"))
    print("\n".join(columns(rows, indent="")))
    return 0


def _age(moment: float) -> str:
    days = int((time.time() - moment) / DAY)
    return f"{counted(days, 'day')} ago" if days >= 1 else "today"
