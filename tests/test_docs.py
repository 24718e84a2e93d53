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
ANCHOR = re.compile(r"\[[^\]]+\]\(([^)#\s]*)#([^)]+)\)")
FILE = re.compile(r"`((?:src|docs|tests|tools|examples|\.ci)/[\w./-]+|[A-Z]+\.md|Makefile)`")


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    return [body for name, body in BLOCK.findall(page.read_text("utf-8")) if name == language]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that has the files a page may read; what its code writes does not land among the sources."""
    for name in ("src", "docs", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=page_id)
def test_python_blocks_of_a_page_run_in_order(page: Path, folder: Path) -> None:
    program = "\n".join(blocks(page, "python"))
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=page_id)
def test_commands_of_a_page_work(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
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


def anchors(page: Path) -> set[str]:
    """What headings of a page are linked by: in lower case, hyphens for spaces, without marks."""
    text = BLOCK.sub("", page.read_text("utf-8"))
    titles = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_headings_a_page_links_to_exist(page: Path) -> None:
    linked = [(target, heading) for target, heading in ANCHOR.findall(page.read_text("utf-8")) if "://" not in target]
    assert [link for link in linked if link[1] not in anchors(page.parent / link[0] if link[0] else page)] == []


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


def table_rows(page: Path, columns: int) -> dict[str, list[str]]:
    """The rows of the tables with this many columns, by their first cell."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.read_text("utf-8").splitlines() if line[:1] == "|"
    ]
    return {row[0]: row[1:] for row in rows if len(row) == columns}


def test_the_readme_has_the_figures_of_the_benchmarks() -> None:
    page = ROOT / "docs/benchmarks.md"
    measured = table_rows(page, 9)
    claimed = {name: cells for name, cells in table_rows(ROOT / "README.md", 7).items() if name not in ("kind", "---")}
    count, _, mean, lowest, *_ = claimed.pop("all")
    assert f"Geometric mean of the ratio over {count} models: {mean.strip('*')} " in page.read_text("utf-8")
    assert int(count) == sum(int(cells[0]) for cells in claimed.values()) == len(measured.keys() - {"model", "---"})
    ratios = {}
    for kind, cells in claimed.items():
        found = re.fullmatch(r"([0-9.]+) \((.+)\)", cells[3])
        assert found is not None, kind
        assert measured[found[2]][2].strip("*").startswith(found[1]), kind
        ratios[kind] = float(found[1])
    assert float(lowest) == min(ratios.values())


def test_the_readme_names_every_command() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    commands = re.findall(
        r"^    (\w+) +\S",
        subprocess.run([sys.executable, "-m", "sardonyx", "--help"], capture_output=True, text=True, check=True).stdout,
        re.MULTILINE,
    )
    assert {"run", "inspect", "check", "explain", "bench", "ops", "cache"} <= set(commands)
    assert [command for command in commands if f"$ sardonyx {command}" not in text] == []


def test_make_test_says_how_long_it_takes() -> None:
    rule = (ROOT / "Makefile").read_text("utf-8").split("\ntest: ")[1]
    assert re.match(r'.*\n\t@echo "The test suite takes \d+ to \d+ minutes', rule)
