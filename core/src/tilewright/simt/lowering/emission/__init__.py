"""The state of emitting one kernel, and what the emission of several operations shares: addresses,
accesses of shared memory, shuffles."""
