"""What must hold between a node's attributes and the shapes of its inputs, beyond what its shape rule needs.

    Conv(x: f32[1,4,8,8], w: f32[6,4,3,3]) {kernel_shape = [3], strides = [0, 1]}
        kernel_shape [3] has 1 elements, but there are 2 spatial axes
        strides [0, 1]: expected numbers from 1 up

A shape rule stops at the first thing it cannot work with; here all faults of a node are listed. Each is one that no runtime
computes: the model cannot run, or not this node. Only what is known counts, so a symbolic size never is a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from sardonyx.ir.dims import Dim
from sardonyx.ir.types import format_shape
from sardonyx.ops.conv.windows import AUTO_PADS, pad_pairs, per_axis
from sardonyx.ops.infer import InferContext, broadcast_shapes, normalize_axis

_Check: TypeAlias = Callable[[InferContext], Iterator[str]]


def node_faults(ctx: InferContext) -> list[str]:
    """All faults of a node of ONNX's own domain, one sentence each; none for operators that have no checks."""
    node = ctx.node
    if node.domain:
        return []
    found: list[str] = []
    for name, allowed in _WORDS.get(node.op_type, {}).items():
        word = ctx.attr(name)
        if isinstance(word, str) and word not in allowed:
            found.append(f"{name} is {word!r}, expected one of {', '.join(allowed)}")
    check = _CHECKS.get(node.op_type)
    if check is not None:
        try:
            found.extend(check(ctx))
        except ValueError as error:  # a rank that the operator does not take
            found.append(str(error))
        except Exception:  # values that no check thought of: the shape rule, or the run, says what is wrong with them
            return found
    return found


def _text(values: Sequence[int]) -> str:
    return f"[{', '.join(map(str, values))}]"


def _complaint(check: Callable[..., object], *args: object) -> Iterator[str]:
    """What a checking function has to say, if anything."""
    try:
        check(*args)
    except ValueError as error:
        yield str(error)


def _window(ctx: InferContext, weights: int | None = None) -> Iterator[str]:
    """The attributes of sliding windows against the number of spatial axes. `weights` is the input that holds the kernels."""
    x, kernels = ctx.shape(0, least=2), None if weights is None else ctx.shape(weights, least=2)
    known = x if x is not None else kernels
    mode = ctx.attr("auto_pad")
    if mode and mode not in AUTO_PADS:
        yield f"auto_pad is {mode!r}, expected one of {', '.join(AUTO_PADS)}"
    for name in ("kernel_shape", "strides", "dilations"):
        values = ctx.attr(name)
        if values and min(values) < 1:
            yield f"{name} {_text(values)}: expected numbers from 1 up"
    if known is None:
        return
    rank = len(known) - 2
    if x is not None and kernels is not None and len(x) != len(kernels):
        yield f"input 0 is {format_shape(x)}, but the kernels are {format_shape(kernels)}: their ranks differ"
    for name in ("kernel_shape", "strides", "dilations", "output_padding"):
        yield from _complaint(per_axis, ctx.attr(name), rank, name)
    yield from _complaint(pad_pairs, ctx.attr("pads"), rank)


def _conv(ctx: InferContext, weights: int = 1, bias: int = 2) -> Iterator[str]:
    yield from _window(ctx, weights)
    yield from _no_groups(ctx)
    x, w, b, group = ctx.shape(0), ctx.shape(weights), ctx.shape(bias), ctx.attr("group") or 1
    if w is None or group < 1:
        return
    if isinstance(w[0], int) and w[0] % group:
        yield f"W makes {w[0]} channels, which do not divide into {group} groups"
    elif x is not None and isinstance(x[1], int) and isinstance(w[1], int) and x[1] != w[1] * group:
        yield f"X has {x[1]} channels, but W has {w[1]} in each of {group} groups"
    yield from _wrong_count("B", b, w[0])


def _conv_transpose(ctx: InferContext) -> Iterator[str]:
    yield from _window(ctx, 1)
    yield from _no_groups(ctx)
    x, w, b, group = ctx.shape(0), ctx.shape(1), ctx.shape(2), ctx.attr("group") or 1
    if w is None or group < 1:
        return
    if x is not None and isinstance(x[1], int) and isinstance(w[0], int) and x[1] != w[0]:
        yield f"X has {x[1]} channels, but W is made for {w[0]}"
    elif isinstance(w[0], int) and w[0] % group:
        yield f"X has {w[0]} channels, which do not divide into {group} groups"
    yield from _wrong_count("B", b, w[1] * group)


def _no_groups(ctx: InferContext) -> Iterator[str]:
    """A number of groups that cannot be."""
    group = ctx.attr("group") or 1
    if group < 1:
        yield f"group is {group}, expected a number from 1 up"


def _wrong_count(name: str, shape: Sequence[Dim] | None, count: Dim) -> Iterator[str]:
    """A vector of another length."""
    if shape is None:
        return
    if len(shape) != 1:
        yield f"{name} is {format_shape(tuple(shape))}, expected rank 1"
    elif isinstance(shape[0], int) and isinstance(count, int) and shape[0] != count:
        yield f"{name} has {shape[0]} elements, expected {count}: one for each channel"


def _per_channel(*parameters: tuple[int, str]) -> _Check:
    """Inputs that are vectors with a number for each channel."""

    def check(ctx: InferContext) -> Iterator[str]:
        x = ctx.shape(0)
        if x is None or len(x) < 2 or (ctx.node.op_type == "BatchNormalization" and ctx.version < _SPATIAL_ONLY):
            return
        for index, name in parameters:
            yield from _wrong_count(name, ctx.shape(index), x[1])

    return check


_SPATIAL_ONLY: Final = 9  # from this opset on BatchNormalization has one mean and variance a channel, and no other form
_GROUPS_BY_CHANNEL: Final = 21  # from this opset on GroupNormalization has a scale for each channel, before for each group


def _group_norm(ctx: InferContext) -> Iterator[str]:
    x, groups = ctx.shape(0, least=2), ctx.attr("num_groups")
    if x is None or not isinstance(x[1], int) or groups is None:
        return
    if groups < 1 or x[1] % groups:
        yield f"num_groups is {groups}, which does not divide {x[1]} channels"
    elif ctx.version >= _GROUPS_BY_CHANNEL:
        yield from _per_channel((1, "scale"), (2, "bias"))(ctx)


def _layer_norm(ctx: InferContext) -> Iterator[str]:
    x, scale, bias = ctx.shape(0), ctx.shape(1), ctx.shape(2)
    if x is None:
        return
    axis = normalize_axis(int(ctx.attr("axis")), len(x))
    for name, shape in (("Scale", scale), ("B", bias)):
        if shape is not None and len(shape) > len(x):
            yield f"{name} is {format_shape(shape)}, which does not broadcast to {format_shape(x[axis:])}"
        elif shape is not None:
            yield from (f"{name}: {text}" for text in _complaint(broadcast_shapes, x, shape))


def _slope(ctx: InferContext) -> Iterator[str]:
    x, slope = ctx.shape(0), ctx.shape(1)
    if x is None or slope is None or _is_per_channel(x, slope):
        return
    extra = slope[: max(len(slope) - len(x), 0)]
    overlap = zip(reversed(slope), reversed(x))
    if any(dim != 1 for dim in extra) or any(_differ(have, want) and have != 1 for have, want in overlap):
        yield f"slope is {format_shape(slope)}, which does not broadcast to {format_shape(x)}"


def _is_per_channel(x: Sequence[Dim], slope: Sequence[Dim]) -> bool:
    """ONNX Runtime takes a vector as one slope a channel, too."""
    return len(slope) == 1 and len(x) > 1 and not _differ(slope[0], x[1])


def _differ(a: Dim, b: Dim) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a != b


def _blocks(ctx: InferContext) -> Iterator[str]:
    x, size = ctx.shape(0, rank=4), ctx.attr("blocksize")
    if size is None or x is None:
        return
    if size < 1:
        yield f"blocksize is {size}, expected a positive number"
    elif ctx.node.op_type == "DepthToSpace":
        if isinstance(x[1], int) and x[1] % (size * size):
            yield f"{x[1]} channels do not divide into blocks of {size} x {size}"
    elif any(isinstance(dim, int) and dim % size for dim in x[2:]):
        yield f"pictures of {format_shape(x[2:])} do not divide into blocks of {size}"


def _top_k(ctx: InferContext) -> Iterator[str]:
    x, k = ctx.shape(0), ctx.ints(1)
    if x is None or k is None or len(k) != 1:
        return
    dim = x[normalize_axis(int(ctx.attr("axis")), len(x))]
    if k[0] < 0 or (isinstance(dim, int) and k[0] > dim):
        yield f"K is {k[0]}, but axis {ctx.attr('axis')} has {dim} elements"


def _split(ctx: InferContext) -> Iterator[str]:
    x = ctx.shape(0)
    sizes = ctx.ints(1) if ctx.has(1) else ctx.attr("split")
    if x is None or sizes is None:
        return
    dim = x[normalize_axis(int(ctx.attr("axis") or 0), len(x))]
    if len(sizes) != ctx.outputs:
        yield f"split {_text(sizes)} has {len(sizes)} elements, but there are {ctx.outputs} outputs"
    if (sizes and min(sizes) < 0) or (isinstance(dim, int) and sum(sizes) != dim):
        yield f"split {_text(sizes)} adds up to {sum(sizes)}, but axis {ctx.attr('axis') or 0} has {dim} elements"


def _one_hot(ctx: InferContext) -> Iterator[str]:
    depth, values = ctx.shape(1), ctx.shape(2)
    if depth is not None and depth not in ((), (1,)) and all(isinstance(dim, int) for dim in depth):
        yield f"depth is {format_shape(depth)}, expected one number"
    if values is not None and (len(values) != 1 or _differ(values[0], 2)):
        yield f"values is {format_shape(values)}, expected [2]: what stands for off and on"


def _gather_elements(ctx: InferContext) -> Iterator[str]:
    x, indices = ctx.shape(0), ctx.shape(1)
    if x is not None and indices is not None and len(x) != len(indices):
        yield f"indices is {format_shape(indices)}, but the data is {format_shape(x)}: their ranks differ"
    if x is not None:
        yield from _complaint(normalize_axis, int(ctx.attr("axis") or 0), len(x))


def _roi_align(ctx: InferContext) -> Iterator[str]:
    ctx.shape(0, rank=4)
    rois, batch = ctx.shape(1, rank=2), ctx.shape(2, rank=1)
    if rois is not None and _differ(rois[1], 4):
        yield f"rois is {format_shape(rois)}, expected four numbers a region"
    if rois is not None and batch is not None and _differ(rois[0], batch[0]):
        yield f"there are {rois[0]} regions, but {batch[0]} batch_indices"


def _triangle(ctx: InferContext) -> Iterator[str]:
    ctx.shape(0, least=2)
    yield from ()


def _constant_of_shape(ctx: InferContext) -> Iterator[str]:
    value = ctx.attr("value")
    if value is not None and value.size != 1:
        yield f"value has {value.size} elements, expected one"


def _constant(ctx: InferContext) -> Iterator[str]:
    given = [name for name in ctx.node.attrs if name == "sparse_value" or name.startswith("value")]
    if len(given) != 1:
        known = "value, value_int, value_float, value_string or sparse_value"
        yield f"has {' and '.join(given) or 'no value'}, expected one of {known}"


_CHECKS: Final[dict[str, _Check]] = {
    "Conv": _conv,
    "ConvInteger": lambda ctx: _conv(ctx, bias=len(ctx.inputs)),
    "QLinearConv": lambda ctx: _conv(ctx, weights=3, bias=8),
    "ConvTranspose": _conv_transpose,
    "MaxPool": _window,
    "AveragePool": _window,
    "LpPool": _window,
    "MaxUnpool": _window,
    "BatchNormalization": _per_channel((1, "scale"), (2, "B"), (3, "input_mean"), (4, "input_var")),
    "InstanceNormalization": _per_channel((1, "scale"), (2, "B")),
    "GroupNormalization": _group_norm,
    "LayerNormalization": _layer_norm,
    "PRelu": _slope,
    "SpaceToDepth": _blocks,
    "DepthToSpace": _blocks,
    "TopK": _top_k,
    "Split": _split,
    "OneHot": _one_hot,
    "GatherElements": _gather_elements,
    "RoiAlign": _roi_align,
    "Trilu": _triangle,
    "ConstantOfShape": _constant_of_shape,
    "Constant": _constant,
}

_REDUCTIONS: Final = ("none", "add", "mul", "max", "min")
_WORDS: Final[dict[str, dict[str, tuple[str, ...]]]] = {  # attributes that take one of some words
    "Resize": {
        "mode": ("nearest", "linear", "cubic"),
        "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple"),
        "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    },
    "Pad": {"mode": ("constant", "reflect", "edge", "wrap")},
    "GridSample": {"padding_mode": ("zeros", "border", "reflection")},
    "ScatterElements": {"reduction": _REDUCTIONS},
    "ScatterND": {"reduction": _REDUCTIONS},
    "DepthToSpace": {"mode": ("DCR", "CRD")},
    "Gelu": {"approximate": ("none", "tanh")},
    "RoiAlign": {"mode": ("avg", "max")},
    "BitShift": {"direction": ("LEFT", "RIGHT")},
    "SoftmaxCrossEntropyLoss": {"reduction": ("none", "sum", "mean")},
    "NegativeLogLikelihoodLoss": {"reduction": ("none", "sum", "mean")},
}
