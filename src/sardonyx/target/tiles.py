"""Register tiles: the block of sums that a kernel keeps in registers while it goes along the depth.

    rows of A (pixels) x vectors of B (channels)      each step along the depth loads one row of B's vectors and one element of
    +----+----+                                       A for each row, and adds their products to all sums
    |sum |sum |  row 0
    |sum |sum |  row 1         registers = rows * vectors + vectors of B + what else the kernel holds
    +----+----+

How tall a tile may be is one rule for all kernels, how long it takes is in `target.cost`.
"""

from __future__ import annotations

from sardonyx.target.target import Target


def rows_in_registers(target: Target, sums: int, others: int) -> int:
    """How many rows of so many sums each fit the registers beside `others`; one at least."""
    return max((target.registers - others) // sums, 1)


def product_rows(target: Target, vectors: int, others: int = 0) -> int:
    """The same for products: besides the sums a tile holds the vectors of one operand, and an element of the other one.

    The latter takes no register where arithmetic reads it from memory.
    """
    return rows_in_registers(target, vectors, vectors + (0 if target.has_broadcast_operands else 1) + others)
