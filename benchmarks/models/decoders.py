"""Decoders of the Llama and Qwen2 shape with random weights, made node by node, weights streamed to a file beside the model.

write_decoder(path, QWEN_HALF_BILLION, bits=4, form="grouped")

form="grouped"   as onnxruntime-genai's builder writes them: GroupQueryAttention with its rotation, norms with skip
form="plain"     as optimum exports them: rotation, Concat of past and new, repeated heads and mask spelled out
bits=0           float32 products; 4 or 8: MatMulNBits with blocks of 32
bits=4, qdq=True the same weights as DequantizeLinear and MatMul (uint4, blocks along the depth)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper

Array = np.ndarray[Any, Any]
MICROSOFT = "com.microsoft"
BLOCK = 32


@dataclass(frozen=True)
class DecoderShape:
    """The sizes of a decoder."""

    layers: int = 2
    width: int = 64
    heads: int = 4
    key_heads: int = 2
    head: int = 16
    inner: int = 96
    vocabulary: int = 128
    context: int = 512


SMALL = DecoderShape()
FLOAT_SMALL = DecoderShape(layers=8, width=512, heads=8, key_heads=4, head=64, inner=1408, vocabulary=16000, context=2048)
QWEN_HALF_BILLION = DecoderShape(
    layers=24, width=896, heads=14, key_heads=2, head=64, inner=4864, vocabulary=151936, context=4096
)


class _Writer:
    """Nodes and weights of a model; weights go to a file as they are made."""

    def __init__(self, shape: DecoderShape, file: BinaryIO, location: str, *, bits: int, level: int, qdq: bool) -> None:
        self.shape, self._file, self._location = shape, file, location
        self._bits, self._level, self._qdq = bits, level, qdq
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def add(self, op: str, inputs: Sequence[str], output: str | Sequence[str], domain: str = "", **attrs: Any) -> str:
        outputs = [output] if isinstance(output, str) else list(output)
        self.nodes.append(helper.make_node(op, list(inputs), outputs, f"{op} {outputs[0]}", domain=domain, **attrs))
        return outputs[0]

    def weight(self, name: str, array: Array, kind: int | None = None) -> str:
        """A weight in the file; `kind` is its element type, if that is not the array's."""
        data = np.ascontiguousarray(array)
        tensor = TensorProto(name=name, dims=data.shape, data_location=TensorProto.EXTERNAL)
        tensor.data_type = helper.np_dtype_to_tensor_dtype(data.dtype) if kind is None else kind
        if kind is not None:  # two elements a byte
            tensor.dims[:] = (*data.shape[:-1], data.shape[-1] * 2)
        offset = -(-self._file.tell() // 4096) * 4096 if data.nbytes >= 4096 else self._file.tell()
        self._file.seek(offset)
        self._file.write(data.tobytes())
        for key, value in (("location", self._location), ("offset", str(offset)), ("length", str(data.nbytes))):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, value
        self.initializers.append(tensor)
        return name

    def constant(self, name: str, array: Any) -> str:
        self.initializers.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def product(self, x: str, name: str, depth: int, columns: int) -> str:
        """x times a weight [depth, columns]."""
        scale = np.float32(1 / np.sqrt(depth))
        if not self._bits:
            weights = self.random.standard_normal((depth, columns), np.float32) * scale
            return self.add("MatMul", [x, self.weight(f"{name}.weight", weights)], name)
        blocks = -(-depth // BLOCK)
        packed = self.random.integers(0, 256, (columns, blocks, BLOCK * self._bits // 8), np.uint8)
        scales = (self.random.random((columns, blocks), np.float32) + np.float32(0.5)) * scale / np.float32(4.6)
        if self._qdq:
            return self._dequantized(x, name, packed, scales)
        inputs = [x, self.weight(f"{name}.packed", packed), self.weight(f"{name}.scales", scales)]
        level = {"accuracy_level": self._level} if self._level else {}
        return self.add("MatMulNBits", inputs, name, MICROSOFT, K=depth, N=columns, bits=self._bits, block_size=BLOCK, **level)

    def _dequantized(self, x: str, name: str, packed: Array, scales: Array) -> str:
        columns = len(packed)
        flat = packed.reshape(columns, -1)
        nibbles = np.stack([flat & 15, flat >> 4], axis=-1).reshape(columns, -1).T  # [depth, columns]
        data = self.weight(f"{name}.data", nibbles[:, 0::2] | nibbles[:, 1::2] << 4, TensorProto.UINT4)
        zeros = self.weight(f"{name}.zeros", np.full((scales.shape[1], columns // 2), 0x88, np.uint8), TensorProto.UINT4)
        parameters = [data, self.weight(f"{name}.scales", scales.T), zeros]
        dense = self.add("DequantizeLinear", parameters, f"{name}.dense", axis=0, block_size=BLOCK)
        return self.add("MatMul", [x, dense], name)

    def gain(self, name: str) -> str:
        return self.weight(name, self.random.uniform(0.8, 1.2, self.shape.width).astype(np.float32))

    def angles(self) -> tuple[str, str]:
        half = self.shape.head // 2
        angles = np.arange(self.shape.context)[:, None] * 10000.0 ** (-np.arange(half) / half)
        return tuple(self.weight(name, f(angles).astype(np.float32)) for name, f in (("cos", np.cos), ("sin", np.sin)))  # type: ignore[return-value]


def write_decoder(
    path: Path,
    shape: DecoderShape,
    *,
    bits: int = 0,
    level: int = 4,
    form: Literal["grouped", "plain"] = "grouped",
    qdq: bool = False,
) -> Path:
    """Write a model and its weights (PATH.data); `level` is MatMulNBits' accuracy level, 0 for none."""
    location = f"{path.name}.data"
    with (path.parent / location).open("wb") as file:
        w = _Writer(shape, file, location, bits=bits, level=level, qdq=qdq)
        table = w.weight("embedding", w.random.standard_normal((shape.vocabulary, shape.width), np.float32))
        x = w.add("Gather", [table, "input_ids"], "embedded")
        build = _Grouped(w) if form == "grouped" else _Plain(w)
        for layer in range(shape.layers):
            x = build.layer(layer, x)
        logits = w.product(build.norm("final", x), "logits", shape.width, shape.vocabulary)
    total = "total_sequence_length"
    cache = ["batch", shape.key_heads, "past_sequence_length", shape.head]
    present = ["batch", shape.key_heads, total, shape.head]
    names = [f"{layer}.{part}" for layer in range(shape.layers) for part in ("key", "value")]
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence_length"]),
        helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", total]),
        *build.more_inputs(),
        *(helper.make_tensor_value_info(f"past_key_values.{name}", TensorProto.FLOAT, cache) for name in names),
    ]
    outputs = [
        helper.make_tensor_value_info(logits, TensorProto.FLOAT, ["batch", "sequence_length", shape.vocabulary]),
        *(helper.make_tensor_value_info(f"present.{name}", TensorProto.FLOAT, present) for name in names),
    ]
    graph = helper.make_graph(w.nodes, "decoder", inputs, outputs, w.initializers)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


class _Grouped:
    """Layers of fused operators."""

    def __init__(self, w: _Writer) -> None:
        self.w = w
        self.cos, self.sin = w.angles()
        one = w.constant("one", np.array([1], np.int64))
        length = w.add("ReduceSum", ["attention_mask", one], "lengths", keepdims=0)
        before = w.add("Sub", [length, one], "lengths_before")
        self.lengths = w.add("Cast", [before], "seqlens_k", to=TensorProto.INT32)
        sizes = w.add("Shape", ["attention_mask"], "mask_shape")
        total = w.add("Gather", [sizes, w.constant("axis", np.array(1, np.int64))], "total")
        self.total = w.add("Cast", [total], "total_length", to=TensorProto.INT32)
        self.sum = ""  # what the residual stream is, where a norm has computed it

    def more_inputs(self) -> list[onnx.ValueInfoProto]:
        return []

    def norm(self, name: str, x: str) -> str:
        gain = self.w.gain(f"{name}.gain")
        if not self.sum:
            self.sum = x
            attrs: dict[str, Any] = {"axis": -1, "epsilon": 1e-6, "stash_type": 1}
            return self.w.add("SimplifiedLayerNormalization", [x, gain], f"{name}.normed", **attrs)
        outputs = [f"{name}.normed", "", "", f"{name}.sum"]
        inputs = [self.sum, x, gain]
        normed = self.w.add("SkipSimplifiedLayerNormalization", inputs, outputs, MICROSOFT, epsilon=1e-6)
        self.sum = f"{name}.sum"
        return normed

    def layer(self, number: int, x: str) -> str:
        w, shape = self.w, self.w.shape
        normed = self.norm(f"{number}.input", x)
        heads = (("q", shape.heads), ("k", shape.key_heads), ("v", shape.key_heads))
        parts = [w.product(normed, f"{number}.{name}", shape.width, count * shape.head) for name, count in heads]
        pasts = [f"past_key_values.{number}.{part}" for part in ("key", "value")]
        outputs = [f"{number}.attended", f"present.{number}.key", f"present.{number}.value"]
        inputs = [*parts, *pasts, self.lengths, self.total, self.cos, self.sin]
        counts = {"num_heads": shape.heads, "kv_num_heads": shape.key_heads, "do_rotary": 1}
        attended = w.add("GroupQueryAttention", inputs, outputs, MICROSOFT, **counts)
        mixed = w.product(attended, f"{number}.o", shape.heads * shape.head, shape.width)
        return _gated(w, number, self.norm(f"{number}.after", mixed))


def _gated(w: _Writer, number: int, normed: str) -> str:
    """The gated layer behind attention."""
    shape = w.shape
    gate, up = (w.product(normed, f"{number}.{name}", shape.width, shape.inner) for name in ("gate", "up"))
    bent = w.add("Mul", [gate, w.add("Sigmoid", [gate], f"{number}.sigmoid")], f"{number}.silu")
    return w.product(w.add("Mul", [bent, up], f"{number}.gated"), f"{number}.down", shape.inner, shape.width)


class _Plain:
    """Layers of standard operators."""

    def __init__(self, w: _Writer) -> None:
        self.w = w
        angles = w.angles()
        axis = w.constant("head_axis", np.array([1], np.int64))
        self.angles = []
        for name in angles:
            found = w.add("Gather", [name, "position_ids"], f"{name}.rows")
            double = w.add("Concat", [found, found], f"{name}.double", axis=-1)
            self.angles.append(w.add("Unsqueeze", [double, axis], f"{name}.wide"))
        self.mask = self._mask()

    def more_inputs(self) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info("position_ids", TensorProto.INT64, ["batch", "sequence_length"])]

    def _mask(self) -> str:
        """[batch, 1, new, all]: 0 where a query may look, else a large negative number."""
        w = self.w
        zero, one = (w.constant(name, np.array(number, np.int64)) for name, number in (("zero", 0), ("one", 1)))
        ids, whole = (w.add("Shape", [name], f"{name}.shape") for name in ("input_ids", "attention_mask"))
        new, total = (w.add("Gather", [shape, one], f"{shape}.length") for shape in (ids, whole))
        before = w.add("Sub", [total, new], "before")
        columns = w.add("Range", [zero, total, one], "columns")
        rows = w.add("Range", [before, total, one], "rows")
        upright = w.add("Unsqueeze", [rows, w.constant("last", np.array([1], np.int64))], "rows.upright")
        causal = w.add("LessOrEqual", [columns, upright], "causal")
        kept = w.add("Cast", ["attention_mask"], "kept", to=TensorProto.BOOL)
        wide = w.add("Unsqueeze", [kept, w.constant("middle", np.array([1, 2], np.int64))], "kept.wide")
        seen = w.add("And", [causal, wide], "seen")
        numbers = [w.constant(name, np.float32(value)) for name, value in (("open", 0), ("closed", -1e9))]
        return w.add("Where", [seen, *numbers], "mask")

    def norm(self, name: str, x: str) -> str:
        w = self.w
        squared = w.add("Mul", [x, x], f"{name}.squared")
        mean = w.add("ReduceMean", [squared, w.constant(f"{name}.axis", np.array([-1], np.int64))], f"{name}.mean", keepdims=1)
        root = w.add(
            "Sqrt", [w.add("Add", [mean, w.constant(f"{name}.eps", np.float32(1e-6))], f"{name}.shifted")], f"{name}.root"
        )
        return w.add("Mul", [w.gain(f"{name}.gain"), w.add("Div", [x, root], f"{name}.divided")], f"{name}.normed")

    def _heads(self, x: str, name: str, count: int) -> str:
        w = self.w
        split = w.add(
            "Reshape", [x, w.constant(f"{name}.split", np.array([0, 0, count, w.shape.head], np.int64))], f"{name}.heads"
        )
        return w.add("Transpose", [split], f"{name}.transposed", perm=[0, 2, 1, 3])

    def _rotated(self, x: str, name: str) -> str:
        w, half = self.w, self.w.shape.head // 2
        first, second = f"{name}.first", f"{name}.second"
        w.add("Split", [x, w.constant(f"{name}.halves", np.array([half, half], np.int64))], [first, second], axis=-1)
        transposed = w.add("Concat", [w.add("Neg", [second], f"{name}.negated"), first], f"{name}.crossed", axis=-1)
        parts = [w.add("Mul", pair, f"{name}.part{number}") for number, pair in enumerate(zip((x, transposed), self.angles))]
        return w.add("Add", parts, f"{name}.rotated")

    def _repeated(self, x: str, name: str) -> str:
        """Each key head once for every query head that shares it."""
        w, shape = self.w, self.w.shape
        group = shape.heads // shape.key_heads
        wide = w.add("Unsqueeze", [x, w.constant(f"{name}.new", np.array([2], np.int64))], f"{name}.wide")
        sizes = w.add("Shape", [wide], f"{name}.sizes")
        ones = w.constant(f"{name}.group", np.array([1, 1, group, 1, 1], np.int64))
        expanded = w.add("Expand", [wide, w.add("Mul", [sizes, ones], f"{name}.more")], f"{name}.expanded")
        shape_ = w.constant(f"{name}.joined", np.array([0, shape.heads, -1, shape.head], np.int64))
        return w.add("Reshape", [expanded, shape_], f"{name}.repeated")

    def layer(self, number: int, x: str) -> str:
        w, shape = self.w, self.w.shape
        normed = self.norm(f"{number}.input", x)
        made = {}
        for name, count in (("q", shape.heads), ("k", shape.key_heads), ("v", shape.key_heads)):
            flat = w.product(normed, f"{number}.{name}", shape.width, count * shape.head)
            made[name] = self._heads(flat, f"{number}.{name}", count)
        made["q"], made["k"] = (self._rotated(made[name], f"{number}.{name}") for name in ("q", "k"))
        stored = {}
        for name, part in (("k", "key"), ("v", "value")):
            joined = w.add("Concat", [f"past_key_values.{number}.{part}", made[name]], f"present.{number}.{part}", axis=-2)
            stored[name] = self._repeated(joined, f"{number}.{name}")
        keys = w.add("Transpose", [stored["k"]], f"{number}.keys", perm=[0, 1, 3, 2])
        products = w.add("MatMul", [made["q"], keys], f"{number}.products")
        scale = w.constant(f"{number}.scale", np.float32(shape.head**-0.5))
        scores = w.add("Add", [w.add("Mul", [products, scale], f"{number}.scaled"), self.mask], f"{number}.scores")
        weights = w.add("Softmax", [scores], f"{number}.weights", axis=-1)
        mixed = w.add(
            "Transpose", [w.add("MatMul", [weights, stored["v"]], f"{number}.mixed")], f"{number}.back", perm=[0, 2, 1, 3]
        )
        flat_shape = w.constant(f"{number}.flat", np.array([0, 0, shape.heads * shape.head], np.int64))
        attended = w.add("Reshape", [mixed, flat_shape], f"{number}.attended")
        x = w.add("Add", [x, w.product(attended, f"{number}.o", shape.heads * shape.head, shape.width)], f"{number}.middle")
        return w.add("Add", [x, _gated(w, number, self.norm(f"{number}.after", x))], f"{number}.out")
