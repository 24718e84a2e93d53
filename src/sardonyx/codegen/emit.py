"""Kernel specifications -> LLVM IR: which emitter writes which kernel.

Emitters go by name and are imported when a kernel of theirs is compiled: a model needs few of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

from sardonyx.codegen.function import FunctionBuilder, module
from sardonyx.codegen.loader import ENTRY
from sardonyx.target.target import Target

Emitter = Callable[[Any, str, Target], FunctionBuilder]

EMITTERS: Final = {  # a class of `sardonyx.kernel`: a function of `sardonyx.codegen`
    "loops.LoopKernel": "loops.emit_loop_kernel",
    "indexing.transpose.TransposeKernel": "indexing.transpose.emit_transpose_kernel",
    "indexing.indexing.IndexKernel": "indexing.indexing.emit_index_kernel",
    "indexing.check.IndexCheckKernel": "indexing.check.emit_index_check",
    "rows.scan.ScanKernel": "rows.scan.emit_scan_kernel",
    "sampling.resample.ResampleKernel": "sampling.resample.emit_resample_kernel",
    "sampling.nearest.NearestKernel": "sampling.nearest.emit_nearest_kernel",
    "sampling.sample.SampleKernel": "sampling.sample.emit_sample_kernel",
    "sampling.sample.SampleRowsKernel": "sampling.sample.emit_sample_rows_kernel",
    "sampling.regions.RegionsKernel": "sampling.regions.emit_regions",
    "rows.topk.TopKKernel": "rows.topk.emit_topk_kernel",
    "rows.sort.SortKernel": "rows.sort.emit_sort_kernel",
    "ml.key_lookup.KeyLookupKernel": "ml.key_lookup.emit_key_lookup",
    "ml.one_hot.OneHotKernel": "ml.one_hot.emit_one_hot",
    "ml.coupling.CouplingKernel": "ml.coupling.emit_coupling",
    "ml.trees.TreeKernel": "ml.trees.emit_trees",
    "sampling.suppress.SuppressKernel": "sampling.suppress.emit_suppress_kernel",
    "sampling.suppress.ListKernel": "sampling.suppress.emit_list_kernel",
    "matmul.interleave.InterleaveKernel": "matmul.interleave.emit_interleave_kernel",
    "indexing.short_rows.ShortRowsKernel": "indexing.short_rows.emit_short_rows_kernel",
    "indexing.columns.ColumnsKernel": "indexing.columns.emit_columns_kernel",
    "indexing.compact.CountKernel": "indexing.compact.emit_count_kernel",
    "indexing.compact.StartsKernel": "indexing.compact.emit_starts_kernel",
    "indexing.compact.NonzeroIndicesKernel": "indexing.compact.emit_nonzero_indices_kernel",
    "indexing.bags.BagKernel": "indexing.bags.emit_bags",
    "indexing.write.WriteKernel": "indexing.write.emit_write_kernel",
    "indexing.rounds.RoundsKernel": "indexing.rounds.emit_rounds_kernel",
    "indexing.switch.SwitchKernel": "indexing.switch.emit_switch_kernel",
    "matmul.determinant.DeterminantKernel": "matmul.determinant.emit_determinant",
    "matmul.experts.RouteKernel": "matmul.experts.emit_route",
    "matmul.experts.GroupRowsKernel": "matmul.experts.emit_group_rows",
    "matmul.matmul.MatMulKernel": "matmul.matmul.emit_matmul_kernel",
    "matmul.int8.Int8MatMulKernel": "matmul.int8.emit_int8_matmul_kernel",
    "matmul.int8.QuadPackKernel": "matmul.int8.emit_quad_pack_kernel",
    "matmul.pairs.PairMatMulKernel": "matmul.pairs.emit_pair_matmul_kernel",
    "matmul.strassen.StrassenKernel": "matmul.strassen.emit_strassen_kernel",
    "matmul.pack.PackKernel": "matmul.pack.emit_pack_kernel",
    "rnn.rnn.RecurrentKernel": "rnn.rnn.emit_recurrent",
    "attention.attention.AttentionKernel": "attention.attention.emit_attention",
    "attention.transposed.TransposedAttentionKernel": "attention.transposed.emit_transposed_attention",
    "attention.cache.CacheKernel": "attention.cache.emit_cache",
    "attention.cache_rows.CacheRowsKernel": "attention.cache_rows.emit_cache_rows",
    "pool.pool.PoolKernel": "pool.pool.emit_pool",
    "pool.pool.MaxIndicesKernel": "pool.max_indices.emit_max_indices",
    "matmul.dot.DotKernel": "matmul.dot.emit_dot_kernel",
    "matmul.gemv.GemvKernel": "matmul.gemv.emit_gemv_kernel",
    "quant.block_product.BlockProductKernel": "quant.block_product.emit_block_product",
    "quant.block_product.QuantizeRowsKernel": "quant.quantize_rows.emit_quantize_rows",
    "quant.windows.QuadWindowKernel": "quant.windows.emit_quad_windows",
    "conv.conv.ConvKernel": "conv.conv.emit_conv",
    "conv.winograd.WinogradKernel": "conv.winograd.emit_winograd",
    "conv.winograd.WinogradRowKernel": "conv.winograd_rows.emit_winograd_rows",
    "conv.window.WindowKernel": "conv.conv_window.emit_window",
    "conv.window.NarrowKernel": "conv.conv_narrow.emit_narrow",
    "conv.window.GlobalPoolKernel": "conv.conv_window.emit_global_pool",
    "sampling.resize.ResizeKernel": "conv.conv_resize.emit_resize",
    "conv.weight_grad.WeightGradKernel": "conv.weight_grad.emit_weight_grad",
    "conv.weight_grad.DepthwiseGradKernel": "conv.weight_grad.emit_depthwise_grad",
    "pool.pool_grad.PoolGradKernel": "pool.pool_grad.emit_pool_grad",
    "conv.layout.LayoutKernel": "conv.conv_layout.emit_layout",
    "conv.layout.ShiftKernel": "conv.conv_layout.emit_shift",
    "conv.layout.SurroundKernel": "conv.conv_layout.emit_surround",
}


def emitter(specification: type[Any]) -> Emitter:
    """The function that writes the kernels of a specification."""
    name = f"{specification.__module__}.{specification.__name__}".removeprefix("sardonyx.kernel.")
    module_name, _, function = EMITTERS[name].rpartition(".")
    found: Emitter = getattr(importlib.import_module(f"sardonyx.codegen.{module_name}"), function)
    return found


def kernel_ir(kernel: Any, target: Target) -> str:
    """The LLVM IR of a kernel."""
    return module(emitter(type(kernel))(kernel, ENTRY, target))
