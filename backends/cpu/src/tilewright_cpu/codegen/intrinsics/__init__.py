"""Code that LLVM does not choose by itself: target intrinsics, erf by tables, f16 in software."""
