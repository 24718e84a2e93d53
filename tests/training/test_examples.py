"""The examples of training learn: those that need several processes or transformers (for the others see tests/test_docs.py)."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*command: str) -> str:
    result = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
def test_two_processes_learn_together() -> None:
    output = run("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(EXAMPLES / "ddp.py"))
    lines = [line for line in output.splitlines() if line.startswith("process")]
    assert len(lines) == 2
    assert all("of 2" in line and line.endswith("parameters equal") for line in lines)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
def test_bert_learns() -> None:
    assert "accuracy" in run(str(EXAMPLES / "finetune_bert.py"))
