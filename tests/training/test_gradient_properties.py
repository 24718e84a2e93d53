"""Native gradients of any shape and attribute: what the rules say in float64, also with NaN and infinities, in guarded memory.

Inputs and gradients end exactly at pages that nobody may touch, so that a kernel that reads past them kills the process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradient_records import Record
from gradient_support import arrays_of, compiled, narrowed, output_of, rule_gradients
from guarded import guarded
from sardonyx.errors import SardonyxError

_FEW = settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
_MANY = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
Draw = st.DataObject


def _number(data: Draw, low: int, high: int) -> int:
    return data.draw(st.integers(low, high))


def _list(values: Any) -> str:
    return "[" + ", ".join(map(str, values)) + "]"


def _conv(data: Draw) -> Record:
    rank, groups = _number(data, 1, 2), _number(data, 1, 3)
    depthwise = data.draw(st.booleans())
    inner, outer = (1, _number(data, 1, 2)) if depthwise else (_number(data, 1, 9), _number(data, 1, 9))
    kernel = [_number(data, 1, 4) for _ in range(rank)]
    dilations = [_number(data, 1, 2) for _ in range(rank)]
    strides = [_number(data, 1, 3) for _ in range(rank)]
    pads = [_number(data, 0, 2) for _ in range(2 * rank)]
    sizes = [
        max((kernel[axis] - 1) * dilations[axis] + 1 - pads[axis] - pads[axis + rank], 1) + _number(data, 0, 9)
        for axis in range(rank)
    ]
    attrs = f"group={groups}, strides={_list(strides)}, dilations={_list(dilations)}, pads={_list(pads)}"
    shapes = (_number(data, 1, 3), groups * inner, *sizes), (groups * outer, inner, *kernel), (groups * outer,)
    return Record("conv", f"y = Conv <{attrs}> (a, b, c)", shapes)


def _pool(data: Draw) -> Record:
    rank = _number(data, 1, 2)
    kernel = [_number(data, 1, 4) for _ in range(rank)]
    strides = [_number(data, 1, 3) for _ in range(rank)]
    pads = [_number(data, 0, size - 1) for size in (*kernel, *kernel)]
    sizes = [max(kernel[axis] - pads[axis] - pads[axis + rank], 1) + _number(data, 0, 9) for axis in range(rank)]
    attrs = f"kernel_shape={_list(kernel)}, strides={_list(strides)}, pads={_list(pads)}, ceil_mode={_number(data, 0, 1)}"
    name = data.draw(st.sampled_from(["MaxPool", "AveragePool"]))
    attrs += f", count_include_pad={_number(data, 0, 1)}" if name == "AveragePool" else ""
    shape = (_number(data, 1, 3), _number(data, 1, 17), *sizes)
    return Record("pool", f"y = {name} <{attrs}> (a)", (shape,))


def _norm(data: Draw) -> Record:
    batch, channels, pixels = _number(data, 1, 4), _number(data, 1, 9), _number(data, 2, 37)
    kind = data.draw(st.sampled_from(["layer", "rms", "batch", "instance", "group", "softmax"]))
    if kind in ("layer", "rms", "softmax"):
        node = {
            "layer": "y = LayerNormalization <axis=-1> (a, b, c)",
            "rms": "y = RMSNormalization <axis=-1, epsilon=0.00001> (a, b)",
            "softmax": f"y = {data.draw(st.sampled_from(['Softmax', 'LogSoftmax']))} <axis=-1> (a)",
        }[kind]
        shapes = ((batch, channels, pixels), (pixels,), (pixels,))[: {"layer": 3, "rms": 2, "softmax": 1}[kind]]
        return Record(kind, node, shapes, opset=23)
    if kind == "group":
        groups = _number(data, 1, 3)
        shape = (batch, groups * channels, pixels)
        return Record(kind, f"y = GroupNormalization <num_groups={groups}> (a, b, c)", (shape, shape[1:2], shape[1:2]), opset=21)
    shape, one = (batch, channels, pixels), (channels,)
    if kind == "instance":
        return Record(kind, "y = InstanceNormalization(a, b, c)", (shape, one, one))
    return Record(kind, "y, m, v = BatchNormalization <training_mode=1> (a, b, c, d, e)", (shape, one, one, one, one))


def _loss(data: Draw) -> Record:
    batch, classes = _number(data, 1, 9), _number(data, 1, 19)
    more = tuple(_number(data, 1, 5) for _ in range(_number(data, 0, 2)))
    count = int(np.prod((batch, *more)))
    labels = np.array([data.draw(st.sampled_from([*range(classes), -100])) for _ in range(count)]).reshape(batch, *more)
    labels.flat[0] = 0  # not all of them are ignored
    reduction = data.draw(st.sampled_from(["mean", "sum", "none"]))
    node = f'y = SoftmaxCrossEntropyLoss <ignore_index=-100, reduction="{reduction}"> (a, t)'
    return Record("loss", node, ((batch, classes, *more),), integers={"t": labels}, symbolic=False)


def _indexing(data: Draw) -> Record:
    rows, columns, count = _number(data, 1, 9), _number(data, 1, 18), _number(data, 0, 7)
    indices = np.array([_number(data, -rows, rows - 1) for _ in range(count)], np.int64)
    kind = data.draw(st.sampled_from(["Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"]))
    if kind == "Gather":
        return Record(kind, "y = Gather(a, i)", ((rows, columns),), integers={"i": indices}, symbolic=False)
    if kind == "GatherND":
        return Record(kind, "y = GatherND(a, i)", ((rows, columns),), integers={"i": indices[:, None]}, symbolic=False)
    if kind == "GatherElements":
        wide = np.repeat(indices[:, None], columns, 1)
        return Record(kind, "y = GatherElements <axis=0> (a, i)", ((rows, columns),), integers={"i": wide}, symbolic=False)
    shapes = (rows, columns), (count, columns)
    if kind == "ScatterND":
        node = 'y = ScatterND <reduction="add"> (a, i, b)'
        return Record(kind, node, shapes, integers={"i": indices[:, None]}, symbolic=False)
    wide = np.repeat(indices[:, None], columns, 1)
    return Record(kind, 'y = ScatterElements <axis=0, reduction="add"> (a, i, b)', shapes, integers={"i": wide}, symbolic=False)


def _attention(data: Draw) -> Record:
    batch, heads, group = _number(data, 1, 2), _number(data, 1, 2), _number(data, 1, 2)
    queries, keys, size, value_size = (_number(data, 1, top) for top in (9, 9, 17, 17))
    attrs = f"<is_causal={_number(data, 0, 1)}, softcap={data.draw(st.sampled_from([0.0, 2.0]))}>"
    shapes = (batch, heads * group, queries, size), (batch, heads, keys, size), (batch, heads, keys, value_size)
    masked = data.draw(st.booleans())
    mask = np.array([data.draw(st.booleans()) for _ in range(queries * keys)]).reshape(queries, keys)
    return Record(
        "attention", f"y = Attention {attrs} (a, b, c{', m' if masked else ''})", shapes,
        integers={"m": mask} if masked else {}, opset=23, symbolic=False,
    )  # fmt: skip


def _recurrent(data: Draw) -> Record:
    kind = data.draw(st.sampled_from(["LSTM", "GRU", "RNN"]))
    direction = data.draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    time, batch, inputs, hidden = (_number(data, 1, top) for top in (4, 3, 9, 9))
    gates, count = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 2 if direction == "bidirectional" else 1
    more = f", linear_before_reset={_number(data, 0, 1)}" if kind == "GRU" else ""
    shapes = (time, batch, inputs), (count, gates * hidden, inputs), (count, gates * hidden, hidden), (count, 2 * gates * hidden)
    return Record("rnn", f'y = {kind} <hidden_size={hidden}, direction="{direction}"{more}> (a, b, c, d)', shapes)


FAMILIES = {
    "conv": _conv, "pool": _pool, "norm": _norm, "loss": _loss, "indexing": _indexing, "attention": _attention,
    "recurrent": _recurrent,
}  # fmt: skip


def check(record: Record, special: float | None = None) -> None:
    """The compiled gradients are those of the rules, NaN and infinities where they are."""
    feeds = arrays_of(record)
    if special is not None and feeds["a"].size:
        feeds["a"].flat[feeds["a"].size // 2] = special
    feeds = {
        name: array.astype(np.float32).astype(array.dtype) if array.dtype == np.float64 else array
        for name, array in feeds.items()
    }
    y = output_of(record, feeds)
    dy = np.asarray(np.random.default_rng(1).standard_normal(y.shape), np.float32)
    with np.errstate(all="ignore"):
        expected = rule_gradients(record, feeds, dy.astype(np.float64))
    program = compiled(record, record.symbolic)
    outputs, saved = program.forward([guarded(narrowed(array)) for array in feeds.values()])
    np.testing.assert_allclose(outputs[0], y, rtol=1e-3, atol=1e-4)
    found = program.backward(saved, [guarded(dy)])
    for name, gradient in zip(program.request.inputs, found, strict=True):
        wanted = expected[name]
        assert (gradient is None) == (wanted is None), name
        if gradient is None or wanted is None:
            continue
        assert gradient.shape == wanted.shape
        finite = np.isfinite(wanted)
        np.testing.assert_array_equal(np.isnan(gradient), np.isnan(wanted), err_msg=name)
        scale = max(float(np.abs(wanted[finite]).max(initial=0)), 1.0)
        np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=2e-4 * scale, err_msg=name)
    assert all(node.endswith("strides and dilations at once") for node in program.host_nodes), program.host_nodes


@pytest.mark.parametrize("family", FAMILIES)
@_FEW
@given(data=st.data())
def test_gradients_of_any_shape(family: str, data: Draw) -> None:
    check(FAMILIES[family](data))


@pytest.mark.slow
@pytest.mark.parametrize("special", [None, float("nan"), float("inf")])
@pytest.mark.parametrize("family", FAMILIES)
@_MANY
@given(data=st.data())
def test_gradients_of_many_shapes(family: str, special: float | None, data: Draw) -> None:
    check(FAMILIES[family](data), special)


def test_a_gradient_of_another_shape_than_the_result_is_refused() -> None:
    """Whatever kernel would read it: sizes are checked before anything runs."""
    records = [
        Record("conv", "y = Conv <pads=[1, 1, 1, 1]> (a, b)", ((2, 3, 6, 5), (4, 3, 3, 3))),
        Record("pool", "y = MaxPool <kernel_shape=[2, 2]> (a)", ((2, 3, 6, 5),)),
        Record("norm", "y = LayerNormalization <axis=-1> (a, b)", ((4, 8), (8,))),
        Record("gather", "y = Gather(a, i)", ((5, 3),), integers={"i": np.array([0, 4])}, symbolic=False),
    ]
    for record in records:
        program = compiled(record, record.symbolic)
        (y,), saved = program.forward([guarded(narrowed(array)) for array in arrays_of(record).values()])
        for shape in ((*y.shape[:-1], y.shape[-1] - 1), (y.shape[0] + 1, *y.shape[1:]), (0,), y.shape[1:]):
            with pytest.raises(SardonyxError):
                program.backward(saved, [guarded(np.zeros(shape, np.float32))])
        (gradient, *_) = program.backward(saved, [guarded(np.zeros(y.shape, np.float32))])
        assert gradient is not None


@pytest.mark.parametrize("node", ["y = Gather(a, i)", "y = GatherND(a, i)", "y = GatherElements <axis=0> (a, i)"])
def test_indices_out_of_range_are_refused_before_gradients_go_astray(node: str) -> None:
    indices = np.array([[0, 1, 2]])[..., : 1 if "ND" in node else 3]
    record = Record("far", node, ((5, 3),), integers={"i": indices}, symbolic=False)
    program = compiled(record, symbolic=False)
    for wrong in (5, -6, 1 << 40):
        feeds = {**arrays_of(record), "i": np.full_like(indices, wrong)}
        with pytest.raises(SardonyxError, match=r"out of range|index"):
            program.forward([guarded(narrowed(array)) for array in feeds.values()])
