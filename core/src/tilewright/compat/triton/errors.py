"""``triton.errors``."""

from tilewright.errors import TilewrightError as TritonError

__all__ = ["TritonError"]
