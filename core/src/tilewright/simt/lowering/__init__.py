"""Lowering of operations to LLVM IR for one thread, with one file for each family of operations.

Each file here is imported with the package and registers the interfaces of its operations.
Elementwise operations have no interface: :mod:`.elementwise` runs the emitters that the CPU and GPU
backends share on each register.
"""

from tilewright.passes.package_modules import import_modules

import_modules(__name__)
