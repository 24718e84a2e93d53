"""Small encoders and decoders in the files that optimum writes, and a greedy loop over them written by hand on onnxruntime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from search_graphs import FEATURES, HEADS, LAYERS, SIZE, VOCABULARY, WIDTH, Maker, tensor

Array = np.ndarray[Any, Any]
SWITCH = "use_cache_branch"
PARTS = ("key", "value")


def _caches(place: str, kind: str, length: str) -> list[onnx.ValueInfoProto]:
    return [
        tensor(f"{place}.{layer}.{kind}.{part}", TensorProto.FLOAT, "rows", HEADS, length, SIZE)
        for layer in range(LAYERS)
        for part in PARTS
    ]


def _decoder(*, speech: bool, past: bool, caches: bool = True) -> onnx.GraphProto:
    make = Maker()
    mask = "" if speech else "encoder_attention_mask"
    given = [
        [tuple(f"past_key_values.{layer}.{kind}.{part}" for part in PARTS) for layer in range(LAYERS)]
        for kind in ("decoder", "encoder")
    ]
    if not past:
        make.op("Identity", "encoder_hidden_states", out="hidden")
    crosses: list[Any] = given[1] if past else [make.cross(layer) for layer in range(LAYERS)]
    presents = make.decode("input_ids", given[0] if past else [], crosses, mask)  # type: ignore[arg-type]
    for kind, pairs in (("decoder", presents), ("encoder", [] if past else crosses)):
        for layer, pair in enumerate(pairs):
            for part, value in zip(PARTS, pair):
                make.name(value, f"present.{layer}.{kind}.{part}")
    inputs = [
        *([] if speech else [tensor(mask, TensorProto.INT64, "rows", "source")]),
        tensor("input_ids", TensorProto.INT64, "rows", "new"),
        *([] if past else [tensor("encoder_hidden_states", TensorProto.FLOAT, "rows", "source", WIDTH)]),
        *([*_caches("past_key_values", "decoder", "past"), *_caches("past_key_values", "encoder", "source")] if past else []),
    ]
    outputs = [tensor("logits", TensorProto.FLOAT, "rows", "new", VOCABULARY)]
    if caches:
        outputs += [*_caches("present", "decoder", "total"), *([] if past else _caches("present", "encoder", "source"))]
    return make.graph("decoder", inputs, outputs)


def _merged(*, speech: bool) -> onnx.GraphProto:
    """Both in one: the branch with past gives empty tensors for the keys and values of the encoder."""
    graphs = {"then_branch": _decoder(speech=speech, past=True), "else_branch": _decoder(speech=speech, past=False)}
    crosses = [value.name for value in _caches("present", "encoder", "source")]
    weights: dict[str, onnx.TensorProto] = {}
    inputs: dict[str, onnx.ValueInfoProto] = {}
    for branch, graph in graphs.items():
        if branch == "then_branch":
            empty = onnx.numpy_helper.from_array(np.zeros((0, HEADS, 1, SIZE), np.float32), "empty")
            graph.node.extend(helper.make_node("Constant", [], [name], value=empty) for name in crosses)
            graph.output.extend(_caches("present", "encoder", "source"))
        for node in graph.node:
            for names in (node.input, node.output):
                names[:] = [f"{branch}/{name}" if name.startswith(("present", "logits", "hidden")) else name for name in names]
        order = {value.name: value for value in graph.output}
        del graph.output[:]
        wanted = ["logits", *(value.name for value in _caches("present", "decoder", "total")), *crosses]
        for name in wanted:
            made = graph.output.add()
            made.CopyFrom(order[name])
            made.name = f"{branch}/{name}"
        weights.update({each.name: each for each in graph.initializer})
        inputs.update({each.name: each for each in graph.input})
        del graph.input[:], graph.initializer[:]
    outputs = [
        tensor("logits", TensorProto.FLOAT, "rows", "new", VOCABULARY),
        *_caches("present", "decoder", "total"),
        *_caches("present", "encoder", "source"),
    ]
    node = helper.make_node("If", [SWITCH], [value.name for value in outputs], **graphs)
    every = [*inputs.values(), tensor(SWITCH, TensorProto.BOOL, 1)]
    return helper.make_graph([node], "merged", every, outputs, list(weights.values()))


def write_folder(folder: Path, form: str, *, speech: bool = False, **settings: Any) -> Path:
    """A folder with an encoder and a decoder: merged, split or pastless."""
    folder.mkdir()
    make = Maker()
    mask = "" if speech else "attention_mask"
    source = "input_features" if speech else "input_ids"
    make.encode(source, mask)
    make.name("hidden", "last_hidden_state")
    inputs = [tensor(source, TensorProto.FLOAT, "rows", FEATURES, "source")]
    if not speech:
        inputs = [tensor(name, TensorProto.INT64, "rows", "source") for name in (source, mask)]
    hidden = tensor("last_hidden_state", TensorProto.FLOAT, "rows", "source", WIDTH)
    graphs = {"encoder_model": make.graph("encoder", inputs, [hidden])}
    if form == "merged":
        graphs["decoder_model_merged"] = _merged(speech=speech)
    else:
        graphs["decoder_model"] = _decoder(speech=speech, past=False, caches=form == "split")
    if form == "split":
        graphs["decoder_with_past_model"] = _decoder(speech=speech, past=True)
    for name, graph in graphs.items():
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / f"{name}.onnx")
    about = {"decoder_start_token_id": 1, "eos_token_id": 3, "pad_token_id": 0, **settings}
    (folder / "config.json").write_text(json.dumps({"is_encoder_decoder": True}))
    (folder / "generation_config.json").write_text(json.dumps(about))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def greedy_by_hand(folder: Path, source: Array, count: int, start: list[int]) -> list[int]:
    """Tokens about one source, by a loop over onnxruntime with the decoder that reads everything anew."""
    encoder, decoder = (onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("encoder_model", "decoder_model"))
    feeds = {"input_features": source} if source.ndim == 3 else {"input_ids": source, "attention_mask": np.ones_like(source)}
    (hidden,) = encoder.run(None, feeds)
    made = list(start)
    for _ in range(count):
        given: dict[str, Array] = {"input_ids": np.array([made]), "encoder_hidden_states": hidden}
        if source.ndim == 2:
            given["encoder_attention_mask"] = np.ones_like(source)
        made.append(int(decoder.run(["logits"], given)[0][0, -1].argmax()))
    return made[len(start) :]
