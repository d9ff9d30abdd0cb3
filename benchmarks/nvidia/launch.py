"""Host time of a launch with five tensors and five integers: Tilewright against Triton.

A torch operation is measured for scale.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import outputs
import torch
from side_by_side import host_microseconds, kernels, report


def launching(kernel: Any, tensors: list[Any], numbers: tuple[int, ...]) -> Callable[[], Any]:
    """Return a launch as users write it."""
    a, b, c, d, e = tensors
    n, m, k, s, t = numbers
    return lambda: kernel[(1,)](a, b, c, d, e, n, m, k, s, t)


def main() -> None:
    parser = argparse.ArgumentParser()
    outputs.add_options(parser)
    options = parser.parse_args()
    tensors = [torch.zeros(1024, device="cuda") for _ in range(5)]
    numbers = (7, 9, 11, 13, 15)
    rows: list[dict[str, Any]] = []
    modules = kernels()
    for name, module in modules.items():
        rows.append(
            {
                "what": f"{name} kernel[grid](10 arguments)",
                "us": host_microseconds(launching(module.ten, tensors, numbers)),
            }
        )
    compiled = modules["tilewright"].ten[(1,)](*tensors, *numbers)
    run, values = compiled.run, (*tensors, *numbers)
    rows.append(
        {
            "what": "the launcher of tilewright alone",
            "us": host_microseconds(lambda: run((1, 1, 1), None, values)),
        }
    )
    rows.append(
        {
            "what": "torch.add(out=)",
            "us": host_microseconds(lambda: torch.add(tensors[0], tensors[1], out=tensors[2])),
        }
    )
    times = {row["what"].split()[0]: row["us"] for row in rows}
    if "triton" in times:
        rows.append({"what": "tilewright / triton", "ratio": times["tilewright"] / times["triton"]})
    report("launch overhead", rows, ("us",), options)


if __name__ == "__main__":
    main()
