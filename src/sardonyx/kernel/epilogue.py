"""What happens to the results of a product or a convolution while they are still in registers.

    acc = accumulator("f32")
    Epilogue(
        operands=(Operand("f32", "unit"), Operand("f32", "unit")),       # bias, result
        stores=((1, clamp(acc + load(0, "f32"), 0.0, None)),),           # operand 1 := max(acc + bias, 0)
    )

The vector axis is the innermost one of the result; `inner` says how an operand moves along it. How operands move along all
other axes is the business of the kernel that has the epilogue.
"""

from __future__ import annotations

from sardonyx.forks import cached_property
from sardonyx.kernel.expr import Expr, canonical, operations, walk
from sardonyx.kernel.loops import Operand
from sardonyx.records import dataclass


def accumulator(type: str) -> Expr:
    """The finished sum at this position of the result."""
    return Expr("acc", type)


@dataclass(frozen=True)
class Epilogue:
    """Expressions of the accumulator and of operands, and where they are stored."""

    operands: tuple[Operand, ...]
    stores: tuple[tuple[int, Expr], ...]

    @cached_property
    def key(self) -> str:
        """Equal for epilogues with the same code."""
        operands = ",".join(f"{operand.type}:{operand.inner}{':same' * operand.same_rows}" for operand in self.operands)
        return f"{operands}|{[to for to, _ in self.stores]}|{canonical([value for _, value in self.stores])}"

    @property
    def operations(self) -> int:
        """How many operations one element takes; what is the same in a whole row is computed once for it."""
        varies: set[Expr] = set()
        for node in walk([value for _, value in self.stores]):
            varying = node.op == "load" and self.operands[node.param].inner != "zero"
            if node.op == "acc" or varying or any(arg in varies for arg in node.args):
                varies.add(node)
        return operations(varies)

    @property
    def has_lookups(self) -> bool:
        """Whether elements are looked up in tables of bytes."""
        return any(node.op == "lookup" for node in walk([value for _, value in self.stores]))

    @property
    def constants(self) -> int:
        """How many different numbers it has, zero apart: they take registers."""
        nodes = walk([value for _, value in self.stores])
        return sum(1 for node in nodes if node.op == "const" and node.param != 0)

    @property
    def read(self) -> tuple[int, ...]:
        """The operands that are loaded."""
        nodes = walk([value for _, value in self.stores])
        return tuple(sorted({node.param for node in nodes if node.op == "load"}))
