"""No function of the device library is without a case."""

from __future__ import annotations

from tilewright.language.extra import libdevice
from tilewright_conformance.suite.catalogue import catalogue


def test_every_function_has_a_case() -> None:
    tested = {
        case.subject.removeprefix("libdevice.") for case in catalogue().family("libdevice").values()
    }
    assert set(libdevice.__all__) - tested == set()
    assert tested - set(libdevice.__all__) == {"libdevice"}  # what is said of all of them
