"""Mixtures of experts: routing, sorting by expert, grouped SwiGLU, and the sum over experts."""
