"""The nvidia backend of Tilewright: NVIDIA GPUs through PTX.

The backend is a SIMT target (:mod:`.target`) of :mod:`tilewright.simt`. LLVM generates the PTX, and
the driver compiles it to device code. The backend accesses the driver through cuda-python, and only
when it looks for a device.
"""

__version__ = "0.1.0"
