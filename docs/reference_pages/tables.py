"""Pages that describe many names together: mathematics, the device library, values, types, the
core, the host, Triton's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from reference_pages import docstrings
from tilewright import debug, testing
from tilewright.ir.types import F32, F64
from tilewright.language.device_math.accuracy import ULP
from tilewright.passes.math.math_library import MATH
from tilewright_conformance.api_coverage.probes.libdevice import DIRECTED, FLOATS, SINGLE
from tilewright_conformance.api_coverage.probes.math_functions import UNARY
from tilewright_conformance.api_coverage.public_names import WITHOUT_OBJECT, Name, names, resolve


def since_text(name: Name) -> str:
    """When a name came, in words."""
    if name.since != "tilewright":
        return f"`{name.full}` has been part of Triton's language since version {name.since}."
    for other in names().values():
        if other.full.startswith("triton.") and other.last == name.last:
            return (
                f"`{name.full}` corresponds to `{other.full}`, which Triton has had since version "
                f"{other.since}."
            )
    return f"`{name.full}` exists only in Tilewright, not in Triton."


def described_on(path: str) -> list[Name]:
    """The names of a table page."""
    return [name for name in names().values() if f"{name.page}.md" == path]


def summary(name: Name) -> str:
    """The first paragraph of what a name stands for, for a cell."""
    if name.kind in WITHOUT_OBJECT or name.kind in ("module", "constant"):
        return _NOTES.get(name.full, "")
    try:
        found = resolve(name)
    except LookupError:
        return ""
    if isinstance(found, property):
        found = found.fget
    found = getattr(found, "fn", found) if type(found).__name__ == "Member" else found
    text = docstrings.parse(found).summary if callable(found) or inspect.ismodule(found) else ""
    return _NOTES.get(name.full, text).replace("|", "\\|")


def table(rows: Iterable[Name]) -> str:
    """Names with what they mean and when they came."""
    lines = [
        f"| `{name.full}` | {_meaning(name)} | {name.since} |".replace(
            "`operator |`", "`operator \\|`"
        )
        for name in rows
    ]
    return "\n".join(["| name | meaning | since |", "|---|---|---|", *lines]) + "\n"


def _meaning(name: Name) -> str:
    if name.alias:
        return f"the same as `{name.alias}`"
    return summary(name)


_SINCE = (
    'In the tables of this page, the column "since" states the version of Triton that introduced '
    'a name. For a name that Triton does not have, this column contains the word "tilewright".'
)


def _by_family(path: str, title: str, introduction: str) -> Callable[[], str]:
    def make() -> str:
        text = f"# {title}\n\n{introduction} {_SINCE}\n"
        found = described_on(path)
        for family in dict.fromkeys(name.family for name in found):
            text += f"\n## {family}\n\n{table(name for name in found if name.family == family)}"
        return text

    return make


# -- bounds
# --------------------------------------------------------------------------------------------------

_EXACT = {
    "floor",
    "ceil",
    "abs",
    "trunc",
    "rint",
    "nearbyint",
    "round",
    "fmod",
    "remainder",
    "copysign",
    "logb",
    "nextafter",
    "ldexp",
    "scalbn",
}
_ROUNDED = {"fma", "sqrt_rn", "div_rn", "fdim"}


def bounds(function: str) -> tuple[str, str, str]:
    """(strict fp32 and fp64, relaxed fp32 and fp64, checked in every run of the probes), in ULP."""
    single, double = MATH.get((function, F32)), MATH.get((function, F64))
    checked = _checked(function)
    if single is not None and double is not None:
        return (
            f"{single.strict_ulp:g} / {double.strict_ulp:g}",
            f"{single.relaxed_ulp:g} / {double.relaxed_ulp:g}",
            checked,
        )
    if function in ULP:
        return f"{ULP[function][0]:g} / {ULP[function][1]:g}", "", checked
    if function in _EXACT:
        return "exact", "exact", checked
    if function in _ROUNDED or function.rpartition("_")[0] in DIRECTED:
        return "correctly rounded", "correctly rounded", checked
    if function == "rsqrt_rn":
        return "correctly rounded / 1.5", "correctly rounded / 1.5", checked
    if function == "sqrt":
        return "correctly rounded", "2 / correctly rounded", checked
    if function == "fdiv":
        return "correctly rounded", "2.5 / correctly rounded", checked
    return "", "", checked


def _checked(function: str) -> str:
    row = FLOATS.get(function)
    if row is not None:
        return f"{row[2]:g} / {row[3]:g}"
    if function in UNARY:
        return f"{UNARY[function][3]:g} / {UNARY[function][4]:g}"
    return f"{SINGLE[function][2]:g} / –" if function in SINGLE else ""


_BOUNDS = """
The table states the maximum error of each function in units in the last place (ULP) of the exact
value. If a cell contains two numbers, such as "3 / 1", the first number is the bound for fp32, and
the second number is the bound for fp64. The table has three columns of bounds:

- The column "strict" states the bound for the implementation that all backends share. The results
  of this implementation are the same on every backend.
- The column "relaxed" states the bound for functions that a backend computes with the faster
  instructions of its hardware. A backend uses these instructions only if the launch option `math`
  allows it, or for an fp32 `sqrt`, or for an fp32 `fdiv` without `ieee_rounding=True`.
- The column "checked" states by how much a result is allowed to differ from the value that NumPy
  computes. On every backend, the tests and the command `tilewright surface` fail if the difference
  is larger. For this check, the launch option `math` has the backend's default. The permitted
  difference includes the error of NumPy's value.

For arguments below -1/2, `lgamma` has zeros, and near a zero, the ULP of the exact value is
arbitrarily small. The error for these arguments is therefore stated in units of the ULP of another
number: the maximum of 1, the magnitude of the exact value, and `lgamma(-x)`. For infinities, NaN,
signed zeros and subnormal numbers, all functions follow IEEE 754 and Annex F of the C standard,
except that the faster instructions may return 0 for results below the range of normal numbers and
for quotients with divisors from 2**126 on.
"""


def _math() -> str:
    text = (
        "# Mathematics\n\nThe modules `tl` and `tl.math` both contain the functions on this page, "
        "except that `sigmoid` is only in `tl`. "
        "Functions of one operand are also methods of tensors, so that you can write `x.exp()`. "
        f"{_SINCE}\n{_BOUNDS}\n"
    )
    text += (
        "| function | meaning | types | strict | relaxed | checked | since |\n"
        "|---|---|---|---|---|---|---|\n"
    )
    for name in described_on("language/math.md"):
        if name.alias:
            continue
        found = resolve(name)
        strict, relaxed, checked = bounds(name.last)
        call = ", ".join(docstrings.parse(found).parameters)
        cells = (
            f"`tl.{name.last}({call})`, `tl.math.{name.last}`",
            summary(name),
            _types(name.last),
            strict,
            relaxed,
            checked,
            name.since,
        )
        text += f"| {' | '.join(cells)} |\n"
    text = text.replace("`tl.math.sigmoid`", "`x.sigmoid()`")
    return text + (
        '\nIf the column "types" does not list the type of an operand of a function, the compiler '
        "raises a `CompilationError`. Cast the operand first, as in `tl.exp(x.to(tl.float32))`.\n"
    )


def _types(function: str) -> str:
    return {
        "abs": "all numbers",
        "fdiv": "floats; fp16 and bf16 give fp32",
        "fma": "floats",
        "umulhi": "32 and 64-bit integers",
        "sqrt_rn": "fp32",
        "div_rn": "fp32",
    }.get(function, "fp32, fp64")


def _libdevice() -> str:
    text = (
        "# Device library\n\nThe module `tl.extra.libdevice` has the same functions on every "
        "backend. If the name of a function has a suffix, the suffix states how the function "
        "rounds: `_rn` to the nearest number, ties to even; `_rz` towards zero; `_rd` down; and "
        "`_ru` up.\n"
    )
    text += (
        f"{_BOUNDS}\n| function | meaning | strict | relaxed | checked |\n|---|---|---|---|---|\n"
    )
    for name in described_on("language/libdevice.md"):
        found = resolve(name)
        call = (
            ", ".join(
                parameter
                for parameter in inspect.signature(found).parameters
                if parameter != "_semantic"
            )
            if _is_plain(found)
            else "x, y"
        )
        strict, relaxed, checked = bounds(name.last)
        text += f"| `{name.last}({call})` | {summary(name)} | {strict} | {relaxed} | {checked} |\n"
    return text


def _is_plain(found: Any) -> bool:
    return not hasattr(found, "arg_names")


# -- the index
# --------------------------------------------------------------------------------------------------


def _index() -> str:
    text = (
        "# The language\n\nThis page lists all names of the kernel language by subject. The "
        "command `tilewright surface` tests each name on every installed backend.\n"
    )
    for family in dict.fromkeys(name.family for name in names().values()):
        found = [name for name in names().values() if name.family == family]
        if found[0].kind == "host":
            continue
        if found[0].page.rpartition("/")[2] == found[0].last:
            entries = [f"[`{name.full}`]({name.last}.md)" for name in found]
            text += f"\n## {family}\n\n{', '.join(entries)}\n"
        elif found[0].page == "language/index":
            text += f"\n## {family}\n\n{table(found)}"
        else:
            page = found[0].page.rpartition("/")[2]
            listed = ", ".join(f"`{name.full}`".replace("|", "\\|") for name in found[:12]) + (
                " …" if len(found) > 12 else ""
            )
            text += f"\n## {family}\n\n[{len(found)} names]({page}.md): {listed}\n"
    return text


def _host_index() -> str:
    text = "# The host API\n\n`import tilewright as tw`.\n\n| name | meaning |\n|---|---|\n"
    for name in names().values():
        if name.page == f"host/{name.last}":
            text += f"| [`tw.{name.last}`]({name.last}.md) | {summary(name)} |\n"
    return text + (
        "\n[Debugging functions](debug.md) · [Testing](testing.md) · "
        "[Names of the module triton](triton.md)\n"
    )


def _host() -> str:
    text = (
        "# Testing\n\nThe module `tilewright.testing` measures kernels, compares their results, "
        "checks their derivatives, and runs them in exact mode.\n"
    )
    return text + _members(testing, testing.__all__)


def _debug() -> str:
    text = "# Debugging functions\n\n`tilewright.debug`: see [Debugging](../../debugging.md).\n"
    return text + _members(debug, dict.fromkeys(["watch", "bisect", *sorted(debug.__all__)]))


def _members(module: Any, listed: Iterable[str]) -> str:
    """A section for each of some members of a module."""
    text, own = "", module.__name__.rpartition(".")[2]
    for name in listed:
        found = getattr(module, name)
        doc = docstrings.parse(found)
        shown = "" if isinstance(found, type) else _plain_signature(found)
        text += f"\n## {name}\n\n`tw.{own}.{name}{shown}`: {doc.summary}\n\n{doc.description}\n\n"
        for title, entries in (("name", doc.parameters), ("error", doc.raises)):
            if entries:
                text += f"| {title} | meaning |\n|---|---|\n" + "".join(
                    f"| {keys} | {value} |\n" for keys, value in docstrings.rows(entries)
                )
                text += "\n"
        if isinstance(found, type):
            text += _methods(found)
    return text


def _methods(found: type) -> str:
    """A table of the public methods and computed attributes that a class defines for its users."""
    text = ""
    for name, member in vars(found).items():
        method = inspect.isfunction(member)
        if name.startswith("_") or not (method or isinstance(member, property)):
            continue
        shown = name + (_plain_signature(member) if method else "")
        text += f"| `{shown}` | {docstrings.parse(member).summary} |\n"
    return f"| method or computed attribute | meaning |\n|---|---|\n{text}\n" if text else ""


def _plain_signature(function: Callable[..., Any]) -> str:
    """Return a function's parameters without their types."""
    found = inspect.signature(function)
    plain = [
        each.replace(annotation=each.empty)
        for each in found.parameters.values()
        if each.name != "self"
    ]
    return str(found.replace(parameters=plain, return_annotation=found.empty))


def _triton() -> str:
    text = (
        "# Names of the module triton\n\nThis page lists the names of the module `triton` "
        'that `tilewright.compat.triton` implements. The column "since" states the release of '
        "Triton that introduced a name.\n"
    )
    found = described_on("host/triton.md")
    for family in dict.fromkeys(name.family for name in found):
        text += f"\n## {family}\n\n| name | since |\n|---|---|\n"
        text += "".join(
            f"| `{name.full}` | {name.since} |\n" for name in found if name.family == family
        )
    return text


#: names whose objects say too little of themselves -> what they mean
_NOTES: dict[str, str] = {
    "tilewright.hooks": "Hooks: functions that Tilewright calls at launches and compilations.",
    "tl.math": "mathematics: [table](math.md)",
    "tl.core": "types, values and builtins under one name: [table](core.md)",
    "tl.standard": "the standard library: [table](core.md)",
    "tl.random": "random numbers: [table](core.md)",
    "tl.target_info": "information about the target: [table](core.md)",
    "tl.extra": (
        "functions beyond the core language: [table](extra.md), [device library](libdevice.md)"
    ),
    "tl.semantic": (
        "the rules of operators and conversions, for code that uses the compiler's internals"
    ),
    "tl.TRITON_MAX_TENSOR_NUMEL": "the maximum number of elements of a tensor",
    "tl.pi32_t": "a pointer to int32",
    "tl.void": "the type of an absent value",
    "tl.str_to_ty": (
        "convert a string to the type that it names in a signature: `fp32`, `*i8`, `*kfp16` (a "
        "pointer to constants), `tensordesc<fp16[64,64]>`"
    ),
    "operator +": "add numbers, or an integer to a pointer",
    "operator -": "subtract numbers, or an integer from a pointer; also unary minus",
    "operator *": "multiply numbers",
    "operator /": (
        "divide floats. Two integers are cast to fp32 first. Of fp16 and bf16 operands, the "
        "result is fp32"
    ),
    "operator //": (
        "divide integers, truncating towards zero as in C; a division by 0 returns the "
        "dividend, and the minimum divided by -1 is the minimum"
    ),
    "operator %": (
        "the remainder of the truncating division, for floats that of C's fmod; the remainder "
        "of an integer divided by 0 is 0"
    ),
    "operator &": "bitwise and of integers",
    "operator |": "bitwise or of integers",
    "operator ^": "bitwise exclusive or of integers",
    "operator ~": "bitwise not of an integer",
    "operator <<": (
        "shift integers left; the result is 0 if the amount is negative or not below the width"
    ),
    "operator >>": (
        "shift integers right, filling with the sign bit if the left operand is signed; if the "
        "amount is not below the width, only copies of the sign bit (or zeros) remain"
    ),
    "operator ==": "return equality, as int1",
    "operator !=": "return inequality, as int1; true for NaN",
    "operator <": "compare, with a result of type int1; false for NaN",
    "operator <=": "compare, with a result of type int1; false for NaN",
    "operator >": "compare, with a result of type int1; false for NaN",
    "operator >=": "compare, with a result of type int1; false for NaN",
    (
        "operator and"
    ): "of int1 scalars, or of constexprs as in Python, with short-circuit evaluation",
    "operator or": "of int1 scalars, or of constexprs as in Python",
    "operator not": "of int1 scalars and constexprs",
    (
        "operator []"
    ): "`None` adds an axis of extent 1, `:` keeps an axis; an index cannot select elements",
    "syntax.for": (
        "loops over `range`, `tl.range`, `tl.static_range`; variables that the body assigns must "
        "keep their types"
    ),
    "syntax.while": "as in Python",
    "syntax.if": "with scalar conditions; of a constexpr condition, only one branch is compiled",
    "syntax.return": "leaves the function, also inside an `if` with a scalar condition",
    "syntax.ternary": "both sides must have the same type, unless the condition is a constexpr",
    "syntax.walrus": "assignment inside an expression",
    "syntax.assert": "the same as `tl.device_assert`, also for a constexpr",
    "syntax.tuple": "literals, unpacking, slices, and the operators `+`, `*`, `==`",
    "syntax.comprehension": "comprehensions over tuples",
    "syntax.star_arguments": "`f(*values)`, and `*rest` parameters",
    "syntax.f_string": "f-strings of constexprs",
    "syntax.call": (
        "calls of kernel-language functions, with positional, keyword and default arguments; "
        "functions with `noinline=True` are not inlined"
    ),
    "syntax.annotation_constexpr": "`n: tl.constexpr = …` in a body, or on a parameter",
    "syntax.global_constexpr": "kernels may read a global variable that is a `tl.constexpr`",
    "syntax.break": "leaves a loop",
    "syntax.continue": "continues with the next iteration",
    "syntax.return_in_loop": "leaves the function from a loop",
    "python.len": "of tuples, shapes and constexprs",
    "python.range": "a loop's iterations",
    "python.float": "of a constexpr",
    "python.int": "of a constexpr",
    "python.isinstance": "evaluated at compile time",
    "python.getattr": "evaluated at compile time",
    "python.hasattr": "evaluated at compile time",
    "python.print": "the same as `tl.device_print`",
    "python.min": "of constexprs; of tensors, the same as `tl.minimum`",
    "python.max": "of constexprs; of tensors, the same as `tl.maximum`",
    "python.list": "of constexprs",
    "python.math": "functions of the module `math`, of constexprs",
    "tensor.shape": "a tuple of constexprs, empty for a scalar",
    "tensor.numel": "the number of elements, a constexpr",
    "tensor.dtype": "the type of an element",
    "tensor.type": "its `block_type`, or its `dtype` if it is a scalar",
    "tensor_descriptor.shape": (
        "the tensor's extents; int32 scalars if the host created the descriptor"
    ),
    "tensor_descriptor.strides": (
        "its strides in elements; int64 scalars if the host created the descriptor"
    ),
    "tensor_descriptor.block_shape": "the extents of a block, constexprs",
    "tensor_descriptor.block_type": "the type of a block",
    "tensor_descriptor.dtype": "the type of an element",
    "dtype.name": "`int32`, `fp32`, `bf16`, `fp8e4nv` …",
    "dtype.primitive_bitwidth": "the number of bits of a value",
    "dtype.itemsize": "the number of bytes of a value; 0 for int1",
    "dtype.int_bitwidth": "bits of an integer",
    "dtype.int_signedness": "`dtype.SIGNEDNESS.SIGNED` or `UNSIGNED`; int1 is unsigned",
    "dtype.fp_mantissa_width": "the number of stored bits of a float's mantissa",
    "dtype.exponent_bias": "the bias of the exponent",
    "dtype.scalar": "the type of an element; for a number type, the type itself",
    "dtype.codegen_name": "the name in `tl`: `float32`",
    "dtype.cache_key_part": "the name in a signature: `fp32`, `i64`, `u1`",
    "dtype.mangle": "a short text for symbol names",
    **{
        f"tl.{kind}{bits}": f"{bits}-bit {'unsigned ' if kind == 'uint' else ''}integers"
        for kind in ("int", "uint")
        for bits in (8, 16, 32, 64)
    },
    "tl.int1": "booleans, each of which takes a byte in memory",
    "tl.float8e4nv": (
        "4 bits of exponent, bias 7; no infinities, NaN where all other bits are ones (e4m3fn)"
    ),
    "tl.float8e5": "5 bits of exponent, bias 15; infinities and NaN as in IEEE 754 (e5m2)",
    "tl.float8e4b8": "4 bits of exponent, bias 8; NaN takes the encoding of -0.0 (e4m3fnuz)",
    "tl.float8e5b16": "5 bits of exponent, bias 16; NaN takes the encoding of -0.0 (e5m2fnuz)",
    "tl.float8e4b15": "4 bits of exponent, bias 15",
    "tl.float16": "IEEE half precision",
    "tl.bfloat16": "the upper half of fp32",
    "tl.float32": "IEEE single precision",
    "tl.float64": "IEEE double precision",
    **{
        f"dtype.is_{format_}": f"whether it is {format_}"
        for format_ in (
            "fp8e4nv",
            "fp8e5",
            "fp8e4b8",
            "fp8e5b16",
            "fp8e4b15",
            "fp16",
            "bf16",
            "fp32",
            "fp64",
        )
    },
    **{
        f"dtype.is_{kind}{bits}": f"whether it is {kind}{bits}"
        for kind in ("int", "uint")
        for bits in (8, 16, 32, 64)
    },
    "dtype.is_int1": "whether it is int1",
    "dtype.is_fp8": "whether it is one of the 8-bit floats",
    "dtype.is_floating": "whether it is a float of any width",
    "dtype.is_standard_floating": "whether it is fp16, bf16, fp32 or fp64",
    "dtype.is_int_signed": "whether it is a signed integer",
    "dtype.is_bool": "whether it is int1",
    "dtype.is_void": "whether it is void",
    "dtype.is_ptr": "whether it is a pointer",
    "dtype.is_const": "whether it is a pointer to constants",
    "dtype.is_block": "whether it is a block of elements",
}

_EXTRA = """The functions on this page are for the hardware of one vendor. The module
`tl.extra.cuda` belongs to the NVIDIA backend, and `tl.extra.hip` to the AMD backend. You can import
each of these modules if its backend is installed, even if another backend compiles the kernel. If a
function uses the assembly language of one vendor, kernels that call the function compile only for
targets of this vendor."""

#: path below ``reference/`` -> what makes the page
PAGES: dict[str, Callable[[], str]] = {
    "language/index.md": _index,
    "language/math.md": _math,
    "language/libdevice.md": _libdevice,
    "language/values.md": _by_family(
        "language/values.md",
        "Values in kernels",
        "This page lists the types of values in kernels, the members of these types, and the "
        "Python features that kernels support.",
    ),
    "language/types.md": _by_family(
        "language/types.md",
        "Types",
        "This page lists the number types of the language, and their attributes.",
    ),
    "language/core.md": _by_family(
        "language/core.md",
        "Modules and internals",
        "The functions of `tl` are also members of the modules that define them, such as "
        "`tl.core`. This page lists the functions and classes of these modules. Some of them, such "
        "as `tl.core.base_value`, are internal to the compiler, but programs that generate kernels "
        "use them.",
    ),
    "language/extra.md": _by_family("language/extra.md", "Vendor functions", _EXTRA),
    "host/index.md": _host_index,
    "host/debug.md": _debug,
    "host/testing.md": _host,
    "host/triton.md": _triton,
}
