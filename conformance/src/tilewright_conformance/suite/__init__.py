"""The suite: the catalogue of cases, running them, reports, profiles and the command line.

The cases themselves are in :mod:`tilewright_conformance.cases`, their tools in
:mod:`tilewright_conformance.testlib` and :mod:`tilewright_conformance.oracles`.
"""
