"""Kernels as functions of PyTorch, with gradients.

    import tilewright.torch

    swiglu = tilewright.torch.function(
        swiglu_kernel,
        outputs={"out": tilewright.torch.like("x")},
        wrt=("x", "w"),
        grid=lambda meta: (tw.cdiv(meta["n"], meta["BLOCK"]),),
        BLOCK=1024,
    )
    y = swiglu(x, w, x.numel())

The kernel becomes an operator of ``torch.library``, so that ``torch.compile`` and ``torch.export``
take it as a whole.
"""

from __future__ import annotations

from tilewright.torch.function import KernelFunction, function
from tilewright.torch.outputs import OutputLike, like

__all__ = ["KernelFunction", "OutputLike", "function", "like"]
