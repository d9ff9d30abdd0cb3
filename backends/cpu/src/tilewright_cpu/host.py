"""``tilewright.cpu``: what the CPU backend brings for programs."""

from tilewright_cpu.prepack import PackedMatrix, prepack

__all__ = ["PackedMatrix", "prepack"]
