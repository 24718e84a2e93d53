"""Tests of training run on one thread: torch's and ours would wait for each other's on small machines."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)
