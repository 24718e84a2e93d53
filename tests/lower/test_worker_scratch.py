"""Scratch memory of which every worker of a step has a part of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from native_support import compile_native, host_nodes, run_native, run_reference
from sardonyx.program.steps import Storage

F32 = np.float32


def sorting(rows: int | str, length: int, kind: int = TensorProto.FLOAT) -> bytes:
    graph = helper.make_graph(
        [helper.make_node("TopK", ["x", "k"], ["values", "places"])],
        "g",
        [helper.make_tensor_value_info("x", kind, [rows, length])],
        [helper.make_tensor_value_info("values", kind, None), helper.make_tensor_value_info("places", TensorProto.INT64, None)],
        [numpy_helper.from_array(np.array([length], np.int64), "k")],
    )
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return content


def suppressing(images: int, classes: int, boxes: int) -> bytes:
    graph = helper.make_graph(
        [helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap"], ["chosen"])],
        "g",
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [images, boxes, 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [images, classes, boxes]),
        ],
        [helper.make_tensor_value_info("chosen", TensorProto.INT64, None)],
        [numpy_helper.from_array(np.array([20]), "most"), numpy_helper.from_array(np.array([0.4], F32), "overlap")],
    )
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return content


def assert_any_number_of_workers_agrees(content: bytes, feeds: dict[str, Any]) -> None:
    expected = run_reference(content, feeds)
    for workers in (1, 2, 3, 7):
        graph, compiled = compile_native(content, workers)
        assert not host_nodes(compiled)
        for _ in range(3):
            for found, wanted in zip(run_native(graph, compiled, feeds), expected, strict=True):
                np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("rows", [1, 3, 100])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.INT64])
def test_sorts_by_several_workers(rows: int, kind: int) -> None:
    x = np.random.default_rng(0).integers(0, 500, (rows, 1001)).astype(helper.tensor_dtype_to_np_dtype(kind))
    assert_any_number_of_workers_agrees(sorting("n", 1001, kind), {"x": x})


def test_suppressions_by_several_workers() -> None:
    random = np.random.default_rng(0)
    corners = random.random((2, 300, 2)).astype(F32)
    boxes = np.concatenate([corners, corners + random.random((2, 300, 2)).astype(F32) * F32(0.3)], axis=2)
    feeds = {"boxes": boxes, "scores": random.random((2, 30, 300)).astype(F32)}
    assert_any_number_of_workers_agrees(suppressing(2, 30, 300), feeds)


def test_memory_follows_the_workers_not_the_rows() -> None:
    for rows in (50, 500):
        for workers in (1, 4):
            _, compiled = compile_native(sorting(rows, 1001), workers)
            (number,) = compiled.program.core.image.worker[:, 0].tolist()
            buffer = compiled.plan.buffers[number]
            assert buffer.storage is Storage.WORKER
            assert buffer.size == -(-2 * 1001 // 8) * 8  # whole cache lines
            layout = compiled.program.core._layout
            dims = np.array(compiled.program.core.image.sizes(), np.int64)
            taken = dict(zip(layout.buffers.tolist(), layout.bytes_of(dims).tolist()))[number]
            assert taken == workers * buffer.size * 8
