"""Every public name of the installed onnxruntime is there behind the alias: modules, classes, members, arguments, defaults.

What is not offered stands in NOT_OFFERED with the reason; docs/onnxruntime-compatibility.md lists the same names.
"""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import onnxruntime
import pytest

import sardonyx

MODULES: Final = (
    "onnxruntime",
    "onnxruntime.capi",
    "onnxruntime.capi._pybind_state",
    "onnxruntime.capi.onnxruntime_pybind11_state",
    "onnxruntime.capi.onnxruntime_inference_collection",
    "onnxruntime.capi.onnxruntime_validation",
    "onnxruntime.capi.build_and_package_info",
    "onnxruntime.backend",
    "onnxruntime.backend.backend",
    "onnxruntime.backend.backend_rep",
    "onnxruntime.datasets",
)
_EP_CONTEXT: Final = "parts of a model that a provider compiled ahead: no provider here writes or reads them"
_SCHEMAS: Final = "descriptions of ONNX Runtime's C++ operators and kernels; `sardonyx.operators()` describes ours"
_QUANTIZE: Final = "a helper that onnxruntime.quantization does not use"
NOT_OFFERED: Final = {
    "OrtEpContextData": _EP_CONTEXT,
    "OrtEpContextDataBuffer": _EP_CONTEXT,
    "SessionOptions.set_ep_context_data_read_func": _EP_CONTEXT,
    "SessionOptions.clear_ep_context_data_read_func": _EP_CONTEXT,
    "ModelCompiler.set_ep_context_data_write_func": _EP_CONTEXT,
    "ModelCompiler.clear_ep_context_data_write_func": _EP_CONTEXT,
    "get_all_operator_schema": _SCHEMAS,
    "get_all_opkernel_def": _SCHEMAS,
    "get_registered_ep_kernel_defs": _SCHEMAS,
    "schemadef": _SCHEMAS,
    "opkernel": _SCHEMAS,
    "SessionObjectInitializer": "a hook of ONNX Runtime's own C++ code, without members",
    "get_session_initializer": "a hook of ONNX Runtime's own C++ code",
    "pack_fp4_weights_for_cuda_moe_gemm": "for CUDA",
    "quantize_qdq_matmul_2bits": _QUANTIZE,
}
# Arguments that are more liberal here, or stand for two of ONNX Runtime's signatures in one.
OTHER_ARGUMENTS: Final = {
    "IOBinding.bind_input": "takes an array, too, as the binding of the compiled module does",
    "OrtValue.from_dlpack": "takes is_bool_tensor, too, as the value of the compiled module does",
    "OrtDevice.__init__": "takes numbers, too, as the device of the compiled module does",
}
DOCS: Final = Path(__file__).parents[2] / "docs/onnxruntime-compatibility.md"

PROGRAM: Final = """
import importlib, inspect, json, re, sys
import sardonyx

sardonyx.install_as_onnxruntime()

def has(owner, member):
    if hasattr(owner, member) or member in getattr(owner, "__dataclass_fields__", {}):
        return True
    return inspect.isclass(owner) and re.search(rf"self\\.{member}\\b", inspect.getsource(owner)) is not None

missing = []
for module, names in json.load(sys.stdin).items():
    ours = importlib.import_module(module)
    for name, members in names.items():
        if not hasattr(ours, name):
            missing.append(name)
        else:
            missing += [f"{name}.{member}" for member in members if not has(getattr(ours, name), member)]
print(json.dumps(sorted(set(missing))))
"""


def public(module: ModuleType) -> list[str]:
    """The names of a module that are onnxruntime's own: neither private ones nor what it imports from elsewhere."""
    names = []
    for name, value in vars(module).items():
        origin = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None) or "onnxruntime"
        # Packages that are not asked for are there if another test has imported them.
        is_asked = not isinstance(value, ModuleType) or not hasattr(value, "__path__") or value.__name__ in MODULES
        if is_asked and not name.startswith("_") and origin.partition(".")[0] == "onnxruntime":
            names.append(name)
    return names


def members(value: Any) -> list[str]:
    if not inspect.isclass(value) or issubclass(value, BaseException):
        return []
    return list(getattr(value, "__members__", ())) or [name for name in dir(value) if not name.startswith("_")]


@pytest.mark.filterwarnings("ignore:onnx.version is deprecated:DeprecationWarning")  # onnxruntime's own module uses it
def test_every_public_name_is_there_or_listed() -> None:
    wanted: dict[str, dict[str, list[str]]] = {}
    for name in MODULES:
        module = importlib.import_module(name)
        wanted[name] = {each: members(getattr(module, each)) for each in public(module)}
    given = json.dumps(wanted)
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=given, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stderr
    assert sorted(json.loads(result.stdout)) == sorted(NOT_OFFERED)


def test_the_documentation_lists_what_is_not_offered() -> None:
    page = DOCS.read_text("utf-8")
    assert [name for name in NOT_OFFERED if f"`{name.rpartition('.')[2]}`" not in page] == []


def arguments(function: Any) -> list[tuple[str, Any]]:
    return [(each.name, each.default) for each in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("name", ["InferenceSession", "IOBinding", "OrtValue", "OrtDevice", "SparseTensor", "ModelCompiler",
                                  "AdapterFormat"])  # fmt: skip
def test_methods_have_onnxruntimes_arguments_and_defaults(name: str) -> None:
    theirs, ours = getattr(onnxruntime, name), getattr(sardonyx, name)
    different = [
        f"{name}.{member}"
        for member, function in inspect.getmembers(theirs, callable)
        if (not member.startswith("_") or member == "__init__") and hasattr(function, "__code__") and hasattr(ours, member)
        if arguments(function) != arguments(getattr(ours, member))
    ]
    assert different == [each for each in sorted(OTHER_ARGUMENTS) if each.startswith(f"{name}.")]


def test_functions_have_onnxruntimes_arguments_and_defaults() -> None:
    functions = [name for name, value in vars(onnxruntime).items() if inspect.isfunction(value) and not name.startswith("_")]
    assert functions
    for name in functions:
        assert arguments(getattr(sardonyx, name)) == arguments(getattr(onnxruntime, name)), name


@pytest.mark.parametrize("name", ["SessionOptions", "RunOptions"])
def test_options_have_onnxruntimes_defaults(name: str) -> None:
    theirs, ours = getattr(onnxruntime, name)(), getattr(sardonyx, name)()
    settings = [member for member in dir(theirs) if not member.startswith("_") and not callable(getattr(theirs, member))]
    assert len(settings) > 4
    for setting in settings:
        expected, found = getattr(theirs, setting), getattr(ours, setting)
        assert str(found) == str(expected), setting


def test_enumerations_have_onnxruntimes_numbers() -> None:
    native = importlib.import_module("onnxruntime.capi._pybind_state")
    ours = importlib.import_module("sardonyx.capi._pybind_state")
    compared = 0
    for name, value in vars(native).items():
        if inspect.isclass(value) and hasattr(value, "__members__") and hasattr(ours, name):
            expected = {member: int(each.value) for member, each in value.__members__.items()}
            found = {member: each.value for member, each in getattr(ours, name).__members__.items()}
            assert {member: found.get(member) for member in expected} == expected, name
            compared += 1
    assert compared > 10


def test_names_behind_the_alias_are_documented() -> None:
    for name in ("_pybind_state", "onnxruntime_inference_collection", "onnxruntime_validation"):
        module = importlib.import_module(f"sardonyx.capi.{name}")
        for each in public_of_ours(module):
            assert (getattr(module, each).__doc__ or "").strip(), f"{name}.{each}"


def public_of_ours(module: ModuleType) -> list[str]:
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    return [name for name in names if inspect.isclass(getattr(module, name)) or inspect.isfunction(getattr(module, name))]
