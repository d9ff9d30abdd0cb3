"""``triton.tools.compile``: a kernel, at given types and grid, as a function of C.

    python -m triton.tools.compile kernels.py --kernel-name add
        --signature '*fp32:16, *fp32:16, i32, 1024' --grid '(n + 1023) / 1024, 1, 1'

writes ``add.<key>.h`` and ``add.<key>.c`` with the function ``add_<key>(stream, arguments …)``. See
``tilewright compile`` for a grid that is given at launch, and :mod:`.link` for one function over
several specializations.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.util
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.compat.triton.backends.compiler import GPUTarget
from tilewright.compat.triton.compiler.compiler import compile as compile_source
from tilewright.compat.triton.compiler.sources import ASTSource
from tilewright.compat.triton.runtime.driver import driver
from tilewright.compat.triton.tools.specialization import LAUNCHED, LinkedParameter, Specialization
from tilewright.errors import BackendError
from tilewright.ir.type_text import parse_type
from tilewright.plugins.manifest import CProgram, Parameter
from tilewright.runtime.arguments.c_interface import (
    CParameter,
    c_name,
    c_parameters,
    c_type,
    comment,
    header,
)
from tilewright.runtime.launch.grid import MAX_EXTENT


@dataclass
class CompileArgs:
    """Arguments of a compilation.

    Attributes:
        path: the file of the kernel.
        signature: for every parameter in order its type (``*fp32:16``, ``i32``; ``:16`` is
            divisible by 16, ``:1`` is the number 1) or its value.
        grid: three expressions of C over the arguments.
        target: ``kind:architecture:threads of a warp`` (``cuda:90:32``); the active driver's where
            it is None.
        out_name: the beginning of the function's name; the kernel's where it is None.
        out_path: where the files are written, without their endings; the working directory, and
            ``out_name``, where it is None.
    """

    path: str = ""
    kernel_name: str = ""
    signature: str = ""
    grid: str = ""
    target: str | None = None
    num_warps: int = 1
    num_stages: int = 3
    out_name: str | None = None
    out_path: Path | None = None


def compile_kernel(args: CompileArgs) -> tuple[str, list[Path]]:
    """Compile and write; gives the function's name and the paths of the files.

    Raises:
        ValueError: signature, grid or target are not as they should be.
        BackendError: the backend writes no files for C programs.
    """
    kernel = _kernel(args)
    target = driver.active.get_current_target() if args.target is None else _target(args.target)
    if target.backend not in LAUNCHED:
        raise BackendError(
            f"triton.tools.compile writes C for targets of kind {', '.join(LAUNCHED)}, not "
            f"{target.backend}: compile with triton.compile"
        )
    grid = [part.strip() for part in _parts(args.grid)]
    if len(grid) != 3 or not all(grid):
        raise ValueError(f"the grid is three expressions with commas between, not {args.grid!r}")
    source = _source(kernel, args.signature)
    out_name = args.out_name or args.kernel_name
    key = hashlib.sha256(
        f"{source.hash()} {target} {grid} {args.num_warps} {args.num_stages}".encode()
    ).hexdigest()[:8]
    name = f"{out_name}_{key}"
    source.symbol = f"{name}_kernel"  # a program may hold several specializations of a kernel
    compiled = compile_source(
        source, target, {"num_warps": args.num_warps, "num_stages": args.num_stages}
    )
    program: CProgram | None = compiled.backend.call(
        "tilewright_export",
        name=name,
        code=compiled.artifact.code,
        parameters=compiled.parameters,
        target=compiled.target,
    )
    if program is None:
        raise BackendError(
            f"backend {compiled.backend.name!r} writes no files for C programs: it has no "
            "tilewright_export"
        )
    base = Path(out_name) if args.out_path is None else args.out_path
    base.parent.mkdir(parents=True, exist_ok=True)
    written = []
    specialization = _specialization(
        name, out_name, args, target.backend, source, compiled.parameters
    )
    for ending, text in _texts(
        specialization, program, c_parameters(compiled.parameters), grid, f"{base.name}.{key}.h"
    ).items():
        path = base.parent / f"{base.name}.{key}{ending}"
        path.write_bytes(text)
        written.append(path)
    return name, written


def _specialization(
    name: str,
    kernel: str,
    args: CompileArgs,
    kind: str,
    source: ASTSource,
    parameters: Sequence[Parameter],
) -> Specialization:
    """Return the linker's data of a compiled kernel."""
    by_name = {parameter.name: parameter for parameter in parameters}
    linked: list[LinkedParameter] = []
    fixed: list[str] = []
    for position, (parameter, part) in enumerate(
        zip(source.fn.params, _parts(args.signature), strict=True)
    ):
        type_, _, hint = part.strip().partition(":")
        if parameter.name in by_name:
            hint = "16" if (position,) in source.attrs else "0"
            linked.extend(
                LinkedParameter(each.declaration, each.name, int(hint))
                for each in c_parameters([by_name[parameter.name]])
            )
        elif hint == "1":
            own = c_name(parameter.name)
            linked.append(LinkedParameter(f"{c_type(parse_type(type_))} {own}", own, 1))
        else:
            fixed.append(f"{parameter.name}={part.strip()}")
    configuration = ", ".join(
        (*fixed, f"num_warps={args.num_warps}", f"num_stages={args.num_stages}")
    )
    return Specialization(name, kernel, kind, configuration, tuple(linked))


def _texts(
    specialization: Specialization,
    program: CProgram,
    parameters: Sequence[CParameter],
    grid: Sequence[str],
    file: str,
) -> dict[str, bytes]:
    """The files by their endings: what the backend writes, and a function with the grid in it."""
    name = specialization.function
    stream, result, too_large, loads = LAUNCHED[specialization.kind]
    declared = ", ".join((f"{stream} stream", *(each.declaration for each in parameters)))
    given = ", ".join(
        (
            *(f"(uint32_t)extents_of_the_grid[{axis}]" for axis in range(3)),
            *(each.name for each in parameters),
        )
    )
    extents = [
        (
            "    const int64_t extents_of_the_grid[3] = "
            f"{{{', '.join(f'(int64_t)({extent})' for extent in grid)}}};"
        ),
        "    for (int axis = 0; axis < 3; ++axis) if (extents_of_the_grid[axis] <= 0) return 0;",
        (
            "    for (int axis = 0; axis < 3; ++axis) if (extents_of_the_grid[axis] >= "
            f"{MAX_EXTENT}) return {too_large};"
        ),
    ]
    own_header, own_source = (
        program.files[f"{name}.h"].decode(),
        program.files[f"{name}_launch.c"].decode(),
    )
    lines = [
        specialization.line(),
        *comment(f"Launch the kernel on the grid ({', '.join(grid)}).", parameters),
        f"{result} {name}({declared});",
    ]
    includes = re.findall(r"#include <(.*?)>", own_header)
    inner = own_header.partition("#endif\n\n")[2].partition("\n#ifdef __cplusplus\n}")[0]
    if loads:
        lines += [
            "",
            *comment("Load it before its first launch, in the current context, and let go of it."),
            f"{result} load_{name}(void);",
        ]
        lines += [f"{result} unload_{name}(void);"]
        body = [
            "static CUmodule the_module;",
            "static CUfunction the_function;",
            "",
            (
                f"CUresult load_{name}(void) {{ return the_function ? CUDA_SUCCESS : "
                f"{name}_load(&the_module, &the_function); }}"
            ),
            "",
            f"CUresult unload_{name}(void) {{",
            "    if (!the_function) return CUDA_SUCCESS;",
            "    the_function = 0;",
            "    return cuModuleUnload(the_module);",
            "}",
            "",
            f"CUresult {name}({declared}) {{",
            *extents,
            f"    CUresult result = load_{name}();",
            (
                f"    return result == CUDA_SUCCESS ? {name}_launch(the_function, stream, {given}) "
                ": result;"
            ),
            "}",
        ]
    else:
        body = [
            f"{result} {name}({declared}) {{",
            "    (void)stream; /* it has ended when the function returns */",
            *extents,
            f"    return {name}_launch({given});",
            "}",
        ]
    source = own_source.replace(f'#include "{name}.h"', f'#include "{file}"') + "\n".join(
        ("", *body, "")
    )
    found = {
        ".h": header(name, includes, [*inner.strip().splitlines(), "", *lines]).encode(),
        ".c": source.encode(),
    }
    found.update(
        {
            f".{extra.rpartition('.')[2]}": data
            for extra, data in program.files.items()
            if extra not in (f"{name}.h", f"{name}_launch.c")
        }
    )
    return found


def _kernel(args: CompileArgs) -> Any:
    path = Path(args.path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ValueError(f"{args.path!r} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    found = getattr(module, args.kernel_name, None)
    found = getattr(found, "base_kernel", found)
    if not hasattr(found, "arg_names"):
        raise ValueError(f"{args.path} has no kernel {args.kernel_name!r}")
    return found


def _target(text: str) -> GPUTarget:
    parts = text.split(":")
    if len(parts) != 3 or not parts[2].isdigit():
        raise ValueError(f"a target is kind:architecture:threads of a warp, not {text!r}")
    return GPUTarget(parts[0], int(parts[1]) if parts[1].isdigit() else parts[1], int(parts[2]))


def _parts(text: str) -> list[str]:
    """Split a text at the commas outside of brackets."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return found


def _source(kernel: Any, signature: str) -> ASTSource:
    parts = [part.strip() for part in _parts(signature)]
    if len(parts) != len(kernel.arg_names):
        raise ValueError(
            f"the signature of {kernel.__name__} has {len(kernel.arg_names)} parts "
            f"({', '.join(kernel.arg_names)}), not {len(parts)}"
        )
    types: dict[str, str] = {}
    constants: dict[str, Any] = {}
    facts: dict[tuple[int, ...], Any] = {}
    for position, (parameter, part) in enumerate(zip(kernel.params, parts, strict=True)):
        type_, _, hint = (
            part.partition(":") if not part.startswith("tensordesc") else (part, "", "")
        )
        value = _value(part)
        if value is not _NO_VALUE or hint == "1":
            types[parameter.name], constants[parameter.name] = (
                "constexpr",
                1 if hint == "1" else value,
            )
            continue
        if parameter.is_constexpr:
            raise ValueError(
                f"parameter {parameter.name!r} of {kernel.__name__} is a constant, and {part!r} "
                "is no value"
            )
        if hint not in ("", "16"):
            raise ValueError(
                f"{part!r} of parameter {parameter.name!r}: behind the colon stands 16 or 1"
            )
        types[parameter.name] = type_
        if hint:
            facts[(position,)] = [["tt.divisibility", 16]]
    return ASTSource(kernel, types, constants, facts)


_NO_VALUE: Any = object()


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return _NO_VALUE


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="triton.tools.compile", description="Write a kernel as a function of C."
    )
    parser.add_argument("path", help="the file of the kernel")
    parser.add_argument("--kernel-name", "-n", required=True)
    parser.add_argument(
        "--target",
        "-t",
        default=None,
        help="kind:architecture:threads of a warp, such as cuda:90:32",
    )
    parser.add_argument("--num-warps", "-w", type=int, default=1)
    parser.add_argument("--num-stages", "-ns", type=int, default=3)
    parser.add_argument("--out-name", "-on", default=None)
    parser.add_argument("--out-path", "-o", type=Path, default=None)
    parser.add_argument("--signature", "-s", required=True)
    parser.add_argument("--grid", "-g", required=True)
    _, paths = compile_kernel(CompileArgs(**vars(parser.parse_args(arguments))))
    for path in paths:
        print(path)


if __name__ == "__main__":
    main()
