"""Models in 8 bits against onnxruntime, and against our own float32: `python -m benchmarks.quantized [NAME ...]`.

Models of the catalog, or files (FILE.onnx with FILE.npz beside it), are quantized by onnxruntime's own tools, in every form
that is asked for, and run by both engines, and OpenVINO if it is installed, in turn, in one process. Printed are the best times
and how far the results of the first two engines are apart, of the largest one. On a machine that others use as well,
`--processor-time` with one thread (the default is two, by the clock, each engine after the others' threads have come to rest).

    u8s8, s8s8    QDQ, static, by channel: activations unsigned or signed
    qop           QOperator, static, by tensor
    dynamic       weights in 8 bits, activations quantized at run time
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.models.catalog import CASES, Unavailable
from sardonyx.benchmarking.engines import OURS, PEERS, is_installed, open_engine
from sardonyx.benchmarking.timing import interleave

Array = np.ndarray[Any, Any]
FORMS: Final = ("u8s8", "s8s8", "qop", "dynamic")
DEFAULT: Final = {
    "bert_base": ("dynamic",),
    "minilm_l6": ("dynamic", "u8s8"),
    "resnet50": ("u8s8", "s8s8"),
    "mobilenet_v2": ("u8s8", "s8s8"),
    "mobilenet_v3": ("u8s8",),
    "efficientnet_b0": ("u8s8", "s8s8"),
    "unet": ("u8s8", "qop"),
}
_SAMPLES: Final = 3


def quantize(model: Path, feeds: Mapping[str, Array], form: str, target: Path) -> None:
    """Write a model in 8 bits with onnxruntime's tools; calibrated with the feeds and noise around them."""
    from onnxruntime import quantization as tools

    kind = tools.QuantType
    if form == "dynamic":
        tools.quantize_dynamic(model, target, weight_type=kind.QInt8)
        return
    rng = np.random.default_rng(0)

    def noisy(array: Array) -> Array:
        noise = rng.standard_normal(array.shape) * array.std() * 0.3
        return array + noise.astype(array.dtype) if array.dtype == np.float32 else array

    samples = iter([dict(feeds), *({name: noisy(array) for name, array in feeds.items()} for _ in range(_SAMPLES - 1))])

    class Reader(tools.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, Array] | None:
            return next(samples, None)

    prepared = target.with_suffix(".prepared.onnx")
    tools.quant_pre_process(model, prepared, skip_symbolic_shape=True)
    tools.quantize_static(
        prepared,
        target,
        Reader(),
        quant_format=tools.QuantFormat.QOperator if form == "qop" else tools.QuantFormat.QDQ,
        activation_type=kind.QInt8 if form == "s8s8" else kind.QUInt8,
        weight_type=kind.QUInt8 if form == "qop" else kind.QInt8,
        per_channel=form != "qop",
    )


def processor_times(runs: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """The best processor times of functions that take turns."""
    best = dict.fromkeys(runs, float("inf"))
    begin = time.process_time()
    rounds = 0
    while rounds < 3 or time.process_time() - begin < seconds:
        for name, run in runs.items():
            start = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - start)
        rounds += 1
    return best


def row(title: str, model: Path, feeds: Mapping[str, Array], form: str, settings: argparse.Namespace) -> str:
    """A line of the table."""
    path = settings.cache / "quantized" / f"{model.parent.name}.{model.stem}.{form}.onnx"
    if not path.exists():
        quantize(model, feeds, form, path)
    peers = [name for name in PEERS if not name.startswith("torch") and is_installed(name)]
    engines = {name: open_engine(name, path, settings.threads).run for name in (OURS, *peers)}
    pairs = zip(engines[OURS](feeds), engines["onnxruntime"](feeds))
    apart = max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)
    engines["float32"] = open_engine(OURS, model, settings.threads).run
    runs = {name: partial(run, feeds) for name, run in engines.items()}
    if settings.processor_time:
        best = processor_times(runs, settings.seconds)
    else:
        best = {name: timing.best for name, timing in interleave(runs, settings.seconds).items()}
    mine = best[OURS]
    others = " | ".join(f"{best[name] * 1e3:.2f} ms | **{best[name] / mine:.2f}**" for name in peers)
    return f"| {title} | {form} | {mine * 1e3:.2f} ms | {others} | {best['float32'] / mine:.2f} | {apart:.0e} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantized", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the catalog, or files (default: some of the catalog)")
    parser.add_argument("--forms", nargs="+", choices=FORMS, help="(default: those that suit the model)")
    parser.add_argument("--cache", type=Path, default=Path(".bench-cache"), help="where models are kept")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each row (default 4)")
    parser.add_argument("--threads", type=int, default=2, help="of each engine (default 2)")
    parser.add_argument("--processor-time", action="store_true", help="instead of the clock's")
    settings = parser.parse_args(arguments)
    (settings.cache / "quantized").mkdir(parents=True, exist_ok=True)
    peers = " | ".join(f"{name} | times as fast" for name in PEERS if not name.startswith("torch") and is_installed(name))
    heading = f"| model | form | Sardonyx | {peers} | as our float32 | apart |"
    print(heading, "|---" * (heading.count("|") - 1) + "|", sep="\n", flush=True)
    for name in settings.names or DEFAULT:
        if name in CASES:
            try:
                model, feeds = CASES[name].prepare(settings.cache)
            except Unavailable as missing:
                print(f"| {name} | {missing} |", flush=True)
                continue
        elif Path(name).suffix == ".onnx":
            model = Path(name)
            with np.load(model.with_suffix(".npz")) as arrays:
                feeds = {key: arrays[key] for key in arrays.files}
        else:
            parser.error(f"no model is called {name}; there are: {', '.join(CASES)}")
        for form in settings.forms or DEFAULT.get(name, FORMS):
            print(row(CASES[name].title if name in CASES else name, model, feeds, form, settings), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
