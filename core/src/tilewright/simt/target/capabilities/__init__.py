"""Capabilities of a target: what the toolkit queries and emits, one kind of hardware a module.

Each is an object of a :class:`~tilewright.simt.target.simt_target.SimtTarget`. Optional hardware is
None on targets that lack it: :mod:`.tma`, :mod:`.async_proxy`, :mod:`.mbarriers`,
:mod:`.tensor_memory`, :mod:`.clusters`, :mod:`.named_barriers`, :mod:`.warp_specialization`,
:mod:`.kernel_assembly`.

Like the target, a capability is immutable. Emitting methods append LLVM IR to the writer that they
are passed and return names of values.
"""
