"""Matrix instructions: ``mma.sync``, ``wgmma``, ``tcgen05``, their fragments and operand loads."""
