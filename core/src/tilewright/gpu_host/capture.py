"""Driver calls made while a stream is captured into a graph.

While a stream is captured, drivers reject calls that could not be replayed, from every thread, and
a rejected call ends the capture. Launching is part of a graph: launchers neither synchronise nor
allocate. Loading code, taking and freeing memory are not, but happen whenever a kernel is launched
for the first time or an array is collected; they are done in the driver's relaxed mode, in which
they leave captures alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tilewright.gpu_host.driver import Driver

#: Capture modes as drivers number them: calls are checked against captures of all threads, of this
#: thread, or of none.
GLOBAL, THREAD_LOCAL, RELAXED = range(3)


@contextlib.contextmanager
def beside_captures(driver: Driver, device: int) -> Iterator[None]:
    """Make the device's context current and its calls independent of any graph capture.

    Both hold for the length of the ``with`` block.
    """
    with driver.use(device):
        exchange = driver.entries.capture_mode
        if exchange is None:
            yield
            return
        before = driver(exchange, RELAXED)
        try:
            yield
        finally:
            driver(exchange, before)
