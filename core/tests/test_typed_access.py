"""Operands and attributes are read by the fields of an operation's class: no name in quotes and no
index, which nobody checks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from source_trees import nodes_of

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = (
    "core/src/tilewright/passes",
    "core/src/tilewright/reference",
    "core/src/tilewright/simt",
    "backends/cpu/src/tilewright_cpu/codegen",
    "backends/nvidia/src/tilewright_nvidia",
    "backends/amd/src/tilewright_amd",
)


def _is_literal(node: ast.expr) -> bool:
    """A number or text, or a place made of one: ``0``, ``-1``, ``3 + index``, ``1:``."""
    if isinstance(node, ast.Slice):
        return any(_is_literal(bound) for bound in (node.lower, node.upper) if bound is not None)
    if isinstance(node, ast.UnaryOp):
        return _is_literal(node.operand)
    if isinstance(node, ast.BinOp):
        return _is_literal(node.left) or _is_literal(node.right)
    return isinstance(node, ast.Constant)


def untyped(source: str) -> Iterator[int]:
    """Lines with ``attribute("name")``, ``operand("name")``, ``group("name")``,
    ``attributes["name"]`` or ``operands[literal]``. An attribute with a dot in its name is a note
    of who lowers the module, which no class has. What is written is not read; and a type rule is
    asked, of a ``shape``, before there is an operation."""
    for node in nodes_of(source):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="attribute" | "operand" | "group"),
                args=[ast.Constant(value=str(name)), *_],
            ) if "." not in name:
                yield node.lineno
            case ast.Call(
                func=ast.Attribute(attr="get", value=ast.Attribute(attr="attributes")),
                args=[ast.Constant(value=str(name)), *_],
            ) if "." not in name:
                yield node.lineno
            case ast.Subscript(
                ast.Attribute(attr="attributes", value=of),
                ast.Constant(value=str(name)),
                ast.Load(),
            ) if "." not in name and not _is_shape(of):
                yield node.lineno
            case ast.Subscript(value=ast.Attribute(attr="operands"), slice=place) if _is_literal(
                place
            ):
                yield node.lineno
            case ast.Assign(
                targets=[ast.Tuple(elts=elements)], value=ast.Attribute(attr="operands")
            ) if not any(map(_starred, elements)):
                yield node.lineno


def _is_shape(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "shape"


def _starred(node: ast.expr) -> bool:
    return isinstance(node, ast.Starred)


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_read_by_field(package: str) -> None:
    folder = ROOT / package
    assert folder.is_dir()
    found = []
    for file in sorted(folder.rglob("*.py")):
        found += [f"{file.relative_to(ROOT)}:{line}" for line in untyped(file.read_text())]
    assert not found


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('operation.attribute("axis")', [1]),
        ('operation.attributes.get("pure")', [1]),
        ('operation.attributes["value"]', [1]),
        ('operation.operand("mask") or operation.group("inits")', [1, 1]),
        ("operation.operands[0]", [1]),
        (
            "operation.operands[-1]\noperation.operands[3:]\noperation.operands[3 + index]",
            [1, 2, 3],
        ),
        ("a, b = operation.operands", [1]),
        ("a, *rest = operation.operands", []),
        ("operation.operands[index]", []),
        ('operation.attributes["toolkit.fact"]', []),
        ('operation.attributes["units"] = 3', []),
        ('shape.attributes["pixels"]', []),
        ("operation.attribute(name)", []),
    ],
)
def test_what_is_found(source: str, lines: list[int]) -> None:
    assert list(untyped(source)) == lines
