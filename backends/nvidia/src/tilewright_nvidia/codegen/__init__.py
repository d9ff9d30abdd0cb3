"""LLVM IR and inline PTX of operations: arithmetic, casts, memory accesses, atomics, prints."""
