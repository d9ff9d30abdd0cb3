"""``python -m tilewright_conformance.faulty``: the table of switches."""

from __future__ import annotations

import sys

from tilewright_conformance.faulty.table import disruptive_switches, switches, table

if __name__ == "__main__":
    sys.stdout.write(table())
    sys.stdout.write(f"{len(switches())} switches, and {len(disruptive_switches())} that disrupt the process\n")
