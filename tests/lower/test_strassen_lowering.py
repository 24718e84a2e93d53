"""Products by Strassen's algorithm: any sizes, batches and epilogues, guarded memory, targets, NaN; when it is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import erf
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import sardonyx as sx
from guarded_session import guarded_feeds, guarded_memory
from native_support import compile_native, run_native
from sardonyx.codegen.host import host
from sardonyx.codegen.matmul.strassen import emit_strassen_kernel
from sardonyx.errors import InvalidArgument
from sardonyx.formats.onnx import load
from sardonyx.ir.builder import make_attr
from sardonyx.ir.graph import Model
from sardonyx.ir.tensor import Array
from sardonyx.kernel.matmul.matmul import MatMulKernel, fetching_rows, strip_vectors
from sardonyx.kernel.matmul.strassen import MOST_APART, StrassenKernel
from sardonyx.lower.matmul.strassen import LEAST_COLUMNS, LEAST_DEPTH, LEAST_ROWS, least_in_all
from sardonyx.program.steps import KernelStep
from sardonyx.target.target import describe
from targets import described, names_here, of_sessions

DEPTH = LEAST_DEPTH
LEAST = least_in_all(of_sessions())
HALF = 42  # twice as many rows are computed in halves on all machines


def numbers(seed: int, *shape: int) -> Array:
    found: Array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return found


@dataclass(frozen=True)
class Layer:
    """A product with weights, and what follows it."""

    rows: tuple[int, ...]  # entries and their rows
    columns: int
    depth: int = DEPTH
    after: str = "bias"  # "", "bias", "Gelu" or "residual"
    named: bool = False  # sizes of rows are symbols
    transposed: bool = False  # weights are stored along their depth

    @property
    def weights(self) -> Array:
        return numbers(1, self.depth, self.columns) / np.float32(np.sqrt(self.depth))

    def feeds(self) -> dict[str, Array]:
        feeds = {"x": numbers(0, *self.rows, self.depth)}
        if self.after == "residual":
            feeds["r"] = numbers(3, *self.rows, self.columns)
        return feeds

    def content(self) -> bytes:
        node = helper.make_node
        constants = {"w": self.weights.T.copy() if self.transposed else self.weights}
        nodes, weights, end = [], "w", "m" if self.after else "y"
        if self.transposed:
            nodes, weights = [node("Transpose", ["w"], ["t"], perm=[1, 0])], "t"
        nodes.append(node("MatMul", ["x", weights], [end]))
        if self.after == "residual":
            nodes.append(node("Add", ["m", "r"], ["y"]))
        elif self.after:
            constants["b"] = numbers(2, self.columns)
            nodes.append(node("Add", ["m", "b"], ["a" if self.after == "Gelu" else "y"]))
        if self.after == "Gelu":
            nodes.append(node("Gelu", ["a"], ["y"]))
        sizes: list[Any] = [f"n{axis}" for axis in range(len(self.rows))] if self.named else list(self.rows)
        shapes = {"x": [*sizes, self.depth], "r": [*sizes, self.columns]}
        return model(nodes, {name: shapes[name] for name in self.feeds()}, constants)

    def expected(self, feeds: dict[str, Array]) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):
            found: Array = feeds["x"].astype(np.float64) @ self.weights
        if self.after == "residual":
            return found + feeds["r"]
        if self.after:
            found = found + numbers(2, self.columns)
        if self.after == "Gelu":
            found = found * (1 + np.vectorize(erf)(found / np.sqrt(2))) / 2
        return found


def model(nodes: Sequence[Any], feeds: dict[str, list[Any]], constants: dict[str, Array]) -> bytes:
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in feeds.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()
    return content


def session(content: bytes, *, exact: bool = False, threads: int = 1) -> sx.InferenceSession:
    options = sx.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.exact_matmul", str(int(exact)))
    return sx.InferenceSession(content, options)


def marked(content: bytes) -> Model:
    """The model with its products marked as the pass does."""
    loaded = load(content)
    for node in loaded.graph.nodes:
        if node.op_type in ("Gemm", "MatMul"):
            node.attrs["_halves"] = make_attr("_halves", 1)
    return loaded


def is_halved(content: bytes, target: str = "") -> bool:
    _, compiled = compile_native(marked(content), target=target)
    kernels = [step.kernel for step in compiled.lowered.steps if isinstance(step, KernelStep)]
    assert any(isinstance(kernel, MatMulKernel) for kernel in kernels)
    return any(isinstance(kernel, StrassenKernel) for kernel in kernels)


def assert_close(found: Array, expected: Array, factor: float = 1.0) -> None:
    assert found.shape == expected.shape
    np.testing.assert_array_less(np.abs(found - expected), 1e-5 * factor * np.abs(expected).max() + 1e-30)


layers = st.builds(
    Layer,
    rows=st.one_of(
        st.tuples(st.integers(2, 3), st.integers(LEAST_ROWS, 3 * LEAST_ROWS)),
        st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(LEAST, LEAST + 18)),
        st.tuples(st.just(1), st.integers(150, 200)),
    ),
    columns=st.integers(LEAST_COLUMNS, 500),
    depth=st.integers(DEPTH // 2, DEPTH // 2 + 20).map(lambda half: 2 * half),
    after=st.sampled_from(["", "bias", "Gelu", "residual"]),
    named=st.booleans(),
    transposed=st.booleans(),
)


@given(layers)
@settings(max_examples=25, deadline=None)
def test_any_sizes_in_guarded_memory(layer: Layer) -> None:
    feeds = layer.feeds()
    halves = session(layer.content())
    with guarded_memory() as guard:
        (found,) = halves.run(None, guarded_feeds(guard, feeds))
        assert_close(np.array(found), layer.expected(feeds))


@pytest.mark.parametrize("target", names_here())
@pytest.mark.parametrize("rows", [(1, 84), (2, 57)])
def test_all_targets(rows: tuple[int, ...], target: str) -> None:
    layer = Layer(rows, 300)
    assert is_halved(layer.content(), target)
    graph, compiled = compile_native(marked(layer.content()), target=target)
    feeds = layer.feeds()
    (found,) = run_native(graph, compiled, feeds)
    assert_close(found, layer.expected(feeds))


def test_open_rows_are_computed_in_halves_if_there_are_many_and_plainly_if_there_are_few() -> None:
    content = Layer((1, 1), 256, named=True).content()
    halves, plain = session(content), session(content, exact=True)
    few = ((1, 1), (3, 5), (1, LEAST - 1), (3, LEAST_ROWS - 1), (0, 40), (2, 0), (4, 8))
    many = ((2, 64), (1, LEAST), (-(-LEAST // LEAST_ROWS), LEAST_ROWS), (3, 33), (1, 200))
    for rows in few + many:
        layer = Layer(rows, 256)
        feeds = layer.feeds()
        (found,), (exact,) = halves.run(None, feeds), plain.run(None, feeds)
        assert found.shape == (*rows, 256)
        if found.size:
            assert_close(found, layer.expected(feeds))
            if rows != (1, 1):  # of which even and odd k are summed apart
                assert (found.tobytes() != exact.tobytes()) == (rows in many)


def test_strips_come_once_for_groups_of_about_as_many_blocks() -> None:
    caches, depth = host().caches, 3072
    for rows in (96, 197, 1500):
        _, compiled = compile_native(marked(product_of(numbers(0, depth, 256), (1, rows))))
        steps = (each for each in compiled.lowered.steps if isinstance(each, KernelStep))
        ((step, kernel),) = ((each, each.kernel) for each in steps if isinstance(each.kernel, StrassenKernel))
        group = step.arguments[kernel.arguments.position("group")]
        assert isinstance(group, int)
        half = -(-rows // 2)
        blocks = -(-half // kernel.rows)
        groups = -(-blocks // group)
        block_bytes = 4 * kernel.rows * depth * 4
        room = max(4 * caches.l2, caches.l3 // 8)
        assert group == 1 or group * block_bytes <= room
        assert groups == -(-blocks // max(room // block_bytes, 1))
        assert groups * group - blocks < groups


def test_threads_give_the_same_bits() -> None:
    for layer in (Layer((3, 70), 512, after="Gelu"), Layer((1, 190), 384)):
        feeds = layer.feeds()
        results = {session(layer.content(), threads=threads).run(None, feeds)[0].tobytes() for threads in (1, 2, 3, 7)}
        assert len(results) == 1


# What sequences of a batch have to do with each other: nothing.


@given(st.integers(0, 2), st.sampled_from([np.nan, np.inf, -np.inf, 1e30, 3e38, 0.0]), st.integers(0, 2**31))
@settings(max_examples=15, deadline=None)
def test_entries_of_a_batch_do_not_depend_on_each_other(entry: int, value: float, seed: int) -> None:
    layer = Layer((3, 58), 256)
    feeds = layer.feeds()
    halves = session(layer.content())
    (before,) = halves.run(None, feeds)
    x = feeds["x"].copy()
    random = np.random.default_rng(seed)
    if value:
        x[entry, random.integers(58), random.integers(DEPTH)] = value
    else:
        x[entry] = random.standard_normal((58, DEPTH)) * 100
    (after,) = halves.run(None, {"x": x})
    others = [each for each in range(3) if each != entry]
    assert after[others].tobytes() == before[others].tobytes()
    assert after[entry].tobytes() != before[entry].tobytes()
    assert halves.run(None, {"x": x[[entry] * 3]})[0][1].tobytes() == after[entry].tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("row", [0, HALF - 1, HALF, 2 * HALF - 1, 3])
def test_what_is_no_number_stays_in_its_row(row: int, value: float) -> None:
    layer = Layer((1, 2 * HALF), 256)
    feeds = layer.feeds()
    feeds["x"][0, row, 7] = value
    (found,), (exact,) = (session(layer.content(), exact=exact).run(None, feeds) for exact in (False, True))
    others = [each for each in range(2 * HALF) if each != row]
    np.testing.assert_array_equal(found[0, row], exact[0, row])
    clean = Layer((1, 2 * HALF), 256).feeds()
    assert_close(found[0, others], layer.expected(clean)[0, others])
    # The rows that are computed with it have the bits of a plain product.
    plain = (row + HALF) % (2 * HALF)
    assert found[0, plain].tobytes() == exact[0, plain].tobytes()
    assert found[0, others].tobytes() != exact[0, others].tobytes()


def test_small_rows_beside_large_ones_keep_their_digits() -> None:
    layer = Layer((1, 2 * HALF), 256, after="")
    feeds = layer.feeds()
    for scale in (1e-12, 1e-3, 1 / (2 * MOST_APART), 1.0):
        x = feeds["x"].copy()
        x[0, HALF:] *= np.float32(scale)
        (found,) = session(layer.content()).run(None, {"x": x})
        expected = layer.expected({"x": x})
        for half in (slice(0, HALF), slice(HALF, 2 * HALF)):
            assert_close(found[0, half], expected[0, half], MOST_APART)
    x[0, 50:60] = 0
    assert not session(layer.content()).run(None, {"x": x})[0][0, 50:60].any()


def test_weights_that_are_no_numbers_stay_in_their_columns() -> None:
    for row, column, value in ((9, 3, np.nan), (200, 130, np.inf), (0, 70, -np.inf)):
        layer = Layer((1, 2 * HALF), 256, after="")
        weights = layer.weights.copy()
        weights[row, column] = value
        content = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [1, 2 * HALF, DEPTH]}, {"w": weights})
        (found,) = session(content).run(None, layer.feeds())
        others = [each for each in range(256) if each != column]
        assert not np.isfinite(found[..., column]).any()
        assert_close(found[..., others], layer.expected(layer.feeds())[..., others])


@pytest.mark.parametrize("cpu", ["znver4", "znver5"])
def test_tiles_of_few_rows_fetch_nothing(cpu: str) -> None:
    """They take a strip as fast as it comes: what else is fetched then makes it come later."""
    wide = described(16)
    target = describe(wide.triple, cpu, wide.features)
    _, compiled = compile_native(marked(Layer((1, 1), 256, named=True).content()))
    kernels = [step.kernel for step in compiled.lowered.steps if isinstance(step, KernelStep)]
    (kernel,) = [kernel for kernel in kernels if isinstance(kernel, StrassenKernel)]
    names = [each.name for each in emit_strassen_kernel(kernel, "product", target).companions]
    fetching = {int(name.split("_")[2].split("x")[0]) for name in names if name.startswith("tile") and "fetches" in name}
    assert fetching == set(range(fetching_rows(target), kernel.rows + 1))


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("rows", [2 * HALF, 2 * HALF + 1])
def test_products_of_one_tensor_share_its_sums(rows: int, named: bool) -> None:
    """Queries, keys and values; another tensor's product has sums of its own."""
    weights = {f"w{number}": numbers(number, DEPTH, 256) for number in range(4)}
    nodes = [helper.make_node("MatMul", ["x", f"w{number}"], [f"m{number}"]) for number in range(3)]
    nodes += [helper.make_node("Sum", ["m0", "m1", "m2"], ["t"]), helper.make_node("MatMul", ["t", "w3"], ["y"])]
    sizes: list[Any] = ["n", "l"] if named else [2, rows]
    content = model(nodes, {"x": [*sizes, DEPTH]}, weights)
    graph, compiled = compile_native(marked(content))
    labels = [step.label for step in compiled.lowered.steps if isinstance(step, KernelStep)]
    assert sum(label.startswith("sums for") for label in labels) == 2
    x = numbers(0, 2, rows, DEPTH)
    x[1, HALF] *= 1000  # rows of which one is much larger than the other are not paired
    (found,) = run_native(graph, compiled, {"x": x})
    total = sum(x.astype(np.float64) @ weights[f"w{number}"] for number in range(3))
    assert_close(found, total @ weights["w3"].astype(np.float64), 4.0)


# When it is chosen


def product_of(weights: Array, rows: Sequence[Any] = (1, 2 * HALF)) -> bytes:
    return model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [*rows, len(weights)]}, {"w": weights})


def test_it_needs_enough_of_every_axis() -> None:
    assert is_halved(product_of(numbers(0, DEPTH, 256)))
    assert is_halved(product_of(numbers(0, DEPTH, 256), ("n", "l")))
    assert is_halved(product_of(numbers(0, DEPTH, 256), ("n", LEAST_ROWS)))
    assert is_halved(product_of(numbers(0, DEPTH, 256), (3, LEAST_ROWS)))
    assert is_halved(product_of(numbers(0, DEPTH, 256), (1, LEAST)))
    assert not is_halved(product_of(numbers(0, DEPTH, 256), (1, LEAST - 1)))
    assert not is_halved(product_of(numbers(0, DEPTH, 256), ("n", LEAST_ROWS - 1)))
    assert not is_halved(product_of(numbers(0, DEPTH - 2, 256)))
    assert not is_halved(product_of(numbers(0, DEPTH + 1, 256)))
    assert not is_halved(product_of(numbers(0, DEPTH, LEAST_COLUMNS - 1)))


def test_fast_multipliers_need_more_rows_to_cover_what_weights_take_to_come() -> None:
    wide = described(16)
    machines = (described(8), *(describe(wide.triple, cpu, wide.features) for cpu in ("znver4", "znver5")))
    assert [least_in_all(target) for target in machines] == [32, 32, 80]


@pytest.mark.parametrize("transposed", [False, True])
def test_columns_that_go_together_have_to_be_alike(transposed: bool) -> None:
    weights = numbers(0, DEPTH, 512)
    target = of_sessions()
    strip = strip_vectors(512, "f32", target, 2 * HALF, DEPTH) * target.lanes
    for scale in (1.0, 1e-3, 0.0, np.nan):
        weights[:, strip : 2 * strip] *= np.float32(scale)
        node = helper.make_node("Gemm", ["m", "w"], ["y"], transB=int(transposed))
        content = model(
            [helper.make_node("Reshape", ["x", "s"], ["m"]), node],
            {"x": [1, 2 * HALF, DEPTH]},
            {"w": weights.T.copy() if transposed else weights},
        )
        proto = helper.make_tensor("s", TensorProto.INT64, [2], [-1, DEPTH])
        loaded = onnx.load_from_string(content)
        loaded.graph.initializer.append(proto)
        assert is_halved(loaded.SerializeToString()) == (scale == 1.0)


def test_rows_of_a_reshaped_tensor_are_paired_within_its_entries() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "s"], ["m"]),
        helper.make_node("Gemm", ["m", "w", "b"], ["g"]),
        helper.make_node("Reshape", ["g", "t"], ["y"]),
    ]
    weights = numbers(1, DEPTH, 256)
    graph = helper.make_graph(
        nodes,
        "reshaped",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "l", DEPTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(weights, "w"),
            numpy_helper.from_array(numbers(2, 256), "b"),
            numpy_helper.from_array(np.array([-1, DEPTH]), "s"),
            numpy_helper.from_array(np.array([-1, 256]), "t"),
        ],
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()
    halves, plain = session(content), session(content, exact=True)
    x = numbers(0, 3, 60, DEPTH)
    (found,), (exact,) = halves.run(None, {"x": x}), plain.run(None, {"x": x})
    assert found.tobytes() != exact.tobytes()
    assert_close(found, (x.astype(np.float64) @ weights + numbers(2, 256)).reshape(-1, 256))
    x[1] = np.nan
    (after,) = halves.run(None, {"x": x})
    assert after[:60].tobytes() == found[:60].tobytes()
    assert after[120:].tobytes() == found[120:].tobytes()


def test_pixels_are_rows_of_their_image() -> None:
    for rows, named in (((2, 7, 9), False), ((2, 7, 9), True), ((1, 1, 2 * HALF), False), ((3, 2, 5, 6), False)):
        layer = Layer(rows, 256, after="residual", named=named)
        feeds = layer.feeds()
        (found,), (exact,) = (session(layer.content(), exact=exact).run(None, feeds) for exact in (False, True))
        assert_close(found, layer.expected(feeds))
        assert found.tobytes() != exact.tobytes()


def test_pixels_that_lie_apart_are_not_joined() -> None:
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1, 3]), helper.make_node("MatMul", ["t", "w"], ["y"])]
    weights, x = numbers(1, DEPTH, 256), numbers(0, 2, 5, 60, DEPTH)
    (found,) = session(model(nodes, {"x": list(x.shape)}, {"w": weights})).run(None, {"x": x})
    assert_close(found, x.transpose(0, 2, 1, 3).astype(np.float64) @ weights)


def test_samples_in_rows_of_a_matrix_are_not_paired() -> None:
    content = product_of(numbers(0, DEPTH, 256), (2 * HALF,))
    x = {"x": numbers(1, 2 * HALF, DEPTH)}
    halves, plain = (session(content, exact=exact).run(None, x)[0] for exact in (False, True))
    assert halves.tobytes() == plain.tobytes()


def test_a_session_can_forbid_it() -> None:
    layer = Layer((1, 2 * HALF), 256)
    feeds = layer.feeds()
    results = [session(layer.content(), exact=exact).run(None, feeds)[0] for exact in (False, True)]
    assert results[0].tobytes() != results[1].tobytes()
    for each in results:
        assert_close(each, layer.expected(feeds))
    options = sx.SessionOptions()
    options.add_session_config_entry("session.exact_matmul", "yes")
    with pytest.raises(InvalidArgument, match=r"session.exact_matmul is 'yes': expected 0 or 1"):
        sx.InferenceSession(layer.content(), options)
