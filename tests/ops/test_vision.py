"""RoiAlign, NonMaxSuppression and the decoders of images."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_case import Array, by_onnxruntime, f32, i64, known_shape, random_array, run, seeds
from PIL import Image

from sardonyx.ir.dims import DimExpr
from sardonyx.ops.sampling import image_formats
from sardonyx.ops.sampling.image_formats import DamagedImage, decode

quick = settings(max_examples=25, deadline=None)


@quick
@given(
    seed=seeds, mode=st.sampled_from(["avg", "max"]), ratio=st.integers(0, 3), scale=st.sampled_from([1.0, 0.5]),
    coordinates=st.sampled_from(["half_pixel", "output_half_pixel"]),
)  # fmt: skip
def test_roi_align_is_onnxruntimes(seed: int, mode: str, ratio: int, scale: float, coordinates: str) -> None:
    rng = np.random.default_rng(seed)
    x = random_array(seed, (2, 3, 8, 7), np.float32, special=False)
    rois = np.sort(rng.uniform(-3, 12 / scale, (4, 2, 2)), axis=1).reshape(4, 4).astype(np.float32)
    indices = rng.integers(0, 2, 4)
    attrs: dict[str, Any] = {
        "mode": mode, "output_height": 3, "output_width": 2, "sampling_ratio": ratio, "spatial_scale": scale,
        "coordinate_transformation_mode": coordinates,
    }  # fmt: skip
    (expected,) = by_onnxruntime("RoiAlign", x, rois, indices, like=[x], version=16, **attrs)
    np.testing.assert_allclose(run("RoiAlign", x, rois, indices, **attrs), expected, rtol=1e-3, atol=1e-3)


def test_roi_align_before_opset_16_does_not_shift_by_half_a_pixel() -> None:
    x = random_array(1, (1, 1, 6, 6), np.float32, special=False)
    rois = np.array([[1, 1, 4, 5]], np.float32)
    old = run("RoiAlign", x, rois, i64(0), version=10, output_height=2, output_width=2)
    new = run("RoiAlign", x, rois, i64(0), output_height=2, output_width=2, coordinate_transformation_mode="output_half_pixel")
    np.testing.assert_array_equal(old, new)


def test_roi_align_without_regions_is_empty_and_a_wrong_image_is_named() -> None:
    x = np.zeros((1, 2, 4, 4), np.float32)
    assert run("RoiAlign", x, np.zeros((0, 4), np.float32), i64(), output_height=3).shape == (0, 2, 3, 1)
    with pytest.raises(IndexError, match="batch_indices has values from 1 to 1, but X has 1 images"):
        run("RoiAlign", x, np.zeros((1, 4), np.float32), i64(1))


@quick
@given(
    seed=seeds, center=st.integers(0, 1), most=st.integers(0, 5), overlap=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    least=st.sampled_from([None, 0.0, 0.4]),
)  # fmt: skip
def test_non_max_suppression_is_onnxruntimes(seed: int, center: int, most: int, overlap: float, least: float | None) -> None:
    rng = np.random.default_rng(seed)
    boxes, scores = rng.random((2, 12, 4)).astype(np.float32), rng.random((2, 3, 12)).astype(np.float32)
    inputs = (i64(most), np.array([overlap], np.float32), None if least is None else np.array([least], np.float32))
    (expected,) = by_onnxruntime("NonMaxSuppression", boxes, scores, *inputs, like=[i64()], center_point_box=center)
    np.testing.assert_array_equal(run("NonMaxSuppression", boxes, scores, *inputs, center_point_box=center), expected)


def test_many_boxes_are_suppressed_in_blocks_as_in_one() -> None:
    rng = np.random.default_rng(5)
    boxes = rng.uniform(0, 10, (1, 500, 4)).astype(np.float32)
    scores = rng.random((1, 2, 500)).astype(np.float32)
    inputs = (i64(400), np.array([0.2], np.float32))
    (expected,) = by_onnxruntime("NonMaxSuppression", boxes, scores, *inputs, like=[i64()])
    assert len(expected) > 64
    np.testing.assert_array_equal(run("NonMaxSuppression", boxes, scores, *inputs), expected)


def test_equal_scores_are_taken_in_order_and_a_box_without_area_overlaps_nothing() -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 1], [0.5, 0.5, 0.5, 0.5]]], np.float32)
    scores = np.ones((1, 1, 3), np.float32)
    chosen = run("NonMaxSuppression", boxes, scores, i64(9), np.array([0.0], np.float32))
    assert chosen.tolist() == [[0, 0, 0], [0, 0, 2]]


def test_no_boxes_are_selected_without_a_limit_or_without_boxes() -> None:
    boxes, scores = np.zeros((1, 2, 4), np.float32), np.ones((1, 1, 2), np.float32)
    assert run("NonMaxSuppression", boxes, scores).shape == (0, 3)
    assert run("NonMaxSuppression", boxes[:, :0], scores[:, :, :0], i64(3)).shape == (0, 3)
    with pytest.raises(ValueError, match=r"iou_threshold is 2\.0, expected 0 to 1"):
        run("NonMaxSuppression", boxes, scores, i64(1), np.array([2.0], np.float32))


def test_the_number_of_selected_boxes_is_unknown() -> None:
    count, width = known_shape("NonMaxSuppression", [f32("N", 4, 4), f32("N", 1, 4)])
    assert isinstance(count, DimExpr)
    assert width == 3


def encoded(picture: Image.Image, kind: str, **options: Any) -> Array:
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return np.frombuffer(stream.getvalue(), np.uint8)


PICTURES = {
    "RGB": Image.fromarray(np.random.default_rng(1).integers(0, 256, (13, 9, 3)).astype(np.uint8)),
    "L": Image.fromarray(np.random.default_rng(2).integers(0, 256, (7, 11)).astype(np.uint8)),
    "RGBA": Image.fromarray(np.random.default_rng(3).integers(0, 256, (5, 6, 4)).astype(np.uint8)),
    "smooth": Image.fromarray((np.add.outer(np.arange(40), np.arange(30))[:, :, None] * [1, 2, 3]).astype(np.uint8)),
}
PICTURES["P"] = PICTURES["RGB"].quantize(16)
PICTURES["1"] = PICTURES["L"].convert("1")


@pytest.mark.parametrize("kind", ["PNG", "BMP", "PPM", "TIFF", "WEBP"])
@pytest.mark.parametrize("name", PICTURES)
def test_every_format_gives_the_pixels_that_were_written(kind: str, name: str) -> None:
    if (kind, name) in {("PPM", "RGBA"), ("PPM", "P")}:
        pytest.skip("the format has no such pictures")
    picture = PICTURES[name]
    data = encoded(picture, kind, lossless=True) if kind == "WEBP" else encoded(picture, kind)
    expected = np.array(Image.open(io.BytesIO(data.tobytes())).convert("RGB"))
    np.testing.assert_array_equal(run("ImageDecoder", data), expected)
    np.testing.assert_array_equal(run("ImageDecoder", data, pixel_format="BGR"), expected[:, :, ::-1])
    grey = np.array(Image.fromarray(expected).convert("L"))[:, :, None]
    np.testing.assert_array_equal(run("ImageDecoder", data, pixel_format="Grayscale"), grey)


@pytest.mark.parametrize(
    ("text", "pixels"),
    [
        (b"P1\n# a comment\n3 1\n1 0 1\n", [[0, 255, 0]]),
        (b"P2 2 2 15 0 15 3 9", [[0, 255], [51, 153]]),
        (b"P5 2 1 65535\n\xff\xff\x00\x00", [[255, 0]]),
        (b"P4 9 1\n\x80\x80", [[0, 255, 255, 255, 255, 255, 255, 255, 0]]),
    ],
)
def test_plain_and_odd_bitmaps_are_read(text: bytes, pixels: Any) -> None:
    assert decode(text)[:, :, 0].tolist() == pixels


def test_the_upper_half_of_16_bits_is_kept() -> None:
    sixteen = Image.fromarray(np.arange(0, 65536, 4096, dtype=np.uint16).reshape(4, 4))
    assert decode(encoded(sixteen, "PNG").tobytes())[:, :, 0].tolist() == (np.arange(16).reshape(4, 4) * 16).tolist()


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


@pytest.mark.parametrize(("height", "width"), [(1, 1), (3, 2), (9, 13)])
def test_an_interlaced_png_is_put_together(height: int, width: int) -> None:
    pixels = np.random.default_rng(4).integers(0, 256, (height, width, 3)).astype(np.uint8)
    rows = b""
    for top, left, down, right in image_formats.ADAM7:
        part = pixels[top::down, left::right]
        if part.size:
            rows += b"".join(b"\0" + line.tobytes() for line in part)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 1)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    np.testing.assert_array_equal(decode(data), pixels)
    np.testing.assert_array_equal(np.array(Image.open(io.BytesIO(data))), pixels)


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(["PNG", "BMP", "PPM"]), cut=st.integers(3, 200), flip=st.integers(8, 60), value=st.integers(0, 255))
def test_damaged_pictures_become_empty_images_or_noise_but_never_crash(kind: str, cut: int, flip: int, value: int) -> None:
    data = encoded(PICTURES["RGB"], kind).copy()
    data[flip % data.size] = value
    for broken in (data, data[:cut]):
        assert run("ImageDecoder", broken).shape[2] == 3


def test_a_picture_of_a_million_million_pixels_is_refused() -> None:
    with pytest.raises(DamagedImage, match="the image claims a size of 1000000 x 1000000 pixels"):
        decode(b"P5 1000000 1000000 255\n")
    assert run("ImageDecoder", np.frombuffer(b"P5 1000000 1000000 255\n", np.uint8)).shape == (0, 0, 3)


def test_without_pillow_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(ValueError, match="not BMP, PNG or PNM; other formats need the package pillow"):
        image_formats.decode(b"\xff\xd8\xff\xe0 a jpeg")
