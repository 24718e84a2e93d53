"""What benchmarks of transformer models share: sessions, latencies, memory, tables; ONNX Runtime's names.

session = create_onnxruntime_session("bert.onnx", use_gpu=False, num_threads=1)
result = inference_ort(session, inputs, {"model_name": "bert"}, repeat_times=100, batch_size=1, warm_up_repeat=5)
result["average_latency_ms"], result["QPS"]
"""

from __future__ import annotations

import csv
import logging
import os
import random
import threading
import timeit
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final

import numpy as np

from sardonyx.build_info import get_available_providers
from sardonyx.enums import GraphOptimizationLevel
from sardonyx.options import SessionOptions
from sardonyx.session.inference_session import InferenceSession

logger = logging.getLogger(__name__)

_CPU: Final = "CPUExecutionProvider"
_ON_GPU: Final = {  # what providers are asked for, by the short names that scripts have for them
    None: ("CUDAExecutionProvider",),
    "cuda": ("CUDAExecutionProvider",),
    "dml": ("DmlExecutionProvider",),
    "migraphx": ("MIGraphXExecutionProvider",),
    "tensorrt": ("TensorrtExecutionProvider", "CUDAExecutionProvider"),
}
_MACHINE: Final = ("engine", "version", "providers", "device", "precision", "optimizer", "io_binding")
_DETAILS: Final = (
    *_MACHINE, "model_name", "inputs", "threads", "batch_size", "sequence_length", "custom_layer_num", "datetime",
    "test_times", "QPS", "average_latency_ms", "latency_variance",
    "latency_90_percentile", "latency_95_percentile", "latency_99_percentile",
)  # fmt: skip
_VARIABLES: Final = (
    "ORT_DISABLE_FUSED_ATTENTION",
    "ORT_DISABLE_FUSED_CROSS_ATTENTION",
    "ORT_DISABLE_TRT_FLASH_ATTENTION",
    "ORT_DISABLE_MEMORY_EFFICIENT_ATTENTION",
    "ORT_TRANSFORMER_OPTIONS",
    "ORT_CUDA_GEMM_OPTIONS",
)
_BETWEEN_LOOKS: Final = 0.005  # seconds


class Precision(Enum):
    """Of weights."""

    FLOAT32 = "fp32"
    FLOAT16 = "fp16"
    INT8 = "int8"
    INT4 = "int4"

    def __str__(self) -> str:
        return self.value


class OptimizerInfo(Enum):
    """Who has optimized a model: nobody but the session, the session ahead of time, or `transformers.optimizer`."""

    NOOPT = "no_opt"
    BYORT = "by_ort"
    BYSCRIPT = "by_script"

    def __str__(self) -> str:
        return self.value


class ConfigModifier:
    """Gives a configuration of the `transformers` package another number of layers; None leaves it as it is."""

    def __init__(self, num_layers: int | None) -> None:
        self.num_layers = num_layers

    def modify(self, config: Any) -> None:
        """Change the numbers of layers that a configuration has."""
        for name in ("num_hidden_layers", "encoder_layers", "decoder_layers"):
            if self.num_layers is not None and hasattr(config, name):
                setattr(config, name, self.num_layers)

    def get_layer_num(self) -> int | None:
        """The number of layers that was asked for."""
        return self.num_layers


def create_onnxruntime_session(
    onnx_model_path: str | os.PathLike[str],
    use_gpu: bool,
    provider: str | None = None,
    enable_all_optimization: bool = True,
    num_threads: int = -1,
    enable_profiling: bool = False,
    verbose: bool = False,
    enable_mlas_gemm_fastmath_arm64_bfloat16: bool = False,
    provider_options: Mapping[str, Mapping[str, Any]] | None = None,
) -> InferenceSession | None:
    """A session; None, and the reason in the log, if it cannot be created."""
    options = SessionOptions()
    level = GraphOptimizationLevel.ORT_ENABLE_ALL if enable_all_optimization else GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.graph_optimization_level = level
    options.enable_profiling = enable_profiling
    options.log_severity_level = 0 if verbose else 4
    if num_threads > 0:
        options.intra_op_num_threads = num_threads
    if enable_mlas_gemm_fastmath_arm64_bfloat16:
        options.add_session_config_entry("mlas.enable_gemm_fastmath_arm64_bfloat16", "1")
    names: list[str] = [_CPU]
    if provider in get_available_providers():
        assert provider is not None
        names = [provider]
    elif use_gpu:
        if provider not in _ON_GPU:
            known = ", ".join(sorted(filter(None, _ON_GPU)))
            raise RuntimeError(f"the execution provider {provider!r} is not known: expected one of {known}")
        names = [*_ON_GPU[provider], _CPU]
    settings = provider_options or {}
    providers: list[Any] = [(name, dict(settings[name])) if name in settings else name for name in names]
    try:
        return InferenceSession(os.fspath(onnx_model_path), options, providers=providers)
    except Exception:
        logger.exception("no session for %s with providers %s", onnx_model_path, providers)
        return None


def setup_logger(verbose: bool = True) -> None:
    """Messages of benchmarks on the console: with where they come from if `verbose`."""
    where = "[%(filename)s:%(lineno)s - %(funcName)20s()] "
    logging.basicConfig(format=f"{where if verbose else ''}%(message)s", level=logging.DEBUG if verbose else logging.INFO)
    if not verbose:
        logging.getLogger("transformers").setLevel(logging.WARNING)


def prepare_environment(cache_dir: str | None, output_dir: str | None, use_gpu: bool, provider: str | None = None) -> None:
    """Make the folders of a benchmark; refuses a GPU that no provider is there for."""
    for folder in (cache_dir, output_dir):
        if folder:
            os.makedirs(folder, exist_ok=True)
    if use_gpu:
        wanted = {"dml": ("DmlExecutionProvider",)}.get(provider or "", ("CUDAExecutionProvider", "MIGraphXExecutionProvider"))
        assert not set(wanted).isdisjoint(get_available_providers()), f"none of {', '.join(wanted)} is there: run on the CPU"


def get_latency_result(latency_list: Sequence[float], batch_size: int) -> dict[str, Any]:
    """Mean, variance and percentiles of seconds, as texts in milliseconds, and items a second."""
    mean = float(np.mean(latency_list)) * 1000.0
    percentiles = {f"latency_{each}_percentile": f"{np.percentile(latency_list, each) * 1000.0:.2f}" for each in (90, 95, 99)}
    return {
        "test_times": len(latency_list),
        "latency_variance": f"{np.var(latency_list, dtype=np.float64) * 1000.0:.2f}",
        **percentiles,
        "average_latency_ms": f"{mean:.2f}",
        "QPS": f"{batch_size * 1000.0 / mean:.2f}",
    }


def inference_ort(
    ort_session: Any,
    ort_inputs: Mapping[str, Any],
    result_template: Mapping[str, Any],
    repeat_times: int,
    batch_size: int,
    warm_up_repeat: int = 0,
) -> dict[str, Any]:
    """Run a session again and again; `result_template` and the latencies."""
    feeds = dict(ort_inputs)
    timeit.repeat(lambda: ort_session.run(None, feeds), number=1, repeat=warm_up_repeat)
    found = timeit.repeat(lambda: ort_session.run(None, feeds), number=1, repeat=repeat_times)
    return {**result_template, "io_binding": False, **get_latency_result(found, batch_size)}


def output_details(results: Iterable[Mapping[str, Any]], csv_filename: str | os.PathLike[str]) -> None:
    """Append results to a file of comma-separated values."""
    _append(csv_filename, _DETAILS, results)


def output_fusion_statistics(
    model_fusion_statistics: Mapping[str, Mapping[str, Any]], csv_filename: str | os.PathLike[str]
) -> None:
    """Append how often each layer was fused, by model, to a file of comma-separated values."""
    now = str(datetime.now())
    rows = [{"model_filename": name, "datetime": now, **found} for name, found in model_fusion_statistics.items()]
    _append(csv_filename, list(dict.fromkeys(name for row in rows for name in row)), rows)


def _append(path: str | os.PathLike[str], columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    with open(path, "a", newline="", encoding="ascii") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(dict(row) for row in rows)


def set_random_seed(seed: int = 123) -> None:
    """Begin the random numbers of Python, NumPy and, where it is there, PyTorch anew."""
    random.seed(seed)
    np.random.seed(seed)
    try:
        import torch
    except ImportError:
        return
    torch.manual_seed(seed)


def get_gpu_info() -> None:
    """None: there is no GPU that models run on."""
    return


def measure_memory(
    is_gpu: bool, func: Callable[[], Any] | None, monitor_type: str = "cuda", start_memory: float | None = None
) -> float | None:
    """By how many MB memory rises while a function runs; without one, how many there are now. None for a GPU."""
    if is_gpu:
        return None
    before = _resident() if start_memory is None else start_memory
    if func is None:
        return before
    largest, done = [before], threading.Event()

    def look() -> None:
        while True:
            largest[0] = max(largest[0], _resident())
            if done.wait(_BETWEEN_LOOKS):
                return

    watch = threading.Thread(target=look, name="sardonyx-memory", daemon=True)
    watch.start()
    try:
        func()
    finally:
        largest[0] = max(largest[0], _resident())
        done.set()
        watch.join()
    return largest[0] - before


def _resident() -> float:
    """MB of this process in memory; the most there ever were where the system tells no more."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
    except (OSError, ValueError, AttributeError):
        import resource  # lazy: not on every system

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def get_ort_environment_variables() -> str:
    """Variables that change how ONNX Runtime computes attention, as NAME=value,...; Sardonyx does not read them."""
    return ",".join(f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ)
