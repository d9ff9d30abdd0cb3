"""The rewrites of ``canonicalize``, one file a family; each row states the law it rests on.

What does not live here: the engine that applies them (:mod:`tilewright.passes.rewriter`).
"""
