"""Settings of the property tests: a machine that does other work is slow at times, which is no failure."""

from hypothesis import settings

settings.register_profile("tilewright", deadline=None)
settings.load_profile("tilewright")
