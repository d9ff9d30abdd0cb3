"""Kernels in Gluon: programs that have some are imported, and their launches are refused."""

from __future__ import annotations

import importlib

import pytest

import tilewright.compat.triton  # noqa: F401  # who imports triton from now on finds it
from tilewright.compat.triton.outside import OutsideError, OutsideKernelError, OutsideNameError


def test_a_kernel_in_gluon_is_defined_and_not_launched():
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl

    @gluon.jit
    def kernel(x, BLOCK: gl.constexpr):
        """Doc."""
        gl.thread_barrier()

    @gluon.jit(do_not_specialize=["x"])
    def other(x):
        gl.thread_barrier()

    assert kernel.__name__ == "kernel" and kernel.__doc__ == "Doc."
    for launch in (
        lambda: kernel[(1,)](0, BLOCK=1),
        lambda: kernel(0, 1),
        lambda: kernel.warmup(0, grid=(1,)),
        lambda: other[(1,)](0),
    ):
        with pytest.raises(OutsideKernelError, match=r"test_gluon\.py:\d+, is written in Gluon"):
            launch()


def test_a_module_names_functions_that_gluon_shares_with_triton():
    import triton.language as tl
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.language import extra

    assert (gl.exp, gl.log, gl.program_id, gl.float32) == (
        tl.exp,
        tl.log,
        tl.program_id,
        tl.float32,
    )
    assert extra.libdevice.tanh is tl.extra.libdevice.tanh


@pytest.mark.parametrize(
    "module", ["triton.experimental.gluon", "triton.experimental.gluon.language"]
)
def test_other_names_of_gluon_say_that_they_are_outside(module):
    with pytest.raises(OutsideNameError, match=rf"{module}\.BlockedLayout is outside .*Gluon"):
        importlib.import_module(module).BlockedLayout
    assert issubclass(OutsideKernelError, OutsideError) and issubclass(
        OutsideKernelError, NotImplementedError
    )
