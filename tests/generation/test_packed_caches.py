"""Decoders whose past holds keys and values together, as GPT-2's: caches in place, the same tokens as a loop on onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper
from small_decoders import greedy_by_hand

from sardonyx import InvalidArgument
from sardonyx.generation import Decoder, generate

Array = np.ndarray[Any, Any]
HEADS, SIZE, WORDS, LAYERS = 3, 8, 60, 2
WIDTH = HEADS * SIZE
PROMPTS = [[1, 5, 9, 33], [7, 8], [50, 2, 3, 4, 5, 6, 7]]
EMPTY = (2, 1, HEADS, 0, SIZE)  # a past without positions
FUSED, GATHERED, SPLIT, ROTATED = "fused", "gathered", "split", "rotated"


def _attention(layer: int, form: str) -> list[NodeProto]:
    """Attention of a layer, from h to a: by one node, or by nodes that take the past apart."""
    make, h, past, present = helper.make_node, f"h{layer}", f"past_{layer}", f"present_{layer}"
    if form in (FUSED, ROTATED):
        attrs = {"num_heads": HEADS, "unidirectional": 1, "do_rotary": int(form == ROTATED)}
        inputs = [h, f"w{layer}", f"b{layer}", "mask", past]
        return [make("Attention", inputs, [f"a{layer}", present], domain="com.microsoft", **attrs)]
    if form == GATHERED:
        parts = [make("Gather", [past, index], [f"{part}p{layer}"], axis=0) for part, index in zip("kv", ("zero", "last"))]
    else:
        parts = [make("Split", [past, "ones"], [f"ks{layer}", f"vs{layer}"], axis=0)]
        parts += [make("Squeeze", [f"{part}s{layer}", "axis"], [f"{part}p{layer}"]) for part in "kv"]
    nodes = [
        make("MatMul", [h, f"w{layer}"], [f"m{layer}"]),
        make("Add", [f"m{layer}", f"b{layer}"], [f"p{layer}"]),
        make("Split", [f"p{layer}", "widths"], [f"{part}0{layer}" for part in "qkv"], axis=2),
        *parts,
    ]
    for part in "qkv":
        nodes.append(make("Reshape", [f"{part}0{layer}", "heads"], [f"{part}1{layer}"]))
        nodes.append(make("Transpose", [f"{part}1{layer}"], [f"{part}2{layer}"], perm=[0, 2, 1, 3]))
    for part in "kv":
        nodes.append(make("Concat", [f"{part}p{layer}", f"{part}2{layer}"], [f"{part}3{layer}"], axis=2))
        nodes.append(make("Unsqueeze", [f"{part}3{layer}", "axis"], [f"{part}4{layer}"]))
    return [
        *nodes,
        make("Concat", [f"k4{layer}", f"v4{layer}"], [present], axis=0),
        make("Transpose", [f"k3{layer}"], [f"kt{layer}"], perm=[0, 1, 3, 2]),
        make("MatMul", [f"q2{layer}", f"kt{layer}"], [f"s{layer}"]),
        make("Mul", [f"s{layer}", "scale"], [f"sc{layer}"]),
        make("Add", [f"sc{layer}", "added"], [f"sm{layer}"]),
        make("Softmax", [f"sm{layer}"], [f"sp{layer}"], axis=-1),
        make("MatMul", [f"sp{layer}", f"v3{layer}"], [f"r0{layer}"]),
        make("Transpose", [f"r0{layer}"], [f"r1{layer}"], perm=[0, 2, 1, 3]),
        make("Reshape", [f"r1{layer}", "together"], [f"a{layer}"]),
    ]


def _masks() -> list[NodeProto]:
    """The mask of the fused form, and what the other adds to its scores: the length of the past is read from its shape."""
    make = helper.make_node
    return [
        make("Cast", ["attention_mask"], ["mask"], to=TensorProto.INT32),
        make("Shape", ["past_0"], ["past_shape"]),
        make("Gather", ["past_shape", "three"], ["before"], axis=0),
        make("Shape", ["input_ids"], ["ids_shape"]),
        make("Gather", ["ids_shape", "last"], ["new"], axis=0),
        make("Add", ["before", "new"], ["all"]),
        make("Range", ["before", "all", "last"], ["rows"]),
        make("Range", ["zero", "all", "last"], ["columns"]),
        make("Unsqueeze", ["rows", "axis1"], ["rows1"]),
        make("LessOrEqual", ["columns", "rows1"], ["seen"]),
        make("Unsqueeze", ["attention_mask", "axes12"], ["mask4"]),
        make("Cast", ["mask4"], ["open"], to=TensorProto.BOOL),
        make("And", ["seen", "open"], ["allowed"]),
        make("Where", ["allowed", "nothing", "lowest"], ["added"]),
    ]


def decoder(path: Path, form: str) -> Path:
    """A decoder of two layers of attention."""
    rng = np.random.default_rng(4)
    constants: dict[str, Array] = {
        "embedding": rng.standard_normal((WORDS, WIDTH), np.float32),
        "head": rng.standard_normal((WIDTH, WORDS), np.float32),
        "scale": np.array(SIZE**-0.5, np.float32),
        "nothing": np.zeros((), np.float32),
        "lowest": np.array(-10000, np.float32),
        **{name: np.array(number) for name, number in (("zero", 0), ("last", 1), ("three", 3))},
        **{name: np.array(numbers) for name, numbers in (("ones", [1, 1]), ("axis", [0]), ("axis1", [1]), ("axes12", [1, 2]))},
        "widths": np.full(3, WIDTH),
        "heads": np.array([0, 0, HEADS, SIZE]),
        "together": np.array([0, 0, WIDTH]),
    }
    nodes = [helper.make_node("Gather", ["embedding", "input_ids"], ["h0"]), *_masks()]
    info = helper.make_tensor_value_info
    inputs = [
        info("input_ids", TensorProto.INT64, ["batch", "new"]),
        info("attention_mask", TensorProto.INT64, ["batch", "total"]),
    ]
    outputs = [info("logits", TensorProto.FLOAT, ["batch", "new", WORDS])]
    for layer in range(LAYERS):
        constants[f"w{layer}"] = rng.standard_normal((WIDTH, 3 * WIDTH), np.float32) / np.float32(np.sqrt(WIDTH))
        constants[f"b{layer}"] = rng.standard_normal(3 * WIDTH, np.float32)
        nodes += [*_attention(layer, form), helper.make_node("Add", [f"h{layer}", f"a{layer}"], [f"h{layer + 1}"])]
        inputs.append(info(f"past_{layer}", TensorProto.FLOAT, [2, "batch", HEADS, "past", SIZE]))
        outputs.append(info(f"present_{layer}", TensorProto.FLOAT, [2, "batch", HEADS, "total", SIZE]))
    nodes.append(helper.make_node("MatMul", [f"h{LAYERS}", "head"], ["logits"]))
    used = {name for node in nodes for name in node.input}
    held = [numpy_helper.from_array(array, name) for name, array in constants.items() if name in used]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, held)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


@pytest.mark.parametrize("form", [FUSED, GATHERED, SPLIT])
def test_tokens_are_those_of_a_loop_by_hand(tmp_path: Path, form: str) -> None:
    path = decoder(tmp_path / "decoder.onnx", form)
    model = Decoder(path)
    wanted = [greedy_by_hand(path, prompt, 70, EMPTY) for prompt in PROMPTS]
    assert [generate(model, prompt, max_new_tokens=70).new_tokens[0].tolist() for prompt in PROMPTS] == wanted
    together = generate(model, PROMPTS, max_new_tokens=70)
    assert [row.tolist() for row in together.new_tokens] == wanted


@pytest.mark.parametrize("form", [FUSED, GATHERED, SPLIT])
def test_caches_have_room_and_stay_where_they_are(tmp_path: Path, form: str) -> None:
    model = Decoder(decoder(tmp_path / "decoder.onnx", form), room=100)
    model.begin([[1, 2, 3]])
    before = [cache.array.ctypes.data for cache in model._caches]
    assert len(before) == 2 * LAYERS
    assert all(cache.has_room for cache in model._caches)
    assert model._programs["step"].appends_to == set(model._pairs)
    for token in range(20):
        model.extend([token])
    assert [cache.array.ctypes.data for cache in model._caches] == before


def test_beams_go_on_with_the_caches_of_others(tmp_path: Path) -> None:
    fused, gathered = (Decoder(decoder(tmp_path / f"{form}.onnx", form)) for form in (FUSED, GATHERED))
    found = [generate(model, PROMPTS, num_beams=3, max_new_tokens=12) for model in (fused, gathered)]
    assert [row.tolist() for row in found[0].sequences] == [row.tolist() for row in found[1].sequences]


def test_a_past_in_a_form_that_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"cache 'past_0' has the shape \[2, 'batch', 3, 'past', 8\]: expected"):
        Decoder(decoder(tmp_path / "decoder.onnx", ROTATED))
