"""RoiAlign; it means what `ops/sampling/vision.py` says."""

from __future__ import annotations

from typing import Final

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, dim_max
from sardonyx.ir.graph import Node
from sardonyx.kernel.expr import index, load, select
from sardonyx.kernel.sampling.regions import RegionsKernel, units
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.index_loops import index_tensor
from sardonyx.lower.indexing.indexing import FAR_AWAY, given, take
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.lower.views import transposed
from sardonyx.program.steps import KernelStep, View, element_count
from sardonyx.target import cost

_USUAL_SAMPLES: Final = 2  # of a bin along an axis, if the regions decide


def _accepts_regions(node: Node) -> str:
    shapes = [(value.shape if value is not None else None) or () for value in node.inputs[:3]]
    if [len(shape) for shape in shapes] != [4, 2, 1] or shapes[1][1] != 4:
        return "images, regions and indices do not fit"
    return "" if attribute_values(node).get("mode") in ("avg", "max") else "a mode that is not known"


@template("RoiAlign", types={"T1": ("f32",)}, accepts=_accepts_regions)
def roi_align(ctx: LowerContext, group: Group) -> None:
    """The image is transposed, so that the channels of an element lie together, and the result back."""
    node = root_of(group)
    attrs = attribute_values(node)
    image, regions = ctx.contiguous(given(node, 0)), ctx.view(given(node, 1))
    images, channels, *spatial = image.shape
    count, bins = regions.shape[0], (attrs["output_height"], attrs["output_width"])
    ctx.check_equal(count, ctx.shape(given(node, 2))[0])
    for size in (images, *spatial):
        ctx.check_equal(dim_max(size, 1), size)
    numbers = _image_numbers(ctx, group, node, images)
    channels_last = ctx.scratch(dtypes.FLOAT32, (images, *spatial, channels), "channels last")
    ctx.copy(transposed(image, (0, 2, 3, 1)), channels_last, group.label)
    rows = ctx.scratch(dtypes.FLOAT32, (count, *bins, channels), "sampled")
    kernel = RegionsKernel(
        bins=bins,
        ratio=max(attrs.get("sampling_ratio") or 0, 0),
        scale=float(attrs["spatial_scale"]),
        half_pixel=attrs.get("coordinate_transformation_mode") == "half_pixel",
        largest=attrs["mode"] == "max",
    )
    text = f"a region in {bins[0]} x {bins[1]} bins asks for more than {{limit}} samples of a bin: set sampling_ratio"
    record, code = ctx.fault(node, text)
    arguments = kernel.arguments.entries(
        channels=channels,
        height=spatial[0],
        width=spatial[1],
        image=channels_last.address,
        regions=(regions.address, regions.strides),
        numbers=numbers.address,
        target=rows.address,
        record=record,
        code=code,
    )
    points = (kernel.ratio or _USUAL_SAMPLES) ** 2
    ctx.step(
        KernelStep(
            kernel,
            arguments,
            units(kernel, count),
            cost.sample_rows(element_count(rows.shape) * points * 4),
            (channels_last.buffer, regions.buffer, numbers.buffer),
            (rows.buffer, record.buffer),
            group.label,
            (group.label,),
        )
    )
    ctx.copy(transposed(rows, (0, 3, 1, 2)), ctx.output(node.outputs[0]), group.label)


def _image_numbers(ctx: LowerContext, group: Group, node: Node, images: Dim) -> View:
    """The image of each region, checked."""
    given_numbers = ctx.view(given(node, 2))
    wanted = load(0, given_numbers.buffer.dtype.name).cast("i64")
    checked = index_tensor(ctx, given_numbers.shape, [given_numbers], select(wanted < 0, FAR_AWAY, wanted), group.label)
    all_images = index_tensor(ctx, (images,), [], index(0), group.label)
    target = ctx.scratch(dtypes.INT64, given_numbers.shape, "images")
    fault = ctx.fault(node, "batch_indices names an image that is not there: X has {limit} images")
    take(ctx, all_images, 0, checked, target, fault, group.label)
    return target
