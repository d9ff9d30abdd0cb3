"""Lowering of Tile IR to LLVM IR for CPUs.

Tiles are evaluated lazily in fused loop nests over vector strips; a tile is put into memory only
where it must be. Each folder imports only those above it in this list:

- :mod:`.state`: stack slots and other parts of the state of lowering;
- :mod:`.context`: the state of lowering one function, which every file here codes against;
- :mod:`.analysis`: facts about tiles, among them which are kept in memory;
- :mod:`.gemm`: matmuls of matrices in memory;
- :mod:`.intrinsics`: instructions that LLVM does not choose by itself;
- :mod:`.sanitizer`: checks of memory accesses in debug mode;
- :mod:`.loops`: loop nests that evaluate tiles;
- :mod:`.ops`: the lowering of each operation;
- :mod:`.control`: regions, loops, branches, functions and calls.

:mod:`.registry` collects the lowerings, and :mod:`.kernel` writes the kernel. Compiling the text
and running kernels are not here, nor is the meaning of operations.
"""
