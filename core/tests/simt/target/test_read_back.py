"""Detection of state that a target keeps between queries, in the text of its methods."""

from __future__ import annotations

import pytest

from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.target.simt_target import SimtTarget
from tilewright.testing.read_back import changes_in

# mypy: ignore-errors


class Remembers(EmulatedTarget):
    """Every way to keep something, a method each."""

    def __init__(self):
        super().__init__()
        self.known, self.names = {}, []

    def assigned(self):
        self.last = 1

    def unpacked(self):
        (first, self.last), rest = (1, 2), 3
        return first, rest

    def added(self):
        self.count += 1

    def in_a_container(self):
        self.known["a"] = 1

    def deep_inside(self):
        self.known["a"].places[0] = 1

    def appended(self):
        self.names.append("a")

    def in_a_function(self):
        def inner():
            self.known.setdefault("a", 1)

        inner()

    def looped(self):
        for self.last in range(3):
            pass

    def deleted(self):
        del self.known["a"]

    def by_name(this):
        setattr(this, "last", 1)

    def past_a_guard(self):
        object.__setattr__(self, "last", 1)


class Answers(SimtTarget):
    """Reads what it has, and changes what is not its own."""

    def reads(self, names):
        found = [*self.names]
        found.append(self.last)
        names["self"], last = found, self.known["a"]
        return self.count(last) == self.known.get("a")


def test_every_way_to_keep_something_is_found() -> None:
    found = {one.split(":")[0] for one in changes_in(Remembers)}
    methods = {name for name in vars(Remembers) if not name.startswith("_")}
    assert {one for one in found if one.startswith("Remembers.")} == {
        f"Remembers.{name}" for name in methods
    }


def test_classes_that_a_target_is_derived_from_are_looked_at() -> None:
    assert any(one.startswith("EmulatedTarget.") for one in changes_in(Remembers))


@pytest.mark.parametrize("target", [Answers, SimtTarget])
def test_what_only_answers_is_not_found(target: type[SimtTarget]) -> None:
    assert changes_in(target) == []
