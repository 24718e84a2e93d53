"""The documentation is true: its code runs, its commands work, the files it names exist, generated pages are up to date."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sardonyx.cli.main import main

ROOT = Path(__file__).parent.parent
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "src/sardonyx/data").glob("*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)(?:#[^)]*)?\)")
FILE = re.compile(r"`((?:src|docs|tests|tools|examples|\.ci)/[\w./-]+|[A-Z]+\.md|Makefile)`")


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    return [body for name, body in BLOCK.findall(page.read_text("utf-8")) if name == language]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=page_id)
def test_python_blocks_of_a_page_run_in_order(page: Path) -> None:
    program = "\n".join(blocks(page, "python"))
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=page_id)
def test_commands_of_a_page_work(page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    commands = [line[2:] for body in blocks(page, "console") for line in body.splitlines() if line.startswith("$ ")]
    assert commands
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "sardonyx"
        assert main(arguments) == 0, command
        assert capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_files_a_page_names_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    linked = [target for target in LINK.findall(text) if "://" not in target]
    missing = [target for target in linked if not (page.parent / target).exists()]
    missing += [name for name in FILE.findall(text) if not (ROOT / name).exists()]
    assert missing == []


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=page_id)
def test_make_targets_a_page_names_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = re.findall(r"(?:^|`)make ((?:[a-z-]+ ?)+?)(?: {2,}|`|$)", page.read_text("utf-8"), re.MULTILINE)
    assert named
    assert {target for group in named for target in group.split()} <= targets


@pytest.mark.parametrize("example", EXAMPLES, ids=page_id)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error", str(example)], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_the_page_of_operators_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", "--markdown"]) == 0
    expected = capsys.readouterr().out
    assert (ROOT / "docs/operators.md").read_text("utf-8") == expected, "run `make docs`"


def test_make_help_lists_every_target_meant_for_people() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert phony is not None
    described = set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))
    assert described == set(phony[1].split())


def test_the_changelog_has_the_version_of_the_package() -> None:
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert version is not None
    assert f"## {version[1]}" in (ROOT / "CHANGELOG.md").read_text("utf-8")
