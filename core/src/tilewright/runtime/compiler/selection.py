"""Selection of backend, device, options and specialization from a launch's arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tilewright import logs
from tilewright.plugins.manifest import Device, Target
from tilewright.plugins.registry import Backend
from tilewright.runtime.compiler.compile import Specialization
from tilewright.runtime.compiler.kernel_definition import KernelDefinition, ReprContext
from tilewright.runtime.compiler.specialize import ONE, Signature, constant_key
from tilewright.runtime.devices import backend_choice, device_registry
from tilewright.runtime.options import debug_default, option_key, resolve


class Selected(NamedTuple):
    """Backend, device, options and specialization of a launch."""

    specialization: Specialization
    backend: Backend
    device: Device
    target: Target
    signature: Signature
    kinds: tuple[Any, ...]

    @property
    def place(self) -> str:
        """The name of the device, as ``device_caches`` has it."""
        return f"{self.backend.name}:{self.device.index}"


def select(
    kernel: KernelDefinition,
    args: tuple[Any, ...],
    kinds: tuple[Any, ...],
    options: Mapping[str, Any],
    choice: backend_choice.Choice | None,
    among: Callable[[backend_choice.Places], tuple[str, int]] = backend_choice.first_place,
) -> Selected:
    """Select backend, device, options and specialization for arguments of these kinds.

    ``among`` is as for :func:`backend_choice.choose`.

    Raises:
        KeyError: an option is unknown.
        BackendError, DeviceError: see :func:`backend_choice.choose`.
    """
    signature = Signature.of(kernel.params, kinds, args)
    given = dict(options)
    if "backend" in given:
        name = given.pop("backend")
        if choice is None or choice.name != name:
            choice = backend_choice.Choice(name, {}, choice.preparation if choice else None)
    ir_override = given.pop("ir_override", None)
    backend, device = backend_choice.choose(choice, signature.devices, among)
    if logs.DISPATCH.on():
        why = backend_choice.reason(choice, signature.devices, by_keyword="backend" in options)
        logs.DISPATCH.tell(
            f"{kernel.__name__}: backend {backend.name}, device {device.index} "
            f"({device.name}): {why}"
        )
    defaults = debug_default(kernel.debug)
    environment = None
    if choice is None or not choice.name:
        environment = backend_choice.environment_choice()
    for chosen in (environment, choice):
        if chosen is not None:
            defaults.update(chosen.options)
    known = backend.manifest.options
    defaults.update(
        {
            parameter.name: signature.constants[parameter.name]
            for parameter in kernel.params
            if parameter.is_constexpr and parameter.name in known
        }
    )
    resolved = resolve(backend, kernel.__name__, given, defaults, kernel.arg_names)
    symbol = (
        kernel.repr(ReprContext(signature.constants, signature.types))
        if kernel.symbol is not None
        else None
    )
    specialization = Specialization(
        kernel,
        signature.types,
        signature.constants,
        signature.attributes,
        resolved,
        symbol,
        ir_override,
        None if choice is None else choice.preparation,
    )
    return Selected(
        specialization,
        backend,
        device,
        device_registry.target_of(backend, device),
        signature,
        kinds,
    )


def key_of(selected: Selected) -> tuple[Any, ...]:
    """Return the key of a selection's kernel among those of its device."""
    specialization, signature = selected.specialization, selected.signature
    return (
        repr(signature.types),
        tuple([(name, constant_key(value)) for name, value in signature.constants.items()]),
        tuple([(name, tuple(facts.items())) for name, facts in signature.attributes.items()]),
        option_key(specialization.options.items()),
        tuple([kind is ONE for kind in selected.kinds]),
        tuple([convert for _, convert in signature.converters]),
        specialization.ir_override,
        specialization.fn.cache_key,
        *([] if specialization.before_passes is None else [specialization.before_passes]),
    )
