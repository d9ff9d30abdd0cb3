"""The toolkit for backends whose programs run on warps of threads with a shared memory between
them.

Each folder imports only those above it in this list:

- :mod:`.layouts`: the algebra of linear layouts, which say which thread holds which elements of a
  tile, and of swizzled shared memory;
- :mod:`.dialect`: the operations, types and attributes that the toolkit adds to Tile IR, and the
  interface that says how an operation is laid out and lowered;
- :mod:`.target`: what a backend says of its hardware
  (:class:`~tilewright.simt.target.simt_target.SimtTarget`): instructions, copy mechanisms, matmul
  plans, costs;
- :mod:`.analysis`: what passes ask of a kernel and none of them changes;
- :mod:`.assign_layouts`: a layout for every tile, and conversions where layouts meet;
- :mod:`.passes`: rewrites before and after layouts, shared memory, barriers and fences;
- :mod:`.pipeline`: software pipelining and warp specialization of loops;
- :mod:`.lowering`: LLVM IR for one thread.

:mod:`.compile` runs all of them in order, :mod:`.report` describes the result, and :mod:`.emulator`
is a target that runs on the host, for tests. No vendor is named here.
"""
