"""Backends as plugins: hook specifications, manifests, discovery and the registry.

The package may import ``ir`` only.

What does not live here: anything that runs a kernel (``runtime``), any backend.
"""
