"""``tilewright inspect``: compile a kernel for stated types, and print every stage and its time."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.ir import Module
from tilewright.plugins.manifest import Device, Target
from tilewright.plugins.registry import Backend, registry
from tilewright.runtime.arguments.array_protocols import ALIGNMENT
from tilewright.runtime.arguments.dtypes import ITEM_SIZE
from tilewright.runtime.compiler.compile import Specialization, compile_kernel, lower_module
from tilewright.runtime.devices import device_registry
from tilewright.runtime.devices.backend_choice import (
    default_backend,
    environment_backend,
    environment_choice,
)
from tilewright.runtime.launch.jit import JITFunction
from tilewright.runtime.options import resolve
from tilewright.runtime.storage.artifact import Artifact
from tilewright.tools.usage import UsageError


def inspect_command(options: argparse.Namespace) -> int:
    """Compile what the command line names and print it; see ``tilewright inspect --help``."""
    backend, target = place(options.backend, options.arch)
    given = parse_assignments(options.option)
    if options.kernel.endswith(".tileir"):
        artifact = inspect_module(Path(options.kernel), backend, target, given)
    else:
        artifact = inspect_kernel(
            find_kernel(options.kernel),
            options.signature,
            parse_assignments(options.constants),
            backend,
            target,
            given,
        )
    if options.stage:
        print(_shown(_stage(artifact, options.stage), options.locations), end="")
        return 0
    print(report_text(artifact, target, options.locations))
    resources = backend.call("tilewright_resources", code=artifact.code, target=target)
    if resources:
        print(resources_text(resources))
    print(roofline_text(artifact, backend, target, device_of(backend, options.arch)))
    return 0


def place(name: str | None, arch: str | None) -> tuple[Backend, Target]:
    """Return the backend and target to compile with.

    The target is of the backend's first device, or of an architecture it generates code for.

    Raises:
        UsageError: the backend has no such target.
    """
    choice = environment_choice()
    if name:
        backend = registry().get(name)
    else:
        backend = default_backend()[0] if choice is None else environment_backend(choice)
    if arch is None:
        return backend, device_registry.target_of(backend, device_registry.find(backend, None))
    if arch not in backend.manifest.targets:
        others = () if name or choice else registry().backends()
        raise UsageError(device_registry.no_target(backend, arch, others))
    return backend, device_registry.named_target(backend, arch)


def device_of(backend: Backend, arch: str | None) -> Device | None:
    """Return the device whose target :func:`place` has chosen.

    None where an architecture was named, whether a device of it is there or not.
    """
    return device_registry.find(backend, None) if arch is None else None


def find_kernel(reference: str) -> JITFunction:
    """The kernel ``FILE:NAME``; without a name, the only one of the file.

    Raises:
        UsageError: there is no such file or kernel.
    """
    kernel: JITFunction = getattr(
        decorated := find_decorated(reference)[2], "base_kernel", decorated
    )
    return kernel


def find_decorated(reference: str) -> tuple[Path, str, Any]:
    """Return (file, name, object) of a kernel ``FILE:NAME``, with its decorations.

    Without a name it is the only one of the file.

    Raises:
        UsageError: there is no such file or kernel.
    """
    file, _, name = (
        reference.rpartition(":")
        if ":" in reference and not reference.endswith(".py")
        else (reference, "", "")
    )
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"there is no file {file!r}; a kernel is named FILE:KERNEL")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file!r} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too
        raise UsageError(
            f"{file} cannot be imported: {''.join(traceback.format_exception_only(error)).strip()}"
        ) from error
    finally:
        sys.path.pop(0)
    kernels = {
        key: value
        for key, value in vars(module).items()
        if isinstance(getattr(value, "base_kernel", value), JITFunction)
    }
    if not name:
        if len(kernels) != 1:
            raise UsageError(
                f"{file} has {len(kernels)} kernels; name one: "
                f"{', '.join(f'{file}:{key}' for key in kernels)}"
            )
        (name,) = kernels
    if name not in kernels:
        raise UsageError(f"{file} has no kernel {name!r}; it has {', '.join(kernels) or 'none'}")
    return path, name, kernels[name]


def inspect_kernel(
    kernel: JITFunction,
    signature: str,
    constants: Mapping[str, Any],
    backend: Backend,
    target: Target,
    options: Mapping[str, Any] | None = None,
) -> Artifact:
    """Compile a kernel with every stage kept.

    Raises:
        UsageError: types, constants or options do not fit.
    """
    specialization = as_launched(specialize(kernel, signature, constants, backend, options))
    return with_listing(
        compile_kernel(specialization, backend, target, keep_stages=True), backend, target
    )


def specialize(
    kernel: JITFunction,
    signature: str,
    constants: Mapping[str, Any],
    backend: Backend,
    options: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
) -> Specialization:
    """Return a kernel's specialization, from the command line's texts.

    Args:
        signature: the types of the runtime parameters, as ``*fp32:16, i32`` or ``x=*fp32, n=i32``.
        constants: values of constexpr parameters by name.
        options: the launch options that are not at their defaults.
        name: the kernel's symbol, where it is not the function's name.

    Raises:
        UsageError: types, constants or options do not fit.
    """
    types, attributes, values = bind_types(kernel, signature, constants)
    resolved = resolved_options(backend, kernel.__name__, options or {})
    return Specialization(kernel, types, values, attributes, resolved, name=name)


def as_launched(kernel: Specialization) -> Specialization:
    """Return a specialization with the facts that every launch knows of descriptors.

    A TensorDescriptor's address and strides are multiples of 16 bytes, and its last stride is 1,
    whatever a signature says.
    """
    known = {
        name: {"divisibility": ALIGNMENT}
        for name, type_ in kernel.signature.items()
        if isinstance(type_, str) and type_.startswith("tensordesc<")
    }
    return replace(kernel, attributes={**known, **kernel.attributes})


def with_listing(artifact: Artifact, backend: Backend, target: Target) -> Artifact:
    """Return the artifact with the stage ``asm`` where its backend lists machine code apart."""
    text = backend.call("tilewright_listing", code=artifact.code, target=target)
    if text is not None:
        artifact.code.stages["asm"] = text
    return artifact


def resolved_options(backend: Backend, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Every option of a compilation.

    Raises:
        UsageError: an option is unknown.
    """
    try:
        return resolve(backend, name, options, {})
    except (KeyError, AssertionError) as error:
        raise UsageError(f"--option: {error.args[0]}") from None


def inspect_module(
    path: Path, backend: Backend, target: Target, options: Mapping[str, Any]
) -> Artifact:
    """Lower a file of Tile IR text with every stage kept.

    Raises:
        UsageError: there is no such file, or it is not Tile IR.
    """
    from tilewright.ir.parser import parse_module
    from tilewright.ir.verifier import VerificationError, verify

    try:
        module: Module = parse_module(path.read_text(), backend.table)
        verify(module)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, VerificationError, TilewrightError) as error:
        raise UsageError(f"{path} is not valid Tile IR: {error}") from None
    resolved = resolved_options(backend, path.name, options)
    return with_listing(
        lower_module(
            module, resolved, backend, target, stages={"parsed": str(module)}, keep_stages=True
        ),
        backend,
        target,
    )


def bind_types(
    kernel: JITFunction, signature: str, constants: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]], dict[str, Any]]:
    """(types, attributes, constants) of every parameter, from the command line's texts.

    Raises:
        UsageError: a parameter lacks its type or value, or there is one too many.
    """
    values = {
        parameter.name: parameter.default for parameter in kernel.params if parameter.has_default
    }
    values.update(constants)
    unknown = [name for name in constants if name not in kernel.arg_names]
    if unknown:
        raise UsageError(
            f"{kernel.__name__} has no parameter {', '.join(unknown)}; it has "
            f"{', '.join(kernel.arg_names)}"
        )
    runtime = [
        parameter.name
        for parameter in kernel.params
        if not parameter.is_constexpr and parameter.name not in constants
    ]
    entries = split_top(signature)
    if any("=" in entry for entry in entries):
        given = {
            name.strip(): type_.strip()
            for name, _, type_ in (entry.partition("=") for entry in entries)
        }
    else:
        if len(entries) > len(runtime):
            raise UsageError(
                f"--signature has {len(entries)} types for {len(runtime)} runtime parameters "
                f"({', '.join(runtime)})"
            )
        given = dict(zip(runtime, entries, strict=False))
    unknown = [name for name in given if name not in kernel.arg_names]
    if unknown:
        raise UsageError(
            f"--signature: {kernel.__name__} has no parameter {', '.join(unknown)}; it has "
            f"{', '.join(kernel.arg_names)}"
        )
    types: dict[str, Any] = {}
    attributes: dict[str, dict[str, Any]] = {}
    chosen: dict[str, Any] = {}
    for parameter in kernel.params:
        name = parameter.name
        if name in given:
            text, _, divisibility = given[name].partition(":")
            types[name] = _checked_type(text.strip(), name)
            if divisibility:
                attributes[name] = _facts(types[name], _integer(divisibility, name))
        elif parameter.annotation_type and not parameter.is_constexpr and name not in values:
            types[name] = parameter.annotation_type
        elif name in values:
            types[name] = "constexpr"
            chosen[name] = getattr(values[name], "value", values[name])
        else:
            how = (
                f"--constants {name}=..."
                if parameter.is_constexpr
                else f"a type in --signature, for example {name}=*fp32, or for a descriptor "
                f"{name}=tensordesc<fp16[64,64]>"
            )
            raise UsageError(f"parameter {name!r} of {kernel.__name__} needs {how}")
    return types, attributes, chosen


def _checked_type(text: str, name: str) -> str:
    from tilewright.language.signatures import str_to_ty

    try:
        str_to_ty(text, None)
    except ValueError as error:
        raise UsageError(
            f"--signature of {name!r}: {error}; write for example *fp32, i32 or "
            "tensordesc<fp16[64,64]>"
        ) from None
    return text


def _facts(type_: str, divisibility: int) -> dict[str, int]:
    """Return the facts of a parameter: a descriptor's rows have the divisibility in bytes, too."""
    if not type_.startswith("tensordesc<"):
        return {"divisibility": divisibility}
    size = ITEM_SIZE[type_.removeprefix("tensordesc<").partition("[")[0]]
    return {"divisibility": divisibility, "extent_divisibility": max(1, divisibility // size)}


def _integer(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"the divisibility of {name!r} is an integer, not {text!r}") from None


def split_top(text: str) -> list[str]:
    """The parts between commas that are outside any bracket."""
    parts, depth, start = [], 0, 0
    for position, char in enumerate(text):
        depth += (char in "([{<") - (char in ")]}>")
        if char == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def parse_assignments(texts: Sequence[str]) -> dict[str, Any]:
    """Parse ``NAME=VALUE`` texts, several to a text with commas.

    A value that is no Python literal is a string.

    Raises:
        UsageError: a text has no ``=``.
    """
    found: dict[str, Any] = {}
    for text in texts:
        for entry in split_top(text):
            name, equals, value = entry.partition("=")
            if not equals or not name.strip().isidentifier():
                raise UsageError(f"expected NAME=VALUE, not {entry!r}")
            try:
                found[name.strip()] = ast.literal_eval(value.strip())
            except (ValueError, SyntaxError):
                found[name.strip()] = value.strip()
    return found


def _stage(artifact: Artifact, name: str) -> str | bytes:
    stages = artifact.code.stages
    if name in stages:
        return stages[name]
    ending = [stage for stage in stages if stage.partition(" ")[2] == name]
    if len(ending) == 1:
        return stages[ending[0]]
    raise UsageError(f"there is no stage {name!r}; the stages are {', '.join(stages)}")


def _shown(stage: str | bytes, locations: bool) -> str:
    """Return a stage as text; binary data as its size."""
    if isinstance(stage, bytes):
        try:
            stage = stage.decode()
        except UnicodeDecodeError:
            return f"({len(stage)} bytes)\n"
    if not locations and stage.startswith("tilewright.ir "):
        stage = _without_locations(stage)
    return stage if stage.endswith("\n") else f"{stage}\n"


def _without_locations(text: str) -> str:
    from tilewright.ir.parser import parse_module
    from tilewright.ir.printer import print_module
    from tilewright.simt.dialect.ops import SIMT_TABLE

    try:
        return print_module(parse_module(text, SIMT_TABLE), locations=False)
    except ValueError:  # operations of a plugin
        return text


def report_text(artifact: Artifact, target: Target, locations: bool) -> str:
    """Every stage under a heading with its time, and the sum."""
    times = artifact.timings
    lines = [f"# {artifact.code.name} for {target.key}"]
    for name, stage in artifact.code.stages.items():
        taken = times.get(name, times.get(f"lower.{name}"))
        lines.append(f"\n## {name}{'' if taken is None else f'  {taken:.2f} ms'}\n")
        lines.append(_shown(stage, locations).rstrip("\n"))
    lines.append("\n## times (ms)\n")
    lines.extend(f"{name:<24} {taken:8.2f}" for name, taken in times.items())
    lines.append(
        f"{'total':<24} "
        f"{sum(times.get(name, 0.0) for name in ('frontend', 'passes', 'lower')):8.2f}"
    )
    lines.append(
        f"\nobject code: {len(artifact.code.binary)} bytes; parameters: "
        f"{', '.join(f'{p.name}: {p.type}' for p in artifact.parameters)}"
    )
    return "\n".join(lines)


def resources_text(resources: Mapping[str, Any]) -> str:
    """Format a program's resources, a line each."""
    return "\n".join(
        ["\n## resources\n", *(f"{name:<24} {value}" for name, value in resources.items())]
    )


def roofline_text(
    artifact: Artifact, backend: Backend, target: Target, device: Device | None
) -> str:
    """The roofline of a program, as it is before it is lowered."""
    from tilewright.ir.parser import parse_module
    from tilewright.passes.analysis.traffic import traffic_of
    from tilewright.tools.explain.roofline import Roofline, ceilings_of

    *_, last = (str(stage) for name, stage in artifact.code.stages.items() if name[:1].isdigit())
    traffic = traffic_of(parse_module(last, backend.table), {}, None)
    found = Roofline(
        traffic,
        ceilings_of(backend, target, device),
        "CTA" if "simt" in artifact.code.stages else "program",
    )
    return "\n".join(["\n## roofline\n", *found.lines()])
