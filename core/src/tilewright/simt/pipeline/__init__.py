"""Software pipelining: loads for a loop's matmuls are prefetched to shared memory.

Three vendor-neutral stages, each of which records its decisions in the IR:

- :mod:`.select`: which loads, by which copy mechanism, in which shared layout (attributes of the
  load);
- :mod:`.schedule`: how many slots, in which form, the matmul in steps or whole (attributes of the
  loop and the matmul);
- :mod:`.expand`: writes the prologue, the steady state and the epilogue of the loop.

Kinds of completion are in :mod:`.completion`: a file each, for their part of these stages. Nothing
here emits code or contains a number that was tuned for one target.
"""

from tilewright.simt.pipeline import completion
from tilewright.simt.pipeline.expand import expand
from tilewright.simt.pipeline.schedule import schedule
from tilewright.simt.pipeline.select import select

__all__ = ["completion", "expand", "schedule", "select"]
