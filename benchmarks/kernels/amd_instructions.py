"""Count the instructions that operations execute on AMD GPUs, beside those of Liger's kernels.

    amd_instructions.py --triton PYTHON                     all cases on all targets
    amd_instructions.py --triton PYTHON --target gfx942 softmax
    amd_instructions.py --triton PYTHON --mnemonics swiglu  and what the counts differ in

PYTHON is one with PyTorch, Triton and Liger, which compiles Liger's kernels; this one needs the
emulator of AMD's waves with its disassembler, which executes both on the same data, whole grids.
No GPU is used. An instruction counts as one whatever it takes; PyTorch's own operations, such as
Liger's sums over the rows of partial sums, count nothing. Prints a line for each case and pass, and
a table in Markdown. The status is 1 where results differ.
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TARGETS = ("gfx942", "gfx950", "gfx1100", "gfx1201")
#: Largest difference of results in bf16, relative to the largest element.
TOLERANCE = 2e-2
_LISTED = 20


@dataclass
class Row:
    """What a pass of a case executed.

    Attributes:
        ours, theirs: instructions.
        difference: of results, relative to the largest element.
    """

    target: str
    case: str
    label: str
    ours: int
    theirs: int
    difference: float

    @property
    def ratio(self) -> float:
        """Our instructions by theirs."""
        return self.ours / self.theirs


class Rival:
    """Executes recorded launches of Triton's kernels."""

    def __init__(self, folder: Path, case: str) -> None:
        from tilewright_amd_emulator import Arena

        self.folder = folder
        self.record = json.loads((folder / f"{case}.json").read_text())
        self.arena = Arena(64 << 20, unaligned=True)
        self.places: dict[str, int] = {}

    def execute(self, number: int) -> Counter[str]:
        """Execute the launches of a pass, and return their instructions."""
        from tilewright_amd_emulator import disassembled, load, run
        from tilewright_amd_emulator.engine.kernel_arguments import packed, sizes_of_arguments

        found: Counter[str] = Counter()
        for launch in self.record["passes"][number]:
            listing = (self.folder / f"{launch['code']}.s").read_text()
            program = load(disassembled((self.folder / f"{launch['code']}.hsaco").read_bytes()))
            values = [self._value(each) for each in launch["arguments"]]
            values += [0] * (len(sizes_of_arguments(listing)) - len(values))
            grid = tuple(launch["grid"])
            is_fixed = program.kernel(launch["kernel"]).directives.get("group_segment_fixed_size")
            found += run(
                program, launch["kernel"], grid=grid, threads=program.wave_size * launch["warps"],
                arguments=packed(listing, values, grid), arena=self.arena,
                dynamic_lds=0 if is_fixed else launch["shared"],
            )  # fmt: skip
        return found

    def results(self, number: int) -> list[Any]:
        """Return the tensors that a pass returned, as its launches left them; None for others."""
        import numpy as np
        import torch

        found = []
        for each in self.record["results"][number]:
            if each is None:
                found.append(None)
                continue
            dtype = getattr(torch, each["dtype"])
            size = torch.Size(each["shape"]).numel() * dtype.itemsize
            taken = self.arena.get(self._place(each), np.dtype(np.uint8), (size,))
            found.append(torch.from_numpy(taken.copy()).view(dtype).view(each["shape"]))
        return found

    def _place(self, tensor: dict[str, Any]) -> int:
        import numpy as np

        storage = tensor["storage"]
        if storage not in self.places:
            contents = (self.folder / f"{storage}.bytes").read_bytes()
            self.places[storage] = self.arena.put(np.frombuffer(contents, np.uint8))
        return self.places[storage] + int(tensor["offset"])

    def _value(self, argument: dict[str, Any]) -> bytes | int:
        if "storage" in argument:
            return self._place(argument)
        if "float" in argument:
            return struct.pack("<f", argument["float"])
        return int(argument["integer"])


def executed(target: str, names: list[str], folder: Path, mnemonics: bool) -> list[Row]:
    """Execute cases on a target; its emulator replaces the HIP runtime of this process."""
    from amd_cases import CASES, results_of

    import tilewright_kernels as tk
    from tilewright_amd_emulator.hip.emulation import emulate
    from tilewright_amd_emulator.hip.host_arrays import host_arrays

    device, rows = emulate(target, "lockstep", shared=True), []
    with host_arrays(device):
        for name in names:
            case = CASES[name]
            rival = Rival(folder, name)
            ours, theirs, difference = [], [], 0.0
            for number, call in enumerate(results_of(case, case.ours(tk))):
                device.covered.clear()
                returned = call()
                ours.append(Counter(device.covered))
                theirs.append(rival.execute(number))
                for one, other in zip(returned, rival.results(number), strict=True):
                    if other is not None:
                        difference = max(difference, distance(one, other))
            labels = ["forward", "backward"]
            if case.together:
                ours, theirs, labels = [ours[0] + ours[1]], [theirs[0] + theirs[1]], ["both"]
            for label, mine, other in zip(labels, ours, theirs, strict=True):
                row = Row(target, name, label, mine.total(), other.total(), difference)
                rows.append(row)
                print(line(row), file=sys.stderr, flush=True)
                if mnemonics:
                    print(differences(mine, other), file=sys.stderr, flush=True)
    return rows


def distance(found: Any, expected: Any) -> float:
    """Return the largest difference relative to the largest element."""
    found = found.detach()
    scale = float(expected.double().abs().max()) or 1.0
    return float((found.double() - expected.double()).abs().max()) / scale


def differences(ours: Counter[str], theirs: Counter[str]) -> str:
    """Return a line for each mnemonic of which one executes more, the largest difference first."""
    names = sorted(ours | theirs, key=lambda name: -abs(ours[name] - theirs[name]))
    return "\n".join(
        f"    {name:34} {ours[name]:8} {theirs[name]:8} {ours[name] - theirs[name]:+8}"
        for name in names[:_LISTED]
        if ours[name] != theirs[name]
    )


def line(row: Row) -> str:
    """Return a row as text."""
    return (
        f"{row.target:8} {row.case:14} {row.label:8} {row.ours:9} {row.theirs:9} {row.ratio:5.2f} "
        f"differ by {row.difference:.1e}{'' if row.difference <= TOLERANCE else '  WRONG'}"
    )


def table(rows: list[Row]) -> str:
    """Return the ratios as a table in Markdown: a line for each pass, a column for each target."""
    targets = list(dict.fromkeys(row.target for row in rows))
    found = {(row.case, row.label, row.target): row for row in rows}
    lines = [
        "| operation | pass | " + " | ".join(targets) + " |",
        "|---|---" + "|---:" * len(targets) + "|",
    ]
    for case, label in dict.fromkeys((row.case, row.label) for row in rows):
        of_case = [found[case, label, target] for target in targets]
        cells = [f"{row.ratio:.2f} ({row.ours:,} by {row.theirs:,})" for row in of_case]
        lines.append(f"| `{case}` | {label} | {' | '.join(cells)} |")
    means = [
        statistics.geometric_mean([row.ratio for row in rows if row.target == target])
        for target in targets
    ]
    lines.append("| geometric mean | | " + " | ".join(f"{mean:.2f}" for mean in means) + " |")
    return "\n".join(lines)


def main() -> int:
    """Compile the rivals, and execute the cases, in processes for each target."""
    from amd_cases import CASES

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", help="cases; all if none")
    parser.add_argument("--triton", required=True, metavar="PYTHON")
    parser.add_argument("--target", action="append", default=[], choices=TARGETS)
    parser.add_argument("--mnemonics", action="store_true")
    parser.add_argument("--folder", type=Path, help="of recorded launches of one target")
    options = parser.parse_args()
    names = options.names or list(CASES)
    if options.folder is not None:
        rows = executed(options.target[0], names, options.folder, options.mnemonics)
        print(json.dumps([asdict(row) for row in rows]))
        return 0
    rows = []
    for target in options.target or TARGETS:
        with tempfile.TemporaryDirectory() as folder:
            record = [options.triton, str(HERE / "triton_launches.py"), folder, target, *names]
            subprocess.run(record, check=True, stdout=sys.stderr)
            command = [sys.executable, __file__, *names, "--triton", options.triton]
            command += ["--target", target, "--folder", folder]
            command += ["--mnemonics"] * options.mnemonics
            text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        rows += [Row(**row) for row in json.loads(text)]
    print(table(rows))
    return int(any(row.difference > TOLERANCE for row in rows))


if __name__ == "__main__":
    sys.exit(main())
