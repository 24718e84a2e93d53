"""Convolutions over blocked activations as steps: which kernel, which tile, and the arguments."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final, Literal, TypeAlias

from sardonyx import dtypes
from sardonyx.ir.dims import Dim, ceildiv, dim_max, evaluate, product, symbols_of
from sardonyx.kernel.conv.conv import NOTHING_COMES, ConvKernel
from sardonyx.kernel.conv.layout import SurroundKernel
from sardonyx.kernel.matmul.matmul import is_deep
from sardonyx.lower.conv import conv_weights
from sardonyx.lower.conv.blocks import Blocks, bands_of, ceildiv_int, dense_blocks, named, whole_view, zeros
from sardonyx.lower.conv.conv_geometry import SPATIAL, Geometry, flattened
from sardonyx.lower.conv.conv_tiles import ConvTile, TileTask, choose_tile, cut_tiles, with_row_of_taps
from sardonyx.lower.conv.row_sums import wanted_row_sums
from sardonyx.lower.conv.windows import narrow_kernel, window_kernel, window_step
from sardonyx.lower.derived import is_fixed, numbers
from sardonyx.program.steps import Address, KernelStep, View
from sardonyx.records import dataclass
from sardonyx.target import cost
from sardonyx.target.target import LINE_NUMBERS

Algorithm: TypeAlias = Literal["direct", "plain", "lanes", "narrow", "winograd2", "winograd4", "winograd_rows"]

_UNIT_CYCLES: Final = 30_000  # a unit of work is about this long: long enough to be worth counting, short enough to share
_FEW_TILES: Final = 40  # so many tiles or fewer use weights too seldom to hide where they come from
_USUAL_TILES: Final = 4  # of a set, that fetch weights ahead, if it is not known how many there are
_FAR_AWAY: Final = 64 << 10  # bytes of weights from which on they are not in the first cache
_USUAL_SIDE: Final = 224  # of an image whose size is not known


@dataclass(frozen=True)
class Division:
    """How the pixels of a result are divided: the pixels of a unit, and the units of a band (0: a band is everything)."""

    chunk: int
    band: int


@dataclass(frozen=True)
class Weights:
    """The kernels of a convolution in float32, constant or computed."""

    kernels: View  # [O, I / groups, planes, rows, columns]; computed ones also [groups, O / groups, I / groups, ...]
    bias: View | None
    groups: int
    outputs: int  # channels of one group
    inputs: int


@dataclass(frozen=True, kw_only=True)
class Task(Blocks):
    """One convolution to be lowered: its geometry, input, weights and epilogue."""

    weights: Weights
    x: View

    def lower(self, algorithm: Algorithm) -> None:
        """Write the steps."""
        if algorithm == "lanes":
            self._lanes()
        elif algorithm == "narrow":
            self._narrow()
        elif algorithm == "plain":
            self._plain()
        else:
            self._direct()

    def with_axes_exchanged(self) -> Task:
        """The same with rows for columns; x is blocked, with three spatial axes."""

        def exchanged(values: tuple[Any, ...], first: int = 1) -> tuple[Any, ...]:
            return (*values[:first], values[first + 1], values[first], *values[first + 2 :])

        x, kernels = self.x, self.weights.kernels
        as_row = View(kernels.buffer, exchanged(kernels.shape, 3), exchanged(kernels.strides, 3), kernels.offset)
        return replace(
            self,
            geometry=Geometry(*(exchanged(getattr(self.geometry, each.name)) for each in fields(self.geometry))),
            operand_strides=[exchanged(own, 3) for own in self.operand_strides],
            shift=exchanged(self.shift),
            whole_strides=None if self.whole_strides is None else [exchanged(own, 3) for own in self.whole_strides],
            weights=replace(self.weights, kernels=as_row),
            x=View(x.buffer, exchanged(x.shape, 3), exchanged(x.strides, 3), x.offset),
        )

    # Kernels

    def _direct(self) -> None:
        x = self.blocked_input()
        geometry, operand_strides, strides = self.geometry, self.operand_strides, x.strides
        if geometry.pointwise and self._one_row(geometry, [strides, *operand_strides]):
            geometry = flattened(geometry)
            strides = (*strides[:2], 0, 0, *strides[4:])
            operand_strides = [(*own[:2], 0, 0, *own[4:]) for own in operand_strides]
        weights, block = self.weights, self.block
        blocks = -(-weights.outputs // block)
        borders = not self._always_inside(geometry)
        tile = self._tile(geometry.out[2], borders=borders)
        iterations, tail = divmod(weights.inputs, block)
        kernel = ConvKernel(
            block=block,
            vectors=tile.vectors,
            last_vectors=blocks % tile.vectors or tile.vectors,
            last_lanes=self.last_lanes(tile),
            pixels=tile.pixels,
            last_pixels=geometry.out[2] % tile.pixels if isinstance(geometry.out[2], int) else None,
            stride=geometry.stride[2],
            column=block,
            run=block,
            run_tail=tail,
            single_tap=geometry.single_tap,
            borders=borders,
            reads_past_rows=False,
            dense=self.is_dense(operand_strides),
            banded=self._division(geometry, tile).band > 0,
            ahead=self._ahead(geometry, tile),
            epilogue=self.epilogue.for_kernel([own[-1] for own in operand_strides]),
            deep=is_deep("f32", weights.inputs * geometry.taps),
        )
        sets = self.sets(tile)
        packed = self._packed(sets, block)
        channels = (strides[0], strides[1] * ceildiv_int(weights.inputs, block), strides[1])
        self._conv_step(kernel, tile, geometry, operand_strides, packed, x, (*channels, strides[2], strides[3]), iterations)

    def _plain(self) -> None:
        """Few input channels in plain order: an iteration is a channel, and every tap a run of its own.

        Longer runs would read the same elements again for the next pixel, which the compiler keeps in registers it lacks.
        """
        weights, geometry, block = self.weights, self.geometry, self.block
        blocks = -(-weights.outputs // block)
        deep = is_deep("f32", weights.inputs * geometry.taps)
        tile = self._tile(geometry.out[2], plain=True, deep=deep)
        cut = cut_tiles(tile, geometry)
        x = self._surrounded(tile) if cut is None else self._plain_input()
        kernel = ConvKernel(
            block=block,
            vectors=tile.vectors,
            last_vectors=blocks % tile.vectors or tile.vectors,
            last_lanes=self.last_lanes(tile),
            pixels=tile.pixels,
            last_pixels=geometry.out[2] % tile.pixels if isinstance(geometry.out[2], int) else None,
            stride=geometry.stride[2],
            column=1,
            run=1,
            run_tail=0,
            single_tap=False,
            borders=False,
            reads_past_rows=True,
            dense=self.is_dense(self.operand_strides),
            banded=self._division(geometry, tile).band > 0,
            ahead=0,
            epilogue=self.epilogue.for_kernel([own[-1] for own in self.operand_strides]),
            deep=deep,
            row_taps=tile.row_taps,
            paired=tile.paired,
            cut=cut or (),
        )
        sets = self.sets(tile)
        packed = self._packed(sets, 0)
        strides = (x.strides[0], x.strides[1] * weights.inputs, x.strides[1], x.strides[2], x.strides[3])
        inner = geometry if cut is not None else replace(geometry, pads_begin=(*geometry.pads_begin[:2], 0))
        self._conv_step(kernel, tile, inner, self.operand_strides, packed, x, strides, weights.inputs)

    def _lanes(self) -> None:
        """Depthwise, or groups that fit a block: lanes stay apart."""
        weights, geometry, block = self.weights, self.geometry, self.block
        x = self.blocked_input()
        channels = weights.groups * weights.outputs
        blocks = -(-channels // block)
        kernel = window_kernel(self, "depthwise", weights.inputs)
        if is_fixed(weights.kernels):
            lanes = (blocks, geometry.taps, weights.inputs, block)
            packed = self.ctx.packed(conv_weights.pack_lanes, (weights.kernels,), block, dtype=dtypes.FLOAT32, shape=lanes)
        else:
            grouped = conv_weights.by_group(weights.kernels, weights.groups)
            packed = conv_weights.pack_computed_lanes(self.ctx, grouped, block)
        bias = self.bias(1, channels)
        sums = None
        if self.whole_strides is None:
            shape = (x.shape[0], blocks, product(list(geometry.out[:2])), block)
            sums = wanted_row_sums(self.ctx, self.group, self.epilogue, shape)
        window_step(self, replace(kernel, row_sums=sums is not None), x, packed, bias, blocks, sums=sums)

    def _narrow(self) -> None:
        """Few output channels: lanes are input channels."""
        weights, geometry, block = self.weights, self.geometry, self.block
        iterations, tail = divmod(weights.inputs, block)
        kernel = narrow_kernel(self, weights.outputs, tail)
        shape = (ceildiv_int(weights.inputs, block), geometry.taps, weights.outputs, block)
        packed = self.ctx.packed(conv_weights.pack_narrow, (weights.kernels,), block, dtype=dtypes.FLOAT32, shape=shape)
        window_step(self, kernel, self.blocked_input(), packed, self.bias(1, weights.outputs), iterations, 1)

    # Parts of the steps

    def _tile(self, columns: Dim, *, borders: bool = False, plain: bool = False, deep: bool = False) -> ConvTile:
        weights, geometry = self.weights, self.geometry
        task = TileTask(
            target=self.ctx.target,
            outputs=weights.outputs,
            inputs=weights.inputs,
            taps=geometry.taps,
            columns=columns,
            borders=borders,
            plain=plain,
        )
        tile = choose_tile(task)
        if not plain or geometry.dilation[2] != 1:
            return tile
        return with_row_of_taps(tile, task, geometry.kernel[2], deep=deep)

    def _conv_step(
        self,
        kernel: ConvKernel,
        tile: ConvTile,
        geometry: Geometry,
        operand_strides: list[tuple[Dim, ...]],
        packed: View,
        x: View,
        strides: tuple[Dim, ...],
        iterations: int,
    ) -> None:
        """`strides` of x: batch, group, iteration, plane, row."""
        weights = self.weights
        blocks = -(-weights.outputs // self.block)
        sets = ceildiv_int(blocks, tile.vectors)
        columns = geometry.out[2]
        division = self._division(geometry, tile)
        chunk = division.chunk
        chunks = ceildiv(columns, chunk)
        batch = x.shape[0]
        bias = self.bias(weights.groups, weights.outputs)
        arguments = kernel.arguments.entries(
            x=Address(x.buffer, x.offset * 4),
            w=Address(packed.buffer),
            bias=Address(bias.buffer),
            zeros=Address(zeros(self.ctx, self.block).buffer),
            batch=batch,
            sets=sets,
            blocks=blocks,
            **named("planes rows columns", geometry.out),
            chunk=chunk,
            chunks=chunks,
            band=division.band,
            **named("depth height width", geometry.size),
            **named("front top left", geometry.pads_begin),
            **named("plane_stride row_stride", geometry.stride[:2]),
            **named("plane_dilation row_dilation column_dilation", geometry.dilation),
            **named("kernel_planes kernel_rows kernel_columns", geometry.kernel),
            iterations=iterations,
            **named("x_batch x_group x_iteration x_plane x_row", strides),
            w_set=packed.shape[1],
            **(dict.fromkeys(("coming", "then_coming"), Address(packed.buffer)) | NOTHING_COMES if kernel.single_tap else {}),
            operands=self.operands(operand_strides),
        )
        outputs = product([batch, *geometry.out])
        flops = outputs * (2 * weights.groups * blocks * self.block * weights.inputs * geometry.taps)
        step = KernelStep(
            kernel,
            arguments,
            product([weights.groups * sets, batch, geometry.out[0], geometry.out[1], chunks]),
            cost.conv(flops, self.ctx.target),
            (x.buffer, packed.buffer, bias.buffer, zeros(self.ctx, self.block).buffer, *self.epilogue.reads),
            self.epilogue.writes,
            self.group.label,
            tuple(node.label for node in self.group.nodes),
            self.in_place(x),
            flops=flops,
        )
        self.ctx.step(step)

    def _packed(self, sets: conv_weights.Sets, block: int) -> View:
        """The weights as the kernel reads them (block 0: for plain input): packed once, or by a step if they are computed."""
        weights = self.weights
        kernels = weights.kernels
        by_group = len(kernels.shape) == SPATIAL + 3  # as rotated ones are
        if not is_fixed(kernels) or (by_group and weights.groups > 1):
            return conv_weights.pack_computed(self.ctx, kernels, weights.groups, sets, block)
        if by_group:
            kernels = View(kernels.buffer, kernels.shape[1:], kernels.strides[1:], kernels.offset)
        transform, sources = conv_weights.pack_direct if block else conv_weights.pack_plain, (kernels,)
        outputs = numbers(kernels.shape)[0] // weights.groups
        parameters = (outputs, sets, block) if block else (outputs, sets)
        shape = (weights.groups * sets.count, self.geometry.taps * weights.inputs * sets.width)
        return self.ctx.packed(transform, sources, *parameters, dtype=dtypes.FLOAT32, shape=shape)

    def bias(self, groups: int, outputs: int) -> View:
        """The bias of every lane."""
        bias, block = self.weights.bias, self.block
        blocks = -(-outputs // block)
        if bias is not None and not is_fixed(bias):
            padded = self.ctx.scratch(dtypes.FLOAT32, (groups, blocks * block), "bias")
            target = View(padded.buffer, (groups, outputs), (blocks * block, 1))
            self.ctx.copy(whole_view(bias, (groups, outputs)), target, "bias")
            return padded
        shape = (groups * blocks * block,)
        return self.ctx.packed(conv_weights.pack_bias, (bias,), groups, outputs, block, dtype=dtypes.FLOAT32, shape=shape)

    def blocked_input(self) -> View:
        """x with three spatial axes, its lanes and columns without gaps."""
        return dense_blocks(self.ctx, self.x)

    def last_lanes(self, tile: ConvTile) -> int:
        """The lanes of the last block's vectors: half, if that is enough and takes half the time, or if two pixels share one."""
        left = self.weights.outputs % self.block
        halves = tile.vectors == 1 and self.ctx.target.has_faster_half_vectors and 0 < left <= self.block // 2
        halves = halves or tile.paired
        return self.block // 2 if halves else self.block

    def sets(self, tile: ConvTile) -> conv_weights.Sets:
        """How the output channels of a group are divided."""
        blocks = ceildiv_int(self.weights.outputs, self.block)
        last = (blocks % tile.vectors or tile.vectors) * self.block
        lanes = self.last_lanes(tile)
        return conv_weights.Sets(
            ceildiv_int(blocks, tile.vectors), tile.vectors * self.block, last if lanes == self.block else lanes
        )

    def _division(self, geometry: Geometry, tile: ConvTile) -> Division:
        """The units. Where weights are small workers share the pixels: their caches have what they wrote a layer before."""
        cycles = max(geometry.taps * self.weights.inputs * tile.vectors, 1) * tile.pixels
        longest = max(_UNIT_CYCLES // cycles, 1)  # tiles of a unit
        chunk = longest * tile.pixels
        band = self._large_band(geometry, chunk, tile)
        sizes = (self.x.shape[0], *geometry.out)
        if band or not self._has_small_weights(geometry, tile) or any(not isinstance(size, int) for size in sizes):
            return Division(chunk, band)
        batch, planes, lines, columns = (max(int(str(size)), 1) for size in sizes)  # one without pixels has a unit as well
        rows = batch * planes * lines
        if rows > 1:
            chunks = ceildiv_int(columns, chunk)
            return Division(chunk, ceildiv_int(rows, bands_of(rows * columns)) * chunks)
        tiles = ceildiv_int(columns, tile.pixels)
        of_band = ceildiv_int(tiles, bands_of(columns))
        parts = ceildiv_int(of_band, longest)
        return Division(ceildiv_int(of_band, parts) * tile.pixels, parts)

    def _has_small_weights(self, geometry: Geometry, tile: ConvTile) -> bool:
        """Whether the weights of several sets are read quickly again for every band."""
        weights = self.weights
        sets = ceildiv_int(ceildiv_int(weights.outputs, self.block), tile.vectors)
        size = sets * tile.vectors * self.block * weights.inputs * geometry.taps * 4
        return weights.groups == 1 and sets > 1 and size <= self.ctx.target.caches.l2 // 2

    def _large_band(self, geometry: Geometry, chunk: int, tile: ConvTile) -> int:
        """The chunks of a band, or 0: if an image does not fit the cache, it is cheaper to fetch the weights for every band."""
        weights, cache = self.weights, self.ctx.target.caches.l2
        sets = ceildiv_int(ceildiv_int(weights.outputs, self.block), tile.vectors)
        image = self.usual(product([self.x.shape[0], *geometry.size])) * weights.inputs * 4
        fetched = weights.outputs * weights.inputs * geometry.taps * 4 * ceildiv_int(image, cache // 2) + image
        if image <= cache or 2 * fetched > sets * image:
            return 0
        strides = geometry.stride[0] * geometry.stride[1] * geometry.stride[2]
        return max(cache // 2 // (chunk * strides * weights.inputs * 4), 1)

    def usual(self, dim: Dim) -> int:
        """A size; one that is not known as it is for a usual image."""
        batch = symbols_of(self.x.shape[0])
        return evaluate(dim, {name: 1 if name in batch else _USUAL_SIDE for name in symbols_of(dim)})

    def _ahead(self, geometry: Geometry, tile: ConvTile) -> int:
        """Lines of the next set's weights that every tap fetches: few tiles use weights too seldom to hide where they come from.

        All tiles of a set, or of a band, together fetch all of them.
        """
        weights = self.weights
        blocks = ceildiv_int(weights.outputs, self.block)
        size = weights.groups * blocks * self.block * weights.inputs * geometry.taps * 4
        if weights.groups * ceildiv_int(blocks, tile.vectors) == 1 or size < _FAR_AWAY:
            return 0
        lines = self.block * tile.vectors * self.block // LINE_NUMBERS
        tiles = product([self.x.shape[0], geometry.out[0], geometry.out[1], ceildiv(geometry.out[2], tile.pixels)])
        if not isinstance(tiles, int):
            return ceildiv_int(lines, _USUAL_TILES)
        division = self._division(geometry, tile)
        if division.band:
            tiles = min(tiles, division.band * ceildiv_int(division.chunk, tile.pixels))
        return ceildiv_int(lines, tiles) if 0 < tiles <= _FEW_TILES else 0

    def _one_row(self, geometry: Geometry, strides: list[tuple[Dim, ...]]) -> bool:
        """Whether all tensors walk through all pixels as through one row."""
        planes, rows, columns = geometry.out
        return all(
            (rows == 1 or own[3] == own[4] * columns) and (planes == 1 or own[2] == own[4] * columns * rows) for own in strides
        )

    def _always_inside(self, geometry: Geometry) -> bool:
        """Whether no window reaches past the left or right border: there is no padding and the last window ends inside."""
        return geometry.pads_begin[2] == 0 and isinstance(geometry.pads_end[2], int) and geometry.pads_end[2] <= 0

    def _plain_input(self) -> View:
        """x without gaps, with three spatial axes."""
        x = self.x
        if not x.is_contiguous:
            x = self.ctx.copy(x, self.ctx.scratch(x.buffer.dtype, x.shape), "copy")
        return whole_view(x, (*x.shape[:2], *(1,) * (5 - len(x.shape)), *x.shape[2:]))

    def _surrounded(self, tile: ConvTile) -> View:
        """Plain x with zeros left and right, wide enough for whole tiles."""
        ctx, geometry, x = self.ctx, self.geometry, self._plain_input()
        pixels = geometry.out[2] if isinstance(geometry.out[2], int) else ceildiv(geometry.out[2], tile.pixels) * tile.pixels
        reach = (pixels - 1) * geometry.stride[2] + (geometry.kernel[2] - 1) * geometry.dilation[2] + 1
        left, width = geometry.pads_begin[2], geometry.size[2]
        if left == 0 and isinstance(reach, int) and isinstance(width, int) and reach <= width:
            return x
        wide = dim_max(reach, left + width)
        padded = ctx.scratch(dtypes.FLOAT32, (*x.shape[:4], wide), "surrounded")
        rows = product(list(x.shape[:4]))
        kernel = SurroundKernel()
        ctx.step(
            KernelStep(
                kernel,
                kernel.arguments.entries(
                    x=Address(x.buffer, x.offset * 4),
                    y=Address(padded.buffer),
                    **named("deep high wide", (*geometry.size[:2], wide)),
                    **named("depth height width", geometry.size),
                    **named("front top left", (0, 0, left)),
                ),
                rows,
                cost.surrounded(rows * wide),
                (x.buffer,),
                (padded.buffer,),
                "surround",
                tuple(node.label for node in self.group.nodes[:1]),
            )
        )
        return padded
