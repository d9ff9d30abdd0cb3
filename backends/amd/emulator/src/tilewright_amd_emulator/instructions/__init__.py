"""Semantics of the instructions, a module a family; importing :mod:`.table` registers all."""
