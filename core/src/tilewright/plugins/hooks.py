"""The hooks a backend implements, project name ``tilewright``, entry-point group ``tilewright``.

A plugin is a module (or object) with functions marked by :data:`hookimpl`; its entry point is named
like its backend. Each hook is called for one plugin at a time, so an implementation speaks only for
its own backend, and takes only the arguments it names. Only ``tilewright_backend``,
``tilewright_devices``, ``tilewright_target``, ``tilewright_lower``, ``tilewright_load`` and
``tilewright_launcher`` are needed to run kernels. Hooks run when a kernel is set up. Of its
launches, only those with arguments that name no device, or on several devices, call one:
``tilewright_pointer_device``, ``tilewright_peer_access``. A plugin is imported, and asked for its
devices, in a thread that is not the main one, within a time limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pluggy

from tilewright.ir import Module
from tilewright.plugins.manifest import (
    CodeObject,
    CProgram,
    Device,
    EmulatedDevice,
    Launcher,
    Manifest,
    Memory,
    Parameter,
    Pass,
    Target,
    Timer,
)

if TYPE_CHECKING:
    from tilewright.ir.work import Work
    from tilewright.plugins.ceilings import Ceilings

PROJECT = "tilewright"
hookspec = pluggy.HookspecMarker(PROJECT)
#: Marks a function as the implementation of the hook of the same name.
hookimpl = pluggy.HookimplMarker(PROJECT)


# ---- lowering


@hookspec(firstresult=True)
def tilewright_backend() -> Manifest | None:
    """The backend's manifest. Must be cheap: no driver, no compiler is touched."""


@hookspec(firstresult=True)
def tilewright_target(device: Device) -> Target | None:
    """The target of a device."""


@hookspec(firstresult=True)
def tilewright_passes(
    target: Target, options: Mapping[str, Any], passes: Sequence[Pass]
) -> Sequence[Pass] | None:
    """Return the passes to run on Tile IR before lowering.

    ``passes`` is the standard pipeline, to be extended or replaced.
    """


@hookspec(firstresult=True)
def tilewright_lower(
    module: Module, target: Target, options: Mapping[str, Any]
) -> CodeObject | None:
    """Turn a module of one kernel into code. ``options`` has every option of the manifest.

    Raises:
        LoweringError, OutOfResources: what cannot be done, and why.
    """


@hookspec(firstresult=True)
def tilewright_simt_target(target: Target, options: Mapping[str, Any]) -> Any:
    """Return a target's :class:`~tilewright.simt.target.simt_target.SimtTarget`.

    ``tilewright opt`` runs the toolkit's stages for it.

    For backends that are built on the GPU toolkit. No device is needed.
    """


@hookspec(firstresult=True)
def tilewright_resources(code: CodeObject, target: Target) -> Mapping[str, Any] | None:
    """Return the resources that a program of compiled code takes, by name, such as registers.

    ``tilewright inspect`` and ``explain`` show each value as its text, and the result of its method
    ``record`` in JSON. No device is needed.
    """


@hookspec(firstresult=True)
def tilewright_listing(code: CodeObject, target: Target) -> str | None:
    """Return the machine code of a code object as text, where none of its stages is that.

    It is for ``tilewright inspect`` and ``explain``. No device is needed.
    """


@hookspec(firstresult=True)
def tilewright_ceilings(target: Target, device: Device | None) -> Ceilings | None:
    """Return the peak rates of compute and memory, for the roofline of ``tilewright explain``.

    They are those of ``device`` where one is passed, else of the usual device of the target, which
    they name. None where none is known; an unknown rate is absent.
    """


# ---- launching


@hookspec(firstresult=True)
def tilewright_devices() -> Sequence[Device] | None:
    """The devices present now. Empty where there are none; must not raise for a missing driver."""


@hookspec(firstresult=True)
def tilewright_load(code: CodeObject, device: Device) -> Any:
    """Load code on a device.

    The result is the backend's own; the runtime keeps it as long as the kernel.
    """


@hookspec(firstresult=True)
def tilewright_launcher(
    loaded: Any, parameters: Sequence[Parameter], options: Mapping[str, Any]
) -> Launcher | None:
    """The callable that starts the loaded kernel. It is cached and called for every launch.

    It may refuse a launch by a :class:`~tilewright.errors.RefusedError` before anything is started,
    where the code's metadata has ``otherwise``: the options to compile the kernel with for such
    launches. Where a parameter is ``stored``, it refuses a read-only array
    (:func:`tilewright.runtime.arguments.writability.write_guard`).
    """


@hookspec(firstresult=True)
def tilewright_memory(device: Device) -> Memory | None:
    """The memory of a device."""


@hookspec(firstresult=True)
def tilewright_pointer_device(address: int) -> int | None:
    """Return the index of the device that owns the memory at an address.

    None for memory of the host, or of nobody. The runtime asks at each launch with an object that
    has ``data_ptr()`` and ``dtype`` and does not say where it lies.
    """


@hookspec(firstresult=True)
def tilewright_peer_access(device: Device, peer: Device) -> str | None:
    """Let kernels on ``device`` access the memory of ``peer``, as long as the process runs.

    ``peer`` is another device of the backend. The result is empty where they can from now on, else
    the reason why not. The runtime asks at the first launch with arguments on both; without the
    hook, launches have arguments on one device alone.
    """


@hookspec(firstresult=True)
def tilewright_timer(device: Device) -> Timer | None:
    """Return a timer for a device.

    Without one the runtime measures wall time around a synchronised launch.
    """


# ---- emulation: implemented by an emulator's plugin (:mod:`tilewright.plugins.emulators`), or by
# the backend itself


@hookspec(firstresult=True)
def tilewright_emulate(target: str, mode: str, seed: int) -> EmulatedDevice | None:
    """Set up an emulated device of ``target`` for this process and its children.

    ``target`` is one of the manifest's targets.

    Afterwards the backend's other hooks find that device and launch on it. An emulator that is a
    plugin of its own is called before the backend is imported, so it may replace a driver that the
    backend loads.

    Args:
        mode: the part of ``--emulate TARGET:MODE`` after the colon, which the emulator defines;
            empty for its default.
        seed: seed of the emulator's own choices, such as the order of threads.

    Raises:
        BackendError: the emulator has no such mode, or something that it needs is missing.
    """


# ---- autotuning: advice. Where a hook fails or returns an invalid value, users are warned by the
# backend's name, and tuning goes on without its answer.


@hookspec(firstresult=True)
def tilewright_link(code: CodeObject, target: Target) -> CodeObject | None:
    """Complete the code that a worker process lowered, where that takes the driver of a device.

    Workers leave drivers alone. None where there is nothing to do. It is called in threads beside
    launches, so most of it should run without the interpreter's lock.
    """


@hookspec(firstresult=True)
def tilewright_assemble(code: CodeObject, target: Target) -> bytes | None:
    """Return a kernel's code in the format that the vendor's own tools load.

    It is made with whatever the machine has for it, a device or not; None where the code object's
    binary is that already. Raises BackendError where the machine has nothing for it, and says what
    to install.
    """


@hookspec(firstresult=True)
def tilewright_export(
    name: str, code: CodeObject, parameters: Sequence[Parameter], target: Target
) -> CProgram | None:
    """Return files with which C programs launch a kernel, for ``tilewright compile``.

    ``name`` begins the names of files and functions. Raises BackendError for a kernel that C
    programs cannot launch.
    """


@hookspec(firstresult=True)
def tilewright_tuning_space(module: Module, target: Target) -> Sequence[Mapping[str, Any]] | None:
    """Option sets worth trying for a kernel whose author gave no configurations."""


@hookspec(firstresult=True)
def tilewright_prune(
    configurations: Sequence[Mapping[str, Any]],
    target: Target,
    arguments: Mapping[str, Any],
    works: Sequence[Work | None],
) -> Sequence[Mapping[str, Any]] | None:
    """Return the configurations that can fit the target and are not hopeless, in any order.

    Each is the meta-parameters and options of one trial.

    ``arguments`` are those of the launch by name; ``works`` says what a program does in each
    configuration, where that is known.
    """


@hookspec(firstresult=True)
def tilewright_cost(
    configuration: Mapping[str, Any],
    target: Target,
    arguments: Mapping[str, Any],
    work: Work | None,
) -> float | None:
    """Return an estimate that orders trials, lowest first.

    Where nothing is measured, the first is taken. ``work`` says what a program does, where that is
    known.
    """
