"""Functions beyond the core language: ``tl.extra.libdevice``."""

from tilewright.language import libdevice

__all__ = ["libdevice"]
