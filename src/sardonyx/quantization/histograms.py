"""Histograms of activations, and the ranges that follow from them.

    entropy        the range whose 128 bins tell least less than the histogram itself (Kullback-Leibler divergence)
    percentile     what is left when the outermost numbers are cut off
    distribution   average and standard deviation, for float 8

A histogram is kept per tensor: counts, edges, least and greatest value (and, for numbers of both signs, the outermost edge).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sardonyx import errors
from sardonyx.quantization.tensors_data import TensorData

Array = NDArray[Any]


def rel_entr(pk: Array, qk: Array) -> Array:
    """p * log(p / q) by element; infinite where one of them is not positive."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = pk * np.log(pk / qk)
    return np.where((pk > 0) & (qk > 0), terms, np.inf).astype(pk.dtype)


def entropy(pk: Any, qk: Any, base: float | None = None, axis: int = 0) -> Array:
    """The relative entropy of two distributions, which need not add up to 1."""
    if base is not None and base <= 0:
        raise ValueError(f"base={base} must be a positive number or `None`.")
    p = np.asarray(pk, np.float32)
    p, q = np.broadcast_arrays(p / p.sum(axis=axis, keepdims=True), np.asarray(qk, np.float32))
    found = rel_entr(p, q / q.sum(axis=axis, keepdims=True)).sum(axis=axis)
    return np.asarray(found if base is None else found / np.log(base)).astype(np.float32)


def smooth_distribution(p: Array, eps: float = 0.0001) -> Array | None:
    """A histogram without empty bins: each gets `eps`, which the others give; None if all are empty."""
    empty = p == 0
    count = int(empty.sum())
    if count == p.size:
        return None
    given = eps * count / (p.size - count)
    if given >= 1.0:
        raise AssertionError(f"n_zeros={count}, n_nonzeros={p.size - count}, eps1={given}")
    smooth = np.where(empty, np.float32(eps), p.astype(np.float32) - np.float32(given)).astype(np.float32)
    if (smooth <= 0).any():
        raise AssertionError("a bin with a count below 1 cannot give to empty ones")
    return smooth


class HistogramCollector:
    """Gathers histograms, and finds ranges by one of the methods."""

    def __init__(
        self, method: str, symmetric: bool, num_bins: int, num_quantized_bins: int, percentile: float, scenario: str
    ) -> None:
        if method not in ("entropy", "percentile", "distribution"):
            raise ValueError(f"method is {method!r}: Only 'entropy', 'percentile' or 'distribution' methods are supported")
        self.histogram_dict: dict[str, tuple[Any, ...]] = {}
        self.method = method
        self.symmetric = symmetric
        self.num_bins = num_bins
        self.num_quantized_bins = num_quantized_bins
        self.percentile = percentile
        self.scenario = scenario

    def get_histogram_dict(self) -> dict[str, tuple[Any, ...]]:
        """The histograms by tensor."""
        return self.histogram_dict

    def collect(self, name_to_arr: Mapping[str, Any]) -> None:
        """Add arrays (or lists of arrays) to the histograms of tensors."""
        by_magnitude = self.method == "percentile" and self.symmetric
        for name, given in name_to_arr.items():
            arrays = given if isinstance(given, list) else [given]
            types = {np.asarray(each).dtype for each in arrays}
            if len(types) > 1:
                raise ValueError(f"tensor {name!r} has several element types: {sorted(map(str, types))}")
            data = np.concatenate([np.asarray(each).reshape(-1) for each in arrays])
            (self._add_magnitudes if by_magnitude else self._add)(name, data)

    def collect_absolute_value(self, name_to_arr: Mapping[str, Any]) -> None:
        """Add arrays to histograms of absolute values."""
        for name, given in name_to_arr.items():
            self._add_magnitudes(name, np.asarray(given).reshape(-1))

    def collect_value(self, name_to_arr: Mapping[str, Any]) -> None:
        """Add arrays to histograms of values of both signs."""
        for name, given in name_to_arr.items():
            self._add(name, np.asarray(given).reshape(-1))

    def _add_magnitudes(self, name: str, data: Array) -> None:
        low, high = _limits(name, data)
        magnitudes = np.absolute(data)
        if name not in self.histogram_dict:
            counts, edges = np.histogram(magnitudes, bins=self.num_bins)
            self.histogram_dict[name] = (counts, edges.astype(data.dtype), low, high)
            return
        old_counts, edges, old_low, old_high = self.histogram_dict[name]
        greatest = np.nanmax(magnitudes) if magnitudes.size else edges[-1]
        if greatest > edges[-1]:
            width = edges[1] - edges[0]
            edges = np.hstack((edges, np.arange(edges[-1] + width, greatest + width, width)))
        counts, edges = np.histogram(magnitudes, bins=edges)
        counts[: len(old_counts)] += old_counts
        self.histogram_dict[name] = (counts, edges.astype(data.dtype), min(old_low, low), max(old_high, high))

    def _add(self, name: str, data: Array) -> None:
        low, high = _limits(name, data)
        reach = np.array(max(abs(low), abs(high)), data.dtype)
        if name in self.histogram_dict:
            self.histogram_dict[name] = self.merge_histogram(self.histogram_dict[name], data, low, high, reach)
        else:
            counts, edges = np.histogram(data, self.num_bins, range=(-reach, reach))  # type: ignore[arg-type]
            self.histogram_dict[name] = (counts, edges, low, high, reach)

    def merge_histogram(
        self, old_histogram: tuple[Any, ...], data_arr: Array, new_min: Any, new_max: Any, new_threshold: Any
    ) -> tuple[Any, ...]:
        """A histogram with more data in it: of the same bins, or with more of them on both sides."""
        old, old_edges, old_min, old_max, old_reach = old_histogram
        limits = min(old_min, new_min), max(old_max, new_max)
        if new_threshold <= old_reach:
            counts, _ = np.histogram(data_arr, len(old), range=(-old_reach, old_reach))
            return (counts + old, old_edges, *limits, old_reach)
        if old_reach == 0:
            counts, edges = np.histogram(data_arr, len(old), range=(-new_threshold, new_threshold))
            return (counts + old, edges, *limits, new_threshold)
        width = 2 * old_reach / len(old)
        more = int((new_threshold - old_reach) // width + 1)
        reach = more * width + old_reach
        counts, edges = np.histogram(data_arr, len(old) + 2 * more, range=(-reach, reach))
        counts[more : len(old) + more] += old
        return (counts, edges, *limits, reach)

    def compute_collection_result(self) -> dict[str, Any]:
        """The range or the statistics of each tensor."""
        if not self.histogram_dict:
            raise ValueError("Histogram has not been collected. Please run collect() first.")
        if self.method == "entropy":
            return self.compute_entropy()
        return self.compute_percentile() if self.method == "percentile" else self.compute_distribution()

    def compute_percentile(self) -> dict[str, Any]:
        """The range that is left of each tensor when the outermost numbers are cut off."""
        if not 0 <= self.percentile <= 100:
            raise ValueError(f"percentile is {self.percentile}. Invalid percentile. Must be in range 0 <= percentile <= 100.")
        found = {}
        for name, (counts, edges, low, high, *_) in self.histogram_dict.items():
            shares = np.cumsum(counts / counts.sum())
            if self.symmetric:
                greatest = edges[np.searchsorted(shares, self.percentile / 100.0)]
                least = -greatest
            else:
                cut = (100.0 - self.percentile) / 200.0
                least, greatest = edges[np.searchsorted(shares, cut)], edges[np.searchsorted(shares, 1.0 - cut)]
            least, greatest = np.array(least, edges.dtype), np.array(greatest, edges.dtype)
            found[name] = (*_within(least, greatest, low, high), *counts[:2])
        return found

    def compute_entropy(self) -> dict[str, Any]:
        """The range of each tensor that loses least."""
        return {
            name: (*self.get_entropy_threshold(histogram, self.num_quantized_bins), *histogram[:2])
            for name, histogram in self.histogram_dict.items()
        }

    def compute_distribution(self) -> dict[str, Any]:
        """Average and standard deviation of each tensor."""
        if self.num_bins < 512:
            raise ValueError(f"num_bins is {self.num_bins}. Invalid num_bins. Must be in range 512 <= num_bins.")
        if self.scenario not in ("same", "p3"):
            raise ValueError(f"scenario is {self.scenario!r}. Invalid scenario. Must be in {{'same', 'p3'}}.")
        power = 1.0 if self.scenario == "same" else 1.0 / 3.0
        found = {}
        for name, (counts, edges, *_) in self.histogram_dict.items():
            average, deviation = _moments(counts, edges, power)
            found[name] = TensorData(
                avg=average, std=deviation, hist=counts, hist_edges=edges, lowest=edges.min(), highest=edges.max()
            )
        return found

    def get_entropy_threshold(self, histogram: tuple[Any, ...], num_quantized_bins: int) -> tuple[Any, Any]:
        """The range around zero for which so many bins tell least less than the histogram.

        |......|===========+===========|......|      the bins within a candidate; those outside are added to its outermost
             start        zero        end
        """
        counts, edges, low, high = histogram[:4]
        size, middle, half = counts.size, counts.size // 2, num_quantized_bins // 2
        dtype = edges.dtype
        best, chosen = np.inf, (np.array(0, dtype), np.array(0, dtype))
        before = np.concatenate(([0], np.cumsum(counts)))
        for reach in range(half, middle + 1):
            start, end = middle - reach, min(middle + reach + 1, size)
            part = counts[start:end]
            candidate = part.copy()
            candidate[0] += before[start]
            candidate[-1] += before[size] - before[end]
            smooth, coarse = (
                smooth_distribution(candidate),
                smooth_distribution(_coarse(part, candidate != 0, num_quantized_bins)),
            )
            divergence = np.inf if smooth is None or coarse is None else float(np.array(entropy(smooth, coarse), dtype))
            if divergence < best or reach == half:
                best, chosen = divergence, (edges[start], edges[end])
        return _within(*chosen, low, high)


def _limits(name: str, data: Array) -> tuple[Any, Any]:
    if not data.size:
        return np.array(0, data.dtype), np.array(0, data.dtype)
    low, high = np.fmin.reduce(data), np.fmax.reduce(data)  # NaN, if nothing else is there
    if not (np.isfinite(low) and np.isfinite(high)):
        raise errors.InvalidArgument(
            f"calibration data: the values of tensor {name!r} are from {low} to {high}, which is no range for a histogram",
            hint="look at the samples, or calibrate with CalibrationMethod.MinMax, which leaves such tensors as they are",
        )
    return low, high


def _within(least: Any, greatest: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """A range cut to what was seen."""
    return (low if least < low else least), (high if greatest > high else greatest)


def _coarse(part: Array, filled: Array, bins: int) -> Array:
    """A histogram with few bins, spread again over those of the fine one that were not empty."""
    width = part.size // bins
    inner = bins * width
    sums = part[:inner].reshape(bins, width).sum(axis=1)
    sums[-1] += part[inner:].sum()
    holders = filled[:inner].reshape(bins, width).sum(axis=1)
    shares = np.divide(sums, holders, out=np.zeros(bins), where=holders != 0).astype(np.int64)
    result = np.zeros(part.size, np.int64)
    result[:inner] = np.repeat(shares, width)
    return result


def _moments(counts: Array, edges: Array, power: float) -> tuple[Array, Array]:
    """Average and standard deviation of the values of a histogram, raised to a power with their sign kept."""
    values = (edges[:-1] + edges[1:]) * 0.5
    if power != 1:
        values = np.abs(values) ** power * np.where(values < 0, -1.0, 1.0)
    total = counts.sum()
    average = (counts * values).sum() / total
    deviation = ((counts * values**2).sum() / total - average**2) ** 0.5
    return np.array(average, edges.dtype), np.array(deviation, edges.dtype)
