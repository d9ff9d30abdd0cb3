"""Programs with much host work between kernels, as in tutorials.

They run on Triton, on Tilewright through the import shim, and with Tilewright's own names. Softmax
reads the compiled kernel's registers and shared memory before every launch. Layer norm is a PyTorch
autograd function whose backward pass sums partial results under locks and then launches a second
kernel. The matmul creates its tensor descriptors for every call. ``host_us`` is the host time of a
call while the queue is almost empty, and ``ms`` is the time by events. Each library runs in a
process of its own, and the processes alternate.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from typing import Any

import outputs
import torch
from side_by_side import host_microseconds, milliseconds, report

#: For each library: environment, and the module in place of ``triton``.
LIBRARIES = {
    "triton": ({}, "triton"),
    "shim": ({"TILEWRIGHT_TRITON": "1"}, "triton"),
    "tilewright": ({}, "tilewright"),
}


def measure(library: str, quick: bool) -> list[dict[str, Any]]:
    """Return the rows of one library, in this process."""
    if library == "shim":
        importlib.import_module("tilewright.compat.triton")
    sys.modules["rival"] = importlib.import_module(LIBRARIES[library][1])
    sys.modules["rival.language"] = importlib.import_module(f"{LIBRARIES[library][1]}.language")
    program = importlib.import_module("host_programs")
    rows = []
    for columns in (781,) if quick else (256, 781, 4096):
        x = torch.randn(4096, columns, device="cuda")
        torch.testing.assert_close(program.softmax(x), torch.softmax(x, 1))
        rows.append((f"softmax 4096x{columns}", lambda x=x: program.softmax(x)))
    for columns in (1024,) if quick else (512, 1024, 4096, 8192):
        x = torch.randn(4096, columns, dtype=torch.float16, device="cuda", requires_grad=True)
        w, b = (
            torch.rand(columns, dtype=torch.float16, device="cuda", requires_grad=True)
            for _ in range(2)
        )
        given = 0.1 * torch.randn_like(x)
        y = program.layer_norm(x, w, b, 1e-5)
        y.backward(given, retain_graph=True)
        found = [each.grad.clone() for each in (x, w, b)]
        for each in (x, w, b):
            each.grad = None
        torch.nn.functional.layer_norm(x, (columns,), w, b, 1e-5).backward(given)
        for mine, each in zip(found, (x, w, b), strict=True):
            torch.testing.assert_close(mine, each.grad, atol=2e-2, rtol=2e-2)
        rows.append(
            (
                f"layer norm forward 4096x{columns}",
                lambda x=x, w=w, b=b: program.layer_norm(x, w, b, 1e-5),
            )
        )

        def backward(x: Any = x, y: Any = y, given: Any = given) -> None:
            x.grad = None
            y.backward(given, retain_graph=True)

        rows.append((f"layer norm backward 4096x{columns}", backward))
    a, b = (torch.randn(512, 512, dtype=torch.float16, device="cuda") for _ in range(2))
    torch.testing.assert_close(program.product(a, b), a @ b.T, atol=1e-1, rtol=1e-2)
    rows.append(("product of descriptors 512", lambda: program.product(a, b)))
    descriptors = program.described(a, b, torch.empty(512, 512, dtype=torch.float16, device="cuda"))
    rows.append(
        (
            "launch with three descriptors",
            lambda: program.launch_product(*descriptors, 512, 512, 512),
        )
    )
    if library != "triton":
        rows.append(
            (
                "launch with three tensor maps",
                lambda: program.launch_product(*descriptors, 512, 512, 512, asynchronous=True),
            )
        )
    return [
        {
            "what": name,
            "host_us": host_microseconds(call, 50, 20),
            "ms": milliseconds({name: call}, 50)[name],
        }
        for name, call in rows
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--library",
        choices=LIBRARIES,
        help="measure one library in this process, and print its rows as JSON",
    )
    parser.add_argument("--quick", action="store_true", help="one size each")
    parser.add_argument("--turns", type=int, default=2)
    outputs.add_options(parser)
    options = parser.parse_args()
    if options.library:
        print(json.dumps(measure(options.library, options.quick)))
        return
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for _ in range(options.turns):
        for library, (environment, _) in LIBRARIES.items():
            command = [
                sys.executable,
                __file__,
                "--library",
                library,
                *(["--quick"] if options.quick else []),
            ]
            done = subprocess.run(
                command,
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                errors = done.stderr.strip().splitlines()
                print(f"{library}: {errors[-1] if errors else done.returncode}")
                continue
            for row in json.loads(done.stdout.splitlines()[-1]):
                found.setdefault(row["what"], {}).setdefault(library, []).append(row)
    rows: list[dict[str, Any]] = []
    for what, libraries in found.items():
        row: dict[str, Any] = {"what": what}
        for measured in ("host_us", "ms"):
            best = {
                library: min(turn[measured] for turn in turns)
                for library, turns in libraries.items()
            }
            row.update({f"{library}_{measured}": value for library, value in best.items()})
            if "triton" in best:
                row.update(
                    {
                        f"{library}_{measured}_ratio": best["triton"] / value
                        for library, value in best.items()
                        if library != "triton"
                    }
                )
        rows.append(row)
    report(
        "host side",
        rows,
        ("tilewright_host_us_ratio", "shim_host_us_ratio", "tilewright_ms_ratio", "shim_ms_ratio"),
        options,
    )


if __name__ == "__main__":
    main()
