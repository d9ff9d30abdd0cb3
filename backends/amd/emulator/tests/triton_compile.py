"""Triton's own code objects for AMD GPUs, compiled without one, in a Python that has Triton: for
``test_triton_code_objects.py``.

    python triton_compile.py FOLDER < JOBS

JOBS is JSON: a list of [name, kernel, arch, signature, constants, options]. FOLDER gets
``NAME.hsaco`` and ``NAME.s``, which ends with the metadata; standard output is JSON: name ->
{"shared", "num_warps", "kernel"}, or {"error"} where Triton does not compile it.
"""

import json
import sys
from pathlib import Path

import triton
import triton.language as tl
import triton_sources
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


def main() -> None:
    folder, told = Path(sys.argv[1]), {}
    for name, kernel, arch, signature, constants, options in json.load(sys.stdin):
        fn = getattr(triton_sources, kernel)
        types = dict(part.split("=") for part in signature.replace(" ", "").split(","))
        given = {
            key: getattr(tl, value[3:])
            if isinstance(value, str) and value.startswith("tl.")
            else value
            for key, value in constants.items()
        }
        listed = {
            parameter: types[parameter].partition(":")[0] if parameter in types else "constexpr"
            for parameter in fn.arg_names
        }
        attributes = {
            (i,): [["tt.divisibility", 16]]
            for i, parameter in enumerate(fn.arg_names)
            if types.get(parameter, "").endswith(":16")
        }
        target = GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32)
        try:
            made = triton.compile(
                ASTSource(fn, listed, given, attributes), target=target, options=options
            )
        except Exception as error:  # report it, and continue
            told[name] = {"error": f"{type(error).__name__}: {error}"}
            continue
        (folder / f"{name}.hsaco").write_bytes(made.asm["hsaco"])
        (folder / f"{name}.s").write_text(made.asm["amdgcn"])
        told[name] = {
            "shared": made.metadata.shared,
            "num_warps": made.metadata.num_warps,
            "kernel": made.metadata.name,
        }
    print(json.dumps({"triton": triton.__version__, "kernels": told}))


if __name__ == "__main__":
    main()
