"""Plans of adjoints: the kernels that together write the gradients of a kernel's inputs.

``adjoint_plan`` is the data structure; ``make_plan`` derives it. An input whose cotangent the
programs of the kernel add to each other's is given a kernel of its own tiles: ``sum_axes`` finds
the axes of the grid that are summed over, the passes of :mod:`tilewright.derivatives.tiling` make
the kernels, and ``proven_writes`` replaces atomic additions where no two programs of such a kernel
write to one element. ``grid_extents`` has the extents of grids, which a launch evaluates.
"""
