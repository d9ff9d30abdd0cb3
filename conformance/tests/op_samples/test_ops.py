"""``tilewright ops``: its output agrees with the verifier, the passes and the samples."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tilewright.ir import TABLE
from tilewright.ir.parser import parse_module
from tilewright.ir.table import Kind, Operand, OpSpec
from tilewright.ir.types import element_type
from tilewright.passes.decompose.catalogue import decompose
from tilewright.passes.expand_math import expand_math
from tilewright.passes.inline import inline
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import Capabilities, Manifest
from tilewright.plugins.registry import registry
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.passes.scaled.expand_scaled import expand_scaled
from tilewright.simt.passes.tma.expand_descriptors import expand_descriptors
from tilewright.tools import cli
from tilewright_conformance.op_samples import samples
from tilewright_conformance.op_samples.op_types import _leaf, op_types
from tilewright_conformance.op_samples.ops import as_json, as_text, decomposed_by

NAMES = [spec.name for spec in TABLE]


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(["ops", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_list_has_every_operation_with_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = told(capsys)
    assert code == 0 and all(f"    {spec.name}" in out and spec.summary in out for spec in TABLE)
    assert [row["name"] for row in json.loads(told(capsys, "--json")[1])] == NAMES


def test_an_operation_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = told(capsys, "atomic_cass")
    assert code != 0 and "there is no operation 'atomic_cass'; did you mean atomic_cas?" in err
    assert "`tilewright ops` lists them" in told(capsys, "qqqqqqq")[2]


def test_add(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = told(capsys, "add")
    assert code == 0
    assert (
        "    a, b, result: i8 i16" in out
        and "refused: add: operands must have one type, not i8 and i1" in out
    )
    assert (
        "no capability: every backend has it" in out
        and "not in a backend's Manifest.computes" in out
        and "%2 = add %0, %1 : i8" in out
    )


def rows(name: str) -> list[dict[str, str]]:
    return [
        {role: " ".join(types) for role, types in row.items()}
        for row in as_json(TABLE[name])["types"]
    ]


def test_types_that_may_differ() -> None:
    found = rows("dot")
    assert {"a": "i8 u8", "b": "i8 u8", "c, result": "i32"} in found
    assert {"a": "f16", "b": "f16", "c, result": "f16 f32"} in found and len(found) == 6
    assert rows("cmp")[0]["result"] == "i1" and rows("exp") == [{"x, result": "f32 f64"}]
    assert {"x": "i64 u64 f64 ptr", "result": "i64 u64 f64 ptr"} in rows("bitcast")
    assert rows("addptr")[0]["offset"] == "i1 i8 i16 i32 i64 u8 u16 u32 u64"
    assert rows("constant")[0]["result"].startswith(
        "i1 i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 f8"
    )


@pytest.mark.parametrize("name", NAMES)
def test_all_that_is_told_of_an_operation(name: str) -> None:
    """The text has every operand and attribute.

    The example is valid, contains the operation, and has the listed types; samples do too if all
    types are listed.
    """
    spec = TABLE[name]
    text, data = as_text(spec), as_json(spec)
    json.dumps(data)
    assert all(f"    {part.name}" in text for part in (*spec.operands, *spec.attributes))
    assert any(operation.name == name for operation in parse_module(data["example"]).walk())
    types = op_types(spec)
    if types is None or not types.complete:
        return
    for sample in samples(name):
        for operation in sample.module.walk():
            if operation.name == name and operation.segments and all(operation.segments):
                assert any(fits(row, spec, operation) for row in types.rows), operation


def fits(row: dict[str, Any], spec: OpSpec, operation: Any) -> bool:
    """Return whether the first operand of each group has a type of its row.

    Operands with one role must have one type.
    """
    operands = iter(operation.operands)
    held: dict[str, Any] = {}
    for operand, count in zip(spec.operands, operation.segments, strict=True):
        held[operand.name] = _leaf(next(iter([next(operands) for _ in range(count)])).type)
    for role, allowed in row.items():
        given = {held[name] for name in role.split(", ") if name in held and held[name] is not None}
        if len(given) > 1 or not given <= set(allowed):
            return False
    return True


def without(name: str, by: str, module: Any) -> bool:
    """Return whether an operation's decomposition leaves none of it in a module."""
    (kernel,) = (function for function in module.functions.values() if function.kernel)
    if "Manifest.lowers" in by:
        decompose(module, set(NAMES) - {name})
    elif "expand_math" in by:
        expand_math(module, native_ldexp="native_ldexp=False" not in by)
    elif "inline.inline" in by:
        inline(module)
    elif "expand_scaled" in by:
        expand_scaled(kernel, EmulatedTarget())
    else:
        assert "expand_descriptors" in by
        expand_descriptors(kernel, EmulatedTarget())
    return not any(operation.name == name for operation in module.walk())


WHOLE = [
    (name, by)
    for name in NAMES
    for by in decomposed_by(TABLE[name])
    if name != "cast" and "Manifest.computes" not in by
]


@pytest.mark.parametrize(("name", "by"), WHOLE)
def test_who_takes_it_apart_does(name: str, by: str) -> None:
    assert without(name, by, next(samples(name)).module)


def test_casts_are_taken_apart_where_that_is_told() -> None:
    text = next(text for text in decomposed_by(TABLE["cast"]) if "expand_math" in text)
    formats = text.partition("to and from ")[2].partition(":")[0].split()
    assert "f8e4m3fn" in formats and "bf16" in formats and "f32" not in formats
    for format_ in formats:
        module = next(
            sample.module
            for sample in samples("cast")
            if sample.name.startswith(f"cast/{format_}_f32/")
        )
        expand_math(module)
        assert not any(
            operation.name == "cast" and str(operation.operands[0].type).endswith(format_)
            for operation in module.walk()
        )


def test_nobody_else_takes_anything_apart() -> None:
    told = {name for name, _ in WHOLE} | {"cast"}
    for name in set(NAMES) - told:
        for sample in list(samples(name))[:2]:
            expand_math(sample.module, native_ldexp=False)
            decompose(sample.module, ["call"])
            assert any(operation.name == name for operation in sample.module.walk()), name


def test_arithmetic_on_narrow_floats_is_told() -> None:
    told = {
        name
        for name in NAMES
        if any("Manifest.computes" in by for by in decomposed_by(TABLE[name]))
    }
    assert {"add", "fma", "cmp", "cast"} <= told and not {"load", "select", "sqrt"} & told
    for name in told - {"cast"}:
        module = next(sample.module for sample in samples(name) if "f16" in sample.name)
        decompose(module, NAMES, ["f32"])
        assert not any(
            operation.name == name and str(element_type(operation.operands[0].type)) == "f16"
            for operation in module.walk()
        )


def test_what_becomes_of_operations_for_a_backend(capsys: pytest.CaptureFixture[str]) -> None:
    class Plugin:
        __name__ = "vega"

        @hookimpl
        def tilewright_backend(self) -> Manifest:
            return Manifest(
                "vega",
                "1",
                "few",
                ("xpu",),
                ("t",),
                Capabilities(frozenset({"f32"})),
                lowers=frozenset({"add", "cmp"}),
                priority=-10,
            )

    registry().register(Plugin(), "vega")
    try:
        text = told(capsys, "--backend", "vega")[1]
        assert (
            "for vega\n    lowered: 2\n        add cmp\n    decomposed into operations that vega "
            "lowers: "
        ) in text
        assert (
            "\n    decomposed into operations that vega does not all lower: " in text
            and re.search(r"\n        min +may need and or select\n", text)
            and re.search(r"\n    not lowered, and without a decomposition: \d+\n", text)
        )
        rows = json.loads(told(capsys, "--backend", "vega", "--json")[1])
        states = {row["name"]: row["lowered"] for row in rows}
        lacks = {row["name"]: row["lacks"] for row in rows}
        assert (states["add"], states["min"], states["call"], states["load"]) == (
            "lowered",
            "decomposed",
            "decomposed",
            "not lowered",
        )
        assert lacks["min"] == ["and", "or", "select"] and lacks["add"] == lacks["load"] == []
        assert (
            "for vega\n    decomposed; vega may still have to lower: and or select\n"
            in told(capsys, "min", "--backend", "vega")[1]
        )
        assert (
            json.loads(told(capsys, "load", "--backend", "vega", "--json")[1])["lowered"]
            == "not lowered"
        )
    finally:
        registry().unregister("vega")
    assert (
        "lowered" not in told(capsys)[1]
        and json.loads(told(capsys, "min", "--json")[1])["lowered"] == ""
    )


def test_operations_of_a_plugin(capsys: pytest.CaptureFixture[str]) -> None:
    spec = OpSpec(
        "vega.fuse", "fuses", (Operand("x", "what is fused", Kind.VARIADIC),), lambda shape: ()
    )

    class Plugin:
        __name__ = "vega"

        @hookimpl
        def tilewright_backend(self) -> Manifest:
            return Manifest(
                "vega",
                "1",
                "fuses",
                ("xpu",),
                ("t",),
                Capabilities(frozenset({"f32"})),
                ops=(spec,),
                priority=-10,
            )

    registry().register(Plugin(), "vega")
    try:
        assert "of vega\n    vega.fuse" in told(capsys, "--backend", "vega")[1]
        code, out, _ = told(capsys, "vega.fuse", "--backend", "vega")
        assert code == 0 and "x  any number, what is fused" in out and "example" not in out
        assert "there is no operation 'vega.fuse'" in told(capsys, "vega.fuse")[2]
    finally:
        registry().unregister("vega")
