"""``python -m tilewright_conformance.mutation``: the table of switches.

With ``--catch`` it runs the case of the suite that catches each switch.
"""

from __future__ import annotations

import argparse
import sys

from tilewright_conformance.mutation.killing_cases import (
    CAUGHT,
    PROFILE_LISTS,
    catching_cases,
    likely,
    outcome,
    search,
    write_catching_cases,
)
from tilewright_conformance.mutation.mutants import disruptive_switches, switch, switches, table
from tilewright_conformance.suite.catalogue import catalogue


def main() -> int:
    """Returns the exit code: 1 where a switch was not caught."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright_conformance.mutation",
        description="Backends that are wrong on purpose, one switch a bug.",
    )
    parser.add_argument("switches", nargs="*", metavar="SWITCH", help="all, where none is named")
    parser.add_argument(
        "--catch",
        action="store_true",
        help="run the case that catches each switch, and print what it says",
    )
    parser.add_argument(
        "--search",
        action="store_true",
        help="look for a case for each switch whose own does not catch it, and write the list anew",
    )
    parser.add_argument(
        "--profile",
        default="",
        choices=PROFILE_LISTS,
        help="the list of the switches that this profile's cases catch",
    )
    options = parser.parse_args()
    if not (options.catch or options.search):
        sys.stdout.write(table())
        sys.stdout.write(
            f"{len(switches())} switches, and {len(disruptive_switches())} that disrupt "
            "the process\n"
        )
        return 0
    known, missed = catching_cases(options.profile), 0
    chosen = [switch(name) for name in options.switches or (known if options.profile else ())]
    chosen = chosen or [*switches(), *disruptive_switches()]
    cases = catalogue().select(profiles=[options.profile] if options.profile else [])
    for one in chosen:
        if options.search:
            found = search(one, likely(one, cases, known.get(one.name)))
        else:
            case = catalogue()[known[one.name]]
            said = outcome(one, case)
            found = (case, said) if said.status in CAUGHT else None
        if found is None:
            missed += 1
            known.pop(one.name, None)
            print(f"{one.name:<28} NOT CAUGHT", flush=True)
            continue
        case, said = found
        known[one.name] = case.id
        print(
            f"{one.name:<28} {case.id:<48} {said.status}: {' '.join(said.message.split())[:100]}",
            flush=True,
        )
    if options.search:
        write_catching_cases(known, options.profile)
    print(f"{len(chosen) - missed} of {len(chosen)} switches caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
