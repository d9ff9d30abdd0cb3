"""Registration of the kinds of completion of copies."""

from __future__ import annotations

import pytest

from tilewright.errors import LoweringError
from tilewright.simt.pipeline.modulo_expander import Copies, completes, kind_of, kinds
from tilewright.simt.target.copy_mechanism import THROUGH_REGISTERS, CopyMechanism


def test_the_toolkit_has_three_kinds() -> None:
    assert {name: kind.__name__ for name, kind in kinds().items()} == {
        "groups": "CpAsyncCopies",
        "barrier": "TmaCopies",
        "registers": "RegisterCopies",
    }
    assert kind_of(THROUGH_REGISTERS).__name__ == "RegisterCopies"


def test_a_kind_is_registered_once() -> None:
    with pytest.raises(ValueError, match="copies that complete by 'groups' are registered already"):
        completes("groups")(Copies)


def test_a_mechanism_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(LoweringError) as refused:
        kind_of(CopyMechanism("acme.dma", "interrupt"))
    assert str(refused.value) == (
        "copies by 'acme.dma' complete by 'interrupt', which is not registered; there are barrier, "
        "groups, registers"
    )
