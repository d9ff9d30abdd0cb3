"""What all tests share: a garbage collector that leaves the tests themselves alone, of which there are twenty thousand with all that they refer to."""

import gc


def pytest_sessionstart() -> None:
    gc.disable()  # while they are collected


def pytest_collection_finish() -> None:
    gc.enable()
    gc.collect()
    gc.freeze()
