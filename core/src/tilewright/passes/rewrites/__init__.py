"""The rewrites of ``canonicalize``, one file a family; each row states the law it rests on.

The tables ``REWRITES`` of all files are found by their names (:mod:`..package_modules`).

What does not live here: the engine that applies them (:mod:`tilewright.passes.rewriter`).
"""
