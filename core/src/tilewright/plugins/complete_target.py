"""Check that a target has what code generation needs, for targets that are made by hand."""

from __future__ import annotations

import re

from tilewright.errors import LoweringError, with_help
from tilewright.plugins.manifest import Target

_VERSION = re.compile(r"\+ptx(\d+)")


def check_complete(target: Target, wanted: Target) -> None:
    """Check a target against its architecture's, since LLVM aborts the process without a feature.

    Args:
        wanted: the target that the backend makes of the architecture, with the oldest version of
            PTX that has all instructions, where there is one.

    Raises:
        LoweringError: a feature is missing, the PTX is older, a limit is missing, or the CPU or the
            number of lanes is another one.
    """
    missing = [
        f"feature {feature}" for feature in wanted.features if not _has(target.features, feature)
    ]
    missing += [f"limit {name}" for name in wanted.limits if name not in target.limits]
    if target.cpu != wanted.cpu:
        missing.append(f"cpu {wanted.cpu!r}, not {target.cpu!r}")
    if target.warp_size != wanted.warp_size:
        missing.append(f"warp_size {wanted.warp_size}, not {target.warp_size}")
    if missing:
        raise LoweringError(
            with_help(
                f"the target {target.arch} of backend {target.backend!r} is incomplete: it needs "
                f"{', '.join(missing)}",
                "take the target from the backend: tilewright.runtime.devices.device_registry."
                f"named_target(registry().get({target.backend!r}), {target.arch!r})",
            )
        )


def _has(features: tuple[str, ...], wanted: str) -> bool:
    """Return whether features include one, or a newer version of PTX."""
    version = _VERSION.fullmatch(wanted)
    if version is None:
        return wanted in features
    found = [int(match[1]) for one in features if (match := _VERSION.fullmatch(one))]
    return any(one >= int(version[1]) for one in found)
