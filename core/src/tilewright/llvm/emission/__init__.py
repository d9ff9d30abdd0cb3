"""LLVM IR as text: the writer, operations on scalars and vectors, debug locations, outlining."""
