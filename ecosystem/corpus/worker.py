"""A process that compiles records with whatever ``triton`` is in it: Triton itself, or Tilewright.

    python -m corpus.worker JOBS RESULTS FOLDER

JOBS is a file of JSON: a list of [number, record, names of targets]. For each compilation two lines
of JSON are appended to RESULTS: one before, so that whoever started this knows what ended the
process, and one with the outcome. FOLDER gets the code, as ``NUMBER.TARGET.STAGE``.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch._dynamo  # noqa: F401  # before a device is pretended: PyTorch lists its own functions here
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]
from triton.compiler import ASTSource  # type: ignore[import-untyped]

from corpus import load
from corpus.launches import Launch, launch_of
from corpus.targets import TARGETS, Target

_STAGES = ("ptx", "amdgcn", "hsaco")
#: The most threads of a CTA on any GPU.
_THREADS = 1024
_warmed: set[str] = set()


@triton.jit  # type: ignore[untyped-decorator]
def _first(pointer, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.arange(0, BLOCK)
    tl.store(pointer + offsets, tl.load(pointer + offsets) + 1)


def main() -> None:
    jobs, results, folder = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    _leave_assembling_out()
    with results.open("a") as out, load.pretended():
        for number, record, names in json.loads(jobs.read_text()):
            launch = launch_of(record)
            for name in names:
                target = GPUTarget(TARGETS[name].backend, TARGETS[name].arch, TARGETS[name].warp)
                _be(target)
                _write(out, {"number": number, "target": name})
                try:
                    made, seconds = _compile(launch, target)
                    _keep_code(made, TARGETS[name], folder / f"{number}.{name}")
                    found = {"seconds": seconds, **_facts(made)}
                except Exception as error:
                    traceback.print_exc()
                    found = {"error": first_line(error)}
                _write(out, {"number": number, "target": name, "outcome": found})


def _be(target: GPUTarget) -> None:
    """Let the driver that is pretended to be active answer kernels that ask for the target."""
    active: Any = triton.runtime.driver.active
    active.get_current_target = lambda: target
    if target.backend not in _warmed:  # what a first compilation loads is no kernel's time
        _warmed.add(target.backend)
        source = ASTSource(_first, {"pointer": "*fp32", "BLOCK": "constexpr"}, {"BLOCK": 64})
        triton.compile(source, target=target)


def _compile(launch: Launch, target: GPUTarget) -> tuple[Any, float]:
    """A launch's kernel, compiled, and the seconds of processor time that it took."""
    source, options = load.source(launch), load.options(launch)
    if "num_warps" in options:  # packages ask for half as many where a warp has 64 threads
        options["num_warps"] = min(options["num_warps"], _THREADS // target.warp_size)
    started = _processor_time()
    made = triton.compile(source, target=target, options=options)
    return made, round(_processor_time() - started, 3)


def _keep_code(made: Any, target: Target, place: Path) -> None:
    for stage in _STAGES:
        if target.code and stage in made.asm:
            code = made.asm[stage]
            content = code.encode() if isinstance(code, str) else code
            place.with_name(f"{place.name}.{stage}").write_bytes(content)


def _facts(made: Any) -> dict[str, Any]:
    """What a launch of the code needs to know."""
    metadata = made.metadata
    names = "shared", "num_warps", "name"
    return {name: getattr(metadata, name) for name in names}


def first_line(error: BaseException) -> str:
    """The type and the first line of the root cause of an error."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # a compilation error shows the source first, and says what is wrong in its last line
    shown = next((line for line in lines if not line.startswith(("at ", "File "))), "")
    if lines and lines[0].startswith("at ") and not hasattr(error, "remedy"):
        shown = lines[-1]
    # paths of an installation differ by machine, names of temporary files by run
    shown = re.sub(r"/\S*/(?:site|dist)-packages/", "", shown)
    shown = re.sub(re.escape(tempfile.gettempdir()) + r"/\S+", "a temporary file", shown)
    return f"{type(error).__name__}: {shown}"[:300]


def _leave_assembling_out() -> None:
    """Let Triton end with PTX: one ptxas, the same for both compilers, compiles it later."""
    if "tilewright" in triton.__file__.replace(os.sep, "/").split("/"):
        return
    from triton import knobs

    def ends_with_ptx(*given: Any) -> tuple[str, str] | None:
        if not given:
            return "corpus", "corpus"
        stages = given[1]
        if "cubin" in stages:
            stages["cubin"] = lambda ptx, metadata: b"\0"
        return None

    knobs.runtime.add_stages_inspection_hook = ends_with_ptx


def _processor_time() -> float:
    """Seconds that this process and its children computed."""
    return sum(os.times()[:4])


def _write(out: Any, line: dict[str, Any]) -> None:
    out.write(json.dumps(line) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
