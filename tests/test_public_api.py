"""The public names: exactly those in `__all__`, each with a docstring, and cheap to import."""

from __future__ import annotations

import enum
import subprocess
import sys
import types

import sardonyx


def test_public_names_equal_all() -> None:
    listed = set(sardonyx.__all__)
    present = {name for name in dir(sardonyx) if not name.startswith("_")}
    # Modules of the package become attributes when something imports them; they are no promise.
    modules = {name for name in present if isinstance(getattr(sardonyx, name), types.ModuleType)}
    assert listed - {"__version__"} >= present - modules - {"annotations"}
    assert all(hasattr(sardonyx, name) for name in listed)


def test_no_name_is_listed_twice() -> None:
    assert len(sardonyx.__all__) == len(set(sardonyx.__all__))


def test_every_public_class_and_function_is_documented() -> None:
    undocumented = []
    for name in sardonyx.__all__:
        value = getattr(sardonyx, name)
        if isinstance(value, (type, types.FunctionType)) and not (value.__doc__ or "").strip():
            undocumented.append(name)
    assert undocumented == []


def test_every_public_method_is_documented() -> None:
    undocumented = []
    for name in sardonyx.__all__:
        value = getattr(sardonyx, name)
        if not isinstance(value, type) or issubclass(value, (enum.Enum, BaseException)):
            continue
        for member, defined in vars(value).items():
            function = defined.fget if isinstance(defined, property) else getattr(defined, "__func__", defined)
            if member.startswith("_") or not isinstance(function, types.FunctionType):
                continue
            if not (function.__doc__ or "").strip():
                undocumented.append(f"{name}.{member}")
    assert undocumented == []


def test_the_package_says_what_it_is() -> None:
    assert (sardonyx.__doc__ or "").strip()
    assert sardonyx.__version__.count(".") >= 1


def test_importing_and_running_pulls_in_no_heavy_package() -> None:
    program = (
        "import sys, sardonyx\n"
        "from sardonyx.cli.main import main\n"
        "assert main(['run', '--demo']) == 0\n"
        "heavy = {'onnx', 'google.protobuf', 'torch', 'sympy', 'onnxruntime'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr


def test_importing_takes_no_longer_than_importing_onnxruntime() -> None:
    # The best of several runs: other processes may be busy.
    ours = min(_import_seconds("sardonyx") for _ in range(3))
    theirs = min(_import_seconds("onnxruntime") for _ in range(3))
    assert ours <= theirs * 1.1


def _import_seconds(module: str) -> float:
    program = f"import time; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"
    return float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True).stdout)
