"""The texts and code of a compiled kernel by the names that Triton's stages have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from tilewright.compat.triton.outside import OutsideStageError
from tilewright.errors import ForeignKernelError, TilewrightError

#: Triton's name of a stage -> Tilewright's.
OWN_NAMES = {"ttir": "tileir"}
#: Stages of Triton's compiler that no backend of Tilewright has.
_OUTSIDE = {
    "ttgir": (
        "MLIR of Triton's GPU dialect. Tilewright's Tile IR is in asm['ttir'], and layouts by "
        "operation in asm['layouts'] on GPUs"
    ),
    "llmlir": "MLIR. LLVM IR is in asm['llir']",
}
_MLIR_NAME = re.compile(
    r"\b(?:tt|ttg|ttng|scf|arith|cf|gluon|amdg|nvws)\.[a-z_]|tensor<|!tt|#ttg|#blocked|#mma|#shared"
)


class TileText(str):
    """The text of Tile IR, given where Triton has MLIR.

    It can be printed, kept, compared and compiled again. Looking for MLIR in it raises an error:
    finding nothing would prove nothing.
    """

    __slots__ = ()

    def __contains__(self, part: object) -> bool:
        self._check(part)
        return isinstance(part, str) and str.__contains__(self, part)

    def count(self, part: str, *args: int) -> int:  # type: ignore[override]
        self._check(part)
        return str.count(self, part, *args)

    def find(self, part: str, *args: int) -> int:  # type: ignore[override]
        self._check(part)
        return str.find(self, part, *args)

    def _check(self, part: object) -> None:
        if isinstance(part, str) and _MLIR_NAME.search(part):
            raise OutsideStageError(
                f"asm['ttir'] is Tile IR, not MLIR, so that looking for {part!r} in it says "
                "nothing of the kernel"
            )


class Asm(Mapping[str, str | bytes]):
    """``kernel.asm``: stage -> text, or bytes of code.

    ``source`` is the Python source, ``ttir`` the Tile IR; then come the backend's stages.

    Args:
        made: stages that are made when they are asked for.
    """

    def __init__(
        self,
        stages: Mapping[str, str | bytes],
        made: Mapping[str, Callable[[], bytes]] | None = None,
    ) -> None:
        self._made = dict(made or {})
        renamed = {own: theirs for theirs, own in OWN_NAMES.items()}
        self._stages: dict[str, str | bytes] = {
            renamed.get(name, name): text for name, text in stages.items()
        }
        tile_text = self._stages.get("ttir")
        if isinstance(tile_text, str):
            self._stages["ttir"] = TileText(tile_text)

    def __setitem__(self, name: str, value: Any) -> NoReturn:
        """Triton's own are dictionaries, and are filled when they are unpickled."""
        raise ForeignKernelError

    def __getitem__(self, name: str) -> str | bytes:
        found = self._stages.get(name)
        if found is not None:
            return found
        if name in OWN_NAMES.values():
            return self[next(theirs for theirs, own in OWN_NAMES.items() if own == name)]
        if name in self._made:
            code = self._stages[name] = self._made[name]()
            return code
        if name in _OUTSIDE:
            raise OutsideStageError(
                f"asm[{name!r}] is outside what tilewright.compat.triton provides: it is "
                f"{_OUTSIDE[name]}"
            )
        if name == "sass" and "cubin" in self:
            from tilewright.compat.triton.tools.disasm import get_sass

            text = self._stages["sass"] = get_sass(bytes(self["cubin"]))  # type: ignore[arg-type]
            return text
        raise KeyError(f"Unknown key: '{name}'; this kernel has {', '.join(self._stages)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._stages)

    def __len__(self) -> int:
        return len(self._stages)

    def __contains__(self, name: object) -> bool:
        if name in self._stages:
            return True
        if name == "sass":
            return "cubin" in self
        try:
            return name in self._made and bool(self[str(name)])
        except TilewrightError:  # this machine has nothing that makes it
            return False
