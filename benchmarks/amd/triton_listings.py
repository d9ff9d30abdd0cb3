"""Compile kernels of ``examples/kernels`` with Triton, for ``static_quality.py``.

Runs in a Python that has Triton. Standard input is JSON: name -> [file, kernel, signature,
constants]; the last line of standard output is JSON: name -> [assembly, bytes of LDS].
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


def kernel(file: str, name: str, folder: Path) -> Any:
    """Return a kernel of a file, with Triton as the module that it imports."""
    text = (
        Path(file)
        .read_text()
        .replace("import tilewright as tw", "import triton as tw")
        .replace("import tilewright.language as tl", "import triton.language as tl")
    )
    copy = folder / Path(file).name
    copy.write_text(text)
    spec = importlib.util.spec_from_file_location(copy.stem, copy)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def main() -> None:
    arch = sys.argv[1]
    target = GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (file, kernel_name, text, constants) in json.loads(sys.stdin.read()).items():
            fn = kernel(file, kernel_name, Path(folder))
            types = dict(part.split("=") for part in text.replace(" ", "").split(","))
            signature = {
                parameter: types[parameter].partition(":")[0] if parameter in types else "constexpr"
                for parameter in fn.arg_names
            }
            attributes = {
                (i,): [["tt.divisibility", 16]]
                for i, parameter in enumerate(fn.arg_names)
                if types.get(parameter, "").endswith(":16")
            }
            compiled = triton.compile(
                ASTSource(fn, signature, constants, attributes), target=target
            )
            found[name] = [compiled.asm["amdgcn"], compiled.metadata.shared]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
