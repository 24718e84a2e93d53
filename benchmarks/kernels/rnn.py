"""Recurrent layers: whole calls of our sessions against onnxruntime's on one thread, and the share of the machine's peak.

    python -m benchmarks.kernels.rnn [pattern]

One sequence alone is a product of a matrix with a vector at every step: bound by the cache the weights come from, not by
multiply-adds.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from benchmarks.kernels._race import race
from benchmarks.kernels.peak import multiply_add_peak
from sardonyx.ir.tensor import Array

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@dataclass(frozen=True)
class Case:
    """A layer with as many inputs as hidden units."""

    op: str
    hidden: int
    steps: int
    batch: int
    direction: str = "forward"

    def __str__(self) -> str:
        both = " both ways" if self.direction == "bidirectional" else ""
        return f"{self.op} {self.hidden} hidden, {self.steps} steps, batch {self.batch}{both}"

    @property
    def directions(self) -> int:
        """How many times the sequence is walked."""
        return 2 if self.direction == "bidirectional" else 1

    @property
    def operations(self) -> float:
        """Floating point operations of all products."""
        return 4.0 * self.directions * self.steps * self.batch * _GATES[self.op] * self.hidden * self.hidden

    def model(self) -> tuple[bytes, dict[str, Array]]:
        """The model and its input."""
        rng = np.random.default_rng(0)
        rows = _GATES[self.op] * self.hidden
        weights = [
            (name, rng.normal(0, 0.1, (self.directions, *shape)).astype(np.float32))
            for name, shape in (("W", (rows, self.hidden)), ("R", (rows, self.hidden)), ("B", (2 * rows,)))
        ]
        node = helper.make_node(self.op, ["X", "W", "R", "B"], ["Y", "Y_h"], hidden_size=self.hidden, direction=self.direction)
        x = rng.standard_normal((self.steps, self.batch, self.hidden)).astype(np.float32)
        graph = helper.make_graph(
            [node],
            "layer",
            [helper.make_tensor_value_info("X", TensorProto.FLOAT, x.shape)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("Y", "Y_h")],
            [numpy_helper.from_array(array, name) for name, array in weights],
        )
        content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=9).SerializeToString()
        return content, {"X": x}


CASES = (
    *(
    Case(op, hidden, steps, batch)
    for op in ("LSTM", "GRU", "RNN")
    for hidden, steps, batch in (
        (64, 1, 1), (64, 16, 1), (64, 100, 8), (128, 50, 1), (128, 50, 4), (256, 50, 1), (256, 50, 8), (512, 16, 1), (512, 16, 8),
    )
    ),
    Case("LSTM", 128, 50, 1, "bidirectional"),
    Case("GRU", 128, 50, 4, "bidirectional"),
)  # fmt: skip


def main() -> None:
    """Print a table of the cases whose name holds the pattern."""
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    peak = multiply_add_peak()
    print(f"{'layer':44} {'ours µs':>10} {'ort µs':>10} {'ratio':>6} {'of peak':>8}")
    for case in CASES:
        if pattern in str(case):
            ours, theirs = race(*case.model(), seconds=0.5)
            share = case.operations / ours / peak
            print(f"{case!s:44} {ours * 1e6:10.1f} {theirs * 1e6:10.1f} {theirs / ours:6.2f} {share:8.0%}")


if __name__ == "__main__":
    main()
