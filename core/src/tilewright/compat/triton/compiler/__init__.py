"""``triton.compiler``: from a kernel's source to code."""

from tilewright.compat.triton.compiler.compiler import (
    ASTSource,
    CompiledKernel,
    IRSource,
    LazyDict,
    compile,
    get_cache_key,
    make_backend,
    max_shared_mem,
)
from tilewright.compat.triton.compiler.errors import CompilationError

__all__ = [
    "ASTSource",
    "CompilationError",
    "CompiledKernel",
    "IRSource",
    "LazyDict",
    "compile",
    "get_cache_key",
    "make_backend",
    "max_shared_mem",
]
