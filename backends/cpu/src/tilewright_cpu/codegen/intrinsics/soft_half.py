"""Conversions between f16 and f32 for processors that have no instruction for them.

There code generation calls two functions of the compiler's runtime library, which a process need
not export; so a module brings its own.
"""

from __future__ import annotations

from typing import Final

#: LLVM IR of both functions. Local to the object: every kernel has its own.
SOFT_HALF: Final = """\
define internal float @__extendhfsf2(half %x) nounwind {
  %short = bitcast half %x to i16
  %bits = zext i16 %short to i32
  %magnitude = and i32 %bits, 32767
  %moved = shl i32 %magnitude, 13
  ; the difference of the biases, 112; twice that for infinity and NaN, whose exponent must stay
  ; the largest
  %normal = add i32 %moved, 939524096
  %largest = add i32 %moved, 1879048192
  %is.largest = icmp uge i32 %magnitude, 31744
  %is.nan = icmp ugt i32 %magnitude, 31744
  %quiet = select i1 %is.nan, i32 4194304, i32 0
  %special = or i32 %largest, %quiet
  %not.small = select i1 %is.largest, i32 %special, i32 %normal
  ; a subnormal number is its fraction times 2**-24
  %count = uitofp i32 %magnitude to float
  %small = fmul float %count, 0x3E70000000000000
  %small.bits = bitcast float %small to i32
  %is.small = icmp ult i32 %magnitude, 1024
  %positive = select i1 %is.small, i32 %small.bits, i32 %not.small
  %high = and i32 %bits, 32768
  %sign = shl i32 %high, 16
  %all = or i32 %positive, %sign
  %result = bitcast i32 %all to float
  ret float %result
}

define internal half @__truncsfhf2(float %x) nounwind {
  %bits = bitcast float %x to i32
  %magnitude = and i32 %bits, 2147483647
  ; to nearest even: add half a unit, less one where the last bit kept is even; a carry goes into
  ; the exponent
  %rebiased = sub i32 %magnitude, 939524096
  %last = lshr i32 %rebiased, 13
  %odd = and i32 %last, 1
  %half.unit = add i32 %odd, 4095
  %rounded = add i32 %rebiased, %half.unit
  %normal = lshr i32 %rounded, 13
  ; below 2**-14 the unit is 2**-24, which is that of f32 from 0.5 on
  %size = bitcast i32 %magnitude to float
  %aligned = fadd float %size, 5.000000e-01
  %aligned.bits = bitcast float %aligned to i32
  %small = sub i32 %aligned.bits, 1056964608
  %is.small = icmp ult i32 %magnitude, 947912704
  %finite = select i1 %is.small, i32 %small, i32 %normal
  ; 65520 is the smallest number that rounds to infinity
  %overflows = icmp uge i32 %magnitude, 1199566848
  %bounded = select i1 %overflows, i32 31744, i32 %finite
  %is.nan = icmp ugt i32 %magnitude, 2139095040
  %payload = lshr i32 %magnitude, 13
  %kept = and i32 %payload, 1023
  %nan = or i32 %kept, 32256
  %positive = select i1 %is.nan, i32 %nan, i32 %bounded
  %high = lshr i32 %bits, 16
  %sign = and i32 %high, 32768
  %all = or i32 %positive, %sign
  %short = trunc i32 %all to i16
  %result = bitcast i16 %short to half
  ret half %result
}
"""
