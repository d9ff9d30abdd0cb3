"""LLVM IR of operations: arithmetic, casts, memory accesses, cross-lane reads, prints."""
