"""The fuzzer: random tile programs on a backend and on the reference.

    python -m tilewright_conformance.fuzz --backend cpu --count 2000 --seed 1 --out found/

It writes a small reproducer for each disagreement. Random programs are made elsewhere
(:mod:`tilewright_conformance.random_programs`).
"""
