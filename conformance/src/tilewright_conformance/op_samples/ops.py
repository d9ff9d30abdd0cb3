"""``tilewright ops``: each operation of Tile IR, as the op table declares it.

It prints the meaning, operands, attributes, types, the passes that decompose the operation, and an
example.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.errors import similar
from tilewright.ir import TABLE
from tilewright.ir.ops import arithmetic, control, debug, linear, memory, shape
from tilewright.ir.printer import print_module
from tilewright.ir.table import Effect, Kind, OpSpec, OpTable
from tilewright.ir.types import F32, FLOATS, Type
from tilewright.runtime.compiler.capability_check import FEATURES
from tilewright.tools.usage import UsageError
from tilewright_conformance.op_samples.op_types import POINTER, OpTypes, op_types

if TYPE_CHECKING:
    from tilewright.plugins.registry import Backend

#: Files of ``tilewright.ir.ops``, and what their operations are together.
_FAMILIES = {
    "arithmetic": ("element by element", arithmetic),
    "shape": ("shapes", shape),
    "memory": ("memory", memory),
    "linear": ("matmuls", linear),
    "control": ("control", control),
    "debug": ("for people, hints and foreign code", debug),
}
_KINDS = {Kind.SINGLE: "", Kind.OPTIONAL: "optional", Kind.VARIADIC: "any number"}
_EFFECTS = {
    Effect.READ: "reads memory",
    Effect.WRITE: "writes memory",
    Effect.ORDER: "keeps its place among effects",
    Effect.REGION: "what its regions do",
}

#: How a row of the catalogue of decompositions is asked for.
_CATALOGUE = "Manifest.lowers"
_DESCRIPTORS = (
    "make_descriptor",
    *(
        f"descriptor_{what}"
        for what in ("load", "store", "reduce", "gather", "scatter", "extent", "stride")
    ),
)
#: operation -> the pass or stage that replaces it by others, which a backend may run in place of
#: lowering it. Functions and casts: :func:`decomposed_by`.
_DECOMPOSED: Mapping[str, str] = {
    "call": "tilewright.passes.inline.inline puts the function's body in its place",
    "dot_scaled": (
        "tilewright.simt.passes.scaled.expand_scaled makes a dot of unpacked and scaled "
        "operands of it; a stage of the GPU toolkit"
    ),
    **dict.fromkeys(
        _DESCRIPTORS,
        "tilewright.simt.passes.tma.expand_descriptors makes pointers and masks of it, but for "
        "copies that the target has; a stage of the GPU toolkit",
    ),
}
#: operation -> how a manifest says that a target has it, where no feature does
_DECLARED: Mapping[str, str] = {
    "dot": "Capabilities.dot, dot_precisions, min_dot, orders",
    **dict.fromkeys(("atomic_rmw", "atomic_cas", "descriptor_reduce"), "Capabilities.atomics"),
}


def ops_command(options: argparse.Namespace) -> int:
    """Run the command and return the exit code.

    Raises:
        UsageError: there is no such operation.
        BackendError: there is no such backend.
    """
    from tilewright.tools.printing import print_json

    table, backend = TABLE, None
    if options.backend:
        from tilewright.plugins.registry import registry

        backend = registry().get(options.backend)
        table = backend.table
    if options.name is None:
        found = [
            {
                "name": spec.name,
                "family": family_of(spec),
                "meaning": spec.summary,
                **_for_backend(spec, backend),
            }
            for spec in table
        ]
        print_json(found) if options.json else print(_listing(table, backend))
        return 0
    if options.name not in table:
        near = similar(options.name, [spec.name for spec in table])
        raise UsageError(
            f"there is no operation {options.name!r}; "
            f"{near if near else '`tilewright ops` lists them'}"
        )
    spec = table[options.name]
    print_json({**as_json(spec), **_for_backend(spec, backend)}) if options.json else print(
        as_text(spec, backend)
    )
    return 0


def family_of(spec: OpSpec) -> str:
    """The key of the family that an operation is declared in; for one of a plugin its namespace."""
    return next(
        (name for name, (_, module) in _FAMILIES.items() if spec in module.OPS),
        spec.name.partition(".")[0],
    )


def decomposed_by(spec: OpSpec) -> list[str]:
    """List the passes that decompose an operation, each with its replacement.

    The list is empty where every backend lowers the operation itself.
    """
    from tilewright.passes.decompose.catalogue import CATALOGUE
    from tilewright.passes.decompose.widen import WIDENED
    from tilewright.passes.math.math_library import MATH, cast_function, math_function

    found = []
    if spec.name in CATALOGUE:
        row = CATALOGUE[spec.name]
        found.append(
            f"the runtime, for backends whose {_CATALOGUE} is without it: "
            f"{row.law}{f'; into {chr(32).join(row.into)}' if row.into else ''}"
        )
    if spec.name in WIDENED:
        found.append(
            "the runtime, for operands of floats that are not in a backend's Manifest.computes: in "
            "f32, rounded as if in one step"
        )
    if spec.name == "cast":
        narrow = " ".join(
            str(type_)
            for type_ in FLOATS
            if any(
                cast_function(*pair, "rtne") is not None for pair in ((type_, F32), (F32, type_))
            )
        )
        found.append(
            "the runtime, to and from floats that are not in a backend's Manifest.computes: "
            "integer operations split and join their bits"
        )
        found.append(
            f"tilewright.passes.expand_math.expand_math, to and from {narrow}: in the same way"
        )
    function = math_function(spec.name, F32, native_ldexp=False)
    if function is not None:
        bound = MATH.get((spec.name, F32))
        exact = f", within {bound.strict_ulp:g} ULP in f32" if bound is not None else ""
        kept = (
            ", with native_ldexp=False"
            if math_function(spec.name, F32) is None or spec.name == "ldexp"
            else ""
        )
        found.append(
            f"tilewright.passes.expand_math.expand_math{kept}, into operations of elementary "
            f"arithmetic{exact}; keep={{'{spec.name}'}} leaves it to the backend"
        )
    return found + ([_DECOMPOSED[spec.name]] if spec.name in _DECOMPOSED else [])


def lowered_by(spec: OpSpec, backend: Backend | None) -> str:
    """A backend's treatment of an operation: ``lowered``, ``decomposed`` or ``not lowered``.

    It is empty where the backend's manifest does not say. A decomposed operation works only where
    the backend lowers what it is decomposed into: see :func:`lacking`.
    """
    from tilewright.passes.decompose.catalogue import CATALOGUE

    if backend is None or not backend.manifest.lowers:
        return ""
    if spec.name in backend.manifest.lowers:
        return "lowered"
    return "decomposed" if spec.name in CATALOGUE or spec.name == "call" else "not lowered"


def lacking(spec: OpSpec, backend: Backend | None) -> list[str]:
    """The operations that a backend may still have to lower for a decomposed operation.

    They are what the operation may be decomposed into, step by step, and the backend neither lowers
    nor has decomposed. The list is empty for an operation that is not decomposed.
    """
    from tilewright.passes.decompose.catalogue import CATALOGUE

    if backend is None or lowered_by(spec, backend) != "decomposed":
        return []
    found, seen, waiting = set(), {spec.name}, [spec.name]
    while waiting:
        row = CATALOGUE.get(waiting.pop())
        new = set(row.into if row is not None else ()) - seen - backend.manifest.lowers
        seen |= new
        found |= new - set(CATALOGUE)
        waiting += sorted(new)
    return sorted(found)


def _for_backend(spec: OpSpec, backend: Backend | None) -> dict[str, Any]:
    return {"lowered": lowered_by(spec, backend), "lacks": lacking(spec, backend)}


def declared_by(spec: OpSpec) -> str:
    """The part of a manifest that declares an operation; empty where every backend must have it."""
    if spec.name in FEATURES:
        return f"the feature {FEATURES[spec.name]!r}"
    return _DECLARED.get(spec.name, "")


def example(spec: OpSpec) -> str:
    """The shortest sample with the operation, as text; empty for an operation without samples."""
    from tilewright_conformance.op_samples import FAMILIES

    texts = (
        [print_module(sample.module, locations=False) for sample in FAMILIES[spec.name]()]
        if spec.name in FAMILIES
        else []
    )
    return min(texts, key=len, default="")


def as_json(spec: OpSpec) -> dict[str, Any]:
    """All of it as JSON-able data."""
    types = op_types(spec)
    return {
        "name": spec.name,
        "family": family_of(spec),
        "meaning": spec.summary,
        "operands": [
            {"name": operand.name, "kind": operand.kind.value, "meaning": operand.meaning}
            for operand in spec.operands
        ],
        "attributes": [
            {
                "name": attribute.name,
                "kind": attribute.kind,
                "meaning": attribute.meaning,
                "choices": list(attribute.choices),
                **({} if attribute.required else {"default": attribute.default}),
            }
            for attribute in spec.attributes
        ],
        "regions": list(spec.regions),
        "effects": [text for flag, text in _EFFECTS.items() if flag in spec.effects],
        "elementwise": spec.elementwise,
        "types": []
        if types is None
        else [
            {role: [_type_text(type_) for type_ in allowed] for role, allowed in row.items()}
            for row in types.rows
        ],
        "types_complete": types is not None and types.complete,
        "mixed_types": "" if types is None else types.refusal,
        "declared_by": declared_by(spec),
        "decomposed_by": decomposed_by(spec),
        "example": example(spec),
    }


def as_text(spec: OpSpec, backend: Backend | None = None) -> str:
    """All of it for people, with what becomes of it for a backend."""
    sections = [f"{spec.name}: {spec.summary}"]
    operands = [
        (operand.name, ", ".join(filter(None, (_KINDS[operand.kind], operand.meaning))))
        for operand in spec.operands
    ]
    sections.append(_section("operands", operands or [("none", "")]))
    if spec.attributes:
        sections.append(
            _section(
                "attributes",
                [(attribute.name, _attribute_text(attribute)) for attribute in spec.attributes],
            )
        )
    notes = [text for flag, text in _EFFECTS.items() if flag in spec.effects]
    notes += ["elementwise: on scalars, or on tiles of one shape"] * spec.elementwise + [
        f"region {name}" for name in spec.regions
    ]
    if notes or spec.terminator:
        sections.append(
            _section(
                "properties",
                [(note, "") for note in [*notes, *["ends a region"] * spec.terminator]],
            )
        )
    sections += _types_sections(op_types(spec))
    declared = declared_by(spec)
    sections.append(
        _section("declared by", [(declared or "no capability: every backend has it", "")])
    )
    passes = decomposed_by(spec)
    sections.append(
        _section(
            "may be decomposed by",
            [(text, "") for text in passes] or [("no pass: every backend lowers it itself", "")],
        )
    )
    state = lowered_by(spec, backend)
    if backend is not None and state:
        lacks = " ".join(lacking(spec, backend))
        if lacks:
            state = f"{state}; {backend.name} may still have to lower: {lacks}"
        sections.append(_section(f"for {backend.name}", [(state, "")]))
    text = example(spec)
    if text:
        sections.append(
            "example\n" + "\n".join(f"    {line}".rstrip() for line in text.strip().splitlines())
        )
    return "\n\n".join(sections)


def _types_sections(types: OpTypes | None) -> list[str]:
    if types is None:
        return []
    rows = []
    for row in types.rows:
        lines = [
            (
                role,
                _types_text(allowed, ", one for all" if ", " in role and len(allowed) > 1 else ""),
            )
            for role, allowed in row.items()
        ]
        rows.append("\n".join(f"    {role}: {text}" for role, text in lines))
    title = (
        "element types, one alternative per line"
        if types.complete
        else "element types in its samples, one alternative per line"
    )
    mixed = f"refused: {types.refusal}" if types.refusal else "as the lines above allow"
    return [
        f"{title}\n" + "\n    or\n".join(rows),
        _section("mixed types", [(mixed, "")]),
        _section("examples of full types", [(text, "") for text in types.signatures]),
    ]


def _types_text(types: tuple[Type, ...], rest: str) -> str:
    return " ".join(map(_type_text, types)) + rest


def _type_text(type_: Type) -> str:
    return "ptr" if type_ is POINTER else str(type_)


def _attribute_text(attribute: Any) -> str:
    kind = " | ".join(choice or "''" for choice in attribute.choices) or attribute.kind
    default = "" if attribute.required else f" (else {attribute.default!r})"
    return f"{kind}{default}{': ' if attribute.meaning else ''}{attribute.meaning}"


def _section(title: str, rows: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, text in rows) if any(text for _, text in rows) else 0
    return "\n".join([title, *(f"    {name:{width}}  {text}".rstrip() for name, text in rows)])


def _listing(table: OpTable, backend: Backend | None) -> str:
    width = max(len(spec.name) for spec in table)
    lines: list[str] = []
    for family in dict.fromkeys(map(family_of, table)):
        title = _FAMILIES[family][0] if family in _FAMILIES else f"of {family}"
        lines += [
            "",
            title,
            *(
                f"    {spec.name:{width}}  {spec.summary}"
                for spec in table
                if family_of(spec) == family
            ),
        ]
    if backend is not None and backend.manifest.lowers:
        lines += ["", *_states(table, backend)]
    return "\n".join(lines[1:])


def _states(table: OpTable, backend: Backend) -> list[str]:
    """All operations by what becomes of them for a backend."""
    name = backend.name
    lacks = {spec.name: " ".join(lacking(spec, backend)) for spec in table}
    named: dict[str, list[str]] = {"lowered": [], "decomposed": [], "not lowered": []}
    for spec in table:
        named[lowered_by(spec, backend)].append(spec.name)
    whole = [operation for operation in named["decomposed"] if not lacks[operation]]
    partly = [operation for operation in named["decomposed"] if lacks[operation]]
    lines = [f"for {name}", *_words("lowered", named["lowered"])]
    lines += _words(f"decomposed into operations that {name} lowers", whole)
    if partly:
        width = max(map(len, partly))
        lines += [
            f"    decomposed into operations that {name} does not all lower: {len(partly)}",
            *(f"        {operation:{width}}  may need {lacks[operation]}" for operation in partly),
        ]
    return lines + _words("not lowered, and without a decomposition", named["not lowered"])


def _words(title: str, names: list[str]) -> list[str]:
    indent = " " * 8
    return [
        f"    {title}: {len(names)}",
        *textwrap.wrap(" ".join(names), 120, initial_indent=indent, subsequent_indent=indent),
    ]


__all__ = [
    "as_json",
    "as_text",
    "declared_by",
    "decomposed_by",
    "example",
    "family_of",
    "lacking",
    "lowered_by",
    "ops_command",
]
