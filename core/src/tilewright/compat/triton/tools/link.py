"""``triton.tools.link``: one C function over the specializations that :mod:`.compile` wrote.

    python -m triton.tools.link add.*.h -o add_kernel

writes ``add_kernel.h`` and ``add_kernel.c`` with ``add(stream, arguments …, algo_id)``, which calls
the most specialized function that the arguments fit. ``algo_id`` numbers the configurations
(constants and options), in the order of the headers; ``add_default`` takes the first, and
``add_get_num_algos`` counts them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from tilewright.compat.triton.tools.specialization import (
    LAUNCHED,
    LinkedParameter,
    Specialization,
    specializations,
)
from tilewright.runtime.arguments.c_interface import comment, header


class LinkerError(Exception):
    """Headers that cannot be linked."""


def link(headers: Sequence[Path], out: Path, prefix: str = "") -> list[Path]:
    """Write ``out.h`` and ``out.c``; gives their paths.

    Args:
        headers: what :mod:`.compile` wrote.
        prefix: stands before the names of the functions.

    Raises:
        LinkerError: a header is none of :mod:`.compile`, or two do not belong together.
    """
    kernels = _by_kernel(headers)
    kind = _only_kind(kernels)
    declared: list[str] = []
    defined = [f'#include "{out.name}.h"', ""]
    for name, group in kernels.items():
        kernel = _Kernel(f"{prefix}{name}", group)
        declared += kernel.declarations()
        defined += kernel.definitions()
    includes = ["cuda.h", "stdint.h"] if kind == "cuda" else ["stdint.h"]
    out.parent.mkdir(parents=True, exist_ok=True)
    written = [out.with_name(f"{out.name}.h"), out.with_name(f"{out.name}.c")]
    written[0].write_text(header(f"{out.name}_linked", includes, declared))
    written[1].write_text("\n".join(defined))
    return written


def _by_kernel(headers: Sequence[Path]) -> dict[str, list[Specialization]]:
    kernels: dict[str, list[Specialization]] = {}
    for path in headers:
        found = list(specializations(path.read_text()))
        if not found:
            raise LinkerError(
                f"{path} is no header that triton.tools.compile wrote: it has no line "
                "tilewright-link"
            )
        for each in found:
            kernels.setdefault(each.kernel, []).append(each)
    for name, group in kernels.items():
        seen: dict[tuple[str, tuple[int, ...]], str] = {}
        for each in group:
            if _types(each) != _types(group[0]):
                raise LinkerError(
                    f"{name}: {each.function}({_types(each)}) and "
                    f"{group[0].function}({_types(group[0])}) have other parameters"
                )
            same = seen.setdefault(
                (each.configuration, tuple(parameter.hint for parameter in each.parameters)),
                each.function,
            )
            if same != each.function:
                raise LinkerError(
                    f"{name}: {same} and {each.function} are for the same arguments "
                    f"({each.configuration}): leave one of them out"
                )
    return kernels


def _only_kind(kernels: dict[str, list[Specialization]]) -> str:
    kinds = {each.kind for group in kernels.values() for each in group}
    if len(kinds) != 1:
        raise LinkerError(
            f"the headers are for targets of kind {', '.join(sorted(kinds))}: link those of "
            "one kind"
        )
    return kinds.pop()


def _types(specialization: Specialization) -> str:
    return ", ".join(
        parameter.declaration.removeprefix("const ") for parameter in specialization.parameters
    )


class _Kernel:
    """The functions of one kernel."""

    def __init__(self, name: str, group: Sequence[Specialization]) -> None:
        self.name, self.group = name, group
        self.kind = group[0].kind
        self.stream, self.result, self.refused, self.loads = LAUNCHED[self.kind]
        self.configurations = list(dict.fromkeys(each.configuration for each in group))
        parameters = group[0].parameters
        self.declared = ", ".join(
            (_declared(self.stream, "stream"), *(self._parameter(each) for each in parameters))
        )
        self.given = ", ".join(("stream", *(each.name for each in parameters)))

    def _parameter(self, parameter: LinkedParameter) -> str:
        """Declare a parameter of the functions over all: addresses have one type.

        It does not matter who stores to them.
        """
        if not parameter.is_pointer:
            return parameter.declaration
        return (
            f"CUdeviceptr {parameter.name}"
            if self.kind == "cuda"
            else f"const void *{parameter.name}"
        )

    def declarations(self) -> list[str]:
        """Return the declarations of the C header."""
        choices = "\n".join(
            f"  algo_id {number}: {configuration}"
            for number, configuration in enumerate(self.configurations)
        )
        choices = choices.replace("*/", "* /")
        lines = [
            *comment(
                f"Call the most specialized function that the arguments fit; {self.refused} where "
                f"none does.\n{choices}"
            ),
            f"{self.result} {self.name}({self.declared}, int algo_id);",
            f"{self.result} {self.name}_default({self.declared});",
            f"int {self.name}_get_num_algos(void);",
        ]
        if self.loads:
            lines += [
                *comment("Load all of them, in the current context, and let go of them."),
                f"{self.result} load_{self.name}(void);",
            ]
            lines += [f"{self.result} unload_{self.name}(void);"]
        return [*lines, ""]

    def definitions(self) -> list[str]:
        """Of the source."""
        lines: list[str] = []
        for each in self.group:
            taken = ", ".join(
                (
                    _declared(self.stream, "stream"),
                    *(
                        parameter.declaration
                        for parameter in each.parameters
                        if parameter.hint != 1
                    ),
                )
            )
            lines.append(f"{self.result} {each.function}({taken});")
            if self.loads:
                lines += [
                    f"{self.result} load_{each.function}(void);",
                    f"{self.result} unload_{each.function}(void);",
                ]
        for number, configuration in enumerate(self.configurations):
            own = [each for each in self.group if each.configuration == configuration]
            lines += [
                "",
                f"static {self.result} {self.name}_algo_{number}({self.declared}) {{",
                *self._choices(own),
                f"    return {self.refused};",
                "}",
            ]
        count = len(self.configurations)
        lines += [
            "",
            f"{self.result} {self.name}({self.declared}, int algo_id) {{",
            "    switch (algo_id) {",
        ]
        lines += [
            f"    case {number}: return {self.name}_algo_{number}({self.given});"
            for number in range(count)
        ]
        lines += [f"    default: return {self.refused};", "    }", "}"]
        lines += [
            "",
            (
                f"{self.result} {self.name}_default({self.declared}) {{ return "
                f"{self.name}_algo_0({self.given}); }}"
            ),
        ]
        lines += ["", f"int {self.name}_get_num_algos(void) {{ return {count}; }}", ""]
        if self.loads:
            for verb in ("load", "unload"):
                lines += [
                    f"{self.result} {verb}_{self.name}(void) {{",
                    f"    {self.result} result = CUDA_SUCCESS, own;",
                ]
                lines += [
                    f"    if ((own = {verb}_{each.function}()) != CUDA_SUCCESS) result = own;"
                    for each in self.group
                ]
                lines += ["    return result;", "}", ""]
        return lines

    def _choices(self, group: Iterable[Specialization]) -> list[str]:
        """Return a call of each function, the most specialized first, if the arguments fit."""
        lines = []
        for each in sorted(
            group, key=lambda each: -sum(parameter.hint != 0 for parameter in each.parameters)
        ):
            conditions = [_condition(parameter) for parameter in each.parameters if parameter.hint]
            given = ", ".join(
                (
                    "stream",
                    *(_argument(parameter) for parameter in each.parameters if parameter.hint != 1),
                )
            )
            lines.append(
                f"    if ({' && '.join(conditions) or '1'}) return {each.function}({given});"
            )
        return lines


def _declared(type_: str, name: str) -> str:
    return f"{type_}{name}" if type_.endswith("*") else f"{type_} {name}"


def _condition(parameter: LinkedParameter) -> str:
    if parameter.hint == 1:
        return f"{parameter.name} == 1"
    return (
        f"(uintptr_t){parameter.name} % 16 == 0"
        if parameter.is_pointer
        else f"{parameter.name} % 16 == 0"
    )


def _argument(parameter: LinkedParameter) -> str:
    if not parameter.is_pointer:
        return parameter.name
    return (
        f"({parameter.declaration.removesuffix(parameter.name).strip()})(uintptr_t){parameter.name}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="triton.tools.link",
        description="Write one function of C over the specializations of a kernel.",
    )
    parser.add_argument(
        "headers", nargs="+", type=Path, help="headers that triton.tools.compile wrote"
    )
    parser.add_argument(
        "--out",
        "-o",
        type=Path,
        required=True,
        help="the path of what is written, without its ending",
    )
    parser.add_argument("--prefix", default="", help="stands before the names of the functions")
    given = parser.parse_args(arguments)
    try:
        for path in link(given.headers, given.out, given.prefix):
            print(path)
    except LinkerError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
