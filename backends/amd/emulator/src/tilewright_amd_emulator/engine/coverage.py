"""Counts of the mnemonics that waves executed."""

from __future__ import annotations

from collections import Counter


class Coverage(Counter[str]):
    """Mnemonics -> waves that executed them, encodings (``_e32``, ``_e64``) omitted."""

    @property
    def instructions(self) -> int:
        """Number of instructions that the waves executed."""
        return self.total()

    def report(self) -> str:
        """One line a mnemonic, the most frequent first."""
        return "\n".join(
            f"{count:12} {name}"
            for name, count in sorted(self.items(), key=lambda item: (-item[1], item[0]))
        )
