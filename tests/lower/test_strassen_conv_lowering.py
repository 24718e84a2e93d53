"""Convolutions of single pixels by Strassen's algorithm: any sizes, guarded memory, targets, NaN; when it is chosen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import sardonyx as sx
from conv_support import lanes, lowered_for, model, numbers, run_guarded
from guarded_session import guarded_feeds, guarded_memory
from sardonyx.ir.tensor import Array
from sardonyx.kernel.conv.conv import ConvKernel
from sardonyx.kernel.conv.strassen import MOST_BLOCKS, StrassenConvKernel, tile_heights
from sardonyx.kernel.matmul.strassen import MOST_APART
from sardonyx.lower.conv import conv_choice
from sardonyx.lower.conv.strassen import bands_of
from sardonyx.program.steps import KernelStep, Lowered
from sardonyx.target import cost
from sardonyx.target.target import Target
from targets import described, here_and_less, library_for

POOL = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


@contextmanager
def wherever_possible() -> Iterator[None]:
    """It is chosen whatever it is thought to take."""
    with mock.patch.object(cost, "strassen_conv", return_value=0.0), mock.patch.object(conv_choice, "_LEAST_SAVED", 0):
        yield


@dataclass(frozen=True)
class Layer:
    """A convolution of single pixels, what follows it, and a pool for whose sake images are in blocks."""

    inputs: int
    outputs: int
    image: tuple[int, int]
    batch: int = 1
    after: str = "Relu"  # "", "Relu", "residual", "Sigmoid"
    open_batch: bool = False

    @property
    def weights(self) -> Array:
        found: Array = numbers(1, self.outputs, self.inputs, 1, 1) / np.float32(np.sqrt(self.inputs))
        return found

    def feeds(self) -> dict[str, Array]:
        feeds = {"x": numbers(0, self.batch, self.inputs, *self.image)}
        if self.after == "residual":
            feeds["r"] = numbers(3, self.batch, self.outputs, *self.image)
        return feeds

    def content(self, weights: Array | None = None) -> Any:
        node = helper.make_node
        constants = {"w": self.weights if weights is None else weights, "b": numbers(2, self.outputs)}
        end = "c" if self.after else "y"
        nodes = [node("Conv", ["x", "w", "b"], [end])]
        if self.after == "residual":
            nodes.append(node("Add", ["c", "r"], ["y"]))
        elif self.after:
            nodes.append(node(self.after, ["c"], ["y"]))
        nodes.append(node("MaxPool", ["y"], ["z"], **POOL))
        batch: int | str = "N" if self.open_batch else self.batch
        shapes = {name: [batch, *array.shape[1:]] for name, array in self.feeds().items()}
        return model(nodes, shapes, constants, ("y", "z"))

    def expected(self, feeds: dict[str, Array], weights: Array | None = None) -> Array:
        w = (self.weights if weights is None else weights)[:, :, 0, 0].astype(np.float64)
        with np.errstate(all="ignore"):
            found: Array = np.einsum("oi,nihw->nohw", w, feeds["x"]) + numbers(2, self.outputs)[:, None, None]
            if self.after == "Relu":
                return np.where(np.isnan(found), found, np.maximum(found, 0))
            if self.after == "Sigmoid":
                return np.asarray(1 / (1 + np.exp(-found)))
        return found + feeds["r"] if self.after == "residual" else found


def kernels(lowered: Lowered) -> list[Any]:
    return [step.kernel for step in lowered.steps if isinstance(step, KernelStep)]


def is_halved(layer: Layer, target: Target | None = None, weights: Array | None = None) -> bool:
    found = kernels(lowered_for(layer.content(weights), target or described(16)))
    assert any(isinstance(kernel, (ConvKernel, StrassenConvKernel)) for kernel in found)
    return any(isinstance(kernel, StrassenConvKernel) for kernel in found)


def session(layer: Layer, *, exact: bool = False, threads: int = 1, weights: Array | None = None) -> sx.InferenceSession:
    options = sx.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.exact_convolution", str(int(exact)))
    return sx.InferenceSession(layer.content(weights).SerializeToString(), options)


def assert_close(found: Array, expected: Array) -> None:
    assert found.shape == expected.shape
    np.testing.assert_array_less(np.abs(found - expected), 1e-5 * np.abs(expected).max() + 1e-30)


BLOCK = lanes()
layers = st.builds(
    Layer,
    inputs=st.integers(1, 5).map(lambda pairs: 2 * BLOCK * pairs),
    outputs=st.integers(1, 7).map(lambda pairs: 2 * BLOCK * pairs),
    image=st.tuples(st.integers(5, 30), st.integers(6, 30)),
    batch=st.integers(1, 3),
    after=st.sampled_from(["", "Relu", "residual", "Sigmoid"]),
)


@given(layers)
@settings(max_examples=30, deadline=None)
def test_any_sizes_in_guarded_memory(layer: Layer) -> None:
    feeds = layer.feeds()
    with wherever_possible():
        lowered = lowered_for(layer.content(), library_for(here_and_less()[0]).target)
    assert any(isinstance(kernel, StrassenConvKernel) for kernel in kernels(lowered))
    found = run_guarded(lowered, feeds)[0]
    assert_close(found, layer.expected(feeds))


@pytest.mark.parametrize("target", here_and_less(), ids=lambda target: target.name)
@pytest.mark.parametrize("image", [(7, 7), (14, 15), (28, 29)])
def test_all_targets(image: tuple[int, int], target: Target) -> None:
    layer = Layer(64, 192, image, 2)
    with wherever_possible():
        lowered = lowered_for(layer.content(), target)
    assert any(isinstance(kernel, StrassenConvKernel) for kernel in kernels(lowered))
    feeds = layer.feeds()
    assert_close(run_guarded(lowered, feeds, library_for(target))[0], layer.expected(feeds))


@given(st.integers(1, 20_000), st.integers(2, 14))
def test_blocks_of_bands_are_as_high_as_the_kernel_has_tiles(pixels: int, most: int) -> None:
    bands = bands_of(pixels, most)
    heights = tile_heights(pixels, bands, most)
    assert heights[-1] <= most
    for size in {pixels // bands, -(-pixels // bands)}:
        half = -(-size // 2)
        blocks = -(-half // heights[-1])
        assert blocks <= MOST_BLOCKS
        assert half == 0 or heights[0] <= half // blocks <= -(-half // blocks) <= heights[-1]


def test_kernels_have_keys_of_their_own() -> None:
    with wherever_possible():
        found = [kernels(lowered_for(Layer(64, 64, (14, 14), after=after).content(), described(16))) for after in ("", "Relu")]
    halves = [next(kernel for kernel in own if isinstance(kernel, StrassenConvKernel)) for own in found]
    changed = [replace(halves[0], vectors=1), replace(halves[0], heights=(3,)), replace(halves[0], parts=1)]
    assert len({kernel.key for kernel in (*halves, *changed, replace(halves[0], dense=not halves[0].dense))}) == 6


# In sessions


def test_sessions_choose_it_and_can_forbid_it() -> None:
    layer = Layer(256, 256, (14, 14), 2)
    feeds = layer.feeds()
    found, exact = (session(layer, exact=exact).run(None, feeds)[0] for exact in (False, True))
    assert found.tobytes() != exact.tobytes()
    for result in (found, exact):
        assert_close(result, layer.expected(feeds))


def test_threads_and_batches_give_the_same_bits() -> None:
    layer = Layer(256, 320, (20, 21), 3, after="residual", open_batch=True)
    feeds = layer.feeds()
    results = {session(layer, threads=threads).run(None, feeds)[0].tobytes() for threads in (1, 2, 5)}
    assert len(results) == 1
    whole = np.frombuffer(next(iter(results)), np.float32).reshape(3, 320, 20, 21)
    for image in range(3):
        (alone, _) = session(layer).run(None, {name: array[image : image + 1] for name, array in feeds.items()})
        np.testing.assert_array_equal(alone[0], whole[image])


def test_a_session_in_guarded_memory() -> None:
    layer = Layer(256, 192, (15, 15), 2, after="residual")
    feeds = layer.feeds()
    halves = session(layer)
    with guarded_memory() as guard:
        found = np.array(halves.run(None, guarded_feeds(guard, feeds))[0])
    assert_close(found, layer.expected(feeds))


@given(st.sampled_from([np.nan, np.inf, -np.inf, 1e30, 3e38, 0.0]), st.integers(0, 2**31))
@settings(max_examples=20, deadline=None)
def test_what_is_no_number_stays_in_its_pixel(value: float, seed: int) -> None:
    """And what is large beside others, or nothing at all, costs them no digits."""
    layer = Layer(256, 256, (15, 14), 2, after="")
    feeds = layer.feeds()
    random = np.random.default_rng(seed)
    at = (random.integers(2), random.integers(15), random.integers(14))
    if value:
        feeds["x"][at[0], random.integers(256), at[1], at[2]] = value
    else:
        feeds["x"][at[0], :, at[1], at[2]] = 0
    (found, _), wanted = session(layer).run(None, feeds), layer.expected(feeds)
    others = np.ones((2, 15, 14), bool)
    others[at] = False
    found, wanted = (array.transpose(0, 2, 3, 1) for array in (found, wanted))
    assert np.abs(found[others] - wanted[others]).max() < 2e-5
    own, expected = found[at], wanted[at]
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(own, expected.astype(np.float32), rtol=1e-4, atol=1e-5)


def test_pixels_that_differ_much_are_computed_plainly() -> None:
    layer = Layer(256, 256, (14, 14), after="")
    feeds = layer.feeds()
    for factor in (MOST_APART / 4, 1000 * MOST_APART):
        x = feeds["x"].copy()
        x[:, :, :7] *= np.float32(factor)  # a band is an image here: its halves are paired
        (found, _), wanted = session(layer).run(None, {"x": x}), layer.expected({"x": x})
        assert np.abs(found - wanted)[:, :, 7:].max() < 1e-5


# Where it is chosen


def test_it_is_chosen_where_there_is_enough_of_each_axis() -> None:
    chosen = Layer(256, 256, (14, 14))
    assert is_halved(chosen)
    for other in (
        replace(chosen, inputs=64),
        replace(chosen, outputs=32),
        replace(chosen, inputs=264),
        replace(chosen, inputs=272),
        replace(chosen, outputs=272),
        replace(chosen, image=(4, 5)),
        replace(chosen, image=(6, 6)),  # too little is saved
    ):
        assert not is_halved(other)


def test_weights_of_paired_channels_must_be_alike() -> None:
    layer = Layer(256, 512, (14, 14), after="")
    weights = layer.weights
    weights[3] *= np.float32(1e-4)
    assert is_halved(layer, weights=weights)  # one of eight pairs of sets is computed plainly
    feeds = layer.feeds()
    (found, _), wanted = session(layer, weights=weights).run(None, feeds), layer.expected(feeds, weights)
    assert np.abs(found - wanted)[:, 3].max() < 1e-6
    weights[7, 5] = np.nan
    (found, _), wanted = session(layer, weights=weights).run(None, feeds), layer.expected(feeds, weights)
    assert np.isnan(found[:, 7]).all()
    assert not np.isnan(np.delete(found, 7, axis=1)).any()
    weights[::64] *= np.float32(1e-4)
    assert not is_halved(layer, weights=weights)


def test_what_becomes_bytes_is_exact() -> None:
    layer = Layer(256, 256, (14, 14))
    content = layer.content()
    constants = {"scale": np.float32(0.1), "zero": np.uint8(3)}
    content.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items())
    content.graph.node.append(helper.make_node("QuantizeLinear", ["z", "scale", "zero"], ["q"]))
    content.graph.output[1].CopyFrom(helper.make_tensor_value_info("q", TensorProto.UINT8, None))
    found = kernels(lowered_for(content, described(16)))
    assert any(isinstance(kernel, ConvKernel) for kernel in found)
    assert not any(isinstance(kernel, StrassenConvKernel) for kernel in found)
