"""Modes of driver calls made while a stream is captured into a graph.

While a stream is captured, drivers reject calls that could not be replayed, from every thread, and
a rejected call ends the capture. Launching is part of a graph: launchers neither synchronise nor
allocate. Loading code, taking and freeing memory are not, but happen whenever a kernel is launched
for the first time or an array is collected; they are done in the driver's relaxed mode, in which
they leave captures alone (:meth:`tilewright.gpu_host.driver.Driver.beside_captures`).
"""

from __future__ import annotations

#: Capture modes as drivers number them: calls are checked against captures of all threads, of this
#: thread, or of none.
GLOBAL, THREAD_LOCAL, RELAXED = range(3)
