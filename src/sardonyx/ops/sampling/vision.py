"""Detection and pictures: RoiAlign, NonMaxSuppression, ImageDecoder."""

from __future__ import annotations

from typing import Final

import numpy as np

from sardonyx.ir import dims
from sardonyx.ir.tensor import Array
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.interruption import stop_if_asked
from sardonyx.ops.precision import narrow, widen
from sardonyx.ops.sampling.image_formats import DamagedImage, decode


def _roi_align(
    x: Array,
    rois: Array,
    batch_indices: Array,
    *,
    coordinate_transformation_mode: str | None,
    mode: str,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
) -> Array:
    if x.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 4 or batch_indices.shape != rois.shape[:1]:
        shapes = f"{x.shape}, {rois.shape} and {batch_indices.shape}"
        raise ValueError(f"X, rois and batch_indices have the shapes {shapes}, expected (N, C, H, W), (R, 4) and (R,)")
    if mode not in ("avg", "max"):
        raise ValueError(f"mode is {mode!r}, expected avg or max")
    half_pixel = coordinate_transformation_mode == "half_pixel"  # opset 10 had no such choice and no shift
    wide = widen(x)
    corners = widen(rois) * np.float32(spatial_scale) - np.float32(0.5 if half_pixel else 0.0)
    images = batch_indices.astype(np.int64)
    if images.size and not (images.min() >= 0 and images.max() < x.shape[0]):
        raise IndexError(f"batch_indices has values from {images.min()} to {images.max()}, but X has {x.shape[0]} images")
    result = np.zeros((rois.shape[0], x.shape[1], output_height, output_width), wide.dtype)
    pixels = np.ascontiguousarray(wide.transpose(0, 2, 3, 1))  # what is gathered for one position lies together
    with np.errstate(all="ignore"):
        for number, (left, top, right, bottom) in enumerate(corners):
            height, width = bottom - top, right - left
            if not half_pixel:
                height, width = max(height, height.dtype.type(1)), max(width, width.dtype.type(1))
            rows = _RoiAxis(top, height, output_height, sampling_ratio, x.shape[2])
            columns = _RoiAxis(left, width, output_width, sampling_ratio, x.shape[3])
            if rows.samples < 1 or columns.samples < 1:
                continue
            bins = (output_height, rows.samples, output_width, columns.samples, x.shape[1])
            if mode == "avg":
                pooled = _blended(pixels[images[number]], rows, columns).reshape(bins).mean(axis=(1, 3))
            else:
                pooled = _largest_share(pixels[images[number]], rows, columns).reshape(bins).max(axis=(1, 3))
            result[number] = pooled.transpose(2, 0, 1)
    return narrow(result, x.dtype)


class _RoiAxis:
    """One side of a region: the elements on both sides of every sampling point, and what each of them weighs."""

    def __init__(self, start: np.floating, length: np.floating, bins: int, sampling_ratio: int, size: int) -> None:
        width = length / bins
        self.samples = sampling_ratio if sampling_ratio > 0 else int(np.ceil(width)) if np.isfinite(width) else 0
        if self.samples < 1:
            return
        if self.samples > _MOST_SAMPLES:
            raise ValueError(f"a region of size {length} in {bins} bins asks for {self.samples} samples each: set sampling_ratio")
        inner = (np.arange(self.samples) + 0.5) * (width / self.samples)
        points = (start + np.arange(bins)[:, None] * width + inner).reshape(-1).astype(length.dtype)
        outside = ~((points >= -1) & (points <= size))
        points = np.clip(np.where(outside, 0, points), 0, size - 1)
        self.low = points.astype(np.int64)
        self.high = np.minimum(self.low + 1, size - 1)
        share = points - self.low
        self.low_weight = np.where(outside, 0, 1 - share).astype(length.dtype)
        self.high_weight = np.where(outside, 0, share).astype(length.dtype)


def _blended(image: Array, rows: _RoiAxis, columns: _RoiAxis) -> Array:
    """The image [height, width, channels] at all sampling points."""
    left = int(columns.low.min())
    touched = image[:, left : int(columns.high.max()) + 1]
    lines = touched.take(rows.low, axis=0)
    lines *= rows.low_weight[:, None, None]
    lines += touched.take(rows.high, axis=0) * rows.high_weight[:, None, None]
    result = lines.take(columns.low - left, axis=1)
    result *= columns.low_weight[:, None]
    result += lines.take(columns.high - left, axis=1) * columns.high_weight[:, None]
    return result


def _largest_share(image: Array, rows: _RoiAxis, columns: _RoiAxis) -> Array:
    """At each sampling point the largest of the four neighbours' weighted values: what RoiAlign's max mode compares."""
    parts = [
        image[row[:, None], column] * (row_weight[:, None] * column_weight)[:, :, None]
        for row, row_weight in ((rows.low, rows.low_weight), (rows.high, rows.high_weight))
        for column, column_weight in ((columns.low, columns.low_weight), (columns.high, columns.high_weight))
    ]
    return np.asarray(np.maximum.reduce(parts))


def _infer_roi_align(ctx: InferContext) -> InferResult:
    x, rois, indices = ctx.shape(0, rank=4), ctx.shape(1, rank=2), ctx.shape(2, rank=1)
    regions = rois[0] if rois is not None else indices[0] if indices is not None else ctx.fresh()
    ctx.expect_shape(1, regions, 4)
    ctx.expect_shape(2, regions)
    return (regions, ctx.fresh() if x is None else x[1], ctx.attr("output_height"), ctx.attr("output_width"))


ROI_ALIGN = op("RoiAlign", eval=_roi_align, infer=_infer_roi_align, since=10, traits=Trait.REFUSES)


_MOST_SAMPLES: Final = 1 << 14  # of one bin along one axis: each takes a row of the image, and more are in no picture
_CANDIDATES: Final = 64  # boxes compared at a time


def _overlapping(a: Array, b: Array, threshold: np.float32) -> tuple[Array, Array]:
    """The pairs of a box of `a` and one of `b` (both [4, boxes]) whose intersection over union exceeds the threshold."""
    low, high = np.maximum(a[:2, :, None], b[:2, None]), np.minimum(a[2:, :, None], b[2:, None])
    touching = high > low
    rows, columns = np.nonzero(touching[0] & touching[1])  # few: what follows looks at these only
    sides = high[:, rows, columns] - low[:, rows, columns]
    shared = sides[0] * sides[1]
    union = _areas(a)[rows] + _areas(b)[columns] - shared
    beyond = (union > 0) & (shared / union > threshold)
    return rows[beyond], columns[beyond]


def _areas(boxes: Array) -> Array:
    return np.asarray(np.maximum(boxes[2] - boxes[0], 0) * np.maximum(boxes[3] - boxes[1], 0))


def select_boxes(corners: Array, order: Array, iou_threshold: float, most: int) -> list[int]:
    """Greedy suppression: the boxes of `order` (best first) that overlap no box selected before by more than the threshold.

    `corners` is [boxes, 4] with the smaller coordinates first.
    """
    selected: list[int] = []
    threshold = np.float32(iou_threshold)
    ordered = np.ascontiguousarray(corners[order].T)
    chosen = np.empty_like(ordered)
    for start in range(0, len(order), _CANDIDATES):
        stop_if_asked()
        candidates = np.arange(start, min(start + _CANDIDATES, len(order)))
        if selected:
            lost, _ = _overlapping(ordered[:, candidates], chosen[:, : len(selected)], threshold)
            candidates = np.delete(candidates, lost)
        boxes = ordered[:, candidates]
        suppressed = np.zeros((len(candidates), len(candidates)), np.bool_)
        suppressed[_overlapping(boxes, boxes, threshold)] = True
        gone = np.zeros(len(candidates), np.bool_)
        for position, candidate in enumerate(candidates):
            if not gone[position]:
                chosen[:, len(selected)] = ordered[:, candidate]
                selected.append(int(order[candidate]))
                if len(selected) == most:
                    return selected
                gone |= suppressed[position]
    return selected


def _non_max_suppression(
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Array | None = None,
    iou_threshold: Array | None = None,
    score_threshold: Array | None = None,
    *,
    center_point_box: int,
) -> Array:
    if boxes.ndim != 3 or boxes.shape[2] != 4 or scores.ndim != 3 or (scores.shape[0], scores.shape[2]) != boxes.shape[:2]:
        raise ValueError(
            f"boxes of shape {boxes.shape} and scores of shape {scores.shape}: expected (N, B, 4) and (N, classes, B)"
        )
    most = 0 if max_output_boxes_per_class is None else int(max_output_boxes_per_class.reshape(-1)[0])
    overlap = 0.0 if iou_threshold is None else float(iou_threshold.reshape(-1)[0])
    if not 0.0 <= overlap <= 1.0:
        raise ValueError(f"iou_threshold is {overlap}, expected 0 to 1")
    least = None if score_threshold is None else np.float32(score_threshold.reshape(-1)[0])
    corners = box_corners(boxes, bool(center_point_box))
    found: list[tuple[int, int, int]] = []
    with np.errstate(all="ignore"):
        for image in range(boxes.shape[0] if most > 0 else 0):
            for kind in range(scores.shape[1]):
                score = scores[image, kind]
                candidates = np.arange(score.size) if least is None else np.flatnonzero(score > least)
                order = candidates[np.argsort(-score[candidates], kind="stable")]
                found.extend((image, kind, box) for box in select_boxes(corners[image], order, overlap, most))
    return np.array(found, np.int64).reshape(-1, 3)


def box_corners(boxes: Array, center_point_box: bool) -> Array:
    """Boxes as [.., 4]: two corners, the smaller coordinates first. They come as two opposite corners, or as centre and size."""
    if center_point_box:
        centre, half = boxes[..., :2], boxes[..., 2:] / 2
        return np.concatenate((centre - half, centre + half), axis=-1)
    return np.concatenate((np.minimum(boxes[..., :2], boxes[..., 2:]), np.maximum(boxes[..., :2], boxes[..., 2:])), axis=-1)


def _infer_non_max_suppression(ctx: InferContext) -> InferResult:
    boxes, scores = ctx.shape(0, rank=3), ctx.shape(1, rank=3)
    if boxes is not None and scores is not None:
        ctx.expect_shape(0, scores[0], scores[2], 4)
    for index in (2, 3, 4):
        ctx.expect_equal(dims.product((ctx.shape(index) if ctx.has(index) else None) or ()), 1)
    return (ctx.fresh("selected"), 3)


NON_MAX_SUPPRESSION = op("NonMaxSuppression", eval=_non_max_suppression, infer=_infer_non_max_suppression, since=10)


def _image_decoder(encoded_stream: Array, *, pixel_format: str) -> Array:
    if pixel_format not in ("RGB", "BGR", "Grayscale"):
        raise ValueError(f"pixel_format is {pixel_format!r}, expected RGB, BGR or Grayscale")
    try:
        pixels = decode(np.ascontiguousarray(encoded_stream).tobytes())
    except DamagedImage:  # the operator answers what it cannot decode with an empty image
        return np.zeros((0, 0, 1 if pixel_format == "Grayscale" else 3), np.uint8)
    if pixel_format == "Grayscale":
        if pixels.shape[2] == 1:
            return pixels
        # The weights of ITU-R 601 in 16 bits, as other decoders have them.
        luma = pixels.astype(np.uint32) @ np.array([19595, 38470, 7471], np.uint32)
        return ((luma + 0x8000) >> 16).astype(np.uint8)[:, :, None]
    colours = np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels
    return np.ascontiguousarray(colours[:, :, ::-1]) if pixel_format == "BGR" else colours


def _infer_image_decoder(ctx: InferContext) -> InferResult:
    return (ctx.fresh("height"), ctx.fresh("width"), 1 if ctx.attr("pixel_format") == "Grayscale" else 3)


IMAGE_DECODER = op("ImageDecoder", eval=_image_decoder, infer=_infer_image_decoder, since=20)
