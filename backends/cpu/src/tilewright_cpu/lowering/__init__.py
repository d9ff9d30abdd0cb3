"""Lowering Tile IR to LLVM IR for CPUs.

Tiles are evaluated lazily in fused loop nests over vector chunks; a tile is put into memory only where it must be. :mod:`context` is what every
file here codes against; :mod:`analysis` decides once a function which tiles are kept; :mod:`evaluate`, :mod:`strides` and :mod:`masks` evaluate chunks;
:mod:`nest` writes loops over them and :mod:`materialize` tiles in memory; :mod:`reduce`, :mod:`memory`, :mod:`control`, :mod:`calls` and the files named after
operations lower statements; :mod:`kernel` writes the kernel.

What does not live here: compiling the text, running kernels, the meaning of operations.
"""
