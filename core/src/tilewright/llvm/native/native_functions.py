"""Native functions that Python calls directly, and the layout of the Python objects they read.

A launcher that the interpreter calls without an argument tuple, that reads pointers out of arrays
and tensors itself, costs a tenth of one written with ctypes. What this module knows of object
layouts it verifies on live objects first (:func:`layout`); where anything differs (another
interpreter, a free-threaded build) there is no native launcher, and callers keep to Python.

Object code that uses this module is the same in every process: the addresses of types and library
functions are in its global ``@addresses``, which :func:`fill_addresses` sets.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tilewright.llvm.emission.writer import FunctionWriter, ModuleWriter

_METH_FASTCALL: Final = 0x80
_METH_KEYWORDS: Final = 0x02
#: PY_VECTORCALL_ARGUMENTS_OFFSET: the callee may use the word before the arguments.
ARGUMENTS_OFFSET: Final = -(2**63)


@dataclass(frozen=True, slots=True)
class Layout:
    """Byte offsets in the interpreter's objects.

    Attributes:
        type_offset: the type, in every object.
        size: the length, in objects of variable length.
        tuple_items: a tuple's first item.
        float_value: a float's double.
        bytes_data: the first byte of a bytes object.
        array_data: the address in a NumPy array.
        array_dtype: its element type, an object.
        array_flags: its flags, of 4 bytes.
        digit: the lowest digit of an int, of 4 bytes.
        int_signs: how an int of one digit at the most tells its sign in the word at ``size``: by
            its value (-1, 0, 1: ``"size"``), by 1 less its low two bits, below those of the count
            (``"tag"``), or in a way that native code does not read (``""``).
        plain_counts: every object's reference count is a word at its start that is counted up, with
            no value that means more.
    """

    type_offset: int
    size: int
    tuple_items: int
    float_value: int
    bytes_data: int
    array_data: int
    array_dtype: int
    array_flags: int
    digit: int
    int_signs: str
    plain_counts: bool


#: NPY_ARRAY_WRITEABLE
WRITEABLE: Final = 0x0400


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


@functools.cache
def layout() -> Layout | None:
    """Return the layout of this interpreter's objects, verified on live ones.

    None where it is not the one this module can read.
    """
    if (
        sys.implementation.name != "cpython"
        or sysconfig.get_config_var("Py_GIL_DISABLED")
        or struct.calcsize("P") != 8
    ):
        return None
    import numpy as np

    header = object.__basicsize__
    # Of an array, in NumPy's stable ABI: address, rank, shape, strides, base, element type, flags.
    at, digit, plain_counts = header, header + 8, sys.version_info < (3, 12)
    found = Layout(
        header - 8,
        header,
        tuple.__basicsize__,
        header,
        bytes.__basicsize__ - 1,
        at,
        at + 40,
        at + 48,
        digit,
        _int_signs(at, digit),
        plain_counts,
    )
    items, number, text, array = (
        (object(), 1, "two"),
        2.5e-300,
        b"\x01" * 8 + b"tilewright",
        np.arange(5, dtype=np.int8)[2:],
    )
    frozen = np.frombuffer(text, np.uint8).reshape(3, 6).T
    checks = (
        *((_word(id(x) + found.type_offset), id(type(x))) for x in (items, number, text, array, 5)),
        (_word(id(items) + found.size), 3),
        *((_word(id(items) + found.tuple_items + 8 * i), id(item)) for i, item in enumerate(items)),
        (_word(id(number) + found.float_value), struct.unpack("<Q", struct.pack("<d", number))[0]),
        (_word(id(text) + found.bytes_data), struct.unpack("<Q", text[:8])[0]),
        (_word(id(array) + found.array_data), array.__array_interface__["data"][0]),
        *((_word(id(x) + found.array_dtype), id(x.dtype)) for x in (array, frozen)),
        *((_word(id(x) + found.array_flags) & 0xFFFFFFFF, x.flags.num) for x in (array, frozen)),
        *((bool(x.flags.num & WRITEABLE), x.flags.writeable) for x in (array, frozen)),
    )
    return found if all(read == expected for read, expected in checks) else None


#: How the word behind an int's header tells of one digit at the most, and its sign: whether it
#: does, and the sign, of the word.
_INT_SIGNS: Final[dict[str, Callable[[int], tuple[bool, int]]]] = {
    "size": lambda word: ((word + 1) % 2**64 < 3, (word + 2**63) % 2**64 - 2**63),
    "tag": lambda word: (word < 16, 1 - (word & 3)),
}


def _int_signs(word: int, digit: int) -> str:
    """The form of this interpreter's ints, verified on some; see :attr:`Layout.int_signs`."""
    most = 2**sys.int_info.bits_per_digit - 1
    numbers = [
        0,
        1,
        -1,
        5,
        -7,
        300,
        -300,
        most,
        -most,
        most + 1,
        -most - 1,
        2**40,
        -(2**40),
        2**62,
        2**64,
        -(2**64),
    ]

    def fits(form: Callable[[int], tuple[bool, int]]) -> bool:
        for number in numbers:
            short, sign = form(_word(id(number) + word))
            value = sign and sign * ctypes.c_uint32.from_address(id(number) + digit).value
            if short != (abs(number) <= most) or (short and value != number):
                return False
        return True

    return next((name for name, form in _INT_SIGNS.items() if fits(form)), "")


# ---- functions for the interpreter


class _MethodDefinition(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def make_builtin(
    address: int, name: str, self_object: object, keep: object = None, *, keywords: bool = False
) -> Callable[..., Any]:
    """Make a builtin function that runs native code.

    The code is ``PyObject *(PyObject *self, PyObject *const *args, Py_ssize_t nargs)``, with
    positional arguments only.

    With ``keywords`` it takes a fourth argument, the tuple of the names of those behind the
    positional ones, or NULL. The code must stay mapped as long as the function lives: ``keep`` is
    kept alive for the rest of the process, since the function may be.
    """
    create = ctypes.pythonapi.PyCFunction_NewEx
    create.argtypes, create.restype = (
        (ctypes.c_void_p, ctypes.py_object, ctypes.py_object),
        ctypes.py_object,
    )
    definition = _MethodDefinition(
        name.encode(), address, _METH_FASTCALL | (_METH_KEYWORDS if keywords else 0), None
    )
    function: Callable[..., Any] = create(ctypes.addressof(definition), self_object, None)
    _definitions.append((definition, keep))
    return function


#: Method definitions are referred to by the functions made of them, without a count.
_definitions: list[tuple[_MethodDefinition, object]] = []


# ---- addresses that differ from process to process

#: Entries of ``@addresses``.
ADDRESSES: Final = (
    *(
        "none",
        "false",
        "one",
        "tuple",
        "list",
        "dict",
        "int",
        "float",
        "array",
        "data_ptr_name",
        "writable_address",
    ),
    *("base_name", "shape_name", "strides_name", "block_shape_name", "padding_name"),
    *(
        "cache_name",
        "configs_name",
        "measures_one_name",
        "best_config_name",
        "fn_name",
        "launch_function_name",
    ),
    *(
        "tensor",
        "parameter",
        "tensor_pointer",
        "tensor_dtype",
        "tensor_device_kind",
        "tensor_device_index",
        "tensor_elements",
    ),
)


def fill_addresses(table: int, writable_address: Callable[[Any], int] | None = None) -> None:
    """Set the entries of ``@addresses`` at ``table``.

    Call it again whenever PyTorch may have been loaded since.

    ``writable_address`` returns the address of an object that may be stored to and raises for all
    others; it is asked of what is neither a NumPy array nor a PyTorch tensor. Without it such
    objects are refused where they would be stored to. It must live as long as the process.
    """
    import numpy as np

    known: dict[str, int] = {
        "none": id(None),
        "false": id(False),
        "one": id(1),
        "tuple": id(tuple),
        "list": id(list),
        "dict": id(dict),
        "int": id(int),
        "float": id(float),
        "array": id(np.ndarray),
        **{f"{name}_name": id(name) for name in _ATTRIBUTES},
        "writable_address": 0 if writable_address is None else id(writable_address),
        **_tensor_addresses(),
    }
    entries = (ctypes.c_uint64 * len(ADDRESSES)).from_address(table)
    for position, name in enumerate(ADDRESSES):
        entries[position] = known.get(name, 0)


#: Names that are looked up in objects.
_NAMES: Final = (
    "data_ptr",
    "base",
    "shape",
    "strides",
    "block_shape",
    "padding",
    "cache",
    "configs",
    "measures_one",
    "best_config",
    "fn",
    "launch_function",
)
_ATTRIBUTES: Final = tuple(map(sys.intern, _NAMES))

#: Where the C++ tensor is in a PyTorch tensor object.
TENSOR_OFFSET: Final = object.__basicsize__


class TensorFacts(NamedTuple):
    """Facts of a tensor from PyTorch's C interface, in its own codes."""

    dtype: int
    device_kind: int
    device_index: int


#: entry of ``@addresses`` -> the function of PyTorch's C interface that returns a fact of a tensor
_FACTS: Final = {
    "tensor_pointer": "aoti_torch_get_data_ptr",
    "tensor_dtype": "aoti_torch_get_dtype",
    "tensor_device_kind": "aoti_torch_get_device_type",
    "tensor_device_index": "aoti_torch_get_device_index",
    "tensor_elements": "aoti_torch_get_numel",
}


def _ask(function: Any, tensor: Any) -> int:
    """Call one of the functions on a tensor, and return its answer.

    Raises:
        RuntimeError: it fails.
    """
    found = ctypes.c_int64(0)
    if function(ctypes.c_void_p(id(tensor) + TENSOR_OFFSET), ctypes.byref(found)) != 0:
        raise RuntimeError("PyTorch does not tell this of the tensor")
    return found.value


@functools.cache
def _tensor_functions() -> dict[str, Any]:
    """Return the functions of :data:`_FACTS`; none where PyTorch's objects differ in layout."""
    torch = sys.modules["torch"]
    try:
        from pathlib import Path

        library = ctypes.CDLL(
            str(next((Path(torch.__file__ or "").parent / "lib").glob("libtorch_cpu.*")))
        )
        functions = {entry: getattr(library, name) for entry, name in _FACTS.items()}
        tensors = [
            torch.zeros(3),
            torch.zeros(4, 4)[1:],
            torch.nn.Parameter(torch.zeros(2)),
            torch.zeros(2, dtype=torch.int8),
        ]
        # The word must be the tensor's implementation in each, and the library must read the right
        # facts through it.
        if any(_word(id(tensor) + TENSOR_OFFSET) != tensor._cdata for tensor in tensors):
            return {}
        for tensor in tensors:
            if (
                _ask(functions["tensor_pointer"], tensor) != tensor.data_ptr()
                or _ask(functions["tensor_device_kind"], tensor) != 0
            ):
                return {}
            if _ask(functions["tensor_elements"], tensor) != tensor.numel():
                return {}
        codes = [_ask(functions["tensor_dtype"], tensor) for tensor in tensors]
        if codes[0] != codes[1] or codes[0] == codes[3]:
            return {}
    except (OSError, AttributeError, StopIteration, RuntimeError, ImportError):
        return {}
    return functions


@functools.cache
def _tensor_entries() -> dict[str, int]:
    functions = _tensor_functions()
    if not functions:
        return {}
    torch = sys.modules["torch"]
    entries = {
        entry: ctypes.cast(function, ctypes.c_void_p).value or 0
        for entry, function in functions.items()
    }
    return {"tensor": id(torch.Tensor), "parameter": id(torch.nn.Parameter), **entries}


def tensor_facts(tensor: Any) -> TensorFacts | None:
    """Return the facts that native code reads of a plain PyTorch tensor or parameter.

    None where it cannot read them.
    """
    entries = _tensor_addresses()
    if id(type(tensor)) not in (entries.get("tensor"), entries.get("parameter")):
        return None
    functions = _tensor_functions()
    try:
        dtype, kind, index = (
            _ask(functions[entry], tensor)
            for entry in ("tensor_dtype", "tensor_device_kind", "tensor_device_index")
        )
    except RuntimeError:
        return None
    return TensorFacts(*(ctypes.c_int32(code).value for code in (dtype, kind, index)))


def _tensor_addresses() -> dict[str, int]:
    torch = sys.modules.get("torch")
    # a module that is still being imported is asked again later
    return (
        _tensor_entries()
        if torch is not None and hasattr(torch, "nn") and hasattr(torch, "zeros")
        else {}
    )


def declare_addresses(module: ModuleWriter) -> None:
    """Add ``@addresses`` to a module."""
    module.add_global(f"@addresses = global [{len(ADDRESSES)} x ptr] zeroinitializer")


def address(writer: FunctionWriter, name: str) -> str:
    """An entry of ``@addresses``."""
    return writer.load("ptr", writer.gep("ptr", "@addresses", ADDRESSES.index(name)), 8)
