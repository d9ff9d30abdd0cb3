"""Data for hooks of a compilation, and the check of their data for ``kernel.preload``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.compat.triton.backends.targets import target_of
from tilewright.compat.triton.compiler.sources import ASTSource
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.specialization_data import parse, serialize
from tilewright.runtime.devices import device_registry

if TYPE_CHECKING:
    from tilewright.runtime.compiler.selection import Selected


def check_target(text: str, name: str) -> None:
    """Refuse a specialisation of the kernel ``name`` that is not for a target of this process.

    Raises:
        RuntimeError: it is of another kernel or target.
    """
    data = parse(text, name)
    backend = registry().get(data["backend"])
    here = vars(
        target_of(
            device_registry.target_of(backend, device_registry.find(backend, tuple(data["device"])))
        )
    )
    if data.get("target") != here:
        raise RuntimeError(
            f"Specialization data is for {data.get('target')} but trying to preload for {here}"
        )


def hook_facts(
    selected: Selected, key: str, name: str, options: Any, is_warmup: bool
) -> dict[str, Any]:
    """Return the keyword ``compile`` for hooks of a compilation."""
    source = ASTSource.of(selected.specialization)
    facts = dict(options.__dict__)
    facts.update(
        key=key,
        signature=source.signature,
        device=selected.device.index,
        constants=source.constants,
        configs=[source.attrs],
        specialization_data=serialize(
            selected, name, key=key, target=vars(target_of(selected.target))
        ),
        is_warmup=is_warmup,
    )
    return facts
