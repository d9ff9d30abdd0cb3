"""A kernel's entry that flushes denormals to zero, in its operands and results.

The mode is a thread's (MXCSR on x86, FPCR on AArch64). The entry sets it for the programs that a
thread runs in a call, and restores it, so that neither other kernels nor the host see a change.
Other machines have no such mode.
"""

from __future__ import annotations

from tilewright.llvm.emission.writer import ModuleWriter

#: Flush to zero, and denormals are zero, in MXCSR.
_MXCSR_BITS = 0x8040
#: FZ and FZ16 in FPCR.
_FPCR_BITS = 0x1080000
PARAMETERS = (("ptr", "args"), ("i64", "lo"), ("i64", "hi"), ("ptr", "memory"))


#: Architectures with the mode.
MACHINES = frozenset({"x86-64", "aarch64"})


def inner_symbol(symbol: str) -> str:
    """Return the name of the function that the entry of a kernel calls in the mode."""
    return f"{symbol}.flushing"


def write_flushing_entry(module: ModuleWriter, symbol: str, arch: str) -> None:
    """Write the entry of a kernel whose programs run in :func:`inner_symbol`.

    Args:
        arch: one of :data:`MACHINES`.
    """
    writer = module.function(symbol, PARAMETERS)
    arguments = [(type_, f"%{name}") for type_, name in PARAMETERS]
    if arch == "x86-64":
        control = writer.alloca("i32", align=4)
        writer.call("llvm.x86.sse.stmxcsr", "void", [("ptr", control)])
        before = writer.load("i32", control, 4)
        writer.store("i32", writer.emit(f"or i32 {before}, {_MXCSR_BITS}"), control, 4)
        writer.call("llvm.x86.sse.ldmxcsr", "void", [("ptr", control)])
        writer.call(inner_symbol(symbol), "void", arguments)
        writer.store("i32", before, control, 4)
        writer.call("llvm.x86.sse.ldmxcsr", "void", [("ptr", control)])
    else:
        before = writer.call("llvm.aarch64.get.fpcr", "i64", [])
        flushing = writer.emit(f"or i64 {before}, {_FPCR_BITS}")
        writer.call("llvm.aarch64.set.fpcr", "void", [("i64", flushing)])
        writer.call(inner_symbol(symbol), "void", arguments)
        writer.call("llvm.aarch64.set.fpcr", "void", [("i64", before)])
    writer.ret("void")
