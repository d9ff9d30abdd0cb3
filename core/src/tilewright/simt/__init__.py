"""The toolkit for backends whose programs run on warps of threads with a shared memory between them.

A layout says which thread holds which elements of a tile (:mod:`.linear_layout`). Tile IR is prepared (:mod:`.expand`), each tile is given a layout and
conversions are put in where layouts meet (:mod:`.assign`), loops over matrix products are pipelined (:mod:`.pipeline`), shared memory is allocated and
barriers placed (:mod:`.shared_memory`, :mod:`.barriers`), and all of it is written as LLVM IR for one thread (:mod:`.lower`). What a machine has, a
:class:`~tilewright.simt.target.SimtTarget` tells. No vendor is named here.
"""
