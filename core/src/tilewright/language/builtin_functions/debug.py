"""Prints and assertions, at compile time and at run time."""

from __future__ import annotations

from typing import Any

from tilewright.errors import CompileTimeAssertionFailure
from tilewright.language.binding import builtin
from tilewright.language.value_types.dtypes import int1
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.tuples import tuple as tl_tuple
from tilewright.language.value_types.values import unwrap_if_constexpr


@builtin
def static_print(
    *values: Any,
    sep: Any = " ",
    end: Any = "\n",
    file: Any = None,
    flush: Any = False,
    _semantic: Any = None,
) -> None:
    """Print values of constexprs and types of tensors while the kernel is compiled.

    The function formats and writes its arguments as Python's ``print`` does. It prints nothing if
    the kernel comes from the cache, because the kernel is then not compiled.

    Args:
        values: anything.
        sep: the text between two values.
        end: the text after the last value.
        file: the file to print to; standard output by default.
        flush: whether to write buffered text at once.

    Example:
        tl.static_print("BLOCK =", BLOCK)
    """
    plain = [_static_text(value) for value in values]
    options = {
        name: unwrap_if_constexpr(value)
        for name, value in (("sep", sep), ("end", end), ("file", file), ("flush", flush))
    }
    print(*plain, **options)


def _static_text(value: Any) -> Any:
    if isinstance(value, tensor) and value.extents:
        return f"{value.dtype}[{', '.join(map(repr, value.shape))}]"
    return unwrap_if_constexpr(value)


@builtin
def static_assert(cond: Any, msg: Any = "", _semantic: Any = None) -> None:
    """Stop the compilation with an error unless a condition holds.

    Args:
        cond: a constexpr.
        msg: the error's text.

    Raises:
        CompileTimeAssertionFailure: the condition does not hold.
        NotImplementedError: the condition is not known at compile time; see :func:`device_assert`.

    Example:
        tl.static_assert(BLOCK % 4 == 0, "BLOCK must be a multiple of 4")
    """
    if isinstance(cond, tensor):
        raise NotImplementedError(
            "Assertion condition could not be determined at compile-time. Make sure that it "
            "depends only on `constexpr` values; use device_assert for others"
        )
    if not unwrap_if_constexpr(cond):
        message = unwrap_if_constexpr(msg)
        raise CompileTimeAssertionFailure(str(message) if message else "static_assert failed")


@builtin
def device_print(prefix: Any, *args: Any, hex: Any = False, _semantic: Any = None) -> None:
    """Print one line for each element of each argument while the kernel runs.

    A line has the form ``pid (x, y, z) idx (i, ...) prefix: value``. With several arguments, the
    number of the argument stands before the value, as ``(operand 0)``.

    A program instance prints each line only once, even if many of its threads execute the call.

    Args:
        prefix: printable ASCII text, known at compile time.
        args: tensors and numbers.
        hex: whether to print integers in hexadecimal.

    Raises:
        ValueError: ``prefix`` is something else.

    Example:
        tl.device_print("pid", pid)
    """
    text = unwrap_if_constexpr(prefix)
    if not isinstance(text, str):
        raise ValueError(
            f"device_print's prefix must be a string known at compile time, got {text!r}"
        )
    if not text.isascii() or not text.isprintable():
        raise ValueError(
            f"Cannot print a prefix with characters that are not printable ASCII: {text!r}"
        )
    values = [value.handle for arg in args for value in _flat(_semantic, arg)]
    attributes = {
        "hex": bool(unwrap_if_constexpr(hex)),
        "each_thread": _semantic.options.thread_prints,
    }
    _semantic.builder.print(
        values=values, prefix=text, **{name: True for name, holds in attributes.items() if holds}
    )


def _flat(semantic: Any, arg: Any) -> list[tensor]:
    if isinstance(arg, tl_tuple | tuple | list):
        return [value for item in arg for value in _flat(semantic, item)]
    return [semantic.to_tensor(arg)]


@builtin
def device_assert(cond: Any, msg: Any = "", mask: Any = None, _semantic: Any = None) -> None:
    """In debug mode, stop the kernel with an error if a condition is false.

    Outside of debug mode, the compiler generates no code for the assertion.

    You can enable debug mode with ``jit(debug=True)``, with the launch option ``debug=True``, or
    with the environment variable ``TILEWRIGHT_DEBUG=1``.

    Args:
        cond: a condition, cast to ``int1``.
        msg: the error's text, known at compile time.
        mask: ``int1``; masked-off elements are not checked. It is broadcast with the condition.

    Example:
        tl.device_assert(offsets >= 0, "an offset is negative", mask=offsets < n)
    """
    if not _semantic.options.debug:
        return
    condition = _semantic.cast(_semantic.to_tensor(cond), int1)
    lanes = None
    if unwrap_if_constexpr(mask) is not None:
        lanes = _semantic.cast(_semantic.to_tensor(mask), int1)
        condition, lanes = _semantic.broadcast_pair(condition, lanes)
    message = unwrap_if_constexpr(msg)
    _semantic.builder.assert_(
        condition.handle, mask=None if lanes is None else lanes.handle, message=str(message)
    )
