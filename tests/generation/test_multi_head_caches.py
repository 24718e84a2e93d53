"""Decoders whose MultiHeadAttention keeps past and present: caches in place, the same tokens as a loop on onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_decoders import greedy_by_hand

from sardonyx import InferenceSession
from sardonyx.generation import Decoder, generate

Array = np.ndarray[Any, Any]
HEADS, SIZE, WORDS, LAYERS = 3, 8, 60, 2
WIDTH = HEADS * SIZE
PROMPTS = [[1, 5, 9, 33], [7, 8], [50, 2, 3, 4, 5, 6, 7]]
EMPTY = (1, HEADS, 0, SIZE)  # a past without positions


def decoder(path: Path, *, bias: bool = False, mask: bool, causal: bool, standard: bool = False) -> Path:
    """A decoder of two layers of attention, by the operator of com.microsoft or by that of ONNX."""
    rng = np.random.default_rng(4)
    constants = {"embedding": rng.standard_normal((WORDS, WIDTH))}
    nodes = [helper.make_node("Gather", ["embedding", "input_ids"], ["h0"])]
    cache = ["batch", HEADS, "past", SIZE]
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "new"])]
    inputs.append(helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "total"]))
    nodes.append(helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.INT32))
    if standard:
        nodes.append(helper.make_node("Cast", ["attention_mask"], ["open"], to=TensorProto.BOOL))
        nodes.append(helper.make_node("Unsqueeze", ["open", "axes"], ["added"]))
        axes = [numpy_helper.from_array(np.array([1, 2]), "axes")]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "new", WORDS])]
    for layer in range(LAYERS):
        for part in "qkvo":
            constants[f"{part}{layer}"] = rng.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)
            if part != "o":
                nodes.append(helper.make_node("MatMul", [f"h{layer}", f"{part}{layer}"], [f"{part}{layer}_"]))
        constants[f"b{layer}"] = rng.standard_normal(3 * WIDTH)
        pasts, presents = ([f"{name}.{layer}.{part}" for part in ("key", "value")] for name in ("past_key_values", "present"))
        given = [f"q{layer}_", f"k{layer}_", f"v{layer}_", f"b{layer}" if bias else "", "mask" if mask else "", "", *pasts]
        if standard:
            given = [*given[:3], "added" if mask else "", *pasts]
            attrs = {"q_num_heads": HEADS, "kv_num_heads": HEADS, "is_causal": int(causal)}
            nodes.append(helper.make_node("Attention", given, [f"a{layer}", *presents], **attrs))
        else:
            attrs = {"num_heads": HEADS, "unidirectional": int(causal)}
            outputs_ = [f"a{layer}", *presents]
            nodes.append(helper.make_node("MultiHeadAttention", given, outputs_, domain="com.microsoft", **attrs))
        nodes.append(helper.make_node("MatMul", [f"a{layer}", f"o{layer}"], [f"r{layer}"]))
        nodes.append(helper.make_node("Add", [f"h{layer}", f"r{layer}"], [f"h{layer + 1}"]))
        inputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, cache) for name in pasts]
        full = ["batch", HEADS, "total", SIZE]
        outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, full) for name in presents]
    constants["head"] = rng.standard_normal((WIDTH, WORDS))
    nodes.append(helper.make_node("MatMul", [f"h{LAYERS}", "head"], ["logits"]))
    held = [
        *(axes if standard else []),
        *(numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()),
    ]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, held)
    imports = [helper.make_opsetid("", 23 if standard else 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    return path


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_tokens_are_those_of_a_loop_by_hand(tmp_path: Path, bias: bool, causal: bool) -> None:
    path = decoder(tmp_path / "decoder.onnx", bias=bias, mask=True, causal=causal)
    model = Decoder(path)
    wanted = [greedy_by_hand(path, prompt, 70, EMPTY) for prompt in PROMPTS]
    assert [generate(model, prompt, max_new_tokens=70).new_tokens[0].tolist() for prompt in PROMPTS] == wanted
    together = generate(model, PROMPTS, max_new_tokens=70)
    assert [row.tolist() for row in together.new_tokens] == wanted


def test_caches_have_room_and_stay_where_they_are(tmp_path: Path) -> None:
    model = Decoder(decoder(tmp_path / "decoder.onnx", bias=True, mask=False, causal=True), room=100)
    model.begin([[1, 2, 3]])
    before = [cache.array.ctypes.data for cache in model._caches]
    assert all(cache.has_room for cache in model._caches)
    assert model._programs["step"].appends_to == set(model._pairs)
    for token in range(20):
        model.extend([token])
    assert [cache.array.ctypes.data for cache in model._caches] == before


@pytest.mark.parametrize(("mask", "causal"), [(False, True), (True, False)])
def test_attention_of_onnx_appends_in_place_too(tmp_path: Path, mask: bool, causal: bool) -> None:
    path = decoder(tmp_path / "decoder.onnx", mask=mask, causal=causal, standard=True)
    model = Decoder(path, room=90)
    # onnxruntime wants a row of the mask for each query.
    meaning = InferenceSession(path, providers=["SardonyxReferenceExecutionProvider"]) if mask else None
    wanted = [greedy_by_hand(path, prompt, 70, EMPTY, meaning) for prompt in PROMPTS]
    assert [generate(model, prompt, max_new_tokens=70).new_tokens[0].tolist() for prompt in PROMPTS] == wanted
    assert all(cache.has_room for cache in model._caches)
    before = [cache.array.ctypes.data for cache in model._caches]
    model.extend([1])
    assert [cache.array.ctypes.data for cache in model._caches] == before
