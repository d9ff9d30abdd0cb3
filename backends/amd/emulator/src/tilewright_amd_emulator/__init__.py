"""A functional emulator of AMD GPUs in NumPy, driven by the assembly text that LLVM writes for triple amdgcn-amd-amdhsa.

For gfx90a, gfx942 and gfx950 (waves of 64 lanes) and gfx11 and gfx12 (waves of 32). Memory is checked, loads and stores complete as late as the waits
allow, a register that is read before its wait is an error, and so is an instruction that is not known.

    arena = Arena()
    address = arena.put(array)
    program = load(text)
    covered = run(program, "kernel", grid=(4, 1, 1), threads=256, arguments=struct.pack("<Q", address), arena=arena)
    arena.get(address, array.dtype, array.shape)

What it does not tell: speed, the order in which memory becomes visible to other compute units, last bits of transcendental functions and of matrix products.
"""

from tilewright_amd_emulator.code.assembly import load
from tilewright_amd_emulator.code.disassembly import disassembled
from tilewright_amd_emulator.code.program import Program
from tilewright_amd_emulator.engine.coverage import Coverage
from tilewright_amd_emulator.engine.launch import run
from tilewright_amd_emulator.errors import WaveError
from tilewright_amd_emulator.memory.arena import Arena

__all__ = ["Arena", "Coverage", "Program", "WaveError", "disassembled", "load", "run"]
