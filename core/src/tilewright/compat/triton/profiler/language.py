"""``triton.profiler.language``: names for parts of a kernel.

They are for sessions that instrument kernels, of which there are none here: in all others they
write no code, in Triton as here.
"""

from __future__ import annotations

from tilewright.language.definitions.callable import constexpr_function


@constexpr_function
def enter_scope(name: str) -> None:
    """The beginning of a part."""


@constexpr_function
def exit_scope(name: str) -> None:
    """The end of a part."""


def enable_semantic(semantic_name: str) -> None:
    """Let kernels of a language name their parts, which they always may.

    Raises:
        ValueError: the language is unknown.
    """
    if semantic_name != "triton":
        raise ValueError(f"kernels are written in 'triton', not in {semantic_name!r}")


def disable_semantic(semantic_name: str) -> None:
    """The opposite of :func:`enable_semantic`, which changes as little."""
    enable_semantic(semantic_name)


__all__ = ["disable_semantic", "enable_semantic", "enter_scope", "exit_scope"]
