"""Builtins and operators, a file for each family."""
