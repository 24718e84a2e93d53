"""`sardonyx quantize`: a model with smaller numbers, and what that costs."""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sardonyx
from sardonyx.cli.progress import Progress
from sardonyx.cli.tables import byte_size, columns, counted
from sardonyx.cli.usage import UsageError

METHODS = ("round", "k_quant", "hqq")
CALIBRATIONS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile", "distribution": "Distribution"}
TYPES = ("int8", "uint8", "int16", "uint16", "int4", "uint4", "float8")


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """Describe the subcommand to the parser."""
    parser = commands.add_parser(
        "quantize",
        parents=[shared],
        help="write a model with smaller numbers",
        description="Quantize a model and say what that costs, layer by layer. --dynamic (the default) makes weights 8 bits wide "
        "and quantizes activations at run time; --static finds fixed scales with the inputs of --data; --bits cuts the weights "
        "of matrix products into blocks of 2, 4 or 8 bits.",
    )
    parser.add_argument("model", metavar="MODEL", help="an .onnx file")
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help="the .onnx file to write")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--dynamic", action="store_true", help="activations are quantized at run time (default)")
    kind.add_argument("--static", action="store_true", help="fixed scales, found with the inputs of --data")
    kind.add_argument("--bits", type=int, choices=(2, 4, 8), help="weights of products in blocks of this many bits")
    parser.add_argument(
        "--data",
        nargs="+",
        metavar="FILE",
        help="inputs: .npz files with arrays by name, .npy files for a model with one input, or folders with such files; one "
        "sample each",
    )
    parser.add_argument("--random", type=int, metavar="COUNT", help="make up so many inputs; for trying, not for use")
    parser.add_argument(
        "--format", choices=("qdq", "qoperator"), help="default: qdq for --static, qoperator (MatMulNBits) for --bits"
    )
    parser.add_argument("--calibration", choices=CALIBRATIONS, default="minmax", help="how ranges are found; default: minmax")
    parser.add_argument("--activation-type", choices=TYPES, default="uint8", help="of --static; default: uint8")
    parser.add_argument("--weight-type", choices=TYPES, default="int8", help="default: int8")
    parser.add_argument("--per-channel", action="store_true", help="a scale for each channel of a weight")
    parser.add_argument("--block-size", type=int, default=32, help="of --bits; default: 32")
    parser.add_argument("--method", choices=METHODS, default="round", help="of --bits; default: round")
    parser.add_argument("--symmetric", action="store_true", help="of --bits: blocks without zero points")
    parser.add_argument("--accuracy-level", type=int, choices=range(5), help="of --bits: what products compute with (4: int8)")
    parser.add_argument("--nodes", nargs="+", metavar="NODE", help="quantize these nodes only")
    parser.add_argument("--exclude", nargs="+", metavar="NODE", default=[], help="do not quantize these nodes")
    parser.add_argument("--operators", nargs="+", metavar="OP", help="quantize these operators only")
    parser.add_argument("--external-data", action="store_true", help="put weights into a file beside the model")
    parser.add_argument("--chart", metavar="FILE", help="draw the errors of all layers into an .svg file")
    parser.add_argument("--json", action="store_true", help="the report as one JSON object")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Quantize, and print the report."""
    logging.getLogger(sardonyx.quantization.__name__).setLevel(logging.ERROR)  # its advice is for programs
    samples = _samples(args)
    if args.static and not samples:
        raise UsageError("--static needs inputs to find scales with", "give some with --data, or try --random 8")
    with Progress(None, f"quantizing {Path(args.model).name}") as progress:
        _quantize(args, samples, progress)
    with Progress(None, f"comparing with {Path(args.model).name}"):
        layers = sardonyx.quantization.layer_errors(args.model, args.output, samples)
    sizes = [_size(args.model), _size(args.output)]
    if args.chart:
        sardonyx.quantization.write_chart(layers, args.chart, f"{Path(args.model).name} -> {Path(args.output).name}")
    if args.json:
        facts = {
            "path": args.output,
            "bytes": sizes,
            "layers": [
                {"name": each.name, "operator": each.op_type, "weight": _plain(each.weight), "output": _plain(each.output)}
                for each in layers
            ],
        }
        print(json.dumps(facts, indent=2))
        return 0
    heading = f"{counted(len(layers), 'layer')}; signal-to-quantization-noise ratio in dB"
    print(f"{args.model}: {' -> '.join(map(byte_size, sizes))}; {heading}")
    rows = [(each.name, each.op_type, _text(each.weight), _text(each.output)) for each in layers]
    print("\n".join(columns(rows, header=("layer", "operator", "weight", "output"), fit=True)))
    if not samples:
        print("\nerrors of outputs are shown with --data or --random")
    if args.chart:
        print(f"\nchart in {args.chart}")
    print(f"\nwritten to {args.output}")
    return 0


def _plain(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else round(value, 2)


def _text(value: float | None) -> str:
    return "" if value is None else "exact" if math.isinf(value) else f"{value:.1f}"


def _size(path: str) -> int:
    """Of a model and of the data beside it."""
    beside = [Path(f"{path}{ending}") for ending in (".data", "_data")]
    return Path(path).stat().st_size + sum(each.stat().st_size for each in beside if each.exists())


def _quant_type(name: str) -> Any:
    kinds = sardonyx.quantization.QuantType
    return kinds.QFLOAT8E4M3FN if name == "float8" else kinds["Q" + name.replace("uint", "UInt").replace("int", "Int", 1)]


def _quantize(args: argparse.Namespace, samples: Sequence[dict[str, Any]], progress: Progress) -> None:
    library = sardonyx.quantization
    if os.path.abspath(args.model) == os.path.abspath(args.output):
        raise UsageError("OUT is MODEL itself", "write the quantized model to another file")
    name = Path(args.model).name

    def tell(what: str, node: str) -> None:
        progress.noun = f"{what} {name}: {node}"

    if args.bits:
        _by_blocks(args, tell)
        return
    common = {
        "op_types_to_quantize": args.operators,
        "nodes_to_quantize": args.nodes,
        "nodes_to_exclude": args.exclude,
        "per_channel": args.per_channel,
        "weight_type": _quant_type(args.weight_type),
        "use_external_data_format": args.external_data,
        "on_progress": tell,
    }
    if not args.static:
        library.quantize_dynamic(args.model, args.output, **common)
        return
    library.quantize_static(
        args.model,
        args.output,
        library.CalibrationFeeds(samples),
        quant_format=library.QuantFormat.QOperator if args.format == "qoperator" else library.QuantFormat.QDQ,
        activation_type=_quant_type(args.activation_type),
        calibrate_method=library.CalibrationMethod[CALIBRATIONS[args.calibration]],
        **common,
    )


def _by_blocks(args: argparse.Namespace, tell: Any) -> None:
    library = sardonyx.quantization
    form = library.QuantFormat.QDQ if args.format == "qdq" else library.QuantFormat.QOperator
    config: Any
    if args.method == "k_quant":
        config = library.KQuantWeightOnlyQuantConfig(op_types_to_quantize=args.operators)
    elif args.method == "hqq":
        config = library.HQQWeightOnlyQuantConfig(args.block_size, args.bits, op_types_to_quantize=args.operators)
    else:
        config = library.DefaultWeightOnlyQuantConfig(
            args.block_size, args.symmetric, args.accuracy_level, form, args.operators, bits=args.bits
        )
    quantizer = library.MatMulNBitsQuantizer(
        args.model,
        args.bits,
        args.block_size,
        args.symmetric,
        args.accuracy_level,
        nodes_to_exclude=args.exclude,
        algo_config=config,
    )
    if args.nodes:
        quantizer.keep_only(args.nodes)
    quantizer.on_progress = lambda node: tell("quantizing", node)
    quantizer.process()
    quantizer.model.save_model_to_file(args.output, args.external_data)


def _samples(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The inputs that the command line gives, one dictionary each."""
    if args.data and args.random is not None:
        raise UsageError("--data and --random exclude each other")
    if args.random is not None:
        if args.random < 1:
            raise UsageError(f"--random {args.random}: expected a count of 1 or more")
        session = sardonyx.InferenceSession(args.model)

        def accepts(feed: dict[str, Any]) -> Any:
            return session.run(None, feed)

        return [sardonyx.fitting_inputs(args.model, accepts, seed=seed).feeds for seed in range(args.random)]
    names = [each.name for each in sardonyx.InferenceSession(args.model).get_inputs()] if args.data else []
    return [_sample(path, names) for given in args.data or () for path in _files(Path(given))]


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    found = sorted(each for each in path.iterdir() if each.suffix in (".npy", ".npz"))
    if not found:
        raise UsageError(f"--data {path}: the folder has no .npy or .npz file")
    yield from found


def _sample(path: Path, names: Sequence[str]) -> dict[str, Any]:
    if not path.exists():
        raise UsageError(f"--data {path}: there is no such file")
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            found = {name: arrays[name] for name in arrays.files}
        unknown = sorted(set(found) - set(names))
        missing = sorted(set(names) - set(found))
        if unknown or missing:
            wrong = f"has {unknown[0]!r}, which is no input" if unknown else f"lacks {missing[0]!r}"
            raise UsageError(f"--data {path} {wrong}; the model's inputs are {', '.join(names)}")
        return found
    if path.suffix != ".npy":
        raise UsageError(f"--data {path}: expected an .npy or .npz file, or a folder with such files")
    if len(names) != 1:
        raise UsageError(f"--data {path}: the model has {len(names)} inputs", "give an .npz file with an array for each")
    return {names[0]: np.load(path)}
