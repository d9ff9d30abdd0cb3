"""Instructions and runtime functions that LLVM does not choose by itself: target intrinsics, erf from tables, f16 in software."""
