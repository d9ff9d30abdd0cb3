"""Outside tools and formats: AMD's LLVM, the HIP runtime library, code objects, assembly text."""
