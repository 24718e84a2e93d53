"""The machine that code is made for.

Whoever decides something by what a machine can do asks for the fact that decides it (`registers`, `has_broadcast_operands`),
never for a name or a width that usually goes with it: so a new machine is a new description, not a change of kernels.

A target is made of LLVM's description of a machine (`describe`). It is plain data.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from sardonyx.records import dataclass
from sardonyx.target.machine import architecture_named, runtime_of

NATIVE: Final = "native"  # all that the machine has
CACHE_LINE: Final = 64  # bytes, on all machines that there is code for
LINE_NUMBERS: Final = CACHE_LINE // 4  # of 32 bits, that a line of the caches holds


class Rates(NamedTuple):
    """How fast a core is, in a nanosecond, where all cores do the same."""

    flops: int = 100  # of float32
    shared_cache_bytes: int = 40  # weights that the third cache gives
    memory_bytes: int = 12  # and that come from memory


# Processors that compute vectors of 512 bits in one piece, twice a cycle; others take them in halves. Zen 5 was measured (287,
# 56 to 63, 35 to 44), operations of Intel's servers follow from their clocks.
_RATES_OF_WHOLE_VECTORS: Final = {"znver5": Rates(280, 60, 35)} | dict.fromkeys(
    ("skylake-avx512", "cascadelake", "cooperlake", "icelake-server", "sapphirerapids", "emeraldrapids", "graniterapids"),
    Rates(170),
)


class Caches(NamedTuple):
    """Bytes of the data caches that a core sees."""

    l1d: int = 32 << 10
    l2: int = 1 << 20
    l3: int = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A machine, or what of it is used."""

    name: str  # NATIVE, or the level of the instruction set that was asked for
    architecture: str  # x86_64, aarch64, ...
    runtime: str  # how programs are loaded and run (`machine.runtime_of`)
    triple: str  # the next three are LLVM's
    cpu: str
    features: str
    vector_bits: int  # of the widest vectors
    registers: int  # that hold vectors
    caches: Caches
    flops_per_ns: int  # float32 operations of one core, about
    shared_cache_bytes_per_ns: int  # of weights, for one core of many that read them; from the third cache
    memory_bytes_per_ns: int  # and from memory
    has_fma: bool  # a multiplication and an addition in one instruction
    has_masked_accesses: bool  # vectors of any element type are loaded and stored in part
    has_broadcast_operands: bool  # arithmetic takes an element in memory for all lanes of an operand
    has_whole_vectors: bool  # the widest vectors are computed in one piece: as fast as elements are loaded
    has_exponent_scaling: bool  # x * 2**n in one instruction (scalef)
    has_faster_half_vectors: bool  # vectors of half the width take about half the time
    has_f16_conversion: bool  # between float16 and float32
    converts_to_nearest: bool  # vectors of floats become integers by rounding to the nearest, as one instruction
    truncates_to_smallest: bool  # a float that fits no i32 is its smallest number, as one instruction has it
    narrows_to_nearest: bool  # vectors of whole width: integers without a sign become the nearest bytes, as one instruction
    has_int8_dot: bool  # sums of four 8-bit products in 32 bits (VNNI, dotprod)
    has_byte_pairs: bool  # sums of two products of unsigned and signed bytes in 16 bits, which saturate (pmaddubsw)
    has_int8_tiles: bool  # products of small 8-bit matrices (i8mm)
    has_bf16_dot: bool  # sums of two bfloat16 products in float32
    has_byte_permute: bool  # any bytes out of two registers of 64 (VBMI)
    has_float_permute: bool  # any float32 out of two registers of 16 (vpermt2ps)

    @property
    def lanes(self) -> int:
        """How many float32 a vector holds."""
        return self.vector_bits // 32

    def lanes_of(self, bits: int) -> int:
        """How many elements of so many bits a vector holds."""
        return self.vector_bits // bits

    @property
    def packing(self) -> str:
        """Names what packed weights depend on besides their parameters; machines that differ in other things can share them."""
        return f"{self.architecture} {self.vector_bits}x{self.registers}"

    @property
    def key(self) -> str:
        """Names all that code depends on. Cache sizes are left out: they may decide which kernel is wanted, never its code."""
        facts = (self.runtime, self.triple, self.cpu, self.features, self.vector_bits, self.registers)
        return hashlib.sha256("|".join(map(str, facts)).encode()).hexdigest()[:16]


def describe(triple: str, cpu: str, features: str, caches: Caches | None = None, name: str = NATIVE) -> Target:
    """The target for LLVM's description of a machine."""
    family, _, rest = triple.partition("-")
    architecture = architecture_named(family)
    runtime = runtime_of(architecture, "linux" if "-linux" in rest else "")
    has = {feature[1:] for feature in features.split(",") if feature.startswith("+")}
    if architecture == "x86_64":
        wide = {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= has
        fma = {"avx2", "fma"} <= has
        whole = wide and cpu in _RATES_OF_WHOLE_VECTORS
        rates = _RATES_OF_WHOLE_VECTORS[cpu] if whole else Rates() if fma else Rates(20)
        return Target(
            name=name,
            architecture=architecture,
            runtime=runtime,
            triple=triple,
            cpu=cpu,
            features=features,
            vector_bits=512 if wide else 256 if fma else 128,
            registers=32 if wide else 16,
            caches=caches or Caches(),
            flops_per_ns=rates.flops,
            shared_cache_bytes_per_ns=rates.shared_cache_bytes,
            memory_bytes_per_ns=rates.memory_bytes,
            has_fma="fma" in has,
            has_masked_accesses=wide,
            has_broadcast_operands=wide,
            has_whole_vectors=whole or not wide,
            has_exponent_scaling=wide,
            has_faster_half_vectors=wide and not whole,
            has_f16_conversion="f16c" in has,
            converts_to_nearest=True,
            truncates_to_smallest=True,
            narrows_to_nearest=wide,
            has_int8_dot="avx512vnni" in has or "avxvnni" in has,
            has_byte_pairs="ssse3" in has,
            has_int8_tiles=False,
            has_bf16_dot="avx512bf16" in has,
            has_byte_permute="avx512vbmi" in has,
            has_float_permute=wide,
        )
    arm = architecture == "aarch64"
    rates = Rates(40 if arm else 20)
    return Target(
        name=name,
        architecture=architecture,
        runtime=runtime,
        triple=triple,
        cpu=cpu,
        features=features,
        vector_bits=128,
        registers=32 if arm else 16,
        caches=caches or Caches(),
        flops_per_ns=rates.flops,
        shared_cache_bytes_per_ns=rates.shared_cache_bytes,
        memory_bytes_per_ns=rates.memory_bytes,
        has_fma=arm,
        has_masked_accesses=False,
        has_broadcast_operands=False,
        has_whole_vectors=True,
        has_exponent_scaling=False,
        has_faster_half_vectors=False,
        has_f16_conversion=arm,
        converts_to_nearest=False,  # LLVM finds AArch64's instruction for a rounded float by itself
        truncates_to_smallest=False,  # but to the nearest number
        narrows_to_nearest=False,
        has_int8_dot="dotprod" in has,
        has_byte_pairs=False,
        has_int8_tiles="i8mm" in has,
        has_bf16_dot=arm and "bf16" in has,
        has_byte_permute=False,
        has_float_permute=False,
    )
