"""Attention: whole calls of our sessions against onnxruntime's on one thread, and the share of the machine's peak.

python -m benchmarks.kernels.attention [pattern]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper

from benchmarks.kernels._race import race
from benchmarks.kernels.peak import multiply_add_peak
from sardonyx.ir.tensor import Array


@dataclass(frozen=True)
class Case:
    """An attention of one batch entry. `form`: the operator of ONNX, or MultiHeadAttention of com.microsoft."""

    heads: int
    queries: int
    keys: int
    size: int
    mask: str = ""
    form: str = "Attention"

    def __str__(self) -> str:
        mask = f" {self.mask}" if self.mask else ""
        return f"{self.form} {self.heads} heads, {self.queries} x {self.keys} x {self.size}{mask}"

    @property
    def operations(self) -> float:
        """Floating point operations of both products; half of them for a causal mask over a square."""
        share = 0.5 if self.mask == "causal" and self.queries == self.keys else 1.0
        return 4.0 * self.heads * self.queries * self.keys * self.size * share

    def model(self) -> tuple[bytes, dict[str, Array]]:
        """The model and its inputs."""
        rng = np.random.default_rng(0)
        lengths = {"Q": self.queries, "K": self.keys, "V": self.keys}
        causal = int(self.mask == "causal")
        if self.form == "Attention":
            shapes: dict[str, tuple[int, ...]] = {name: (1, self.heads, length, self.size) for name, length in lengths.items()}
            node = helper.make_node(
                "Attention", ["Q", "K", "V", "M"][: 4 if self.mask == "added" else 3], ["Y"], is_causal=causal
            )
            if self.mask == "added":
                shapes["M"] = (1, 1, self.queries, self.keys)
        else:
            shapes = {name: (1, length, self.heads * self.size) for name, length in lengths.items()}
            node = helper.make_node(
                self.form, ["Q", "K", "V"], ["Y"], domain="com.microsoft", num_heads=self.heads, unidirectional=causal
            )
        feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        graph = helper.make_graph(
            [node],
            "attention",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
            [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)],
        )
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
        content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
        return content, feeds


CASES = (
    *(Case(12, 128, 128, 64, mask) for mask in ("", "causal", "added")),
    *(Case(12, 512, 512, 64, mask) for mask in ("", "causal", "added")),
    Case(12, 197, 197, 64),
    Case(8, 64, 64, 32),
    Case(12, 1, 512, 64),
    Case(12, 128, 128, 64, form="MultiHeadAttention"),
    Case(12, 512, 512, 64, form="MultiHeadAttention"),
    Case(12, 512, 512, 64, "causal", form="MultiHeadAttention"),
    Case(12, 1, 512, 64, form="MultiHeadAttention"),
)


def main() -> None:
    """Print a table of the cases whose name holds the pattern."""
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    peak = multiply_add_peak()
    print(f"{'attention':52} {'ours µs':>10} {'ort µs':>10} {'ratio':>6} {'of peak':>8}")
    for case in CASES:
        if pattern in str(case):
            ours, theirs = race(*case.model())
            share = case.operations / ours / peak
            print(f"{case!s:52} {ours * 1e6:10.1f} {theirs * 1e6:10.1f} {theirs / ours:6.2f} {share:8.0%}")


if __name__ == "__main__":
    main()
