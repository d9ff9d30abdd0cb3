"""Kernels as C functions: names and C types of their parameters, and argument words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.errors import LaunchError
from tilewright.ir.type_text import parse_type
from tilewright.ir.types import F32, F64, DescriptorType, FloatType, IntType, PointerType, Type
from tilewright.plugins.manifest import Parameter

#: Words of C and C++ that are no names.
_WORDS = """
    alignas alignof asm auto bool break case char class const constexpr continue default delete do double else enum export extern false float for goto if
    inline int long namespace new nullptr operator private register restrict return short signed sizeof static static_assert struct switch template this
    thread_local true typedef typename typeof union unsigned using virtual void volatile while
    """
_KEYWORDS = frozenset(_WORDS.split())


@dataclass(frozen=True)
class CParameter:
    """A parameter of a C function. ``copied`` says that its bytes are the word, from the first on; else its number is."""

    declaration: str
    name: str
    copied: bool
    meaning: str


def c_parameters(parameters: Sequence[Parameter]) -> list[CParameter]:
    """The parameters of the C function for a kernel's, in order; a descriptor is an address, extents and strides in elements.

    Raises:
        LaunchError: no argument has the type of a parameter.
    """
    found: list[CParameter] = []
    for parameter in parameters:
        name, type_ = c_name(parameter.name), parse_type(parameter.type)
        const = "" if parameter.stored else "const "
        if isinstance(type_, DescriptorType):
            found.append(CParameter(f"{const}{c_type(type_.element)} *{name}", name, False, f"the first element of a tensor, {parameter.type}"))
            for kind, what in (("extent", "elements"), ("stride", "elements from one to the next")):
                members = (f"{name}_{kind}{axis}" for axis in range(type_.rank))
                found.extend(CParameter(f"int64_t {member}", member, False, f"{what} along axis {axis}") for axis, member in enumerate(members))
        elif isinstance(type_, PointerType):
            aligned = f", a multiple of {parameter.divisibility} bytes" if parameter.divisibility > 1 else ""
            found.append(CParameter(f"{const}{c_type(type_.pointee)} *{name}", name, False, f"{parameter.type}{aligned}"))
        elif isinstance(type_, IntType | FloatType):
            multiple = f", a multiple of {parameter.divisibility}" if parameter.divisibility > 1 else ""
            bits = ", its bits" if isinstance(type_, FloatType) and type_ not in (F32, F64) else ""
            found.append(CParameter(f"{c_type(type_)} {name}", name, isinstance(type_, FloatType), f"{parameter.type}{multiple}{bits}"))
        else:
            raise LaunchError(f"parameter {parameter.name!r} of type {type_} has no counterpart in C")
    return found


def c_name(name: str) -> str:
    """A name of Python's, or of an item of a tuple, as one of C."""
    plain = re.sub(r"\W", "_", name)
    return f"{plain}_" if plain in _KEYWORDS else plain


def c_type(type_: Type) -> str:
    """The C type of a number in memory; formats that C has none for are unsigned integers of their bits, addresses ``uint64_t``."""
    if type_ is F32:
        return "float"
    if type_ is F64:
        return "double"
    if isinstance(type_, IntType):
        return "uint8_t" if type_.bits == 1 else f"{'' if type_.signed else 'u'}int{type_.bits}_t"
    return f"uint{type_.bits}_t" if isinstance(type_, FloatType) else "uint64_t"


def words(parameters: Sequence[CParameter], array: str, first: int = 0) -> list[str]:
    """The statements that put arguments in an array of ``uint64_t`` that is zero."""
    found = []
    for position, parameter in enumerate(parameters, first):
        if parameter.copied:
            found.append(f"memcpy(&{array}[{position}], &{parameter.name}, sizeof {parameter.name});")
        elif "*" in parameter.declaration:
            found.append(f"{array}[{position}] = (uint64_t)(uintptr_t){parameter.name};")
        else:
            found.append(f"{array}[{position}] = (uint64_t)(int64_t){parameter.name};")
    return found


def header(name: str, includes: Sequence[str], lines: Sequence[str]) -> str:
    """The text of a header, for C and C++."""
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
    """A comment with the meanings of parameters."""
    return ["/*", *(f" * {line}" for line in text.splitlines()), *(f" *   {each.name}: {each.meaning}" for each in parameters), " */"]


def text_of_c(text: str) -> str:
    """A text as a literal of C."""
    return '"' + "".join(chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}" for byte in text.encode()) + '"'
