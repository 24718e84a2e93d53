"""Every pass by example: tests/golden/<pass>/<case>.txt holds a graph, `=>`, the graph after the pass, and its refusals.

`pytest tests/passes --update-golden` writes the second part anew; what changed is then for a reader to judge.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pass_support import GOLDEN, golden_text
from sardonyx.passes.pipeline import ALL
from sardonyx.passes.protocol import Optimization

CASES = sorted(GOLDEN.glob("*/*.txt"))
BY_NAME: dict[str, Optimization] = {each.name: each for each in ALL}


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_graph_becomes_what_the_golden_file_says(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text("utf-8")
    source = text.partition("\n=>\n")[0]
    found = golden_text(BY_NAME[path.parent.name], source)
    if request.config.getoption("--update-golden"):
        path.write_text(found, "utf-8")
    assert found == path.read_text("utf-8")


def test_every_pass_has_a_golden_file() -> None:
    assert {path.parent.name for path in CASES} == set(BY_NAME)
