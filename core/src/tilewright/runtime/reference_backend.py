"""The reference interpreter as a backend: a plugin module like any other, named ``reference``.

"Lowering" prints the module, loading reads it back, launching interprets it on the host's memory.
It does all that Tile IR can say, on any machine, slowly. With the launch option ``checked=True`` it
looks for what hardware hides: accesses out of bounds, reads of memory nothing wrote, races between
programs. Arguments on other devices are copied to the host and back.
"""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Mapping, Sequence
from typing import Any

import tilewright
from tilewright.errors import LaunchError
from tilewright.ir import Module
from tilewright.ir.breakpoint import FEATURE, OPS
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.debug import IMPLIED_ASSERTS
from tilewright.ir.order import SEQUENTIAL, TREE
from tilewright.ir.types import FLOATS, INTEGERS
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import (
    Capabilities,
    CodeObject,
    Device,
    Launcher,
    Manifest,
    Parameter,
    Target,
)
from tilewright.runtime.arguments.array_checks import check_plain
from tilewright.runtime.arguments.array_protocols import ArrayView, address_of, array_kind, is_array
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.arguments.device_bytes import SavedBytes, memory_of, view_of
from tilewright.runtime.arguments.mock_tensors import TensorWrapper
from tilewright.runtime.arguments.writability import is_writable, write_guard
from tilewright.runtime.devices.backend_choice import ANY_DEVICE
from tilewright.runtime.devices.host_memory import HostMemory

_ATOMIC_KINDS = frozenset({"add", "and", "cas", "max", "min", "or", "xchg", "xor"})

CAPABILITIES = Capabilities(
    dtypes=frozenset(str(type_) for type_ in (*INTEGERS, *FLOATS)),
    dot={
        **{str(type_): ("f32", "f16", "f64") for type_ in FLOATS},
        **{f"{sign}{bits}": ("i32",) for sign in "iu" for bits in (8, 16, 32)},
    },
    dot_precisions=("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6"),
    orders={op: frozenset((TREE, SEQUENTIAL)) for op in ("reduce", "scan", "dot")},
    atomics={str(type_): _ATOMIC_KINDS for type_ in (*INTEGERS[1:], *FLOATS[:4])},
    power_of_two=False,
    max_tile_elements=1 << 24,
    features=frozenset(
        {
            ANY_DEVICE,
            "assert",
            IMPLIED_ASSERTS,
            FEATURE,
            "clock",
            "cooperative",
            "descriptors",
            "dot_scaled",
            "noinline",
            "print",
        }
    ),
)


@hookimpl
def tilewright_backend() -> Manifest:
    return Manifest(
        name="reference",
        version=tilewright.__version__,
        summary="the NumPy interpreter that defines what every operation means",
        device_kinds=("cpu",),
        targets=("numpy",),
        capabilities=CAPABILITIES,
        ops=tuple(OPS),
        options={"checked": False},
        priority=-100,
    )


@hookimpl
def tilewright_devices() -> Sequence[Device]:
    return [Device("reference", "cpu", 0, f"NumPy on {platform.machine() or 'the host'}")]


@hookimpl
def tilewright_target(device: Device) -> Target:
    return Target("reference", "numpy", kind="cpu")


@hookimpl
def tilewright_lower(module: Module, target: Target, options: Mapping[str, Any]) -> CodeObject:
    started = time.perf_counter()
    text = str(module)
    timings = {"print": (time.perf_counter() - started) * 1e3}
    return CodeObject(module.kernel.name, text.encode(), {"tileir": text}, {}, timings)


@hookimpl
def tilewright_load(code: CodeObject, device: Device) -> Module:
    from tilewright.ir.parser import parse_module

    return parse_module(code.binary.decode(), TABLE.extended(OPS))


@hookimpl
def tilewright_launcher(
    loaded: Module, parameters: Sequence[Parameter], options: Mapping[str, Any]
) -> Launcher:
    from tilewright.reference import interpreter
    from tilewright.reference.checks.checked_mode import CheckedOptions

    guard = write_guard(loaded.kernel.name, parameters)
    checked, cooperative = options.get("checked", False), bool(options.get("cooperative"))
    if checked is True:
        checked = CheckedOptions()

    def launch(grid: tuple[int, int, int], stream: Any, values: tuple[Any, ...]) -> None:
        guard(values)
        if checked:
            check_plain(loaded.kernel, values)
        with contextlib.ExitStack() as stack:
            on_host = _HostValues(stack)
            interpreter.run(
                loaded,
                [on_host.value(value) for value in values],
                grid,
                checked=checked or None,
                cooperative=cooperative,
            )

    return launch


@hookimpl
def tilewright_memory(device: Device) -> HostMemory:
    return HostMemory()


class _HostValues:
    """The values of one launch on the host; closing ``stack`` copies memory back to the devices."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._storages: dict[int, Any] = {}

    def value(self, value: Any) -> Any:
        if isinstance(value, TensorDescriptor):
            from tilewright.reference.interpreter import DescriptorValue

            return DescriptorValue(
                self.array(value.base),
                tuple(map(int, value.shape)),
                tuple(map(int, value.strides)),
                value.padding,
            )
        return self.array(value) if is_array(value) else value

    def array(self, value: Any) -> Any:
        place = array_kind(value).device
        if place is None:
            raise LaunchError(
                f"a {type(value).__name__} stands for a tensor where a kernel is compiled; it has "
                "no memory to run on"
            )
        if place[0] == "cpu":
            return value
        if isinstance(value, TensorWrapper):
            return TensorWrapper(self.array(value.base), value.dtype)
        if callable(getattr(value, "untyped_storage", None)):
            return self._torch(value)
        return self._copied(value, place)

    def _torch(self, tensor: Any) -> Any:
        """Copy a tensor's whole storage to the host, so that views of it keep aliasing."""
        import torch

        storage = tensor.untyped_storage()
        host = self._storages.get(storage.data_ptr())
        if host is None:
            host = self._storages[storage.data_ptr()] = storage.cpu()
            self._stack.callback(storage.copy_, host)
        return torch.empty(0, dtype=tensor.dtype).set_(
            host, tensor.storage_offset(), tensor.shape, tensor.stride()
        )

    def _copied(self, value: Any, place: tuple[str, int]) -> ArrayView:
        """Copy an array's bytes to the host by the backend that serves its device."""
        view = view_of(value)
        if view is None:
            raise LaunchError(
                f"the reference copies arrays to the host, and a {type(value).__name__} has no "
                "nbytes and element_size() that tell how much"
            )
        memory = memory_of(place)
        if memory is not None:
            saved = SavedBytes(view, memory)
            readonly = not is_writable(value)
            if not readonly:
                self._stack.callback(saved.write)
            return ArrayView(
                saved.host,
                address_of(saved.host),
                view.dtype,
                view.shape,
                view.strides,
                ("cpu", 0),
                readonly,
            )
        raise LaunchError(
            "the reference runs on the host's memory, and no installed backend can copy from "
            f"{place[0]}:{place[1]}; pass a copy on the host"
        )
