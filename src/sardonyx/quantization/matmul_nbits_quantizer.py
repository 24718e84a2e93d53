"""`MatMulNBitsQuantizer`: weights of 2, 4 or 8 bits in blocks; activations stay floats.

    quantizer = MatMulNBitsQuantizer("model.onnx", bits=4, block_size=32)
    quantizer.process()
    quantizer.model.save_model_to_file("model.int4.onnx", use_external_data_format=True)

A path is better than an onnx.ModelProto: the weights stay in their file until they are written, one by one.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sardonyx.errors import InvalidArgument
from sardonyx.ir.graph import Graph, Node, walk
from sardonyx.quantization.block_rewriting import BlockSettings, rewrite_gather, rewrite_matmul
from sardonyx.quantization.blocks import BITS, check_block_size
from sardonyx.quantization.extra_options import check_node_names
from sardonyx.quantization.models import CONTRIB_OPERATORS, opset_version, read_model, remove_unused_initializers
from sardonyx.quantization.onnx_model import ONNXModel
from sardonyx.quantization.opset import raise_opset
from sardonyx.quantization.types import QuantFormat

_COMPRESSOR_NAMES: Final = ("_Q{bits}G{block}", "_scale", "_zp")  # what neural-compressor calls constants
_ACCURACY_LEVELS: Final = (None, 0, 1, 2, 3, 4)


class WeightOnlyQuantConfig:
    """What all methods have in common."""

    def __init__(
        self,
        algorithm: str,
        quant_format: QuantFormat,
        op_types_to_quantize: Sequence[str] | None = None,
        quant_axes: Sequence[tuple[str, int]] | None = None,
        customized_weight_config: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.quant_format = quant_format
        self.op_types_to_quantize = set(op_types_to_quantize) if op_types_to_quantize else {"MatMul"}
        self.quant_axes = dict(quant_axes) if quant_axes else {"MatMul": 0, "Gather": 1}
        self.customized_weight_config = customized_weight_config


def _operators_only(algorithm: str, quant_format: QuantFormat) -> None:
    if quant_format is not QuantFormat.QOperator:
        raise InvalidArgument(f"quant_format is {quant_format}, but {algorithm} writes QuantFormat.QOperator only")


class RTNWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """Round to nearest. `ratios` shrinks the ranges of weights, by name; `customized_weight_config` has settings by node."""

    def __init__(
        self,
        ratios: Mapping[str, float] | None = None,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: Sequence[str] | None = None,
        customized_weight_config: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        _operators_only("RTN", quant_format)
        super().__init__("RTN", quant_format, op_types_to_quantize, customized_weight_config=customized_weight_config)
        self.ratios = dict(ratios or {})


class KQuantWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """Scales and zero points by weighted least squares."""

    def __init__(
        self,
        ratios: Mapping[str, float] | None = None,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: Sequence[str] | None = None,
        customized_weight_config: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        _operators_only("k-quant", quant_format)
        super().__init__("k_quant", quant_format, op_types_to_quantize, customized_weight_config=customized_weight_config)
        self.ratios = dict(ratios or {})


class HQQWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """Half-quadratic quantization: zero points are real numbers."""

    def __init__(
        self,
        block_size: int = 128,
        bits: int = 4,
        axis: int = 1,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: Sequence[str] | None = None,
        quant_axes: Sequence[tuple[str, int]] | None = None,
    ) -> None:
        _operators_only("HQQ", quant_format)
        super().__init__("HQQ", quant_format, op_types_to_quantize, quant_axes)
        self.block_size = block_size
        self.bits = bits
        self.axis = axis


class DefaultWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """Round to nearest; QOperator or QDQ. `accuracy_level` is what MatMulNBits may compute with (4: 8-bit integers)."""

    def __init__(
        self,
        block_size: int = 128,
        is_symmetric: bool = False,
        accuracy_level: int | None = None,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: Sequence[str] | None = None,
        quant_axes: Sequence[tuple[str, int]] | None = None,
        bits: int = 4,
        channel_wised_quantize: bool = False,
    ) -> None:
        super().__init__("DEFAULT", quant_format, op_types_to_quantize, quant_axes)
        if channel_wised_quantize and quant_format is QuantFormat.QOperator:
            raise NotImplementedError("QuantFormat.QOperator is not supported channel_wised_quantize yet")
        self.block_size = block_size
        self.is_symmetric = is_symmetric
        self.bits = bits
        self.accuracy_level = accuracy_level
        self.channel_wised_quantize = channel_wised_quantize


class MatMulNBitsQuantizer:
    """Quantizes the constant weights of MatMul (and tables of Gather) of a model, a path or an onnx.ModelProto."""

    def __init__(
        self,
        model: Any,
        bits: int = 4,
        block_size: int = 128,
        is_symmetric: bool = False,
        accuracy_level: int | None = None,
        nodes_to_exclude: Sequence[str] | None = None,
        nodes_to_include: Sequence[str] | None = None,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: Sequence[str] | None = None,
        quant_axes: Sequence[tuple[str, int]] | None = None,
        channel_wised_quantize: bool = False,
        algo_config: WeightOnlyQuantConfig | None = None,
    ) -> None:
        if algo_config is None:
            algo_config = DefaultWeightOnlyQuantConfig(
                block_size,
                is_symmetric,
                accuracy_level,
                quant_format,
                op_types_to_quantize,
                quant_axes,
                bits,
                channel_wised_quantize,
            )
        known = ("DEFAULT", "RTN", "k_quant", "HQQ")
        if algo_config.algorithm not in known:
            raise InvalidArgument(f"algo_config is of algorithm {algo_config.algorithm!r}; there are {', '.join(known)}")
        self.algo_config = algo_config
        self.bits = getattr(algo_config, "bits", bits)
        self.block_size = getattr(algo_config, "block_size", block_size)
        self.is_symmetric = getattr(algo_config, "is_symmetric", is_symmetric)
        self.accuracy_level = getattr(algo_config, "accuracy_level", accuracy_level)
        if self.accuracy_level not in _ACCURACY_LEVELS:
            raise InvalidArgument(f"accuracy_level is {self.accuracy_level}, expected a number from 0 to 4")
        if self.bits not in BITS:
            raise AssertionError(f"bits is {self.bits}: Only support 2, 4 or 8 bits quantization")
        if not getattr(algo_config, "channel_wised_quantize", False):
            check_block_size(self.bits, self.block_size, "")
        self.nodes_to_exclude = set(nodes_to_exclude or ())
        self.nodes_to_include = set(nodes_to_include or ())
        self._ir = read_model(model)
        self._model: ONNXModel | None = None
        self.on_progress: Callable[[str], None] = lambda name: None  # called for each node that has been looked at
        self.quantized: list[str] = []  # the nodes that have been quantized

    @property
    def model(self) -> ONNXModel:
        """The model as it is now."""
        if self._model is None:
            self._model = ONNXModel.of_ir(self._ir)
        return self._model

    def keep_only(self, names: Sequence[str]) -> None:
        """Quantize the nodes of these names alone."""
        check_node_names("nodes", names, [node.name for node in walk(self._ir.graph)])
        self.nodes_to_exclude |= {node.name for node in walk(self._ir.graph)} - set(names)

    def process(self) -> None:
        """Quantize the model."""
        is_qdq = self.algo_config.quant_format is QuantFormat.QDQ
        if is_qdq or "Gather" in self.algo_config.op_types_to_quantize:
            raise_opset(self._ir, 21)  # the first with 4-bit elements
        version = opset_version(self._ir)
        graphs = [self._ir.graph, *(inner for node in walk(self._ir.graph) for inner in node.subgraphs())]
        for graph in graphs:
            for node in graph.nodes:
                if self._is_wanted(node) and self._rewrite(graph, node, version):
                    self.quantized.append(node.name)
                self.on_progress(node.name)
        remove_unused_initializers(self._ir.graph)
        if not is_qdq:
            self._ir.opset_imports.setdefault(CONTRIB_OPERATORS, 1)
        self._model = None

    def _is_wanted(self, node: Node) -> bool:
        if node.domain or node.name in self.nodes_to_exclude:
            return False
        return node.name in self.nodes_to_include or node.op_type in self.algo_config.op_types_to_quantize

    def _rewrite(self, graph: Graph, node: Node, version: int) -> bool:
        settings = self._settings(node)
        if node.op_type == "MatMul":
            return rewrite_matmul(graph, node, settings, version)
        if node.op_type == "Gather":
            if settings.method == "hqq":
                raise NotImplementedError(f"{node.label}: Gather quantization is not supported yet in HQQ")
            return rewrite_gather(graph, node, settings)
        return False

    def _settings(self, node: Node) -> BlockSettings:
        config = self.algo_config
        weight = node.inputs[1].name if len(node.inputs) > 1 and node.inputs[1] is not None else ""
        own = dict((config.customized_weight_config or {}).get(node.name, {}))
        unknown = sorted(set(own) - {"bits", "group_size", "scheme", "algorithm"})
        if unknown:
            raise InvalidArgument(
                f"{node.label}: customized_weight_config has no setting {unknown[0]!r}; there are bits, group_size, scheme"
            )
        methods = {"k_quant": "k_quant", "HQQ": "hqq"}
        scheme = own.get("scheme", "sym" if self.is_symmetric else "asym")
        return BlockSettings(
            bits=int(own.get("bits", self.bits)),
            block_size=int(own.get("group_size", self.block_size)),
            symmetric=scheme == "sym" and config.algorithm not in methods,
            method=methods.get(config.algorithm, "round"),
            is_qdq=config.quant_format is QuantFormat.QDQ,
            accuracy_level=int(self.accuracy_level or 0),
            ratio=float(getattr(config, "ratios", {}).get(weight, 1.0)),
            by_channel=bool(getattr(config, "channel_wised_quantize", False)),
            gather_axis=int(config.quant_axes.get("Gather", 1)),
            endings=_COMPRESSOR_NAMES if config.algorithm in ("RTN", "k_quant") else BlockSettings.endings,
        )


def _pair(text: str) -> tuple[str, int]:
    name, _, axis = text.partition(":")
    return name, int(axis)


def _truth(text: str) -> bool:
    return text.lower() in ("true", "1")


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(description="Quantize the weights of MatMul and Gather by blocks of few bits.")
    parser.add_argument("--input_model", required=True, help="the model")
    parser.add_argument("--output_model", required=True, help="where the quantized model goes")
    parser.add_argument("--block_size", type=int, default=32, help="how many numbers share a scale")
    parser.add_argument("--bits", type=int, default=4, help="bits of a number")
    parser.add_argument("--quant_method", default="default", choices=("default", "hqq", "rtn", "k_quant"), help="the method")
    parser.add_argument("--symmetric", default=True, const=True, nargs="?", type=_truth, help="ranges around zero; not for hqq")
    parser.add_argument("--accuracy_level", type=int, help="what MatMulNBits may compute with")
    parser.add_argument("--nodes_to_exclude", nargs="+", default=[], help="do not quantize these nodes")
    parser.add_argument("--nodes_to_include", nargs="+", help="quantize these nodes, too")
    parser.add_argument("--quant_format", default="QOperator", choices=("QOperator", "QDQ"), help="the form of the model")
    parser.add_argument("--op_types_to_quantize", nargs="+", choices=("MatMul", "Gather"), help="the operators")
    parser.add_argument("--quant_axes", type=_pair, nargs="+", help="the axis of blocks by operator, as Gather:1")
    parser.add_argument("-v", "--verbose", action="store_true", help="name each node that is quantized")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Quantize a model; the exit code."""
    args = parse_args(arguments)
    if os.path.exists(args.output_model):
        print(f"file {args.output_model} already exists", file=sys.stderr)
        return 1
    kinds, axes = args.op_types_to_quantize, args.quant_axes
    config: WeightOnlyQuantConfig
    if args.quant_method == "hqq":
        config = HQQWeightOnlyQuantConfig(args.block_size, args.bits, op_types_to_quantize=kinds, quant_axes=axes)
    elif args.quant_method == "default":
        form = QuantFormat[args.quant_format]
        config = DefaultWeightOnlyQuantConfig(args.block_size, args.symmetric, args.accuracy_level, form, kinds, axes, args.bits)
    else:
        kind = RTNWeightOnlyQuantConfig if args.quant_method == "rtn" else KQuantWeightOnlyQuantConfig
        config = kind(op_types_to_quantize=kinds)
    quantizer = MatMulNBitsQuantizer(
        Path(args.input_model),
        args.bits,
        args.block_size,
        args.symmetric,
        args.accuracy_level,
        nodes_to_exclude=args.nodes_to_exclude,
        nodes_to_include=args.nodes_to_include,
        algo_config=config,
    )
    quantizer.process()
    for name in quantizer.quantized if args.verbose else ():
        print(name)
    quantizer.model.save_model_to_file(args.output_model, True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
