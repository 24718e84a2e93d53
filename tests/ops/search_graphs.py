"""Small encoders and decoders of the T5 and Whisper forms, as graphs of BeamSearch."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

VOCABULARY, WIDTH, HEADS, LAYERS, FEATURES = 40, 16, 2, 2, 6
SIZE = WIDTH // HEADS


class Maker:
    """Nodes and weights of a graph under construction."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}

    def op(self, kind: str, *inputs: str, out: str = "", **attrs: Any) -> str:
        name = out or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attrs))
        return name

    def constant(self, name: str, array: Any) -> str:
        self.weights[name] = onnx.numpy_helper.from_array(np.asarray(array), name)
        return name

    def weight(self, name: str, *shape: int) -> str:
        random = np.random.default_rng(sum(map(ord, name)) + len(name))
        return self.constant(name, (random.standard_normal(shape) * 0.4).astype(np.float32))

    def heads(self, x: str, weight: str) -> str:
        """A product [B,T,D] as [B,heads,T,size]."""
        product = self.op("MatMul", x, self.weight(weight, WIDTH, WIDTH))
        split = self.op("Reshape", product, self.constant("split", np.array([0, 0, HEADS, SIZE])))
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def attend(self, query: str, keys: str, values: str, mask: str = "") -> str:
        """Softmax(query keys / root) values, as [B,T,D]; `mask` is added to the scores."""
        scores = self.op("MatMul", query, self.op("Transpose", keys, perm=[0, 1, 3, 2]))
        scores = self.op("Mul", scores, self.constant("root", np.float32(SIZE**-0.5)))
        scores = self.op("Add", scores, mask) if mask else scores
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), values)
        return self.op("Reshape", self.op("Transpose", mixed, perm=[0, 2, 1, 3]), self.constant("join", np.array([0, 0, WIDTH])))

    def added_mask(self, mask: str) -> str:
        """An integer mask [B,T] as numbers to add [B,1,1,T]."""
        away = self.op("Sub", self.constant("one", np.float32(1)), self.op("Cast", mask, to=TensorProto.FLOAT))
        numbers = self.op("Mul", away, self.constant("far", np.float32(-1e4)))
        return self.op("Unsqueeze", numbers, self.constant("axes", np.array([1, 2])))

    def encode(self, source: str, mask: str) -> str:
        """Hidden states of tokens (with a mask) or of features [B,FEATURES,T]."""
        if mask:
            x = self.op("Gather", self.weight("table", VOCABULARY, WIDTH), source)
        else:
            x = self.op("MatMul", self.op("Transpose", source, perm=[0, 2, 1]), self.weight("features", FEATURES, WIDTH))
        query, keys, values = (self.heads(x, f"encoder {kind}") for kind in "qkv")
        return self.op("Add", x, self.attend(query, keys, values, self.added_mask(mask) if mask else ""), out="hidden")

    def cross(self, layer: int) -> tuple[str, str]:
        """Keys and values of the hidden states."""
        return self.heads("hidden", f"cross k{layer}"), self.heads("hidden", f"cross v{layer}")

    def decode(self, ids: str, pasts: list[tuple[str, str]], crosses: list[tuple[str, str]], mask: str) -> list[tuple[str, str]]:
        """Logits, and the keys and values of all positions for each layer; tokens see those before them."""
        x = self.op("Gather", self.weight("table", VOCABULARY, WIDTH), ids)
        presents = []
        added = self.added_mask(mask) if mask else ""
        for layer, (cross_keys, cross_values) in enumerate(crosses):
            query, keys, values = (self.heads(x, f"self {kind}{layer}") for kind in "qkv")
            if pasts:
                keys, values = (self.op("Concat", old, new, axis=2) for old, new in zip(pasts[layer], (keys, values)))
            presents.append((keys, values))
            x = self.op("Add", x, self.attend(query, keys, values, self._causal(query, keys)))
            x = self.op("Add", x, self.attend(self.heads(x, f"cross q{layer}"), cross_keys, cross_values, added))
        self.op("MatMul", x, self.weight("head", WIDTH, VOCABULARY), out="logits")
        return presents

    def _causal(self, query: str, keys: str) -> str:
        """0 for positions up to a query's own, far below it for others: [new, all]."""
        new, every = (
            self.op("Squeeze", self.op("Shape", each, start=2, end=3), self.constant("zeroth", np.array([0])))
            for each in (query, keys)
        )
        zero, one = self.constant("zero", np.int64(0)), self.constant("step", np.int64(1))
        columns = self.op("Range", zero, every, one)
        rows = self.op("Add", self.op("Range", zero, new, one), self.op("Sub", every, new))
        later = self.op("Greater", columns, self.op("Unsqueeze", rows, self.constant("last", np.array([1]))))
        return self.op("Mul", self.op("Cast", later, to=TensorProto.FLOAT), self.constant("far", np.float32(-1e4)))

    def name(self, value: str, name: str) -> None:
        self.op("Identity", value, out=name)

    def graph(self, title: str, inputs: list[Any], outputs: list[Any]) -> onnx.GraphProto:
        return helper.make_graph(self.nodes, title, inputs, outputs, list(self.weights.values()))


def tensor(name: str, kind: int, *shape: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, list(shape))


def _caches(place: str, kind: str, length: str) -> list[onnx.ValueInfoProto]:
    return [
        tensor(f"{place}_{part}_{kind}_{layer}", TensorProto.FLOAT, "rows", HEADS, length, SIZE)
        for layer in range(LAYERS)
        for part in ("key", "value")
    ]


def encoder(*, whisper: bool = False, decodes: bool = True) -> onnx.GraphProto:
    """An encoder; with `decodes` it reads the first tokens, too."""
    make = Maker()
    mask = "" if whisper else "encoder_attention_mask"
    make.encode("encoder_input_ids", mask)
    crosses = [make.cross(layer) for layer in range(LAYERS)]
    source = (TensorProto.FLOAT, "rows", FEATURES, "frames") if whisper else (TensorProto.INT32, "rows", "source")
    inputs = [tensor("encoder_input_ids", *source)]
    inputs += [] if whisper else [tensor(mask, TensorProto.INT32, "rows", "source")]
    outputs = _caches("present", "cross", "source")
    for layer, pair in enumerate(crosses):
        for part, value in zip(("key", "value"), pair):
            make.name(value, f"present_{part}_cross_{layer}")
    if decodes:
        inputs.append(tensor("decoder_input_ids", TensorProto.INT32, "rows", "begin"))
        for layer, pair in enumerate(make.decode("decoder_input_ids", [], crosses, mask)):
            for part, value in zip(("key", "value"), pair):
                make.name(value, f"present_{part}_self_{layer}")
        make.name("hidden", "encoder_hidden_states")
        first = [
            tensor("logits", TensorProto.FLOAT, "rows", "begin", VOCABULARY),
            tensor("encoder_hidden_states", TensorProto.FLOAT, "rows", "source", WIDTH),
        ]
        outputs = [*first, *_caches("present", "self", "begin"), *outputs]
    return make.graph("encoder", inputs, outputs)


def decoder(*, whisper: bool = False, hidden: bool = False) -> onnx.GraphProto:
    """A decoder of one token at a time; `hidden`: it is given the encoder's hidden states, of which it makes no use."""
    make = Maker()
    mask = "" if whisper else "encoder_attention_mask"
    pasts, crosses = (
        [(f"past_key_{kind}_{layer}", f"past_value_{kind}_{layer}") for layer in range(LAYERS)] for kind in ("self", "cross")
    )
    for layer, pair in enumerate(make.decode("input_ids", pasts, crosses, mask)):
        for part, value in zip(("key", "value"), pair):
            make.name(value, f"present_{part}_self_{layer}")
    inputs = [
        tensor("input_ids", TensorProto.INT32, "rows", 1),
        *([] if whisper else [tensor(mask, TensorProto.INT32, "rows", "source")]),
        *([tensor("encoder_hidden_states", TensorProto.FLOAT, "rows", "source", WIDTH)] if hidden else []),
        *_caches("past", "self", "past"),
        *_caches("past", "cross", "source"),
    ]
    outputs = [tensor("logits", TensorProto.FLOAT, "rows", 1, VOCABULARY), *_caches("present", "self", "total")]
    return make.graph("decoder", inputs, outputs)
