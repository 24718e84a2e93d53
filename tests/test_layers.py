"""The architecture: who may import whom. The table here is the one in docs/architecture.md."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src/sardonyx"
ARCHITECTURE = Path(__file__).parent.parent / "docs/architecture.md"

# First-level package or module of sardonyx -> layer. A module imports its own folder and lower layers only.
LAYERS = {
    "errors": 0,
    "dtypes": 0,
    "options": 0,
    "enums": 0,
    "compile_options": 0,
    "provider_names": 0,
    "cache_folder": 0,
    "sources": 0,
    "records": 0,
    "forks": 0,
    "mapped_file": 0,
    "pictures": 0,
    "decoding": 1,
    "ir": 1,
    "target": 1,
    "ops": 2,
    "analysis": 3,
    "matching": 3,
    "passes": 4,
    "kernel": 5,
    "program": 6,
    "formats": 7,
    "lower": 7,
    "codegen": 7,
    "plan": 8,
    "providers": 9,
    "runtime": 10,
    "compile": 11,
    "training": 12,
    "session": 13,
    "inspection": 13,
    "conversion": 13,
    "explanation": 13,
    "benchmarking": 13,
    "sample_inputs": 13,
    "build_info": 13,
    "generation": 14,
    "backend": 14,
    "capi": 14,
    "datasets": 14,
    "transformers": 14,
    "as_onnxruntime": 14,
    "minimal": 14,
    "tools": 14,
    "quantization": 14,
    "cli": 14,
    "__init__": 15,  # the public names
    "__main__": 15,
}

# Edges that the numbers alone would allow, or that are finer than them: package -> the only packages it may import.
ONLY = {
    "records": set(),
    "errors": set(),
    "dtypes": {"forks"},  # types that NumPy lacks are imported when they are first asked for
    "enums": set(),
    "options": {"enums", "errors", "dtypes", "cache_folder", "forks", "provider_names"},
    "provider_names": {"errors"},
    "compile_options": {"enums", "errors", "options", "provider_names"},
    "cache_folder": {"forks", "mapped_file"},
    "sources": {"cache_folder"},
    "forks": set(),
    "mapped_file": set(),
    "pictures": set(),
    "ir": {"errors", "dtypes", "options", "mapped_file"},
    "target": {"errors", "options", "cache_folder"},
    "formats": {"errors", "dtypes", "options", "mapped_file", "ir", "program"},
    "decoding": {"errors"},
    "ops": {"errors", "dtypes", "options", "forks", "decoding", "ir"},
    "analysis": {"errors", "dtypes", "options", "ir", "ops"},
    "matching": {"errors", "dtypes", "options", "ir", "ops"},
    "passes": {"enums", "errors", "dtypes", "options", "compile_options", "ir", "target", "ops", "analysis"},
    "kernel": {"errors", "dtypes", "options", "forks", "ir", "target"},  # of ir only the dimensions, see below
    "program": {"errors", "dtypes", "options", "forks", "ir", "kernel"},
    "lower": {
        "errors",
        "dtypes",
        "options",
        "forks",
        "ir",
        "target",
        "ops",
        "analysis",
        "matching",
        "kernel",
        "program",
        "records",
    },
    "codegen": {"errors", "dtypes", "options", "cache_folder", "sources", "forks", "target", "kernel"},
    "plan": {"enums", "errors", "dtypes", "options", "forks", "mapped_file", "ir", "ops", "analysis", "kernel", "program"},
    "cli": {"__init__", "pictures"},
}
FOR_ALL = {"records"}  # what Python has, in our own words
THIRD_PARTY = {"numpy", "ml_dtypes", "llvmlite"}
LLVMLITE_HOME = "codegen"
# Modules about an optional package: they may import it at their top, and are imported only when somebody asks for them.
ABOUT_OPTIONAL = {
    "torch": (
        "sardonyx/training/arrays.py",
        "sardonyx/training/autograd.py",
        "sardonyx/training/execution.py",
        "sardonyx/training/fallback.py",
        "sardonyx/training/flatten.py",
        "sardonyx/training/frontend/",
        "sardonyx/training/model_info.py",
        "sardonyx/training/module.py",
        "sardonyx/training/optim/",
        "sardonyx/training/ortmodule/",
        "sardonyx/training/attributes.py",
        "sardonyx/training/structure.py",
        "sardonyx/training/transition.py",
        "sardonyx/training/utils/",
    ),
}
FACES = {"backend", "build_info", "capi", "datasets", "as_onnxruntime", "cli"}  # may go through the public names
OPTIONAL = {  # package of an extra -> the only parts that may use it, and must work or say so without it
    "torch": ("sardonyx/training/", "sardonyx/transformers/"),
    "onnx": (
        "sardonyx/tools/",
        "sardonyx/quantization/messages.py",
        "sardonyx/training/onnxblock/messages.py",
        "sardonyx/transformers/messages.py",
    ),
    "tokenizers": ("sardonyx/generation/",),
    "PIL": ("sardonyx/ops/sampling/image_formats.py",),
}


@dataclass(frozen=True)
class Import:
    """One import statement of ours, seen from the importing module."""

    path: Path
    line: int
    target: str  # dotted name of what is imported
    inside_function: bool
    type_checking: bool
    reason: str  # text after `# lazy:` on the line

    @property
    def place(self) -> str:
        return f"{self.path.relative_to(SOURCE.parent)}:{self.line}"


def unit_of(path: Path) -> str:
    """The first-level package or module a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[Import]:
    text = path.read_text("utf-8")
    lines = text.splitlines()

    def visit(node: ast.AST, inside: bool, checking: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            is_checking = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            for target in _targets(child, path):
                _, marked, reason = lines[child.lineno - 1].partition("# lazy:")  # type: ignore[attr-defined]
                yield Import(path, child.lineno, target, inside, checking, reason.strip() if marked else "")  # type: ignore[attr-defined]
            yield from visit(child, inside or is_function, checking or is_checking)

    return visit(ast.parse(text), False, False)


def _targets(node: ast.AST, path: Path) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        if node.level:
            package = ("sardonyx", *path.relative_to(SOURCE).parts[:-1])
            base = ".".join(package[: len(package) - node.level + 1])
            module = f"{base}.{node.module}" if node.module else base
        else:
            module = node.module or ""
        return [f"{module}.{alias.name}" if module == "sardonyx" else module for alias in node.names]
    return []


def unit_imported(target: str) -> str | None:
    """The first-level unit of ours that an import names; None for other packages."""
    parts = target.split(".")
    if parts[0] != "sardonyx":
        return None
    if len(parts) > 1 and ((SOURCE / parts[1]).is_dir() or (SOURCE / f"{parts[1]}.py").is_file()):
        return parts[1]
    return "__init__"


ALL_IMPORTS = [each for path in sorted(SOURCE.rglob("*.py")) for each in imports_of(path)]
OWN_IMPORTS = [(unit_of(each.path), unit, each) for each in ALL_IMPORTS if (unit := unit_imported(each.target)) is not None]


def test_every_first_level_name_has_a_layer() -> None:
    units = {unit_of(path) for path in SOURCE.rglob("*.py")}
    assert units - set(LAYERS) == set()


def test_nothing_imports_a_higher_layer() -> None:
    upward = [
        f"{each.place}: {source} (layer {LAYERS[source]}) imports {target} (layer {LAYERS.get(target)})"
        for source, target, each in OWN_IMPORTS
        if source in LAYERS and source != target and not each.type_checking and not _downward(source, target)
    ]
    assert upward == []


def _downward(source: str, target: str) -> bool:
    if source in FACES and target == "__init__":
        return True
    if source == "__main__":
        return target == "cli"
    return target in LAYERS and LAYERS[target] <= LAYERS[source] and target != "__init__"


@pytest.mark.parametrize("source", sorted(ONLY))
def test_a_package_sees_only_what_its_row_allows(source: str) -> None:
    seen = {
        target: each.place
        for origin, target, each in OWN_IMPORTS
        if origin == source and target != source and not each.type_checking
    }
    assert {target: place for target, place in seen.items() if target not in ONLY[source] | FOR_ALL} == {}


@pytest.mark.parametrize("source", ["kernel", "codegen"])
def test_below_the_lowering_nothing_knows_of_graphs(source: str) -> None:
    allowed = ("sardonyx.ir.dims",)
    seen = [each for origin, target, each in OWN_IMPORTS if origin == source and target == "ir"]
    assert [each.place for each in seen if each.target not in allowed] == []


def test_there_is_no_cycle_between_first_level_packages() -> None:
    edges: dict[str, set[str]] = {}
    for source, target, each in OWN_IMPORTS:
        if source in LAYERS and source not in {target, "__init__"} and target != "__init__" and not each.type_checking:
            edges.setdefault(source, set()).add(target)
    remaining = dict(edges)
    while True:  # take away whatever imports nothing that is left; what stays is in a cycle, or above one
        leaves = [unit for unit, targets in remaining.items() if not targets & set(remaining)]
        if not leaves:
            break
        for unit in leaves:
            del remaining[unit]
    assert remaining == {}


def test_an_import_inside_a_function_says_why() -> None:
    unexplained = [each.place for _, _, each in OWN_IMPORTS if each.inside_function and not each.reason]
    assert unexplained == []


def test_only_codegen_imports_llvmlite() -> None:
    others = [
        each.place for each in ALL_IMPORTS if each.target.split(".")[0] == "llvmlite" and unit_of(each.path) != LLVMLITE_HOME
    ]
    assert others == []


def test_nothing_but_the_declared_dependencies_is_imported() -> None:
    known = THIRD_PARTY | set(sys.stdlib_module_names) | {"sardonyx"}
    packages = [(each.place, each.target.split(".")[0]) for each in ALL_IMPORTS]
    foreign = [(place, package) for place, package in packages if package not in known]
    assert [item for item in foreign if not item[0].startswith(OPTIONAL.get(item[1], ()))] == []


def test_optional_packages_are_imported_when_they_are_needed() -> None:
    at_the_top = [
        (each.place, each.target.split(".")[0])
        for each in ALL_IMPORTS
        if each.target.split(".")[0] in OPTIONAL and not each.inside_function and not each.type_checking
    ]
    assert [place for place, package in at_the_top if not place.startswith(ABOUT_OPTIONAL.get(package, ()))] == []


def test_the_layer_table_of_the_architecture_page_is_the_tested_one() -> None:
    page = ARCHITECTURE.read_text("utf-8")
    listed = {
        name: int(layer)
        for layer, names in re.findall(r"^\| (\d+) \| (.*?) \|", page, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }
    assert listed == {name: layer for name, layer in LAYERS.items() if not name.startswith("__")}
