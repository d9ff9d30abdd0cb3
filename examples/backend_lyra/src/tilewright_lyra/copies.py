"""Lyra's asynchronous copies to shared memory.

Each thread copies 4 or 8 bytes and waits for its groups.
"""

from __future__ import annotations

from tilewright.simt.emulator import start_copy
from tilewright.simt.target.copy_mechanism import GROUPS, CopyMechanism

#: ``start_copy`` writes the emulated machine's instruction; on a machine of your own it is a
#: function that writes yours.
COPY = CopyMechanism("lyra.copy", GROUPS, widths=(4, 8), start=start_copy)
