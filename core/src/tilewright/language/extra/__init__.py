"""Functions beyond the core language: ``tl.extra.libdevice``, and those of one maker's targets: ``tl.extra.cuda``, ``tl.extra.hip``."""

import sys

from tilewright.language import libdevice
from tilewright.language.extra import cuda, hip

# Kernels are written with ``from ...extra.libdevice import tanh`` and ``from ...extra.cuda.libdevice import tanh`` too.
sys.modules.update({f"{__name__}{part}.libdevice": libdevice for part in ("", ".cuda", ".hip")})

__all__ = ["cuda", "hip", "libdevice"]
