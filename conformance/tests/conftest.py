"""Running a kernel on the reference and on a device, and comparing the two."""

from __future__ import annotations

import pytest

from tilewright_conformance.launching import Launch, gpu_is_there

_DEVICES = ["cpu", *([pytest.param("cuda", marks=pytest.mark.gpu)] if gpu_is_there() else [])]


@pytest.fixture(params=_DEVICES)
def launch(request: pytest.FixtureRequest) -> Launch:
    """The CPU, and the GPU where there is one; see :class:`tilewright_conformance.launching.Launch`."""
    return Launch(request.param)
