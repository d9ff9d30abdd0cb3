"""Native code of the runtime and backends, compiled once per machine and cached on disk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tilewright.plugins.manifest import CodeObject
from tilewright.runtime.storage.cache_keys import digest

if TYPE_CHECKING:
    from tilewright.llvm.codegen.link import LoadedObject


def load_host_code(name: str, ir_text: str, symbols: Iterable[str]) -> LoadedObject:
    """Compile LLVM IR text and link the code into this process.

    Args:
        name: for people who look at the cache.
        ir_text: a module whose code is the same in every process.
        symbols: the symbols whose addresses are wanted.
    """
    import llvmlite

    from tilewright.errors import LoweringError
    from tilewright.llvm.codegen.compile import compile_to_object, host_target
    from tilewright.llvm.codegen.link import load_object
    from tilewright.runtime.storage.artifact import Artifact
    from tilewright.runtime.storage.disk_cache import disk_cache

    triple, cpu, features = host_target()
    key = digest("host code", str(llvmlite.__version__), triple, cpu, features, ir_text)
    cache = disk_cache()
    found = cache.get(key)
    if found is not None:
        try:
            return load_object(found.code.binary, symbols)
        except LoweringError as error:  # its checksum is right: it was written like this
            cache.discard(key, f"it cannot be loaded ({error})")
    binary = compile_to_object(ir_text, triple=triple, cpu=cpu, features=features, opt=2)
    cache.put(Artifact(key, CodeObject(name, binary), ()))
    return load_object(binary, symbols)
