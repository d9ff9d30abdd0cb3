"""The fuzzer: random tile programs on a backend and on the reference, and a small reproducer of each disagreement.

    python -m tilewright_conformance.fuzz --backend cpu --count 2000 --seed 1 --out found/

What does not live here: how a random program is made
(:mod:`tilewright_conformance.random_programs`).
"""
