"""The report of ``tilewright backends``."""

from __future__ import annotations

from typing import Any

from tilewright.errors import TilewrightError
from tilewright.ir import IR_VERSION
from tilewright.plugins.manifest import Capabilities
from tilewright.plugins.registry import Backend, registry
from tilewright.runtime.devices import device_registry
from tilewright.tools.trial import trial_run


def backends_report() -> dict[str, Any]:
    """Return the installation as JSON-able data.

    It has backends in the order in which they are chosen, and the disabled plugins with their
    errors.
    """
    return {
        "ir_version": list(IR_VERSION),
        "backends": [_backend(backend) for backend in registry().backends()],
        "disabled": {name: str(error) for name, error in registry().broken().items()},
        "default_order": {
            kind: [backend.name for backend in registry().for_device_kind(kind)]
            for kind in _kinds()
        },
    }


def _kinds() -> list[str]:
    return sorted(
        {kind for backend in registry().backends() for kind in backend.manifest.device_kinds}
    )


def _backend(backend: Backend) -> dict[str, Any]:
    manifest = backend.manifest
    status, found = manifest.status, []
    if not status:
        try:
            found = [
                {
                    "kind": device.kind,
                    "index": device.index,
                    "name": device.name,
                    "properties": dict(device.properties),
                }
                for device in device_registry.devices(backend)
            ]
            status = (
                next(
                    (
                        failure
                        for device in device_registry.devices(backend)
                        if (failure := trial_run(backend, device))
                    ),
                    "",
                )
                if found
                else f"found no device{device_registry.refusal(backend)}"
            )
        except TilewrightError as error:
            status = str(error)
    return {
        "name": manifest.name,
        "version": manifest.version,
        "distribution": backend.distribution,
        "summary": manifest.summary,
        "status": status,
        "device_kinds": list(manifest.device_kinds),
        "targets": list(manifest.targets),
        "priority": manifest.priority,
        "options": dict(manifest.options),
        "language": dict(manifest.language),
        "capabilities": None
        if manifest.capabilities is None
        else _capabilities(manifest.capabilities),
        "devices": found,
        "load_milliseconds": round(backend.load_seconds * 1e3, 3),
    }


def _capabilities(capabilities: Capabilities) -> dict[str, Any]:
    return {
        "dtypes": sorted(capabilities.dtypes),
        "dot": {operand: list(results) for operand, results in capabilities.dot.items()},
        "dot_precisions": list(capabilities.dot_precisions),
        "min_dot": list(capabilities.min_dot),
        "orders": {name: sorted(orders) for name, orders in capabilities.orders.items()},
        "atomics": {element: sorted(kinds) for element, kinds in capabilities.atomics.items()},
        "power_of_two": capabilities.power_of_two,
        "max_tile_elements": capabilities.max_tile_elements,
        "features": sorted(capabilities.features),
    }


def backends_text(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = []
    for entry in report["backends"]:
        lines.append(
            f"{entry['name']} {entry['version']} ({entry['distribution']}): {entry['summary']}"
        )
        lines.append(
            f"  devices of kind {', '.join(entry['device_kinds'])}; targets "
            f"{', '.join(entry['targets'])}; priority {entry['priority']}"
        )
        if entry["language"]:
            lines.append(
                f"  language: {', '.join(f'tl.extra.{name}' for name in entry['language'])}"
            )
        if entry["status"]:
            lines.append(f"  cannot run kernels: {entry['status']}")
        for device in entry["devices"]:
            properties = ", ".join(
                f"{name} {value}" for name, value in device["properties"].items()
            )
            lines.append(
                f"  {device['kind']}:{device['index']}  "
                f"{device['name']}{f'  ({properties})' if properties else ''}"
            )
    if not report["backends"]:
        lines.append("no backend is installed; install one with: pip install 'tilewright[cpu]'")
    for kind, names in report["default_order"].items():
        if len(names) > 1:
            lines.append(
                f"arrays on {kind!r} devices run on the first of {', '.join(names)}; choose "
                "another with tilewright.backend(name)"
            )
    lines.extend(f"disabled: {error}" for error in report["disabled"].values())
    return "\n".join(lines)
