"""Record the launches of Liger's functions, and compile their kernels by Triton for AMD GPUs.

    python triton_launches.py FOLDER gfx942 CASE ...      in a Python with Triton and Liger

Nothing runs: tensors lie on the host, and a launch is recorded and compiled. FOLDER gets code
objects, the contents that tensors have at their first launch, and CASE.json: for each pass its
launches in order, with the kernel's code, grid and arguments.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import triton
from amd_cases import CASES, results_of
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "waves_per_eu", "matrix_instr_nonkdim")
_TYPES = {
    torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.int64: "*i64",
    torch.int32: "*i32", torch.uint8: "*u8", torch.bool: "*i1",
}  # fmt: skip
#: What Liger asks of the device: an MI300X.
_PROPERTIES = SimpleNamespace(multi_processor_count=304, name="MI300X", major=9, minor=4)


class Recorder:
    """Takes the place of launches.

    Attributes:
        launches: those since the last call of :meth:`taken`.
    """

    def __init__(self, folder: Path, architecture: str, case: str) -> None:
        self.folder, self.case = folder, case
        wave = 64 if architecture.startswith("gfx9") else 32
        self.target = GPUTarget("hip", architecture, wave)
        self.launches: list[dict[str, Any]] = []
        self.storages: dict[str, Any] = {}

    def launch(self, kernel: Any, *given: Any, grid: Any, warmup: bool, **keywords: Any) -> None:
        """Record a launch of a kernel."""
        options = {name: keywords.pop(name) for name in _OPTIONS if name in keywords}
        values = {**dict(zip(kernel.arg_names, given, strict=False)), **keywords}
        for parameter in kernel.params:
            if parameter.name not in values:
                values[parameter.name] = parameter.default
        signature, constants, attributes, arguments = {}, {}, {}, []
        for place, parameter in enumerate(kernel.params):
            value = values[parameter.name]
            if isinstance(value, torch.Tensor):
                signature[parameter.name] = _TYPES[value.dtype]
                is_aligned = value.data_ptr() % 16 == 0
                arguments.append(self.tensor_of(value))
            elif parameter.is_constexpr or value is None or (value == 1 and type(value) is int):
                signature[parameter.name], constants[(place,)] = "constexpr", value
                continue
            elif isinstance(value, float):
                signature[parameter.name], is_aligned = "fp32", False
                arguments.append({"float": value})
            else:
                is_wide = not -(1 << 31) <= value < 1 << 31
                narrow = "i1" if isinstance(value, bool) else "i32"
                signature[parameter.name] = "i64" if is_wide else narrow
                is_aligned = value % 16 == 0
                arguments.append({"integer": int(value)})
            if is_aligned:
                attributes[(place,)] = [["tt.divisibility", 16]]
        made = triton.compile(
            ASTSource(kernel, signature, constants, attributes),
            target=self.target,
            options=options,
        )
        name = hashlib.sha256(made.asm["hsaco"]).hexdigest()[:16]
        (self.folder / f"{name}.hsaco").write_bytes(made.asm["hsaco"])
        (self.folder / f"{name}.s").write_text(made.asm["amdgcn"])
        extents = grid(values) if callable(grid) else grid
        self.launches.append(
            {
                "code": name,
                "kernel": made.metadata.name,
                "warps": made.metadata.num_warps,
                "shared": made.metadata.shared,
                "grid": [*extents, 1, 1][:3],
                "arguments": arguments,
            }
        )

    def tensor_of(self, tensor: torch.Tensor) -> dict[str, Any]:
        """Return where a tensor begins; write the contents of its storage when it is new."""
        storage = tensor.untyped_storage()
        first = storage.data_ptr()
        name = f"{self.case}-{first:x}"
        if name not in self.storages:
            self.storages[name] = storage  # kept, its address is not used again
            contents = torch.empty(0, dtype=torch.uint8).set_(storage).numpy().tobytes()
            (self.folder / f"{name}.bytes").write_bytes(contents)
        return {"storage": name, "offset": tensor.data_ptr() - first}

    def result_of(self, tensor: Any) -> dict[str, Any] | None:
        """Return what describes a result; None where no launch has written it as it is."""
        if tensor is None or not tensor.is_contiguous():
            return None
        first = tensor.untyped_storage().data_ptr()
        if f"{self.case}-{first:x}" not in self.storages:
            return None
        return {
            **self.tensor_of(tensor.detach()),
            "shape": list(tensor.shape),
            "dtype": str(tensor.dtype).removeprefix("torch."),
        }

    def taken(self) -> list[dict[str, Any]]:
        """Return the launches, and forget them."""
        found, self.launches = self.launches, []
        return found


def first_configuration(tuner: Any, *given: Any, **keywords: Any) -> Any:
    """Launch the first configuration in place of measuring all."""
    return tuner.fn.run(*given, **{**keywords, **tuner.configs[0].all_kwargs()})


def record(folder: Path, architecture: str, names: list[str]) -> None:
    """Record cases."""
    torch.version.hip = "7.0"  # Liger's numbers of warps are those for AMD GPUs
    import liger_kernel.transformers.functional as liger

    for name in names:
        recorder = Recorder(folder, architecture, name)
        with (
            mock.patch.object(JITFunction, "run", lambda *a, _r=recorder, **k: _r.launch(*a, **k)),
            mock.patch.object(Autotuner, "run", first_configuration),
            mock.patch.object(torch.cuda, "get_device_properties", lambda *_: _PROPERTIES),
            mock.patch.object(torch.cuda, "is_available", lambda: False),
        ):
            passes = results_of(CASES[name], CASES[name].theirs(liger))
            found, results = [], []
            for call in passes:
                returned = call()
                found.append(recorder.taken())
                results.append([recorder.result_of(each) for each in returned])
        (folder / f"{name}.json").write_text(json.dumps({"passes": found, "results": results}))
        print(name, [len(each) for each in found], flush=True)


if __name__ == "__main__":
    record(Path(sys.argv[1]), sys.argv[2], sys.argv[3:] or list(CASES))
