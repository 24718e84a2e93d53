"""Calibration: run a model on representative inputs, and find the range of each activation.

    calibrator = create_calibrator("model.onnx", ["Conv", "MatMul"], "augmented.onnx")
    calibrator.collect_data(reader)           reader.get_next() gives feeds, at last None
    ranges = calibrator.compute_data()        TensorsData: by activation, what is known of it

The model is augmented with outputs: the least and the greatest value of each activation (MinMax), or the activations themselves.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.enums import GraphOptimizationLevel
from sardonyx.errors import InvalidArgument, SardonyxError
from sardonyx.ir import tensor
from sardonyx.ir.builder import make_attr
from sardonyx.ir.graph import Model, Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.options import SessionOptions
from sardonyx.quantization import messages
from sardonyx.quantization.histograms import HistogramCollector, entropy, rel_entr
from sardonyx.quantization.models import opset_version, read_model, write_model
from sardonyx.quantization.tensors_data import (
    CalibrationCacheEncoder,
    TensorData,
    TensorsData,
    load_tensors_data,
    save_tensors_data,
)
from sardonyx.quantization.types import CalibrationMethod
from sardonyx.session.inference_session import InferenceSession

__all__ = [
    "CalibraterBase",
    "CalibrationCacheEncoder",
    "CalibrationDataReader",
    "CalibrationFeeds",
    "CalibrationMethod",
    "DistributionCalibrater",
    "EntropyCalibrater",
    "HistogramCalibrater",
    "HistogramCollector",
    "MinMaxCalibrater",
    "PercentileCalibrater",
    "TensorData",
    "TensorsData",
    "create_calibrator",
    "entropy",
    "load_tensors_data",
    "rel_entr",
    "save_tensors_data",
]
_CALIBRATED: Final = (dtypes.FLOAT32, dtypes.FLOAT16)
_CPU: Final = ("CPUExecutionProvider",)


class CalibrationDataReader(metaclass=abc.ABCMeta):
    """Gives the inputs a model is calibrated with, one feed after another; whatever has a `get_next` is one."""

    @classmethod
    def __subclasshook__(cls, subclass: type) -> Any:
        return callable(getattr(subclass, "get_next", None)) or NotImplemented

    @abc.abstractmethod
    def get_next(self) -> Any:
        """The next feed, a dictionary of arrays by input name; None at the end."""
        raise NotImplementedError

    def __iter__(self) -> CalibrationDataReader:
        return self

    def __next__(self) -> Any:
        feed = self.get_next()
        if feed is None:
            raise StopIteration
        return feed

    def __len__(self) -> int:
        raise NotImplementedError

    def set_range(self, start_index: int, end_index: int) -> None:
        """Give only the feeds of a range from now on."""
        raise NotImplementedError


class CalibrationFeeds(CalibrationDataReader):
    """A reader of feeds that are there already."""

    def __init__(self, feeds: Iterable[Mapping[str, Any]]) -> None:
        self.feeds = list(feeds)
        self._range = (0, len(self.feeds))
        self.rewind()

    def get_next(self) -> Any:
        """The next feed; None at the end."""
        return next(self._left, None)

    def rewind(self) -> None:
        """Begin again."""
        self._left = iter(self.feeds[slice(*self._range)])

    def __len__(self) -> int:
        return len(self.feeds)

    def set_range(self, start_index: int, end_index: int) -> None:
        """Give only the feeds of a range from now on."""
        self._range = (start_index, end_index)
        self.rewind()


class CalibraterBase:
    """Selects the activations of a model, and runs it with more outputs."""

    def __init__(
        self,
        model_path: str | Path,
        op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: str | Path = "augmented_model.onnx",
        symmetric: bool = False,
        use_external_data_format: bool = False,
        per_channel: bool = False,
    ) -> None:
        if not isinstance(model_path, (str, os.PathLike)):
            raise ValueError(f"model_path should be model path, not {type(model_path).__name__}.")
        self.augmented: Model = read_model(model_path)
        self.op_types_to_calibrate = op_types_to_calibrate
        self.augmented_model_path = augmented_model_path
        self.symmetric = symmetric
        self.use_external_data_format = use_external_data_format
        self.per_channel = per_channel
        self.infer_session: Any = None
        self.execution_providers: Sequence[str] = list(_CPU)
        self.model_original_outputs = {output.name for output in self.augmented.graph.outputs}
        self.num_model_outputs = len(self.augmented.graph.outputs)
        self.samples = 0  # how many feeds have been run

    @property
    def model(self) -> Any:
        """The model as an onnx.ModelProto: augmented, once `augment_graph` has been called."""
        return messages.to_message(self.augmented)

    def get_augment_model(self) -> Any:
        """The augmented model as an onnx.ModelProto."""
        return self.model

    def set_execution_providers(self, execution_providers: Sequence[str] = _CPU) -> None:
        """Run on other execution providers from now on."""
        self.execution_providers = list(execution_providers)
        self.create_inference_session()

    def create_inference_session(self) -> None:
        """Open the augmented model."""
        options = SessionOptions()
        options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
        self.infer_session = InferenceSession(
            os.fspath(self.augmented_model_path), sess_options=options, providers=list(self.execution_providers)
        )

    def calibrated_values(self) -> list[Value]:
        """The activations that operators of the chosen types read or give, of a type that can be quantized."""
        found: dict[Value, None] = {}
        for node in self.augmented.graph.nodes:
            if not self.op_types_to_calibrate or node.op_type in self.op_types_to_calibrate:
                for value in (*node.inputs, *node.outputs):
                    if value is not None and value.name and value.constant is None and _is_calibrated(value):
                        found[value] = None
        return list(found)

    def select_tensors_to_calibrate(self, model: Any = None) -> tuple[set[str], dict[str, Any]]:
        """The names of the activations to calibrate, and the types of all values by name."""
        graph = self.augmented.graph
        values = (*graph.inputs, *(value for node in graph.nodes for value in node.outputs))
        return {value.name for value in self.calibrated_values()}, {value.name: value.type for value in values}

    def augment_graph(self) -> None:
        """Add the outputs that calibration looks at, and write the model to `augmented_model_path`."""
        raise NotImplementedError

    def collect_data(self, data_reader: CalibrationDataReader) -> None:
        """Run the model on all feeds of a reader; may be called several times."""
        raise NotImplementedError

    def compute_data(self) -> TensorsData | None:
        """What is known of the activations by now."""
        raise NotImplementedError

    def _save(self) -> None:
        write_model(self.augmented, os.fspath(self.augmented_model_path), self.use_external_data_format)

    def _next(self, reader: CalibrationDataReader) -> dict[str, Any] | None:
        """The outputs of the next run, by name; None after the last."""
        feed = reader.get_next()
        if not feed:
            return None
        if self.infer_session is None:
            self.create_inference_session()
        context = f"calibration data, sample {self.samples}"
        if not isinstance(feed, Mapping):
            raise InvalidArgument(
                f"{context}: get_next() gave {type(feed).__name__}, expected a dictionary of arrays by input name"
            )
        names = [output.name for output in self.infer_session.get_outputs()]
        try:
            results = self.infer_session.run(None, dict(feed))
        except SardonyxError as error:
            raise InvalidArgument(
                f"{context} does not fit the model: {error.message}",
                hint=error.hint or "get_next() must give a dictionary with an array for each input of the model",
            ) from error
        self.samples += 1
        # An output that is fed as well may be the reader's own array, which it may use again.
        return {name: np.array(result) if name in feed else result for name, result in zip(names, results)}


def _is_calibrated(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype in _CALIBRATED


class MinMaxCalibrater(CalibraterBase):
    """The range of an activation is from the least to the greatest value that was seen, or a moving average of both."""

    def __init__(
        self,
        model_path: str | Path,
        op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: str | Path = "augmented_model.onnx",
        symmetric: bool = False,
        use_external_data_format: bool = False,
        moving_average: bool = False,
        averaging_constant: float = 0.01,
        max_intermediate_outputs: int | None = None,
        per_channel: bool = False,
    ) -> None:
        super().__init__(
            model_path, op_types_to_calibrate, augmented_model_path, symmetric, use_external_data_format, per_channel
        )
        if moving_average and not 0 <= averaging_constant <= 1:
            raise ValueError(f"averaging_constant is {averaging_constant}: expected a number from 0 to 1")
        self.moving_average = moving_average
        self.averaging_constant = averaging_constant
        self.max_intermediate_outputs = max_intermediate_outputs
        self.intermediate_outputs: list[dict[str, Any]] = []
        self.calibrate_tensors_range: TensorsData | None = None
        self._tensors: list[str] = []

    def augment_graph(self) -> None:
        """Add the least and the greatest value of each activation to the outputs."""
        graph = self.augmented.graph
        flat = graph.add_initializer("sardonyx_flat_shape", tensor.from_numpy(np.array([-1], np.int64)))
        version = opset_version(self.augmented)
        for value in self.calibrated_values():
            self._tensors.append(value.name)
            after = value.producer
            for operator in ("ReduceMin", "ReduceMax"):
                name = f"{value.name}_{operator}"
                reduced, result = Value(f"{name}_Reshape"), Value(name, TensorType(_dtype(value), None))
                inputs, attrs = [value], [make_attr("keepdims", 1)]  # an empty tensor may be reduced then
                if self.per_channel:
                    axes = [0, *range(2, len(value.shape or ()))]
                    if version < 18:
                        attrs.append(make_attr("axes", axes))
                    else:
                        inputs.append(graph.add_initializer(f"{name}_axes", tensor.from_numpy(np.array(axes, np.int64))))
                reduction = Node(operator, inputs, [reduced], attrs, version=version, name=name)
                reshape = Node("Reshape", [reduced, flat], [result], version=version, name=reduced.name)
                for node in (reduction, reshape):
                    if after is not None:
                        graph.insert_after(after, node)
                        after = node
                    else:
                        first = next(graph.nodes)
                        graph.insert_before(first, node)
                graph.outputs.append(result)
        self._save()

    def clear_collected_data(self) -> None:
        """Forget what has been collected since the last `compute_data`."""
        self.intermediate_outputs = []

    def collect_data(self, data_reader: CalibrationDataReader) -> None:
        """Run the model on all feeds of a reader; may be called several times."""
        while (outputs := self._next(data_reader)) is not None:
            self.intermediate_outputs.append({name: value for name, value in outputs.items() if name in self._names()})
            if len(self.intermediate_outputs) == self.max_intermediate_outputs:
                self.compute_data()
                self.clear_collected_data()
        if not self.intermediate_outputs and self.calibrate_tensors_range is None:
            raise ValueError("No data is collected.")
        self.compute_data()
        self.clear_collected_data()

    def _names(self) -> set[str]:
        return {f"{name}_{operator}" for name in self._tensors for operator in ("ReduceMin", "ReduceMax")}

    def merge_range(self, old_range: TensorsData | None, new_range: TensorsData) -> TensorsData:
        """The ranges of two sets of runs together."""
        if not old_range:
            return new_range
        merged: dict[str, TensorData] = {}
        for name, old in old_range.items():
            (old_low, old_high), (low, high) = old.range_value, new_range[name].range_value
            if self.moving_average:
                low = old_low + self.averaging_constant * (low - old_low)
                high = old_high + self.averaging_constant * (high - old_high)
            else:
                low, high = np.minimum(old_low, low), np.maximum(old_high, high)
            merged[name] = TensorData(lowest=low, highest=high)
        return TensorsData(CalibrationMethod.MinMax, merged)

    def compute_data(self) -> TensorsData | None:
        """The range of each activation."""
        if not self.intermediate_outputs:
            return self.calibrate_tensors_range
        pairs = {}
        for name in self._tensors:
            lows, highs = (
                np.stack([outputs[f"{name}_{operator}"] for outputs in self.intermediate_outputs])
                for operator in ("ReduceMin", "ReduceMax")
            )
            if self.moving_average:
                low, high = np.nanmean(lows, axis=0), np.nanmean(highs, axis=0)
            else:
                low, high = np.nanmin(lows, axis=0), np.nanmax(highs, axis=0)
            if self.symmetric:
                high = np.maximum(np.abs(low), np.abs(high))
                low = -high
            pairs[name] = (low, high)
        found = TensorsData(CalibrationMethod.MinMax, pairs)
        self.calibrate_tensors_range = self.merge_range(self.calibrate_tensors_range, found)
        return self.calibrate_tensors_range


def _dtype(value: Value) -> dtypes.DType:
    assert isinstance(value.type, TensorType)
    return value.type.dtype


class HistogramCalibrater(CalibraterBase):
    """The range of an activation follows from a histogram of its values."""

    calibration_method: CalibrationMethod | None = None

    def __init__(
        self,
        model_path: str | Path,
        op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: str | Path = "augmented_model.onnx",
        use_external_data_format: bool = False,
        method: str = "percentile",
        symmetric: bool = False,
        num_bins: int = 128,
        num_quantized_bins: int = 2048,
        percentile: float = 99.999,
        scenario: str = "same",
        max_intermediate_outputs: int | None = None,
    ) -> None:
        super().__init__(model_path, op_types_to_calibrate, augmented_model_path, symmetric, use_external_data_format)
        self.intermediate_outputs: list[dict[str, Any]] = []
        self.collector: HistogramCollector | None = None
        self.method = method
        self.num_bins = num_bins
        self.num_quantized_bins = num_quantized_bins
        self.percentile = percentile
        self.scenario = scenario
        self.max_intermediate_outputs = max_intermediate_outputs
        self.tensors_to_calibrate: set[str] = set()

    def augment_graph(self) -> None:
        """Add the activations to the outputs."""
        graph = self.augmented.graph
        values = self.calibrated_values()
        self.tensors_to_calibrate = {value.name for value in values}
        graph.outputs.extend(value for value in values if value not in graph.outputs)
        self._save()

    def clear_collected_data(self) -> None:
        """Forget what has been collected and is in no histogram yet."""
        self.intermediate_outputs = []

    def collect_data(self, data_reader: CalibrationDataReader) -> None:
        """Run the model on all feeds of a reader; may be called several times."""
        before = self.samples
        while (outputs := self._next(data_reader)) is not None:
            self.intermediate_outputs.append({name: outputs[name] for name in outputs if name in self.tensors_to_calibrate})
            if len(self.intermediate_outputs) == self.max_intermediate_outputs:
                self._gather()
        if self.samples == before:
            raise ValueError("No data is collected.")
        self._gather()

    def _gather(self) -> None:
        if self.collector is None:
            self.collector = HistogramCollector(
                self.method, self.symmetric, self.num_bins, self.num_quantized_bins, self.percentile, self.scenario
            )
        if self.intermediate_outputs:
            names = self.intermediate_outputs[0]
            self.collector.collect({name: [each[name] for each in self.intermediate_outputs] for name in names})
        self.clear_collected_data()

    def compute_data(self) -> TensorsData:
        """The range, or the statistics, of each activation."""
        if self.collector is None:
            raise ValueError("No collector created and can't generate calibration data.")
        if self.calibration_method is None:
            raise TypeError(f"Unknown calibrater {type(self)}. This method must be overwritten.")
        return TensorsData(self.calibration_method, self.collector.compute_collection_result())


class EntropyCalibrater(HistogramCalibrater):
    """Ranges that lose least, by relative entropy."""

    calibration_method = CalibrationMethod.Entropy

    def __init__(
        self,
        model_path: str | Path,
        op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: str | Path = "augmented_model.onnx",
        use_external_data_format: bool = False,
        method: str = "entropy",
        symmetric: bool = False,
        num_bins: int = 128,
        num_quantized_bins: int = 128,
        max_intermediate_outputs: int | None = None,
    ) -> None:
        super().__init__(
            model_path, op_types_to_calibrate, augmented_model_path, use_external_data_format, method, symmetric, num_bins,
            num_quantized_bins, max_intermediate_outputs=max_intermediate_outputs,
        )  # fmt: skip


class PercentileCalibrater(HistogramCalibrater):
    """Ranges that leave out the outermost values."""

    calibration_method = CalibrationMethod.Percentile

    def __init__(
        self,
        model_path: str | Path,
        op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: str | Path = "augmented_model.onnx",
        use_external_data_format: bool = False,
        method: str = "percentile",
        symmetric: bool = False,
        num_bins: int = 2048,
        percentile: float = 99.999,
        max_intermediate_outputs: int | None = None,
    ) -> None:
        super().__init__(
            model_path, op_types_to_calibrate, augmented_model_path, use_external_data_format, method, symmetric, num_bins,
            percentile=percentile, max_intermediate_outputs=max_intermediate_outputs,
        )  # fmt: skip


class DistributionCalibrater(HistogramCalibrater):
    """Averages and standard deviations, for float 8; `scenario` is "same" or "p3" (the values' cube roots are looked at)."""

    calibration_method = CalibrationMethod.Distribution

    def __init__(
        self,
        model_path: str | Path,
        op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: str | Path = "augmented_model.onnx",
        use_external_data_format: bool = False,
        method: str = "distribution",
        num_bins: int = 128,
        scenario: str = "same",
        max_intermediate_outputs: int | None = None,
    ) -> None:
        super().__init__(
            model_path, op_types_to_calibrate, augmented_model_path, use_external_data_format, method, num_bins=num_bins,
            scenario=scenario, max_intermediate_outputs=max_intermediate_outputs,
        )  # fmt: skip


_OPTIONS: Final[dict[CalibrationMethod, dict[str, Any]]] = {  # of `extra_options`, and their defaults
    CalibrationMethod.MinMax: {
        "symmetric": False,
        "moving_average": False,
        "averaging_constant": 0.01,
        "max_intermediate_outputs": None,
        "per_channel": False,
    },
    CalibrationMethod.Entropy: {
        "num_bins": 128,
        "num_quantized_bins": 128,
        "symmetric": False,
        "max_intermediate_outputs": None,
    },
    CalibrationMethod.Percentile: {
        "num_bins": 2048,
        "percentile": 99.999,
        "symmetric": True,
        "max_intermediate_outputs": None,
    },
    CalibrationMethod.Distribution: {"num_bins": 2048, "scenario": "same", "max_intermediate_outputs": None},
}
_CLASSES: Final[dict[CalibrationMethod, Any]] = {
    CalibrationMethod.MinMax: MinMaxCalibrater,
    CalibrationMethod.Entropy: EntropyCalibrater,
    CalibrationMethod.Percentile: PercentileCalibrater,
    CalibrationMethod.Distribution: DistributionCalibrater,
}
_KNOWN_OPTIONS: Final = frozenset(name for options in _OPTIONS.values() for name in options)


def create_calibrator(
    model: str | Path,
    op_types_to_calibrate: Sequence[str] | None = None,
    augmented_model_path: str | Path = "augmented_model.onnx",
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    use_external_data_format: bool = False,
    providers: Iterable[str] | None = None,
    extra_options: Mapping[str, Any] | None = None,
) -> Any:
    """A calibrator that is ready to collect data. Options of other methods than the chosen one have no effect."""
    given = dict(extra_options or {})
    if calibrate_method not in _CLASSES:
        raise ValueError(f"Unsupported calibration method {calibrate_method}")
    unknown = sorted(set(given) - _KNOWN_OPTIONS)
    if unknown:
        raise ValueError(f"extra_options: there is no calibration option {unknown[0]!r}; there are {sorted(_KNOWN_OPTIONS)}")
    chosen = {name: default if given.get(name) is None else given[name] for name, default in _OPTIONS[calibrate_method].items()}
    calibrator = _CLASSES[calibrate_method](
        model,
        op_types_to_calibrate,
        augmented_model_path,
        use_external_data_format=use_external_data_format,
        **chosen,
    )
    calibrator.augment_graph()
    if providers:
        calibrator.execution_providers = list(providers)
    calibrator.create_inference_session()
    return calibrator
