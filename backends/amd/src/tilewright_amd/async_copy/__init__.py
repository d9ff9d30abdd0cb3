"""Asynchronous copies to LDS: ``global_load_lds``."""
