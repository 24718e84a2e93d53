"""Layers as exporters spell them out, fused: which operators come out, and the same results here and in onnxruntime."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import sardonyx
from sardonyx.transformers.fusion_options import AttentionOpType, FusionOptions
from sardonyx.transformers.onnx_model_bert import BertOnnxModel
from sardonyx.transformers.optimizer import optimize_model

Array = Any  # an array, or a number of NumPy's
B, S, N, H = 2, 5, 2, 4
D = N * H


def random(*shape: int) -> Array:
    return (np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape) * 0.5).astype(np.float32)


def parsed(text: str, weights: dict[str, Array], opset: int = 17) -> onnx.ModelProto:
    model: onnx.ModelProto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}, "com.microsoft": 1]>\ng {text.strip()}'
    )
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items())
    return model


def feeds_of(model: onnx.ModelProto, **given: Array) -> dict[str, Array]:
    sizes = {"B": B, "S": S, "T": S}
    found = {}
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        found[value.name] = given.get(value.name, random(*(dim.dim_value or sizes[dim.dim_param] for dim in dims)))
    return found


def fused(
    model: onnx.ModelProto, kind: str = "bert", options: FusionOptions | None = None, tolerance: float = 2e-6, **given: Array
) -> Any:
    """The optimized model, and how many nodes of each operator it has; its results are those of the original."""
    feeds = feeds_of(model, **given)
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    optimized = optimize_model(onnx.ModelProto.FromString(model.SerializeToString()), kind, optimization_options=options)
    content = optimized.model.SerializeToString()
    for session in (onnxruntime.InferenceSession(content), sardonyx.InferenceSession(content)):
        for found, expected in zip(session.run(None, feeds), wanted, strict=True):
            np.testing.assert_allclose(found, expected, atol=tolerance)
    return optimized, optimized.get_operator_statistics()


NORM = {"scale": random(D), "shift": random(D)}


@pytest.mark.parametrize("shape", ["S, 8", "1, S, 8", "B, S, 8"])
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("norm", ["LayerNormalization", "SimplifiedLayerNormalization"])
def test_what_is_added_before_a_norm_may_be_one_for_all_of_a_batch(shape: str, is_first: bool, norm: str) -> None:
    order, weights = ("skip, x" if is_first else "x, skip"), ("scale, shift" if norm == "LayerNormalization" else "scale")
    nodes = f"t = Add({order}) y = {norm}<epsilon = 0.001>(t, {weights})"
    text = f"(float[B, S, 8] x, float[{shape}] skip) => (float[B, S, 8] y) {{ {nodes} }}"
    model, count = fused(parsed(text, NORM if "shift" in weights else {"scale": NORM["scale"]}))
    assert count == {"SkipLayerNormalization" if norm == "LayerNormalization" else "SkipSimplifiedLayerNormalization": 1}
    swaps = is_first and shape != "B, S, 8"
    assert list(model.model.graph.node[0].input)[:2] == (["x", "skip"] if swaps or not is_first else ["skip", "x"])


def test_a_skip_that_is_one_for_all_rows_stays() -> None:
    nodes = "t = Add(x, skip) y = LayerNormalization(t, scale, shift)"
    text = f"(float[B, S, 8] x, float[1, 1, 8] skip) => (float[B, S, 8] y) {{ {nodes} }}"
    assert fused(parsed(text, NORM))[1] == {"Add": 1, "LayerNormalization": 1}


@pytest.mark.parametrize("is_output", [True, False])
def test_the_sum_before_a_norm_is_given_out_and_read_before_it(is_output: bool) -> None:
    outputs = "float[B, S, 8] y, float[B, S, 8] z" + (", float[B, S, 8] t" if is_output else "")
    text = f"""(float[B, S, 8] a, float[B, S, 8] b) => ({outputs}) {{
        p = MatMul(a, w)  q = Add(bias, p)  t = Add(b, q)  z = Relu(t)  y = LayerNormalization(t, scale, shift) }}"""
    model, count = fused(parsed(text, {**NORM, "w": random(D, D), "bias": random(D)}))
    assert count == {"MatMul": 1, "Relu": 1, "SkipLayerNormalization": 1}
    (node,) = model.get_nodes_by_op_type("SkipLayerNormalization")
    assert list(node.input) == ["p", "b", "scale", "shift", "bias"]
    assert list(node.output)[:3] == ["y", "", ""]
    options = FusionOptions("bert")
    options.enable_bias_skip_layer_norm = False
    assert fused(parsed(text, {**NORM, "w": random(D, D), "bias": random(D)}), options=options)[1]["Add"] == 1


def test_gelu_with_six_digits_of_the_root() -> None:
    text = "(float[B, S, 8] x) => (float[B, S, 8] y) { a = Div(x, r) b = Erf(a) c = Add(b, one) d = Mul(x, half) y = Mul(d, c) }"
    assert fused(parsed(text, {"r": np.float32(1.41421), "one": np.float32(1), "half": np.float32(0.5)}))[1] == {"Gelu": 1}


WEIGHTS = {
    **{f"w{i}": random(D, D) * (i + 1) for i in range(3)},
    **{f"b{i}": random(D) + i for i in range(3)},
    "heads": np.array([0, 0, N, H]),
    "joined": np.array([0, 0, D]),
    "scale": np.float32(0.7),
    "one": np.float32(1),
    "hidden": np.float32(-10000),
}
PRODUCTS = "q0 = MatMul(x, w0) k0 = MatMul(x, w1) v0 = MatMul(x, w2)\n"
BIASED = "q1 = Add(q0, b0) k1 = Add(b1, k0) v1 = Add(v0, b2)\n"
PLAIN = "q1 = Identity(q0) k1 = Identity(k0) v1 = Identity(v0)\n"
DIVIDED = """q2 = Reshape(q1, heads) k2 = Reshape(k1, heads) v2 = Reshape(v1, heads)
    q = Transpose<perm = [0, 2, 1, 3]>(q2) k = Transpose<perm = [0, 2, 3, 1]>(k2) v = Transpose<perm = [0, 2, 1, 3]>(v2)\n"""
SCORES = "s0 = MatMul(q, k) s = Mul(s0, scale)\n"
MIXED = "m = MatMul(p, v) t = Transpose<perm = [0, 2, 1, 3]>(m) y = Reshape(t, joined)\n"


def attention(parts: str, inputs: str = "", weights: dict[str, Array] | None = None) -> onnx.ModelProto:
    text = f"(float[B, S, 8] x{inputs}) => (float[B, S, 8] y) {{ {parts} }}"
    used = {name: array for name, array in {**WEIGHTS, **(weights or {})}.items() if f"{name})" in parts or f"{name}," in parts}
    return parsed(text, used)


SOFTMAX = "p = Softmax<axis = -1>(s)\n"


def test_products_with_biases_are_packed_and_others_not() -> None:
    assert fused(attention(PRODUCTS + BIASED + DIVIDED + SCORES + SOFTMAX + MIXED))[1] == {"Attention": 1}
    found = fused(attention(PRODUCTS + PLAIN + DIVIDED + SCORES + SOFTMAX + MIXED))[1]
    assert found == {"MatMul": 3, "MultiHeadAttention": 1}
    options = FusionOptions("bert")
    options.set_attention_op_type(AttentionOpType.MultiHeadAttention)
    found = fused(attention(PRODUCTS + BIASED + DIVIDED + SCORES + SOFTMAX + MIXED), options=options)[1]
    assert found == {"MatMul": 3, "Add": 3, "MultiHeadAttention": 1}


def test_values_may_be_of_another_size_than_keys() -> None:
    weights = {"w2": random(D, 2 * D), "b2": random(2 * D), "wide": np.array([0, 0, N, 2 * H]), "joined": np.array([0, 0, 2 * D])}
    parts = PRODUCTS + BIASED + DIVIDED.replace("v2 = Reshape(v1, heads)", "v2 = Reshape(v1, wide)") + SCORES + SOFTMAX + MIXED
    model = attention(parts, weights=weights)
    model.graph.output[0].type.tensor_type.shape.dim[2].dim_value = 2 * D
    optimized, count = fused(model)
    assert count == {"Attention": 1}
    (node,) = optimized.nodes()
    assert optimized.get_node_attribute(node, "qkv_hidden_sizes") == [D, D, 2 * D]


TOKENS = "u = Unsqueeze(tokens, axes) f = Cast<to = 1>(u) i = Sub(one, f)\n"
MASKED = "n = Add(s, mask) p = Softmax<axis = -1>(n)\n"


@pytest.mark.parametrize(
    "mask",
    ["mask = Mul(i, hidden)", "c = Cast<to = 9>(i) mask = Where(c, hidden, i)", "mask = Mul(hidden, i)"],
)
@pytest.mark.parametrize("kind", ["int64", "int32", "bool"])
@pytest.mark.parametrize("number", [-10000.0, -3.0])
def test_masks_of_tokens(mask: str, kind: str, number: float) -> None:
    parts = PRODUCTS + BIASED + DIVIDED + SCORES + TOKENS + mask + "\n" + MASKED + MIXED
    model = attention(parts, f", {kind}[B, S] tokens", {"axes": np.array([1, 2]), "hidden": np.float32(number)})
    tokens = (np.arange(S) < [[S], [2]]).astype(np.dtype(kind))
    optimized, count = fused(model, tokens=tokens)
    assert count == ({"Attention": 1} if kind == "int32" else {"Cast": 1, "Attention": 1})
    (node,) = optimized.get_nodes_by_op_type("Attention")
    assert node.input[3] == ("tokens" if kind == "int32" else "tokens_int32")
    options = FusionOptions("bert")
    options.use_multi_head_attention = True
    assert fused(model, options=options, tokens=tokens)[1]["MultiHeadAttention"] == 1


def test_layers_share_the_cast_of_a_mask() -> None:
    one = PRODUCTS + BIASED + DIVIDED + SCORES + MASKED + MIXED.replace("y =", "z =")
    two = re.sub(r"\b([qkv][012]?|s0?|[nmtzx]|p)\b", r"\1_", one)
    two = two.replace("(x_,", "(z,").replace("z_ =", "y =")
    parts = TOKENS + "mask = Mul(i, hidden)\n" + one + two
    model = attention(parts, ", int64[B, S] tokens", {"axes": np.array([1, 2])})
    count = fused(model, tokens=np.ones((B, S), np.int64), tolerance=1e-5)[1]
    assert count == {"Cast": 1, "Attention": 2}


@pytest.mark.parametrize("shape", ["B, 1, S, S", "1, 2, S, S", "S, S", "B, 1, 1, S"])
def test_masks_that_are_added(shape: str) -> None:
    model = attention(PRODUCTS + BIASED + DIVIDED + SCORES + MASKED + MIXED, f", float[{shape}] mask")
    assert fused(model)[1]["Attention"] == 1


def test_a_number_for_all_keys_changes_nothing() -> None:
    model = attention(
        PRODUCTS + BIASED + DIVIDED + SCORES + "n = Add(s, more) p = Softmax<axis = -1>(n)\n" + MIXED, weights={"more": random(1)}
    )
    assert fused(model)[1] == {"Attention": 1}


def test_zeros_in_place_of_what_is_no_number() -> None:
    guard = "n = Add(s, mask) w = Softmax<axis = -1>(n) bad = IsNaN(w) p = Where(bad, zero, w)\n"
    weights = {"zero": np.float32(0), "low": np.float32(-1e9), "lowest": np.float32(-np.inf)}
    keep = np.tri(S, dtype=bool)[None, None].repeat(B, axis=0)
    for name, count in (("low", 1), ("lowest", 0)):
        parts = PRODUCTS + BIASED + DIVIDED + SCORES + f"mask = Where(keep, zero, {name})\n" + guard + MIXED
        model = attention(parts, ", bool[B, 1, S, S] keep", weights)
        assert fused(model, "bart", keep=keep)[1].get("Attention", 0) == count  # a row of infinities would be no number


def test_scores_in_another_type() -> None:
    parts = (
        PRODUCTS
        + PLAIN
        + DIVIDED
        + """s0 = MatMul(q, k) s1 = Cast<to = 11>(s0) s2 = Mul(s1, wide) p0 = Softmax<axis = -1>(s2)
        p = Cast<to = 10>(p0) h = Cast<to = 10>(v) m = MatMul(p, h)
        t = Transpose<perm = [0, 2, 1, 3]>(m) r = Reshape(t, joined) y = Cast<to = 1>(r)"""
    )
    found = fused(attention(parts, weights={"wide": np.float64(0.5)}), "mmdit", tolerance=5e-3)[1]
    assert found["MultiHeadAttention"] == 1
    assert "Softmax" not in found


def test_heads_that_come_first_already() -> None:
    text = """(float[B, 2, S, 4] q, float[B, 2, 4, S] k, float[B, 2, S, 4] v) => (float[B, S, 8] y) {
        s0 = MatMul(q, k) s = Mul(s0, scale) p = Softmax<axis = -1>(s) m = MatMul(p, v)
        t = Transpose<perm = [0, 2, 1, 3]>(m) y = Reshape(t, joined) }"""
    optimized, count = fused(parsed(text, {name: WEIGHTS[name] for name in ("scale", "joined")}), "mmdit")
    assert count["MultiHeadAttention"] == 1
    assert [0, 1, 3, 2] in [optimized.get_node_attribute(node, "perm") for node in optimized.get_nodes_by_op_type("Transpose")]


def test_biases_behind_the_division_and_keys_swapped_in_three_axes() -> None:
    parts = (
        PRODUCTS
        + """k1 = Add(k0, b1) v1 = Add(v0, b2)
        q1 = Reshape(q0, heads) q2 = Add(q1, bq) k2 = Reshape(k1, heads) v2 = Reshape(v1, heads)
        q3 = Transpose<perm = [0, 2, 1, 3]>(q2) k3 = Transpose<perm = [0, 2, 1, 3]>(k2) v = Transpose<perm = [0, 2, 1, 3]>(v2)
        k4 = Reshape(k3, three) k5 = Transpose<perm = [0, 2, 1]>(k4) k6 = Reshape(k5, four)
        q = Mul(q3, scale) k = Mul(k6, scale) s = MatMul(q, k)\n"""
        + SOFTMAX
        + MIXED
    )
    weights = {
        "bq": random(1, 1, N, H),
        "three": np.array([B * N, S, H]),
        "four": np.array([B, N, H, S]),
        "heads": np.array([B, S, N, H]),
    }
    model = attention(parts, weights=weights)
    for value in (model.graph.input[0], model.graph.output[0]):
        for dim, size in zip(value.type.tensor_type.shape.dim, (B, S, D)):
            dim.dim_value = size
    assert fused(model, "bart")[1] == {"Attention": 1}


@pytest.mark.parametrize("mask", ["", "B, 1, S, S", "B, 2, S, S"])
@pytest.mark.parametrize("is_fixed", [True, False])
def test_heads_that_are_part_of_the_batch(mask: str, is_fixed: bool) -> None:
    inner = "u = Reshape(s, four) n = Add(u, mask) r = Reshape(n, three)" if mask else "r = Identity(s)"
    parts = (
        PRODUCTS
        + BIASED
        + f"""q2 = Mul(q1, scale) q3 = Reshape(q2, heads) k3 = Reshape(k1, heads) v3 = Reshape(v1, heads)
        q4 = Transpose<perm = [0, 2, 1, 3]>(q3) k4 = Transpose<perm = [0, 2, 1, 3]>(k3) v4 = Transpose<perm = [0, 2, 1, 3]>(v3)
        shape = Shape(x) b = Gather(shape, first) l = Gather(shape, second) bn = Mul(b, count)
        packed = Concat<axis = 0>(bn, any, size) four = Concat<axis = 0>(b, count, l, l) three = Concat<axis = 0>(bn, l, l)
        whole = Concat<axis = 0>(b, count, l, size)
        q = Reshape(q4, packed) k5 = Reshape(k4, packed) v = Reshape(v4, packed) k = Transpose<perm = [0, 2, 1]>(k5)
        s = MatMul(q, k) {inner} p = Softmax<axis = -1>(r) m0 = MatMul(p, v) m = Reshape(m0, whole)
        t = Transpose<perm = [0, 2, 1, 3]>(m) y = Reshape(t, joined)"""
    )
    numbers = {"first": [0], "second": [1], "count": [N], "size": [H], "any": [-1]}
    model = attention(parts, f", float[{mask}] mask" if mask else "", {name: np.array(held) for name, held in numbers.items()})
    if is_fixed:
        for value in (*model.graph.input, *model.graph.output):
            for dim in value.type.tensor_type.shape.dim:
                dim.dim_value = dim.dim_value or {"B": B, "S": S}[dim.dim_param]
    count = fused(model)[1]
    assert "Softmax" not in count
    assert count["Attention"] == 1


def test_constants_of_one_number_and_masks_that_hide_nothing() -> None:
    text = """(int64[2, 5] ids, float[2, 5, 8] x) => (float[2, 5, 8] y) {
        shape = Shape(ids) a = Gather<axis = 0>(shape, zero) b = Gather<axis = 0>(shape, one)
        c = Unsqueeze(a, axis) d = Unsqueeze(b, axis)
        sizes = Concat<axis = 0>(c, d) ones = ConstantOfShape<value = float[1] {1.0}>(sizes) whole = Cast<to = 6>(ones)
        count = ReduceSum<keepdims = 0>(whole, last) y = com.microsoft.Attention<num_heads = 2>(x, w, bias, count) }"""
    weights = {
        "zero": np.int64(0),
        "one": np.int64(1),
        "axis": np.array([0]),
        "last": np.array([1]),
        "w": random(D, 3 * D),
        "bias": random(3 * D),
    }
    model = parsed(text, weights)
    feeds = feeds_of(model, ids=np.zeros((2, 5), np.int64))
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    cleaned = BertOnnxModel(model, 2, D)
    cleaned.clean_graph()
    cleaned.prune_graph(allow_remove_graph_inputs=False)
    assert cleaned.get_operator_statistics() == {"Attention": 1}
    (found,) = sardonyx.InferenceSession(cleaned.model.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
