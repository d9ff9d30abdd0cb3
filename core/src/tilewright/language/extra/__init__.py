"""Functions beyond the core language: ``tl.extra.libdevice``, and those of one maker's targets: ``tl.extra.cuda``, ``tl.extra.hip``,
``tl.extra.cpu``."""

import sys

from tilewright.language import libdevice
from tilewright.language.extra import cpu, cuda, hip

# Kernels are written with ``from ...extra.libdevice import tanh`` and ``from ...extra.cuda.libdevice import tanh`` too.
sys.modules.update({f"{__name__}{part}.libdevice": libdevice for part in ("", ".cpu", ".cuda", ".hip")})

__all__ = ["cpu", "cuda", "hip", "libdevice"]
