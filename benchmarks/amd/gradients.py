"""Execute derived backward passes beside those by hand in the emulator of AMD's waves.

    python benchmarks/amd/gradients.py                      all targets and cases
    python benchmarks/amd/gradients.py --target gfx942 --case softmax

For each case it prints the largest error relative to the largest gradient in float64, of the
derived pass and of the one by hand, the instructions that the waves of each executed, and their
ratio (below 1: the derived pass executes fewer). An instruction counts as one whatever it takes.
``--mnemonics`` prints those whose counts differ most. The last lines are a table. The status is 1
where a gradient is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TARGETS = ("gfx942", "gfx950", "gfx1100", "gfx1201")
CASES = (
    "attention-64-full", "attention-64-causal", "softmax", "layer-norm", "swiglu", "matmul"
)  # fmt: skip
#: Error relative to the largest gradient that is right in float16.
TOLERANCE = 4e-3
#: Mnemonics that ``--mnemonics`` prints.
_LISTED = 24


@dataclass
class Row:
    """What a case's two backward passes did on a target.

    Attributes:
        errors: of the derived pass, and of the one by hand.
        derived, hand: instructions that the waves executed.
        kernels: kernels of the derived plan.
    """

    target: str
    case: str
    errors: tuple[float, float]
    derived: int
    hand: int
    kernels: int

    @property
    def ratio(self) -> float:
        """Instructions of the derived pass by those of the one by hand."""
        return self.derived / self.hand

    @property
    def is_right(self) -> bool:
        """Return whether both passes are right."""
        return max(self.errors) <= TOLERANCE


def executed(target: str, names: list[str], mnemonics: bool) -> list[Row]:
    """Execute cases on a target; its emulator replaces the HIP runtime of this process."""
    sys.path.insert(0, str(HERE.parent))
    import torch
    from gradient_cases import Cases, Sizes
    from gradients import error_of

    from tilewright_amd_emulator.hip.emulation import emulate
    from tilewright_amd_emulator.hip.host_arrays import host_arrays

    sizes = Sizes(torch.float16, 1, 256, 64, 512, 1024, 1024, 256, (64, 64), (64, 64, 32))
    device = emulate(target, "lockstep", shared=True)
    rows = []
    with host_arrays(device):
        makers = Cases("cpu", sizes, is_gpu=True).all()
        for name in names:
            case = makers[name]()
            assert case.hand is not None
            case.forward()

            gradients = tuple(case.gradients.values())
            derived = counted(device, case.derived, gradients)
            hand = counted(device, case.hand, case.by_hand)
            errors = error_of(case, gradients), error_of(case, case.by_hand)
            kernels = len(case.plan().kernels)
            rows.append(Row(target, name, errors, derived.total(), hand.total(), kernels))
            print(line(rows[-1]), file=sys.stderr, flush=True)
            if mnemonics:
                print(difference(derived, hand), file=sys.stderr, flush=True)
    return rows


def counted(device: Any, call: Callable[[], Any], gradients: tuple[Any, ...]) -> Counter[str]:
    """Return the instructions that a call executes, launched into poisoned gradients."""
    for value in gradients:
        value.fill_(math.nan)
    device.covered.clear()
    call()
    return Counter(device.covered)


def difference(derived: Counter[str], hand: Counter[str]) -> str:
    """Return a line for each mnemonic of which one pass executes more, the largest first."""
    names = sorted(derived | hand, key=lambda name: -abs(derived[name] - hand[name]))
    return "\n".join(
        f"    {name:32} {derived[name]:8} {hand[name]:8} {derived[name] - hand[name]:+8}"
        for name in names[:_LISTED]
        if derived[name] != hand[name]
    )


def line(row: Row) -> str:
    """Return a row as text."""
    return (
        f"{row.target:8} {row.case:20} {row.derived:9} {row.hand:9} {row.ratio:5.2f}  errors "
        f"{row.errors[0]:.1e} {row.errors[1]:.1e}  {row.kernels} kernels"
        f"{'' if row.is_right else '  WRONG'}"
    )


def table(rows: list[Row]) -> str:
    """Return the ratios as a table in Markdown: a line for each case, a column for each target."""
    targets = list(dict.fromkeys(row.target for row in rows))
    found = {(row.case, row.target): row for row in rows}
    lines = [
        "| case | " + " | ".join(targets) + " | error, by hand |",
        "|---" * (len(targets) + 2) + "|",
    ]
    for name in dict.fromkeys(row.case for row in rows):
        of_case = [found[name, target] for target in targets]
        cells = [f"{row.ratio:.2f} ({row.derived:,} by {row.hand:,})" for row in of_case]
        worst = [max(row.errors[side] for row in of_case) for side in range(2)]
        lines.append(f"| {name} | {' | '.join(cells)} | {worst[0]:.0e}, {worst[1]:.0e} |")
    means = [
        statistics.geometric_mean([row.ratio for row in rows if row.target == target])
        for target in targets
    ]
    lines.append("| geometric mean | " + " | ".join(f"{mean:.2f}" for mean in means) + " | |")
    return "\n".join(lines)


def main() -> int:
    """Execute the cases, a process for each target."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--target", action="append", default=[], choices=TARGETS)
    parser.add_argument("--case", action="append", default=[], choices=CASES)
    parser.add_argument("--mnemonics", action="store_true")
    parser.add_argument("--json", action="store_true", help="one target: print rows as JSON")
    options = parser.parse_args()
    targets, names = options.target or list(TARGETS), options.case or list(CASES)
    if options.json:
        found = executed(targets[0], names, options.mnemonics)
        print(json.dumps([asdict(row) for row in found]))
        return int(not all(row.is_right for row in found))
    rows = []
    for target in targets:
        command = [sys.executable, __file__, "--json", "--target", target]
        command += ["--mnemonics"] * options.mnemonics
        command += [part for name in names for part in ("--case", name)]
        text = subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout
        rows += [Row(**row) for row in json.loads(text)]
    print(table(rows))
    return int(not all(row.is_right for row in rows))


if __name__ == "__main__":
    sys.exit(main())
