"""How long kernels take, in nanoseconds on one core, about.

One function for each kind of kernel, of its sizes, which may be expressions over the model's symbols. The planner divides a step
between as many workers as its time is worth (`program.image.SHARED_FROM`). Figures were measured on machines with AVX-512 and
AVX2; `tools/calibrate_costs.py` puts estimates beside measurements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sardonyx.ir.dims import Dim
    from sardonyx.target.target import Target

# Vector operations of Winograd's transforms of a line: of inputs by elements, of outputs by results and elements.
_INPUT_TRANSFORM: Final = {3: 2.0, 4: 4.0, 5: 13.0, 6: 16.0, 7: 27.0}
_OUTPUT_TRANSFORM: Final = {(2, 3): 3.0, (2, 4): 4.6, (2, 5): 8.0, (4, 5): 12.0, (4, 6): 12.8, (4, 7): 19.0}
_ROW_OUTPUT_TRANSFORM: Final = {3: 28, 4: 37}  # of a tile along one axis, by taps of a group; loads and stores count as well
# Register tiles (`target.tiles`), in vector multiply-adds; the second of two numbers is for machines whose arithmetic takes
# elements from memory, the third for those among them that compute whole vectors, as fast as elements are loaded.
_LOAD: Final = (1.1, 0.5)  # of a vector or element
_CONV_LOAD: Final = (1.4, 0.5, 1.07)  # pixels lie further apart
_STEP: Final = (0.8, 0.3)  # along the depth
_WIDENED: Final = 0.5  # of a vector of bytes, which is widened
_TILE: Final = (150.0, 20.0)  # to begin with a tile and to end it
_CONV_TILE: Final = (150.0, 5.0, 30.0)
_STORED_AT_ONCE: Final = 12  # vectors: where more end together, the next tile's products wait
_STORED_LATE: Final = 10.0  # for each of those
# Rows of a tile of Winograd's products, by vectors: fewer take as long. The second is for whole vectors.
_WINOGRAD_ROWS: Final = ({1: 5, 2: 3}, {1: 8, 2: 4})
_RAGGED: Final = (10.0, 40.0)  # to store a vector of a tile that is not full
_QUAD_PRODUCTS: Final = 200  # of bytes in a nanosecond, at least
_QUADS: Final = 5  # of four rows, for a vector of them
_RUN: Final = (10.0, 0.0)  # to begin with a run of a convolution's products; nothing where windows are single pixels
_LATENCY: Final = ((0.56, 5.4), (0.3, 2.7), (0.9, 1.5))  # for each of a few sums, and for all: they wait for additions


def loop(elements: Dim, operations: int, moved: int) -> Dim:
    """A loop kernel: a vector operation in half a cycle, or the bytes it moves for an element, whichever takes longer."""
    return elements * max(operations * 25, moved * 40, 100) // 1000


def transposed(elements: Dim, width: int) -> Dim:
    """A copy that turns axes or mixes columns, of elements of so many bytes."""
    return elements * (100 * width) // 1000


def packed(elements: Dim, *, scattered: bool = False) -> Dim:
    """A matrix put into strips; `scattered`: neither axis lies consecutively."""
    return elements * (300 if scattered else 150) // 1000


def matmul(slots: Dim, results: Dim, operations: int, *, double: bool) -> Dim:
    """Tiles of a matrix product: multiply-adds in 1/60 each, and the operations of the epilogue on every result."""
    return slots * (36 if double else 18) // 1000 + results * operations * 25 // 1000


def int8_matmul(slots: Dim, results: Dim, operations: int, target: Target) -> Dim:
    """Tiles of a product of bytes: where the machine adds up four at once, as many a nanosecond as four times those of floats."""
    products = slots // max(2 * target.flops_per_ns, _QUAD_PRODUCTS) if target.has_int8_dot else slots * 18 // 1000
    return products + results * operations * 25 // 1000


def quad_windows(vectors: Dim, dots: int, made: float, operations: int, target: Target) -> Dim:
    """Depthwise windows of bytes: vectors of results, each of so many products of quads, and their epilogue.

    `made`: lines of quads that are made for one of results, by its pixels.
    """
    return vectors * round((dots + _QUADS * made + operations) * 1000 * _multiply_add(target)) // 1000


def matmul_tile(rows: int, vectors: int, depth: int, target: Target, *, ragged: bool = False) -> float:
    """A register tile of a matrix product: products or loads, whichever take longer, for each step along the depth.

    `ragged`: it has columns that the matrix has not.
    """
    direct = target.has_broadcast_operands
    step = max(rows * vectors, _LOAD[direct] * (rows + vectors)) + _STEP[direct]
    return (depth * step + _TILE[direct] + _RAGGED[direct] * ragged * rows * vectors) * _multiply_add(target)


def int8_tile(rows: int, vectors: int, elements: int, target: Target, *, ragged: bool = False) -> float:
    """A register tile of a product of bytes, by elements along the depth (`kernel.matmul.int8`).

    Where elements are pairs, those of B are widened, and each product is added by an instruction of its own.
    """
    if target.has_int8_dot:
        return matmul_tile(rows, vectors, elements, target, ragged=ragged)
    direct = target.has_broadcast_operands
    step = max(rows * vectors + _WIDENED * vectors, _LOAD[direct] * (rows + vectors)) + _STEP[direct]
    return (elements * step + _TILE[direct] + _RAGGED[0] * ragged * rows * vectors) * _multiply_add(target)


def conv_tile(pixels: int, vectors: int, runs: int, run: int, target: Target, *, pointwise: bool) -> float:
    """A register tile of a convolution, for so many runs of neighbouring input elements.

    Sums are added to one by one: few of them wait for their own latency.
    """
    sums, direct = pixels * vectors, target.has_broadcast_operands
    kind = 2 if _loads_bind(target) else int(direct)
    each, once = _LATENCY[kind]
    step = max(sums, _CONV_LOAD[kind] * (pixels + vectors), each * sums + once)
    ends = _CONV_TILE[kind]
    if kind == 2:
        ends += _STORED_LATE * max(sums - _STORED_AT_ONCE, 0)
    return (runs * (run * step + (0.0 if pointwise else _RUN[direct])) + ends) * _multiply_add(target)


def neighbours(elements: int, target: Target) -> float:
    """A copy of pixels that have others between them, so many elements."""
    return elements * (0.06 if _loads_bind(target) else 0.32)


def apart(size: int, target: Target) -> float:
    """How many times as long tiles of such pixels take, so many bytes: a part of the sets of the caches does not hold them."""
    return 1.06 if _loads_bind(target) and size > target.caches.l2 // 4 else 1.0


def winograd_tile(rows: int, vectors: int, depth: int, target: Target, *, last: bool = False) -> float:
    """A register tile of the products of transformed tiles (see `winograd`): its rows, or the latency of a few of them.

    `last`: it is what is left after whole tiles, and comes from other code.
    """
    fewest = _WINOGRAD_ROWS[_loads_bind(target)][vectors]
    return depth * vectors * (max(rows, fewest) + (0.9 if last else 0.4)) * _multiply_add(target)


def _loads_bind(target: Target) -> bool:
    """Whether arithmetic could take elements from memory, and is as fast as they are loaded."""
    return target.has_broadcast_operands and target.has_whole_vectors


def _multiply_add(target: Target) -> float:
    """Of a vector, in nanoseconds."""
    return 2 * target.lanes / target.flops_per_ns


def block_product(rows: Dim, weights: Dim, bits: int) -> Dim:
    """Products of quantized rows with weights in blocks: at least what it takes to bring the weights from memory."""
    return weights * (bits * 5 + rows * 5) // 1000


def quantized_rows(elements: Dim) -> Dim:
    """Rows of floats as integers in blocks."""
    return elements // 4


def dot(products: Dim, *, double: bool) -> Dim:
    """Sums along the depth."""
    return products * (100 if double else 50) // 1000


def conv(flops: Dim, target: Target) -> Dim:
    """A convolution in the blocked layout."""
    return flops // target.flops_per_ns


def winograd(tiles: Dim, inputs: int, outputs: int, tile: int, sizes: tuple[int, int], products: int, target: Target) -> Dim:
    """Winograd's convolution by tiles of so many results a side: products, and both transforms (see `kernel.conv.winograd`).

    `sizes` are the elements of a transformed tile down and along, `products` those of all groups of taps.
    """
    down, along = sizes
    elements = down * along
    of_inputs = 2 * elements + along * _INPUT_TRANSFORM[down] + down * _INPUT_TRANSFORM[along]
    of_outputs = elements + tile**2 + along * _OUTPUT_TRANSFORM[tile, down] + tile * _OUTPUT_TRANSFORM[tile, along]
    transforms = round(of_inputs * products / elements) * inputs + round(of_outputs) * outputs
    return tiles * (2 * (products * inputs * outputs + transforms)) // target.flops_per_ns


def winograd_rows(tiles: Dim, inputs: int, outputs: int, taps: int, products: int, target: Target) -> Dim:
    """The same along one axis, for groups of so many taps."""
    elements = taps + 3
    of_inputs = 2 * elements + _INPUT_TRANSFORM[elements]
    transforms = round(of_inputs * products / elements) * inputs + _ROW_OUTPUT_TRANSFORM[taps] * outputs
    return tiles * (2 * (products * inputs * outputs + transforms)) // target.flops_per_ns


def weights(size: int, target: Target) -> int:
    """Weights of so many bytes that are read once, where every core of the machine does so: from a cache, or from memory."""
    if size <= target.caches.l2 // 2:
        return 0
    return size // (target.shared_cache_bytes_per_ns if size <= target.caches.l3 // 8 else target.memory_bytes_per_ns)


def window(vectors: Dim, terms: int) -> Dim:
    """A depthwise convolution or a pool in the blocked layout: vectors of results, each a sum of so many terms."""
    return vectors * (terms + 2) // 2


def global_pool(vectors: Dim) -> Dim:
    """The mean or largest of all pixels: vectors that are read."""
    return vectors // 2


def blocked_resize(vectors: Dim, *, blends: bool) -> Dim:
    """A resized image in the blocked layout, by copies or by sums of four."""
    return vectors * (6 if blends else 2)


def to_blocks(vectors: Dim, lanes: int) -> Dim:
    """To the blocked layout, or back."""
    return vectors * lanes // 8


def shifted(vectors: Dim) -> Dim:
    """Channels put behind others that fill no block."""
    return vectors * 2


def surrounded(elements: Dim) -> Dim:
    """Rows with a border of zeros."""
    return elements // 8


def attention(scores: Dim, depths: Dim) -> Dim:
    """Attention: for every pair of query and key two products along a depth (their sum is given), and an exponential."""
    return scores * (depths * 14 + 600) // 1000


def attention_transposed(queries: int, padding: int, depth: int) -> int:
    """What transposed scores (`kernel.attention.transposed`) cost more for each key: products with padding, 1/40 of all."""
    return (queries // 40 + padding // 2) * (depth * 28 + 600) // 1000


def recurrent(products: Dim, rows: Dim) -> Dim:
    """A recurrent layer: products of one row over all steps; the weights come from memory once for all rows."""
    return products * (rows + 3) * 25 // 1000


def pool(results: Dim, operations: Dim) -> Dim:
    """A pool of plain images, with so many operations for a result."""
    return results * operations * 120 // 1000


def max_indices(results: Dim, taps: int) -> Dim:
    """The largest of a window, and its index."""
    return results * (10 + 2 * taps)


def index(elements: Dim, width: int, *, rows: bool) -> Dim:
    """Gather or scatter, of whole rows of elements of so many bytes, or element by element."""
    return elements * (max(60 * width, 100) if rows else 1500) // 1000


def short_rows(rows: Dim, width: int) -> Dim:
    """Copies of rows of a few bytes."""
    return rows * (1000 + 15 * width) // 1000


def nearest(points: Dim) -> Dim:
    """Points of rows at positions that need no check."""
    return points * 400 // 1000


def topk(elements: Dim, inserted: Dim) -> Dim:
    """The largest of each row; `inserted` counts moves among those found so far."""
    return elements * 2 + inserted * 2


def sort(elements: Dim, bits: int) -> Dim:
    """Rows sorted by keys of so many bits."""
    return elements * bits // 4


def scan(elements: Dim, *, vector: bool) -> Dim:
    """Running sums, of many rows at once or one by one."""
    return elements // 4 if vector else elements * 2


def count(elements: Dim) -> Dim:
    """How many elements are not zero."""
    return elements // 8


def starts(counts: Dim) -> Dim:
    """Running sum of counts."""
    return counts * 2


def nonzero_indices(elements: Dim) -> Dim:
    """The indices of elements that are not zero."""
    return elements * 2


def sample(terms: Dim) -> Dim:
    """Elements between those of an image, by sums of so many terms in all."""
    return terms


def sample_rows(terms: Dim) -> Dim:
    """The same, whole vectors of channels at a time."""
    return terms // 10


def resample(elements: Dim, *, rows: bool) -> Dim:
    """A resized plain tensor, by whole rows or element by element."""
    return elements // 8 if rows else elements


def suppress(boxes: Dim) -> Dim:
    """Non-maximum suppression, by the boxes that are looked at."""
    return boxes


def listed(boxes: Dim) -> Dim:
    """The list of boxes that were chosen."""
    return boxes * 4


def trees(rows: Dim, columns: int, depths: int, bits: Dim) -> Dim:
    """A forest: the keys of each row, steps down large trees, and comparisons with the nodes of small ones."""
    return rows * (columns * 1000 + depths * 1000 + bits * 40) // 1000


def looked_up(elements: Dim) -> Dim:
    """Elements looked up in a table of slots, most of which lie in a cache."""
    return elements * 4


def coupling(rows: Dim, classes: int) -> Dim:
    """Probabilities of classes from pairs: some iterations, each with the square of the classes."""
    return rows * (classes * classes * 4)
