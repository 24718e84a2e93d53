"""Models compiled to bundles: one file with programs for some machines, packed weights and, if wanted, the model itself.

    compile_bundle("model.onnx", "model.sdx", targets=["x86-64-v3", "x86-64-v4"])

The file is opened by `InferenceSession("model.sdx")` (`runtime.bundled`), without the compiler.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sardonyx import dtypes, errors
from sardonyx.build_info import get_version_string
from sardonyx.codegen.blocks import ABI_VERSION
from sardonyx.codegen.library import KernelLibrary
from sardonyx.codegen.object_cache import ObjectCache
from sardonyx.compile.assemble import library
from sardonyx.compile.compiler import compile_model
from sardonyx.compile.native_model import NativeModel
from sardonyx.formats.loading import load
from sardonyx.formats.onnx import dense_initializers, to_bytes
from sardonyx.formats.program.bundle import WEIGHTS, BundledTarget, add_program, header
from sardonyx.formats.program.contents import WrittenContents
from sardonyx.formats.program.write import NotSavable, Record
from sardonyx.formats.shared.replacing import replacing, written_to
from sardonyx.ir.tensor import ExternalLocation
from sardonyx.options import SessionOptions, environment
from sardonyx.provider_names import CPU_PROVIDER
from sardonyx.records import dataclass
from sardonyx.runtime.bundled import SUFFIX
from sardonyx.runtime.ports import to_plain
from sardonyx.runtime.weight_store import WeightStore
from sardonyx.session.full_opening import ModelRead
from sardonyx.session.opening import Opening
from sardonyx.target.levels import LEVELS, generic
from sardonyx.target.machine import machine_fingerprint
from sardonyx.target.target import NATIVE

_INLINE = 1024  # bytes of weights that stay in the model inside


@dataclass(frozen=True)
class CompiledTarget:
    """What a bundle has for one machine."""

    name: str
    steps: int  # calls of kernels
    kernels: int  # different ones
    host_steps: tuple[str, ...]  # nodes that Python computes
    code_bytes: int
    constant_bytes: int


@dataclass(frozen=True)
class CompiledBundle:
    """A bundle that was written."""

    path: Path
    targets: tuple[CompiledTarget, ...]
    has_model: bool

    @property
    def nbytes(self) -> int:
        """How large the file is."""
        return self.path.stat().st_size


def compile_bundle(
    model: str | os.PathLike[str] | bytes,
    output: str | os.PathLike[str],
    *,
    targets: Sequence[str] = (NATIVE,),
    include_model: bool = False,
    options: SessionOptions | None = None,
    on_target: Callable[[str], None] | None = None,
) -> CompiledBundle:
    """Compile a model for some targets and write all of it to one file, which appears complete or not at all.

    `targets` are "native" (this machine's processor) or levels that many have: x86-64-v2, x86-64-v3, x86-64-v4, aarch64. With
    `include_model` other machines, and whatever the programs cannot do, are left to the model inside, which is then compiled
    where it is opened. `options` are those of sessions; `on_target` is told what is being compiled.
    """
    path, settings = Path(os.fspath(output)), (options or SessionOptions()).copy()
    if path.suffix != SUFFIX:
        raise errors.InvalidArgument(f"the output is {str(path)!r}: the name of a compiled model ends in {SUFFIX!r}")
    unknown = [name for name in targets if name != NATIVE and name not in LEVELS]
    if unknown or not targets or len(set(targets)) < len(targets):
        known = ", ".join((NATIVE, *LEVELS))
        raise errors.InvalidArgument(f"targets are {', '.join(targets) or 'missing'}: expected some of {known}, each once")
    for name in ("enable_profiling", "optimized_model_filepath", "replaced_initializers"):
        if settings.is_set(name):
            raise errors.InvalidArgument(f"SessionOptions.{name} is set, which a compiled model has no place for")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise errors.InvalidArgument(f"the output {str(path)!r} cannot be written: there is no folder {str(folder)!r}")
    opening = Opening(model, settings, frozenset(), reads_config_from_model=False)
    done: list[CompiledTarget] = []
    spans: list[tuple[BundledTarget, tuple[int, int]]] = []
    with written_to(str(path)), tempfile.TemporaryFile(dir=folder) as file:
        contents = WrittenContents(file)
        kept = load(opening.source, base_dir=opening.folder)  # maps the weights as long as this takes
        for name in targets:
            if on_target is not None:
                on_target(name)
            facts, found, span = _add(opening, settings, name, contents)
            done.append(facts)
            spans.append((found, span))
            contents.forget()
        inside = _add_model(kept, opening, contents) if include_model else None
        pieces = header(get_version_string(), ABI_VERSION, spans, inside, contents)
        file.seek(0)
        with replacing(str(path)) as written:
            written.writelines(pieces)
            shutil.copyfileobj(file, written, 1 << 22)
    return CompiledBundle(path, tuple(done), include_model)


def _add(
    opening: Opening, options: SessionOptions, name: str, contents: WrittenContents
) -> tuple[CompiledTarget, BundledTarget, tuple[int, int]]:
    """Compile the model for a target, and write the program."""
    kernels = _library(name)
    target = kernels.target
    read = ModelRead(opening, options, {CPU_PROVIDER: {}})
    nodes = len(read.model.graph)
    program = compile_model(read.model, dataclasses.replace(read.compile_options, kernels=kernels, weights=WeightStore()))
    if not isinstance(program, NativeModel):
        raise errors.NotImplemented("the model cannot be compiled: NumPy computes it, or another provider does")
    program.packed_constants()  # all bodies are compiled for it
    code = program.saved_program()
    if code is None:
        raise errors.InvalidArgument("graph_optimization_level is ORT_DISABLE_ALL: such sessions compile as little as they can")
    plain = to_plain((program.inputs, program.outputs, program.overridable_initializers), read.description(program))
    main = program.main
    try:
        span = add_program(Record(code, nodes, (), plain), main.program.constants, contents)
    except (NotSavable, OverflowError) as error:
        raise errors.NotImplemented(f"the model cannot be compiled to a file: {error}") from error
    arrays = main.program.constants.values()
    facts = CompiledTarget(
        name=name,
        steps=len(code.object_of_step),
        kernels=len(code.objects),
        host_steps=() if code.segments is None else tuple(call.node.label for call in code.segments.calls),
        code_bytes=sum(map(len, code.objects)) + len(code.driver),
        constant_bytes=sum(array.nbytes for array in arrays),
    )
    processor = machine_fingerprint() if name == NATIVE else ""
    return facts, BundledTarget(name, target.architecture, target.runtime, processor), span


def _library(name: str) -> KernelLibrary:
    folder = environment().cache_folder
    kept = None if folder is None else os.path.normpath(folder)
    if name == NATIVE:
        return library(kept, NATIVE)
    objects = None if kept is None else ObjectCache(kept, trusted=environment().cache_trusted)
    return KernelLibrary(generic(name), None if objects is None or objects.problem() else objects, loads=False)


def _add_model(model: Any, opening: Opening, contents: WrittenContents) -> tuple[str, int, int]:
    """Write the model, its weights among the contents; its name, position and size."""
    locations: dict[int, ExternalLocation] = {}
    for _, tensor in dense_initializers(model):
        if tensor.dtype is not dtypes.STRING and tensor.nbytes >= _INLINE and id(tensor) not in locations:
            if tensor.dtype.is_packed:
                position = contents.add(memoryview(bytes(tensor.raw())))
            else:
                position, _, _ = contents.array(tensor.numpy())
            locations[id(tensor)] = ExternalLocation(WEIGHTS, position, tensor.nbytes)
    written = to_bytes(model, lambda tensor: locations.get(id(tensor)))
    name = os.path.basename(opening.source) if isinstance(opening.source, str) else "model.onnx"
    return name, contents.add(memoryview(written)), len(written)
