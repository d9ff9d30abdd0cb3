"""Measure how long tuning takes with empty caches: Tilewright against Triton.

The 48 configurations of a persistent matmul (``tuned_kernel.py``) are tuned in a process of each
library, and the processes alternate. The output also compares the configuration that the
performance model chooses without any measurement with the tuned one.

Libraries: ``triton``; ``shim``, the same source on Tilewright through ``import triton``, which
tries every configuration; ``tilewright``, the same with :func:`tilewright.autotune`, which drops
hopeless configurations before it compiles them; ``asynchronous``, the same with Hopper's
instructions.

``--compile-only`` needs no GPU: it measures the seconds to lower the 48 configurations for
``--arch``, with worker processes and with threads.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import outputs

LIBRARIES = ("triton", "shim", "tilewright", "asynchronous")
SHAPES = ((4096, 4096, 4096), (8192, 1280, 8192), (1024, 1024, 4096), (2048, 2048, 2048))
_SOURCE = Path(__file__).with_name("tuned_kernel.py")


def module_of(library: str, folder: Path) -> ModuleType:
    """Return the kernel for a library; a modified copy of the source goes to ``folder``."""
    path = _SOURCE
    if library in ("tilewright", "asynchronous"):
        text = (
            _SOURCE.read_text()
            .replace("import triton.language as tl", "import tilewright.language as tl")
            .replace("import triton\n", "import tilewright as triton\n")
        )
        path = folder / "own_kernel.py"
        path.write_text(text)
    spec = importlib.util.spec_from_file_location(f"{library}_kernel", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def child(library: str, folder: Path, shapes: list[tuple[int, int, int]]) -> dict[str, Any]:
    """Measure one library in this process.

    The result has the seconds of the first launch, of the first shape, and of the tuning of each;
    the milliseconds of the best configuration, and of the model's choice if there is a model.
    """
    import torch
    from side_by_side import milliseconds

    own = library in ("tilewright", "asynchronous")
    module = module_of(library, folder)
    if own:
        from tilewright import autotune
        from tilewright.runtime.arguments.descriptor import TensorDescriptor
    else:
        from triton import autotune
        from triton.tools.tensor_descriptor import TensorDescriptor
    options = {"asynchronous": True} if library == "asynchronous" else {}
    programs = torch.cuda.get_device_properties(0).multi_processor_count
    torch.zeros(1024, device="cuda").sum().item()
    tuned = autotune(module.CONFIGURATIONS, key=["M", "N", "K"])(module.matmul)
    untuned = (
        autotune(module.CONFIGURATIONS, key=["M", "N", "K"], mode="model")(module.matmul)
        if own
        else None
    )
    found: dict[str, Any] = {"tune_s": [], "tried": []}
    for m, n, k in shapes:
        a, b = (torch.randn(rows, k, device="cuda", dtype=torch.float16) for rows in (m, n))
        c = torch.empty(m, n, device="cuda", dtype=torch.float16)
        described = [TensorDescriptor.from_tensor(tensor, [1, 1]) for tensor in (a, b, c)]

        def grid(meta: dict[str, Any], m: int = m, n: int = n) -> tuple[int]:
            return (min(programs, -(-m // meta["BM"]) * -(-n // meta["BN"])),)

        def call(
            kernel: Any = tuned,
            described: Any = described,
            grid: Any = grid,
            m: int = m,
            n: int = n,
            k: int = k,
        ) -> None:
            kernel[grid](*described, m, n, k, PROGRAMS=programs, **options)

        torch.cuda.synchronize()
        started = time.perf_counter()
        call()
        torch.cuda.synchronize()
        found["tune_s"].append(time.perf_counter() - started)
        found["tried"].append(len(tuned.configs_timings))
        torch.testing.assert_close(c, a @ b.T, rtol=1e-2, atol=0.5)
        row: dict[str, Any] = {
            "best": str(tuned.best_config),
            "timings": {str(one): times[0] for one, times in tuned.configs_timings.items()},
        }
        calls: dict[str, Any] = {"tuned": call}
        if untuned is not None:
            call(untuned)
            row["chosen"] = str(untuned.best_config)
            calls["model"] = lambda call=call: call(untuned)
        times = milliseconds({**calls, "cublas": lambda a=a, b=b, c=c: torch.mm(a, b.T, out=c)}, 20)
        found[f"{m}x{n}x{k}"] = {**row, **times}
    return found


def measured(library: str, arguments: list[str]) -> dict[str, Any]:
    """Return the measurements of a new process with empty caches, and its total seconds."""
    with tempfile.TemporaryDirectory(prefix="tilewright-tuning-") as folder:
        own = {
            "TRITON_CACHE_DIR": f"{folder}/triton",
            "TILEWRIGHT_CACHE_DIR": f"{folder}/tilewright",
            "CUDA_CACHE_DISABLE": "1",
            "TILEWRIGHT_BACKEND": "nvidia",
        }
        shim = ["-m", "tilewright.compat.triton"] if library == "shim" else []
        command = [
            sys.executable,
            *shim,
            __file__,
            "--child",
            library,
            "--folder",
            folder,
            *arguments,
        ]
        done = subprocess.run(
            command,
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parent,
        )
    if done.returncode:
        raise SystemExit(f"{library} failed:\n{done.stdout}{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# ---- without a GPU


def compile_only(arch: str) -> list[dict[str, Any]]:
    """Measure the seconds to lower all configurations, with worker processes and with threads."""
    rows = []
    for how, environment in (("workers", {}), ("threads", {"TILEWRIGHT_WORKERS": "0"})):
        for asynchronous in ("", "asynchronous"):
            with tempfile.TemporaryDirectory(prefix="tilewright-tuning-") as folder:
                settings = {**os.environ, **environment, "TILEWRIGHT_CACHE_DIR": folder}
                command = [
                    sys.executable,
                    __file__,
                    "--child",
                    "lower" + asynchronous,
                    "--folder",
                    folder,
                    "--arch",
                    arch,
                ]
                done = subprocess.run(
                    command, env=settings, capture_output=True, text=True, check=True
                )
            rows.append(
                {"how": f"{how} {asynchronous}".strip(), **json.loads(done.stdout.splitlines()[-1])}
            )
    return rows


def lower_all(arch: str, folder: Path, asynchronous: bool) -> dict[str, Any]:
    """Return the seconds until the first configuration, and until all are lowered."""
    from tilewright.plugins.manifest import Device
    from tilewright.plugins.registry import registry
    from tilewright.runtime.compiler.compile import Specialization
    from tilewright.runtime.compiler.parallel_compile import Trial, Wanted, compile_trials
    from tilewright.runtime.compiler.selection import Selected

    module, backend = module_of("tilewright", folder), registry().get("nvidia")
    device = Device("nvidia", "cuda", 0, arch)
    target = backend.require("tilewright_target", device=device)

    class Compiled:
        """A mock of a kernel that receives the compiled code."""

        def is_compiled(self, selection: Any) -> bool:
            return False

        def adopt(self, compiled: Any, selection: Any) -> None:
            pass

    trials = []
    for configuration in module.CONFIGURATIONS:
        constants = {**configuration.kwargs, "PROGRAMS": 132}
        width = constants["BN"] // 2 if constants["HALVES"] else constants["BN"]
        blocks = {
            "a": (constants["BM"], constants["BK"]),
            "b": (constants["BN"], constants["BK"]),
            "c": (constants["BM"], width),
        }
        signature = {
            name: "constexpr" if name in constants else "i32" for name in module.matmul.arg_names
        }
        signature.update(
            {
                name: f"tensordesc<fp16[{', '.join(map(str, block))}]>"
                for name, block in blocks.items()
            }
        )
        options = {
            **backend.manifest.options,
            "num_warps": configuration.num_warps,
            "num_stages": configuration.num_stages,
            "asynchronous": asynchronous,
        }
        specialization = Specialization(module.matmul, signature, constants, {}, options)
        selection = Selected(specialization, backend, device, target, None, ())  # type: ignore[arg-type]
        trials.append(Trial(configuration, [Wanted(Compiled(), selection)]))  # type: ignore[arg-type]
    failures: list[str] = []
    started = time.perf_counter()
    ready = compile_trials(
        trials,
        beside=True,
        on_error=lambda configuration, error: failures.append(f"{configuration}: {error}"),
    )
    times = [time.perf_counter() - started for _ in ready]
    if failures:
        raise SystemExit("\n".join(failures))
    return {"first_s": times[0], "all_s": times[-1], "configurations": len(times)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY", help=", ".join(LIBRARIES))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--shapes", default="x".join(map(str, SHAPES[0])), help="4096x4096x4096,..., or all"
    )
    parser.add_argument("--verbose", action="store_true", help="print every configuration's time")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    outputs.add_options(parser)
    options = parser.parse_args()
    if options.child and options.child.startswith("lower"):
        print(
            json.dumps(
                lower_all(options.arch, options.folder, options.child.endswith("asynchronous"))
            )
        )
        return
    shapes = (
        SHAPES
        if options.shapes == "all"
        else [tuple(map(int, shape.split("x"))) for shape in options.shapes.split(",")]
    )
    if options.child:
        print(json.dumps(child(options.child, options.folder, [(m, n, k) for m, n, k in shapes])))
        return
    if options.compile_only:
        print(json.dumps(compile_only(options.arch), indent=1))
        return
    libraries = options.libraries or LIBRARIES
    if unknown := set(libraries) - set(LIBRARIES):
        parser.error(f"no such library: {', '.join(sorted(unknown))}")
    found: dict[str, list[dict[str, Any]]] = {library: [] for library in libraries}
    for _ in range(options.rounds):
        for library in libraries:
            found[library].append(
                measured(
                    library, ["--shapes", ",".join("x".join(map(str, shape)) for shape in shapes)]
                )
            )
            if options.verbose:
                print(library, json.dumps(found[library][-1]), flush=True)
    rows = []
    for library, rounds in found.items():
        row: dict[str, Any] = {
            "library": library,
            "cold_s": statistics.median(one["tune_s"][0] for one in rounds),
        }
        if "triton" in found:
            row["triton_ratio"] = row["cold_s"] / statistics.median(
                one["tune_s"][0] for one in found["triton"]
            )
        chosen = [
            one[name]["model"] / one[name]["tuned"]
            for one in rounds
            for name in one
            if "x" in name and isinstance(one[name].get("model"), float)
        ]
        if chosen:
            row["worst_model_over_tuned"] = max(chosen)
        rows.append(row)
    from side_by_side import report

    report("tuning of 48 configurations", rows, ("cold_s", "triton_ratio"), options)


if __name__ == "__main__":
    main()
