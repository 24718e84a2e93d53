"""The example of training without PyTorch learns."""

from __future__ import annotations

from pathlib import Path

import train_without_torch


def test_the_example_learns(tmp_path: Path) -> None:
    assert train_without_torch.main(tmp_path) > 0.97
