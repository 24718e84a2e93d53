"""Folders of the tests do not hide what is not installed.

`tests` is on the path, so that tests find the modules they share. A folder there that has the name of a package would be found
instead of it where it is missing, and tests that are to be skipped without it would run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent


def asked_for(tree: ast.AST) -> Iterator[str]:
    """The packages that tests can do without, by name."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
            continue
        if getattr(node.func, "attr", getattr(node.func, "id", "")) in ("importorskip", "find_spec"):
            yield str(node.args[0].value).partition(".")[0]


def test_no_folder_has_the_name_of_a_package_that_may_be_missing() -> None:
    folders = {path.name for path in TESTS.iterdir() if path.is_dir()}
    for path in sorted(TESTS.rglob("*.py")):
        hidden = folders & set(asked_for(ast.parse(path.read_text("utf-8"))))
        assert not hidden, f"{path}: {', '.join(hidden)} may be a folder of the tests instead of the package; rename the folder"
