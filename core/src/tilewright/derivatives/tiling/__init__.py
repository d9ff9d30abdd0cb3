"""Re-tiling of adjoint kernels, whose programs add to each other's elements.

Each pass makes new kernels of one, and refuses what it does not follow with a
:class:`.kernel_memory.NoTilingError`. In the order of a plan: ``delinearize`` a grid of one axis;
``restrict_writes`` to the outputs that are summed over one axis; ``split_writes`` of several loops;
``materialize`` what is heavy before the loop; ``interchange`` the loop with that axis, or
``coarsen`` the axis where there is no loop; ``hoist_transposes``. The extents of new grids come
from ``iteration_counts`` and ``coordinate_box``, which a launch evaluates.
"""
