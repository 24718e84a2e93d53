"""The tool that puts estimates of kernels' times beside measurements."""

from __future__ import annotations

import pytest

import calibrate_costs
from calibrate_costs import Measured
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


def test_every_algorithm_of_a_convolution_is_measured() -> None:
    choices = calibrate_costs.measure_candidates(NETS["residual_net"]()[0], repeat=1)
    assert any({one.kernel for one in choice} >= {"direct", "winograd2", "winograd4"} for choice in choices)
    for choice in choices:
        assert choice[0].estimate == min(one.estimate for one in choice)
    lines = calibrate_costs.report_candidates([[Measured("direct", "Conv", 10, 40), Measured("winograd4", "Conv", 20, 10)]])
    assert "the fastest takes 25% of it" in lines[0]
    assert "fastest" not in lines[1]


def test_every_tile_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate_costs, "tallest", lambda target, vectors: 1)
    monkeypatch.setattr(calibrate_costs, "most_pixels", lambda target, vectors: 1)
    steps = calibrate_costs.measure_tiles(repeat=0)
    assert [step.label for step in steps] == [f"{vectors} x 1" for vectors in (1, 2, 3, 4) for _ in range(2)]
    assert {step.kernel for step in steps} == {"MatMulKernel", "ConvKernel"}
    assert all(step.time > 0 and step.estimate > 0 for step in steps)


def test_the_tool_wants_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        calibrate_costs.main([])
    assert "which model?" in capsys.readouterr().err


def test_estimates_are_nanoseconds_of_numbers_or_of_sizes() -> None:
    assert cost.loop(1000, 2, 8) == 320  # memory takes longer than two operations
    assert cost.loop(1000, 40, 8) == 1000
    assert cost.conv(8000, described(16)) == 80
    assert cost.conv(8000, described(4)) == 400  # a machine without fused multiplication takes longer
    assert str(cost.nonzero_indices(symbol("N"))) == str(symbol("N") * 2)
