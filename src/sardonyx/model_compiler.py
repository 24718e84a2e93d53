"""ModelCompiler: write a model as the compiler would run it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sardonyx import errors
from sardonyx.compile_options import CompileOptions
from sardonyx.compiler import compile_model
from sardonyx.formats.onnx import load, save, to_bytes
from sardonyx.ir.graph import Model
from sardonyx.options import GraphOptimizationLevel, OrtEnum, SessionOptions


class OrtCompileApiFlags(OrtEnum):
    """What counts as an error when a model is compiled."""

    NONE = 0
    ERROR_IF_NO_NODES_COMPILED = 1
    ERROR_IF_OUTPUT_FILE_EXISTS = 2


@dataclass(frozen=True)
class OrtExternalInitializerInfo:
    """Where an initializer's bytes lie: a file, and the range in it."""

    filepath: str
    file_offset: int
    byte_size: int


class ModelCompiler:
    """Checks and rewrites a model as a session with these options would, and writes the result as an ONNX model.

    There are no providers whose compiled form an ONNX file could carry, so with ERROR_IF_NO_NODES_COMPILED this always fails.
    """

    def __init__(
        self,
        sess_options: SessionOptions,
        input_model_path_or_bytes: str | os.PathLike[str] | bytes,
        embed_compiled_data_into_model: bool = False,
        external_initializers_file_path: str | os.PathLike[str] | None = None,
        external_initializers_size_threshold: int = 1024,
        flags: int = OrtCompileApiFlags.NONE,
        graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_DISABLE_ALL,
        get_initializer_location_func: Callable[..., Any] | None = None,
    ) -> None:
        source = input_model_path_or_bytes
        if isinstance(source, (str, os.PathLike)):
            if not os.fspath(source):
                raise ValueError("Input model path is empty")
        elif not isinstance(source, bytes):
            raise TypeError(f"Unable to load from type '{type(source)}'")
        elif not source:
            raise ValueError("Input model bytes array is empty")
        if get_initializer_location_func is not None:
            raise errors.NotImplemented(
                "get_initializer_location_func: initializers can only be placed by size",
                hint="give external_initializers_file_path and external_initializers_size_threshold",
            )
        self._options = sess_options.copy()
        self._options.graph_optimization_level = graph_optimization_level
        self._source = source
        self._external = os.fspath(external_initializers_file_path) if external_initializers_file_path else None
        self._threshold = external_initializers_size_threshold
        self._flags = int(flags)

    def _compiled(self) -> Model:
        if self._flags & OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED:
            raise errors.Fail("no node was compiled: no execution provider keeps compiled code in ONNX files")
        options = self._options
        model = load(self._source, external_files=options.external_files or None, replaced=options.replaced_initializers)
        compile_model(model, CompileOptions.of(options, initializers=model.graph.initializers))
        return model

    def compile_to_file(self, output_model_path: str | os.PathLike[str] | None = None) -> None:
        """Write the compiled model; without a path, next to the input with `_ctx` before the extension."""
        path = os.fspath(output_model_path) if output_model_path else self._default_path()
        if self._flags & OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS and os.path.exists(path):
            raise errors.Fail(f"the output file {path!r} exists")
        save(self._compiled(), path, external_data=self._external, external_threshold=self._threshold)

    def _default_path(self) -> str:
        if isinstance(self._source, bytes):
            raise errors.InvalidArgument("a model given as bytes has no file name: give an output path")
        stem, extension = os.path.splitext(os.fspath(self._source))
        return f"{stem}_ctx{extension or '.onnx'}"

    def compile_to_bytes(self) -> bytes:
        """The compiled model as bytes."""
        if self._external is not None:
            raise errors.InvalidArgument("external_initializers_file_path applies to compile_to_file only")
        return to_bytes(self._compiled())

    def compile_to_stream(self, write_function: Callable[[bytes], None]) -> None:
        """Hand the compiled model's bytes to a function."""
        write_function(self.compile_to_bytes())
