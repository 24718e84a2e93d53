"""The engines that can be compared: Sardonyx, and others if they are installed.

An engine opens a model with a number of threads and becomes a function from feeds to results. PyTorch cannot read ONNX models:
it runs the TorchScript program beside the model (`model.pt` for `model.onnx`), or compiles the exported program beside it
(`model.pt2`), with the inputs in the same order.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np

from sardonyx import errors
from sardonyx.options import SessionOptions
from sardonyx.records import dataclass
from sardonyx.session.inference_session import InferenceSession

OURS: Final = "sardonyx"
_QUIET: Final = 3  # onnxruntime's log severity: errors only

Run = Callable[[Mapping[str, Any]], Sequence[Any]]


class EngineUnavailable(Exception):
    """An engine is not installed, or has no way to run this model."""


@dataclass(frozen=True)
class Engine:
    """An open model. `inputs` describes what must be fed, as `InferenceSession.get_inputs` does; empty if it cannot tell."""

    name: str
    version: str
    run: Run
    inputs: Sequence[Any] = ()


def is_installed(name: str) -> bool:
    """Whether the package of an engine is there."""
    return importlib.util.find_spec(_package(name)) is not None


def _package(name: str) -> str:
    """What brings an engine: PyTorch is two of them."""
    return name.partition(".")[0]


def open_engine(name: str, model: str | Path, threads: int) -> Engine:
    """Open a model with an engine; 0 threads leave the choice to it."""
    if name == OURS:
        return _open_ours(model, threads)
    if name not in PEERS:
        raise EngineUnavailable(f"there is no engine {name!r}; known: {', '.join((OURS, *PEERS))}")
    if not is_installed(name):
        raise EngineUnavailable(f"{name} is not installed (pip install {_package(name)})")
    return Engine(name, metadata.version(_package(name)), *PEERS[name](Path(model), threads))


def _open_ours(model: str | Path, threads: int) -> Engine:
    options = SessionOptions()
    options.intra_op_num_threads = threads
    session = InferenceSession(model, options)
    return Engine(OURS, _own_version(), lambda feeds: session.run(None, feeds), session.get_inputs())


def _own_version() -> str:
    from sardonyx import build_info  # lazy: of no use to those who only open peers

    return build_info.get_version_string()


def _open_onnxruntime(model: Path, threads: int) -> tuple[Run, Sequence[Any]]:
    runtime = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = _QUIET
    session = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, dict(feeds)), session.get_inputs()


def _open_openvino(model: Path, threads: int) -> tuple[Run, Sequence[Any]]:
    openvino = importlib.import_module("openvino")
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    if threads:
        settings["INFERENCE_NUM_THREADS"] = str(threads)
    compiled = openvino.Core().compile_model(str(model), "CPU", settings)
    request = compiled.create_infer_request()

    def run(feeds: Mapping[str, Any]) -> Sequence[Any]:
        results = request.infer(dict(feeds), share_inputs=True)
        return [np.asarray(results[output]) for output in compiled.outputs]

    return run, ()


def _open_torch(model: Path, threads: int) -> tuple[Run, Sequence[Any]]:
    path = _beside(model, ".pt", "a TorchScript program")
    torch = importlib.import_module("torch")
    return _torch_run(torch, torch.jit.load(str(path)).eval(), threads), ()


def _open_torch_compile(model: Path, threads: int) -> tuple[Run, Sequence[Any]]:
    path = _beside(model, ".pt2", "an exported program")
    torch = importlib.import_module("torch")
    return _torch_run(torch, torch.compile(torch.export.load(str(path)).module()), threads), ()


def _beside(model: Path, suffix: str, what: str) -> Path:
    path = model.with_suffix(suffix)
    if not path.is_file():
        raise EngineUnavailable(f"torch reads no ONNX models; {what} {path.name} beside the model would be run")
    return path


def _torch_run(torch: Any, program: Callable[..., Any], threads: int) -> Run:
    if threads:
        torch.set_num_threads(threads)

    def run(feeds: Mapping[str, Any]) -> Sequence[Any]:
        with torch.inference_mode():
            results = program(*(torch.from_numpy(np.ascontiguousarray(value)) for value in feeds.values()))
        return [each.numpy() for each in (results if isinstance(results, (tuple, list)) else (results,))]

    return run


PEERS: Final[Mapping[str, Callable[[Path, int], tuple[Run, Sequence[Any]]]]] = {
    "onnxruntime": _open_onnxruntime,
    "openvino": _open_openvino,
    "torch": _open_torch,
    "torch.compile": _open_torch_compile,
}


def failure_text(error: Exception) -> str:
    """The first line of what an engine complained about."""
    text = error.message if isinstance(error, errors.SardonyxError) else str(error)
    return (text.strip().splitlines() or [type(error).__name__])[0][:300]
