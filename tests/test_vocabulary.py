"""Names say what they are: no two public classes of one name, and none of the words we gave up (docs/glossary.md)."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "sardonyx"

# Word that was given up -> what is said instead
RETIRED = {
    "spread": "dilation, squared deviations or broadcast",
    "spreads": "dilations or distances",
    "turn": "iteration",
    "turns": "iterations",
    "turned": "transposed, rotated or reversed",
    "moves": "strides or increments",
    "told": "known, bound or data_dependent",
    "place": "index, position, coordinate, tap, location or entry",
    "places": "indices, positions, coordinates, taps or locations",
    "lying": "in rows, stored",
    "roomy": "readable past the end",
    "unsuited": "whole, not flattened",
    "straight": "not transposed",
}
RETIRED_NAMES = {"Case", "CaseTable", "Image", "Turns", "Ways", "NativeWay", "case_of", "tells_sizes", "tell_sizes"}
# To place is to give memory; results are computed in place; angles are counted in quarter turns.
ALLOWED = {
    "place", "_place", "place_late", "place_results", "place_states", "in_place", "_in_place",
    "_quarter_turns_f32", "_quarter_turns_f64",
}  # fmt: skip


def trees(*folders: str) -> Iterator[tuple[Path, ast.AST]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def words(name: str) -> set[str]:
    """The words a name is made of: `MaxPoolKernel`, `_row_axis`."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def defined(tree: ast.AST) -> Iterator[tuple[str, int, bool]]:
    """Every name a file gives to something, its line, and whether it is a function's."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, True
        elif isinstance(node, ast.ClassDef):
            yield node.name, node.lineno, False
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno, False
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno, False
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno, False


def test_no_two_public_classes_have_one_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees("src/sardonyx"):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_names_are_made_of_the_fields_words() -> None:
    found = []
    for path, tree in trees("src/sardonyx", "benchmarks", "tools", "examples"):
        for name, line, is_function in defined(tree):
            where = f"{path.relative_to(ROOT)}:{line}: {name}"
            if name in RETIRED_NAMES and path.is_relative_to(SOURCE):
                found.append(where)
            if name in ALLOWED and (is_function or name != "place"):
                continue
            found += [f"{where}: say {RETIRED[word]}" for word in sorted(words(name) & RETIRED.keys())]
    assert found == []


def test_modules_are_named_by_the_fields_words() -> None:
    found = [path for path in SOURCE.rglob("*.py") if words(path.stem) & RETIRED.keys()]
    assert found == []


def test_every_retired_word_stands_in_the_glossary() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    gone = text[text.index("## Words we gave up") :]
    singular = {word.removesuffix("s") if word.removesuffix("s") in RETIRED else word for word in RETIRED}
    assert [word for word in sorted(singular) if word not in gone] == []
