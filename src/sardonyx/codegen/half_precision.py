"""Float16 to float32 and back, for machines that have no instructions for it.

LLVM calls functions of its own runtime library there, which is not loaded: they are defined in each kernel that needs them, under
the names and with the arguments that LLVM expects.
"""

from __future__ import annotations

from typing import Final

from sardonyx.target.target import Target

# The bits of a float16, shifted to where a float32 has them, are its number divided by 2**112, subnormal ones too.
# Going back, the sum with 0.5 has the last bit of a subnormal float16 as its own: the addition rounds.
_FUNCTIONS: Final = """
define float @__extendhfsf2(half %x) {
  %bits = bitcast half %x to i16
  %wide = zext i16 %bits to i32
  %magnitude = and i32 %wide, 32767
  %sign = and i32 %wide, 32768
  %sign_bit = shl i32 %sign, 16
  %shifted = shl i32 %magnitude, 13
  %small = bitcast i32 %shifted to float
  %number = fmul float %small, 0x46F0000000000000
  %number_bits = bitcast float %number to i32
  %is_finite = icmp ult i32 %magnitude, 31744
  %is_nan = icmp ugt i32 %magnitude, 31744
  %quiet = select i1 %is_nan, i32 4194304, i32 0
  %infinite = or i32 %shifted, 2139095040
  %no_number = or i32 %infinite, %quiet
  %chosen = select i1 %is_finite, i32 %number_bits, i32 %no_number
  %signed = or i32 %chosen, %sign_bit
  %result = bitcast i32 %signed to float
  ret float %result
}

define half @__truncsfhf2(float %x) {
  %bits = bitcast float %x to i32
  %magnitude = and i32 %bits, 2147483647
  %upper = lshr i32 %bits, 16
  %sign = and i32 %upper, 32768
  %last = lshr i32 %magnitude, 13
  %odd = and i32 %last, 1
  %rebased = sub i32 %magnitude, 939520001
  %halfway = add i32 %rebased, %odd
  %normal = lshr i32 %halfway, 13
  %absolute = bitcast i32 %magnitude to float
  %aligned = fadd float %absolute, 5.000000e-01
  %aligned_bits = bitcast float %aligned to i32
  %subnormal = sub i32 %aligned_bits, 1056964608
  %is_small = icmp ult i32 %magnitude, 947912704
  %finite = select i1 %is_small, i32 %subnormal, i32 %normal
  %payload = and i32 %last, 511
  %nan = or i32 %payload, 32256
  %is_nan = icmp ugt i32 %magnitude, 2139095040
  %no_number = select i1 %is_nan, i32 %nan, i32 31744
  %is_large = icmp uge i32 %magnitude, 1199570944
  %chosen = select i1 %is_large, i32 %no_number, i32 %finite
  %signed = or i32 %chosen, %sign
  %short = trunc i32 %signed to i16
  %result = bitcast i16 %short to half
  ret half %result
}
"""


def with_conversions(ir: str, target: Target) -> str:
    """A module, with the functions that LLVM will call for its conversions on this target."""
    return ir if target.has_f16_conversion or "half" not in ir else ir + _FUNCTIONS
