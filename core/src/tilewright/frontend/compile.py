"""Entry point of the frontend: compiles a function of the language to a module of Tile IR."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright import ir
from tilewright.environment import flag
from tilewright.errors import CompilationError
from tilewright.frontend.errors import whole
from tilewright.frontend.expressions import EXPRESSIONS
from tilewright.frontend.frame import Scope
from tilewright.frontend.generator import ModuleGenerator
from tilewright.frontend.statements import block
from tilewright.frontend.values import name_values, unflatten
from tilewright.language.core import base_type, constexpr_type, tuple_type
from tilewright.language.definitions.callable import JitCallable
from tilewright.language.semantic import Options
from tilewright.language.signatures import str_to_ty
from tilewright.recursion import SPLIT, deep_recursion

#: Parameter type text, or a tuple of them for a tuple (a namedtuple of them for a namedtuple).
Signature = Mapping[str, Any]


def compile_function(
    fn: JitCallable,
    signature: Signature,
    constants: Mapping[str, Any] | None = None,
    attributes: Mapping[str, Mapping[str, int]] | None = None,
    options: Options | None = None,
) -> ir.Module:
    """Compile ``fn`` as a kernel.

    Args:
        fn: the kernel.
        signature: the type of every parameter: ``"*fp32"``, ``"*kfp16"`` (const), ``"i32"``,
            ``"u1"``, ``"tensordesc<fp16[64,64]>"``, ``"constexpr"``, or a tuple of these, nested as
            the argument is; a namedtuple of them keeps its field names.
        constants: the values of the constexpr ones; a constexpr inside a tuple goes by its path,
            ``"t.0"``, or by its place in a tuple of values.
        attributes: facts of arguments by path: ``{"x": {"divisibility": 16}}``.
        options: options that builtins may read; the defaults suit every backend.

    Returns:
        A module whose kernel takes the flattened arguments that are not constexprs, in order and
        named by their paths. A boolean is an ``i1``.

    Raises:
        CompilationError: the kernel's source breaks a rule of the language.
        ValueError, TypeError: the signature does not fit the function.
    """
    constants, attributes = constants or {}, attributes or {}
    types = _parameter_types(fn, signature, constants)
    names: list[str] = []
    flat_types: list[ir.types.Type] = []
    for name, type_ in types.items():
        flat = list(_leaves(name, type_))
        names.extend(path for path, _ in flat)
        flat_types.extend(part for _, part in flat)
    _check_attributes(fn, attributes, names)
    location = ir.Location(fn.file, fn.definition_line, fn.indent, fn.__name__)
    function = ir.Function(fn.__name__, flat_types, argument_names=names, location=location)
    for index, name in enumerate(names):
        found = attributes.get(name)
        if found:
            function.argument_attributes[index] = dict(found)
    generator = ModuleGenerator(options if options is not None else Options(), EXPRESSIONS, block)
    scope: Scope = dict(zip(types, unflatten(types.values(), function.arguments), strict=True))
    for name, value in scope.items():
        name_values(value, name)
    try:
        with deep_recursion():
            generator.kernel(fn, function, scope)
    except CompilationError as error:
        if not flag("TILEWRIGHT_FRONT_END_DEBUGGING"):
            # The compiler's own stack frames are of no use to a kernel's author.
            error.with_traceback(None)
        raise whole(error)  # noqa: B904  # it has its cause
    except RecursionError:
        raise fn.definition_error(
            f"{fn.__name__} is nested too deeply to be compiled", SPLIT
        ) from None
    ir.verify(generator.module)
    return generator.module


def _parameter_types(
    fn: JitCallable, signature: Signature, constants: Mapping[str, Any]
) -> dict[str, base_type]:
    types: dict[str, base_type] = {}
    for parameter in fn.params:
        name = parameter.name
        if name not in signature:
            if name not in constants and not parameter.has_default:
                raise TypeError(f"{fn.__name__}: the signature has no type for parameter {name!r}")
            types[name] = constexpr_type(_plain_number(constants.get(name, parameter.default)))
            continue
        spelled = signature[name]
        if (
            parameter.is_constexpr
            and spelled != "constexpr"
            and not isinstance(spelled, tuple | list)
        ):
            raise TypeError(
                f"{fn.__name__}: parameter {name!r} is a tl.constexpr, but its type in the "
                f"signature is {spelled!r}"
            )
        types[name] = _type(name, spelled, constants, constants.get(name, _ABSENT))
    unknown = [name for name in signature if name not in types]
    if unknown:
        raise TypeError(
            f"{fn.__name__} has no parameter {unknown[0]!r}; its parameters are "
            f"{', '.join(fn.arg_names)}"
        )
    return types


_ABSENT: Any = object()


def _type(path: str, spelled: Any, constants: Mapping[str, Any], value: Any) -> base_type:
    """Return the type at ``path``; ``value`` is its constant, if given as part of a tuple."""
    if isinstance(spelled, tuple | list):
        items = []
        for index, item in enumerate(spelled):
            inner = constants.get(f"{path}.{index}", _ABSENT)
            if inner is _ABSENT and isinstance(value, tuple | list):
                inner = value[index]
            items.append(_type(f"{path}.{index}", item, constants, inner))
        return tuple_type(items, getattr(spelled, "_fields", None))
    if spelled == "constexpr":
        if value is _ABSENT:
            raise TypeError(f"no value is given for the constexpr {path!r}")
        return constexpr_type(_plain_number(value))
    return str_to_ty(spelled, None)


def _plain_number(value: Any) -> Any:
    """Convert NumPy scalars to Python's, which constexpr arithmetic and conditions expect."""
    return (
        value.item()
        if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
        else value
    )


def _leaves(path: str, type_: base_type) -> Iterator[tuple[str, ir.types.Type]]:
    """Yield the IR arguments of a parameter, each with its path."""
    if isinstance(type_, tuple_type):
        for index, item in enumerate(type_.types):
            yield from _leaves(f"{path}.{index}", item)
        return
    flat = type_.flatten()
    if len(flat) == 1:
        yield path, flat[0]
    else:
        yield from ((f"{path}.{index}", part) for index, part in enumerate(flat))


def _check_attributes(
    fn: JitCallable, attributes: Mapping[str, Mapping[str, int]], names: list[str]
) -> None:
    for name in attributes:
        if name not in names:
            raise TypeError(
                f"{fn.__name__} has no argument {name!r} to describe; its arguments are "
                f"{', '.join(names)}"
            )
