"""Programs: parsed and decoded instructions, and kernel descriptors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilewright_amd_emulator.code.operands import Operand
from tilewright_amd_emulator.errors import WaveError

if TYPE_CHECKING:
    # handed in: an instruction is executed on a machine
    from tilewright_amd_emulator.state.machine import Machine

#: Executes an instruction for the waves that are selected.
Step = Callable[["Machine"], None]


@dataclass
class Instruction:
    """One instruction: its name without the encoding's suffix, its operands and its modifiers.

    The value of a modifier that is a flag is the empty text.
    """

    line: int
    text: str
    mnemonic: str
    name: str
    encoding: str
    operands: tuple[Operand, ...]
    modifiers: dict[str, str]
    #: an instruction that is issued together with this one (VOPD)
    second: Instruction | None = None

    def numbers(self, modifier: str) -> tuple[int, ...] | None:
        """The numbers of a modifier such as ``op_sel:[0,1]``."""
        text = self.modifiers.get(modifier)
        return None if text is None else tuple(int(n, 0) for n in text.strip("[]").split(","))

    def number(self, modifier: str, default: int = 0) -> int:
        text = self.modifiers.get(modifier)
        return default if text is None else int(text, 0)

    def error(self, message: str) -> WaveError:
        return WaveError(message, self.line, self.text)


@dataclass
class Kernel:
    """A kernel: the index of its first instruction, and its directives without ``.amdhsa_``."""

    name: str
    entry: int
    directives: dict[str, int]


@dataclass
class Decoded:
    """A decoded instruction. Register v7 is 7 in its sets, and s7 is -8."""

    instruction: Instruction
    step: Step
    reads: frozenset[int]
    writes: frozenset[int]
    touches: frozenset[int]
    counter: str | None
    #: what the scheduler has to do with it: "", "branch", "barrier", "signal", "end", "yield"
    role: str


@dataclass
class Program:
    """Parsed text. ``target`` is a processor such as gfx942; ``wave_size`` 32 or 64."""

    target: str
    wave_size: int
    instructions: list[Instruction]
    labels: dict[str, int]
    kernels: dict[str, Kernel]
    #: constants of the program: bytes of each symbol
    data: dict[str, bytes] = field(default_factory=dict)
    #: kernels that have been decoded, by name and addresses of constants
    decoded: dict[tuple[str, tuple[tuple[str, int], ...]], list[Decoded]] = field(
        default_factory=dict, repr=False
    )

    @property
    def generation(self) -> int:
        """9, 11 or 12: the generation of the instruction set."""
        return int(self.target[3:-2])

    def kernel(self, name: str) -> Kernel:
        if name not in self.kernels:
            raise WaveError(
                f"there is no kernel {name!r} in the text; it has "
                f"{', '.join(sorted(self.kernels)) or 'none'}"
            )
        return self.kernels[name]
