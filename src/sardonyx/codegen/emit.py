"""Kernel specifications -> LLVM IR: which emitter writes which kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sardonyx.codegen.attention import emit_attention
from sardonyx.codegen.compact import emit_count_kernel, emit_places_kernel, emit_starts_kernel
from sardonyx.codegen.conv import emit_conv
from sardonyx.codegen.conv_layout import emit_layout, emit_shift, emit_surround
from sardonyx.codegen.conv_narrow import emit_narrow
from sardonyx.codegen.conv_resize import emit_resize
from sardonyx.codegen.conv_window import emit_global_pool, emit_window
from sardonyx.codegen.dot import emit_dot_kernel
from sardonyx.codegen.function import Function, module
from sardonyx.codegen.indexing import emit_index_kernel
from sardonyx.codegen.interleave import emit_interleave_kernel
from sardonyx.codegen.loader import ENTRY
from sardonyx.codegen.loops import emit_loop_kernel
from sardonyx.codegen.matmul import emit_matmul_kernel
from sardonyx.codegen.max_places import emit_max_places
from sardonyx.codegen.pack import emit_pack_kernel
from sardonyx.codegen.pool import emit_pool
from sardonyx.codegen.resample import emit_resample_kernel
from sardonyx.codegen.rnn import emit_recurrent
from sardonyx.codegen.sample import emit_sample_kernel
from sardonyx.codegen.scan import emit_scan_kernel
from sardonyx.codegen.sort import emit_sort_kernel
from sardonyx.codegen.suppress import emit_list_kernel, emit_suppress_kernel
from sardonyx.codegen.switch import emit_switch_kernel
from sardonyx.codegen.target import Target
from sardonyx.codegen.topk import emit_topk_kernel
from sardonyx.codegen.transpose import emit_transpose_kernel
from sardonyx.codegen.write import emit_write_kernel
from sardonyx.kernel.attention import AttentionKernel
from sardonyx.kernel.compact import CountKernel, PlacesKernel, StartsKernel
from sardonyx.kernel.conv import ConvKernel
from sardonyx.kernel.dot import DotKernel
from sardonyx.kernel.indexing import IndexKernel
from sardonyx.kernel.interleave import InterleaveKernel
from sardonyx.kernel.layout import LayoutKernel, ShiftKernel, SurroundKernel
from sardonyx.kernel.loops import LoopKernel
from sardonyx.kernel.matmul import MatMulKernel
from sardonyx.kernel.pack import PackKernel
from sardonyx.kernel.pool import MaxPlacesKernel, PoolKernel
from sardonyx.kernel.resample import ResampleKernel
from sardonyx.kernel.resize import ResizeKernel
from sardonyx.kernel.rnn import RecurrentKernel
from sardonyx.kernel.sample import SampleKernel
from sardonyx.kernel.scan import ScanKernel
from sardonyx.kernel.sort import SortKernel
from sardonyx.kernel.suppress import ListKernel, SuppressKernel
from sardonyx.kernel.switch import SwitchKernel
from sardonyx.kernel.topk import TopKKernel
from sardonyx.kernel.transpose import TransposeKernel
from sardonyx.kernel.window import GlobalPoolKernel, NarrowKernel, WindowKernel
from sardonyx.kernel.write import WriteKernel

Emitter = Callable[[Any, str, Target], Function]

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
