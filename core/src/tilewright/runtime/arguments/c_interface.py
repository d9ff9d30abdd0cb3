"""Kernels as C functions: names and C types of their parameters, and argument words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.errors import LaunchError
from tilewright.ir.type_text import parse_type
from tilewright.ir.types import F32, F64, DescriptorType, FloatType, IntType, PointerType, Type
from tilewright.plugins.manifest import Parameter

#: Reserved words of C and C++.
_WORDS = """
    alignas alignof asm auto bool break case char class const constexpr continue default delete do
    double else enum export extern false float for goto if inline int long namespace new nullptr
    operator private register restrict return short signed sizeof static static_assert struct
    switch template this thread_local true typedef typename typeof union unsigned using virtual
    void volatile while
    """
_KEYWORDS = frozenset(_WORDS.split())


@dataclass(frozen=True)
class CParameter:
    """A parameter of a C function; ``copied`` parameters are packed by their bytes.

    Other parameters are converted to the number that the word holds.
    """

    declaration: str
    name: str
    copied: bool
    meaning: str


def c_parameters(parameters: Sequence[Parameter]) -> list[CParameter]:
    """Return the C parameters for a kernel's parameters, in order.

    A descriptor becomes an address, extents and strides in elements.

    Raises:
        LaunchError: no argument has the type of a parameter.
    """
    found: list[CParameter] = []
    for parameter in parameters:
        name, type_ = c_name(parameter.name), parse_type(parameter.type)
        const = "" if parameter.stored else "const "
        if isinstance(type_, DescriptorType):
            found.append(
                CParameter(
                    f"{const}{c_type(type_.element)} *{name}",
                    name,
                    False,
                    f"the first element of a tensor, {parameter.type}",
                )
            )
            for kind, what in (("extent", "elements"), ("stride", "elements from one to the next")):
                members = (f"{name}_{kind}{axis}" for axis in range(type_.rank))
                found.extend(
                    CParameter(f"int64_t {member}", member, False, f"{what} along axis {axis}")
                    for axis, member in enumerate(members)
                )
        elif isinstance(type_, PointerType):
            aligned = (
                f", a multiple of {parameter.divisibility} bytes"
                if parameter.divisibility > 1
                else ""
            )
            found.append(
                CParameter(
                    f"{const}{c_type(type_.pointee)} *{name}",
                    name,
                    False,
                    f"{parameter.type}{aligned}",
                )
            )
        elif isinstance(type_, IntType | FloatType):
            multiple = (
                f", a multiple of {parameter.divisibility}" if parameter.divisibility > 1 else ""
            )
            bits = ", its bits" if isinstance(type_, FloatType) and type_ not in (F32, F64) else ""
            found.append(
                CParameter(
                    f"{c_type(type_)} {name}",
                    name,
                    isinstance(type_, FloatType),
                    f"{parameter.type}{multiple}{bits}",
                )
            )
        else:
            raise LaunchError(
                f"parameter {parameter.name!r} of type {type_} has no counterpart in C"
            )
    return found


def c_name(name: str) -> str:
    """Convert a Python name, or that of a tuple's item, to a C identifier."""
    plain = re.sub(r"\W", "_", name)
    return f"{plain}_" if plain in _KEYWORDS else plain


def c_type(type_: Type) -> str:
    """Return the C type of a number in memory.

    Formats without a C type are unsigned integers of the same size; addresses are ``uint64_t``.
    """
    if type_ is F32:
        return "float"
    if type_ is F64:
        return "double"
    if isinstance(type_, IntType):
        return "uint8_t" if type_.bits == 1 else f"{'' if type_.signed else 'u'}int{type_.bits}_t"
    return f"uint{type_.bits}_t" if isinstance(type_, FloatType) else "uint64_t"


def words(parameters: Sequence[CParameter], array: str, first: int = 0) -> list[str]:
    """Return C statements that store arguments in a zeroed array of ``uint64_t``."""
    found = []
    for position, parameter in enumerate(parameters, first):
        if parameter.copied:
            found.append(
                f"memcpy(&{array}[{position}], &{parameter.name}, sizeof {parameter.name});"
            )
        elif "*" in parameter.declaration:
            found.append(f"{array}[{position}] = (uint64_t)(uintptr_t){parameter.name};")
        else:
            found.append(f"{array}[{position}] = (uint64_t)(int64_t){parameter.name};")
    return found


def header(name: str, includes: Sequence[str], lines: Sequence[str]) -> str:
    """Return the text of a header for C and C++."""
    guard = f"TILEWRIGHT_{name.upper()}_H"
    return "\n".join(
        (
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            *(f"#include <{include}>" for include in includes),
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            *lines,
            "",
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "",
            "#endif",
            "",
        )
    )


def comment(text: str, parameters: Sequence[CParameter] = ()) -> list[str]:
    """Format a comment that documents the parameters."""
    return [
        "/*",
        *(f" * {line}" for line in text.splitlines()),
        *(f" *   {each.name}: {each.meaning}" for each in parameters),
        " */",
    ]


def text_of_c(text: str) -> str:
    """Return a string as a C literal."""
    return (
        '"'
        + "".join(
            chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}"
            for byte in text.encode()
        )
        + '"'
    )
