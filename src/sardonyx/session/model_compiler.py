"""ModelCompiler: write a model as the compiler would run it."""

from __future__ import annotations

import os
from collections.abc import Callable

from sardonyx import dtypes, errors
from sardonyx.compile.compiler import compile_model
from sardonyx.compile_options import CompileOptions
from sardonyx.enums import GraphOptimizationLevel, OrtEnum
from sardonyx.formats.loading import load
from sardonyx.formats.onnx import dense_initializers, save, to_bytes
from sardonyx.ir.graph import Model
from sardonyx.ir.tensor import ExternalLocation
from sardonyx.options import SessionOptions
from sardonyx.records import dataclass
from sardonyx.runtime.values import OrtValue


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


# Name and value of an initializer, where its data lay so far (None: in the model) -> where it lies now (None: in the model)
InitializerLocation = Callable[[str, OrtValue, "OrtExternalInitializerInfo | None"], "OrtExternalInitializerInfo | None"]


class ModelCompiler:
    """Checks and rewrites a model as a session with these options would, and writes the result as an ONNX model.

    `get_initializer_location_func` is asked for every initializer where its data lies: it may write the data to a file and say
    where, hand back the place it was told, or return None to keep it inside the model. There are no providers whose compiled
    form an ONNX file could carry, so with ERROR_IF_NO_NODES_COMPILED compiling always fails.
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
        get_initializer_location_func: InitializerLocation | None = None,
    ) -> None:
        source = input_model_path_or_bytes
        if isinstance(source, (str, os.PathLike)):
            if not os.fspath(source):
                raise ValueError("Input model path is empty")
        elif not isinstance(source, bytes):
            raise TypeError(f"Unable to load from type '{type(source)}'")
        elif not source:
            raise ValueError("Input model bytes array is empty")
        if get_initializer_location_func is not None and external_initializers_file_path:
            raise ValueError(
                "Cannot initialize ModelCompiler with both `external_initializers_file_path` and `get_initializer_location_func`"
            )
        self._options = sess_options.copy()
        self._options.graph_optimization_level = graph_optimization_level
        self._source = source
        self._external = os.fspath(external_initializers_file_path) if external_initializers_file_path else None
        self._threshold = external_initializers_size_threshold
        self._flags = int(flags)
        self._location_of = get_initializer_location_func

    def _compile(self, write: Callable[[Model], None]) -> None:
        """Compile the model, and have it written as it is before what concerns this machine alone."""
        if self._flags & OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED:
            raise errors.Fail("Unable to compile any nodes: no execution provider keeps compiled code in ONNX files")
        if not isinstance(self._source, bytes) and not os.path.exists(self._source):
            raise errors.InvalidArgument(f"Input model path does not exist: {os.fspath(self._source)!r}")
        options = self._options
        model = load(self._source, external_files=options.external_files or None, replaced=options.replaced_initializers)
        compile_model(model, CompileOptions.of(options, initializers=model.graph.initializers), write)

    def compile_to_file(self, output_model_path: str | os.PathLike[str] | None = None) -> None:
        """Write the compiled model; without a path, next to the input with `_ctx` before the extension."""
        path = os.fspath(output_model_path) if output_model_path else self._default_path()
        folder = os.path.dirname(os.path.abspath(path))
        if os.path.isdir(path):
            raise errors.InvalidArgument(f"context_file_path should not point to a folder: {path!r}")
        if not os.path.isdir(folder):
            raise errors.InvalidArgument(f"the output file {path!r} cannot be written: there is no folder {folder!r}")
        if self._flags & OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS and os.path.exists(path):
            raise errors.Fail(f"the output file {path!r} exists already", hint="remove it, or leave the flag away")

        def write(model: Model) -> None:
            locations = self._locations(model, folder)
            save(
                model,
                path,
                external_data=self._external,
                external_threshold=self._threshold,
                externalise=lambda tensor: locations.get(id(tensor)),
            )

        self._compile(write)

    def _default_path(self) -> str:
        if isinstance(self._source, bytes):
            raise errors.InvalidArgument("a model given as bytes has no file name: give an output path")
        stem, extension = os.path.splitext(os.fspath(self._source))
        return f"{stem}_ctx{extension or '.onnx'}"

    def compile_to_bytes(self) -> bytes:
        """The compiled model as bytes."""
        if self._external is not None:
            raise errors.InvalidArgument("external_initializers_file_path applies to compile_to_file only")
        written: list[bytes] = []

        def write(model: Model) -> None:
            locations = self._locations(model, os.getcwd() if self._location_of is not None else "")
            written.append(to_bytes(model, lambda tensor: locations.get(id(tensor))))

        self._compile(write)
        return written[0]

    def compile_to_stream(self, write_function: Callable[[bytes], None]) -> None:
        """Hand the compiled model's bytes to a function; if that raises, Fail is raised with its message."""
        if not callable(write_function):
            raise TypeError(f"expected a function that takes bytes, got {write_function!r}")
        content = self.compile_to_bytes()
        try:
            write_function(content)
        except Exception as error:
            raise errors.Fail(f"the function the model was written to raised {type(error).__name__}: {error}") from error

    def _locations(self, model: Model, folder: str) -> dict[int, ExternalLocation]:
        """Where the data of initializers lies, by the tensor's id, as the caller's function says; `folder` is the model's."""
        locations: dict[int, ExternalLocation] = {}
        if self._location_of is None:
            return locations
        for name, tensor in dense_initializers(model):
            if tensor.dtype is dtypes.STRING or id(tensor) in locations:
                continue
            external = tensor.external
            info = None if external is None else OrtExternalInitializerInfo(external.location, external.offset, external.length)
            found = self._ask(name, OrtValue.of(tensor.numpy()), info)
            if found is not None:
                inside = os.path.relpath(found.filepath, folder) if os.path.isabs(found.filepath) else found.filepath
                # Models may name only files below their own folder: what lies elsewhere keeps the path it was given.
                location = found.filepath if inside.startswith(os.pardir) else inside
                locations[id(tensor)] = ExternalLocation(location, found.file_offset, found.byte_size)
        return locations

    def _ask(self, name: str, value: OrtValue, info: OrtExternalInitializerInfo | None) -> OrtExternalInitializerInfo | None:
        assert self._location_of is not None
        try:
            found = self._location_of(name, value, info)
        except Exception as error:
            text = f"get_initializer_location_func raised {type(error).__name__} for initializer {name!r}: {error}"
            raise errors.Fail(text) from error
        if found is None or isinstance(found, OrtExternalInitializerInfo):
            return found
        raise errors.Fail(
            f"get_initializer_location_func returned {found!r} for initializer {name!r}, "
            "expected an OrtExternalInitializerInfo or None"
        )
