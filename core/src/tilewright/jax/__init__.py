"""Kernels as functions of JAX, on CPUs and GPUs.

    import tilewright.jax

    out = {"out": jax.ShapeDtypeStruct(x.shape, x.dtype)}
    y = tilewright.jax.call(add, x, y, n, grid=(cdiv(n, 1024),), out=out, BLOCK=1024)

Under ``jax.jit`` the kernel is a call of XLA's foreign function interface; under ``jax.vmap`` the
grid gets another axis.
"""

from __future__ import annotations

from tilewright.jax.call import call

__all__ = ["call"]
