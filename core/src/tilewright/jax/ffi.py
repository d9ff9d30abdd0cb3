"""XLA's foreign function interface: its structures, and a C function that calls a Python one.

Source: ``xla/ffi/api/c_api.h`` (version 0.3), which JAX installs. Structures grow at their end and
say how large they are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.errors import LaunchError
from tilewright.runtime.arguments.array_protocols import ArrayView
from tilewright.runtime.arguments.dlpack import contiguous_strides

#: What is called with attributes, operands, results, and the handle of the stream to work in. On
#: CPUs there is no stream: the work is done when it returns.
Run = Callable[[Mapping[str, str], Sequence[ArrayView], Sequence[ArrayView], int | None], None]

_METADATA, _EXECUTE, _MAJOR = 1, 3, 0
_INTERNAL = 13

#: XLA's number of an element type -> its signature text.
_TYPES: Mapping[int, str] = {
    1: "i1",
    2: "i8",
    3: "i16",
    4: "i32",
    5: "i64",
    6: "u8",
    7: "u16",
    8: "u32",
    9: "u64",
    10: "fp16",
    11: "fp32",
    12: "fp64",
    16: "bf16",
    19: "fp8e5",
    20: "fp8e4nv",
    24: "fp8e5b16",
    25: "fp8e4b8",
}


def _plain(name: str, *fields: tuple[str, Any]) -> Any:
    return type(
        name, (ctypes.Structure,), {"_fields_": [("struct_size", ctypes.c_size_t), *fields]}
    )


def _struct(name: str, *fields: tuple[str, Any]) -> Any:
    return _plain(name, ("extension", ctypes.c_void_p), *fields)


_Extension = _plain("_Extension", ("type", ctypes.c_int), ("next", ctypes.c_void_p))
_Version = _struct("_Version", ("major", ctypes.c_int), ("minor", ctypes.c_int))
_Metadata = _plain("_Metadata", ("version", _Version), ("traits", ctypes.c_uint32))
_MetadataExtension: Any = type(
    "_MetadataExtension",
    (ctypes.Structure,),
    {"_fields_": [("base", _Extension), ("metadata", ctypes.POINTER(_Metadata))]},
)
_ENTRIES = (
    *(
        "error_create",
        "error_get_message",
        "error_destroy",
        "handler_register",
        "stream_get",
        "type_register",
        "execution_context_get",
        "state_set",
    ),
    *(
        "state_get",
        "memory_allocate",
        "memory_free",
        "pool_schedule",
        "pool_num_threads",
        "future_create",
        "future_set_available",
        "future_set_error",
    ),
    *("run_id_get", "device_ordinal_get"),
)
_Api = _struct(
    "_Api",
    ("version", _Version),
    ("internal", ctypes.c_void_p),
    *((entry, ctypes.c_void_p) for entry in _ENTRIES),
)
_Listed = (("size", ctypes.c_int64), ("types", ctypes.POINTER(ctypes.c_int)))
_Buffers = _struct("_Buffers", *_Listed, ("items", ctypes.POINTER(ctypes.c_void_p)))
_Attributes = _struct(
    "_Attributes",
    *_Listed,
    ("names", ctypes.POINTER(ctypes.c_void_p)),
    ("items", ctypes.POINTER(ctypes.c_void_p)),
)
_Span: Any = type(
    "_Span",
    (ctypes.Structure,),
    {"_fields_": [("start", ctypes.c_void_p), ("length", ctypes.c_size_t)]},
)
_Buffer = _struct(
    "_Buffer",
    ("dtype", ctypes.c_int),
    ("data", ctypes.c_void_p),
    ("rank", ctypes.c_int64),
    ("extents", ctypes.POINTER(ctypes.c_int64)),
)
_Error = _struct("_Error", ("message", ctypes.c_char_p), ("code", ctypes.c_int))
_Frame = _struct(
    "_Frame",
    ("api", ctypes.POINTER(_Api)),
    ("context", ctypes.c_void_p),
    ("stage", ctypes.c_int),
    ("arguments", _Buffers),
    ("results", _Buffers),
    ("attributes", _Attributes),
)
#: What an entry of the interface is asked, with the place of its answer last.
_StreamQuestion = _struct(
    "_StreamQuestion", ("context", ctypes.c_void_p), ("answer", ctypes.c_void_p)
)
_DeviceQuestion = _struct(
    "_DeviceQuestion", ("context", ctypes.c_void_p), ("answer", ctypes.c_int32)
)
_Handler = _Ask = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_CreateError = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Error))


class _XlaError(Exception):
    """An error that XLA made itself; the handler returns its address."""

    def __init__(self, address: int) -> None:
        super().__init__(address)
        self.address = address


def make_handler(run: Run, kind: str = "cpu") -> Any:
    """Make a C function that XLA can call for arrays on devices of a kind.

    Keep the function as long as XLA may call it.

    What ``run`` raises is an error of the program that XLA runs.
    """

    def handle(address: int) -> int | None:
        frame = _Frame.from_address(address)
        try:
            if frame.extension and _Extension.from_address(frame.extension).type == _METADATA:
                return _describe(frame)
            if frame.stage == _EXECUTE:
                place, stream = ("cpu", 0), None
                if kind != "cpu":
                    place, stream = (
                        (kind, _ask(frame, "device_ordinal_get", _DeviceQuestion)),
                        _ask(frame, "stream_get", _StreamQuestion),
                    )
                run(
                    _attributes(frame.attributes),
                    _buffers(frame.arguments, place),
                    _buffers(frame.results, place),
                    stream,
                )
        except _XlaError as error:
            return error.address
        except BaseException as error:
            return _error(frame, f"{type(error).__name__}: {error}")
        return None

    return _Handler(handle)


def _ask(frame: Any, entry: str, question: Any) -> int:
    """Return the answer of an entry of the interface about the call.

    Raises:
        LaunchError: the interface is from before that entry.
        _XlaError: it failed.
    """
    api = frame.api.contents
    if getattr(_Api, entry).offset >= api.struct_size or not getattr(api, entry):
        raise LaunchError(
            f"this version of JAX does not tell functions where they run ({entry}): update jax "
            "and jaxlib"
        )
    asked = question(ctypes.sizeof(question), None, frame.context)
    error = _Ask(getattr(api, entry))(ctypes.addressof(asked))
    if error:
        raise _XlaError(error)
    return asked.answer or 0


def _describe(frame: Any) -> int | None:
    """Report the version of the interface that the handler implements.

    It is the version at hand, as long as its major number is the known one.
    """
    version = frame.api.contents.version
    if version.major != _MAJOR:
        return _error(
            frame,
            f"tilewright.jax speaks version {_MAJOR} of XLA's foreign function interface, and this "
            f"is version {version.major}",
        )
    extension = _MetadataExtension.from_address(frame.extension)
    extension.metadata.contents.version.major, extension.metadata.contents.version.minor = (
        version.major,
        version.minor,
    )
    extension.metadata.contents.traits = 0
    return None


def _error(frame: Any, message: str) -> int | None:
    create = _CreateError(frame.api.contents.error_create)
    given = _Error(ctypes.sizeof(_Error), None, message.encode(), _INTERNAL)
    found: int | None = create(ctypes.byref(given))
    return found


def _attributes(attributes: Any) -> dict[str, str]:
    """The attributes, all of which are texts."""
    return {
        _text(attributes.names[number]): _text(attributes.items[number])
        for number in range(attributes.size)
    }


def _text(address: int) -> str:
    span = _Span.from_address(address)
    return ctypes.string_at(span.start, span.length).decode()


def _buffers(listed: Any, place: tuple[str, int]) -> Sequence[ArrayView]:
    return [
        _array(_Buffer.from_address(listed.items[number]), place) for number in range(listed.size)
    ]


def _array(buffer: Any, place: tuple[str, int]) -> ArrayView:
    shape = tuple(buffer.extents[: buffer.rank])
    return ArrayView(
        None, buffer.data or 0, _TYPES[buffer.dtype], shape, contiguous_strides(shape), place
    )
