"""The checks of ``tilewright doctor``."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable
from typing import NamedTuple

import tilewright
from tilewright.errors import SEE, TilewrightError, VariableError
from tilewright.plugins.registry import registry
from tilewright.runtime.devices import device_registry
from tilewright.tools.trial import trial_run

_PYTHON = ((3, 11), (3, 15))


class CheckResult(NamedTuple):
    """The result of one check.

    Attributes:
        page: the page of the documentation that helps if it failed, as ``tilewright help`` takes it
    """

    name: str
    ok: bool
    text: str
    page: str = "guides/faq#errors-by-message"


def examine() -> list[CheckResult]:
    """Run every check, none of which can stop another."""
    findings = [
        CheckResult("tilewright", True, tilewright.__version__),
        _python(),
        _module("numpy", required=True),
        _module("pluggy", required=True),
        _module("llvmlite", required=False),
        _guarded("cache", _cache),
        _guarded("variables", _variables),
    ]
    findings.extend(
        _guarded(f"backend {backend.name}", functools.partial(_backend, backend))
        for backend in registry().backends()
    )
    findings.extend(
        CheckResult(f"backend {name}", False, str(error))
        for name, error in registry().broken().items()
    )
    findings.append(_guarded("default backend", _default))
    return findings


def _guarded(name: str, check: Callable[[], CheckResult]) -> CheckResult:
    try:
        return check()
    except Exception as error:  # whatever a plugin does, the other checks go on
        return CheckResult(name, False, f"{type(error).__name__}: {error}")


def _python() -> CheckResult:
    low, high = _PYTHON
    text = (
        f"{platform.python_implementation()} {platform.python_version()} on {platform.platform()}"
    )
    ok = low <= sys.version_info[:2] < high
    return CheckResult(
        "python",
        ok,
        text if ok else f"{text}; supported are {low[0]}.{low[1]} to {high[0]}.{high[1] - 1}",
        "quickstart",
    )


def _module(name: str, *, required: bool) -> CheckResult:
    try:
        # computed: packages whose presence is reported
        importlib.import_module(name)
        return CheckResult(name, True, importlib.metadata.version(name))
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == name
        if missing and not required:
            return CheckResult(
                name, True, "not installed; only backends that compile through LLVM need it"
            )
        return CheckResult(name, False, f"{error}; pip install {name}", "quickstart")


def _cache() -> CheckResult:
    from tilewright.runtime.storage.disk_cache import disk_cache
    from tilewright.runtime.storage.private_folder import distrust
    from tilewright.tools.printing import size_text

    cache = disk_cache()
    if cache.cap <= 0:
        return CheckResult("cache", True, "disabled by TILEWRIGHT_CACHE_SIZE")
    reason = distrust(cache.directory)
    if reason:
        return CheckResult("cache", False, f"not used: {reason}", "guides/security")
    info = cache.info()
    text = (
        f"{info.directory}, {info.entries} kernels, {size_text(info.size)} of {size_text(info.cap)}"
    )
    return CheckResult(
        "cache",
        info.writable,
        text
        if info.writable
        else f"{text}; it cannot be written, so kernels are compiled in every process",
        "guides/deployment#ship-the-cache",
    )


def _variables() -> CheckResult:
    """The environment's variables: switches are on or off, and no name is a slip of another's."""
    from tilewright.environment import VARIABLES, flag, mistyped

    wrong = mistyped(os.environ)
    for name, (values, _) in VARIABLES.items():
        try:
            if values == "0 or 1":
                flag(name)
        except ValueError as error:
            wrong.append(str(error))
    return CheckResult(
        "variables",
        not wrong,
        "; ".join(wrong) or f"{sum(name in os.environ for name in VARIABLES)} set",
        VariableError.page,
    )


def _backend(backend: object) -> CheckResult:
    from tilewright.plugins.registry import Backend

    assert isinstance(backend, Backend)
    name = f"backend {backend.name}"
    if backend.manifest.status:
        return CheckResult(
            name, True, f"{backend.manifest.version}, not in use: {backend.manifest.status}"
        )
    found = device_registry.devices(backend)
    for device in found:
        failure = trial_run(backend, device)
        if failure:
            return CheckResult(name, False, failure)
    listed = ", ".join(f"{device.kind}:{device.index} {device.name}" for device in found)
    return CheckResult(
        name,
        True,
        f"{backend.manifest.version}, {listed or f'no device{device_registry.refusal(backend)}'}",
    )


def _default() -> CheckResult:
    from tilewright.runtime.devices.backend_choice import choose, environment_choice, variable_of

    choice = environment_choice()
    try:
        backend, device = choose(None, {})
    except TilewrightError as error:
        return CheckResult("default backend", False, str(error))
    why = "" if choice is None else f", as {variable_of(choice)} says"
    return CheckResult(
        "default backend",
        True,
        f"{backend.name} on {device.kind}:{device.index}{why}",
    )


def doctor_text(findings: list[CheckResult]) -> str:
    """The findings for people."""
    width = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        state = "ok    " if finding.ok else "BROKEN"
        lines.append(f"{state}  {finding.name:<{width}}  {finding.text}")
        if not finding.ok:
            lines.append(f"{'':6}{SEE}{finding.page}")
    broken = sum(not finding.ok for finding in findings)
    lines.append("everything works" if not broken else f"{broken} of {len(findings)} checks failed")
    return "\n".join(lines)
