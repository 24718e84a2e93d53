"""ONNX Runtime's `onnxruntime.training.ortmodule._utils`: what programs outside of it use."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def get_random_states() -> tuple[Any, ...]:
    """The states of Python's, NumPy's and torch's generators."""
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), None


def set_random_states(states: tuple[Any, ...]) -> None:
    """Put back what `get_random_states` gave."""
    of_python, of_numpy, of_torch, _ = states
    random.setstate(of_python)
    np.random.set_state(of_numpy)
    torch.set_rng_state(of_torch)


def get_device_index(device: str | int | torch.device) -> int:
    """The number of a device; 0 if it has none."""
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    return 0 if index is None else int(index)


def get_device_str(device: str | int | torch.device) -> str:
    """A device with its number, as `cpu:0`."""
    if isinstance(device, int):
        return f"cuda:{device}"
    return f"{torch.device(device).type}:{get_device_index(device)}"
