"""Object code of the runtime's and the backends' own native parts: compiled once a machine, then read from the disk cache."""

from __future__ import annotations

from tilewright.plugins.manifest import CodeObject
from tilewright.runtime.keys import digest


def host_object(name: str, ir_text: str) -> bytes:
    """The object code of LLVM IR text, for the host.

    Args:
        name: for people who look at the cache.
        ir_text: a module whose code is the same in every process.
    """
    import llvmlite

    from tilewright.llvm.compile import compile_to_object, host_target
    from tilewright.runtime.artifact import Artifact
    from tilewright.runtime.cache import disk_cache

    triple, cpu, features = host_target()
    key = digest("host code", str(llvmlite.__version__), triple, cpu, features, ir_text)
    cache = disk_cache()
    found = cache.get(key)
    if found is not None:
        return found.code.binary
    binary = compile_to_object(ir_text, triple=triple, cpu=cpu, features=features, opt=2)
    cache.put(Artifact(key, CodeObject(name, binary), ()))
    return binary
