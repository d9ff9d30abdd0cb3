"""Tables that are put together of several modules' rows: a name that stands in two of them is
refused, so that no row hides another."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from types import ModuleType

import pytest

from tilewright.ir import TABLE
from tilewright.ir.ops.rules import nothing
from tilewright.ir.table import Attribute, Operand, OpSpec, OpTable, merged
from tilewright.ir.types import F32
from tilewright.language import libdevice
from tilewright.language.device_math import special
from tilewright.passes.decompose import catalogue, numbers, shapes
from tilewright.reference.operations import semantics, shape
from tilewright.simt.dialect.registry import interface_of, register_interfaces
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.lowering import scan


def test_rows_are_kept_in_order() -> None:
    assert list(merged({"b": 1, "a": 2}, {}, {"c": 3}).items()) == [("b", 1), ("a", 2), ("c", 3)]


def test_a_name_in_two_tables_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^pass 'a' has a row in two tables$"):
        merged({"b": 1, "a": 2}, {"c": 3}, {"a": 2}, what="pass")


@pytest.mark.parametrize("kind", ["types", "encodings"])
def test_a_keyword_is_read_in_one_way(kind: str) -> None:
    table = TABLE.extended((), **{kind: {"thing": lambda *_: None}})
    with pytest.raises(ValueError, match=f"{kind[:-1]} 'thing' has a row in two tables"):
        table.extended((), **{kind: {"thing": lambda *_: None}})


@pytest.mark.parametrize("name", ["tile", "desc", "ptr", "i1", "u64", "bf16", "f8e4m3fn"])
def test_types_of_tile_ir_are_read_by_no_other(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^type '{name}' is one of Tile IR's own"):
        TABLE.extended((), {name: lambda *_: F32})


def test_an_operation_is_declared_once_and_so_is_each_part_of_it() -> None:
    spec = OpSpec(
        "acme.blend",
        "",
        (Operand("a"), Operand("b")),
        nothing,
        (Attribute("scale", "int"),),
        regions=("body",),
    )
    with pytest.raises(ValueError, match=r"operation 'acme.blend' is declared twice"):
        OpTable((spec, spec))
    for twice in (
        {"operands": (Operand("a"), Operand("a"))},
        {"attributes": (Attribute("a", "int"),)},
        {"regions": ("a",)},
    ):
        with pytest.raises(ValueError, match=r"operation 'acme.blend' has two parts called 'a'"):
            dataclasses.replace(spec, **twice)


def test_an_operation_has_one_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(shape.MEANINGS, "add", lambda *_: None)
    with pytest.raises(ValueError, match="operation 'add' has a row in two tables"):
        importlib.reload(semantics)


def test_an_operation_has_one_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    row = numbers.ROWS[0]
    monkeypatch.setattr(shapes, "ROWS", (*shapes.ROWS, row))
    with pytest.raises(ValueError, match=f"operation '{row.operation}' has a row in two tables"):
        importlib.reload(catalogue)


def test_an_operation_of_the_toolkit_has_one_interface() -> None:
    (name, interface), *_ = scan.INTERFACES.items()
    with pytest.raises(ValueError, match=f"operation '{name}' has an interface already"):
        register_interfaces({"simt.unheard_of": interface, name: interface})
    assert interface_of(EmulatedTarget(), "simt.unheard_of") is None


@pytest.mark.parametrize(
    "name", ["tan", "fast_tanf", "tanh"]
)  # of another file, a fast one, one of the library's own file
def test_a_device_function_is_written_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(special.FUNCTIONS, name, None)
    with pytest.raises(ValueError, match=f"function '{name}' has a row in two tables"):
        _again(libdevice).__getattr__("__all__")


def _again(module: ModuleType) -> ModuleType:
    """The module, imported a second time."""
    assert module.__spec__ is not None and module.__spec__.loader is not None
    copy = importlib.util.module_from_spec(module.__spec__)
    module.__spec__.loader.exec_module(copy)
    return copy
