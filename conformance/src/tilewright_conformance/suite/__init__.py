"""The suite: cases and the catalogue of them, running cases, reports, profiles and the command line.

What does not live here: the cases themselves (:mod:`tilewright_conformance.cases`), and what they
are written with (:mod:`tilewright_conformance.testlib`, :mod:`tilewright_conformance.oracles`).
"""
