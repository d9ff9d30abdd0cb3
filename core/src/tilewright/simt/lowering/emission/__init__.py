"""State and helpers of emission: the kernel's context, addresses, shared memory and shuffles."""
