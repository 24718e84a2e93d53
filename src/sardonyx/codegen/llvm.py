"""LLVM: IR text in, object code out. The only importer of llvmlite."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import llvmlite
from llvmlite import binding

from sardonyx import errors
from sardonyx.codegen.target import Target

_lock = threading.Lock()  # llvmlite has one lock for all calls anyway; ours keeps a whole compilation together


@cache
def _initialise() -> None:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()


def version() -> str:
    """Names the compiler in cache keys."""
    return f"llvm-{'.'.join(map(str, binding.llvm_version_info))}-llvmlite-{llvmlite.__version__}"


def host_description() -> tuple[str, str, str]:
    """Triple, CPU name and feature string of this machine. The features matter: the name alone promises too much in a VM."""
    return binding.get_default_triple(), binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()


@cache
def _machine(target: Target) -> Any:
    _initialise()
    return binding.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=2, reloc="pic", codemodel="small"
    )


def compile_to_object(ir: str, target: Target, *, optimise: bool = False) -> bytes:
    """Object code of an IR module. Hand-scheduled kernels need no IR passes; `optimise` runs them, vectorisers off."""
    with _lock:
        machine = _machine(target)
        try:
            module = binding.parse_assembly(ir)
            module.triple = target.triple
            module.verify()
        except RuntimeError as error:
            raise errors.EngineError(f"generated code is not valid LLVM IR: {error}") from error
        if optimise:
            options = binding.create_pipeline_tuning_options(speed_level=1)
            options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
            builder = binding.create_pass_builder(machine, options)
            builder.getModulePassManager().run(module, builder)
        try:
            content: bytes = machine.emit_object(module)
        except RuntimeError as error:
            raise errors.EngineError(f"LLVM cannot compile the generated code: {error}") from error
        return content


def assembly(ir: str, target: Target) -> str:
    """The assembly of an IR module, to look at."""
    with _lock:
        module = binding.parse_assembly(ir)
        module.triple = target.triple
        text: str = _machine(target).emit_assembly(module)
        return text
