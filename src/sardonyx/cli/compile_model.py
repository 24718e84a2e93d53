"""`sardonyx compile`: a model to one file that opens without the compiler."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import sardonyx
from sardonyx.cli.progress import Progress
from sardonyx.cli.simplify import session_options
from sardonyx.cli.tables import byte_size, columns, counted


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """Describe the subcommand to the parser."""
    parser = commands.add_parser(
        "compile",
        parents=[shared],
        help="compile a model to a file that opens at once",
        description="Compile a model and write program, machine code and packed weights to one file (.sdx), for this machine or "
        "for others. InferenceSession opens it without the compiler. It holds machine code: open only files you trust.",
    )
    parser.add_argument("model", metavar="MODEL", help="an .onnx or .ort file")
    parser.add_argument("-o", "--output", metavar="OUT.sdx", help="the file to write; default: the model's name with .sdx")
    parser.add_argument(
        "--target",
        nargs="+",
        default=["native"],
        metavar="TARGET",
        help="machines to compile for: native (this one's processor), x86-64-v2, x86-64-v3, x86-64-v4, aarch64. Several go into "
        "one file, the best that fits is used. Default: native",
    )
    parser.add_argument(
        "--include-model",
        action="store_true",
        help="put the model into the file, too: other machines compile it, and any intermediate value can be fetched",
    )
    parser.add_argument(
        "--dim", action="append", default=[], metavar="NAME=SIZE", help="fix a named dimension of the inputs; may be repeated"
    )
    parser.add_argument("--json", action="store_true", help="what was written, as one JSON object")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Compile, and say what is in the file."""
    output = args.output or Path(args.model).with_suffix(".sdx")
    targets = [name for text in args.target for name in text.split(",") if name]
    progress = Progress(None, f"compiling {Path(args.model).name}")

    def tell(name: str) -> None:
        progress.noun = f"compiling {Path(args.model).name} for {name}"

    with progress:
        done = sardonyx.compile_bundle(
            args.model,
            output,
            targets=targets,
            include_model=args.include_model,
            options=session_options(args.dim),
            on_target=tell,
        )
    if args.json:
        facts = [
            {
                "target": each.name,
                "steps": each.steps,
                "kernels": each.kernels,
                "host_steps": list(each.host_steps),
                "code_bytes": each.code_bytes,
                "constant_bytes": each.constant_bytes,
            }
            for each in done.targets
        ]
        print(json.dumps({"path": str(done.path), "bytes": done.nbytes, "model": done.has_model, "targets": facts}, indent=2))
        return 0
    rows = [
        (each.name, each.steps, each.kernels, len(each.host_steps), byte_size(each.code_bytes), byte_size(each.constant_bytes))
        for each in done.targets
    ]
    print("\n".join(columns(rows, header=("target", "steps", "kernels", "in Python", "code", "weights"), fit=True)))
    inside = ", the model inside" if done.has_model else ""
    print(f"written to {done.path} ({byte_size(done.nbytes)}, {counted(len(done.targets), 'target')}{inside})")
    return 0
