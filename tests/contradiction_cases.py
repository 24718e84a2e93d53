"""Models with feeds that fit, for `contradictions.py`: operators, small nets, random graphs.

Operators come from the node tests of the `onnx` package. What those lack (operators of com.microsoft, channels enough for blocks
of vectors, layers one behind the other) stands in a table here. Real models are in
`contradiction_models.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from contradictions import Array, Case, Feeds
from random_steps import random_model
from small_nets import NETS

RANDOM_GRAPHS: Final = range(1000, 1120)  # seeds
_NOT_REPEATABLE: Final = frozenset(("RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"))


def all_cases() -> list[Case]:
    """Everything that is made in memory."""
    return [*own_cases(), *node_cases(), *net_cases(), *random_cases()]


@cache
def node_cases() -> tuple[Case, ...]:
    """The node tests of onnx whose inputs are plain tensors with axes."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():  # the suite computes its expected outputs as it is imported, infinities included
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    return tuple(case for test in found for case in _node_case(test))


def _node_case(test: Any) -> Iterator[Case]:
    model = test.model
    if model is None or not test.data_sets or _NOT_REPEATABLE.intersection(node.op_type for node in model.graph.node):
        return
    arrays = [numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item for item in test.data_sets[0][0]]
    if not all(isinstance(array, np.ndarray) and array.dtype.kind in "biuf" for array in arrays):
        return
    feeds = {value.name: array for value, array in zip(model.graph.input, arrays)}
    if any(array.ndim for array in feeds.values()):
        yield Case(test.name, model.SerializeToString(), feeds)


# Operators of this table: name, attributes, and an array for each input (None: left out).

_random = np.random.default_rng(0)


def _f(*shape: int) -> Array:
    return _random.standard_normal(shape).astype(np.float32)


def _u8(*shape: int) -> Array:
    return _random.integers(0, 255, shape).astype(np.uint8)


def _i(*items: Any, kind: Any = np.int64) -> Array:
    return np.array(items if len(items) > 1 else items[0] if isinstance(items[0], list) else items, kind)


_SCALE, _ZERO = np.array([0.1], np.float32), np.array([3], np.uint8)
Row = tuple[str, dict[str, Any], Sequence["Array | None"], int]  # with the number of outputs

MICROSOFT: Final[list[Row]] = [
    ("MultiHeadAttention", {"num_heads": 2}, [_f(2, 5, 16), _f(2, 7, 16), _f(2, 7, 16)], 1),
    ("MultiHeadAttention", {"num_heads": 2}, [_f(2, 5, 16), _f(2, 7, 16), _f(2, 7, 24), _f(56)], 1),
    ("MultiHeadAttention", {"num_heads": 2}, [_f(2, 5, 2, 3, 8)], 1),
    ("MultiHeadAttention", {"num_heads": 2}, [_f(2, 5, 16), _f(2, 7, 2, 2, 8)], 1),
    ("MultiHeadAttention", {"num_heads": 2}, [_f(2, 5, 16), _f(2, 2, 7, 8), _f(2, 2, 7, 8), _f(48)], 1),
    ("MultiHeadAttention", {"num_heads": 2},
     [_f(2, 5, 16), _f(2, 7, 16), _f(2, 7, 16), None, _i([[1] * 11] * 2, kind=np.int32), _f(2, 2, 5, 11), _f(2, 2, 4, 8),
      _f(2, 2, 4, 8)], 3),
    ("MultiHeadAttention", {"num_heads": 2},
     [_f(2, 9, 16), _f(2, 7, 16), _f(2, 7, 16), None, _i([3, 7], kind=np.int32), _f(1, 1, 9, 7)], 1),
    ("Attention", {"num_heads": 2}, [_f(2, 5, 12), _f(12, 24), _f(24)], 1),
    ("Attention", {"num_heads": 2, "unidirectional": 1},
     [_f(2, 5, 12), _f(12, 24), _f(24), _i([[1] * 9] * 2, kind=np.int32), _f(2, 2, 2, 4, 4), _f(1, 2, 5, 9)], 2),
    ("Attention", {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 12]}, [_f(2, 5, 12), _f(12, 28), _f(28)], 1),
    ("GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2},
     [_f(2, 5, 32), _f(2, 5, 16), _f(2, 5, 16), None, None, _i([4, 4], kind=np.int32), _i(5, kind=np.int32)], 3),
    ("GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
     [_f(2, 1, 32), _f(2, 1, 16), _f(2, 1, 16), _f(2, 2, 6, 8), _f(2, 2, 6, 8), _i([5, 3], kind=np.int32),
      _i(6, kind=np.int32), _f(10, 4), _f(10, 4)], 3),
    ("GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2},
     [_f(2, 1, 64), None, None, _f(2, 2, 6, 8), _f(2, 2, 6, 8), _i([5, 6], kind=np.int32), _i(7, kind=np.int32), None, None, None,
      _f(1, 4, 1, 7)], 3),
    ("RotaryEmbedding", {"num_heads": 2}, [_f(2, 5, 16), _i([[0, 1, 2, 3, 4]] * 2), _f(9, 4), _f(9, 4)], 1),
    ("RotaryEmbedding", {"interleaved": 1}, [_f(2, 2, 5, 8), _i(2), _f(9, 4), _f(9, 4)], 1),
    ("FusedMatMul", {"transB": 1, "alpha": 0.5}, [_f(2, 5, 7), _f(2, 6, 7)], 1),
    ("FusedMatMul", {"transA": 1, "transBatchA": 1}, [_f(7, 2, 5), _f(2, 7, 6)], 1),
    ("TransposeMatMul", {"transA": 1}, [_f(3, 7, 5), _f(7, 6)], 1),
    ("FusedGemm", {"activation": "Relu"}, [_f(5, 7), _f(7, 6), _f(6)], 1),
    ("SkipLayerNormalization", {}, [_f(2, 5, 12), _f(2, 5, 12), _f(12), _f(12), _f(12)], 4),
    ("SkipSimplifiedLayerNormalization", {}, [_f(2, 5, 12), _f(1, 5, 12), _f(12), _f(12)], 1),
    ("GroupNorm", {"groups": 3, "channels_last": 0, "activation": 0}, [_f(2, 6, 4, 5), _f(6), _f(6)], 1),
    ("BiasAdd", {}, [_f(2, 5, 320), _f(320), _f(2, 5, 320)], 1),
    ("BiasGelu", {}, [_f(2, 5, 12), _f(12)], 1),
    ("FastGelu", {}, [_f(2, 5, 12), _f(12)], 1),
    ("GatedAdd", {}, [_f(2, 5, 12), _f(2, 5, 12), _f(2, 5, 12)], 1),
    ("QuickGelu", {}, [_f(2, 5, 12)], 1),
    ("Gelu", {}, [_f(2, 5, 12)], 1),
    ("DecoderMaskedMultiHeadAttention", {"num_heads": 2, "past_present_share_buffer": 1},
     [_f(2, 1, 16), _f(2, 1, 16), _f(2, 1, 16), None, _f(2, 2, 1, 5), _f(2, 2, 9, 8), _f(2, 2, 9, 8), _i(4, kind=np.int32)], 3),
    ("DecoderMaskedMultiHeadAttention", {"num_heads": 2},
     [_f(2, 1, 16), _f(2, 2, 7, 8), _f(2, 2, 7, 8), _i([[1] * 7] * 2, kind=np.int32)], 1),
    ("MRotaryEmbedding", {"mrope_section": [2, 1, 1]}, [_f(2, 2, 5, 8), _i([[[0, 1, 2, 3, 4]] * 2] * 3), _f(9, 4), _f(9, 4)], 1),
    ("MRotaryEmbedding", {"mrope_section": [2, 1, 1], "num_heads": 2},
     [_f(2, 5, 16), _i([[[0, 1, 2, 3, 4]] * 2] * 3), _f(9, 4), _f(9, 4)], 1),
    ("UnfoldTensor", {"dim": 1, "size": 3, "step": 2}, [_f(2, 9, 5)], 1),
    ("MoE", {"k": 2}, [_f(6, 16), _f(6, 4), _f(4, 24, 16), _f(4, 24), _f(4, 16, 24), _f(4, 16)], 1),
    ("MoE", {"k": 1, "activation_type": "silu"},
     [_f(2, 3, 16), _f(6, 4), _f(4, 24, 16), None, _f(4, 16, 24), None, _f(4, 24, 16)], 1),
]  # fmt: skip

# Those that take 8-bit integers, or weights in blocks.
QUANTIZED: Final[list[Row]] = [
    ("QLinearAdd", {}, [_u8(2, 5, 6), _SCALE[0], _ZERO[0], _u8(1, 5, 6), _SCALE[0], _ZERO[0], _SCALE[0], _ZERO[0]], 1),
    ("QLinearMul", {}, [_u8(2, 5, 6), _SCALE[0], _ZERO[0], _u8(5, 1), _SCALE[0], _ZERO[0], _SCALE[0], _ZERO[0]], 1),
    ("QLinearSigmoid", {}, [_u8(2, 5, 6), _SCALE[0], _ZERO[0], _SCALE[0], _ZERO[0]], 1),
    ("QLinearLeakyRelu", {"alpha": 0.1}, [_u8(2, 5, 6), _SCALE[0], _ZERO[0], _SCALE[0], _ZERO[0]], 1),
    ("QLinearGlobalAveragePool", {}, [_u8(2, 20, 5, 4), _SCALE[0], _ZERO[0], _SCALE[0], _ZERO[0]], 1),
    ("QLinearGlobalAveragePool", {"channels_last": 1}, [_u8(2, 5, 4, 20), _SCALE[0], _ZERO[0], _SCALE[0], _ZERO[0]], 1),
    ("QLinearConcat", {"axis": 1},
     [_SCALE[0], _ZERO[0], _u8(2, 5, 3), _SCALE[0], _ZERO[0], _u8(2, 4, 3), 2 * _SCALE[0], _ZERO[0]], 1),
    ("QLinearConv", {},
     [_u8(2, 18, 9, 8), _SCALE[0], _ZERO[0], _u8(20, 18, 3, 3), np.full(20, 0.1, np.float32), np.full(20, 3, np.uint8), _SCALE[0],
      _ZERO[0], _i(*range(20), kind=np.int32)], 1),
    ("QLinearConv", {"channels_last": 1, "group": 20},
     [_u8(2, 9, 8, 20), _SCALE[0], _ZERO[0], _u8(20, 1, 3, 3), _SCALE[0], _ZERO[0], _SCALE[0], _ZERO[0]], 1),
    ("QuantizeLinear", {"axis": 1}, [_f(2, 6, 5), np.full(6, 0.1, np.float32), _u8(6)], 1),
    ("DequantizeLinear", {"axis": 1}, [_u8(2, 6, 5), np.full(6, 0.1, np.float32), _u8(6)], 1),
    ("DynamicQuantizeMatMul", {}, [_f(2, 5, 40), _u8(40, 33), np.full(33, 0.1, np.float32), _u8(33), _f(33)], 1),
    ("MatMulIntegerToFloat", {},
     [_u8(2, 5, 40), _u8(40, 33), _SCALE[0], np.full(33, 0.1, np.float32), _ZERO[0], _u8(33), _f(33)], 1),
    ("QGemm", {"transB": 1},
     [_u8(5, 40), _SCALE[0], _ZERO[0], _u8(33, 40), np.full(33, 0.1, np.float32), _u8(33), _i(*range(33), kind=np.int32),
      _SCALE[0], _ZERO[0]], 1),
    ("QGemm", {"transA": 1}, [_u8(40, 5), _SCALE[0], _ZERO[0], _u8(40, 33), _SCALE[0], _ZERO[0]], 1),
    ("NhwcMaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}, [_u8(2, 9, 8, 18)], 1),
    ("DynamicQuantizeLSTM", {"hidden_size": 5},
     [_f(4, 3, 6), _u8(1, 6, 20), _u8(1, 5, 20), _f(1, 40), _i(4, 2, 3, kind=np.int32), _f(1, 3, 5), _f(1, 3, 5), _f(1, 15),
      _SCALE, _ZERO, np.full((1, 20), 0.1, np.float32), np.full((1, 20), 3, np.uint8)], 3),
    ("MatMulNBits", {"K": 64, "N": 20, "block_size": 32}, [_f(2, 5, 64), _u8(20, 2, 16), _f(20, 2), _u8(20, 1), None, _f(20)], 1),
    ("MatMulNBits", {"K": 64, "N": 20, "block_size": 32, "bits": 8, "accuracy_level": 4}, [_f(5, 64), _u8(20, 2, 32), _f(40)], 1),
    ("GatherBlockQuantized", {"block_size": 16}, [_u8(9, 16), _i([[0, 3], [8, 2]]), _f(9, 2), _u8(9, 1)], 1),
    ("GatherBlockQuantized", {"block_size": 16, "bits": 8}, [_u8(9, 32), _i([0, 3, 8]), _f(9, 2)], 1),
    ("QMoE", {"k": 2},
     [_f(6, 32), _f(6, 4), _u8(4, 24, 16), _f(4, 24), _f(4, 24), _u8(4, 32, 12), _f(4, 32), _f(4, 32)], 1),
    ("QMoE", {"k": 1, "expert_weight_bits": 8, "block_size": 16},
     [_f(2, 3, 32), _f(6, 4), _u8(4, 32, 32), _f(4, 32, 2), None, _u8(4, 32, 32), _f(4, 32, 2)], 1),
]  # fmt: skip

ONNX: Final[list[Row]] = [
    ("Conv", {}, [_f(2, 18, 9, 8), _f(20, 18, 3, 3), _f(20)], 1),
    ("Conv", {"pads": [1, 1, 1, 1], "strides": [2, 2]}, [_f(2, 3, 9, 8), _f(20, 3, 3, 3)], 1),
    ("Conv", {"group": 20}, [_f(2, 20, 9, 8), _f(20, 1, 3, 3), _f(20)], 1),
    ("Conv", {"group": 2}, [_f(2, 20, 9, 8), _f(6, 10, 3, 1), _f(6)], 1),
    ("Conv", {}, [_f(2, 18, 30), _f(2, 18, 3), _f(2)], 1),
    ("Conv", {}, [_f(1, 40, 1, 1), _f(40, 40, 1, 1), _f(40)], 1),
    ("ConvTranspose", {"strides": [2, 2]}, [_f(2, 18, 9, 8), _f(18, 20, 3, 3), _f(20)], 1),
    ("ConvTranspose", {"group": 2}, [_f(2, 18, 9), _f(18, 5, 3), _f(10)], 1),
    ("ConvInteger", {}, [_u8(2, 18, 9, 8), _u8(20, 18, 3, 3), _ZERO[0], _ZERO[0]], 1),
    ("ConvInteger", {}, [_u8(2, 18, 9, 8), _u8(20, 18, 3, 3), _ZERO[0], _u8(20)], 1),
    ("QLinearConv", {},
     [_u8(2, 18, 9, 8), _SCALE[0], _ZERO[0], _u8(20, 18, 3, 3), np.full(20, 0.1, np.float32), _u8(20), _SCALE[0], _ZERO[0],
      _i(*range(20), kind=np.int32)], 1),
    ("MatMulInteger", {}, [_u8(5, 7), _u8(7, 6), _u8(5), _u8(6)], 1),
    ("MatMulInteger", {}, [_u8(2, 5, 40), _u8(2, 40, 33), _ZERO[0], _ZERO[0]], 1),
    ("QLinearMatMul", {},
     [_u8(5, 7), _SCALE[0], _ZERO[0], _u8(7, 6), np.full(6, 0.1, np.float32), _u8(6), _SCALE[0], _ZERO[0]], 1),
    ("DequantizeLinear", {"axis": 1}, [_u8(2, 6, 5), np.full(6, 0.1, np.float32), _u8(6)], 1),
    ("DequantizeLinear", {"axis": 1, "block_size": 2}, [_u8(2, 6, 5), _f(2, 3, 5), _u8(2, 3, 5)], 1),
    ("QuantizeLinear", {"axis": 1}, [_f(2, 6, 5), np.full(6, 0.1, np.float32), _u8(6)], 1),
    ("DynamicQuantizeLinear", {}, [_f(2, 6, 5)], 3),
    ("MatMul", {}, [_f(2, 1, 33, 40), _f(3, 40, 35)], 1),
    ("MatMul", {}, [_f(40), _f(3, 40, 35)], 1),
    ("Gemm", {"transB": 1}, [_f(33, 40), _f(35, 40), _f(35)], 1),
    ("Gemm", {"transA": 1}, [_f(40, 33), _f(40, 35), _f(33, 1)], 1),
    ("Einsum", {"equation": "bij,bjk->bik"}, [_f(3, 4, 5), _f(3, 5, 6)], 1),
    ("Einsum", {"equation": "bii,ij->b"}, [_f(3, 4, 4), _f(4, 6)], 1),
    ("Einsum", {"equation": "...i,...i->..."}, [_f(3, 4, 5), _f(3, 4, 5)], 1),
    ("LSTM", {"hidden_size": 5},
     [_f(4, 3, 6), _f(1, 20, 6), _f(1, 20, 5), _f(1, 40), _i([4, 2, 3], kind=np.int32), _f(1, 3, 5), _f(1, 3, 5), _f(1, 15)], 3),
    ("GRU", {"hidden_size": 5, "direction": "bidirectional"},
     [_f(4, 3, 6), _f(2, 15, 6), _f(2, 15, 5), _f(2, 30), _i([4, 2, 3], kind=np.int32), _f(2, 3, 5)], 2),
    ("RNN", {"hidden_size": 5}, [_f(4, 3, 6), _f(1, 5, 6), _f(1, 5, 5), _f(1, 10), None, _f(1, 3, 5)], 2),
    ("Attention", {"q_num_heads": 2, "kv_num_heads": 2}, [_f(2, 5, 16), _f(2, 7, 16), _f(2, 7, 12)], 1),
    ("Attention", {}, [_f(2, 4, 9, 8), _f(2, 2, 7, 8), _f(2, 2, 7, 8), _f(9, 11), _f(2, 2, 4, 8), _f(2, 2, 4, 8)], 3),
    ("Attention", {"is_causal": 1},
     [_f(2, 2, 1, 8), _f(2, 2, 7, 8), _f(2, 2, 7, 8), None, None, None, _i([7, 3])], 1),
    ("RotaryEmbedding", {"num_heads": 2}, [_f(2, 5, 16), _f(9, 4), _f(9, 4), _i([[0, 1, 2, 3, 4]] * 2)], 1),
    ("RotaryEmbedding", {}, [_f(2, 2, 5, 8), _f(2, 5, 4), _f(2, 5, 4)], 1),
    ("BatchNormalization", {}, [_f(2, 20, 5, 4), _f(20), _f(20), _f(20), np.abs(_f(20))], 1),
    ("LayerNormalization", {"axis": -2}, [_f(2, 20, 5, 4), _f(5, 4), _f(5, 4)], 1),
    ("LayerNormalization", {}, [_f(2, 20, 33), _f(33), _f(33)], 3),
    ("RMSNormalization", {}, [_f(2, 20, 33), _f(33)], 1),
    ("SimplifiedLayerNormalization", {}, [_f(2, 20, 33), _f(33)], 1),
    ("Dropout", {}, [_f(3, 4, 5)], 1),
    ("InstanceNormalization", {}, [_f(2, 20, 5, 4), _f(20), _f(20)], 1),
    ("GroupNormalization", {"num_groups": 4}, [_f(2, 20, 5, 4), _f(20), _f(20)], 1),
    ("GlobalLpPool", {"p": 2}, [_f(2, 20, 5, 4)], 1),
    ("Compress", {"axis": 1}, [_f(3, 40, 5), _random.integers(0, 2, 40).astype(bool)], 1),
    ("Compress", {}, [_f(3, 40), _random.integers(0, 2, 120).astype(bool)], 1),
    ("NonZero", {}, [_random.integers(0, 2, (3, 40, 5)).astype(np.float32)], 1),
    ("TopK", {"axis": 1}, [_f(3, 40, 5), _i(3)], 2),
    ("NonMaxSuppression", {}, [np.abs(_f(2, 30, 4)), _f(2, 3, 30), _i(5), _SCALE, _SCALE], 1),
    ("RoiAlign", {"output_height": 3, "output_width": 3}, [_f(2, 3, 9, 9), np.abs(_f(4, 4)), _i(0, 1, 1, 0)], 1),
    ("GridSample", {}, [_f(2, 3, 9, 9), _f(2, 4, 5, 2)], 1),
    ("GridSample", {}, [_f(2, 35, 9, 9), _f(2, 4, 5, 2)], 1),
    ("RoiAlign", {"output_height": 3, "sampling_ratio": 2}, [_f(2, 35, 9, 9), np.abs(_f(4, 4)), _i(0, 1, 1, 0)], 1),
    ("Col2Im", {"pads": [1, 1, 1, 1]}, [_f(2, 12, 42), _i(5, 6), _i(2, 2)], 1),
    ("MaxUnpool", {"kernel_shape": [2, 2], "strides": [2, 2]}, [_f(1, 2, 2, 2), _random.integers(0, 32, (1, 2, 2, 2))], 1),
    ("AffineGrid", {}, [_f(2, 2, 3), _i(2, 3, 4, 5)], 1),
    ("GatherElements", {"axis": 1}, [_f(3, 40, 5), _random.integers(0, 40, (3, 7, 5))], 1),
    ("GatherND", {"batch_dims": 1}, [_f(3, 40, 5), _random.integers(0, 5, (3, 7, 2))], 1),
    ("ScatterElements", {"axis": 1, "reduction": "add"}, [_f(3, 40, 5), _random.integers(0, 40, (3, 7, 5)), _f(3, 7, 5)], 1),
    ("ScatterND", {}, [_f(3, 40, 5), _i([[0, 3], [2, 9]]), _f(2, 5)], 1),
    ("TensorScatter", {}, [_f(2, 2, 9, 4), _f(2, 2, 3, 4), _i(1, 4)], 1),
    ("ReverseSequence", {"time_axis": 0, "batch_axis": 1}, [_f(7, 3, 5), _i(7, 2, 4)], 1),
    ("Concat", {"axis": 1}, [_f(3, 4, 5), _f(3, 7, 5), _f(3, 1, 5)], 1),
    ("Split", {"axis": 1}, [_f(3, 10, 5), _i(3, 5, 2)], 3),
    ("Expand", {}, [_f(3, 1, 5), _i(2, 3, 4, 5)], 1),
    ("Tile", {}, [_f(3, 4, 5), _i(2, 1, 3)], 1),
    ("Pad", {}, [_f(3, 4, 5), _i(0, 1, 2, 1, 0, 1)], 1),
    ("Slice", {}, [_f(30, 4, 5), _i(2, 1), _i(20, 3), _i(0, 2), _i(3, 1)], 1),
    ("Where", {}, [_random.integers(0, 2, (4, 5)).astype(bool), _f(3, 4, 5), _f(3, 1, 5)], 1),
    ("Reshape", {}, [_f(3, 4, 5), _i(5, -1, 4)], 1),
    ("DepthToSpace", {"blocksize": 2}, [_f(2, 20, 3, 4)], 1),
    ("SpaceToDepth", {"blocksize": 2}, [_f(2, 5, 6, 4)], 1),
    ("OneHot", {"axis": 1}, [_i([[1, 2, 3], [4, 5, 6]]), _i(7), _f(2)], 1),
    ("Resize", {"mode": "linear"}, [_f(2, 20, 5, 4), None, np.array([1, 1, 2, 2], np.float32)], 1),
    ("CumSum", {}, [_f(3, 40, 5), np.array(1, np.int64)], 1),
    ("Clip", {}, [_f(3, 40, 5), np.array(-1, np.float32), np.array(1, np.float32)], 1),
    ("PRelu", {}, [_f(3, 20, 5, 4), _f(20, 1, 1)], 1),
    ("Range", {}, [_i([0])[0:1].reshape(()), _i([9])[0:1].reshape(()), _i([2])[0:1].reshape(())], 1),
]  # fmt: skip


def own_cases() -> list[Case]:
    """The table as models."""
    made = []
    for domain, rows in (("com.microsoft", [*MICROSOFT, *QUANTIZED]), ("", ONNX)):
        for op_type, attrs, arrays, outputs in rows:
            names = [f"x{number}" if array is not None else "" for number, array in enumerate(arrays)]
            feeds: Feeds = {name: array for name, array in zip(names, arrays) if array is not None}
            if not any(array.ndim for array in feeds.values()):
                continue
            results = [f"y{number}" for number in range(outputs)]
            node = helper.make_node(op_type, names, results, name="the_node", domain=domain, **attrs)
            label = f"{domain and 'microsoft '}{op_type} {[list(array.shape) for array in feeds.values()]}"
            inner = "int8" if attrs.get("accuracy_level") == 4 else "float64"  # rows are rounded to 8 bits
            made.append(Case(label, _model([node], feeds, results, domain), feeds, inner=inner))
    return made


def _model(nodes: Sequence[onnx.NodeProto], feeds: Feeds, results: Sequence[str], domain: str) -> bytes:
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    graph = helper.make_graph(list(nodes), "g", inputs, [helper.make_empty_tensor_value_info(name) for name in results])
    imports = [helper.make_opsetid("", 24), helper.make_opsetid("com.microsoft", 1)]
    content: bytes = helper.make_model(graph, opset_imports=imports, ir_version=11).SerializeToString()
    return content


def net_cases() -> list[Case]:
    """Small nets: layers one behind the other, in the blocked layout where they are convolutions."""
    return [Case(name, *make(), fixed=True) for name, make in NETS.items()]


def random_cases() -> list[Case]:
    """Random graphs of several inputs."""
    made = []
    for seed in RANDOM_GRAPHS:
        model = random_model(seed)
        made.append(Case(f"random graph {seed}", model.content, model.feeds({"N": 2, "S": 5, "T": 3}), fixed=True))
    return made
