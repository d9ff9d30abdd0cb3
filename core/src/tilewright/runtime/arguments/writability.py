"""Read-only arrays: detection, and refusal of launches that would store to one.

A store to a file mapped for reading ends the process, and one to any other read-only array breaks a
promise its library made: NumPy's ``writeable`` flag, the read-only flags of the array interfaces
and of DLPack. PyTorch's tensors are always writable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.errors import LaunchError
from tilewright.plugins.manifest import Parameter
from tilewright.runtime.arguments.array_protocols import address_of, is_numpy_array, launch_value


def is_writable(value: Any) -> bool:
    """Return whether an array is writable according to its library.

    A bare address is writable, and so is None, the null pointer.

    Raises:
        ArgumentError: it is no array; see
            :func:`tilewright.runtime.arguments.array_protocols.array_kind`.
    """
    if is_numpy_array(value):
        return bool(value.flags.writeable)
    if hasattr(value, "data_ptr"):
        return not getattr(value, "readonly", False)
    if value is None or isinstance(value, int):
        return True
    converted = launch_value(value)
    return is_writable(converted)


def writable_address(value: Any) -> int:
    """Return the address of a writable array.

    Raises:
        LaunchError: it may not, or it is no array.
    """
    if not is_writable(value):
        raise LaunchError(f"a {type(value).__name__} is read-only")
    return address_of(value)


def write_guard(kernel: str, parameters: Sequence[Parameter]) -> Callable[[Sequence[Any]], None]:
    """Make a launcher's check that no array the kernel may store to is read-only.

    The launcher calls it with its values before it starts the kernel.

    The returned function raises:
        LaunchError: names the argument and the remedy.
        ArgumentError: the argument of such a parameter is no array.
    """
    stored = tuple(
        (position, parameter.name, parameter.type.startswith("desc"))
        for position, parameter in enumerate(parameters)
        if parameter.stored and parameter.type.startswith(("ptr<", "desc<"))
    )

    def guard(values: Sequence[Any]) -> None:
        for position, name, described in stored:
            value = values[position].base if described else values[position]
            if not is_writable(value):
                what = f"describes {_what(value)}" if described else f"is {_what(value)}"
                raise LaunchError(
                    f"{kernel}: argument {name!r} {what}, and the kernel may store to it; "
                    f"{_remedy(value, name)}"
                )

    return guard


def _what(value: Any) -> str:
    mapped = _mapped_file(value)
    if mapped is not None:
        return (
            "a memmap opened for reading "
            f"({getattr(mapped, 'filename', None) or 'of an open file'})"
        )
    # of a view: the array of the library, or with it what keeps it alive
    owner = getattr(value, "owner", value)
    owner = owner[-1] if isinstance(owner, tuple) else owner
    return f"a read-only {type(owner).__name__}"


def _remedy(value: Any, name: str) -> str:
    if _mapped_file(value) is not None:
        return (
            "open it with mode 'r+' to change the file, or with mode 'c' to change only what "
            "this process sees of it"
        )
    return "pass a writable array" + (
        f", such as {name}.copy()" if is_numpy_array(value) and name.isidentifier() else ""
    )


def _mapped_file(value: Any) -> Any:
    """Return the read-only memmap that an array is a view of; None if there is none."""
    while is_numpy_array(value):
        if getattr(value, "mode", None) == "r":
            return value
        value = value.base
    return None
