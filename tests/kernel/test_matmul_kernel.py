"""How products are cut into tiles, strips and pieces."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sardonyx.ir.dims import symbol
from sardonyx.kernel.epilogue import Epilogue, accumulator
from sardonyx.kernel.expr import load
from sardonyx.kernel.loops import Operand
from sardonyx.kernel.matmul import dot, matmul, pack
from sardonyx.kernel.matmul.int8 import Int8MatMulKernel, QuadPackKernel
from sardonyx.kernel.matmul.matmul import MatMulKernel, fetching_rows, heights, strip_vectors, tallest, waits_for_strips
from sardonyx.kernel.matmul.strassen import StrassenKernel, lowest_tile
from sardonyx.target.target import describe
from targets import NEOVERSE, described

PLAIN = Epilogue((Operand("f32", "unit"),), ((0, accumulator("f32")),))


def kernel(**changes: object) -> MatMulKernel:
    fields: dict[str, object] = {
        "type": "f32",
        "b_type": "f32",
        "b": "packed",
        "batch": 0,
        "vectors": 4,
        "rows": 6,
        "heights": (5, 6),
        "unit_depth": True,
        "whole": True,
        "epilogue": PLAIN,
    }
    return MatMulKernel(**{**fields, **changes})  # type: ignore[arg-type]


@given(st.integers(1, 5000), st.integers(1, 14))
def test_rows_are_divided_into_blocks_of_two_heights_at_most(rows: int, most: int) -> None:
    found = heights(rows, most)
    blocks = -(-rows // most)
    assert len(found) <= 2
    assert found[-1] <= most
    assert found[-1] - found[0] <= 1
    assert found[0] * blocks <= rows <= found[-1] * blocks


def test_rows_known_only_at_run_time_can_make_tiles_of_every_height() -> None:
    assert heights(symbol("N"), 4) == (1, 2, 3, 4)


def test_no_rows_still_make_a_kernel() -> None:
    assert heights(0, 6) == (1,)


def test_tiles_wait_for_strips_with_few_sums_or_if_they_multiply_faster_than_these_come() -> None:
    wide = described(16)
    halves, whole = (describe(wide.triple, cpu, wide.features) for cpu in ("znver4", "znver5"))
    assert waits_for_strips(described(8), 2)
    assert not waits_for_strips(halves, 4)
    assert waits_for_strips(whole, 4)
    assert not waits_for_strips(NEOVERSE, 4)
    assert [fetching_rows(target) for target in (described(8), halves, whole, NEOVERSE)] == [4, 4, 5, 4]


@given(st.integers(0, 3000), st.sampled_from([4, 8, 16]), st.sampled_from(["f32", "f64"]))
def test_a_strip_is_no_wider_than_the_matrix_needs(columns: int, lanes: int, type: str) -> None:
    vectors = strip_vectors(columns, type, described(lanes))
    own = matmul.vector_lanes(type, described(lanes))
    needed = max(-(-columns // own), 1)
    assert vectors <= needed + 1
    assert tallest(described(lanes), vectors) >= 2


def test_units_count_every_tile_of_every_matrix() -> None:
    assert matmul.units(kernel(), [3, 2], 13, 65, described(16)) == 3 * 2 * 3 * 2
    assert matmul.units(kernel(), [], 0, 65, described(16)) == 0
    assert (
        dot.units(dot.DotKernel(type="f32", a_type="f32", b_type="f32", batch=1, epilogue=PLAIN), [3], 2, 65, described(16))
        == 3 * 2 * 2
    )
    assert (
        pack.units(pack.PackKernel(source="f32", type="f32", batch=1, vectors=2, order="depth"), [3], 33, 129, described(16))
        == 3 * 2 * 2
    )


def test_all_that_changes_the_code_changes_the_key() -> None:
    relu = Epilogue((Operand("f32", "unit"), Operand("f32", "unit")), ((1, accumulator("f32") + load(0, "f32")),))
    kernels = [
        kernel(),
        kernel(b_type="f16"),
        kernel(b="rows"),
        kernel(batch=1),
        kernel(vectors=2),
        kernel(rows=7),
        kernel(heights=(6,)),
        kernel(unit_depth=False),
        kernel(whole=False),
        kernel(epilogue=relu),
        kernel(fetches=True),
    ]
    assert len({one.key for one in kernels}) == len(kernels)
    assert kernel().key == kernel().key


def test_a_tile_taller_than_its_block_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 6 rows"):
        kernel(heights=(7,))


@pytest.mark.parametrize("change", [{"b": "rows"}, {"unit_depth": False}])
def test_only_strips_of_a_packed_matrix_are_fetched(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="strips of a packed B"):
        kernel(fetches=True, **change)


def test_an_epilogue_tells_what_it_reads_and_how_long_it_is() -> None:
    operands = (Operand("f32", "unit"), Operand("f32", "zero"), Operand("f32", "unit"))
    epilogue = Epilogue(operands, ((2, (accumulator("f32") + load(0, "f32")) * load(1, "f32")),))
    assert epilogue.read == (0, 1)
    assert epilogue.operations == 2


def test_all_that_changes_the_code_of_a_product_of_bytes_changes_the_key() -> None:
    plain = Epilogue((Operand("i32", "unit"),), ((0, accumulator("i32")),))

    def product(**changes: object) -> Int8MatMulKernel:
        fields: dict[str, object] = {"a_type": "u8", "batch": 0, "vectors": 4, "rows": 6, "heights": (5, 6), "whole": True}
        return Int8MatMulKernel(**{**fields, "epilogue": plain, **changes})  # type: ignore[arg-type]

    kernels: list[MatMulKernel | QuadPackKernel] = [
        product(),
        product(a_type="i8"),
        product(a_type="i16", b_type="i16"),
        product(batch=1),
        product(vectors=2),
        product(rows=7),
        product(heights=(6,)),
        product(whole=False),
        product(segments=1),
        product(ragged=False),
        product(epilogue=Epilogue((Operand("f32", "unit"),), ((0, accumulator("i32").cast("f32")),))),
        kernel(type="i32", b_type="i32", epilogue=plain),
        *(
            QuadPackKernel(source=source, batch=batch, vectors=vectors, order=order)  # type: ignore[arg-type]
            for source, batch, vectors, order in (
                ("u8", 0, 1, "any"), ("i8", 0, 1, "any"), ("u8", 1, 1, "any"), ("u8", 0, 2, "any"), ("u8", 0, 1, "depth")
            )
        ),
    ]  # fmt: skip
    assert len({one.key for one in kernels}) == len(kernels)
    with pytest.raises(ValueError, match="packed in quads"):
        product(b="rows")


def test_strassens_kernels_have_keys_of_their_own() -> None:
    fields: dict[str, Any] = {"batch": 0, "vectors": 4, "rows": 6, "heights": (5, 6), "whole": True}
    own = {**fields, "lowest": 5}
    halves = StrassenKernel(**own, epilogue=PLAIN)
    alike = MatMulKernel(**fields, epilogue=PLAIN, type="f32", b_type="f32", b="packed", unit_depth=True)
    changes = ({"batch": 1}, {"whole": False}, {"lowest": 4})
    others = [StrassenKernel(**{**own, **change}, epilogue=PLAIN) for change in changes]
    assert len({kernel.key for kernel in (halves, alike, *others)}) == 5
    for change in ({"type": "f64"}, {"b": "rows"}, {"unit_depth": False}):
        with pytest.raises(ValueError, match="Strassen's products are of f32"):
            StrassenKernel(**{**own, **change}, epilogue=PLAIN)


def test_no_tile_of_many_rows_is_lower_than_the_lowest() -> None:
    for most in (6, 8, 12):
        lowest = lowest_tile(range(16, 16 + most * most), most)
        assert all(half // -(-half // most) >= lowest for half in range(16, 2000))
