"""Syntax trees of the sources, which several tests read: each text is parsed and walked once."""

from __future__ import annotations

import ast
import functools


@functools.cache
def nodes_of(text: str) -> tuple[ast.AST, ...]:
    """Return all nodes of a module, which comes first."""
    return tuple(ast.walk(ast.parse(text)))


def tree_of(text: str) -> ast.Module:
    """Return the syntax tree of a module."""
    tree = nodes_of(text)[0]
    assert isinstance(tree, ast.Module)
    return tree
