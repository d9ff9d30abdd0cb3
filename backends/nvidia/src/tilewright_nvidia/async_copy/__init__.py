"""Asynchronous copies: ``cp.async``, TMA and its tensor maps, mbarriers, swizzle atoms."""
