"""A functional emulator of AMD GPUs in NumPy, which executes LLVM's AMDGPU assembly text.

It emulates gfx90a, gfx942 and gfx950 (wave64), gfx11 and gfx12 (wave32). Memory accesses are
checked. Loads and stores complete as late as ``s_waitcnt`` allows; reading a register before its
wait, and an unknown instruction, are errors.

    arena = Arena()
    address = arena.put(array)
    program = load(text)
    covered = run(
        program, "kernel", grid=(4, 1, 1), threads=256, arguments=struct.pack("<Q", address),
        arena=arena,
    )
    arena.get(address, array.dtype, array.shape)

It does not model speed, the order in which memory becomes visible to other compute units, or the
last bits of transcendental functions, MFMA and WMMA.
"""

from tilewright_amd_emulator.code.assembly import load
from tilewright_amd_emulator.code.disassembly import disassembled
from tilewright_amd_emulator.code.program import Program
from tilewright_amd_emulator.engine.coverage import Coverage
from tilewright_amd_emulator.engine.launch import run
from tilewright_amd_emulator.errors import WaveError
from tilewright_amd_emulator.memory.arena import Arena

__all__ = ["Arena", "Coverage", "Program", "WaveError", "disassembled", "load", "run"]
