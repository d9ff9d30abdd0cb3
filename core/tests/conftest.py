"""Settings of the property tests, for which a machine that is slow, always or at times, is no
failure; and what code costs on whatever machine."""

import sys

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("tilewright", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tilewright")


@pytest.fixture
def steps_in():
    """``steps_in(function)``: how many lines of Python run when ``function`` is called, each time
    that one runs. What native code does is not seen."""

    def count(function):
        steps, before = 0, sys.gettrace()

        def note(frame, event, argument):
            nonlocal steps
            steps += event == "line"
            return note

        sys.settrace(note)
        try:
            function()
        finally:
            sys.settrace(before)
        return steps

    return count
