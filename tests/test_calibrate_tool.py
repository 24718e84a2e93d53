"""The tool that puts estimates of kernels' times beside measurements."""

from __future__ import annotations

import pytest

import calibrate_costs
from sardonyx.ir.dims import symbol
from sardonyx.target import cost
from small_nets import NETS
from targets import described


@pytest.mark.parametrize("net", ["residual_net", "transformer", "recurrent_nets"])
def test_every_kernel_of_a_net_is_measured(net: str) -> None:
    steps = calibrate_costs.measure(NETS[net]()[0], {}, repeat=1)
    assert steps
    assert all(step.time > 0 and step.estimate >= 0 for step in steps)
    lines = calibrate_costs.report(steps)
    assert len(lines) == 1 + len(steps) + len({step.kernel for step in steps})


def test_estimates_are_nanoseconds_of_numbers_or_of_sizes() -> None:
    assert cost.loop(1000, 2, 8) == 320  # memory takes longer than two operations
    assert cost.loop(1000, 40, 8) == 1000
    assert cost.conv(8000, described(16)) == 100
    assert cost.conv(8000, described(4)) == 400  # a machine without fused multiplication takes longer
    assert str(cost.nonzero_indices(symbol("N"))) == str(symbol("N") * 2)
