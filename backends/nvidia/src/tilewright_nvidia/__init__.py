"""The nvidia backend of Tilewright: NVIDIA GPUs through PTX.

Code is generated on :mod:`tilewright.simt` (:mod:`.target` is what it asks of the machine), written as PTX by LLVM, and compiled to device code by the
driver. The driver is reached through cuda-python, and only when a device is looked for.
"""

__version__ = "0.1.0"
