"""Loops and Ifs: whole calls of our sessions against onnxruntime's on one thread, and the time of one iteration.

    python -m benchmarks.kernels.control [pattern]

The bodies are small: what is measured is the way from one iteration to the next.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import onnx.parser

from benchmarks.kernels._race import race
from sardonyx.ir.tensor import Array


@dataclass(frozen=True)
class Case:
    """A loop: the text of its graph, how often its body runs, and what is fed beside that number."""

    name: str
    graph: str
    iterations: int
    shapes: dict[str, tuple[int, ...]]

    def model(self) -> tuple[bytes, dict[str, Array]]:
        """The model and its inputs."""
        rng = np.random.default_rng(0)
        content: bytes = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 19]> {self.graph}').SerializeToString()
        feeds: dict[str, Array] = {name: (rng.random(shape) * 0.2).astype(np.float32) for name, shape in self.shapes.items()}
        if "bool c," in self.graph.splitlines()[0]:
            feeds["c"] = np.array(True)
        if "int64 n" in self.graph:
            feeds["n"] = np.array(self.iterations)
        return content, feeds


_STATE = """g (int64 n, float[64] x, float[64] a, float[64] b) => (float[64] y) {
  y = Loop(n, , x) <body = turn (int64 i, bool c, float[64] s) => (bool d, float[64] r) {
    d = Identity(c)
    m = Mul(s, a)
    r = Add(m, b)
  }>
}"""
_STACKED = """g (int64 n, float[64] x, float[64] a, float[64] b) => (float[64] y, float[t,64] z) {
  y, z = Loop(n, , x) <body = turn (int64 i, bool c, float[64] s) => (bool d, float[64] r, float[64] q) {
    d = Identity(c)
    m = Mul(s, a)
    r = Add(m, b)
    q = Identity(r)
  }>
}"""
_UNTIL = """g (int64 n, float[64] x, float[64] a) => (float[64] y) {
  y = Loop(, , x) <body = turn (int64 i, bool c, float[64] s) => (bool d, float[64] r) {
    one = Constant<value = int64 {1}>()
    next = Add(i, one)
    d = Less(next, n)
    r = Mul(s, a)
  }>
}"""
_BRANCH = """g (bool c, float[64] x) => (float[64] y) {
  y = If(c) <then_branch = t () => (float[64] a) { a = Add(x, x) }, else_branch = e () => (float[64] b) { b = Neg(x) }>
}"""
_BRANCHES = """g (int64 n, float[64] x) => (float[64] y) {
  y = Loop(n, , x) <body = turn (int64 i, bool c, float[64] s) => (bool d, float[64] r) {
    d = Identity(c)
    two = Constant<value = int64 {2}>()
    one = Constant<value = int64 {1}>()
    rest = Mod(i, two)
    odd = Equal(rest, one)
    r = If(odd) <then_branch = t () => (float[64] a) { a = Add(s, x) }, else_branch = e () => (float[64] b) { b = Neg(s) }>
  }>
}"""
_RECURRENT = """g (float[1,64] h, float[1000,1,64] xs, float[64,64] w) => (float[1,64] final, float[1000,1,64] all) {
  final, all = Scan(h, xs) <num_scan_inputs = 1, body = turn (float[1,64] s, float[1,64] x) => (float[1,64] s2, float[1,64] o) {
    p = MatMul(s, w)
    a = Add(p, x)
    s2 = Tanh(a)
    o = Identity(s2)
  }>
}"""
_DECODE = """g (int64 n, float[256,64] embedding, float[64,64] w, float[64,256] head, float[1,64] x) => (int64[t,1] tokens) {
  begin = Constant<value = int64[1] {7}>()
  last, state, tokens = Loop(n, , begin, x) <body =
    turn (int64 i, bool c, int64[1] token, float[1,64] s) => (bool d, int64[1] next, float[1,64] s2, int64[1] chosen) {
      e = Gather(embedding, token)
      p = MatMul(s, w)
      a = Add(p, e)
      s2 = Tanh(a)
      logits = MatMul(s2, head)
      next = ArgMax <axis = -1, keepdims = 0> (logits)
      end = Constant<value = int64[1] {-1}>()
      same = Equal(next, end)
      goes = Not(same)
      shape = Constant<value = int64[1] {0}>()
      d = Squeeze(goes, shape)
      chosen = Identity(next)
    }>
}"""

_VECTORS: dict[str, tuple[int, ...]] = {"x": (64,), "a": (64,), "b": (64,)}
CASES = (
    Case("Loop, x * a + b on 64 floats", _STATE, 100_000, _VECTORS),
    Case("the same, every x stacked", _STACKED, 100_000, _VECTORS),
    Case("Loop until a condition fails", _UNTIL, 100_000, {"x": (64,), "a": (64,)}),
    Case("Loop of 3 iterations", _STATE, 3, _VECTORS),
    Case("If", _BRANCH, 1, {"x": (64,)}),
    Case("Loop with an If", _BRANCHES, 10_000, {"x": (64,)}),
    Case("Scan, recurrent cell 64 x 64", _RECURRENT, 1000, {"h": (1, 64), "xs": (1000, 1, 64), "w": (64, 64)}),
    Case(
        "Loop, greedy decoding of 256 tokens",
        _DECODE,
        1000,
        {"embedding": (256, 64), "w": (64, 64), "head": (64, 256), "x": (1, 64)},
    ),
)


def main() -> None:
    """Print a table of the cases whose name holds the pattern."""
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    print(f"{'loop':40} {'iterations':>7} {'ours µs':>10} {'ort µs':>10} {'ratio':>6} {'ns each':>10}")
    for case in CASES:
        if pattern in case.name:
            ours, theirs = race(*case.model())
            each = ours / case.iterations * 1e9
            print(f"{case.name:40} {case.iterations:7} {ours * 1e6:10.1f} {theirs * 1e6:10.1f} {theirs / ours:6.1f} {each:10.0f}")


if __name__ == "__main__":
    main()
