"""A GPU that does not exist, Lyra, as a backend on the toolkit of :mod:`tilewright.simt`.

Its programs run on the toolkit's emulated machine.
"""

__version__ = "0.1.0"
