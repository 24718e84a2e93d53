"""Models in 8 bits against onnxruntime, and against our own float32: `python -m benchmarks.quantized [NAME ...]`.

Models of the catalog, or files (FILE.onnx with FILE.npz beside it), are quantized by onnxruntime's own tools, in every form
that is asked for, and run on one thread by both engines in turn, in one process. Printed are the best processor times, and how
far the results of the two engines are apart, of the largest one.

    u8s8, s8s8    QDQ, static, by channel: activations unsigned or signed
    qop           QOperator, static, by tensor
    dynamic       weights in 8 bits, activations quantized at run time
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

import sardonyx
from benchmarks.models.catalog import CASES, Unavailable

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


def _session(module: Any, path: Path) -> Any:
    options = module.SessionOptions()
    options.intra_op_num_threads = 1
    return module.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def race(sessions: Sequence[Any], feeds: Mapping[str, Array], seconds: float) -> list[float]:
    """The best processor times of sessions that run in turn."""
    best = [float("inf")] * len(sessions)
    begin = time.process_time()
    rounds = 0
    while rounds < 3 or time.process_time() - begin < seconds:
        for number, each in enumerate(sessions):
            start = time.process_time()
            each.run(None, dict(feeds))
            best[number] = min(best[number], time.process_time() - start)
        rounds += 1
    return best


def row(title: str, model: Path, feeds: Mapping[str, Array], form: str, folder: Path, seconds: float) -> str:
    """A line of the table."""
    import onnxruntime

    path = folder / f"{model.parent.name}.{model.stem}.{form}.onnx"
    if not path.exists():
        quantize(model, feeds, form, path)
    ours, theirs = (_session(module, path) for module in (sardonyx, onnxruntime))
    pairs = zip(ours.run(None, dict(feeds)), theirs.run(None, dict(feeds)))
    apart = max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)
    mine, other, floats = race([ours, theirs, _session(sardonyx, model)], feeds, seconds)
    times = " | ".join(f"{each * 1e3:.2f} ms" for each in (mine, other))
    return f"| {title} | {form} | {times} | **{other / mine:.2f}** | {floats / mine:.2f} | {apart:.0e} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantized", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the catalog, or files (default: some of the catalog)")
    parser.add_argument("--forms", nargs="+", choices=FORMS, help="(default: those that suit the model)")
    parser.add_argument("--cache", type=Path, default=Path(".bench-cache"), help="where models are kept")
    parser.add_argument("--seconds", type=float, default=4.0, help="of processor time for each row (default 4)")
    settings = parser.parse_args(arguments)
    folder = settings.cache / "quantized"
    folder.mkdir(parents=True, exist_ok=True)
    print(
        "| model | form | Sardonyx | onnxruntime | times as fast | as our float32 | apart |\n|---|---|---|---|---|---|---|",
        flush=True,
    )
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
            print(row(CASES[name].title if name in CASES else name, model, feeds, form, folder, settings.seconds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
