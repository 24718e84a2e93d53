"""Kernel specifications -> LLVM IR: which emitter writes which kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sardonyx.codegen.attention.attention import emit_attention
from sardonyx.codegen.conv.conv import emit_conv
from sardonyx.codegen.conv.conv_layout import emit_layout, emit_shift, emit_surround
from sardonyx.codegen.conv.conv_narrow import emit_narrow
from sardonyx.codegen.conv.conv_resize import emit_resize
from sardonyx.codegen.conv.conv_window import emit_global_pool, emit_window
from sardonyx.codegen.function import FunctionBuilder, module
from sardonyx.codegen.indexing.compact import emit_count_kernel, emit_places_kernel, emit_starts_kernel
from sardonyx.codegen.indexing.indexing import emit_index_kernel
from sardonyx.codegen.indexing.switch import emit_switch_kernel
from sardonyx.codegen.indexing.transpose import emit_transpose_kernel
from sardonyx.codegen.indexing.write import emit_write_kernel
from sardonyx.codegen.loader import ENTRY
from sardonyx.codegen.loops import emit_loop_kernel
from sardonyx.codegen.matmul.dot import emit_dot_kernel
from sardonyx.codegen.matmul.int8 import emit_int8_matmul_kernel, emit_quad_pack_kernel
from sardonyx.codegen.matmul.interleave import emit_interleave_kernel
from sardonyx.codegen.matmul.matmul import emit_matmul_kernel
from sardonyx.codegen.matmul.pack import emit_pack_kernel
from sardonyx.codegen.pool.max_places import emit_max_places
from sardonyx.codegen.pool.pool import emit_pool
from sardonyx.codegen.rnn.rnn import emit_recurrent
from sardonyx.codegen.rows.scan import emit_scan_kernel
from sardonyx.codegen.rows.sort import emit_sort_kernel
from sardonyx.codegen.rows.topk import emit_topk_kernel
from sardonyx.codegen.sampling.resample import emit_resample_kernel
from sardonyx.codegen.sampling.sample import emit_sample_kernel
from sardonyx.codegen.sampling.suppress import emit_list_kernel, emit_suppress_kernel
from sardonyx.kernel.attention.attention import AttentionKernel
from sardonyx.kernel.conv.conv import ConvKernel
from sardonyx.kernel.conv.layout import LayoutKernel, ShiftKernel, SurroundKernel
from sardonyx.kernel.conv.window import GlobalPoolKernel, NarrowKernel, WindowKernel
from sardonyx.kernel.indexing.compact import CountKernel, PlacesKernel, StartsKernel
from sardonyx.kernel.indexing.indexing import IndexKernel
from sardonyx.kernel.indexing.switch import SwitchKernel
from sardonyx.kernel.indexing.transpose import TransposeKernel
from sardonyx.kernel.indexing.write import WriteKernel
from sardonyx.kernel.loops import LoopKernel
from sardonyx.kernel.matmul.dot import DotKernel
from sardonyx.kernel.matmul.int8 import Int8MatMulKernel, QuadPackKernel
from sardonyx.kernel.matmul.interleave import InterleaveKernel
from sardonyx.kernel.matmul.matmul import MatMulKernel
from sardonyx.kernel.matmul.pack import PackKernel
from sardonyx.kernel.pool.pool import MaxPlacesKernel, PoolKernel
from sardonyx.kernel.rnn.rnn import RecurrentKernel
from sardonyx.kernel.rows.scan import ScanKernel
from sardonyx.kernel.rows.sort import SortKernel
from sardonyx.kernel.rows.topk import TopKKernel
from sardonyx.kernel.sampling.resample import ResampleKernel
from sardonyx.kernel.sampling.resize import ResizeKernel
from sardonyx.kernel.sampling.sample import SampleKernel
from sardonyx.kernel.sampling.suppress import ListKernel, SuppressKernel
from sardonyx.target.target import Target

Emitter = Callable[[Any, str, Target], FunctionBuilder]

EMITTERS: Final[dict[type[Any], Emitter]] = {
    LoopKernel: emit_loop_kernel,
    TransposeKernel: emit_transpose_kernel,
    IndexKernel: emit_index_kernel,
    ScanKernel: emit_scan_kernel,
    ResampleKernel: emit_resample_kernel,
    SampleKernel: emit_sample_kernel,
    TopKKernel: emit_topk_kernel,
    SortKernel: emit_sort_kernel,
    SuppressKernel: emit_suppress_kernel,
    ListKernel: emit_list_kernel,
    InterleaveKernel: emit_interleave_kernel,
    CountKernel: emit_count_kernel,
    StartsKernel: emit_starts_kernel,
    PlacesKernel: emit_places_kernel,
    WriteKernel: emit_write_kernel,
    SwitchKernel: emit_switch_kernel,
    MatMulKernel: emit_matmul_kernel,
    PackKernel: emit_pack_kernel,
    Int8MatMulKernel: emit_int8_matmul_kernel,
    QuadPackKernel: emit_quad_pack_kernel,
    RecurrentKernel: emit_recurrent,
    AttentionKernel: emit_attention,
    PoolKernel: emit_pool,
    MaxPlacesKernel: emit_max_places,
    DotKernel: emit_dot_kernel,
    ConvKernel: emit_conv,
    WindowKernel: emit_window,
    NarrowKernel: emit_narrow,
    GlobalPoolKernel: emit_global_pool,
    ResizeKernel: emit_resize,
    LayoutKernel: emit_layout,
    ShiftKernel: emit_shift,
    SurroundKernel: emit_surround,
}


def kernel_ir(kernel: Any, target: Target) -> str:
    """The LLVM IR of a kernel."""
    return module(EMITTERS[type(kernel)](kernel, ENTRY, target))
