"""The benchmark of optimizers measures what it says."""

from __future__ import annotations

import torch
from benchmarks.optimizers import NETWORKS, bert_base, measure, resnet18


def test_the_lists_are_those_of_the_networks() -> None:
    for shapes, tensors, elements in ((resnet18(), 62, 11_689_512), (bert_base(), 199, 109_482_240)):
        assert len(shapes) == tensors
        assert sum(int(torch.Size(shape).numel()) for shape in shapes) == elements
    assert set(NETWORKS) == {"resnet18", "bert-base", "mlp"}


def test_one_step_of_each_is_measured() -> None:
    before = torch.get_num_threads()
    try:
        rows = list(measure("mlp", threads=1, repeats=1))
    finally:
        torch.set_num_threads(before)
    assert [row.optimizer for row in rows] == ["Adam", "AdamW", "SGD"]
    assert all(row.ours > 0 and "x foreach" in str(row) for row in rows)
