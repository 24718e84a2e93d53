"""Constants are known by what they are made of: source, transform, parameters, target."""

from __future__ import annotations

import importlib
import os
import pkgutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx import dtypes, lower
from sardonyx.ir.tensor import OBJECT, Array, Tensor, from_numpy, origin_of
from sardonyx.lower.conv import conv_task  # noqa: F401  the modules that register transforms
from sardonyx.lower.conv.conv_weights import Sets
from sardonyx.lower.matmul.weights import pack_strips, transposed
from sardonyx.lower.quant import quant_conv, quant_matmul  # noqa: F401
from sardonyx.lower.rnn import quantized_rnn, rnn  # noqa: F401
from sardonyx.mapped_file import map_file
from sardonyx.program import constants
from sardonyx.program.constants import TRANSFORMS, Derived, Part, Transform, by_content, by_identity, transform

F32 = np.float32


def settled(path: Path) -> Path:
    """The file, when another change of it would show in its times."""
    while time.time_ns() - os.stat(path).st_ctime_ns < 50_000_000:
        time.sleep(0.01)
    return path


def mapped(path: Path, dtype: dtypes.DType = dtypes.FLOAT32, offset: int = 0, count: int | None = None) -> Tensor:
    """A constant that lies in a file."""
    with path.open("rb") as file:
        view = map_file(file.fileno(), path.stat().st_size)[offset:]
    size = len(view) // dtype.numpy.itemsize if count is None else count
    return Tensor(dtype, (size,), lambda: view[: size * dtype.numpy.itemsize])


def doubled(array: Array) -> Array:
    return array * 2


def added(array: Array, number: int) -> Array:
    return array + number


DOUBLED, ADDED = Transform("doubled", 1, doubled), Transform("added", 1, added)


def derived(
    source: Tensor, made: Transform = ADDED, parameters: tuple[Any, ...] = (3,), target: str = "any", **part: Any
) -> Derived:
    shape = part.get("shape", source.shape)
    taken = Part(source, part.get("offset", 0), shape, part.get("strides", (1,)))
    return Derived(made, (taken,), parameters, source.dtype, shape, target)


def test_a_range_of_a_file_is_an_identity_that_another_mapping_has_too(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(np.arange(8, dtype=F32).tobytes())
    settled(path)
    assert mapped(path).identity == mapped(path).identity
    assert not mapped(path).identity.startswith(OBJECT)
    assert mapped(path, offset=4).identity != mapped(path).identity
    assert mapped(path, count=4).identity != mapped(path).identity


def test_a_file_that_has_just_changed_or_changes_has_another_identity(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(32))
    assert mapped(path).identity.startswith(OBJECT)  # another change at the same time of the clock would not show
    first = mapped(settled(path))
    before = first.identity
    with path.open("r+b") as file:
        file.write(b"\1")
    assert mapped(settled(path)).identity != before
    assert first.identity == before


def test_data_in_memory_is_known_by_the_object_alone() -> None:
    array = np.ones(4, F32)
    first, second = from_numpy(array), from_numpy(array)
    assert first.identity == first.identity != second.identity
    assert first.digest == second.digest == from_numpy(np.ones(4, F32)).digest != from_numpy(np.zeros(4, F32)).digest


def test_what_a_pass_makes_is_known_by_what_it_was_made_of(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(64)))
    settled(path)
    same = [origin_of("scale", [mapped(path), None], (1, b"factors")) for _ in range(2)]
    assert same[0] == same[1]
    others = [
        origin_of("fold", [mapped(path), None], (1, b"factors")),
        origin_of("scale", [mapped(path, offset=4), None], (1, b"factors")),
        origin_of("scale", [mapped(path, dtypes.INT32), None], (1, b"factors")),
        origin_of("scale", [None, mapped(path)], (1, b"factors")),
        origin_of("scale", [mapped(path), None], (1, b"others")),
    ]
    assert len({same[0], *others}) == 6
    assert from_numpy(np.ones(3), origin=same[0]).identity == same[0]
    assert origin_of("scale", [from_numpy(np.ones(3))], ()).startswith(OBJECT)


def test_everything_a_constant_is_made_of_is_in_its_key() -> None:
    source, other = from_numpy(np.arange(8, dtype=F32)), from_numpy(np.arange(8, dtype=F32))
    different: list[Callable[[], Derived]] = [
        lambda: derived(source),
        lambda: derived(other),
        lambda: derived(source, Transform("sum", 1, added)),
        lambda: derived(source, Transform("added", 2, added)),
        lambda: derived(source, parameters=(4,)),
        lambda: derived(source, parameters=(3.0,)),
        lambda: derived(source, target="another"),
        lambda: derived(source, offset=1, shape=(4,)),
        lambda: derived(source, shape=(4,), strides=(2,)),
        lambda: derived(source, DOUBLED, ()),
    ]
    assert len({make().key(by_identity) for make in different}) == len(different)
    assert [make().key(by_identity) for make in different] == [make().key(by_identity) for make in different]
    assert derived(source).key(by_content) == derived(other).key(by_content)
    assert derived(source) == derived(source) != derived(other)


def test_a_constant_made_of_another_one_has_it_in_its_key() -> None:
    source = from_numpy(np.arange(8, dtype=F32))

    def twice(number: int) -> str:
        inner = derived(source, parameters=(number,))
        return Derived(DOUBLED, (Part(inner, 0, (8,), (1,)),), (), dtypes.FLOAT32, (8,), "any").key(by_content)

    assert twice(1) == twice(1) != twice(2)


def test_the_table_has_every_transform_once() -> None:
    wanted = {
        "literal", "as_float32", "pack_strips", "transpose_matrices", "arrange_gates", "pack_conv_direct",
        "pack_conv_plain", "pack_conv_lanes", "pack_conv_narrow", "pack_conv_bias", "conv_transpose_phase",
    }  # fmt: skip
    assert wanted <= TRANSFORMS.keys()
    assert all(name == made.name and made.version >= 1 for name, made in TRANSFORMS.items())
    assert len({made.function for made in TRANSFORMS.values()}) == len(TRANSFORMS)
    with pytest.raises(ValueError, match="there is a transform 'pack_strips' already"):
        transform("pack_strips", 2)(doubled)


@settings(max_examples=60, deadline=None)
@given(
    batch=st.sampled_from([(), (2,), (2, 3)]),
    depth=st.integers(1, 9),
    columns=st.integers(1, 20),
    strip=st.sampled_from([1, 4, 8]),
    order=st.sampled_from(["C", "F"]),
    limit=st.integers(1, 600),
)
def test_blocks_make_the_whole(batch: tuple[int, ...], depth: int, columns: int, strip: int, order: Any, limit: int) -> None:
    count = int(np.prod(batch)) * depth * columns
    matrices = np.asarray(np.arange(count, dtype=F32).reshape(*batch, depth, columns), order=order)
    for made, parameters in ((pack_strips, (strip,)), (transposed, ())):
        expected = made(matrices, *parameters)
        found = np.full(expected.shape, np.nan, F32)
        ends = []
        for index, (block,) in made.blocks([matrices], parameters, limit):
            assert block is not None
            found[index] = made(block, *parameters)
            ends.append(block.ctypes.data)
        np.testing.assert_array_equal(found, expected)
        assert ends == sorted(ends)  # in the order of memory


def in_blocks(made: Transform, sources: list[Array | None], parameters: tuple[Any, ...], limit: int) -> tuple[Array, int]:
    """What a transform makes block by block, and how many blocks there were."""
    expected = made(*sources, *parameters)
    found, count = np.zeros_like(expected), 0
    for index, blocks in made.blocks(sources, parameters, limit):
        found[index] = made(*blocks, *parameters)
        count += 1
    return found, count


def test_conversions_are_done_in_blocks_if_there_is_anything_to_convert() -> None:
    made, data = TRANSFORMS["as_float32"], np.arange(60, dtype=np.float16).reshape(3, 4, 5)
    found, count = in_blocks(made, [data], (), 16)
    np.testing.assert_array_equal(found, data.astype(F32))
    assert count == 3
    assert in_blocks(made, [data.astype(F32)], (), 16)[1] == 1


def kernels(*shape: int, dtype: Any = F32) -> Array:
    return (np.arange(np.prod(shape)) % 251).reshape(shape).astype(dtype)


GATES = kernels(2, 4, 20, 6)
# Transform, sources, parameters; and how many blocks there are at least if each has a few elements.
DIVIDED: tuple[tuple[str, list[Array | None], tuple[Any, ...], int], ...] = (
    ("pack_conv_direct", [kernels(40, 6, 1, 3, 3)], (40, Sets(3, 16, 8), 4), 3),  # one group, the last set shorter
    ("pack_conv_direct", [kernels(38, 6, 1, 3, 3)], (38, Sets(3, 16, 8), 4), 3),  # and not full
    ("pack_conv_direct", [kernels(32, 6, 1, 1, 1)], (32, Sets(2, 16, 16), 8), 2),
    ("pack_conv_direct", [kernels(60, 3, 1, 3, 3)], (20, Sets(2, 16, 8), 4), 3),  # three groups
    ("pack_conv_plain", [kernels(40, 3, 1, 2, 2)], (40, Sets(3, 16, 8)), 3),
    ("pack_conv_plain", [kernels(60, 3, 1, 2, 2)], (20, Sets(2, 16, 8)), 3),
    ("pack_conv_lanes", [kernels(21, 1, 1, 3, 3)], (8,), 3),
    ("pack_conv_narrow", [kernels(3, 21, 1, 3, 3)], (8,), 3),
    ("conv_transpose_phase", [kernels(12, 5, 1, 4, 4)], (12, ((0,), (1, 3), (0, 2))), 5),
    ("conv_transpose_phase", [kernels(12, 5, 1, 4, 4)], (4, ((0,), (1, 3), (0, 2))), 3),  # three groups
    ("pack_kernel_quads", [kernels(40, 5, 3, 3, dtype=np.uint8)], (40, True, 16, 4), 3),
    ("pack_kernel_quads", [kernels(40, 5, 3, 3, dtype=np.uint8)], (10, False, 8, 2), 4),  # four groups
    ("sums_of_kernels", [kernels(40, 5, 3, 3, dtype=np.int8), None], (), 9),
    ("sums_of_kernels", [kernels(40, 5, 3, 3, dtype=np.int8), np.array([3], np.int8)], (), 9),
    ("sum_of_distances", [kernels(2, 9, 30, dtype=np.uint8), None], (), 2),
    ("sum_of_distances", [np.asfortranarray(kernels(9, 30, dtype=np.uint8)), np.array([7], np.uint8)], (), 5),
    ("pack_recurrent_quads", [kernels(1, 4, 20, 6, dtype=np.uint8)], (8,), 3),
    ("arrange_gates", [GATES[:1]], (((0, 1),), 4, 8, False, dtypes.FLOAT32), 3),
    ("arrange_gates", [GATES], (((0, 1),), 4, 8, True, dtypes.FLOAT32), 2),
    ("arrange_gates", [GATES[:1, :2], GATES[1:, 2:], GATES[:1, 2:]], (((0, 1), (2, 2)), 4, 8, False, dtypes.FLOAT32), 3),
)


@pytest.mark.parametrize(("name", "sources", "parameters", "least"), DIVIDED)
@pytest.mark.parametrize("order", ["C", "F"])
def test_kernels_and_gates_are_packed_in_blocks(
    name: str, sources: list[Array | None], parameters: tuple[Any, ...], least: int, order: Any
) -> None:
    made = TRANSFORMS[name]
    given = [None if source is None else np.asarray(source, order=order) for source in sources]
    expected = made(*given, *parameters)
    found, count = in_blocks(made, given, parameters, 64)
    np.testing.assert_array_equal(found, expected)
    if order == "C":
        assert count >= least


# What transforms without blocks make is small, or their sources are: a number a channel, tables of trees and of zero points.
SMALL = {
    "arrange_columns", "bit_votes", "depthwise_distances", "literal", "pack_block_offsets", "pack_conv_bias",
    "product_of_scales", "quad_windows", "signed_bits", "signed_points", "sums_of_recurrent", "terms_of_columns",
    "unpack_block_zero_points", "walked_nodes",
}  # fmt: skip


def test_whatever_packs_weights_can_do_it_in_blocks() -> None:
    for module in pkgutil.walk_packages(lower.__path__, "sardonyx.lower."):
        importlib.import_module(module.name)
    whole = {
        name for name, each in TRANSFORMS.items() if each.cuts is constants._no_cuts and each.function.__module__ != __name__
    }
    assert whole == SMALL
