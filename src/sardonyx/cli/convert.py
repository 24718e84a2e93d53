"""`sardonyx convert`: ONNX models to models in the ORT format."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import sardonyx
from sardonyx.cli.tables import byte_size, counted
from sardonyx.cli.usage import UsageError

STYLES = ("fixed", "runtime")


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """Describe the subcommand to the parser."""
    parser = commands.add_parser(
        "convert",
        parents=[shared],
        help="convert ONNX models to the ORT format",
        description="Convert an .onnx file, or all in a folder, to the ORT format (.ort), and write the list of operators they "
        "need. Both ONNX Runtime and Sardonyx run the files; sardonyx.minimal runs them without the operator table. With "
        "--float16 the models stay in the ONNX format, and their weights and values become half as large.",
    )
    parser.add_argument("source", metavar="IN", help="an .onnx file, or a folder with such files")
    parser.add_argument("--output-dir", metavar="DIR", help="where files go; default: beside the models")
    parser.add_argument(
        "--optimization-style",
        nargs="+",
        choices=STYLES,
        default=list(STYLES),
        metavar="STYLE",
        help="fixed: make all optimizations; runtime: make basic ones and write the others down for whoever loads the model and "
        "enables them. Default: a file for each",
    )
    levels = ("disable", "basic", "extended", "layout", "all")
    parser.add_argument("--level", choices=levels, default="all", help="how far models are optimized; default: all")
    parser.add_argument(
        "--enable-type-reduction", action="store_true", help="write the types that operators are used with to the list, too"
    )
    parser.add_argument("--target-platform", choices=("arm", "amd64"), help="where the models will run")
    parser.add_argument("--save-optimized-onnx-model", action="store_true", help="write the optimized model as ONNX, too")
    parser.add_argument("--allow-conversion-failures", action="store_true", help="go on after a model that cannot be converted")
    parser.add_argument(
        "--float16",
        action="store_true",
        help="write ONNX models in float16 (NAME.float16.onnx) instead; weights are half as large",
    )
    parser.add_argument("--keep-io-types", action="store_true", help="with --float16: inputs and outputs stay float32")
    parser.add_argument("--json", action="store_true", help="the same as one JSON object per style")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Convert; exit code 1 if a model could not be."""
    if args.keep_io_types and not args.float16:
        raise UsageError("--keep-io-types is for --float16")
    if args.float16:
        return _to_float16(args)

    def tell(model: Path, target: Path) -> None:
        if not args.json:
            print(f"{model} -> {target}")

    done = sardonyx.convert_models(
        args.source,
        args.output_dir,
        styles=args.optimization_style,
        level=args.level,
        enable_type_reduction=args.enable_type_reduction,
        target_platform=args.target_platform,
        save_optimized_onnx=args.save_optimized_onnx_model,
        allow_failures=args.allow_conversion_failures,
        on_model=tell,
    )
    for each in done:
        if args.json:
            facts = {
                "style": each.style,
                "models": [str(path) for path in each.models],
                "optimized": [str(path) for path in each.optimized],
                "failures": {str(path): text for path, text in each.failures.items()},
                "config": str(each.config),
            }
            print(json.dumps(facts))
            continue
        for path, text in each.failures.items():
            print(f"{path}: {text}")
        size = sum(path.stat().st_size for path in each.models)
        print(f"{each.style}: {counted(len(each.models), 'model')}, {byte_size(size)}; operators in {each.config}")
    return int(any(each.failures for each in done))


def _to_float16(args: argparse.Namespace) -> int:
    source = Path(args.source)
    models = sorted(source.rglob("*.onnx")) if source.is_dir() else [source]
    if not models:
        raise UsageError(f"{source} has no .onnx files")
    for model in models:
        folder = Path(args.output_dir) if args.output_dir else model.parent
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{model.stem}.float16.onnx"
        sardonyx.convert_to_float16(model, target, keep_io_types=args.keep_io_types)
        if args.json:
            print(json.dumps({"model": str(model), "target": str(target), "bytes": target.stat().st_size}))
        else:
            print(f"{model} -> {target}, {byte_size(target.stat().st_size)}")
    return 0
