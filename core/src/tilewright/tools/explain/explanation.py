"""``tilewright.explain``: compile a kernel with its lines, and collect all findings about it."""

from __future__ import annotations

import argparse
import html
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tilewright.ir import Module
from tilewright.ir.parser import parse_module
from tilewright.passes.analysis.traffic import Traffic
from tilewright.plugins.manifest import Device, Target
from tilewright.plugins.registry import Backend
from tilewright.runtime.compiler.compile import Specialization, compile_kernel
from tilewright.runtime.devices.backend_choice import backend as chosen_backend
from tilewright.runtime.preparation import Preparation
from tilewright.runtime.storage.artifact import Artifact
from tilewright.tools.explain import findings as line_findings
from tilewright.tools.explain.launch import UNKNOWN, Launch, bound_to, stand_ins
from tilewright.tools.explain.layouts import numbered, pictures
from tilewright.tools.explain.roofline import Roofline, ceilings_of
from tilewright.tools.explain.source_lines import (
    Line,
    Section,
    SourceLine,
    flatten,
    lines_of,
    places_of,
    sections,
)
from tilewright.tools.inspect import (
    as_launched,
    device_of,
    find_kernel,
    parse_assignments,
    place,
    specialize,
    with_listing,
)
from tilewright.tools.launch_arguments import evaluated
from tilewright.tools.printing import print_json
from tilewright.tools.usage import UsageError

#: Stages that the page has no pane for: what comes before the kernel is whole, and what the
#: findings say.
_BEFORE = ("source", "frontend", "tileir", "layouts")

#: Sections of the documentation about the rest of a report, of GPUs and of other targets.
_GOOD, _REMARKS = "performance#when-a-kernel-is-good", "performance#what-the-remarks-mean"


@dataclass(frozen=True, repr=False)
class Explanation:
    """The compiler's decisions about a kernel; in a notebook it shows itself as a page.

    Attributes:
        kernel: its name.
        target: what it was compiled for: backend and architecture.
        facts: name -> value: what a program takes of the target, the size of the code.
        options: the launch options.
        sections: the functions of the source that are in it, the kernel first.
        panes: stage -> its lines, each with the line of the source that it comes from.
        findings: remarks on lines of the source, missed optimizations first.
        layouts: who holds which element of a tile; see
            :func:`tilewright.tools.explain.layouts.pictures`.
        instructions: how many instructions of machine code each line came to.
        counts: what is counted in machine code, of all of it and of its innermost loop, where the
            backend counts it.
        times: stage of the compilation -> milliseconds.
        roofline: what the launch computes and moves, beside the ceilings of the device.
        sought: whether the compiler looked for missed optimizations.
    """

    kernel: str
    target: str
    facts: Mapping[str, str]
    options: Mapping[str, Any]
    sections: tuple[Section, ...]
    panes: Mapping[str, tuple[Line, ...]]
    findings: tuple[line_findings.Remark, ...]
    layouts: tuple[Mapping[str, Any], ...] = ()
    instructions: Mapping[SourceLine, int] = field(default_factory=Counter)
    times: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    roofline: Roofline = field(default_factory=lambda: Roofline(Traffic(None), None))
    sought: bool = False

    @property
    def praise(self) -> str:
        """The line that no optimization was missed, with the page about what else to check.

        It is empty where the compiler missed optimizations, or looked for none.
        """
        if not self.sought or any(found.kind == line_findings.SLOW for found in self.findings):
            return ""
        section = _GOOD if "simt" in self.panes else _REMARKS
        return f"no missed optimizations; what else to check: tilewright help {section}"

    def html(self) -> str:
        """The page, which needs nothing else."""
        from tilewright.tools.explain.page import page

        return page(self)

    def save(self, path: str | Path) -> Path:
        """Write the page into a file; the path."""
        path = Path(path)
        path.write_text(self.html(), encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        style = "width:100%;height:48rem;border:1px solid #8884"
        return (
            f'<iframe title="{html.escape(self.kernel)}" srcdoc="{html.escape(self.html())}" '
            f'style="{style}"></iframe>'
        )

    def __repr__(self) -> str:
        return (
            f"<Explanation of {self.kernel} for {self.target}: print() shows a summary, "
            "save(path) writes the page>"
        )

    def __str__(self) -> str:
        width = max(map(len, self.facts), default=0)
        lines = [
            f"{self.kernel} for {self.target}",
            *(f"  {name:<{width}}  {value}" for name, value in self.facts.items()),
        ]
        lines += [self.praise] if self.praise else []
        for kind in line_findings.KINDS:
            found = [finding for finding in self.findings if finding.kind == kind]
            lines += (
                [f"{kind}:", *(f"  {_line_text(finding.place)}{finding.text}" for finding in found)]
                if found
                else []
            )
        return "\n".join([*lines, "roofline:", *(f"  {line}" for line in self.roofline.lines())])

    def record(self) -> dict[str, Any]:
        """The same facts as JSON has them, without sources and stages."""
        return {
            "kernel": self.kernel,
            "target": self.target,
            "facts": dict(self.facts),
            "counts": dict(self.counts),
            "options": {
                name: value if isinstance(value, bool | int | float | str | None) else str(value)
                for name, value in self.options.items()
            },
            "findings": [
                {
                    "kind": found.kind,
                    "file": found.place and found.place.file,
                    "line": found.place and found.place.line,
                    "text": found.text,
                }
                for found in self.findings
            ],
            "roofline": self.roofline.record(),
        }


def _line_text(place: SourceLine | None) -> str:
    return "" if place is None else f"line {place.line}: "


def explain(
    kernel: Any,
    *args: Any,
    grid: Any = None,
    backend: str | None = None,
    arch: str | None = None,
    **keywords: Any,
) -> Explanation:
    """Compile a kernel and explain the compiler's decisions.

    The explanation shows the machine code of each source line, missed optimizations, and the
    registers and memory that a program instance uses. The explanation also compares the kernel with
    the roofline of the device.

    Args:
        kernel: a kernel. If it has decorators such as ``autotune``, they are ignored: pass the
            values of a configuration as keywords.
        args: the arguments of a launch, in which ``MockTensor(dtype, shape)`` can replace an array;
            or a single string with the types of the runtime parameters, such as ``"*fp32:16,
            i32"``. There, ``:16`` states that the value or address is a multiple of 16.
        grid: the grid of the launch, as in ``kernel[grid]``. Without it, the roofline is that of
            one program instance.
        backend: the backend to compile with; by default, the backend of the arguments, or else the
            default backend.
        arch: a target of the backend to compile for, with or without a device. The roofline then
            uses the rates of a typical device with this target.
        keywords: arguments by name, values of constexpr parameters, and launch options.

    Raises:
        UsageError: types or constants do not match the parameters, or the backend has no such
            target.
        LaunchError: ``grid`` is not a grid.
        CompilationError, LoweringError, OutOfResources: the kernel cannot be compiled.
    """
    kernel = getattr(kernel, "base_kernel", kernel)
    if len(args) == 1 and isinstance(args[0], str):
        chosen, target = place(backend, arch)
        constants = {name: value for name, value in keywords.items() if name in kernel.arg_names}
        options = {name: value for name, value in keywords.items() if name not in constants}
        specialization = as_launched(specialize(kernel, args[0], constants, chosen, options))
        return explain_specialization(
            specialization, chosen, target, Launch.of_grid(grid, constants), device_of(chosen, arch)
        )
    if arch is not None:
        chosen, target = place(backend, arch)
        bound, specialization = bound_to(kernel, args, keywords, chosen)
        return explain_specialization(
            specialization, chosen, target, Launch.of_arguments(kernel, bound, grid)
        )
    with chosen_backend(backend) if backend is not None else nullcontext():
        selected = kernel.selected(args, keywords)
        bound, _, _ = kernel.bind(*args, **keywords)
    launch = Launch.of_arguments(kernel, bound, grid)
    return explain_specialization(
        selected.specialization, selected.backend, selected.target, launch, selected.device
    )


def explain_command(options: argparse.Namespace) -> int:
    """Explain the kernel of a command line, and write the page.

    See ``tilewright explain --help``.
    """
    kernel = find_kernel(options.kernel)
    constants, given = parse_assignments(options.constants), parse_assignments(options.option)
    if options.arguments:
        arguments = stand_ins(options.arguments)
        names = {
            **constants,
            **{name: value for name, value in arguments.items() if isinstance(value, int | float)},
        }
        found = explain(
            kernel,
            grid=_grid(options.grid, names),
            backend=options.backend,
            arch=options.arch,
            **constants,
            **arguments,
            **given,
        )
    else:
        chosen, target = place(options.backend, options.arch)
        launch = Launch.of_grid(_grid(options.grid, constants), constants)
        specialization = as_launched(
            specialize(kernel, options.signature, constants, chosen, given)
        )
        found = explain_specialization(
            specialization, chosen, target, launch, device_of(chosen, options.arch)
        )
    path = options.output or Path(f"{found.kernel}.html")
    try:
        found.save(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    print_json({**found.record(), "page": str(path)}) if options.json else print(
        f"{found}\n\npage: {path}"
    )
    return 0


def _grid(text: str | None, names: Mapping[str, Any]) -> Any:
    """The sizes of a grid that the command line spells; None where it does not."""
    return None if text is None else evaluated(f"({text},)", names, "--grid")


def explain_specialization(
    kernel: Specialization,
    backend: Backend,
    target: Target,
    launch: Launch = UNKNOWN,
    device: Device | None = None,
) -> Explanation:
    """Compile a kernel for a target, with the lines that its code comes from, and explain it.

    The roofline is that of ``device``, or of the usual device of the target.
    """
    if "line_info" in backend.manifest.options:
        kernel = replace(kernel, options={**kernel.options, "line_info": True})
    kept: list[tuple[str, list[SourceLine], Traffic, list[line_findings.Remark]]] = []

    def prepare(module: Module) -> None:
        flatten(module)
        kept.append(
            (
                str(module),
                places_of(module.kernel),
                launch.traffic(module),
                line_findings.scattered(module),
            )
        )

    compiled = compile_kernel(
        kernel, backend, target, keep_stages=True, preparation=Preparation("own lines", prepare)
    )
    artifact = with_listing(compiled, backend, target)
    ((tile_ir, places, traffic, scattered),) = kept
    panes = {"Tile IR": tuple(lines_of(tile_ir)), **_panes(artifact)}
    machine = [name for name in panes if name not in ("Tile IR", "simt", "llir")]
    found, layouts = _toolkit(artifact, backend, target, kernel.options)
    if not layouts and "llir" in panes:
        found = [*scattered, *line_findings.of_llvm(panes["llir"])]
    resources = backend.call("tilewright_resources", code=artifact.code, target=target) or {}
    return Explanation(
        kernel=artifact.code.name,
        target=f"{backend.name} {target.arch}",
        facts={
            **{name: str(value) for name, value in resources.items()},
            "code": f"{len(artifact.code.binary)} bytes",
        },
        options=dict(kernel.options),
        sections=tuple(sections(places)),
        panes=panes,
        findings=tuple(line_findings.ordered(found, places)),
        layouts=tuple(layouts),
        instructions=line_findings.instructions(panes[machine[-1]]) if machine else Counter(),
        times=dict(artifact.timings),
        counts={
            name: value.record() for name, value in resources.items() if hasattr(value, "record")
        },
        roofline=Roofline(
            traffic,
            ceilings_of(backend, target, device),
            "CTA" if "simt" in artifact.code.stages else "program",
            line_findings.wasteful(found),
        ),
        sought=bool(layouts) or "llir" in panes,
    )


def _panes(artifact: Artifact) -> dict[str, tuple[Line, ...]]:
    """The backend's stages that are text."""
    found: dict[str, tuple[Line, ...]] = {}
    for name, stage in artifact.code.stages.items():
        if name in _BEFORE or name[:1].isdigit():
            continue
        if isinstance(stage, bytes):
            try:
                stage = stage.decode()
            except UnicodeDecodeError:
                continue
        found[name] = tuple(lines_of(stage))
    return found


def _toolkit(
    artifact: Artifact, backend: Backend, target: Target, options: Mapping[str, Any]
) -> tuple[list[line_findings.Remark], list[dict[str, Any]]]:
    """Return the findings and layouts of the GPU toolkit, or nothing of backends without it."""
    stage = artifact.code.stages.get("simt")
    machine = (
        backend.call("tilewright_simt_target", target=target, options=options)
        if stage is not None
        else None
    )
    if machine is None:
        return [], []
    own = [spec for spec in backend.manifest.ops if spec.name not in machine.dialect.table]
    function = parse_module(str(stage), machine.dialect.table.extended(own)).kernel
    numbers = numbered(str(stage))
    return line_findings.of_toolkit(function, machine, numbers), pictures(function, numbers)
