"""How a convolution is computed: the algorithm that is estimated to take the least time and is exact enough."""

from __future__ import annotations

from math import inf, sqrt
from typing import Final

from sardonyx.ir.dims import Dim, ceildiv, dim_max, dim_min, product
from sardonyx.ir.graph import Graph
from sardonyx.kernel.conv.winograd import ROW_TILE, TAPS, row_products, row_taps
from sardonyx.lower.conv.blocks import ceildiv_int
from sardonyx.lower.conv.conv_geometry import Geometry
from sardonyx.lower.conv.conv_task import Algorithm, Task, Weights
from sardonyx.lower.conv.winograd import geometry_groups, is_winograd, is_winograd_row, row_tile_count, tile_count
from sardonyx.lower.conv.winograd_weights import relative_error, relative_row_error
from sardonyx.lower.derived import data_of, is_fixed, part_of
from sardonyx.target import cost

_LANE_SUM: Final = 10  # operations that add up the lanes of a vector
_NARROW_OUTPUTS: Final = 4  # channels up to which lanes may be input channels instead
_LONGEST_NARROW_ROW: Final = 32  # kernel columns: they are written out in the code
_LARGEST_ERROR: Final = 1e-4  # of a model, relative, that may come from Winograd's sums
TILES: Final[dict[Algorithm, int]] = {"winograd2": 2, "winograd4": 4}  # results of a side
COMPUTED: Final[Algorithm] = "winograd2"  # for weights that are computed
_ROTATED_RANK: Final = 6  # of kernels that are seen by group
_MOST_PLANES: Final = 5  # of a kernel whose planes are kernels of their own
_TAKEN_APART: Final = 0.75  # of the time of direct sums that kernels may take which are taken apart
_FEWEST_TILES: Final = 4  # fewer take as long: sums wait for each other


def candidates(task: Task, *, plain: bool, exact: bool) -> dict[Algorithm, int]:
    """The algorithms for a convolution that are exact enough, the one thought fastest first, and how long they might take.

    They end where the estimates are no longer close. `exact`: none that computes other sums than the definition does.
    """
    weights, geometry, block = task.weights, task.geometry, task.block
    if plain:
        return {"plain": 0}
    if is_lane_grouped(weights, block):
        return {"lanes": 0}
    if not is_fixed(weights.kernels):  # packed in every run, as the direct kernel reads them
        return {"direct": 0}
    is_whole = task.whole_strides is None  # the narrow kernel writes neighbouring pixels, a phase of a result has none
    if is_whole and weights.groups == 1 and geometry.kernel[2] <= _LONGEST_NARROW_ROW and _is_narrow(weights, geometry, block):
        return {"narrow": 0}
    if exact:
        return {"direct": 0}
    times = estimates(task)
    found: dict[Algorithm, int] = {}
    for algorithm in sorted(times, key=lambda algorithm: times[algorithm]):
        if found and (task.ctx.chooser is None or times[algorithm] > task.ctx.chooser.within * min(found.values())):
            break
        if algorithm == "direct" or _is_exact_enough(task, algorithm):
            found[algorithm] = times[algorithm]
    return found


def fewest_tiles(task: Task) -> int | None:
    """How many of Winograd's tiles there have to be before it pays to transform weights that are computed; None: it never does.

    Only tiles of 2 x 2: how exact larger ones are depends on weights that nobody has seen. What such tiles round is within a
    small factor of what plain sums do, whatever the weights.
    """
    weights, geometry, target = task.weights, task.geometry, task.ctx.target
    rotated = len(weights.kernels.shape) == _ROTATED_RANK
    plain_taps = geometry.kernel[1:] == (TAPS, TAPS) and geometry.stride == (1, 1, 1)
    if is_fixed(weights.kernels) or not plain_taps or (rotated and weights.groups > 1) or geometry.kernel[0] > _MOST_PLANES:
        return None
    lanes = ceildiv_int(weights.outputs, task.block) * task.block
    products = weights.groups * weights.inputs * lanes * geometry.kernel[0]
    many = 1 << 20
    tile = TILES[COMPUTED]
    direct = cost.conv(many * (2 * tile * tile * TAPS * TAPS * products), target)
    groups = geometry_groups(geometry, tile)
    tiled = weights.groups * cost.winograd(many, weights.inputs, lanes, tile, groups.sizes, groups.products, target)
    assert isinstance(direct, int)
    assert isinstance(tiled, int)
    if tiled >= direct:
        return None
    moved = products * (TAPS**2 + (tile + TAPS - 1) ** 2)
    transformed = cost.loop(moved, 1, 4)
    assert isinstance(transformed, int)
    return max(ceildiv_int(transformed * many, direct - tiled), _FEWEST_TILES)


def estimates(task: Task) -> dict[Algorithm, int]:
    """The algorithms for a dense convolution, and how many nanoseconds they are thought to take on one core."""
    times: dict[Algorithm, int] = {"direct": _direct_time(task)}
    if is_winograd(task.geometry):
        # Weights that are taken apart grow, up to twelvefold: for little that is not worth it.
        most = times["direct"] * _TAKEN_APART if geometry_groups(task.geometry, TILES[COMPUTED]).in_all > 1 else inf
        tiled = {algorithm: _winograd_time(task, tile) for algorithm, tile in TILES.items()}
        times.update({algorithm: time for algorithm, time in tiled.items() if time <= most})
    if is_winograd_row(task.geometry):
        times["winograd_rows"] = _winograd_row_time(task)
    return times


def note_saving(task: Task, algorithm: Algorithm) -> None:
    """Note what an algorithm that was chosen for usual images costs more, for the sizes of a run, than the best for just these.

    Winograd's transformed weights are up to four times as large: few pixels wait for them. Of an image of one pixel a kernel that
    knows its size reads one tap alone.
    """
    weights, geometry, target = task.weights, task.geometry, task.ctx.target
    sizes = (task.x.shape[0], *geometry.out)
    if algorithm not in ("direct", "winograd_rows", *TILES) or all(isinstance(size, int) for size in sizes):
        return
    lanes = weights.groups * ceildiv_int(weights.outputs, task.block) * task.block
    fetched = cost.weights(weights.inputs * lanes * geometry.taps * 4, target)
    reached = product([_reached_taps(geometry, axis) for axis in range(len(geometry.kernel))])
    computing = cost.conv(product(sizes) * reached * (2 * weights.inputs * lanes), target)
    best = dim_max(computing, fetched * reached // geometry.taps)
    if algorithm == "direct":
        work = cost.conv(product(sizes) * (2 * weights.inputs * lanes * geometry.taps), target)
        taken = dim_max(work, fetched)
    elif algorithm == "winograd_rows":
        work, taken = _row_times(task, row_tile_count(task.x.shape[0], geometry, ROW_TILE))
    else:
        work, taken = _tile_times(task, TILES[algorithm], tile_count(task.x.shape[0], geometry, TILES[algorithm]))
        if algorithm == "winograd4":
            best = dim_min(best, _tile_times(task, 2, tile_count(task.x.shape[0], geometry, 2))[1])
    saved = dim_max(taken - best, 0)
    if saved != 0:
        some = dim_min(product(sizes), 1)  # no pixels take no time
        task.ctx.note_saving(some * (taken - work), some * saved)


def _reached_taps(geometry: Geometry, axis: int) -> Dim:
    """How many taps along an axis reach the image from any place, about."""
    taps = geometry.kernel[axis]
    return taps if taps == 1 else dim_min(taps, ceildiv(2 * geometry.size[axis] - 1, geometry.dilation[axis]))


def is_lane_grouped(weights: Weights, block: int) -> bool:
    """Whether groups are so small, and alike, that lanes stay apart: depthwise, or several channels of one block."""
    same = weights.groups > 1 and weights.inputs == weights.outputs
    return same and block % weights.inputs == 0 and weights.inputs < block


def _is_narrow(weights: Weights, geometry: Geometry, block: int) -> bool:
    """Whether lanes should be input channels, by a simple count of vector operations for a pixel."""
    blocks = ceildiv_int(2 * weights.outputs, block) / 2
    wide = blocks * weights.inputs * geometry.taps
    narrow = weights.outputs * (ceildiv_int(weights.inputs, block) * geometry.taps + _LANE_SUM)
    return weights.outputs <= _NARROW_OUTPUTS and narrow < wide


def _direct_time(task: Task) -> int:
    weights = task.weights
    pixels = task.usual(product([task.x.shape[0], *task.geometry.out]))
    lanes = weights.groups * ceildiv_int(weights.outputs, task.block) * task.block
    products = pixels * weights.inputs * lanes * task.geometry.taps
    fetched = weights.inputs * lanes * task.geometry.taps * 4
    return max(_number(cost.conv(2 * products, task.ctx.target)), cost.weights(fetched, task.ctx.target))


def _winograd_time(task: Task, tile: int) -> int:
    return _number(_tile_times(task, tile, _usual_tiles(task, tile))[1])


def _tile_times(task: Task, tile: int, tiles: Dim) -> tuple[Dim, Dim]:
    """How long it takes to compute so many tiles, and with waiting for weights."""
    weights, target = task.weights, task.ctx.target
    lanes = ceildiv_int(weights.outputs, task.block) * task.block
    groups = geometry_groups(task.geometry, tile)
    fetched = groups.products * weights.groups * weights.inputs * lanes * 4

    def computing(tiles: Dim) -> Dim:
        return weights.groups * cost.winograd(tiles, weights.inputs, lanes, tile, groups.sizes, groups.products, target)

    return computing(tiles), dim_max(computing(dim_max(tiles, _FEWEST_TILES)), cost.weights(fetched, target))


def _usual_tiles(task: Task, tile: int) -> int:
    """How many tiles there are. Dilated ones reach far: if the size of an image is not known, it may just fail to fill them."""
    geometry = task.geometry
    if all(step == 1 for step in geometry.dilation) or all(isinstance(size, int) for size in geometry.out):
        return task.usual(tile_count(task.x.shape[0], geometry, tile))
    down, along = (ceildiv_int(task.usual(geometry.out[axis]) + tile * geometry.dilation[axis] - 1, tile) for axis in (1, 2))
    return task.usual(product([task.x.shape[0], geometry.out[0]])) * down * along


def _winograd_row_time(task: Task) -> int:
    return _number(_row_times(task, task.usual(row_tile_count(task.x.shape[0], task.geometry, ROW_TILE)))[1])


def _row_times(task: Task, tiles: Dim) -> tuple[Dim, Dim]:
    """The same for tiles along one axis."""
    weights, target = task.weights, task.ctx.target
    lanes = ceildiv_int(weights.outputs, task.block) * task.block
    own = row_taps(task.geometry.taps)
    products = row_products(task.geometry.taps, own)
    fetched = products * weights.groups * weights.inputs * lanes * 4

    def computing(tiles: Dim) -> Dim:
        return weights.groups * cost.winograd_rows(tiles, weights.inputs, lanes, own, products, target)

    return computing(tiles), dim_max(computing(dim_max(tiles, _FEWEST_TILES)), cost.weights(fetched, target))


def _number(time: Dim) -> int:
    assert isinstance(time, int)
    return time


def _is_exact_enough(task: Task, algorithm: Algorithm) -> bool:
    """Whether all such layers together stay within the error a model may have.

    Errors of layers are independent: they add up as the root of their number.
    """
    kernels = data_of(part_of(task.weights.kernels))
    if algorithm == "winograd_rows":
        error = relative_row_error(kernels.reshape(*kernels.shape[:2], 1, 1, -1), ROW_TILE)
    else:
        error = relative_error(kernels, TILES[algorithm], task.geometry.stride[1:])
    return error <= _LARGEST_ERROR / sqrt(max(task.ctx.of_graph(_layers), 1))


def _layers(graph: Graph) -> int:
    """How many convolutions of a graph Winograd's tiles are made for."""
    found = 0
    for node in graph.nodes:
        is_conv = node.op_type in ("BlockedConv", "BlockedConvTranspose")
        shape = node.inputs[1].shape if is_conv and node.inputs[1] is not None else None
        if shape is not None and max((int(str(dim)) for dim in shape[2:]), default=1) > 1:
            found += 1
    return found
