"""Products of bfloat16 matrices, summed in float32: C = A * B, with an epilogue on every element of C.

The tiles are those of `kernel.matmul.matmul`; an element of A or B is a *pair*, two consecutive k in 32 bits, which one
instruction multiplies and adds up (`multiplies_pairs`).

    A    rows of bfloat16, consecutive along k; the last pair of a row may be one number
    B    packed: strips one after the other, each [pairs][strip][2]; numbers beyond the depth or the columns are 0

Products of bfloat16 are exact in float32, so sums round as those of widened numbers do. What is smaller than a normal float32
counts as 0: the instruction has it so.
"""

from __future__ import annotations

from typing import Final

from sardonyx.kernel.matmul.matmul import MatMulKernel, Source
from sardonyx.records import dataclass
from sardonyx.target.target import Target

PAIR: Final = 2  # numbers of an element


def multiplies_pairs(target: Target) -> bool:
    """Whether a machine has the instruction, rounding as float32 does."""
    return target.has_bf16_dot and target.architecture == "x86_64"


@dataclass(frozen=True, kw_only=True)
class PairMatMulKernel(MatMulKernel):
    """All that decides the code of a product of pairs; two equal ones share it. Strides of B count pairs."""

    type: str = "f32"
    b_type: str = "i32"  # a pair
    b: Source = "packed"
    unit_depth: bool = True
    ragged: bool = True  # the depth may be odd

    def __post_init__(self) -> None:
        MatMulKernel.__post_init__(self)
        if (self.type, self.b_type, self.b, self.unit_depth, self.grouped) != ("f32", "i32", "packed", True, False):
            raise ValueError("a product of pairs adds up in f32, and its B is packed in pairs")

    @property
    def text(self) -> str:
        """What the key is made of."""
        return f"pairs|{self.ragged}|{super().text}"
