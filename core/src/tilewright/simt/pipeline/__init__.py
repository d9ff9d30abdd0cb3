"""Software pipelining: what a loop loads for its matmuls is brought to shared memory some
iterations before it is needed.

Three stages that know no vendor, each of which leaves what it decides in the IR:

- :mod:`.select`: which loads, by which copy mechanism, in which shared layout (attributes of the
load); - :mod:`.schedule`: how many slots, in which form, the matmul in steps or whole (attributes
of the loop and the matmul); - :mod:`.expand`: the loop is written out: prologue, steady state,
epilogue.

Here lives nothing that emits code, and no number of a machine.
"""

from tilewright.simt.pipeline.expand import expand
from tilewright.simt.pipeline.schedule import schedule
from tilewright.simt.pipeline.select import select

__all__ = ["expand", "schedule", "select"]
